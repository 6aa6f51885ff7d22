# SPDX-License-Identifier: Apache-2.0
"""Strict JSON and base64: one text for each value that matters, and nothing that two parsers read differently.

Source: channel_rules 1.2.3; RFC 7493 (I-JSON); RFC 4648 section 4.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import accumulate, islice
from typing import Any, Final, NoReturn

from validator_channel import base64_text
from validator_channel.limits import JSON_LEVELS_MAX

_TOKEN: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[,\[{]', re.DOTALL)
"""A string, also one that does not end, so that no text is searched twice; a comma; an opening bracket."""
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NO_BRACKET: Final = bytes(each for each in range(256) if each not in b"[]{}")
_STEP: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_UNPAIRED_OR_NONCHARACTER: Final = re.compile(
    "[\ud800-\udfff\ufdd0-\ufdef"
    + "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(17))
    + "]"
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


def decode_base64(text: str) -> bytes:
    """Return the bytes of a canonical base64 text. Raises ``ValueError`` as `base64_text.decode`."""
    return base64_text.decode(text.encode("ascii"))


def encode_base64(data: bytes) -> str:
    """Return bytes in base64, with padding."""
    return base64_text.encode(data).decode("ascii")


def is_integer(value: Any, low: int, high: int) -> bool:
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
