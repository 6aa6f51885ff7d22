# SPDX-License-Identifier: Apache-2.0
"""JSON and hex that parsers disagree on are refused with their place, wherever the product reads what somebody wrote."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codecs import codec_for, encoded
from validator.cli.common import parse
from validator.codec.json_form import shown_json, to_json
from validator.config import Chain
from validator.document import parse_document
from validator.errors import UserError
from validator.hexadecimal import from_hex, to_hex
from validator.strict_json import DEPTH_MAX, JsonRefused, read_json

REFUSED = [
    (b'{"a": 1, "a": 1}', "", "expected each member once, found \"a\" twice"),
    (b'{"x": [0, {"b": {"a": 1, "c": 2, "a": 1}}]}', ".x[1].b", "expected each member once"),
    (rb'{"a": 1, "\u0061": 2}', "", "expected each member once"),
    (b'{"x": [1, NaN]}', ".x[1]", "expected a JSON value, found NaN"),
    (b'{"x": Infinity}', ".x", "found Infinity"),
    (b'{"x": {"y": -Infinity}}', ".x.y", "found -Infinity"),
    (b'{"x": [-0]}', ".x[0]", "expected 0, found -0"),
    (rb'{"x": ["\ud800"]}', ".x[0]", "found a surrogate without its other half"),
    (rb'{"x": "\uDC00\uD800"}', ".x", "found a surrogate without its other half"),
    (rb'{"\ud800": 1}', "", "found the member name"),
    (b'{"x": 01}', ":1:8", "not JSON"),
    (b'{"x": +1}', ":1:7", "not JSON"),
    (b'{"x": .5}', ":1:7", "not JSON"),
    (b'{\n"x": 1,}', ":2:8", "not JSON"),
    (b'{"x": "\x00"}', ":1:8", "not JSON"),
    (b'{"x": 1} {}', ":1:10", "not JSON"),
    (b'\xef\xbb\xbf{}', ":1:1", "not JSON"),
    ("{}".encode("utf-16"), "", "not UTF-8 at byte 0"),
    ("{}".encode("utf-16-le"), ":1:2", "not JSON"),
    (b'{"x": "\xed\xa0\x80"}', "", "not UTF-8 at byte 7"),
    (b"[" * 100_000, "", f"nested more than {DEPTH_MAX} levels"),
    (b"[" * (DEPTH_MAX + 2) + b"]" * (DEPTH_MAX + 2), "", f"nested more than {DEPTH_MAX} levels"),
    (b"1" * 5_000, "", "expected numbers of at most"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "place", "why"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_parsers_disagree_on_is_refused_with_its_place(text: bytes, place: str, why: str) -> None:
    with pytest.raises(JsonRefused) as caught:
        read_json(text)
    assert caught.value.place == place
    assert why in str(caught.value)
    with pytest.raises(UserError, match=r"^file"):
        parse_document(text, "file")
    with pytest.raises(UserError, match=r"^file, line 3") as line:
        parse(text, "file, line 3")
    assert "\n" not in str(line.value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    ),
    st.booleans(),
)
def test_what_is_written_is_read(value: object, ascii_only: bool) -> None:
    assert read_json(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


def test_text_that_looks_refused_is_read() -> None:
    assert read_json(rb'["-0", "NaN", "\ud83d\ude00", "\\ud800", -1, -0.5]') == [
        "-0",
        "NaN",
        "\U0001f600",
        "\\ud800",
        -1,
        -0.5,
    ]


def test_a_line_says_where_in_it_a_value_is_wrong() -> None:
    with pytest.raises(UserError, match=r"^f, line 2: a\[0\]: expected each member once, found \"b\" twice in "):
        parse(b'{"a": [{"b": 1, "b": 2}]}\n', "f, line 2")
    with pytest.raises(UserError, match=r"^f, line 2, column 7: not JSON"):
        parse(b'{"a": nul}\n', "f, line 2")


@pytest.mark.parametrize(
    "text", ["AB", "0xAB", "a b", "ab ", " ab", "ab\n", "0X00", "0x0x00", "0x0", "x00", "zz", "1", "\u0661\u0661"]
)
def test_hex_has_one_form(text: str) -> None:
    with pytest.raises(ValueError, match="hex"):
        from_hex(text)
    if not text.startswith("0"):
        with pytest.raises(UserError, match=r"f\.x: expected bytes in hex"):
            parse_document(json.dumps({"x": text}).encode(), "f")["x"].hex()


@pytest.mark.parametrize("text", ["1.0", "1e3", "true", "-1", '"1"', "4294967296"])
def test_an_integer_has_one_form(text: str) -> None:
    with pytest.raises(UserError, match=r"f\.x: expected an integer from 0 to 4294967295, found"):
        parse_document(f'{{"x": {text}}}'.encode(), "f")["x"].integer()


MESSAGE = {"lane": "polkadot", "block": 17, "index": 0, "para_id": 2000, "msg": "00ff"}


@pytest.mark.parametrize("digits", ["00ff", ""])
def test_record_is_the_same_with_and_without_prefix(digits: str) -> None:
    bare, prefixed = ({**MESSAGE, "msg": text} for text in (digits, f"0x{digits}"))
    value = encoded("downward-messages", prefixed)
    assert value == encoded("downward-messages", bare)
    assert to_json("downward-messages", value, codec_for()) == bare
    assert shown_json("downward-messages", value, codec_for()) == prefixed


def test_configuration_takes_both() -> None:
    one, two = (Chain(ump_weights={text: 5}, ump_failing_messages=[text]) for text in ("0a", "0x0a"))
    assert one.core_ump_weights() == two.core_ump_weights() == {b"\x0a": 5}
    with pytest.raises(ValueError, match="payload 0a is listed twice"):
        Chain(ump_weights={"0a": 5, "0x0a": 5})


def test_bytes_are_shown_with_prefix() -> None:
    assert to_hex(b"\x00\xff") == "0x00ff"
    assert from_hex(to_hex(b"\x00\xff")) == b"\x00\xff"
