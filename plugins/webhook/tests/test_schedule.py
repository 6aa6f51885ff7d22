# SPDX-License-Identifier: Apache-2.0
"""What follows an attempt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from validator_webhook.limits import JITTER, RETRY_AFTER_S_MAX, RETRY_FIRST_S, RETRY_LONGEST_S
from validator_webhook.schedule import (
    Again,
    Answer,
    Delivered,
    Failure,
    Outcome,
    Park,
    follow_up,
    pause_s,
    retry_after_s,
    words,
)

NOW_S = 1_800_000_000.0
TIMEOUT = Failure("timeout", "no answer within 15 s")


def after(outcome: Outcome, failures: int = 1, failing_s: float = 0.0, chance: float = 0.0) -> object:
    return follow_up(outcome, failures, failing_s, 86_400.0, chance, NOW_S)


def test_pauses_double_up_to_a_bound() -> None:
    assert [pause_s(failures, 0.0) for failures in (1, 2, 3, 10, 11, 10_000)] == [1, 2, 4, 512, 600, 600]


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_jitter_takes_off_at_most_its_share(failures: int, chance: float) -> None:
    pause = pause_s(failures, chance)
    assert RETRY_FIRST_S * (1 - JITTER) <= pause <= RETRY_LONGEST_S
    assert pause_s(failures, 0.0) * (1 - JITTER) <= pause <= pause_s(failures, 0.0)


@pytest.mark.parametrize("status", [200, 202, 204, 299])
def test_success_is_any_2xx(status: int) -> None:
    assert after(Answer(status), 5, 1e6) == Delivered()


@pytest.mark.parametrize("status", [301, 302, 307, 400, 401, 404, 413, 429, 500, 503, 199, 999])
def test_any_other_status_is_tried_again(status: int) -> None:
    assert after(Answer(status), 3) == Again(4.0)


def test_gone_is_parked_at_once_and_failing_for_too_long_too() -> None:
    assert after(Answer(410)) == Park()
    assert after(TIMEOUT, 9, 86_399.0) == Again(1.0), "the last attempt comes when the time is over"
    assert after(TIMEOUT, 9, 86_400.0) == Park()


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120.0),
        (" 7 ", 7.0),
        ("999999999999999999999", RETRY_AFTER_S_MAX),
        ("Fri, 15 Jan 2027 08:00:30 GMT", 30.0),
        ("Fri, 15 Jan 2027 08:00:30", 30.0),
        ("Fri, 15 Jan 2027 07:00:00 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", RETRY_AFTER_S_MAX),
        ("-5", 0.0),
        ("soon", 0.0),
        ("1.5", 0.0),
        ("", 0.0),
        (None, 0.0),
    ],
)
def test_retry_after(header: str | None, seconds: float) -> None:
    assert retry_after_s(header, NOW_S) == seconds


def test_retry_after_lengthens_a_pause_and_never_shortens_it() -> None:
    assert after(Answer(429, "100"), 3) == Again(100.0)
    assert after(Answer(503, "1"), 3) == Again(4.0)


def test_words() -> None:
    assert words(Answer(503)) == "the receiver answered 503 Service Unavailable"
    assert words(Answer(302)) == "the receiver answered 302 Found; redirects are not followed"
    assert words(Answer(799)) == "the receiver answered 799 a status without a name"
    assert words(TIMEOUT) == "no answer within 15 s"
