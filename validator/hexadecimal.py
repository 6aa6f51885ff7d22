# SPDX-License-Identifier: Apache-2.0
"""Bytes as text: lower-case hex, read with or without the prefix `0x`, and shown to people and their programs with it."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "0x"


def to_hex(data: bytes) -> str:
    """Return bytes as people get them: ``0x`` and lower-case digits."""
    return PREFIX + data.hex()


def bare(text: str) -> str:
    """Return hex digits without the prefix, and any other text as it is."""
    return text.removeprefix(PREFIX)


def from_hex(text: str) -> bytes:
    """Return the bytes that lower-case hex digits stand for, with or without the prefix. Raises ValueError for anything else."""
    digits = bare(text)
    data = bytes.fromhex(digits)
    if data.hex() != digits:  # fromhex accepts capitals, and white space between bytes
        raise ValueError("capitals or white space in hex")
    return data
