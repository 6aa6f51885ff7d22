# SPDX-License-Identifier: Apache-2.0
"""Hex is read with and without ``0x``, in records and in the configuration, and people get it with the prefix."""

from __future__ import annotations

import pytest

from tests.codecs import codec_for, encoded
from validator.codec.json_form import shown_json, to_json
from validator.config import Chain
from validator.hexadecimal import from_hex, to_hex

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


@pytest.mark.parametrize("text", ["0x0", "0X00", "x00", "0x0x00", "zz"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="non-hexadecimal"):
        from_hex(text)


def test_bytes_are_shown_with_prefix() -> None:
    assert to_hex(b"\x00\xff") == "0x00ff"
    assert from_hex(to_hex(b"\x00\xff")) == b"\x00\xff"
