# SPDX-License-Identifier: Apache-2.0
"""The inputs of the simulated job, and the output that it must emit under any fault."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, TypeAlias

from validator_simulators import SimulationSettings

from streaming.options import BATCH_BYTES_MAX
from tests.codecs import decoded
from tests.unit.lanes.chains import PREFIX, Chain, Record, chain, definition_of, record
from validator.codec.encode import OutputRecord, source_header
from validator.codec.inflight import Arrival, pack
from validator.codec.json_form import to_json
from validator.core.inputs import DeadLetter, DeadReason, Source
from validator.core.scale import DecodeError
from validator.lanes import arrived
from validator.lanes.definition import LaneDefinition
from validator.lanes.marker import consumed_by
from validator.lanes.parked import Parked, says_parked, stored_parts
from validator.lanes.processor import LaneProcessor
from validator.topics import INPUT_TOPICS

Item: TypeAlias = Arrival
Partition: TypeAlias = tuple[str, int]

COMPARED = ("verdicts", "dispatches", "channel-events", "ingress-events", "headroom", "receipts")
"""Topics whose records do not depend on how inputs arrived."""

ORDERS: Partition = (f"{PREFIX}blocks", 1)
"""The partition of operators' orders, which each schedule writes by itself."""

NO_LANE = ""
"""The destination of records of unconfigured lanes, which has no state."""

ACCOUNT = ("executed_block", "consumed", "accepted", "rejected", "duplicate", "dead", "waiting")


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The partitions that a job reads, and the expected output of each lane."""

    definitions: dict[str, LaneDefinition]
    partitions: dict[Partition, Sequence[tuple[str, Item]]]
    """By topic and partition, in order of offsets: the lane and the decoded record."""
    expected: dict[str, dict[str, list[bytes]]]
    """By lane and topic, the values in order."""
    dead: dict[str, frozenset[bytes]]
    """By lane, the sources of its dead letters."""
    blocks: dict[str, list[int]]
    """By lane, its blocks in order."""
    ends: dict[str, dict[Partition, int]]
    """By lane and place, the offset after its last record."""
    account: dict[str, dict[str, Any]]
    """By lane, its final account."""
    snapshots: dict[str, list[bytes]]


@cache
def inputs() -> Inputs:
    """Return the inputs of every schedule: three lanes, with records that are repeated, late, misplaced, broken, or of no lane."""
    settings: dict[str, Any] = {
        "candidates_per_block": 2,
        "requests_per_100_blocks": 100,
        "downward_per_100_blocks": 80,
        "paras": 3,
    }
    chains = [
        chain(SimulationSettings(seed=21, blocks=5, session_length_blocks=2, violation_share=0.2, **settings)),
        chain(
            SimulationSettings(
                seed=22, blocks=4, session_length_blocks=3, lane="kusama", enactment="on-inclusion", **settings
            )
        ),
        _with_gaps(),
    ]
    definitions = {
        each.lane: definition_of(each, {"headroom_interval_blocks": 2, "root_interval_blocks": 3}) for each in chains
    }
    topics: dict[str, list[tuple[str, bytes]]] = defaultdict(list)
    for at, each in enumerate(chains):
        for topic, values in _noisy(each, at).items():
            topics[topic] += [(each.lane, value) for value in values]
    topics["blocks"] += [(NO_LANE, _block("westend", block, block - 1).value) for block in range(1, 4)]
    topics["candidates"] += [(NO_LANE, value) for value in (b"broken", _candidate("westend", 1, 0).value, b"")]
    partitions: dict[Partition, Sequence[tuple[str, Item]]] = {}
    for topic, pairs in topics.items():
        # lanes share a partition: the output of one says nothing about the output of another in the same batch
        mixed = sorted(enumerate(pairs), key=lambda item: (item[0] * 7 % 5, item[0]))
        by_lane = {lane: [value for name, value in pairs if name == lane] for lane in (*definitions, NO_LANE)}
        order = [name for _, (name, _) in mixed]
        full = PREFIX + topic
        partitions[full, 0] = tuple(
            _decoded(topic, by_lane[lane].pop(0), lane, Source(full, 0, offset)) for offset, lane in enumerate(order)
        )
    return _played(definitions, partitions)


def _noisy(of: Chain, seed: int) -> dict[str, list[bytes]]:
    """Return a chain's values by topic, with dead records and duplicates in between."""
    values: dict[str, list[bytes]] = {topic: [] for topic in INPUT_TOPICS}
    for at, each in enumerate(of.records):
        own = values[each.topic]
        own.append(each.value)
        if (at + seed) % 9 == 0 and of.lane != "gaps":
            own.append(
                each.value
            )  # a repeated record; if no block takes it, only the moment decides whether it is a duplicate
        if (at + seed) % 13 == 0:
            own.append(b"\xc3\x01" + each.value[9::-1] + b"broken")
        if each.topic == "blocks" and each.block % 3 == seed % 3:
            values["candidates"].append(_candidate(of.lane, each.block, 900 + at).value)  # no block has this many
    for at, each in enumerate(of.records):
        if each.topic == "candidates" and at % 8 == 0:
            values["candidates"].append(_candidate(of.lane, each.block, 0).value)  # the place is taken
        if each.topic == "blocks" and each.block % 3 == 1:
            values["blocks"].append(_block(of.lane, each.block, each.block - 1, candidates=7).value)  # a fork
    return values


def _with_gaps() -> Chain:
    """Return a chain that skips block numbers; some of these have records that no block will ever take."""
    table = {**chain(SimulationSettings(seed=1, blocks=1, lane="gaps")).table, "genesis_paras": []}
    numbers = [1, 3, 4, 7]
    records = []
    for parent, number in zip([0, *numbers], numbers, strict=False):
        records += [_candidate("gaps", skipped, 0) for skipped in range(parent + 1, number)]
        records.append(_block("gaps", number, parent))
    records.insert(3, _block("gaps", 9, 2))  # its parent is never executed
    return Chain("gaps", table, (), tuple(records))


def _block(lane: str, block: int, parent: int, candidates: int = 0) -> Record:
    body = {
        "lane": lane,
        "block": block,
        "parent_number": parent,
        "candidates": candidates,
        "requests": 0,
        "downward": 0,
    }
    return record("blocks", body)


def _candidate(lane: str, block: int, index: int) -> Record:
    body = {"lane": lane, "block": block, "index": index, "para_id": 4999, "hrmp_watermark": block}
    return record(
        "candidates", {**body, "upward_messages": [], "processed_downward_messages": 0, "horizontal_messages": []}
    )


def _decoded(topic: str, value: bytes, lane: str, source: Source) -> tuple[str, Item]:
    made = decoded(topic, value, source, lane.encode())
    if isinstance(made, DeadLetter):
        return made.lane, made
    named, item = made
    if lane == NO_LANE:
        return NO_LANE, DeadLetter(named, DeadReason.UNKNOWN_LANE, "", source, value, item.block, item.index)
    return made


def _played(definitions: dict[str, LaneDefinition], partitions: dict[Partition, Sequence[tuple[str, Item]]]) -> Inputs:
    everything = [pair for place in sorted(partitions) for pair in partitions[place]]
    expected: dict[str, dict[str, list[bytes]]] = {}
    dead, blocks, ends, account, snapshots = {}, {}, {}, {}, {}
    for lane, definition in definitions.items():
        worker = LaneProcessor.create(definition)
        items = [item for name, item in everything if name == lane]
        runs = list(worker.process(items))
        blocks[lane] = [block for block, _ in runs if block is not None]
        ends[lane] = consumed_by(items)
        output = [record for _, records in runs for record in records]
        expected[lane] = {topic: [each.value for each in output if each.topic == topic] for topic in COMPARED}
        dead[lane] = frozenset(source_of_header(each) for each in output if each.topic == "dead-letters")
        account[lane] = account_of(worker.status().records)
        snapshots[lane] = worker.snapshot()
    of_none = [item for name, item in everything if name == NO_LANE]
    expected[NO_LANE], blocks[NO_LANE], ends[NO_LANE] = {topic: [] for topic in COMPARED}, [], consumed_by(of_none)
    dead[NO_LANE] = frozenset(source_header(item.source) for item in of_none)
    return Inputs(definitions, partitions, expected, dead, blocks, ends, account, snapshots)


def source_of_header(dead_letter: OutputRecord) -> bytes:
    """Return the source in the header of an encoded dead letter."""
    return dict(dead_letter.headers)["source"]


def account_of(records: Iterable[OutputRecord]) -> dict[str, Any]:
    """Return a lane's account, from the last of some records that has one."""
    *_, last = (each for each in records if each.topic == "lanes" and not says_parked(each))
    status = to_json("lanes", last.value)
    return {name: status[name] for name in ACCOUNT}


def lane_parked(stored: bytes | None) -> Parked | None:
    """Return how a stored lane is parked; None if it is not, or if that is damaged and the lane has not noticed."""
    try:
        return stored_parts(stored)[0]
    except DecodeError:
        return None


def between(
    of: Inputs, begins: dict[Partition, int], ends: dict[Partition, int], lanes: Sequence[str]
) -> dict[str, list[Item]]:
    """Return, by lane, the items between offsets, in the order in which the lane operator takes them."""
    items: dict[str, list[Item]] = {}
    for place in sorted(of.partitions):
        for lane, item in of.partitions[place][begins.get(place, 0) : ends[place]]:
            if lane in lanes:
                items.setdefault(lane, []).append(item)
    return items


__all__ = [
    "COMPARED",
    "ORDERS",
    "Inputs",
    "Item",
    "Partition",
    "account_of",
    "between",
    "inputs",
    "source_header",
    "source_of_header",
]


def in_parts(items: list[Item], random: Random) -> arrived.Inputs:
    """Return a lane's batch in chunks with any borders: another attempt at it has others."""
    by_place: dict[Partition, list[list[Item]]] = {}
    for item in sorted(items, key=lambda item: item.source):
        runs = by_place.setdefault((item.source.topic, item.source.partition), [[]])
        if runs[-1] and random.random() < 0.2:
            runs.append([])
        runs[-1].append(item)
    chunks = [
        arrived.Chunk(*run[0].source, run[-1].source.offset + 1, len(run), pack(run))
        for runs in by_place.values()
        for run in runs
    ]
    return arrived.arrived(random.sample(chunks, len(chunks)), BATCH_BYTES_MAX).items
