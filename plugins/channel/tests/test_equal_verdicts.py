# SPDX-License-Identifier: Apache-2.0
"""The quick ways of reading give the verdict of the strict ones: the guessed frame, and base64 by either library."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from channel_world import SAMPLES
from hypothesis import example, given
from hypothesis import strategies as st
from test_wire import BAD_JSON, BAD_MEMBERS, GOOD, with_member
from validator_channel import wire
from validator_channel.errors import WireError
from validator_channel.limits import INDEX_MAX, TOPIC_MAX
from validator_channel.wire import GUESSED as GUESSED_KINDS
from validator_channel.wire import Guess, Kind, Message, before_index, encode_message, parse_message

from tests import hypothesis_profile

# --- frames ---

GUESSED = Message(Kind.APPLICATION, 2**120 + 7, 2**100 + 9, 2**53 - 1, bytes(range(17)))
USUAL = encode_message(GUESSED)
SPACED = json.dumps(json.loads(USUAL)).encode()


def verdict(parse: Callable[[bytes], Message], body: bytes) -> Any:
    try:
        return parse(body)
    except WireError as error:
        return error.code, error.claims_error


def by_guess(body: bytes, message: Message, counter: int | None = None) -> bytes | None:
    """Read a frame as `Link.open` does when it has guessed a message."""
    if not body.startswith(before_index(message.kind, message.peer, message.id)):
        return None
    guess = Guess(message.kind, message.id >> 32 & TOPIC_MAX, message.id & INDEX_MAX)
    return guess.read(body, message.counter if counter is None else counter)


def edited(text: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    """Replace bytes; an edit is (position, bytes removed, bytes added)."""
    for position, removed, added in edits:
        at = position % (len(text) + 1)
        text = text[:at] + added + text[at + removed :]
    return text


def check(body: bytes) -> None:
    strict = verdict(parse_message, body)
    sealed = by_guess(body, GUESSED)
    assert sealed is None or GUESSED._replace(sealed=sealed) == strict


TRAPS = {
    **BAD_JSON,
    "order": json.dumps({key: GOOD[key] for key in sorted(GOOD)}).encode(),
    "white space": b"\n" + with_member() + b"\t",
    "two spaces": with_member().replace(b": ", b":  "),
    "tab": with_member().replace(b": ", b":\t"),
    "escaped member": with_member().replace(b'"kind"', b'"\\u006bind"'),
    "escaped kind": with_member().replace(b"APPLICATION", b"APPLIC\\u0041TION"),
    "escaped payload": with_member(payload="?").replace(b"?", b"\\u0041AAAAAAAAAAAAAAAAAAAAA=="),
    "escaped slash": with_member(payload="?").replace(b"?", b"\\/AAAAAAAAAAAAAAAAAAAAA=="),
    "member after the payload": USUAL[:-1] + b',"extra":1}',
    "kind again after the payload": USUAL[:-1] + b',"kind":"ERROR"}',
    "payload again": USUAL[:-1] + b',"payload":"' + b"A" * 24 + b'"}',
    "member inside the payload": USUAL[:-4] + b'","x":"' + USUAL[-4:],
    "object after it": USUAL + b"{}",
    "twice": USUAL * 2,
    "cut before the payload": USUAL[: USUAL.index(b'"payload"') + 11] + b"}",
    "not ended": USUAL[:-1],
    **{
        f"ends with {end!r}": USUAL[:-2] + end
        for end in (b"'}", b'"]', b"]}", b'""', b"==", b"}}", b'"}}', b' "}', b'"\0')
    },
    "line feed at the end": USUAL + b"\n",
    "NUL at the end": USUAL + b"\0",
    **{
        f"counter {text}": USUAL.replace(b"9007199254740991", text.encode())
        for text in (
            *("0", "00", "01", "-0", "-1", "+1", "1.0", "1e3", "1E0", "1e400", "0x1", "1_0", " 1", "", "true", "null"),
            *('"0"', "NaN", "Infinity", "-Infinity", "9007199254740992", "9999999999999999", "1" * 17, "1" * 5000),
        )
    },
    **{
        f"version {text}": USUAL.replace(b'"v":1', b'"v":' + text.encode())
        for text in ("0", "2", "1.0", "1e0", "01", "true", '"1"', "-1", "1" * 400)
    },
    **{f"kind {kind}": USUAL.replace(b"APPLICATION", kind.encode()) for kind in ("ERROR", "HELLO", "", "A" * 900, "_")},
    **{
        f"payload {text[:20]!r}": USUAL[: USUAL.index(b'"payload":"') + 11] + text.encode() + b'"}'
        for text in (
            *(
                "",
                "QR==",
                "QQ==",
                "A" * 20,
                "A" * 21 + "=",
                "A" * 22 + "==",
                "A" * 21 + "B==",
                "A" * 22 + "B=",
                "A" * 24,
            ),
            *(
                "A" * 23 + "=",
                "A" * 24 + "=",
                "A" * 24 + "====",
                "-_" * 12,
                " " + "A" * 24,
                "A" * 24 + "\n",
                "A" * 12 + " " + "A" * 12,
            ),
            *(
                "A" * 11 + "=" + "A" * 12,
                "AA==" + "A" * 20,
                "A" * 23 + "\u00e9",
                "A" * 23 + "\0",
                "A" * 23 + '"',
                "A" * 23 + "\\",
            ),
        )
    },
}


@pytest.mark.parametrize("name", TRAPS)
def test_traps(name: str) -> None:
    check(TRAPS[name])


@pytest.mark.parametrize("members", BAD_MEMBERS, ids=str)
def test_bad_members(members: dict[str, Any]) -> None:
    check(with_member(**members))
    check(json.dumps({**GOOD, **members}, separators=(",", ":")).encode())
    check(json.dumps({**GOOD, **members}, ensure_ascii=False).encode())


PIECES = st.sampled_from(
    [
        b'"',
        b"\\",
        b"\\u0022",
        b" ",
        b",",
        b":",
        b"{",
        b"}",
        b"=",
        b"==",
        b"1",
        b"e3",
        b".0",
        b"NaN",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\\ud800",
    ]
) | st.binary(max_size=4)
EDITS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 4), PIECES), min_size=1, max_size=4)


@hypothesis_profile.examples(1_000)
@given(st.sampled_from([USUAL, SPACED]), EDITS)
@example(USUAL, [(0, 0, b"\xef\xbb\xbf")])
def test_edited_frames(body: bytes, edits: list[tuple[int, int, bytes]]) -> None:
    check(edited(body, edits))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30) | st.sampled_from([*GOOD.values()]),
    lambda each: st.lists(each, max_size=2) | st.dictionaries(st.text(max_size=3), each, max_size=2),
)


@given(st.lists(st.tuples(st.sampled_from([*GOOD, "x"]), VALUES), max_size=3), st.booleans(), st.booleans())
def test_any_members_in_any_order_also_twice(added: list[tuple[str, Any]], spaced: bool, ascii_only: bool) -> None:
    comma, colon = (", ", ": ") if spaced else (",", ":")
    members = [
        f"{json.dumps(key)}{colon}{json.dumps(value, ensure_ascii=ascii_only)}"
        for key, value in [*GOOD.items(), *added]
    ]
    check(("{" + comma.join(members) + "}").encode("utf-8", "surrogatepass"))


def test_guessed_message_is_read_without_a_parser() -> None:
    assert by_guess(USUAL, GUESSED) == GUESSED.sealed
    assert by_guess(USUAL, GUESSED, GUESSED.counter - 1) is None
    beyond = USUAL.replace(b"9007199254740991", b"9007199254740992")
    assert by_guess(beyond, GUESSED, GUESSED.counter + 1) is None


@given(
    st.sampled_from(Kind),
    st.integers(0, 2**128 - 1),
    st.integers(0, 2**128 - 1),
    st.integers(0, 2**53 - 1),
    st.binary(max_size=60),
)
def test_any_message(kind: Kind, peer: int, message_id: int, counter: int, sealed: bytes) -> None:
    message = Message(kind, peer, message_id, counter, sealed)
    body = encode_message(message)
    check(body)
    if len(sealed) >= 16:
        assert parse_message(body) == message
    if kind in GUESSED_KINDS:
        assert by_guess(body, message) == (sealed if len(sealed) >= 16 else None)


# --- base64 ---

CODECS = {"standard library": wire.standard_codec}
try:
    wire.fast_codec()
except ImportError:
    pass
else:
    CODECS["pybase64"] = wire.fast_codec


def by_definition(text: bytes) -> bytes | None:
    """Return what the text is the one canonical form of, or None."""
    try:
        data = base64.b64decode(text)
    except ValueError:
        return None
    return data if base64.b64encode(data) == text else None


def check_base64(text: bytes) -> None:
    for codec in CODECS.values():
        try:
            found: bytes | None = wire.decode_base64(text, codec()[0])
        except ValueError:
            found = None
        assert found == by_definition(text)


def test_both_codecs_are_tested() -> None:
    if "pybase64" not in CODECS:
        pytest.skip("pybase64 is not installed (extra fast)")
    assert wire._encode is wire.fast_codec()[1]


@pytest.mark.parametrize("length", [0, 1, 2, 3, 15, 16, 17, 100, 10_000])
def test_base64_of_every_length_by_both_codecs(length: int) -> None:
    data = bytes(at * 7 % 256 for at in range(length))
    for codec in CODECS.values():
        decode, encode = codec()
        assert encode(data) == base64.b64encode(data)
        assert wire.decode_base64(encode(data), decode) == data


def test_every_last_character() -> None:
    alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=-_ \n\0\x80"
    for start in (b"", b"QUJD", b"QUJD" * 30):
        for one in alphabet:
            for end in (b"", b"=", b"==", b"===", b"\n", b" ", b"=\n"):
                for group in (b"", b"Q", b"QQ", b"QQQ"):
                    check_base64(start + group + bytes([one]) + end)


@hypothesis_profile.examples(1_000)
@given(
    st.binary(max_size=120),
    st.lists(
        st.tuples(
            st.integers(0, 160),
            st.integers(0, 3),
            st.sampled_from([b"", b"=", b"A", b"/", b"-", b"_", b" ", b"\n", b"\r\n", b"\0", b"\xc3", b"B=", b"=="]),
        ),
        max_size=3,
    ),
)
def test_edited_base64(data: bytes, edits: list[tuple[int, int, bytes]]) -> None:
    check_base64(edited(base64.b64encode(data), edits))


def test_base64_of_the_samples() -> None:
    if not SAMPLES.is_file():
        pytest.skip("the checkout has no sibling ../shared/traces")
    texts = _texts(json.loads(SAMPLES.read_bytes()))
    assert len(texts) > 100
    for text in texts:
        check_base64(text.encode())


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in items for text in _texts(item)]
