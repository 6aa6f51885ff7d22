# SPDX-License-Identifier: Apache-2.0
"""Every error code in its category, the exceptions that carry one, and how a peer's text is printed. Source: channel_rules 1.2.13."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Final


class Category(StrEnum):
    """The two categories of errors. Source: channel_protocol, "Errors"."""

    DELIVERY = "delivery"
    RUNTIME = "runtime"


class ErrorCode(StrEnum):
    """All error codes; a code that several rows of the table name is one member."""

    BAD_FRAME = "BAD_FRAME"
    FRAME_TOO_LARGE = "FRAME_TOO_LARGE"
    BAD_JSON = "BAD_JSON"
    BAD_MESSAGE = "BAD_MESSAGE"
    BAD_VERSION = "BAD_VERSION"
    WRONG_CHANNEL = "WRONG_CHANNEL"
    WRONG_PEER = "WRONG_PEER"
    WRONG_SESSION = "WRONG_SESSION"
    DECRYPT_FAILED = "DECRYPT_FAILED"
    INDEX_INVALID = "INDEX_INVALID"
    WRONG_STATE = "WRONG_STATE"
    BAD_ACK = "BAD_ACK"
    BAD_PAYLOAD = "BAD_PAYLOAD"
    SESSION_IN_USE = "SESSION_IN_USE"
    SESSION_LIMIT = "SESSION_LIMIT"
    LIMIT_EXCEEDED = "LIMIT_EXCEEDED"
    COUNTER_EXHAUSTED = "COUNTER_EXHAUSTED"
    INTERNAL = "INTERNAL"
    UNKNOWN_TOPIC = "UNKNOWN_TOPIC"
    TOPIC_CLOSED = "TOPIC_CLOSED"
    TOPIC_CONFLICT = "TOPIC_CONFLICT"
    TOPIC_RESERVED = "TOPIC_RESERVED"
    TOPIC_LIMIT = "TOPIC_LIMIT"
    NOT_AUTHORIZED = "NOT_AUTHORIZED"
    BAD_HELLO = "BAD_HELLO"
    AUTH_FAILED = "AUTH_FAILED"
    INDEX_EXHAUSTED = "INDEX_EXHAUSTED"
    OUTBOX_FULL = "OUTBOX_FULL"
    PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE"
    ACK_TIMEOUT = "ACK_TIMEOUT"
    HANDSHAKE_TIMEOUT = "HANDSHAKE_TIMEOUT"
    SETUP_TIMEOUT = "SETUP_TIMEOUT"
    TEARDOWN_TIMEOUT = "TEARDOWN_TIMEOUT"
    FRAME_TIMEOUT = "FRAME_TIMEOUT"
    TRANSPORT_LOST = "TRANSPORT_LOST"


def _codes(names: str) -> frozenset[ErrorCode]:
    return frozenset(map(ErrorCode, names.split()))


FATAL: Final = _codes(
    "BAD_FRAME FRAME_TOO_LARGE BAD_JSON BAD_MESSAGE BAD_VERSION WRONG_CHANNEL WRONG_PEER WRONG_SESSION DECRYPT_FAILED INDEX_INVALID"
    " WRONG_STATE BAD_ACK BAD_PAYLOAD SESSION_IN_USE SESSION_LIMIT LIMIT_EXCEEDED COUNTER_EXHAUSTED INTERNAL"
)
"""Runtime: an ERROR is sent and the session ends. BAD_PAYLOAD is here for JOIN, LEAVE, ACKNOWLEDGE and ERROR."""

NOT_FATAL: Final = _codes(
    "UNKNOWN_TOPIC TOPIC_CLOSED TOPIC_CONFLICT TOPIC_RESERVED TOPIC_LIMIT NOT_AUTHORIZED BAD_PAYLOAD"
)
"""Runtime: an ERROR is sent about one message. BAD_PAYLOAD is here for TOPIC_REGISTER and TOPIC_DEREGISTER."""

HANDSHAKE: Final = _codes("BAD_HELLO BAD_VERSION NOT_AUTHORIZED AUTH_FAILED")
"""Runtime: there is no key yet; nothing is sent."""

LOCAL: Final = _codes(
    "WRONG_STATE UNKNOWN_TOPIC TOPIC_CLOSED TOPIC_CONFLICT TOPIC_RESERVED TOPIC_LIMIT BAD_PAYLOAD INDEX_EXHAUSTED OUTBOX_FULL"
    " PAYLOAD_TOO_LARGE"
)
"""Runtime: raised to the caller as `LocalError`; nothing is sent and no index is used."""

DELIVERY: Final = _codes("ACK_TIMEOUT HANDSHAKE_TIMEOUT SETUP_TIMEOUT TEARDOWN_TIMEOUT FRAME_TIMEOUT TRANSPORT_LOST")
"""Delivery: nothing is sent and the session ends."""


def category_of(code: ErrorCode) -> Category:
    return Category.DELIVERY if code in DELIVERY else Category.RUNTIME


class LocalError(Exception):
    """A mistake of the caller; the call had no effect. ``code`` is in `LOCAL`."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.value)
        self.code = code


class HelloError(Exception):
    """A failed handshake: close the transport and send nothing. ``code`` is in `HANDSHAKE`.

    ``detail`` says why, for this side's log alone; ``claimed`` is the peer ID that the hello claims, if it has come that far.
    """

    def __init__(self, code: ErrorCode, detail: str = "", claimed: int | None = None) -> None:
        super().__init__(code.value)
        self.code = code
        self.detail = detail
        self.claimed = claimed


class WireError(Exception):
    """Bytes that are not a message; ``claims_error`` says whether they claim the kind ERROR, which is never answered."""

    def __init__(self, code: ErrorCode, *, claims_error: bool = False) -> None:
        super().__init__(code.value)
        self.code = code
        self.claims_error = claims_error


class Fault(Exception):
    """A fatal Runtime error of a session, raised and caught inside the core.

    ``named`` is the (topic, index) that the ERROR answers, or None for `main` and NO_MESSAGE. ``is_answered`` is False when the bad frame
    claimed to be an ERROR. ``code`` is in `FATAL`.
    """

    def __init__(self, code: ErrorCode, named: tuple[int, int] | None = None, *, is_answered: bool = True) -> None:
        super().__init__(code.value)
        self.code = code
        self.named = named
        self.is_answered = is_answered


def printable(text: str) -> str:
    """Return a text that fits on one line: unchanged, or escaped as in JSON if it holds anything unprintable."""
    return text if text.isprintable() else json.dumps(text)[1:-1]


def cut(value: object, characters_max: int) -> str:
    """Return a value as an error shows it, cut to ``characters_max``."""
    text = repr(value)
    return text if len(text) <= characters_max else f"{text[: characters_max - 3]}..."


def quoted(text: str) -> str:
    """Return a text in quotes, on one line, that cannot be taken for what stands next to it."""
    return json.dumps(text, ensure_ascii=not text.isprintable())
