# SPDX-License-Identifier: Apache-2.0
"""Reads the inputs of a parked lane again, in the worker that executes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from validator.checkpoint.second_look import PERSON_S, Lack, SecondLook, SeenTwice
from validator.codec.inflight import Arrival, arrival
from validator.core.inputs import Source
from validator.errors import Unavailable, UserError
from validator.kafka.calls import PROGRESS_S_MAX
from validator.kafka.reader import NotUnpacked, TopicReader
from validator.kafka.registry import known_ids
from validator.kafka.settings import SPARING
from validator.kafka.transaction import KafkaGone
from validator.lanes.definition import LaneDefinition, job_codec
from validator.lanes.parked import Partition, Span
from validator.lanes.parking import InputsGone, Suspect
from validator.topics import INPUT_TOPICS

if TYPE_CHECKING:
    from validator.kafka.settings import KafkaTable


class ReadFailed(Exception):
    """Inputs could not be read, of a task or of a lane that continues; the batch is retried."""


@dataclass(frozen=True, slots=True)
class ParkingSettings:
    """What the lane stage needs in order to park lanes, and to let them continue.

    ``suspects`` are lanes at whose point a worker has died too often. ``skipped`` are records that lanes were ordered to skip before they
    were started over, ``parked`` the lanes that were parked then.
    """

    kafka: dict[str, Any] = field(default_factory=dict)
    prefix: str = ""
    suspects: dict[str, Suspect] = field(default_factory=dict)
    skipped: dict[str, frozenset[Source]] = field(default_factory=dict)
    parked: frozenset[str] = frozenset()

    def held_inputs(
        self, definitions: Mapping[str, LaneDefinition], lane: str, place: Partition, span: Span, bytes_max: int
    ) -> tuple[list[Arrival], int]:
        """Return a lane's inputs within a span, as `validator.lanes.parking.HeldInputs` says.

        Raises `InputsGone`, `MemoryError`, `ReadFailed`, and `KafkaGone` if Kafka is away.
        """
        topic, partition = place[0].removeprefix(self.prefix), place[1]
        try:
            return self._read(definitions, lane, (topic, partition), span, bytes_max)
        except Unavailable as error:
            raise KafkaGone(str(error)) from error
        except NotUnpacked as error:
            raise MemoryError from error
        except UserError as error:
            raise ReadFailed(str(error)) from error

    def _lack(self, lane: str, place: Partition, span: Span, kafka: KafkaTable) -> Lack | None:
        """Return whether Kafka no longer has inputs of a span."""
        topic, partition = place
        with TopicReader(kafka, self.prefix, [topic], lane=lane) as reader:
            first, end = reader.spans().get(place, (0, 0))
        where = f"{self.prefix}{topic}[{partition}]"
        if end < span.end:
            return Lack(f"{where} ends at {end}, and held are inputs up to {span.end}")
        if first > span.first:
            return Lack(f"retention removed the held inputs of {where} from {span.first} to {first - 1}")
        return None

    def _read(
        self, definitions: Mapping[str, LaneDefinition], lane: str, place: Partition, span: Span, bytes_max: int
    ) -> tuple[list[Arrival], int]:
        codec = job_codec(definitions.values()).knowing(known_ids(self.kafka) or {})
        lanes = {name: definition.records for name, definition in definitions.items()}
        topic, partition = place
        kind = INPUT_TOPICS.get(topic)
        if kind is None:  # as an order may say
            raise InputsGone(f"{topic} is not an input topic")
        items: list[Arrival] = []
        size = 0
        try:
            SecondLook(self.kafka, PERSON_S).refuse_soon("held inputs", partial(self._lack, lane, place, span))
        except SeenTwice as error:
            raise InputsGone(str(error)) from None
        with TopicReader(self.kafka, self.prefix, [topic], lane=lane, nulls=True, reading=SPARING) as reader:
            reader.restart(topic, partition, span.first)
            for record in reader.read_past_transactions(PROGRESS_S_MAX, {(self.prefix + topic, partition): span.end}):
                if record.offset >= span.end:
                    break
                if size >= bytes_max:
                    return items, record.offset
                source = Source(self.prefix + topic, partition, record.offset)
                # a record without a value is read as an empty one
                named, item = arrival(codec, kind, record.value or None, source, record.key, lanes)
                if named == lane:
                    items.append(item)
                    size += len(record.value)
        return items, span.end
