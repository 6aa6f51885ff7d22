# SPDX-License-Identifier: Apache-2.0
"""Outcomes of irregular records: late, conflicting, forked, out of range, too far ahead, skipped; and what a lane may hold."""

from __future__ import annotations

import cProfile
from dataclasses import fields
from hashlib import blake2b
from typing import Any

import pytest

from validator.core import window as window_module
from validator.core.counters import COUNTERS, Counters
from validator.core.inputs import DeadLetter, DeadReason, Input, RecordKind, Source
from validator.core.lane import Lane, LaneSettings, WaitingOverflow
from validator.core.limits import FAR_RECORDS_MAX
from validator.core.resident import BLOCK_BYTES, PRINT_BYTES, PRINTED_BLOCK_BYTES, record_bytes
from validator.core.rules import ChainSettings
from validator.core.scale import DecodeError
from validator.core.types import Para
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.rules import ROUTER

CONFIG = HostConfiguration(max_downward_message_size=4)


def lane(executed: int = 0, **settings: Any) -> Lane:
    return Lane(
        "chain",
        ROUTER.at_genesis(
            ChainSettings(
                CONFIG,
                (
                    Para(1),
                    Para(2),
                ),
            )
        ),
        executed,
        LaneSettings(**settings),
    )


def _input(kind: RecordKind, block: int, index: int, fields: tuple[Any, ...], offset: int = 0) -> Input:
    raw = repr((int(kind), block, index, fields)).encode()
    return Input(kind, block, index, blake2b(raw, digest_size=8).digest(), Source("t", 0, offset), raw, fields)


def block(
    number: int, *, parent: int | None = None, candidates: int = 0, downward: int = 0, mark: bytes = b""
) -> Input:
    parent = number - 1 if parent is None else parent
    return _input(RecordKind.BLOCK, number, 0, (number, parent, candidates, 0, downward, (), (), None, mark or None))


def downward(number: int, index: int = 0, msg: bytes = b"m") -> Input:
    return _input(RecordKind.DOWNWARD, number, index, (1, msg, None))


def candidate(number: int, index: int = 0, watermark: int | None = None) -> Input:
    watermark = number - 1 if watermark is None else watermark
    return _input(RecordKind.CANDIDATE, number, index, (2, number - 1, watermark, (), 0, (), None))


def executed_blocks(lane: Lane) -> list[int]:
    return [executed.receipt.block for executed, _ in lane.execute_ready()]


def counts(lane: Lane) -> tuple[int, int, int, int, int]:
    count = lane.counters
    numbers = (count.accepted, count.rejected, count.duplicate, count.dead, count.waiting)
    assert count.consumed == sum(numbers)
    return numbers


def reasons(letters: list[DeadLetter]) -> list[tuple[DeadReason, int | None, int | None]]:
    return [(letter.reason, letter.block, letter.index) for letter in letters]


def test_block_waits_for_its_records_and_parent() -> None:
    chain = lane()
    assert chain.waits_for() == "waiting for the record of the block after 0"
    chain.add(block(2, candidates=1))
    chain.add(candidate(2))
    assert executed_blocks(chain) == []
    assert chain.waits_for() == "waiting for the record of the block after 0; here without it: 2 records of block 2"
    chain.add(candidate(1, 1))
    assert chain.waits_for().endswith("after 0; here without it: 3 records of blocks 1 to 2"), (
        "it may be the next block's"
    )
    chain.add(block(1, candidates=2, downward=1))
    assert executed_blocks(chain) == []
    assert chain.waits_for() == "waiting for 1 of 1 downward of block 1"
    chain.add(downward(1))
    assert chain.waits_for() == "waiting for 1 of 2 candidates of block 1"
    assert counts(chain) == (0, 0, 0, 0, 5)
    chain.add(candidate(1, 0))
    assert chain.waits_for() == "block 1 is complete"
    assert executed_blocks(chain) == [1, 2]
    assert counts(chain) == (
        5,
        1,
        0,
        0,
        0,
    )  # two block records are accepted too; the second candidate of block 1 is not
    assert (chain.waiting_blocks, chain.waiting_bytes, chain.executed_block) == (0, 0, 2)


def test_block_record_counts_as_accepted_and_violation_as_rejected() -> None:
    chain = lane()
    for item in (
        block(1, candidates=2, downward=1),
        downward(1, 0, b"too long"),
        candidate(1),
        candidate(1, 1, watermark=9),
    ):
        assert chain.add(item) == []
    assert executed_blocks(chain) == [1]
    assert counts(chain) == (2, 2, 0, 0, 0)


def test_parent_number_may_skip_blocks() -> None:
    chain = lane(executed=10)
    chain.add(block(17, parent=12))
    chain.add(block(12, parent=10))
    assert executed_blocks(chain) == [12, 17]
    assert chain.waits_for() == "waiting for the record of the block after 17"


# --- duplicates and conflicts ---


def test_repeated_record_is_duplicate_before_and_after_execution() -> None:
    chain = lane()
    for _ in range(2):
        assert chain.add(block(1, downward=1)) == []
        assert chain.add(downward(1)) == []
    assert executed_blocks(chain) == [1]
    assert chain.add(downward(1)) == chain.add(block(1, downward=1)) == []
    assert counts(chain) == (2, 0, 4, 0, 0)


def test_different_record_with_same_index_is_conflict() -> None:
    chain = lane()
    chain.add(downward(1, 0, b"a"))
    (letter,) = chain.add(downward(1, 0, b"b"))
    assert reasons([letter]) == [(DeadReason.CONFLICT, 1, 0)]
    assert letter.detail == "downward 0 of block 1 is taken by the record at t[0]@0, which differs"
    assert letter.raw == downward(1, 0, b"b").raw
    chain.add(block(1, downward=1))
    assert executed_blocks(chain) == [1]
    (letter,) = chain.add(downward(1, 0, b"c"))
    assert reasons([letter]) == [(DeadReason.CONFLICT, 1, 0)]
    assert "executed already" in letter.detail
    assert counts(chain) == (2, 0, 0, 2, 0)


def test_records_of_different_kinds_may_share_index() -> None:
    chain = lane()
    for item in (block(1, candidates=1, downward=2), candidate(1, 0), downward(1, 0), downward(1, 1)):
        assert chain.add(item) == []
    assert executed_blocks(chain) == [1]


def test_second_block_record_with_same_number_is_fork() -> None:
    chain = lane()
    chain.add(block(2))
    assert reasons(chain.add(block(2, mark=b"other"))) == [(DeadReason.FORK, 2, 0)]
    assert reasons(chain.add(block(2, parent=0))) == [(DeadReason.FORK, 2, 0)]
    chain.add(block(1))
    assert executed_blocks(chain) == [1, 2]
    assert reasons(chain.add(block(1, mark=b"other"))) == [(DeadReason.FORK, 1, 0)]
    assert counts(chain) == (2, 0, 0, 3, 0)


def test_second_child_of_block_is_fork() -> None:
    chain = lane()
    chain.add(block(1))
    (letter,) = chain.add(block(2, parent=0))
    assert letter.reason == DeadReason.FORK
    assert letter.detail == "block 2 names parent 0, as block 1 does"
    assert executed_blocks(chain) == [1]


@pytest.mark.parametrize("parent", [5, 6, 2])
def test_impossible_parent_is_fork(parent: int) -> None:
    chain = lane(executed=3)
    assert reasons(chain.add(block(5, parent=parent))) == [(DeadReason.FORK, 5, 0)]


# --- late and skipped ---


def test_record_of_passed_block_is_late() -> None:
    chain = lane(executed=10)
    (letter,) = chain.add(downward(10))
    assert reasons([letter]) == [(DeadReason.LATE, 10, 0)]
    assert letter.detail == "block 10 is passed: block 10 is executed"
    assert reasons(chain.add(block(4))) == [(DeadReason.LATE, 4, 0)]


def test_duplicates_are_detected_within_window() -> None:
    chain = lane(duplicate_window_blocks=2)
    for number in (1, 2, 3):
        chain.add(block(number))
    assert executed_blocks(chain) == [1, 2, 3]
    assert chain.add(block(3)) == chain.add(block(2)) == []
    assert reasons(chain.add(block(1))) == [(DeadReason.LATE, 1, 0)]
    without = lane(duplicate_window_blocks=0)
    without.add(block(1))
    assert executed_blocks(without) == [1]
    assert reasons(without.add(block(1))) == [(DeadReason.LATE, 1, 0)]


def test_records_of_skipped_blocks_are_late() -> None:
    chain = lane()
    chain.add(downward(2))
    chain.add(block(3, parent=2, downward=1))
    chain.add(downward(3))
    chain.add(block(5, parent=0))
    ((_, letters),) = chain.execute_ready()
    assert reasons(letters) == [(DeadReason.LATE, 2, 0), (DeadReason.LATE, 3, 0), (DeadReason.LATE, 3, 0)]
    assert counts(chain) == (1, 0, 0, 3, 0)
    assert (chain.waiting_blocks, chain.waiting_bytes) == (0, 0)


@pytest.mark.parametrize("first", [True, False])
def test_block_with_skipped_parent_is_fork_before_and_after_execution(first: bool) -> None:
    chain = lane()
    letters: list[DeadLetter] = []
    arriving = [block(6, parent=3, downward=1), downward(6)]
    if first:
        letters += [letter for item in arriving for letter in chain.add(item)]
    chain.add(block(5, parent=0))
    letters += [letter for _, passed in chain.execute_ready() for letter in passed]
    if not first:
        letters += [letter for item in arriving for letter in chain.add(item)]
    assert reasons(letters) == [(DeadReason.FORK, 6, 0)]
    chain.add(block(6, parent=5, downward=1))  # the number is free for the correct block
    assert executed_blocks(chain) == [6]
    assert counts(chain) == (3, 0, 0, 1, 0)


def test_block_record_with_skipped_parent_leaves_no_waiting_block() -> None:
    chain = lane()
    chain.add(block(6, parent=3))
    chain.add(block(5, parent=0))
    ((_, letters),) = chain.execute_ready()
    assert reasons(letters) == [(DeadReason.FORK, 6, 0)]
    assert (chain.waiting_blocks, chain.waiting_bytes) == (0, 0)
    assert list(chain.waiting()) == []
    assert chain.waits_for() == "waiting for the record of the block after 5"


# --- out of range ---


def test_index_beyond_announced_count_is_out_of_range() -> None:
    chain = lane()
    chain.add(block(1, downward=1))
    (letter,) = chain.add(downward(1, 1))
    assert reasons([letter]) == [(DeadReason.INDEX_OUT_OF_RANGE, 1, 1)]
    assert letter.detail == "downward 1 of block 1: the block record announces 1 of them"
    assert reasons(chain.add(candidate(1, 0))) == [(DeadReason.INDEX_OUT_OF_RANGE, 1, 0)]
    chain.add(downward(1, 0))
    assert executed_blocks(chain) == [1]


def test_index_beyond_count_announced_later_is_out_of_range() -> None:
    chain = lane()
    for item in (candidate(1, 0), downward(1, 2), downward(1, 0), downward(1, 1)):
        assert chain.add(item) == []
    letters = chain.add(block(1, downward=1))
    out = DeadReason.INDEX_OUT_OF_RANGE
    assert reasons(letters) == [(out, 1, 1), (out, 1, 2), (out, 1, 0)]
    assert counts(chain) == (0, 0, 0, 3, 2)
    assert executed_blocks(chain) == [1]
    assert chain.waiting_bytes == 0


# --- overflow ---


# --- snapshots ---


def test_snapshot_of_other_version_or_truncated_is_refused() -> None:
    chain = lane()
    chain.add(downward(2))
    mine, *pages = chain.snapshot()

    def restore(first: bytes) -> Lane:
        return Lane.restore("chain", [first, *pages], ROUTER.from_pages, lambda kind, raw, source: downward(2))

    assert restore(mine).snapshot() == [mine, *pages]
    for wrong in (b"\2" + mine[1:], mine[:-1], mine + b"\0", mine[:3]):
        with pytest.raises(DecodeError):
            restore(wrong)


def test_counters_are_stored_in_fixed_order() -> None:
    chain = lane(executed=9)
    chain.counters = Counters(waiting=6, dead=5, duplicate=4, rejected=3, accepted=2, consumed=1)
    assert set(COUNTERS) == {field.name for field in fields(Counters)}
    assert chain.own_page()[5:53] == b"".join(count.to_bytes(8, "little") for count in range(1, 7))


def test_records_dead_before_lane_are_counted() -> None:
    chain = lane()
    chain.count_dead()
    assert counts(chain) == (0, 0, 0, 1, 0)


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

    assert calls(200) < 2.2 * calls(100)
