# SPDX-License-Identifier: Apache-2.0
"""Blocks that are kept, with the storage that was read after them, and a chain that asks nodes only for what is missing.

Blocks that were fetched before are in files: a range of blocks is an Avro container of `KeptBlock` records in the order of the chain. A
file is written whole and never changed, so ranges may be fetched in any order and by several processes. What a lane later asks about a
kept block and nobody had fetched is asked of a node, and added to `LATER`: whoever follows the same blocks again needs no node.
"""

from __future__ import annotations

import json
import os
import re
import threading
import zlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import fastavro

from validator_relay_chain import keys
from validator_relay_chain.block import RawBlock
from validator_relay_chain.errors import BadAnswer, FollowError
from validator_relay_chain.header import Header, from_hex, to_hex
from validator_relay_chain.limits import BLOCKS_PER_RANGE, KEPT_COMPRESSION, KEPT_NUMBERS_MAX, RANGES_IN_MEMORY
from validator_relay_chain.source import Chain, Version
from validator_relay_chain.storage import Value


@dataclass(slots=True)
class Kept:
    """A block with what is known of the storage after it."""

    raw: RawBlock
    version: Version | None = None
    """Of the runtime in the state after the block."""
    values: dict[bytes, Value] = field(default_factory=dict)
    proofs: dict[bytes, bool] = field(default_factory=dict)
    """By key of a value, whether it is proven; False if no node gave a proof when one was asked for."""
    keys: dict[bytes, list[bytes]] = field(default_factory=dict)
    """By prefix, all keys of a storage item."""

    def to_record(self) -> dict[str, Any]:
        """Return the record of the block."""
        assert self.version is not None
        return {
            "header": self.raw.header.encode(),
            "extrinsics": self.raw.extrinsics,
            "events": self.raw.events,
            "are_events_proven": self.raw.are_events_proven,
            "spec_name": self.version.spec_name,
            "spec_version": self.version.spec_version,
            "extrinsics_version": self.version.extrinsics_version,
            "values": [
                {"key": key, "value": self.values[key], "proof": _PROOFS[self.proofs.get(key)]}
                for key in sorted(self.values)
            ],
            "keys": [{"prefix": prefix, "keys": self.keys[prefix]} for prefix in sorted(self.keys)],
        }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Kept:
        """Return the block of a record. Raises `BadAnswer` for bytes that are no header."""
        raw = RawBlock(
            Header.decode(record["header"]),
            tuple(record["extrinsics"]),
            record["events"],
            record["are_events_proven"],
        )
        values = record["values"]
        return cls(
            raw,
            Version(record["spec_name"], record["spec_version"], record["extrinsics_version"]),
            {each["key"]: each["value"] for each in values},
            {each["key"]: each["proof"] == "PROVEN" for each in values if each["proof"] != "NOT_ASKED"},
            {each["prefix"]: each["keys"] for each in record["keys"]},
        )


_PROOFS: Final = {None: "NOT_ASKED", True: "PROVEN", False: "NOT_OFFERED"}


class Blocks:
    """The blocks that a `KeptChain` need not ask a node for, in memory; `Archive` also has those of files."""

    def __init__(self) -> None:
        self.kept: dict[bytes, Kept] = {}

    def find(self, block_hash: bytes) -> Kept | None:
        """Return a block, or None."""
        return self.kept.get(block_hash)

    def hashes(self, numbers: Sequence[int]) -> list[bytes] | None:
        """Return the hashes of blocks, or None unless all are in files."""

    def last_after(self, number: int) -> Header | None:
        """Return the header of the last block of those in files that follow a block without a gap, or None."""

    def path_of(self, number: int) -> Path | None:
        """Return the file that a block is in, or None."""

    def header(self, block_hash: bytes) -> Header | None:
        """Return the header of a block, which need not be kept itself, or None."""
        kept = self.find(block_hash)
        return None if kept is None else kept.raw.header

    def version(self, block_hash: bytes) -> Version | None:
        """Return the version of the runtime in the state after a block, which need not be kept itself, or None."""
        kept = self.find(block_hash)
        return None if kept is None else kept.version

    def add(self, raw: RawBlock) -> None:
        """Take a block that a node gave."""
        self.kept[raw.header.hash] = Kept(raw)

    def add_header(self, header: Header) -> None:
        """Take a header that a node gave."""

    def note(self, kept: Kept, answer: Mapping[str, Any]) -> None:
        """Write down an answer in JSON by which a block has grown."""


class KeptChain(Chain):
    """A chain of which some blocks are kept: nodes are asked only for what is missing, and what they answer is added."""

    def __init__(self, *given: Any, blocks: Blocks, **named: Any) -> None:
        super().__init__(*given, **named)
        self.blocks = blocks

    def kept_after(self, number: int) -> Header | None:
        """Return the last header of the blocks after ``number`` that no node is needed for, or None."""
        return self.blocks.last_after(number)

    def kept_in(self, number: int) -> Path | None:
        """Return the file that has a block, or None."""
        return self.blocks.path_of(number)

    def hashes_at(self, numbers: Sequence[int]) -> list[bytes] | None:
        """Return the hashes of blocks; None if no node answers for several blocks at once."""
        return self.blocks.hashes(numbers) or super().hashes_at(numbers)

    def header(self, block_hash: bytes) -> Header:
        """Return the header with a hash."""
        found = self.blocks.header(block_hash)
        if found is None:
            found = super().header(block_hash)
            self.blocks.add_header(found)
        return found

    def block(self, block_hash: bytes) -> RawBlock:
        """Return the block with a hash, and its events."""
        kept = self.blocks.find(block_hash)
        if kept is not None:
            self._note(kept.raw.header)
            return kept.raw
        raw = super().block(block_hash)
        self.blocks.add(raw)
        return raw

    def value(self, key: bytes, block_hash: bytes) -> Value:
        """Return a value after a block, or None if there is none."""
        if self.blocks.find(block_hash) is None:
            return super().value(key, block_hash)
        return self.values([key], block_hash)[key]

    def values(self, wanted: Sequence[bytes], block_hash: bytes) -> dict[bytes, Value]:
        """Return values after a block, by key; None where there is none."""
        kept = self.blocks.find(block_hash)
        if kept is None:
            return super().values(wanted, block_hash)
        missing = [key for key in wanted if key not in kept.values]
        if missing:
            found = super().values(missing, block_hash)
            kept.values.update(found)
            self.blocks.note(kept, {"values": {to_hex(key): _hex(value) for key, value in found.items()}})
        return {key: kept.values[key] for key in wanted}

    def keys_of(self, prefix: bytes, block_hash: bytes) -> Iterator[list[bytes]]:
        """Yield the keys of a storage item after a block, ascending: all at once of a block that is kept."""
        kept = self.blocks.find(block_hash)
        if kept is None:
            yield from super().keys_of(prefix, block_hash)
            return
        if prefix not in kept.keys:
            found = [key for page in super().keys_of(prefix, block_hash) for key in page]
            kept.keys[prefix] = found
            self.blocks.note(kept, {"prefix": to_hex(prefix), "keys": [to_hex(key) for key in found]})
        yield kept.keys[prefix]

    def proven(self, wanted: Sequence[bytes], header: Header) -> dict[bytes, Value] | None:
        """Return values after a block as its state root proves them; None if no node gives proofs."""
        kept = self.blocks.find(header.hash)
        if kept is None:
            return super().proven(wanted, header)
        if list(wanted) == [keys.SYSTEM_EVENTS] and kept.raw.are_events_proven:
            return {keys.SYSTEM_EVENTS: kept.raw.events}
        if all(key in kept.proofs for key in wanted):
            are_proven = all(kept.proofs[key] for key in wanted)
            return {key: kept.values[key] for key in wanted} if are_proven else None
        found = super().proven(wanted, header)
        known = {key: kept.values[key] for key in wanted if key in kept.values} if found is None else found
        kept.values.update(known)
        kept.proofs.update(dict.fromkeys(known, found is not None))
        self.blocks.note(
            kept, {"proven": found is not None, "values": {to_hex(key): _hex(known[key]) for key in known}}
        )
        return found

    def version(self, block_hash: bytes) -> Version:
        """Return the version of the runtime in the state after a block: it executes the next one."""
        return self.blocks.version(block_hash) or super().version(block_hash)


def _hex(value: Value) -> str | None:
    return None if value is None else to_hex(value)


SCHEMA: Final = "validator.relay_chain.KeptBlock"
LATER: Final = "later.jsonl"
"""Answers about kept blocks that were not fetched with them, one a line; an unfinished last line is none."""
GENESIS: Final = "validator.genesis"
PARENT: Final = "validator.parent"
LAST: Final = "validator.last"
RUNTIME: Final = "validator.runtime"
"""Keys of a file's metadata: the hashes of block 0, of the block before the first one, and of the last one; and the runtime of the first
one, as JSON."""
SYNC_BYTES: Final = 16
SYNC_INTERVAL_BYTES: Final = 256 * 1024
"""Bytes of records that are compressed together."""
_NAME: Final = re.compile(r"([0-9]{1,10})-([0-9]{1,10})\.avro")


class Range(NamedTuple):
    """Blocks of a file, both ends included."""

    first: int
    last: int

    @property
    def name(self) -> str:
        """The name of the file, so that files sort as their blocks do."""
        return f"{self.first:010}-{self.last:010}.avro"

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return self.last - self.first + 1


class Archive(Blocks):
    """The blocks of a folder, which may grow while it is read. Any thread may use it. Raises `FollowError` for a file that is damaged."""

    def __init__(self, folder: Path, genesis: bytes) -> None:
        super().__init__()
        self._folder, self._genesis = folder, genesis
        self._lock = threading.Lock()
        self._ranges: list[Range] = []
        self._loaded: OrderedDict[Range, dict[int, Kept]] = OrderedDict()
        self._numbers: OrderedDict[bytes, int] = OrderedDict()
        """Of blocks that were in memory and their parents, by hash."""
        self._later: dict[bytes, list[Mapping[str, Any]]] = {}
        self._ends_whole = False
        """Whether it is known that `LATER` ends with a whole line."""
        self._headers: dict[bytes, Header] = {}
        self._versions: dict[bytes, Version] = {}
        """Of the runtimes after the blocks before the first ones of files, by hash."""
        self._read_later()

    def at(self, number: int) -> Kept | None:
        """Return a block by its number, or None."""
        with self._lock:
            return self._at(number)

    def path_of(self, number: int) -> Path | None:
        """Return the file that a block is in, or None."""
        with self._lock:
            found = self._range_of(number)
        return None if found is None else self._folder / found.name

    def last_after(self, number: int) -> Header | None:
        """Return the header of the last block of those that follow a block without a gap, as the folder is by now, or None."""
        last = None
        with self._lock:
            self._ranges = ranges_of(self._folder)
            for each in self._ranges:
                if each.first <= number + 1 <= each.last:
                    last = number = each.last
            kept = None if last is None else self._at(last)
        return None if kept is None else kept.raw.header

    def hashes(self, numbers: Sequence[int]) -> list[bytes] | None:
        """Return the hashes of blocks, as the folder is by now, or None unless all are kept."""
        with self._lock:
            if not all(map(self._range_of, numbers)):
                self._ranges = ranges_of(self._folder)
            found = [self._at(number) for number in numbers]
        return None if None in found else [each.raw.header.hash for each in found if each is not None]

    def find(self, block_hash: bytes) -> Kept | None:
        """Return a block, one of the last `KEPT_NUMBERS_MAX` that were in memory or the parent of one, or None."""
        number = self._numbers.get(block_hash)
        if number is None:
            return None
        found = self.at(number)
        return found if found is not None and found.raw.header.hash == block_hash else None

    def header(self, block_hash: bytes) -> Header | None:
        """Return the header of a block that is kept, or that one has asked for, or None."""
        return super().header(block_hash) or self._headers.get(block_hash)

    def version(self, block_hash: bytes) -> Version | None:
        """Return the version of the runtime in the state after a block of a file, or after the one before its first, or None."""
        return super().version(block_hash) or self._versions.get(block_hash)

    def add(self, raw: RawBlock) -> None:
        """Ignore a block: files are whole."""

    def add_header(self, header: Header) -> None:
        """Keep a header that a kept block has asked for: the parent of a candidate. Those of a head are ignored."""
        with self._lock:
            if self._loaded and header.number <= max(each.last for each in self._loaded):
                self._headers[header.hash] = header
                self._append({"header": to_hex(header.encode())})

    def note(self, kept: Kept, answer: Mapping[str, Any]) -> None:
        """Keep an answer about a block."""
        with self._lock:
            line = {"block": to_hex(kept.raw.header.hash), **answer}
            self._later.setdefault(kept.raw.header.hash, []).append(line)
            self._append(line)

    # --- files ---

    def _range_of(self, number: int) -> Range | None:
        at = bisect_right(self._ranges, number, key=lambda each: each.first) - 1
        return self._ranges[at] if at >= 0 and number <= self._ranges[at].last else None

    def _at(self, number: int) -> Kept | None:
        found = self._range_of(number)
        if found is None:
            return None
        if found not in self._loaded:
            self._load(found)
        self._loaded.move_to_end(found)
        return self._loaded[found][number]

    def _load(self, wanted: Range) -> None:
        path = self._folder / wanted.name
        blocks: dict[int, Kept] = {}
        ends = ends_of(path)
        self._versions[ends.parent] = ends.runtime
        try:
            for kept in read_range(path, wanted, self._genesis):
                header = kept.raw.header
                blocks[header.number] = kept
                self._numbers[header.hash] = header.number
                self._numbers[header.parent_hash] = header.number - 1
                for line in self._later.get(header.hash, ()):
                    _take(kept, line)
        except (BadAnswer, LookupError, TypeError, ValueError) as error:
            raise FollowError(f"{self._folder / LATER}: {error}: remove the file") from error
        self._loaded[wanted] = blocks
        while len(self._loaded) > RANGES_IN_MEMORY:
            self._loaded.popitem(last=False)
        while len(self._numbers) > KEPT_NUMBERS_MAX:
            self._numbers.popitem(last=False)

    def _read_later(self) -> None:
        path = self._folder / LATER
        try:
            lines = path.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return
        except OSError as error:
            raise FollowError(f"{path}: cannot be read: {error.strerror}") from error
        for at, text in enumerate(lines, 1):
            try:
                line = json.loads(text)
                if "header" in line:
                    header = Header.decode(from_hex(line["header"], "header"))
                    self._headers[header.hash] = header
                else:
                    self._later.setdefault(from_hex(line["block"], "block", 32), []).append(line)
            except (BadAnswer, LookupError, TypeError, ValueError) as error:
                raise FollowError(f"{path}, line {at}: {error}: remove the file") from error

    def _append(self, line: Mapping[str, Any]) -> None:
        path = self._folder / LATER
        try:
            with path.open("ab+") as file:
                if not self._ends_whole:  # a killed process may have left part of a line
                    file.seek(0)
                    file.truncate(file.read().rfind(b"\n") + 1)
                    self._ends_whole = True
                file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        except OSError as error:
            raise FollowError(f"{path}: cannot be written: {error.strerror}") from error


def _take(kept: Kept, line: Mapping[str, Any]) -> None:
    """Add a later answer to a block. Raises `BadAnswer`, ``LookupError``, ``TypeError``."""
    if "keys" in line:
        kept.keys[from_hex(line["prefix"], "prefix")] = [from_hex(key, "key") for key in line["keys"]]
        return
    for key, value in line["values"].items():
        known = from_hex(key, "key")
        kept.values[known] = None if value is None else from_hex(value, "value")
        if "proven" in line:
            kept.proofs[known] = line["proven"]


def ranges_of(folder: Path) -> list[Range]:
    """Return the ranges of a folder, ascending; none if it does not exist. Raises `FollowError` if it cannot be read."""
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FollowError(f"{folder}: cannot be read: {error.strerror}") from error
    found = (_NAME.fullmatch(name) for name in names)
    return sorted(Range(int(each[1]), int(each[2])) for each in found if each is not None)


def missing_ranges(there: Iterable[Range], first: int, last: int) -> list[Range]:
    """Return the ranges that are missing between two blocks, each within a multiple of `BLOCKS_PER_RANGE`."""
    missing: list[Range] = []
    at = first
    for each in sorted(there):
        missing += _pieces(at, min(each.first - 1, last))
        at = max(at, each.last + 1)
    return [*missing, *_pieces(at, last)]


def _pieces(first: int, last: int) -> Iterator[Range]:
    while first <= last:
        end = min(last, first - first % BLOCKS_PER_RANGE + BLOCKS_PER_RANGE - 1)
        yield Range(first, end)
        first = end + 1


@cache
def _schema() -> Any:
    text = (files("validator_relay_chain") / "schemas" / f"{SCHEMA}.avsc").read_text(encoding="utf-8")
    return fastavro.parse_schema(json.loads(text))


class Ends(NamedTuple):
    """What the blocks of a file are between."""

    parent: bytes
    """Hash of the block before the first one."""
    last: bytes
    """Hash of the last one."""
    runtime: Version
    """Which executes the first one: that in the state after its parent."""


def write_range(folder: Path, wanted: Range, genesis: bytes, ends: Ends, blocks: Iterable[Kept]) -> None:
    """Write the file of a range; it gets its name once it is on disk.

    The same blocks are the same bytes. Raises what ``blocks`` raises, and `FollowError`.
    """
    path = folder / wanted.name
    new = folder / f".{wanted.name}.{os.getpid()}.new"
    about = {
        GENESIS: to_hex(genesis),
        PARENT: to_hex(ends.parent),
        LAST: to_hex(ends.last),
        RUNTIME: json.dumps(asdict(ends.runtime), sort_keys=True),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with new.open("wb") as file:
            fastavro.writer(
                file, _schema(), (each.to_record() for each in blocks), "deflate", SYNC_INTERVAL_BYTES, about,
                sync_marker=ends.parent[:SYNC_BYTES], codec_compression_level=KEPT_COMPRESSION,
            )  # fmt: skip
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise FollowError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        new.unlink(missing_ok=True)


def read_range(path: Path, wanted: Range, genesis: bytes) -> Iterator[Kept]:
    """Yield the blocks of a file. Raises `FollowError` for a file of another chain, then for one that is damaged or not whole."""
    number = wanted.first
    try:
        with path.open("rb") as file:
            records = fastavro.reader(file)
            if records.metadata.get(GENESIS) != to_hex(genesis):
                raise FollowError(f"{path}: expected blocks of the chain with genesis {to_hex(genesis)}, found others")
            for record in records:
                kept = Kept.of(cast("dict[str, Any]", record))
                if kept.raw.header.number != number:
                    raise BadAnswer(f"expected block {number}, found block {kept.raw.header.number}")
                yield kept
                number += 1
        if number != wanted.last + 1:
            raise BadAnswer(f"expected blocks up to {wanted.last}, found them up to {number - 1}")
    except (BadAnswer, EOFError, LookupError, OSError, TypeError, ValueError, zlib.error) as error:
        raise FollowError(f"{path}: {error}: remove the file, and fetch its blocks again") from error


def ends_of(path: Path) -> Ends:
    """Return what a file's blocks are between. Raises `FollowError`."""
    try:
        with path.open("rb") as file:
            about = fastavro.reader(file).metadata
        parent, last = (bytes.fromhex(about[name][2:]) for name in (PARENT, LAST))
        return Ends(parent, last, Version(**json.loads(about[RUNTIME])))
    except (EOFError, LookupError, OSError, TypeError, ValueError) as error:
        raise FollowError(f"{path}: {error}: remove the file, and fetch its blocks again") from error
