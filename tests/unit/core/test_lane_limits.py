# SPDX-License-Identifier: Apache-2.0
"""What a lane may hold: records far ahead, memory, fingerprints; and what passing blocks costs."""

from __future__ import annotations

import cProfile

import pytest

from tests.unit.core.test_lane import block, counts, downward, executed_blocks, lane, reasons
from validator.core import window as window_module
from validator.core.inputs import DeadReason
from validator.core.lane import Lane, WaitingOverflow
from validator.core.limits import FAR_RECORDS_MAX
from validator.core.resident import BLOCK_BYTES, PRINT_BYTES, PRINTED_BLOCK_BYTES, record_bytes
from validator.protocols.router.rules import ROUTER


def test_record_too_far_ahead_waits_until_its_lane_is_near() -> None:
    chain = lane(executed=10, blocks_ahead_max=5)
    assert chain.add(downward(16)) == []
    assert (chain.far_records, chain.waiting_blocks, counts(chain)) == (1, 0, (0, 0, 0, 0, 1))
    assert chain.waiting_bytes == len(downward(16).raw)
    assert chain.waits_for().endswith("; 1 records are too far ahead, the nearest of block 16")
    for number in range(11, 17):
        assert chain.far_records == (number == 11)
        assert chain.add(block(number, downward=int(number == 16))) == []
        assert executed_blocks(chain) == [number]
    assert counts(chain) == (7, 0, 0, 0, 0)


def test_record_too_far_ahead_is_dead_after_as_many_blocks() -> None:
    chain = lane(executed=10, blocks_ahead_max=3)
    chain.add(downward(4_000_000_000))
    chain.add(downward(16))
    letters = []
    for number in range(11, 18):
        chain.add(block(number, downward=int(number == 16)))
        letters += [(number, letter) for _, passed in chain.execute_ready() for letter in passed]
    ((number, letter),) = letters
    assert (number, letter.reason, letter.block) == (13, DeadReason.TOO_FAR_AHEAD, 4_000_000_000)
    assert letter.detail == "block 4000000000 is more than 3 blocks (blocks_ahead_max) ahead, and was so 3 blocks ago"
    assert chain.executed_block == 17
    assert counts(chain) == (8, 0, 0, 1, 0)
    assert (chain.waiting_bytes, chain.resident_bytes(), chain.far_records) == (0, 0, 0)


def test_place_far_ahead_is_taken_once() -> None:
    chain = lane(blocks_ahead_max=3)
    chain.add(downward(9, 0, b"a"))
    assert chain.add(downward(9, 0, b"a")) == []
    assert reasons(chain.add(downward(9, 0, b"b"))) == [(DeadReason.CONFLICT, 9, 0)]
    assert counts(chain) == (0, 0, 1, 1, 1)


def test_too_many_records_too_far_ahead_raise_overflow() -> None:
    chain = lane(blocks_ahead_max=3)
    for index in range(FAR_RECORDS_MAX):
        chain.add(downward(9, index))
    with pytest.raises(WaitingOverflow, match=r"more than 1024 records are more than 3 blocks .* block 10 at t\[0\]@0"):
        chain.add(downward(10))


def test_records_too_far_ahead_survive_a_restart() -> None:
    chain = lane(executed=10, blocks_ahead_max=3)
    items = {len(item.raw): item for item in (downward(20, 0, b"a"), downward(99, 0, b"bb"))}
    for item in items.values():
        chain.add(item)
    snapshot = chain.snapshot()
    again = Lane.restore("chain", snapshot, ROUTER.from_pages, lambda _, raw, __: items[len(raw)], chain.settings)
    assert again.snapshot() == snapshot
    assert (again.far_records, again.waiting_bytes, again.counters) == (2, chain.waiting_bytes, chain.counters)
    assert again.resident_bytes() == chain.resident_bytes() > 0


def test_operator_evicts_waiting_records() -> None:
    chain = lane(blocks_ahead_max=3)
    for item in (block(2, downward=1), downward(2), downward(9), downward(3)):
        chain.add(item)
    letters = chain.evict(lambda item: item.block != 3, "skipped")
    assert reasons(letters) == [(DeadReason.SKIPPED, 9, 0), (DeadReason.SKIPPED, 2, 0), (DeadReason.SKIPPED, 2, 0)]
    assert (chain.waiting_blocks, chain.far_records, counts(chain)) == (1, 0, (0, 0, 0, 3, 1))
    chain.add(block(2, mark=b"another"))
    chain.add(block(1))
    assert executed_blocks(chain) == [1, 2]


def test_too_many_waiting_bytes_raise_overflow() -> None:
    size = len(downward(1).raw)
    chain = lane(waiting_bytes_max=2 * size)
    chain.add(downward(1, 0))
    chain.add(downward(1, 1))
    assert chain.waiting_bytes == 2 * size
    chain.add(downward(1, 1))  # a duplicate takes no space
    with pytest.raises(WaitingOverflow, match=f"occupy more than {2 * size} bytes"):
        chain.add(downward(1, 2))


def test_limit_of_waiting_bytes_counts_what_records_occupy() -> None:
    chain = lane(waiting_bytes_max=2 * record_bytes(downward(2)) + BLOCK_BYTES)
    for item in (block(1, downward=3), *(downward(1, index) for index in range(3))):
        chain.add(item)
    assert executed_blocks(chain) == [1]  # what a batch completes does not wait
    chain.add(downward(2, 0))
    chain.add(downward(2, 1))
    assert executed_blocks(chain) == []
    assert chain.resident_bytes() == chain.settings.waiting_bytes_max > 10 * chain.waiting_bytes
    chain.add(downward(2, 2))
    with pytest.raises(WaitingOverflow, match=r"occupy more than .* \(waiting_bytes_max\)"):
        executed_blocks(chain)


def test_window_of_duplicates_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_module, "DUPLICATE_WINDOW_BYTES_MAX", 2 * PRINTED_BLOCK_BYTES + 4 * PRINT_BYTES)
    chain = lane(duplicate_window_blocks=100)
    for number in range(1, 4):
        chain.add(block(number, downward=1))
        chain.add(downward(number))
    assert executed_blocks(chain) == [1, 2, 3]
    assert chain.window_bytes == 2 * PRINTED_BLOCK_BYTES + 4 * PRINT_BYTES
    assert chain.add(downward(2)) == chain.add(downward(3)) == []
    assert reasons(chain.add(downward(1))) == [(DeadReason.LATE, 1, 0)]
    chain.add(block(4, downward=9))
    for index in range(9):
        chain.add(downward(4, index))
    assert executed_blocks(chain) == [4]
    assert chain.add(downward(4, 8)) == []  # the last block stays
    assert chain.window_bytes == PRINTED_BLOCK_BYTES + 10 * PRINT_BYTES


def test_cost_of_skipped_blocks_is_linear() -> None:
    def calls(blocks: int) -> int:
        chain = lane(blocks_ahead_max=10 * blocks)
        for number in range(2, 2 * blocks + 2, 2):
            chain.add(downward(number - 1))
            chain.add(block(number, parent=number - 2))
        profile = cProfile.Profile()
        profile.runcall(executed_blocks, chain)
        assert counts(chain) == (blocks, 0, 0, blocks, 0)
        return sum(entry.callcount for entry in profile.getstats())

    assert calls(400) < 2.2 * calls(200)
