# SPDX-License-Identifier: Apache-2.0
"""The stateful stage: one relay chain's inputs in, what its blocks tell out, in order."""

from __future__ import annotations

import json
import marshal
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import pandas as pd
from pyspark import SparkContext, SparkFiles
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from streaming.options import CHUNK_BYTES
from streaming.workers import bound_worker, check_plugins, tune_garbage_collector
from validator.codec.encode import BlockOutput, OutputRecord, encode_dead_letter
from validator.codec.inflight import unpack
from validator.core.inputs import DeadLetter, Input
from validator.errors import UserError
from validator.lanes.definition import LaneDefinition
from validator.lanes.genesis import keep_genesis, read_genesis
from validator.lanes.marker import Consumed, consumed_by
from validator.lanes.store import LaneCache, Recovery, process_batch

OUTPUT_SCHEMA = "lane string, told binary, consumed binary"
"""One row is a run of what one lane told, in order (`pack_told`). A lane's last row of a batch says up to where the batch took inputs
(`pack_consumed`); in the others that is null."""


def _log_recovery(recovery: Recovery) -> None:
    """Write a line to the worker's standard error, which is the job's `logs/spark-output.log`."""
    sys.stderr.write(json.dumps({"event": "recovered", **recovery._asdict()}) + "\n")
    sys.stderr.flush()


CACHE = LaneCache(_log_recovery)
"""The live lanes of this worker. A module's own object: what is pickled with the plan, or lives in ``__main__``, is new in every task."""


def pack_told(told: list[BlockOutput]) -> bytes:
    """Return what a lane told as bytes for the next stage of the same batch (`validator.codec.inflight` says why marshal)."""
    return marshal.dumps([(block, [tuple(record) for record in records]) for block, records in told])


def unpack_told(packed: bytes) -> list[BlockOutput]:
    """Return what was given to `pack_told`."""
    plain = marshal.loads(packed)  # noqa: S302 - made by the stage before, see `pack_told`
    return [BlockOutput(block, list(map(OutputRecord._make, records))) for block, records in plain]


def pack_consumed(consumed: Consumed) -> bytes:
    """Return offsets as bytes for the next stage."""
    return marshal.dumps(list(consumed.items()))


def unpack_consumed(packed: bytes) -> dict[tuple[str, int], int]:
    """Return what was given to `pack_consumed`."""
    return dict(marshal.loads(packed))  # noqa: S302 - as above


class SparkState:
    """A lane's state in Spark's store (`validator.lanes.store.StateBackend`); every call is a round trip of about a millisecond."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._head = handle.getValueState("head", "head binary")
        self._slots = handle.getMapState("slots", "slot int", "pages binary")
        self._journal = handle.getListState("journal", "entry binary")

    def load_head(self) -> bytes | None:
        """Return the head, or None where the lane is new."""
        row = self._head.get()
        return None if row is None else bytes(row[0])

    def save_head(self, head: bytes) -> None:
        """Replace the head."""
        self._head.update((head,))

    def load_slots(self) -> dict[int, bytes]:
        """Return every slot."""
        return {number: bytes(pages) for (number,), (pages,) in self._slots.iterator()}

    def save_slot(self, number: int, data: bytes) -> None:
        """Write a slot."""
        self._slots.updateValue((number,), (data,))

    def remove_slot(self, number: int) -> None:
        """Remove a slot that is there."""
        self._slots.removeKey((number,))

    def load_journal(self) -> Iterator[bytes]:
        """Return the journal's entries in order."""
        return (bytes(row[0]) for row in self._journal.get())

    def append_journal(self, entry: bytes) -> None:
        """Append an entry to the journal."""
        self._journal.appendValue((entry,))

    def clear_journal(self) -> None:
        """Remove every entry."""
        self._journal.clear()


@dataclass(frozen=True, slots=True)
class ShippedGenesis:
    """A lane's genesis as a file that Spark brings to the workers: in the plan it would travel with every task."""

    file: str

    def __iter__(self) -> Iterator[bytes]:
        return iter(read_genesis(Path(SparkFiles.get(self.file)))[1])


def shipped(context: SparkContext, definition: LaneDefinition, folder: Path) -> LaneDefinition:
    """Return a definition as it travels with the plan; its genesis is kept in a folder of the driver."""
    path = definition.genesis_path(folder)
    if not path.exists():
        keep_genesis(path, (definition.first_block, tuple(definition.genesis)))
    context.addFile(str(path))
    return replace(definition, genesis=ShippedGenesis(path.name))


class LaneOperator(StatefulProcessor):
    """Executes lanes block by block; keyed by lane."""

    def __init__(self, definitions: dict[str, LaneDefinition], worker_memory_bytes: int | None = None) -> None:
        self._definitions = definitions
        self._worker_memory_bytes = worker_memory_bytes

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state.

        Spark calls this once beside the workers, too, to learn which variables there are: in a process without the artefacts. So plugins
        are looked at when there are rows.
        """
        self._state = SparkState(handle)

    def handleInputRows(  # type: ignore[override]  # noqa: N802 - the pandas form, of the two that the base class allows
        self,
        key: tuple[str],
        rows: Iterator[pd.DataFrame],
        timerValues: object,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        """Process one lane's chunks of one batch: in order of topic, partition and offset, since a shuffle keeps none.

        Frames rather than rows: Spark hands each frame on when it is yielded, but all of a key's rows at once, and so the next stage writes
        the first blocks while this one executes the next.
        """
        tune_garbage_collector()
        check_plugins(self._definitions.values())
        if self._worker_memory_bytes is not None:  # else this is no process of its own
            bound_worker(self._worker_memory_bytes)
        lane = key[0]
        chunks = sorted(
            (topic, partition, first_offset, chunk)
            for frame in rows
            for topic, partition, first_offset, chunk in zip(
                frame["topic"], frame["partition"], frame["first_offset"], frame["chunk"], strict=True
            )
        )
        items = list(chain.from_iterable(unpack(chunk) for *_, chunk in chunks))
        del chunks
        definition = self._definitions.get(lane)
        told = _bury(items) if definition is None else process_batch(definition, self._state, CACHE, items)
        return _packed(lane, _within_memory(lane, told), consumed_by(items))

    def close(self) -> None:
        """Leave the cache: the worker lives on."""


def _bury(items: Iterable[Input | DeadLetter]) -> Iterator[BlockOutput]:
    """Tell the dead letters that belong to no configured lane."""
    yield BlockOutput(None, [encode_dead_letter(item) for item in items if isinstance(item, DeadLetter)])


def _within_memory(lane: str, told: Iterator[BlockOutput]) -> Iterator[BlockOutput]:
    """Say what to do where a lane, not a handler of it, has used up the worker's memory."""
    try:
        yield from told
    except MemoryError:
        raise UserError(f"lane {lane}: its worker has used up its memory: raise [job] worker_memory") from None


def _packed(lane: str, told: Iterator[BlockOutput], consumed: Consumed) -> Iterator[pd.DataFrame]:
    run: list[BlockOutput] = []
    size = 0
    for each in told:
        run.append(each)
        size += sum(len(record.value) for record in each.records)
        if size >= CHUNK_BYTES:
            yield _frame(lane, run, None)
            run, size = [], 0
    yield _frame(lane, run, pack_consumed(consumed))


def _frame(lane: str, run: list[BlockOutput], consumed: bytes | None) -> pd.DataFrame:
    return pd.DataFrame({"lane": [lane], "told": [pack_told(run)], "consumed": [consumed]})
