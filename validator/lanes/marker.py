# SPDX-License-Identifier: Apache-2.0
"""How far a lane's output has been committed, and hence which part of a repeated batch is still to be emitted.

A marker is bound to the lane, its last emitted block and the inputs it has taken, never to a batch. So it holds for a repeated batch, for a
batch with other borders, and for a lane that is executed again from its first block because its checkpoint is gone.

A block's output has been emitted completely or not at all, so its number decides. Dead letters belong to no block. A record that is dead by
itself (it cannot be decoded) has been emitted if it has been taken. A record may also be dead because of other records (it is late, or its
place is taken). Such a record may have been taken when it still waited, if the lane reached this point before with batches cut elsewhere.
So for those the topic of dead letters is read.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, TypeAlias

from validator.codec.encode import OutputRecord, reason_of, source_header, source_of, write
from validator.codec.inflight import Arrival
from validator.codec.json_form import to_json
from validator.codec.schemas import schemas
from validator.core.inputs import DeadLetter, Input
from validator.core.types import BlockNumber
from validator.errors import UserError
from validator.topics import DEAD_LETTERS, MARKERS

Consumed: TypeAlias = Mapping[tuple[str, int], int]
"""By topic and partition, the offset after the last record taken."""

NOTHING: Final[Consumed] = MappingProxyType({})


class MarkerBehind(Exception):
    """Kafka shows a marker that is behind what was committed with a later one: it does not show all that it has."""


class ForeignMarker(UserError):
    """Kafka shows a marker that the lane did not write."""


@dataclass(frozen=True, slots=True)
class Marker:
    """``block`` is None if no block has been emitted.

    A ``doubtful`` marker takes the place of one that the lane did not write (`corrected`): nobody knows what the lane had taken before.
    """

    block: BlockNumber | None = None
    consumed: Consumed = field(default_factory=dict)
    doubtful: bool = False

    def has_written(self, block: BlockNumber) -> bool:
        """Return whether a block's output has been emitted; otherwise none of it has."""
        return self.block is not None and block <= self.block

    def unwritten(
        self, records: list[OutputRecord], dead_letters: Callable[[], Container[bytes]]
    ) -> list[OutputRecord]:
        """Return the records that belong to no block and are still to be emitted.

        ``dead_letters`` returns the sources (`codec.encode.source_header`) of the lane's dead letters on their topic; it is called only if
        the marker cannot decide. The lane's status is emitted with anything else (`is_news`).
        """
        return [
            record for record in records if record.topic != DEAD_LETTERS or not self._has_taken(record, dead_letters)
        ]

    def is_news(self, consumed: Consumed) -> bool:
        """Return whether a batch that took inputs up to ``consumed`` took any that the marker does not cover."""
        return any(offset > self.consumed.get(place, 0) for place, offset in consumed.items())

    def check_not_behind(self, block: BlockNumber | None) -> None:
        """Raise `MarkerBehind` if a block was committed that the marker does not have."""
        if block is not None and not self.has_written(block):
            raise MarkerBehind(f"at {_at(self.block)}, but block {block} is committed")

    def check_own(self, receipt: BlockNumber | None, ends: Consumed) -> None:
        """Compare the marker with the block of the lane's last receipt, and with the ends of the inputs.

        Receipts are emitted in the marker's own transaction. Raises `MarkerBehind`, `ForeignMarker`.
        """
        self.check_not_behind(receipt)
        if self.block != receipt:
            raise ForeignMarker(f"{_FOREIGN}: it is at {_at(self.block)}, but the last receipt is of {_at(receipt)}")
        for (topic, partition), offset in sorted(self.consumed.items()):
            if offset > (end := ends.get((topic, partition), 0)):
                raise ForeignMarker(
                    f"{_FOREIGN}: it has taken {topic}[{partition}] up to {offset}, which ends at {end}"
                )

    @classmethod
    def corrected(cls, receipt: BlockNumber | None) -> Marker:
        """Return what takes the place of a marker that the lane did not write."""
        return cls(receipt, {}, doubtful=True)

    def after(self, block: BlockNumber | None, consumed: Consumed) -> Marker:
        """Return the marker once blocks up to ``block`` and inputs up to ``consumed`` are committed; it never goes back."""
        last = block if self.block is None else self.block if block is None else max(self.block, block)
        places = {place: max(offset, self.consumed.get(place, 0)) for place, offset in consumed.items()}
        return replace(self, block=last, consumed={**self.consumed, **places})

    @classmethod
    def merged(cls, values: Iterable[bytes]) -> Marker:
        """Return the marker that a lane's last records say together, one record for each partition. Raises `UserError`.

        They are several once partitions were added to the topic: the lane's next records are in another one, and which was written last
        does not matter, since a marker never goes back. A record without a value takes away those before it in its partition only: Kafka
        removes it after a while, and then a marker elsewhere would come back.
        """
        whole = cls()
        for marker in (cls.decode(value) for value in values if value):
            whole = whole.after(marker.block, marker.consumed)
        return whole

    def encode(self, lane: str) -> OutputRecord:
        places = sorted(self.consumed.items())
        datum = {
            "lane": lane,
            "block": self.block,
            "consumed": [
                {"topic": topic, "partition": partition, "offset": offset} for (topic, partition), offset in places
            ],
        }
        return OutputRecord(MARKERS, lane.encode(), write(schemas()["validator.Marker"], datum))

    @classmethod
    def decode(cls, value: bytes) -> Marker:
        """Return the marker that a record of the `markers` topic holds. Raises `UserError`."""
        datum = to_json(MARKERS, value)
        return cls(
            datum["block"],
            {(place["topic"], place["partition"]): place["offset"] for place in datum["consumed"]},
        )

    def _has_taken(self, dead_letter: OutputRecord, dead_letters: Callable[[], Container[bytes]]) -> bool:
        source = source_of(dead_letter)
        if self.doubtful:
            return source_header(source) in dead_letters()
        if source.offset >= self.consumed.get((source.topic, source.partition), 0):
            return False
        return reason_of(dead_letter).is_of_record or source_header(source) in dead_letters()


_FOREIGN: Final = f"its marker on the topic {MARKERS} was not written by this lane"


def _at(block: BlockNumber | None) -> str:
    return "no block" if block is None else f"block {block}"


def consumed_by(items: Iterable[Arrival], before: Consumed = NOTHING) -> dict[tuple[str, int], int]:
    """Return, by topic and partition, the offset after the last of some records, and of those that were consumed ``before``."""
    consumed = dict(before)
    for item in items:
        topic, partition, offset = item.source
        place = (topic, partition)
        if offset >= consumed.get(place, 0):
            consumed[place] = offset + 1
    return consumed


def has_taken(consumed: Consumed, item: Input | DeadLetter) -> bool:
    """Return whether a lane that has consumed its partitions this far has taken a record."""
    topic, partition, offset = item.source
    return offset < consumed.get((topic, partition), 0)
