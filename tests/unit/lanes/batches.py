# SPDX-License-Identifier: Apache-2.0
"""Batches of simulated chains, and lanes that process them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from validator_simulators import SimulationSettings

from tests.unit.lanes.backend import Store
from tests.unit.lanes.chains import Record, chain, definition_of, inputs_of
from validator.codec.encode import OutputRecord
from validator.core.inputs import DeadLetter, DeadReason, Input, Source
from validator.lanes.definition import LaneDefinition
from validator.lanes.processor import LaneProcessor
from validator.lanes.store import LaneCache, process_batch, restore_lane

Batch = list[Input | DeadLetter]

CHAIN = chain(SimulationSettings(seed=3, blocks=24, candidates_per_block=6, session_length_blocks=7))
DELAYED = chain(
    SimulationSettings(seed=4, blocks=24, candidates_per_block=6, session_length_blocks=7, enactment="on-inclusion")
)
DEFINITION = definition_of(CHAIN)


def cut(records: Sequence[Record], pieces: int = 9) -> list[Batch]:
    """Split a chain's records into batches with borders inside blocks; each batch gets one dead letter."""
    items = inputs_of(records)
    borders = [len(items) * at // pieces for at in range(pieces + 1)]
    batches: list[Batch] = [items[start:end] for start, end in pairwise(borders)]
    for at, batch in enumerate(batches):
        batch.insert(1, DeadLetter(CHAIN.lane, DeadReason.UNDECODABLE, "made so", Source("x", 0, at), b"\xff"))
    return batches


def run(definition: LaneDefinition, store: Store, cache: LaneCache, batch: Batch) -> list[OutputRecord]:
    attempt = store.attempt()
    outputs = [record for _, records in process_batch(definition, attempt, cache, [batch]) for record in records]
    store.commit(attempt)
    return outputs


def live(definition: LaneDefinition, batches: Sequence[Batch]) -> Iterator[tuple[list[OutputRecord], LaneProcessor]]:
    """Process batches in one lane without interruption; yield each batch's records, and the processor."""
    processor = LaneProcessor.create(definition)
    for batch in batches:
        yield (
            [*(record for _, records in processor.process(batch) for record in records), *processor.status().records],
            processor,
        )


def rebuilt(definition: LaneDefinition, store: Store) -> list[bytes]:
    """Return the snapshot of the lane that a new worker restores from the store."""
    processor = restore_lane(definition, store.attempt())
    assert processor is not None
    return processor.snapshot()
