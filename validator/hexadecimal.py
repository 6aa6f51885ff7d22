# SPDX-License-Identifier: Apache-2.0
"""Bytes as text: hex, read with or without the prefix `0x`."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "0x"


def from_hex(text: str) -> bytes:
    """Return the bytes that hex digits stand for, with or without the prefix. Raises ValueError for anything else."""
    return bytes.fromhex(text.removeprefix(PREFIX))
