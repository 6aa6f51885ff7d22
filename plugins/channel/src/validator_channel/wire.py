# SPDX-License-Identifier: Apache-2.0
"""Frames and messages: a length and a JSON object of six members. Source: channel_rules 1.2.3, 1.2.8 steps 1 to 3."""

from __future__ import annotations

import re
from enum import StrEnum
from struct import Struct
from typing import Any, Final, NamedTuple

from validator_channel import base64_text
from validator_channel.errors import ErrorCode, WireError
from validator_channel.ids import format_id, parse_id
from validator_channel.limits import COUNTER_MAX, LENGTH_BYTES, TAG_BYTES
from validator_channel.strict_json import decode_base64, is_integer, parse_json

_unpack_length: Final = Struct(">I").unpack_from
VERSION: Final = 1
"""The version in every message and hello."""


class Kind(StrEnum):
    """The seven kinds, in the order of the specification. Source: channel_protocol."""

    JOIN_SESSION = "JOIN_SESSION"
    LEAVE_SESSION = "LEAVE_SESSION"
    TOPIC_REGISTER = "TOPIC_REGISTER"
    TOPIC_DEREGISTER = "TOPIC_DEREGISTER"
    APPLICATION = "APPLICATION"
    ACKNOWLEDGE = "ACKNOWLEDGE"
    ERROR = "ERROR"


_USUAL: Final = re.compile(
    rb'\{"v": ?1, ?"kind": ?"([A-Z_]+)", ?"peer": ?"([0-9a-f]{32})", ?"id": ?"([0-9a-f]{32})"'
    rb', ?"ctr": ?(0|[1-9][0-9]{0,15}), ?"payload": ?"'
)
"""The members up to the payload as most encoders write them: in the order of the specification, with at most one space between them."""
_USUAL_END: Final = b'"}'
_USUAL_END_AT: Final = -len(_USUAL_END)
_KINDS: Final = {kind.encode(): kind for kind in Kind}


class Message(NamedTuple):
    """A message as its frame carries it; ``sealed`` is the ciphertext with its tag."""

    kind: Kind
    peer: int
    id: int
    counter: int
    sealed: bytes


class FrameDecoder:
    """Cuts a stream into frames; it holds at most one incomplete frame and what `feed` was given with it.

    ``error`` is the code of the first bad length, after which nothing is decoded.
    """

    def __init__(self, max_frame: int) -> None:
        self._max_frame = max_frame
        self._buffer = bytearray()
        self.error: ErrorCode | None = None

    @property
    def is_inside_frame(self) -> bool:
        """Return whether a frame has begun and not ended."""
        return bool(self._buffer)

    def feed(self, data: bytes, frames_max: int | None = None) -> list[bytes]:
        """Return the frames that are complete, at most ``frames_max`` of them, without their lengths.

        Sets ``error`` to BAD_FRAME for the length 0, then to FRAME_TOO_LARGE for one above ``max_frame``, before the body arrives.
        Source: 1.2.8 step 1.
        """
        if not self._buffer:
            frames, end = self._cut(data, frames_max)
            self._buffer += data[end:]
            return frames
        self._buffer += data
        with memoryview(self._buffer) as view:
            frames, end = self._cut(view, frames_max)
        del self._buffer[:end]
        return frames

    def _cut(self, data: bytes | memoryview, frames_max: int | None) -> tuple[list[bytes], int]:
        """Return the complete frames and where the last one ends."""
        frames: list[bytes] = []
        start, size, length_max = 0, len(data), self._max_frame
        while size - start >= LENGTH_BYTES and len(frames) != frames_max and self.error is None:
            (length,) = _unpack_length(data, start)
            body = start + LENGTH_BYTES
            end = body + length
            if not 1 <= length <= length_max:
                self.error = ErrorCode.FRAME_TOO_LARGE if length else ErrorCode.BAD_FRAME
            elif end > size:
                break
            else:
                frames.append(bytes(data[body:end]))
                start = end
        return frames, start

    def take_rest(self) -> bytes:
        """Return and forget what was not decoded."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest


def encode_frame(body: bytes) -> bytes:
    """Return a frame: the length of the body as 4 bytes, big-endian, then the body. Source: 1.2.3."""
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def message_templates(peer: int) -> dict[Kind, bytes]:
    """Return the JSON object of a sender's messages, with places for the message ID, the counter and the payload in base64."""
    return {kind: _start_template(kind, peer) + b"%b" + _USUAL_END for kind in Kind}


def _start_template(kind: Kind, peer: int) -> bytes:
    return f'{{"v":{VERSION},"kind":"{kind}","peer":"{format_id(peer)}","id":"%032x","ctr":%d,"payload":"'.encode()


def encode_message(message: Message) -> bytes:
    """Return the JSON object of a message. Source: 1.2.3."""
    kind, peer, message_id, counter, sealed = message
    return message_templates(peer)[kind] % (message_id, counter, base64_text.encode(sealed))


def frame_bytes(kind: Kind, plaintext_bytes: int) -> int:
    """Return the bytes of a frame, without its length, that fits a message of this kind under every counter."""
    return _EMPTY_BYTES[kind] + (plaintext_bytes + TAG_BYTES + 2) // 3 * 4


_EMPTY_BYTES: Final = {kind: len(encode_message(Message(kind, 0, 0, COUNTER_MAX, b""))) for kind in Kind}


def parse_message(body: bytes) -> Message:
    """Return the message of a frame.

    Raises `WireError` with BAD_JSON for what is not strict JSON; BAD_MESSAGE for what is not an object or has no integer `v`; BAD_VERSION
    for another version; BAD_MESSAGE for a missing, extra or mistyped member, an unknown kind, an ID that is not 32 lower-case hex digits,
    a counter outside 0 to 2^53-1, or a payload that is not canonical base64 of at least 16 bytes. Source: 1.2.8 steps 2 and 3.
    """
    return _parse_usual(body) or _parse_any(body)


class Guess:
    """The message of one kind that probably comes next; it is recognised by comparing bytes, as TCP predicts headers.

    A frame that begins as `encode_message` would begin it means the same, so a wrong guess costs time and nothing else. ``message_id`` is
    any message ID. Source: V. Jacobson, "4BSD header prediction", 1990.
    """

    __slots__ = ("_start", "kind", "message_id")

    def __init__(self, kind: Kind, peer: int, message_id: int) -> None:
        self._start = _start_template(kind, peer)
        self.kind = kind
        self.message_id = message_id

    def read(self, body: bytes, counter: int) -> bytes | None:
        """Return ``sealed`` if a frame carries this message under this counter, and has no fault; None leaves it to `parse_message`."""
        start = self._start % (self.message_id, counter)
        if counter > COUNTER_MAX or not body.startswith(start) or not body.endswith(_USUAL_END, len(start)):
            return None
        try:
            sealed = base64_text.decode(body[len(start) : _USUAL_END_AT])
        except ValueError:
            return None
        return sealed if len(sealed) >= TAG_BYTES else None


GUESSED_START: Final = 15
GUESSED_END: Final = 17
"""Where the kind of a frame stands, as far as `GUESSED` distinguishes it."""
GUESSED: Final = {b"AP": Kind.APPLICATION, b"AC": Kind.ACKNOWLEDGE}
"""The kinds that come with every message."""


def _parse_usual(body: bytes) -> Message | None:
    """Return the message of a frame that has the usual form and no fault; None leaves the verdict to `_parse_any`.

    Nothing else can be read from such a frame: the pattern leaves no room for another member or an escape, nor does the alphabet of base64.
    """
    start = _USUAL.match(body)
    if start is None or not body.endswith(_USUAL_END, start.end()):
        return None
    kind, peer, message_id, counter = start.groups()
    try:
        sealed = base64_text.decode(body[start.end() : _USUAL_END_AT])
        message = Message(_KINDS[kind], int(peer, 16), int(message_id, 16), int(counter), sealed)
    except (KeyError, ValueError):
        return None
    return message if message.counter <= COUNTER_MAX and len(sealed) >= TAG_BYTES else None


def _parse_any(body: bytes) -> Message:
    """Return the message of a frame in any form that JSON allows; raises as `parse_message`."""
    try:
        value = parse_json(body)
    except ValueError:
        raise WireError(ErrorCode.BAD_JSON) from None
    claims_error = isinstance(value, dict) and value.get("kind") == Kind.ERROR
    check_version(value, ErrorCode.BAD_MESSAGE, claims_error=claims_error)
    try:
        return _message(**value)
    except (TypeError, ValueError):
        raise WireError(ErrorCode.BAD_MESSAGE, claims_error=claims_error) from None


def check_version(value: Any, otherwise: ErrorCode, *, claims_error: bool = False) -> None:
    """Check that a value is an object of this version.

    Raises `WireError`: ``otherwise`` for what is not an object or has no integer `v`, then BAD_VERSION. Source: 1.2.3.
    """
    version = value.get("v") if isinstance(value, dict) else None
    if type(version) is not int:
        raise WireError(otherwise, claims_error=claims_error)
    if version != VERSION:
        raise WireError(ErrorCode.BAD_VERSION, claims_error=claims_error)


def _message(v: int, kind: Any, peer: Any, id: Any, ctr: Any, payload: Any) -> Message:  # noqa: A002, ARG001
    """The parameters are exactly the members: a missing or extra one is a ``TypeError``, as is a mistyped one."""
    if not is_integer(ctr, 0, COUNTER_MAX) or not isinstance(payload, str):
        raise TypeError
    message = Message(Kind(kind), parse_id(peer), parse_id(id), ctr, decode_base64(payload))
    if len(message.sealed) < TAG_BYTES:
        raise ValueError
    return message
