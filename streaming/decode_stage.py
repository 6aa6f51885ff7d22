# SPDX-License-Identifier: Apache-2.0
"""Decoding: it turns Kafka's records into packed inputs per lane, in parallel over Kafka partitions and slices of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from streaming.chunk_files import PassedOn, whole
from streaming.options import BATCH_BYTES_MAX, CHUNK_BYTES, CHUNK_SCHEMA
from streaming.range_source import packed_chunk
from streaming.workers import check_plugins
from validator.codec.encode import fitted
from validator.codec.inflight import NO_LANE, Arrival, arrival, oversized, pack
from validator.codec.orders import LaneOrder
from validator.core.inputs import DeadLetter, DeadReason, Input, RecordKind, Source, Unreadable, Withheld
from validator.core.limits import DEAD_LETTER_END_BYTES, ORDER_BYTES_MAX
from validator.core.types import maker
from validator.lanes.definition import LaneDefinition, job_codec

if TYPE_CHECKING:
    import pyarrow as pa

    from streaming.range_source import OffsetRange
    from validator.codec.codec import Codec

_WITH_RAW: Final = (Input, DeadLetter, Unreadable)
_source = maker(Source)


@dataclass(frozen=True, slots=True)
class DecodeSettings:
    """What workers need in order to decode the lanes' inputs. ``kinds`` maps each input topic's full name to its record kind.

    Records of lanes that are not configured, and dead letters that name no lane, go to the lane with the empty name, which has no state.
    """

    kinds: Mapping[str, RecordKind]
    definitions: Mapping[str, LaneDefinition]
    ids: Mapping[bytes, bytes] = field(default_factory=dict)
    """The plain headers of records by Confluent's (`validator.codec.framing`)."""
    lane_bytes_max: int = BATCH_BYTES_MAX
    """Bytes of one lane's inputs that a task passes on whole: a batch is bounded in records, and records that compress well may be 8 MiB
    each. Further ones are passed on without their contents."""
    worker_memory_bytes: int | None = None

    def opened(self) -> Callable[..., Decoder]:
        """Check the worker's plugins, and return what begins a task. Raises `UserError` if they differ from the driver's."""
        check_plugins(self.definitions.values())
        codec = job_codec(self.definitions.values()).knowing(self.ids)
        return partial(Decoder, self.kinds, self.definitions, codec, self.lane_bytes_max)


class Decoder:
    """Decodes what one task reads, and packs it in chunks of about `CHUNK_BYTES`; parameters as of `DecodeSettings`.

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

    def pass_over(self, span: OffsetRange) -> None:
        """Take a dead letter for records that no process can unpack."""
        topic, partition, first, end = span
        detail = f"offsets {first} to {end - 1} are a compressed batch that does not fit in a worker's memory once it is decompressed"
        letter = DeadLetter(NO_LANE, DeadReason.LIMIT, detail, _source((topic, partition, first)), b"")
        self._runs.add(NO_LANE, letter.source, letter, 0)

    def take(self) -> pa.RecordBatch | None:
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
        return packed_chunk(CHUNK_SCHEMA, rows)
