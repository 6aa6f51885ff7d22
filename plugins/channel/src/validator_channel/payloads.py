# SPDX-License-Identifier: Apache-2.0
"""The plaintexts of control messages. Source: channel_rules 1.2.5.

Every reader raises ``ValueError`` for what is not a strict JSON object with the required members; unknown members are ignored.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from validator_channel.errors import Category, ErrorCode
from validator_channel.limits import (
    CODE_CHARACTERS_MAX,
    DETAIL_CHARACTERS_MAX,
    FRAME_BYTES_MIN,
    INTEGER_MAX,
    REASON_CHARACTERS_MAX,
    TOPIC_MAX,
    TOPIC_NAME_CHARACTERS_MAX,
    WINDOW_MAX,
)
from validator_channel.strict_json import encode_json, is_integer, parse_json

ACKNOWLEDGEMENT: Final = b"{}"
"""The only plaintext of an ACKNOWLEDGE."""


class Join(NamedTuple):
    """The parameters of a JOIN_SESSION: window in messages, maximum frame in bytes."""

    window: int
    max_frame: int


class Registration(NamedTuple):
    """What a TOPIC_REGISTER or TOPIC_DEREGISTER names."""

    topic: int
    name: str | None = None


class Refusal(NamedTuple):
    """The content of an ERROR; code and detail are cut to their limits."""

    code: str
    is_fatal: bool
    detail: str | None


def write_join(join: Join) -> bytes:
    """Return the plaintext of a JOIN_SESSION."""
    return encode_json(join._asdict())


def read_join(plaintext: bytes) -> Join:
    """Return the parameters: a window of 1 to 1024 messages, frames of at least 1024 bytes. Raises ``ValueError``."""
    members = _object(plaintext)
    join = Join(members.get("window"), members.get("max_frame"))  # type: ignore[arg-type]
    if not is_integer(join.window, 1, WINDOW_MAX) or not is_integer(join.max_frame, FRAME_BYTES_MIN, INTEGER_MAX):
        raise ValueError
    return join


def write_registration(registration: Registration) -> bytes:
    """Return the plaintext of a TOPIC_REGISTER or TOPIC_DEREGISTER. Raises ``ValueError`` as `read_registration`."""
    members = {key: value for key, value in registration._asdict().items() if value is not None}
    try:
        plaintext = encode_json(members)
    except UnicodeEncodeError:
        raise ValueError from None
    read_registration(plaintext)
    return plaintext


def read_registration(plaintext: bytes) -> Registration:
    """Return a topic of 0 to 4194303, and its name of 1 to 64 characters if there is one. Raises ``ValueError``."""
    members = _object(plaintext)
    topic, name = _topic(members), members.get("name")
    if "name" in members and not (isinstance(name, str) and 1 <= len(name) <= TOPIC_NAME_CHARACTERS_MAX):
        raise ValueError
    return Registration(topic, name)


def read_deregistration(plaintext: bytes) -> int:
    """Return a topic of 0 to 4194303. Raises ``ValueError``."""
    return _topic(_object(plaintext))


def write_leave(reason: str | None) -> bytes:
    """Return the plaintext of a LEAVE_SESSION; the reason is cut to its limit. Raises ``ValueError`` if it is not Unicode text."""
    return encode_json({} if reason is None else {"reason": reason[:REASON_CHARACTERS_MAX]})


def read_leave(plaintext: bytes) -> str | None:
    """Return the reason, cut to its limit, or None if there is no text. Raises ``ValueError``."""
    return _text(_object(plaintext).get("reason"), REASON_CHARACTERS_MAX)


def write_error(code: ErrorCode, *, is_fatal: bool) -> bytes:
    """Return the plaintext of an ERROR, which is always of the category Runtime."""
    return encode_json({"category": Category.RUNTIME, "code": code, "fatal": is_fatal})


def read_error(plaintext: bytes) -> Refusal:
    """Return the content of an ERROR: text ``code`` and boolean ``fatal``. Raises ``ValueError``. Source: 1.2.11."""
    members = _object(plaintext)
    code, is_fatal = members.get("code"), members.get("fatal")
    if not isinstance(code, str) or not isinstance(is_fatal, bool):
        raise ValueError
    return Refusal(code[:CODE_CHARACTERS_MAX], is_fatal, _text(members.get("detail"), DETAIL_CHARACTERS_MAX))


def _object(plaintext: bytes) -> dict[str, Any]:
    value = parse_json(plaintext)
    if not isinstance(value, dict):
        raise ValueError
    return value


def _topic(members: dict[str, Any]) -> int:
    topic = members.get("topic")
    if not is_integer(topic, 0, TOPIC_MAX):
        raise ValueError
    return int(topic)  # type: ignore[arg-type]


def _text(value: Any, maximum: int) -> str | None:
    return value[:maximum] if isinstance(value, str) else None
