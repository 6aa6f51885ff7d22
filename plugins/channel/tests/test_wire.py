# SPDX-License-Identifier: Apache-2.0
"""Frames, strict JSON, base64 and the six members: every bad input of channel_rules 3.6."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from validator_channel.errors import WireError
from validator_channel.wire import (
    FrameDecoder,
    Kind,
    Message,
    decode_base64,
    encode_base64,
    encode_frame,
    encode_message,
    frame_bytes,
    parse_json,
    parse_message,
)

GOOD = {
    "v": 1,
    "kind": "APPLICATION",
    "peer": "0123456789abcdef0011223344556677",
    "id": "0123456789abcdef0140000000000002",
    "ctr": 0,
    "payload": base64.b64encode(bytes(16)).decode(),
}


def code_of(body: bytes) -> tuple[str, bool]:
    with pytest.raises(WireError) as raised:
        parse_message(body)
    return raised.value.code.value, raised.value.claims_error


def with_member(**members: Any) -> bytes:
    return json.dumps({**GOOD, **members}).encode()


# --- frames ---


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.data())
def test_frames_survive_any_cut(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(encode_frame, bodies))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    decoder = FrameDecoder(40)
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += decoder.feed(stream[start:end])
    assert found == bodies
    assert decoder.error is None
    assert not decoder.is_inside_frame


@pytest.mark.parametrize(
    ("length", "code"),
    [(0, "BAD_FRAME"), (1, None), (1024, None), (1025, "FRAME_TOO_LARGE"), (0xFFFFFFFF, "FRAME_TOO_LARGE")],
)
def test_length_is_checked_before_the_body(length: int, code: str | None) -> None:
    decoder = FrameDecoder(1024)
    assert decoder.feed(encode_frame(b"x") + length.to_bytes(4, "big")) == [b"x"]
    assert decoder.error == code
    if code is None:
        assert decoder.feed(bytes(length)) == [bytes(length)]
    else:
        assert decoder.feed(encode_frame(b"y")) == []


def test_single_bytes_and_bounded_number_of_frames() -> None:
    decoder = FrameDecoder(10)
    stream = encode_frame(b"ab") * 2
    assert [frame for byte in stream for frame in decoder.feed(bytes([byte]))] == [b"ab", b"ab"]
    assert decoder.feed(stream, frames_max=1) == [b"ab"]
    assert decoder.take_rest() == encode_frame(b"ab")
    assert not decoder.is_inside_frame


# --- JSON ---

BAD_JSON = {
    "empty": b"",
    "white space": b"  ",
    "two values": b"{}{}",
    "cut": b'{"v":1,',
    "duplicate": with_member()[:-1] + b',"v":1}',
    "escaped duplicate": with_member()[:-1] + b',"\\u0076":1}',
    "nested duplicate": with_member(v={})[:-2] + b',"x":{"a":1,"a":1}}',
    "NaN": with_member().replace(b'"ctr": 0', b'"ctr": NaN'),
    "Infinity": with_member().replace(b'"ctr": 0', b'"ctr": -Infinity'),
    "digits": with_member().replace(b'"ctr": 0', b'"ctr": ' + b"1" * 100_000),
    "deep arrays": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "65 levels": b"[" * 65 + b"]" * 65,
    "byte order mark": b"\xef\xbb\xbf" + with_member(),
    "UTF-16": with_member().decode().encode("utf-16"),
    "UTF-16 without mark": with_member().decode().encode("utf-16-le"),
    "UTF-32": with_member().decode().encode("utf-32"),
    "invalid UTF-8": with_member(kind="?").replace(b"?", b"\xff"),
    "encoded surrogate": with_member(kind="?").replace(b"?", b"\xed\xa0\x80"),
    "overlong": with_member(kind="?").replace(b"?", b"\xc0\xaf"),
    "lone surrogate": with_member(kind="?").replace(b"?", b"\\ud800"),
    "lone surrogate in a name": with_member()[:-1] + b',"\\ud800":1}',
    "noncharacter": with_member(kind="\ufffe"),
    "noncharacter of a plane": with_member(kind="\U0001ffff"),
    "control character": with_member(kind="?").replace(b"?", b"\x01"),
    "leading zero": with_member().replace(b'"ctr": 0', b'"ctr": 00'),
    "plus": with_member().replace(b'"ctr": 0', b'"ctr": +1'),
    "single quotes": b"{'v':1}",
    "comment": with_member() + b"//",
    "trailing comma": with_member()[:-1] + b",}",
    "NUL": with_member() + b"\0",
}


@pytest.mark.parametrize("name", BAD_JSON)
def test_bad_json(name: str) -> None:
    assert code_of(BAD_JSON[name]) == ("BAD_JSON", False)


def test_json_that_is_good() -> None:
    assert parse_json(b"[" * 64 + b"]" * 64) is not None
    assert parse_json(' {"\u00e9" : "\\ud83d\\ude00"}\n'.encode()) == {"\u00e9": "\U0001f600"}
    assert parse_json(b'"' + b"[" * 100 + b'"') == "[" * 100
    assert parse_message(b" \n" + with_member().replace(b",", b"\t,\r\n")).kind is Kind.APPLICATION


def test_json_that_never_ends_takes_no_time() -> None:
    for bad in (b'"' * 2**16, b'"' + b'\\"' * 2**16, b"[" * 2000 + b"\\" * 2**16, b"[" * 2000 + b'"\\"' * 2**16):
        assert code_of(bad) == ("BAD_JSON", False)


# --- members ---

BAD_MEMBERS: list[dict[str, Any]] = [
    {"v": True},
    {"v": 1.0},
    {"v": "1"},
    {"v": None},
    {"ctr": -1},
    {"ctr": 1.0},
    {"ctr": 2**53},
    {"ctr": True},
    {"ctr": "0"},
    {"kind": "application"},
    {"kind": "HELLO"},
    {"kind": 5},
    {"kind": ["APPLICATION"]},
    {"kind": {}},
    {"peer": GOOD["peer"].upper()},
    {"peer": GOOD["peer"][:-1]},
    {"peer": GOOD["peer"] + "0"},
    {"peer": "\uff11" * 32},
    {"peer": 1},
    {"id": GOOD["id"].upper()},
    {"id": GOOD["id"][:-1]},
    {"id": None},
    {"payload": ""},
    {"payload": base64.b64encode(bytes(15)).decode()},
    {"payload": base64.b64encode(bytes(16)).decode().rstrip("=")},
    {"payload": base64.b64encode(bytes(16)).decode() + "="},
    {"payload": base64.b64encode(bytes(17)).decode()[:-2] + "B="},
    {"payload": base64.urlsafe_b64encode(b"\xff" * 18).decode()},
    {"payload": "AAAA AAAA" * 4},
    {"payload": base64.b64encode(bytes(18)).decode() + "\n"},
    {"payload": "AA==" + base64.b64encode(bytes(18)).decode()},
    {"payload": "\u00e9" * 24},
    {"payload": [0] * 16},
    {"extra": 1},
]


@pytest.mark.parametrize("members", BAD_MEMBERS, ids=str)
def test_bad_member(members: dict[str, Any]) -> None:
    assert code_of(with_member(**members)) == ("BAD_MESSAGE", False)


@pytest.mark.parametrize("name", GOOD)
def test_missing_member(name: str) -> None:
    assert code_of(json.dumps({key: value for key, value in GOOD.items() if key != name}).encode()) == (
        "BAD_MESSAGE",
        False,
    )


def test_huge_float_is_a_mistyped_member() -> None:
    assert code_of(with_member().replace(b'"ctr": 0', b'"ctr": 1e400')) == ("BAD_MESSAGE", False)


@pytest.mark.parametrize("body", [b"[]", b"null", b"{}", b"1", b'"x"', b"true"])
def test_other_values(body: bytes) -> None:
    assert code_of(body) == ("BAD_MESSAGE", False)


def test_version_is_checked_before_members() -> None:
    for version in (0, 2, -1, 10**30):
        assert code_of(json.dumps({"v": version}).encode()) == ("BAD_VERSION", False)
        assert code_of(with_member(v=version, ctr="x")) == ("BAD_VERSION", False)
    assert code_of(b'{"v":2,"v":1}') == ("BAD_JSON", False)


def test_claim_to_be_an_error_is_reported() -> None:
    for members in ({"v": 2}, {"v": None}, {"ctr": -1}, {"payload": "?"}, {"extra": 0}):
        assert code_of(with_member(kind="ERROR", **members))[1]


@given(
    st.sampled_from(Kind),
    st.integers(0, 2**128 - 1),
    st.integers(0, 2**128 - 1),
    st.integers(0, 2**53 - 1),
    st.binary(min_size=16, max_size=99),
)
def test_messages_encode_and_parse(kind: Kind, peer: int, message_id: int, counter: int, sealed: bytes) -> None:
    message = Message(kind, peer, message_id, counter, sealed)
    body = encode_message(message)
    assert parse_message(body) == message
    assert len(body) <= frame_bytes(kind, len(sealed) - 16)
    assert len(encode_message(message._replace(counter=2**53 - 1))) == frame_bytes(kind, len(sealed) - 16)


# --- base64 ---


@given(st.binary(max_size=50))
def test_base64_round_trip(data: bytes) -> None:
    assert decode_base64(encode_base64(data)) == data


@given(st.text(alphabet="ABCDQRgw+/=-_ \n", max_size=12))
def test_base64_has_one_text_for_each_value(text: str) -> None:
    try:
        data = decode_base64(text.encode())
    except ValueError:
        return
    assert base64.b64encode(data).decode() == text


@pytest.mark.parametrize(
    "bad",
    ["QR==", "QUJ=", "QQ", "QQ=", "QQ===", "Q", "=", "QQ==QQ==", " QQ==", "QQ==\n", "Q Q==", "-_-_", "QQ\u003d\uff1d"],
)
def test_base64_that_is_not_canonical(bad: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode_base64(bad.encode())
