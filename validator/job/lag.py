# SPDX-License-Identifier: Apache-2.0
"""How far each lane is behind its own inputs.

Partitions are shared, so the distance between a lane's marker and the end of a partition says little: it grows for an idle lane with every
record of another one. Here each record beyond a lane's position is counted for the lane that it belongs to, and for no other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from validator.checkpoint.files import consumed_by_batch, last_committed_batch
from validator.checkpoint.markers import read_markers
from validator.codec.decode import decode_record
from validator.codec.orders import decode_order
from validator.core.inputs import DeadLetter, RecordKind, Source
from validator.errors import UserError
from validator.kafka.reader import TopicReader, TopicRecord
from validator.topics import INPUT_TOPICS

if TYPE_CHECKING:
    from pathlib import Path

    from validator.codec.codec import Codec
    from validator.kafka.settings import KafkaTable
    from validator.lanes.marker import Consumed, Marker

LAG_RECORDS_MAX: Final = 1_000_000
"""Records of one partition, of any lane, that are read to count; beyond them, the lag is at least what was counted."""


_NONE: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType({})


NEWEST_RECORDS_MAX: Final = 2_000
"""Last records of each partition of `blocks` among which the newest block of each lane is looked for."""

BLOCKS: Final = "blocks"


class NewestBlock(NamedTuple):
    """The newest block of a lane whose record has arrived, and when, in Unix milliseconds."""

    block: int
    time_ms: int


@dataclass(slots=True)
class Lag:
    """A lane's own records that it has not consumed, and how many of them are blocks; ``complete`` unless there may be more.

    ``order_ms`` is when the last order to the lane among these records was written, in Unix milliseconds.
    """

    records: int = 0
    blocks: int = 0
    complete: bool = True
    order_ms: int | None = None


def lags(
    kafka: KafkaTable,
    prefix: str,
    codec: Codec,
    lanes: Collection[str],
    checkpoint: Path | None = None,
    parked: Mapping[str, Mapping[str, Any]] = _NONE,
) -> dict[str, Lag]:
    """Return the lag of some lanes, and of every lane that has a marker.

    A lane has consumed what its marker says, and what the last complete batch of the job's ``checkpoint`` has, whoever's records those
    are; without a checkpoint more records must be read. A lane of ``parked`` (by lane, its last `LaneParked` record) has not consumed what
    it holds. ``codec`` reads records whose key names no lane. Raises `UserError` if Kafka or a topic is not available.
    """
    markers = {lane: marker for lane, marker in read_markers(kafka, prefix).items() if lane}
    by_job = {} if checkpoint is None else _consumed_by_job(checkpoint)
    found = {lane: Lag() for lane in {*lanes, *markers}}
    with TopicReader(kafka, prefix, list(INPUT_TOPICS)) as reader:
        spans = reader.spans()
    for (topic, partition), (low, end) in spans.items():
        place = (prefix + topic, partition)
        starts = {lane: max(low, _start(markers.get(lane), parked.get(lane), place, by_job)) for lane in found}
        if min(starts.values(), default=end) < end:
            _count(kafka, prefix, codec, (topic, partition), starts, found)
    return found


def newest_blocks(kafka: KafkaTable, prefix: str, codec: Codec) -> dict[str, NewestBlock]:
    """Return, by lane, the newest block among the last records of each partition of `blocks`. Raises `UserError` as `lags` does."""
    found: dict[str, NewestBlock] = {}
    with TopicReader(kafka, prefix, [BLOCKS], tail=NEWEST_RECORDS_MAX) as reader:
        for record in reader.read_to_end():
            source = Source(record.topic, record.partition, record.offset)
            decoded = decode_record(codec, RecordKind.BLOCK, record.value, source, record.key)
            if isinstance(decoded, DeadLetter):
                continue
            lane, item = decoded
            if lane not in found or item.block > found[lane].block:
                found[lane] = NewestBlock(item.block, record.timestamp_ms)
    return found


def _count(
    kafka: KafkaTable,
    prefix: str,
    codec: Codec,
    place: tuple[str, int],
    starts: Mapping[str, int],
    found: Mapping[str, Lag],
) -> None:
    topic, partition = place
    kind = INPUT_TOPICS[topic]
    with TopicReader(kafka, prefix, [topic], partitions=[partition], nulls=True) as reader:
        reader.restart(topic, partition, min(starts.values()))
        for number, record in enumerate(reader.read_to_end()):
            if number == LAG_RECORDS_MAX:
                for lane in found:
                    found[lane].complete = False
                return
            lane = _lane_of(codec, kind, record)
            if lane in found and record.offset >= starts[lane]:
                source = Source(record.topic, record.partition, record.offset)
                found[lane].records += 1
                if kind is RecordKind.BLOCK and decode_order(record.value, source) is not None:
                    found[lane].order_ms = max(record.timestamp_ms, found[lane].order_ms or 0)
                else:
                    found[lane].blocks += kind is RecordKind.BLOCK


def _lane_of(codec: Codec, kind: RecordKind, record: TopicRecord) -> str:
    """Return the lane of a record: its key, or the lane that it names if it has none."""
    if record.key:
        return record.key.decode("utf-8", "replace")
    source = Source(record.topic, record.partition, record.offset)
    decoded = decode_record(codec, kind, record.value, source)
    return decoded.lane if isinstance(decoded, DeadLetter) else decoded[0]


def _start(marker: Marker | None, parked: Mapping[str, Any] | None, place: tuple[str, int], by_job: Consumed) -> int:
    """Return the offset from which on a lane's own records of a partition count."""
    taken = 0 if marker is None else marker.consumed.get(place, 0)
    if parked is None:
        return max(taken, by_job.get(place, 0))
    firsts = (held["first"] for held in parked["held"] if (held["topic"], held["partition"]) == place)
    return next(firsts, taken)


def _consumed_by_job(checkpoint: Path) -> Consumed:
    """Return what the last complete batch has consumed: every lane has emitted what it got of it. Empty if no batch can be read."""
    try:
        return consumed_by_batch(checkpoint, last_committed_batch(checkpoint))
    except (UserError, OSError):  # it may belong to another user
        return {}
