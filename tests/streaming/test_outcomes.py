# SPDX-License-Identifier: Apache-2.0
"""Every record that cannot be executed has one outcome: dead (with raw bytes, reason and source), duplicate, or waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

from tests.streaming.harness import Stream, decoded, first_difference, last_status, of_lane
from tests.streaming.reference import IMMEDIATE, ON_INCLUSION, definition, reference
from tests.unit.lanes.chains import Record, chain, record
from validator.codec.encode import write
from validator.codec.schemas import schemas
from validator.core.limits import RECORD_BYTES_MAX

LANE = IMMEDIATE.lane
CHAIN = chain(IMMEDIATE)
LAST = CHAIN.blocks[-1].block
KEY = LANE.encode()
OTHER = ON_INCLUSION.lane


class Bad(NamedTuple):
    """A Kafka record that must become a dead letter."""

    topic: str
    key: bytes | None
    value: bytes | None
    reason: str
    detail: str  # a part of the dead letter's detail
    lane: str = LANE


def block_record(block: int, lane: str = LANE, **changed: Any) -> bytes:
    body = {"lane": lane, "block": block, "parent_number": None, "block_hash": None, "candidates": 0, "requests": 0}
    body |= {"downward": 0, "included": [], "timed_out": [], "session_change": None}
    return record("blocks", body | changed).value


def downward(block: int, index: int, lane: str = LANE, msg: str = "aa") -> bytes:
    body = {"lane": lane, "block": block, "index": index, "para_id": 2000, "msg": msg}
    return record("downward-messages", body).value


def executed(topic: str) -> Record:
    """Return the first record of a topic of the chain."""
    return next(each for each in CHAIN.records if each.topic == topic)


def unreadable() -> Iterator[Bad]:
    """Yield records that cannot be decoded."""
    candidate = executed("candidates").value
    header = schemas()["validator.router.Candidate"].header
    unknown = b"\xc3\x01" + b"\x01\x02\x03\x04\x05\x06\x07\x08"
    limit = write(
        schemas()["validator.DownwardMessage"], {"lane": LANE, "block": -1, "index": 0, "para_id": 0, "msg": b""}
    )
    yield Bad("candidates", KEY, b"", "UNDECODABLE", "0 bytes that start with nothing")
    yield Bad("candidates", KEY, b'{"json": true}', "UNDECODABLE", "single-object encoding")
    yield Bad("candidates", KEY, candidate[:-3], "UNDECODABLE", "candidate_hash: expected 32 bytes")
    yield Bad("candidates", KEY, candidate + b"\0", "UNDECODABLE", "expected the end of the record at byte")
    yield Bad(
        "candidates", KEY, header + b"\xff" * 40, "UNDECODABLE", "lane: expected the last byte of an integer of 64 bits"
    )
    largest = Random(1).randbytes(
        RECORD_BYTES_MAX - 1_000
    )  # the largest value that a topic accepts with key and headers of the batch
    yield Bad("candidates", KEY, b"\0" + largest, "UNDECODABLE", f"{len(largest) + 1} bytes that start with 00")
    yield Bad("candidates", KEY, None, "UNDECODABLE", "no value")
    yield Bad("blocks", KEY, candidate, "UNDECODABLE", "found one of validator.router.Candidate")
    yield Bad("channel-requests", KEY, unknown + b"what is this", "UNKNOWN_SCHEMA", "0102030405060708")
    yield Bad("downward-messages", KEY, limit, "LIMIT", "block: expected 0 to")
    yield Bad(
        "downward-messages", b"stranger", downward(1, 0, "stranger"), "UNKNOWN_LANE", "not configured", "stranger"
    )
    yield Bad("candidates", b"stranger", b"\xff", "UNDECODABLE", "found 1 bytes", "stranger")
    yield Bad("candidates", None, b"\xfe\xff", "UNDECODABLE", "found 2 bytes", "")


def refused() -> Iterator[Bad]:
    """Yield records that the lane refuses after executing the chain; LAST + 1 has its block record, LAST + 3 waits for LAST + 2."""
    conflicting = executed("candidates")
    yield Bad("candidates", KEY, conflicting.value[:-1] + b"\x07", "CONFLICT", "executed already, which differs")
    yield Bad(
        "blocks", KEY, block_record(LAST, candidates=3), "FORK", f"block {LAST} is taken by a record that is executed"
    )
    yield Bad("downward-messages", KEY, downward(LAST, 999), "LATE", f"block {LAST} is passed")
    yield Bad("downward-messages", KEY, downward(0, 0), "LATE", "block 0 is passed")
    yield Bad("blocks", KEY, block_record(LAST + 1, downward=9), "FORK", f"block {LAST + 1} is taken by the record at")
    yield Bad("blocks", KEY, block_record(LAST + 8, parent_number=LAST - 1), "FORK", "is executed already")
    yield Bad("blocks", KEY, block_record(LAST + 9, parent_number=LAST), "FORK", f"as block {LAST + 1} does")
    yield Bad("downward-messages", KEY, downward(LAST + 1, 2), "INDEX_OUT_OF_RANGE", "announces 2 of them")
    yield Bad("downward-messages", KEY, downward(LAST + 1, 0, msg="bb"), "CONFLICT", "is taken by the record at")


def skipped() -> Iterator[Bad]:
    """Yield records of another lane that wait for numbers which its chain then skips: block 6 follows block 3."""
    key = OTHER.encode()
    yield Bad("downward-messages", key, downward(5, 0, OTHER), "LATE", "block 6, whose parent is 3, is executed", OTHER)
    orphan = block_record(7, OTHER, parent_number=5)
    yield Bad("blocks", key, orphan, "FORK", "names parent 5, but block 6 is executed already", OTHER)


def test_every_record_has_exactly_one_outcome(stream: Callable[..., Stream]) -> None:
    running = stream({LANE: definition(IMMEDIATE), OTHER: definition(ON_INCLUSION)}, records_per_trigger=2_000)
    then_skipped = list(skipped())
    start_of_other = [each for each in chain(ON_INCLUSION).records if each.block <= 3]
    running.produce([*start_of_other, *((bad.topic, bad.key, bad.value) for bad in then_skipped)])
    early = [downward(LAST + 1, 5), downward(LAST + 3, 0)]  # the block record will show that the first has no place
    first_unreadable = list(unreadable())
    running.produce([(bad.topic, bad.key, bad.value) for bad in first_unreadable])
    running.produce([*CHAIN.records, *(("downward-messages", KEY, value) for value in early)])
    running.start()
    running.settle()
    # a block that lacks one of two messages; the chain again, all duplicates; then the bad records
    running.produce(
        [("blocks", KEY, block_record(LAST + 1, downward=2)), ("downward-messages", KEY, downward(LAST + 1, 0))]
    )
    running.produce([("downward-messages", KEY, downward(LAST + 1, 0))])  # a duplicate of a waiting record
    running.produce([*CHAIN.records, ("blocks", OTHER.encode(), block_record(6, OTHER, parent_number=3))])
    running.settle()
    then_refused = list(refused())
    running.produce([(bad.topic, bad.key, bad.value) for bad in then_refused])
    running.settle()
    running.stop()
    outputs = running.outputs()

    assert first_difference(of_lane(outputs, LANE), reference(IMMEDIATE)) is None
    shown = Bad("downward-messages", KEY, early[0], "INDEX_OUT_OF_RANGE", "announces 2")
    expected = [*first_unreadable, shown, *then_refused, *then_skipped]
    check_dead_letters(running, decoded(outputs, "dead-letters"), expected)

    status = last_status(outputs, LANE)
    verdicts = [verdict for verdict in CHAIN.expected if verdict["kind"] in ("candidate", "request", "downward")]
    rejected = sum(not verdict["ok"] for verdict in verdicts)
    waiting = 3  # the record of LAST + 1, one message of it, one of LAST + 3
    assert status["duplicate"] == len(CHAIN.records) + 1
    assert status["rejected"] == rejected
    assert status["accepted"] == len(CHAIN.records) - rejected
    assert status["dead"] == sum(bad.lane == LANE for bad in expected)
    assert status["waiting"] == waiting
    assert status["consumed"] == 2 * len(CHAIN.records) + 1 + waiting + status["dead"]
    assert (status["executed_block"], status["waiting_blocks"]) == (LAST, 2)
    assert status["waiting_for"] == f"waiting for 1 of 2 downward of block {LAST + 1}"

    status = last_status(outputs, OTHER)
    assert (status["dead"], status["waiting"], status["consumed"]) == (2, 0, len(start_of_other) + 3)
    assert [each["block"] for each in decoded(of_lane(outputs, OTHER), "receipts")] == [1, 2, 3, 6]
    assert {each["lane"] for each in decoded(outputs, "lanes")} == {LANE, OTHER}


def check_dead_letters(running: Stream, letters: list[dict[str, Any]], expected: list[Bad]) -> None:
    """Each bad record has one dead letter with its bytes and its source."""
    inputs = running.inputs()
    left = list(letters)
    for bad in expected:
        raw = bad.value or b""
        found = [
            each for each in left if bytes.fromhex(each["raw"]) == raw and each["topic"] == running.prefix + bad.topic
        ]
        assert found, bad.detail
        letter = found[0]
        left.remove(letter)
        assert (letter["reason"], letter["lane"]) == (bad.reason, bad.lane), letter
        assert bad.detail in letter["detail"], letter
        assert letter["partition"] == 0
        assert inputs[bad.topic][letter["offset"]] == (bad.key or b"", raw)
    assert left == []
