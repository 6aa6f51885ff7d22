# SPDX-License-Identifier: Apache-2.0
"""Batches of simulated chains, and lanes that are played from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tests.unit.lanes.backend import Store
from tests.unit.lanes.chains import Record, chain, definition_of, inputs_of
from validator.codec.encode import OutputRecord
from validator.core.inputs import DeadLetter, DeadReason, Input, Source
from validator.lanes.definition import LaneDefinition
from validator.lanes.processor import LaneProcessor
from validator.lanes.store import LaneCache, process_batch, restore_lane
from validator.simulate import SimulationSettings

Batch = list[Input | DeadLetter]

CHAIN = chain(SimulationSettings(seed=3, blocks=24, candidates_per_block=6, session_length_blocks=7))
DELAYED = chain(
    SimulationSettings(seed=4, blocks=24, candidates_per_block=6, session_length_blocks=7, enactment="on-inclusion")
)
DEFINITION = definition_of(CHAIN)


def cut(records: Sequence[Record], pieces: int = 9) -> list[Batch]:
    """Cut a chain's records so that borders fall inside blocks, with a record dead on arrival in each piece."""
    items = inputs_of(records)
    borders = [len(items) * at // pieces for at in range(pieces + 1)]
    batches: list[Batch] = [items[start:end] for start, end in pairwise(borders)]
    for at, batch in enumerate(batches):
        batch.insert(1, DeadLetter(CHAIN.lane, DeadReason.UNDECODABLE, "made so", Source("x", 0, at), b"\xff"))
    return batches


def run(definition: LaneDefinition, store: Store, cache: LaneCache, batch: Batch) -> list[OutputRecord]:
    attempt = store.attempt()
    told = [record for _, records in process_batch(definition, attempt, cache, batch) for record in records]
    store.commit(attempt)
    return told


def live(definition: LaneDefinition, batches: Sequence[Batch]) -> Iterator[tuple[list[OutputRecord], LaneProcessor]]:
    """Play batches through one lane that nothing ever happens to."""
    worker = LaneProcessor.create(definition)
    for batch in batches:
        yield (
            [*(record for _, records in worker.process(batch) for record in records), *worker.status().records],
            worker,
        )


def rebuilt(definition: LaneDefinition, store: Store) -> list[bytes]:
    """Return the snapshot of the lane that a worker without it makes from the store."""
    worker = restore_lane(definition, store.attempt())
    assert worker is not None
    return worker.snapshot()
