# SPDX-License-Identifier: Apache-2.0
"""What follows an attempt: delivered, another attempt after a pause, or parked. Pure: time and chance are arguments."""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final, NamedTuple, TypeAlias

from validator_webhook.limits import JITTER, RETRY_AFTER_S_MAX, RETRY_FIRST_S, RETRY_LONGEST_S

DOUBLINGS_MAX: Final = 32


class Answer(NamedTuple):
    """A receiver has answered; ``retry_after`` is the header's text."""

    status: int
    retry_after: str | None = None


class Failure(NamedTuple):
    """There was no answer; ``kind`` is one of a few words, ``detail`` one line."""

    kind: str
    detail: str


Outcome: TypeAlias = Answer | Failure


class Delivered(NamedTuple):
    """The receiver has the record."""


class Again(NamedTuple):
    """Another attempt is due."""

    pause_s: float


class Park(NamedTuple):
    """No further attempt, until an operator says so."""


Step: TypeAlias = Delivered | Again | Park


def pause_s(failures: int, chance: float) -> float:
    """Return the seconds before another attempt after this many failures in a row; ``chance`` is from 0 to 1."""
    longest = min(RETRY_FIRST_S * 2.0 ** min(failures - 1, DOUBLINGS_MAX), RETRY_LONGEST_S)
    return longest * (1 - JITTER * chance)


def retry_after_s(text: str | None, now_s: float) -> float:
    """Return the seconds that a header `Retry-After` asks for, within the bound; 0 for none and for one that cannot be read."""
    if text is None:
        return 0.0
    text = text.strip()
    if text.isascii() and text.isdecimal():
        return min(float(text[:12]), RETRY_AFTER_S_MAX)
    try:
        date = parsedate_to_datetime(text)
        at_s = (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return 0.0
    return min(max(0.0, at_s - now_s), RETRY_AFTER_S_MAX)


def follow_up(
    outcome: Outcome, failures: int, failing_s: float, park_after_s: float, chance: float, now_s: float
) -> Step:
    """Return what follows an attempt.

    ``failures`` counts this one if it is one, ``failing_s`` are the seconds since the first of them. The last attempt before a subscription
    is parked comes when ``park_after_s`` are over, however long the pauses are.
    """
    if isinstance(outcome, Answer) and HTTPStatus.OK <= outcome.status < HTTPStatus.MULTIPLE_CHOICES:
        return Delivered()
    if failing_s >= park_after_s or (isinstance(outcome, Answer) and outcome.status == HTTPStatus.GONE):
        return Park()
    asked_s = retry_after_s(outcome.retry_after, now_s) if isinstance(outcome, Answer) else 0.0
    return Again(min(max(pause_s(failures, chance), asked_s), park_after_s - failing_s))


def words(outcome: Outcome) -> str:
    """Return an outcome in one line."""
    if isinstance(outcome, Failure):
        return outcome.detail
    try:
        phrase = HTTPStatus(outcome.status).phrase
    except ValueError:
        phrase = "a status without a name"
    hint = "; redirects are not followed" if 300 <= outcome.status < 400 else ""
    return f"the receiver answered {outcome.status} {phrase}{hint}"
