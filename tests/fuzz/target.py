# SPDX-License-Identifier: Apache-2.0
"""What is fuzzed: a decoder with inputs to begin with, and a check of what it promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A decoder.

    ``check`` returns whether the decoder accepted an input. It raises whatever the decoder raises besides its own refusals, and
    ``AssertionError`` if what was accepted does not give the same bytes, or the same content, when it is written again. ``seeds`` are valid
    inputs; ``words`` are pieces that the mutator inserts. ``per_test`` is the number of inputs in the run of all tests.
    """

    name: str
    seeds: Callable[[], list[bytes]]
    check: Callable[[bytes], bool]
    words: tuple[bytes, ...] = ()
    per_test: int = 20_000


def refused(line: str, *holds: str) -> bool:
    """Return False, for a refusal that is one line with these parts."""
    assert "\n" not in line
    assert all(part in line for part in holds)
    return False


BINARY_WORDS = (
    b"\0",
    b"\1",
    b"\2",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\x80\0",
    b"\xff" * 9 + b"\1",
    b"\xff" * 4,
    b"\x03\xff\xff\xff\xff",
)
"""Ends of ranges, overlong numbers, and large counts."""
TEXT_WORDS = (
    b"null", b"true", b"-1", b"-0", b"0", b"1.0", b"1e9", b"NaN", b"4294967296", b"18446744073709551616", b"[]", b"{}", b'""', b'"0x"',
    b'"AB"', rb'"\ud800"', b",", b":", b"[", b"]", b"{", b"}", b'"', b'"block":1,', b"\xff", b"\0", b"\n", b"1" * 40,
)  # fmt: skip
"""Values of other types, and pieces of syntax."""
