# SPDX-License-Identifier: Apache-2.0
"""Strict JSON and base64: one text for each value that matters, and nothing that two parsers read differently.

Source: channel_rules 1.2.3; RFC 7493 (I-JSON); RFC 4648 section 4.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, NoReturn

from validator_channel import base64_text
from validator_channel.limits import JSON_LEVELS_MAX, JSON_TOKENS_MAX

_TOKEN: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[,\[{]', re.DOTALL)
"""A string, also one that does not end, so that no text is searched twice; a comma; an opening bracket."""
_UNPAIRED_OR_NONCHARACTER: Final = re.compile(
    "[\ud800-\udfff\ufdd0-\ufdef"
    + "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(17))
    + "]"
)


def parse_json(data: bytes, tokens_max: int | None = JSON_TOKENS_MAX) -> Any:
    """Return the value of a JSON text in UTF-8 without a byte order mark; with ``tokens_max`` None, its length alone bounds the work.

    Raises ``ValueError``: for bytes that are not strict UTF-8; for anything but one JSON text (also NaN and Infinity), a member name that
    occurs twice, or an integer with more digits than Python converts; for more than ``tokens_max`` tokens or `JSON_LEVELS_MAX` levels;
    for a surrogate or a noncharacter in a string. Source: RFC 7493 sections 2.1, 2.3.
    """
    text = data.decode("utf-8")
    if tokens_max is not None:
        _check_tokens(text, tokens_max)
    try:
        value = json.loads(text, object_pairs_hook=_members, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError(f"nested more than {JSON_LEVELS_MAX} levels deep") from None
    if text.count("[") + text.count("{") > JSON_LEVELS_MAX and _levels(value) > JSON_LEVELS_MAX:
        raise ValueError(f"nested more than {JSON_LEVELS_MAX} levels deep")
    if ("\\" in text or not text.isascii()) and any(_UNPAIRED_OR_NONCHARACTER.search(each) for each in _strings(value)):
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
    """Many small values take a hundred times as long as one string of the same length, so they are refused before they are made."""
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


def _levels(value: Any) -> int:
    level, depth = [value], 0
    while nested := [each for each in level if isinstance(each, dict | list)]:
        level = [item for each in nested for item in (each.values() if isinstance(each, dict) else each)]
        depth += 1
    return depth


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
