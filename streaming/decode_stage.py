# SPDX-License-Identifier: Apache-2.0
"""The stateless stage: it turns Kafka rows into packed inputs per lane, in parallel over Kafka partitions and slices of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streaming.chunk_files import PassedOn, whole
from streaming.held_inputs import no_memory
from streaming.options import BATCH_BYTES_MAX, CHUNK_BYTES
from streaming.shared_folder import SharedFolder, attempt_with
from streaming.workers import check_plugins, tune_garbage_collector
from validator.codec.arrivals import NO_LANE, arrival, oversized
from validator.codec.dead_letters import fitted
from validator.codec.inflight import Arrival, pack
from validator.codec.orders import LaneOrder
from validator.core.inputs import DeadLetter, Input, RecordKind, Source, Unreadable, Withheld
from validator.core.limits import DEAD_LETTER_END_BYTES, ORDER_BYTES_MAX
from validator.core.types import maker
from validator.lanes.definition import LaneDefinition, job_codec

if TYPE_CHECKING:
    from validator.codec.codec import Codec

_WITH_RAW: Final = (Input, DeadLetter, Unreadable)
_source = maker(Source)

NO_IDS: Final[dict[bytes, bytes]] = {}
"""Without a schema registry."""

_ARROW = pa.schema([
    ("lane", pa.string()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("first_offset", pa.int64()),
    ("end_offset", pa.int64()),
    ("records", pa.int32()),
    ("chunk", pa.binary()),
    ("file", pa.string()),
    ("position", pa.int64()),
    ("size", pa.int64()),
])  # fmt: skip


def decode_stage(
    kinds: Mapping[str, RecordKind],
    definitions: Mapping[str, LaneDefinition],
    lane_bytes_max: int = BATCH_BYTES_MAX,
    ids: Mapping[bytes, bytes] = NO_IDS,
    shared: SharedFolder | None = None,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the stage's function.

    ``kinds`` maps each input topic's full name to its record kind; ``definitions`` has the configured lanes. Records of lanes that are not
    configured, and dead letters that name no lane, go to the lane with the empty name, which has no state. Once a task has more than
    ``lane_bytes_max`` bytes for a lane, it passes on further records without their contents: a batch is bounded in records, and records
    that compress well may be 8 MiB each. ``ids`` has the plain headers of records by Confluent's (`validator.codec.framing`).

    The stage raises `AlreadyFailed`, `UserError` in a worker that does not reach the ``shared`` folder, or whose plugins differ from the
    driver's, and `ReadFailed` in one that has no memory left.
    """

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with attempt_with(shared):
            try:
                yield from decoded(batches)
            except MemoryError:
                raise no_memory() from None

    def decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tune_garbage_collector()
        check_plugins(definitions.values())
        codec = job_codec(definitions.values()).knowing(ids)
        decoder = Decoder(kinds, definitions, codec, lane_bytes_max)
        for batch in batches:
            rows = zip(
                *(batch.column(name).to_pylist() for name in ("topic", "partition", "offset", "key", "value", "size")),
                strict=True,
            )
            for row in rows:
                if (chunk := decoder.add(*row)) is not None:
                    yield chunk
            if (chunk := decoder.take()) is not None:
                yield chunk

    return decode


class Decoder:
    """Decodes what one task reads, and packs it in chunks of about `CHUNK_BYTES`; parameters as of `decode_stage`.

    ``pass_on`` gets each chunk, and returns what goes through Spark.
    """

    def __init__(
        self,
        kinds: Mapping[str, RecordKind],
        definitions: Mapping[str, LaneDefinition],
        codec: Codec,
        lane_bytes_max: int,
        pass_on: Callable[[bytes], PassedOn] = whole,
    ) -> None:
        self._kinds = kinds
        self._codec = codec
        self._lanes = {lane: definition.records for lane, definition in definitions.items()}
        self._bounds = _Bounds(self._lanes, lane_bytes_max)
        self._runs = _Runs(pass_on)

    def add(
        self, topic: str, partition: int, offset: int, key: bytes | None, value: bytes | None, size: int | None
    ) -> pa.RecordBatch | None:
        """Take a record, and return a chunk once there is one; of a value with another ``size`` than ``value``, that is both ends."""
        source = _source((topic, partition, offset))
        if size is not None and value is not None and size > len(value):
            found: tuple[str, Arrival] = oversized(value, size, source, key, self._lanes)
        else:
            found = arrival(self._codec, self._kinds[topic], value, source, key, self._lanes)
        lane, item = found
        runs = self._runs
        runs.add(lane, source, *self._bounds.bounded(lane, item, size))
        return runs.take() if runs.bytes >= CHUNK_BYTES else None

    def take(self) -> pa.RecordBatch | None:
        """Return what has been taken since the last chunk, None if that is nothing."""
        return self._runs.take() if self._runs.bytes else None


class _Bounds:
    """Bounds what one task passes on for each lane."""

    def __init__(self, lanes: Iterable[str], lane_bytes_max: int) -> None:
        self._passed: dict[str, int] = dict.fromkeys((*lanes, NO_LANE), 0)
        self._ordered: dict[str, int] = dict.fromkeys(lanes, 0)
        self._lane_bytes_max = lane_bytes_max

    def bounded(self, lane: str, item: Arrival, size: int | None) -> tuple[Arrival, int]:
        """Return what is passed on of an input whose value has ``size`` bytes, and the bytes of that.

        Orders have their effect when they arrive, so they cannot be read again later; anyone who may write to `blocks` may write them.
        """
        if isinstance(item, LaneOrder):
            self._ordered[lane] += size or 0
            if self._ordered[lane] > ORDER_BYTES_MAX:
                return LaneOrder(lane, frozenset(), item.source), 0
            return item, size or 0
        if self._passed[lane] > self._lane_bytes_max:
            item = without_contents(lane, item)
        raw_bytes = len(item.raw) if isinstance(item, _WITH_RAW) else 0
        self._passed[lane] += raw_bytes
        return item, raw_bytes


def without_contents(lane: str, item: Arrival) -> Arrival:
    """Return what is passed on of an input beyond its lane's bytes: its place, and of what no lane takes both ends."""
    if lane != NO_LANE:
        return Withheld(lane, item.source)
    assert isinstance(item, DeadLetter)
    return fitted(item, 2 * DEAD_LETTER_END_BYTES)


class _Runs:
    """Groups inputs by lane and Kafka partition."""

    def __init__(self, pass_on: Callable[[bytes], PassedOn]) -> None:
        self._pass_on = pass_on
        self._runs: dict[tuple[str, str, int], tuple[int, list[Arrival]]] = {}
        self.bytes = 0

    def add(self, lane: str, source: Source, item: Arrival, size: int) -> None:
        run = self._runs.get((lane, source.topic, source.partition))
        if run is None:
            run = self._runs[lane, source.topic, source.partition] = (source.offset, [])
        run[1].append(item)
        self.bytes += size + 1

    def take(self) -> pa.RecordBatch:
        rows = [
            (*key, first_offset, items[-1].source.offset + 1, len(items), *self._pass_on(pack(items)))
            for key, (first_offset, items) in self._runs.items()
        ]
        self._runs.clear()
        self.bytes = 0
        return pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), _ARROW, strict=True)],
            schema=_ARROW,
        )
