# SPDX-License-Identifier: Apache-2.0
"""Stored lanes outside Spark: a file that carries them from the process that reads a checkpoint, and a store in memory.

The file begins with `MAGIC`, a version, the batch (u64) and what that batch has consumed. The entries follow, with lanes in any order: each
has a header (`_ENTRY`), the lane's name and the bytes as stored. The last entry is of kind `_END`, and its number is the count of entries
before it. Numbers are little endian. The file lives for one command, so another version is an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from struct import Struct
from typing import BinaryIO

from validator.core.scale import DecodeError, Reader, Writer, decoding
from validator.lanes.marker import Consumed

MAGIC = b"lane state"
VERSION = 1

_ENTRY = Struct("<BHIQ")
"""Kind, size of the lane's name, number (of a slot or a journal entry), size of the data."""
_END = 0xFF


class Part(IntEnum):
    """The variables of a lane's state."""

    HEAD = 0
    SLOT = 1
    JOURNAL = 2


@dataclass(slots=True)
class MemoryState:
    """A lane's state in memory (`validator.lanes.store.StateBackend`)."""

    head: bytes | None = None
    slots: dict[int, bytes] = field(default_factory=dict)
    journal: list[bytes] = field(default_factory=list)

    def load_head(self) -> bytes | None:
        return self.head

    def save_head(self, head: bytes) -> None:
        self.head = head

    def load_slots(self) -> dict[int, bytes]:
        return dict(self.slots)

    def save_slot(self, number: int, data: bytes) -> None:
        self.slots[number] = data

    def remove_slot(self, number: int) -> None:
        del self.slots[number]

    def load_journal(self) -> Iterable[bytes]:
        return list(self.journal)

    def append_journal(self, entry: bytes) -> None:
        self.journal.append(entry)

    def clear_journal(self) -> None:
        self.journal.clear()


def write_header(file: BinaryIO, batch: int, consumed: Consumed) -> None:
    """Write a file's header."""
    out = Writer()
    out.buffer += MAGIC
    out.u8(VERSION)
    out.u64(batch)
    out.compact(len(consumed))
    for (topic, partition), offset in sorted(consumed.items()):
        out.bytes(topic.encode())
        out.u32(partition)
        out.u64(offset)
    file.write(len(out.buffer).to_bytes(4, "little") + out.buffer)


def write_entry(file: BinaryIO, part: Part, lane: str, number: int, data: bytes) -> None:
    """Append an entry."""
    name = lane.encode()
    file.write(_ENTRY.pack(part, len(name), number, len(data)) + name)
    file.write(data)


def write_end(file: BinaryIO, entries: int) -> None:
    """End a file that has ``entries`` entries."""
    file.write(_ENTRY.pack(_END, 0, entries, 0))


class StateExport:
    """Lanes in a file: their names are known at once, each lane is loaded on demand.

    ``batch`` is the batch after which the lanes were exported, ``consumed`` what that batch and all before it have taken, by topic with the
    prefix. Raises `core.scale.DecodeError` if the file is incomplete, `OSError`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: dict[str, list[tuple[Part, int, int, int]]] = {}
        self._size = path.stat().st_size
        with path.open("rb") as file, decoding(str(path)):
            header = Reader(self._read(file, int.from_bytes(file.read(4), "little")))
            if header.take(len(MAGIC)) != MAGIC or header.u8() != VERSION:
                raise DecodeError(f"{path} is not a file of lanes of version {VERSION}")
            self.batch = header.u64()
            places = header.items(lambda: ((header.bytes().decode(), header.u32()), header.u64()))
            self.consumed: dict[tuple[str, int], int] = dict(places)
            header.end()
            entries = 0
            while True:
                kind, name_size, number, size = _read_entry(file)
                if kind == _END:
                    break
                name = self._read(file, name_size).decode()
                if size > self._size - file.tell():
                    raise DecodeError(f"{path} is truncated")
                self._places.setdefault(name, []).append((Part(kind), number, file.tell(), size))
                file.seek(size, 1)
                entries += 1
            if number != entries:
                raise DecodeError(f"{path} has {entries} entries, expected {number}")

    def _read(self, file: BinaryIO, size: int) -> bytes:
        if size > self._size - file.tell():
            raise DecodeError(f"{self._path} is truncated")
        return file.read(size)

    @property
    def lanes(self) -> list[str]:
        """The lanes that have a head, ascending."""
        return sorted(name for name, places in self._places.items() if any(place[0] == Part.HEAD for place in places))

    def load(self, lane: str) -> MemoryState:
        """Return a lane as stored; empty if the file does not have it."""
        stored = MemoryState()
        journal: dict[int, bytes] = {}
        with self._path.open("rb") as file:
            for part, number, position, size in self._places.get(lane, ()):
                file.seek(position)
                data = file.read(size)
                match part:
                    case Part.HEAD:
                        stored.head = data
                    case Part.SLOT:
                        stored.slots[number] = data
                    case Part.JOURNAL:
                        journal[number] = data
        stored.journal = [journal[number] for number in sorted(journal)]
        return stored


def _read_entry(file: BinaryIO) -> tuple[int, int, int, int]:
    header = file.read(_ENTRY.size)
    if len(header) < _ENTRY.size:
        raise DecodeError("a file of lanes is truncated")
    kind, name_size, number, size = _ENTRY.unpack(header)
    return kind, name_size, number, size
