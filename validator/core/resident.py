# SPDX-License-Identifier: Apache-2.0
"""What a lane's records cost in memory, in bytes, by a formula that is the same in every process.

A record's raw bytes are the smaller part: 26 of them are more than 600 resident ones. The formula follows CPython's layout on a 64-bit
machine, with sizes rounded as its allocator does. A test compares it with the memory of a real process.
"""

from __future__ import annotations

from typing import Any, Final

from validator.core.inputs import Input

_INTEGER: Final = 32
_TUPLE: Final = 40
_SLOT: Final = 8
_BYTES: Final = 40
_TEXT: Final = 56
_ENTRY: Final = 100
"""An entry of a dict that grows, with its share of free places."""

RECORD_BYTES: Final = 96 + 3 * _INTEGER + 48 + 64 + _BYTES + _ENTRY + 56
"""A waiting record without raw bytes and fields: the input, its numbers, its fingerprint, its source, and its place among the others."""

BLOCK_BYTES: Final = 300
"""A block that waits, besides its records."""

PRINT_BYTES: Final = 56 + _INTEGER + 48 + _ENTRY
"""A record's fingerprint in the window of executed blocks."""

PRINTED_BLOCK_BYTES: Final = 400
"""A block in that window, besides its fingerprints."""


def record_bytes(item: Input) -> int:
    """Return what a waiting record costs."""
    return RECORD_BYTES + len(item.raw) + value_bytes(item.fields)


def value_bytes(value: Any) -> int:
    """Return what a plain value costs: tuples, dicts, bytes, texts, integers, None."""
    if isinstance(value, tuple):
        return _TUPLE + _SLOT * len(value) + sum(map(value_bytes, value))
    if value is None or isinstance(value, bool):
        return 0
    if isinstance(value, int):
        return _INTEGER
    if isinstance(value, bytes):
        return _BYTES + len(value)
    if isinstance(value, str):
        return _TEXT + len(value)
    if isinstance(value, dict):
        return 64 + sum(_ENTRY + value_bytes(key) + value_bytes(each) for key, each in value.items())
    return _TUPLE + _SLOT
