# SPDX-License-Identifier: Apache-2.0
"""The window of duplicates: what it remembers, what it drops first, and its bytes."""

from __future__ import annotations

import pytest

from validator.core.inputs import RecordKind
from validator.core.resident import PRINT_BYTES, PRINTED_BLOCK_BYTES
from validator.core.scale import DecodeError, Reader, Writer
from validator.core.window import FINGERPRINT_BYTES, DuplicateWindow, Place

BLOCK: Place = (RecordKind.BLOCK, 0)
CANDIDATE: Place = (RecordKind.CANDIDATE, 1)


def window() -> DuplicateWindow:
    made = DuplicateWindow(blocks_max=2)
    made.remember(7, {CANDIDATE: b"proposal", BLOCK: b"block 7 "})
    made.remember(9, {})
    return made


def test_bytes_are_blocks_in_order_with_their_records_by_place() -> None:
    out = Writer()
    window().write(out)
    first, second = sorted([BLOCK, CANDIDATE])
    texts = {BLOCK: b"block 7 ", CANDIDATE: b"proposal"}
    records = b"".join(
        bytes([kind]) + index.to_bytes(4, "little") + texts[kind, index] for kind, index in (first, second)
    )
    assert (
        bytes(out.buffer) == b"\x08" + (7).to_bytes(4, "little") + b"\x08" + records + (9).to_bytes(4, "little") + b"\0"
    )


def test_window_is_the_same_after_it_is_written_and_read() -> None:
    out = Writer()
    window().write(out)
    again = DuplicateWindow(blocks_max=2)
    reader = Reader(bytes(out.buffer))
    again.read(reader)
    reader.end()
    assert again == window()
    assert again.resident_bytes == 2 * PRINTED_BLOCK_BYTES + 2 * PRINT_BYTES


def test_fingerprint_of_another_size_cannot_be_read() -> None:
    out = Writer()
    DuplicateWindow(2).write(out)
    short = b"\x04" + (7).to_bytes(4, "little") + b"\x04\x00" + bytes(4) + bytes(FINGERPRINT_BYTES - 1)
    assert bytes(out.buffer) == b"\0"
    with pytest.raises(DecodeError):
        DuplicateWindow(2).read(Reader(short))


def test_oldest_block_is_dropped_first() -> None:
    of = window()
    of.remember(10, {BLOCK: b"block 10"})
    assert [dict(of.of_block(number)) for number in (7, 9, 10)] == [{}, {}, {BLOCK: b"block 10"}]
    assert of.resident_bytes == 2 * PRINTED_BLOCK_BYTES + PRINT_BYTES
    none = DuplicateWindow(0)
    none.remember(1, {BLOCK: b"block 1 "})
    assert none == DuplicateWindow(0)
