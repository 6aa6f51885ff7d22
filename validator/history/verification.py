# SPDX-License-Identifier: Apache-2.0
"""Rebuilds a lane from the topics and compares it with the lane in the checkpoint."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from validator.checkpoint.kafka import refuse_missing
from validator.codec.json_form import to_json
from validator.core.counters import COUNTERS, Counters
from validator.core.handlers.state import FIRST_OWNER
from validator.core.hashing import blake2b_256
from validator.core.inputs import RecordKind
from validator.errors import UserError
from validator.history.emitted import emitted_values
from validator.history.engine import Engine, Replica, recorded_inputs
from validator.kafka.reader import TopicReader
from validator.topics import INPUT_TOPICS

if TYPE_CHECKING:
    from validator.ask.state import RestoredState
    from validator.codec.codec import Codec
    from validator.core.inputs import Source
    from validator.core.lane import Lane
    from validator.core.outcomes import Receipt
    from validator.core.types import ParaId
    from validator.history.engine import Progress
    from validator.kafka.settings import KafkaTable
    from validator.lanes.definition import LaneDefinition
    from validator.lanes.processor import LaneProcessor


RECEIPTS_KEPT: Final = 2_000
"""Number of last receipts that are compared with those on the topic."""


@dataclass(slots=True)
class Rebuilt:
    """A lane rebuilt from its inputs, with its last receipts."""

    processor: LaneProcessor
    records: int = 0
    cut: list[str] = field(default_factory=list)
    """Partitions whose first records are gone. No block needs them, but the checkpoint's counts include them."""
    receipts: deque[Receipt] = field(default_factory=lambda: deque(maxlen=RECEIPTS_KEPT))


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison, in words: the checkpoint's value and the value rebuilt from the topics."""

    what: str
    stored: str
    rebuilt: str
    same: bool
    differing: tuple[str, ...] = ()
    """The parts that differ, if the value has parts."""


def rebuild(
    kafka: KafkaTable,
    prefix: str,
    codec: Codec,
    definition: LaneDefinition,
    lane: RestoredState,
    progress: Progress,
) -> Rebuilt:
    """Execute a lane from its first block, with the inputs that the job had consumed at the checkpoint's batch.

    The rules are those that the lane was stored with; ``codec`` reads the records of all lanes of the job. Memory is bounded by the lane,
    and by how far its records are out of order in their topics. Errors, in order: the checkpoint belongs to other topics, retention has
    removed inputs, a topic ends before the consumed offset.
    """
    wanted = {prefix + topic for topic in INPUT_TOPICS}
    if {topic for topic, _ in lane.consumed} != wanted:
        found = ", ".join(sorted({topic for topic, _ in lane.consumed}))
        raise UserError(
            f"[topics] prefix: the checkpoint belongs to the topics {found}, expected {', '.join(sorted(wanted))}"
        )
    failing = f"lane {lane.name}: it cannot be rebuilt"
    refuse_missing(kafka, prefix, codec, definition, failing)
    under = definition.under(lane.head.rules)
    replica = Replica.create(under, failing)
    rebuilt = Rebuilt(replica.processor, cut=_cut_partitions(kafka, lane))
    inputs = recorded_inputs(kafka, prefix, codec, under, progress, lane.consumed, _waiting_sources(lane))
    with closing(inputs):
        engine = Engine(inputs, [replica])
        engine.run(lambda executed: rebuilt.receipts.append(executed[0].receipt))
    rebuilt.records = engine.records + engine.dead
    return rebuilt


def _cut_partitions(kafka: KafkaTable, lane: RestoredState) -> list[str]:
    """Return the partitions of which retention has removed the first records."""
    with TopicReader(kafka, "", sorted({topic for topic, _ in lane.consumed})) as reader:
        spans = reader.spans()
    return [f"{topic}[{partition}]" for topic, partition in sorted(lane.consumed) if spans[topic, partition][0]]


def _waiting_sources(lane: RestoredState) -> set[Source]:
    """Return which records wait in a lane: the job may have skipped some of them since then."""
    return {item.source for _, block in lane.processor.lane.waiting() for item in block.places.values()}


# --- comparing ---------------------------------------------------------------------------------------------------------------------------


def compare(stored: RestoredState, rebuilt: Rebuilt, kafka: KafkaTable, prefix: str) -> list[Check]:
    """Return all comparisons, the coarse ones first."""
    ours, theirs = stored.processor.lane, rebuilt.processor.lane
    checks = [
        _check("executed block", ours.executed_block, theirs.executed_block),
        *_counters(ours.counters, theirs.counters),
        _check("state root", ours.rules.state_root().hex(), theirs.rules.state_root().hex()),
        _check("session, configuration, requests", *(_hash(lane.rules.common_pages()[0]) for lane in (ours, theirs))),
        compare_pages(ours, theirs),
        _waiting(ours, theirs),
    ]
    # the next values are hashed with all counters; the split between duplicates and dead letters must not count
    theirs.counters = replace(ours.counters)
    checks.append(_check("fingerprints of records", *(_hash(lane.own_page()) for lane in (ours, theirs))))
    checks.append(
        _check("receipts of every block", stored.processor.summary().hex(), rebuilt.processor.summary().hex())
    )
    return [*checks, _receipts(rebuilt.receipts, stored, kafka, prefix)]


def _check(what: str, stored: object, rebuilt: object) -> Check:
    return Check(what, str(stored), str(rebuilt), stored == rebuilt)


def _counters(ours: Counters, theirs: Counters) -> Iterator[Check]:
    """Compare the record counts.

    A record that is redelivered after its block is a duplicate within the duplicate window, and after it a late record, so a dead letter.
    Which of the two it was depends on its batch, so only their sum is compared.
    """
    for name in COUNTERS:
        if name not in ("duplicate", "dead"):
            yield _check(name, getattr(ours, name), getattr(theirs, name))
    stored, rebuilt = (f"{each.duplicate} + {each.dead}" for each in (ours, theirs))
    yield Check("duplicate + dead", stored, rebuilt, ours.duplicate + ours.dead == theirs.duplicate + theirs.dead)


def compare_pages(ours: Lane, theirs: Lane) -> Check:
    """Compare the pages of all owners."""
    owners = sorted({*ours.rules.owners(), *theirs.rules.owners()})
    differing: list[ParaId] = []
    counts = [0, 0]
    for owner in owners:
        one, other = ours.rules.page(owner), theirs.rules.page(owner)
        counts[0] += one is not None
        counts[1] += other is not None
        if one != other:
            differing.append(owner)
    return Check(
        "pages of paras",
        f"{counts[0]} pages",
        f"{counts[1]} pages",
        not differing,
        tuple(
            f"para {owner}" if owner < FIRST_OWNER else f"handler state, bucket {owner - FIRST_OWNER}"
            for owner in differing
        ),
    )


def _waiting(ours: Lane, theirs: Lane) -> Check:
    here, there = (
        {(number, *place): item.fingerprint for number, block in lane.waiting() for place, item in block.places.items()}
        for lane in (ours, theirs)
    )
    differing = sorted(place for place in here.keys() | there.keys() if here.get(place) != there.get(place))
    return Check(
        "waiting records",
        f"{len(here)} records",
        f"{len(there)} records",
        not differing,
        tuple(f"{RecordKind(kind).name.lower()} {index} of block {block}" for block, kind, index in differing),
    )


def _receipts(rebuilt: Iterable[Receipt], stored: RestoredState, kafka: KafkaTable, prefix: str) -> Check:
    """Compare the last receipts with those that the job emitted."""
    emitted = _emitted_receipts(kafka, prefix, stored.name)
    compared = roots = 0
    differing = []
    for receipt in rebuilt:
        found = emitted.get(receipt.block)
        if found is not None:
            compared += 1
            roots += receipt.state_root is not None
            expected = receipt._asdict() | {
                "state_root": None if receipt.state_root is None else receipt.state_root.hex()
            }
            if any(found[name] != value for name, value in expected.items() if name != "weight_used"):
                differing.append(f"block {receipt.block}")
    words = f"{compared} compared, {roots} of them with a state root"
    return Check(
        "last receipts on the topic", words, "same" if not differing else "different", not differing, tuple(differing)
    )


def _emitted_receipts(kafka: KafkaTable, prefix: str, lane: str) -> Mapping[int, dict[str, Any]]:
    # twice as many offsets, since each transaction's marker takes one too
    with TopicReader(kafka, prefix, ["receipts"], tail=2 * RECEIPTS_KEPT) as reader:
        records = (to_json("receipts", value) for value in emitted_values(reader, lane))
        return {record["block"]: record for record in records}


def _hash(page: bytes) -> str:
    return blake2b_256(page).hex()
