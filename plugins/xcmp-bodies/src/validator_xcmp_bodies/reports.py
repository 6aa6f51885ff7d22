# SPDX-License-Identifier: Apache-2.0
"""Reports of held bodies to the relay chain, for whoever produces its blocks.

Each held record becomes one `report_body` request of one block. The stored position says which records that block has: asked again for the
same block, it gets the same reports, byte for byte. So a producer that is killed at any point starts the block over, and what it has
submitted already counts as a duplicate.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from validator.cli.command_api import TopicReader, UserError
from validator.plugin.protocol_api import BlockNumber
from validator_xcmp_bodies import records
from validator_xcmp_bodies.outcomes import Held

Offsets = dict[int, int]
"""By partition of `xcmp.bodies.held`, the offset after the last record that has been taken."""


@dataclass(frozen=True, slots=True)
class ReportProgress:
    """The reports of one block: those of the records from ``begin`` to before ``end``.

    ``requests`` is what the block's record announces: the ``first_index`` other requests before the reports, and the reports.
    """

    lane: str
    block: BlockNumber
    first_index: int
    requests: int
    begin: Offsets = field(default_factory=dict)
    end: Offsets = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Return what a file holds, or None if there is no file. Raises `UserError`."""
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: cannot be read: {error}") from error
        try:
            found: dict[str, Any] = json.loads(text)
            begin, end = ({int(number): int(at) for number, at in found.pop(name).items()} for name in ("begin", "end"))
            lane = str(found.pop("lane"))
            return cls(lane, begin=begin, end=end, **{name: int(value) for name, value in found.items()})
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(f"{path}: expected a position that `validator messages reports` wrote ({error})") from None

    def write(self, path: Path) -> None:
        """Replace a file in one step. Raises `UserError`."""
        new = path.with_name(f"{path.name}.new")
        try:
            new.write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")
            new.replace(path)
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {error}") from error


@dataclass(frozen=True, slots=True)
class Wish:
    """A block's reports as they are asked for; ``reports_max`` bounds their number."""

    lane: str
    block: BlockNumber
    first_index: int
    reports_max: int

    def range(self, last: ReportProgress | None) -> tuple[Offsets, Offsets | None]:
        """Return where the block's records begin, and where they end if that is decided already.

        Raises `UserError` for another chain, an earlier block, and the same block with another first index.
        """
        if last is None:
            return {}, None
        if last.lane != self.lane:
            raise UserError(f"--position: it belongs to chain {last.lane}, not {self.lane}")
        if self.block > last.block:
            return last.end, None
        if self.block < last.block:
            raise UserError(f"--block: the reports up to block {last.block} are made, found {self.block}")
        if self.first_index != last.first_index:
            raise UserError(
                f"--first-index: the reports of block {self.block} begin at {last.first_index}, found {self.first_index}"
            )
        return last.begin, last.end


def lines(wish: Wish, held: Iterable[Held]) -> Iterator[str]:
    """Yield the reports as lines for `validator submit channel-requests`."""
    for index, each in enumerate(held, start=wish.first_index):
        report = {
            "lane": wish.lane,
            "block": wish.block,
            "index": index,
            "kind": "report_body",
            "recipient": each.recipient,
            "sender": each.sender,
            "sent_at": each.sent_at,
            "root": f"0x{each.root.hex()}",
            "size": each.size,
        }
        yield json.dumps(report) + "\n"


def make(wish: Wish, last: ReportProgress | None, reader: TopicReader) -> tuple[list[str], ReportProgress]:
    """Return a block's reports as lines, and the position after them: store it before the lines go anywhere. Raises `UserError`."""
    begin, end = wish.range(last)
    held = _Held(wish, reader, begin, end)
    found = list(lines(wish, held))
    return found, ReportProgress(
        wish.lane, wish.block, wish.first_index, wish.first_index + len(found), begin, held.reached
    )


class RecordsRemoved(UserError):
    """Kafka does not have the records at the position. Print it only if that is so twice: a broker may be wrong for a moment."""


class _Held:
    """The chain's held records of a range, by partition and offset; ``reached`` is where the range ends as far as it is read."""

    def __init__(self, wish: Wish, reader: TopicReader, begin: Offsets, end: Offsets | None) -> None:
        self._wish, self._reader, self._end = wish, reader, end
        self._left = wish.reports_max
        self._begin = begin
        self.reached = dict(begin) if end is None else dict(end)

    def __iter__(self) -> Iterator[Held]:
        for (topic, partition), (low, _) in sorted(self._reader.spans().items()):
            at = self._begin.get(partition, low)
            if at < low:
                raise RecordsRemoved(
                    f"{topic} {partition}: retention has removed the records from {at} to {low - 1}: remove the file of --position "
                    "to begin with the earliest that is left"
                )
            self._reader.restart(records.HELD, partition, at)
            yield from self._until_end(partition) if self._end is None else self._until(self._end.get(partition, at))

    def _until_end(self, partition: int) -> Iterator[Held]:
        for record in self._reader.read_to_end():
            lane, held = records.decode_held(record.value)
            if lane == self._wish.lane:
                if self._left == 0:
                    return
                self._left -= 1
                yield held
            self.reached[partition] = record.offset + 1
        end = self._reader.end_of(records.HELD, partition)  # beyond the last record, if that ends a transaction
        self.reached[partition] = max(self.reached.get(partition, 0), end)

    def _until(self, end: int) -> Iterator[Held]:
        for record in self._reader.read_to_end():
            if record.offset >= end:
                return
            lane, held = records.decode_held(record.value)
            if lane == self._wish.lane:
                yield held
