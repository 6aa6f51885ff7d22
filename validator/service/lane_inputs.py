# SPDX-License-Identifier: Apache-2.0
"""Reads a lane's inputs again, as the job decodes them."""

from __future__ import annotations

from heapq import merge
from typing import TYPE_CHECKING

from validator.codec.decode import decode_record
from validator.core.inputs import DeadLetter, Input, RecordKind, Source
from validator.errors import UserError
from validator.kafka.reader import TopicReader, TopicRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from validator.codec.codec import Codec, RecordChecks
    from validator.kafka.client import KafkaTable


def by_block(streams: Iterable[Iterator[Input | DeadLetter]]) -> Iterator[Input | DeadLetter]:
    """Merge the inputs of several partitions by block: a lane that read one topic before the others would hold all of it in memory."""
    return merge(*streams, key=lambda item: item.block or 0)


class InputPartition:
    """The records of one partition up to an offset that the job has consumed; ``low`` is the first offset that is still there."""

    def __init__(self, kafka: KafkaTable, place: tuple[str, int], end: int) -> None:
        """Raises `UserError` if the topic ends before that offset, or no broker answers."""
        self.topic, self.partition = place
        self.end = end
        self.read = 0
        self._reader = TopicReader(kafka, "", [self.topic], partitions=[self.partition], nulls=True)
        self.low, high = self._reader.spans()[place]
        if high < end:
            raise UserError(
                f"{self.topic}[{self.partition}] ends at offset {high}, but the checkpoint's batch has consumed it up to {end}: "
                "it is not the topic that the job read"
            )
        self.offsets = max(0, end - self.low)

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()

    def inputs(self, codec: Codec, kind: RecordKind, lane: str, records: RecordChecks) -> Iterator[Input | DeadLetter]:
        """Yield a lane's inputs, decoded as the job decodes them."""
        name = lane.encode()
        for _, _, offset, key, value, *_ in self._records():
            # a record of the lane contains its name as plain text, so the others need not be decoded
            if name in value or name == key:
                source = Source(self.topic, self.partition, offset)
                decoded = decode_record(codec, kind, value, source, key, {lane: records})
                if isinstance(decoded, DeadLetter):
                    if decoded.lane == lane:
                        yield decoded
                elif decoded[0] == lane:
                    yield decoded[1]

    def _records(self) -> Iterator[TopicRecord]:
        for record in self._reader.read_to_end() if self.offsets else ():
            if record.offset >= self.end:
                break
            self.read = record.offset + 1 - self.low
            yield record
        self.read = self.offsets  # only transaction markers remain up to the end
