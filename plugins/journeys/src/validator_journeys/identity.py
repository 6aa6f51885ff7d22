# SPDX-License-Identifier: Apache-2.0
"""The identity of a message, and its one text: ``polkadot.horizontal.2000.2004.17.5``.

The parts are lane, kind, sender, recipient, the block in which the queue's numbering began, and the number in the queue. The relay chain's
side is ``relay``. A lane's name may have dots, so a text is parsed from its end. All characters are unreserved in a URL (RFC 3986, 2.3).
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

from validator.plugin.protocol_api import U32_MAX

RELAY: Final = "relay"
"""In place of a para id: the relay chain."""
NUMBER_MAX: Final = 2**63 - 1

_LANE: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_NATURAL: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_NUMBER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")


class Kind(StrEnum):
    """From where to where a message goes."""

    HORIZONTAL = "horizontal"
    DOWNWARD = "downward"
    UPWARD = "upward"


class Identity(NamedTuple):
    """Which message it is.

    ``sender`` is None for downward messages, ``recipient`` for upward ones. ``opened_at`` is the block in which the channel was opened or,
    for a queue of the relay chain, in which the para was last offboarded; 0 if neither was seen, which a record shows as null. ``number``
    counts from 1; messages that waited when the lane or the job began may have numbers up to 0.
    """

    lane: str
    kind: Kind
    sender: int | None
    recipient: int | None
    opened_at: int
    number: int

    def __str__(self) -> str:
        lane, kind, sender, recipient, opened_at, number = self
        sender_text, recipient_text = (RELAY if end is None else end for end in (sender, recipient))
        return f"{lane}.{kind.value}.{sender_text}.{recipient_text}.{opened_at}.{number}"


class IdentityError(ValueError):
    """A text is no identity; the message says which part is wrong."""


def parse(text: str) -> Identity:
    """Return the identity that a text names.

    Raises `IdentityError` that names the first wrong part: the number of parts, lane, kind, sender, recipient, opened_at, number.
    """
    parts = text.rsplit(".", 5)
    if len(parts) != len(Identity._fields):
        raise IdentityError(f"message id: expected LANE.KIND.SENDER.RECIPIENT.OPENED_AT.NUMBER, found {text[:160]!r}")
    lane, kind_name, sender, recipient, opened_at, number = parts
    if not _LANE.fullmatch(lane):
        raise IdentityError(f"message id: lane: expected at most 64 characters of a-z 0-9 . _ -, found {lane[:80]!r}")
    try:
        kind = Kind(kind_name)
    except ValueError:
        raise IdentityError(f"message id: kind: expected {', '.join(Kind)}, found {kind_name[:40]!r}") from None
    return Identity(
        lane,
        kind,
        _parse_end("sender", sender, relay=kind is Kind.DOWNWARD),
        _parse_end("recipient", recipient, relay=kind is Kind.UPWARD),
        _parse_u32("opened_at", opened_at),
        _parse_number(number),
    )


def _parse_end(name: str, text: str, *, relay: bool) -> int | None:
    if not relay:
        return _parse_u32(name, text)
    if text != RELAY:
        raise IdentityError(f"message id: {name}: expected {RELAY}, found {text[:40]!r}")
    return None


def _parse_u32(name: str, text: str) -> int:
    if not _NATURAL.fullmatch(text) or int(text) > U32_MAX:
        raise IdentityError(f"message id: {name}: expected 0 to {U32_MAX}, found {text[:40]!r}")
    return int(text)


def _parse_number(text: str) -> int:
    if not _NUMBER.fullmatch(text) or abs(int(text)) > NUMBER_MAX:
        raise IdentityError(f"message id: number: expected an integer of 64 bits, found {text[:40]!r}")
    return int(text)
