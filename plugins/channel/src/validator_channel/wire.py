# SPDX-License-Identifier: Apache-2.0
"""Bytes and what they mean: identifiers, strict JSON, base64, frames, messages, the plaintexts of control messages.

Every reader raises ``ValueError`` or `WireError` for what is not exactly in the form of the profile. Source: channel_rules 1.2.1, 1.2.3,
1.2.5, 1.2.8 steps 1 to 3; RFC 7493 (I-JSON); RFC 4648 section 4.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from itertools import accumulate, islice
from struct import Struct
from typing import Any, Final, NamedTuple, NoReturn, TypeGuard

from validator_channel.errors import Category, ErrorCode, WireError
from validator_channel.limits import (
    CHANNEL_MAX,
    CODE_CHARACTERS_MAX,
    COUNTER_MAX,
    DETAIL_CHARACTERS_MAX,
    FRAME_BYTES_MIN,
    INDEX_MAX,
    INTEGER_MAX,
    JSON_LEVELS_MAX,
    LENGTH_BYTES,
    MESSAGE_ID_MAX,
    PEER_MAX,
    REASON_CHARACTERS_MAX,
    SESSION_MAX,
    TAG_BYTES,
    TOPIC_MAX,
    TOPIC_NAME_CHARACTERS_MAX,
    WINDOW_MAX,
)

MAIN: Final = 0
"""The topic that both sides have registered from the start."""
NO_MESSAGE: Final = INDEX_MAX
"""The reserved index: an ERROR with it answers no message."""

_HEX_64: Final = re.compile(r"[0-9a-f]{16}")
_HEX_128: Final = re.compile(r"[0-9a-f]{32}")


class Role(IntEnum):
    """Who connected; the value is the parity of the role's indices (R2)."""

    CONNECTOR = 0
    LISTENER = 1

    @property
    def other(self) -> Role:
        return Role(1 - self)


INDEX_STEP: Final = 2
"""Distance between two indices of one role."""
LAST_INDEX: Final = {Role.CONNECTOR: INDEX_MAX - 1, Role.LISTENER: INDEX_MAX - 2}
"""Last usable index of each role; on `main` it is reserved for LEAVE_SESSION."""


@dataclass(frozen=True, slots=True)
class MessageId:
    """The four parts of a 128-bit message ID."""

    channel: int
    session: int
    topic: int
    index: int


def pack_message_id(channel: int, session: int, topic: int, index: int) -> int:
    """Return the message ID of these parts: channel 64 bits, session 10, topic 22, index 32.

    Raises ``ValueError`` for the first part that is out of range. Source: 1.2.1.
    """
    _check("channel", channel, CHANNEL_MAX)
    _check("session", session, SESSION_MAX)
    _check("topic", topic, TOPIC_MAX)
    _check("index", index, INDEX_MAX)
    return channel << 64 | session << 54 | topic << 32 | index


def unpack_message_id(message_id: int) -> MessageId:
    """Return the parts of a message ID. Raises ``ValueError`` if it has more than 128 bits. Source: 1.2.1."""
    _check("message ID", message_id, MESSAGE_ID_MAX)
    return MessageId(
        message_id >> 64, message_id >> 54 & SESSION_MAX, message_id >> 32 & TOPIC_MAX, message_id & INDEX_MAX
    )


def channel_of(peer: int) -> int:
    """Return the channel of a peer: the high 64 bits. Raises ``ValueError`` if the ID has more than 128 bits."""
    _check("peer", peer, PEER_MAX)
    return peer >> 64


def format_channel(channel: int) -> str:
    """Return a channel ID as 16 lower-case hex digits."""
    return f"{channel:016x}"


def format_id(value: int) -> str:
    """Return a peer ID or message ID as 32 lower-case hex digits."""
    return f"{value:032x}"


def parse_channel(text: str) -> int:
    """Return a channel ID from exactly 16 lower-case hex digits. Raises ``ValueError``."""
    return _parse(_HEX_64, text)


def parse_id(text: str) -> int:
    """Return a peer ID or message ID from exactly 32 lower-case hex digits. Raises ``ValueError``."""
    return _parse(_HEX_128, text)


def _parse(pattern: re.Pattern[str], text: str) -> int:
    if pattern.fullmatch(text) is None:
        raise ValueError(f"expected lower-case hex digits: {pattern.pattern}")
    return int(text, 16)


def _check(name: str, value: int, maximum: int) -> None:
    if not 0 <= value <= maximum:
        raise ValueError(f"{name}: expected 0 to {maximum}, found {value}")


_CANONICAL_ENDS: Final = (b"", b"AQgw", b"AEIMQUYcgkosw048")
"""The last characters before ``==`` and before ``=`` whose unused bits are zero, by the bytes that the last group holds."""

Decoder = Callable[[bytes, None, bool], bytes]
"""Takes the text, no other alphabet, and whether to validate; it may accept unused bits that are not zero."""
Codec = tuple[Decoder, Callable[[bytes], bytes]]
"""Decodes, and encodes."""


def standard_codec() -> Codec:
    """Return the codec of the standard library."""
    return lambda text, _, validate: binascii.a2b_base64(text, strict_mode=validate), lambda data: binascii.b2a_base64(
        data, newline=False
    )


def fast_codec() -> Codec:
    """Return the codec of pybase64. Raises ``ImportError`` where it is not installed."""
    from pybase64 import b64decode, b64encode

    return b64decode, b64encode


try:
    _decode, _encode = fast_codec()
except ImportError:
    _decode, _encode = standard_codec()


def decode_base64(text: bytes, by: Decoder = _decode) -> bytes:
    """Return the bytes of a canonical base64 text.

    Raises ``ValueError`` for characters outside the standard alphabet (also white space), for missing or surplus padding, and for unused
    trailing bits that are not zero.
    """
    data = by(text, None, True)  # noqa: FBT003 - by name, it would take half as long again for a short text
    last = len(data) % 3
    if len(text) != (len(data) + 2) // 3 * 4 or (last and text[last - 4] not in _CANONICAL_ENDS[last]):
        raise ValueError("base64 is not canonical")
    return data


encode_base64 = _encode
"""Return bytes in base64, with padding."""


_TOKEN: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[,\[{]', re.DOTALL)
"""A string, also one that does not end, so that no text is searched twice; a comma; an opening bracket."""
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NO_BRACKET: Final = bytes(each for each in range(256) if each not in b"[]{}")
_STEP: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_UNPAIRED_OR_NONCHARACTER: Final = re.compile(
    r"[\ud800-\udfff\ufdd0-\ufdef" + "".join(rf"\U{plane:04x}fffe\U{plane:04x}ffff" for plane in range(17)) + "]"
)
_ESCAPED: Final = re.compile(r"\\u(?:[dD][89a-fA-F]|[fF][dDfF])")
"""How an escape of one of these begins."""


def parse_json(data: bytes, tokens_max: int | None = None) -> Any:
    """Return the value of a JSON text in UTF-8 without a byte order mark.

    Its length bounds the work: a text of 1 MiB took 0.25 s and 61 MiB at most, and 0.01 s if it was one string.

    Raises ``ValueError``: for bytes that are not strict UTF-8; for anything but one JSON text (also NaN and Infinity), a member name that
    occurs twice, or an integer with more digits than Python converts; for more than ``tokens_max`` strings, commas and opening brackets,
    or `JSON_LEVELS_MAX` levels; for a surrogate or a noncharacter in a string. Source: RFC 7493 sections 2.1, 2.3.
    """
    text = data.decode("utf-8")
    if tokens_max is not None:
        _check_tokens(text, tokens_max)
    if text.count("[") + text.count("{") > JSON_LEVELS_MAX and _levels(data) > JSON_LEVELS_MAX:
        raise ValueError(f"nested more than {JSON_LEVELS_MAX} levels deep")
    value = json.loads(text, object_pairs_hook=_members, parse_constant=_refuse_constant)
    if (not text.isascii() and _UNPAIRED_OR_NONCHARACTER.search(text)) or (
        _ESCAPED.search(text) and any(_UNPAIRED_OR_NONCHARACTER.search(each) for each in _strings(value))
    ):
        raise ValueError("a string holds a surrogate or a noncharacter")
    return value


def encode_json(value: Any) -> bytes:
    """Return a JSON text in UTF-8, without white space."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def is_integer(value: Any, low: int, high: int) -> TypeGuard[int]:
    """Return whether a JSON value is an integer from ``low`` to ``high``; `true` and `1.0` are not."""
    return type(value) is int and low <= value <= high


def _check_tokens(text: str, tokens_max: int) -> None:
    """Many small values take longer than one string of the same length, so they are refused before they are made."""
    if sum(map(text.count, '",[{')) > tokens_max:
        tokens = islice(_TOKEN.finditer(text), tokens_max + 1)
        if sum(1 for _ in tokens) > tokens_max:
            raise ValueError(f"more than {tokens_max} strings, commas and opening brackets")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member name occurs twice")
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _levels(data: bytes) -> int:
    """Return how deep brackets are nested up to the first fault of a text, or more: so the parser never goes deeper than this."""
    brackets = (_STRING.sub(b"", data) if b'"' in data else data).translate(None, _NO_BRACKET)
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0)


def _strings(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, list):
            waiting += each
        elif isinstance(each, dict):
            yield from each
            waiting += each.values()


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
    return {kind: _up_to_id(kind, peer) + b'%032x","ctr":%d,"payload":"%b"}' for kind in Kind}


def _up_to_id(kind: Kind, peer: int) -> bytes:
    return f'{{"v":{VERSION},"kind":"{kind}","peer":"{format_id(peer)}","id":"'.encode()


def encode_message(message: Message) -> bytes:
    """Return the JSON object of a message. Source: 1.2.3."""
    kind, peer, message_id, counter, sealed = message
    return message_templates(peer)[kind] % (message_id, counter, encode_base64(sealed))


def frame_bytes(kind: Kind, plaintext_bytes: int) -> int:
    """Return the bytes of a frame, without its length, that fits a message of this kind under every counter."""
    return _EMPTY_BYTES[kind] + (plaintext_bytes + TAG_BYTES + 2) // 3 * 4


_EMPTY_BYTES: Final = {kind: len(encode_message(Message(kind, 0, 0, COUNTER_MAX, b""))) for kind in Kind}


class Guess:
    """The message of one kind that probably comes next on one topic; it is recognised by comparing bytes, as TCP predicts headers.

    A frame that begins as `encode_message` would begin it means the same, so a wrong guess costs time and nothing else. `Link` finds a
    guess by the bytes before the index. Source: V. Jacobson, "4BSD header prediction", 1990.
    """

    __slots__ = ("index", "kind", "topic")

    def __init__(self, kind: Kind, topic: int, index: int) -> None:
        self.kind = kind
        self.topic = topic
        self.index = index

    def read(self, body: bytes, counter: int) -> bytes | None:
        """Return ``sealed`` if a frame continues as this message under this counter without a fault; None leaves it to `parse_message`."""
        middle = b'%08x","ctr":%d,"payload":"' % (self.index, counter)
        start = GUESSED_BYTES + len(middle)
        if counter > COUNTER_MAX or not body.startswith(middle, GUESSED_BYTES) or not body.endswith(b'"}', start):
            return None
        try:
            sealed = decode_base64(body[start:-2])
        except ValueError:
            return None
        return sealed if len(sealed) >= TAG_BYTES else None


def before_index(kind: Kind, peer: int, message_id: int) -> bytes:
    """Return how a frame of `encode_message` begins, up to the index in its message ID."""
    return _up_to_id(kind, peer) + b"%024x" % (message_id >> 32)


GUESSED: Final = (Kind.APPLICATION, Kind.ACKNOWLEDGE)
"""The kinds that come with every message; their names are equally long."""
GUESSED_BYTES: Final = len(before_index(Kind.APPLICATION, 0, 0))


def parse_message(body: bytes) -> Message:
    """Return the message of a frame.

    Raises `WireError` with BAD_JSON for what is not strict JSON; BAD_MESSAGE for what is not an object or has no integer `v`; BAD_VERSION
    for another version; BAD_MESSAGE for a missing, extra or mistyped member, an unknown kind, an ID that is not 32 lower-case hex digits,
    a counter outside 0 to 2^53-1, or a payload that is not canonical base64 of at least 16 bytes. Source: 1.2.8 steps 2 and 3.
    """
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
    message = Message(Kind(kind), parse_id(peer), parse_id(id), ctr, decode_base64(payload.encode("ascii")))
    if len(message.sealed) < TAG_BYTES:
        raise ValueError
    return message


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
    return encode_json(join._asdict())


def read_join(plaintext: bytes) -> Join:
    """Return the parameters: a window of 1 to 1024 messages, frames of at least 1024 bytes. Raises ``ValueError``."""
    members = _object(plaintext)
    window, max_frame = members.get("window"), members.get("max_frame")
    if not is_integer(window, 1, WINDOW_MAX) or not is_integer(max_frame, FRAME_BYTES_MIN, INTEGER_MAX):
        raise ValueError
    return Join(window, max_frame)


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
    return topic


def _text(value: Any, maximum: int) -> str | None:
    return value[:maximum] if isinstance(value, str) else None
