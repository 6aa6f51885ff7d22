# SPDX-License-Identifier: Apache-2.0
"""`python -m streaming.state_reader CHECKPOINT OUTPUT [LANE ...]`: export the lanes of a checkpoint to a file for other programs.

It reads the files of Spark's state store itself, without Java, in a separate process, because a library in C++ reads them. The job may be
running: none of its files is changed. All state variables are read as of one committed batch. OUTPUT is a file of
`validator.lanes.stored`: the head of every lane, and the slots and journals of the named lanes, or of all lanes if none is named. An error
is the last line on standard error and begins with ``validator: ``. Exit codes: `validator.exit_codes`.

A snapshot of Spark is ``<version>.zip``: RocksDB's small files, and a list of its tables. These lie in the folder ``SSTs`` under other
names, and snapshots share them. Spark never changes a file after it has its name, and removes those that are several versions old. A
changelog has the changes of one version, in order. Keys and values are rows as Spark stores them (``unsaferow``); their numbers are little
endian.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from struct import Struct, error
from typing import Any, NamedTuple
from zipfile import BadZipFile, ZipFile

import pyarrow as pa
from rocksdict import AccessType, Options, Rdict

from validator import exit_codes
from validator.checkpoint.files import (
    CHANGELOG,
    SNAPSHOT,
    consumed_by_batch,
    last_committed_batch,
    numbered,
    state_options,
)
from validator.errors import UserError
from validator.lanes.stored import Part, StoredRow, write_export

ATTEMPTS_MAX = 5
"""Attempts, each at a newer batch because the job has removed files that the previous one needs."""

STATE_FORMAT = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.encodingFormat": "unsaferow",
    "spark.sql.streaming.stateStore.rowChecksum.enabled": "false",
    "spark.sql.streaming.stateStore.compression.codec": "lz4",
}
"""What the checkpoint says of the format that this module reads."""

_OPERATOR = Path("state", "0")
"""The folder of the query's only stateful operator, with a folder per partition."""


def main(arguments: Sequence[str]) -> int:
    if len(arguments) < 2:
        sys.stderr.write("usage: python -m streaming.state_reader CHECKPOINT OUTPUT [LANE ...]\n")
        return exit_codes.USER_ERROR
    try:
        read_lanes(Path(arguments[0]), Path(arguments[1]), arguments[2:])
    except UserError as error:
        sys.stderr.write(f"\nvalidator: {error}\n")
        return exit_codes.USER_ERROR
    return exit_codes.OK


def read_lanes(checkpoint: Path, output: Path, lanes: Sequence[str]) -> int:
    """Write the file as of the last committed batch and return that batch. Raises `UserError`."""
    for _ in range(ATTEMPTS_MAX):
        batch = last_committed_batch(checkpoint)
        try:
            _read_batch(checkpoint, batch, output, lanes)
        except (OSError, StoreUnreadable, UserError) as error:
            failure = error
        else:
            return batch
        if last_committed_batch(checkpoint) == batch:
            break
    raise UserError(f"{checkpoint}: the state after batch {batch} cannot be read: {failure}") from failure


def _read_batch(checkpoint: Path, batch: int, output: Path, lanes: Sequence[str]) -> None:
    consumed = consumed_by_batch(checkpoint, batch)
    _check_format(checkpoint, batch)

    def rows() -> Generator[StoredRow, None, None]:
        for partition in numbered(checkpoint / _OPERATOR, Path.is_dir):
            # a batch reads the version of its number, and commits the next one
            with open_store(partition, batch + 1, output.with_name(f"{output.name}.{partition.name}")) as store:
                yield from _entries(store, lanes)

    with closing(rows()) as found:
        write_export(output, batch, consumed, found)


def _check_format(checkpoint: Path, batch: int) -> None:
    found = state_options(checkpoint, batch)
    for name, expected in STATE_FORMAT.items():
        if (value := found.get(name, expected)) != expected:
            raise StoreUnreadable(f"{name}: expected {expected}, found {value}")


def _entries(store: Store, lanes: Sequence[str]) -> Iterator[StoredRow]:
    """Yield the variables of `streaming.lane_operator.SparkState`."""
    for key, value in store.entries("head"):
        yield lane_of_key(key), Part.HEAD, 0, binary_of(value)
    for key, value in store.entries("slots"):
        lane, slot = lane_and_slot(key)
        if not lanes or lane in lanes:
            yield lane, Part.SLOT, slot, binary_of(value)
    for key, value in store.entries("journal"):
        lane = lane_of_key(key)
        if not lanes or lane in lanes:
            for number, entry in enumerate(list_of(value)):
                yield lane, Part.JOURNAL, number, entry


TABLES = "SSTs"
_METADATA = "metadata"


@dataclass(slots=True)
class _Since:
    """What the changelogs did to one key."""

    replaced: bool = False
    parts: list[bytes] = field(default_factory=list)

    def apply(self, change: Change) -> None:
        if change.kind is not Kind.MERGE:
            self.replaced = True
            self.parts.clear()
        if change.kind is not Kind.DELETE:
            self.parts.append(change.value)

    def over(self, stored: bytes) -> bytes:
        """Return the key's value; empty if the key is deleted, since a value has at least a row."""
        return b"".join(self.parts if self.replaced else (stored, *self.parts))


@dataclass(frozen=True, slots=True)
class Store:
    """One partition at one version."""

    variables: dict[str, int]
    """The numbers of the state variables, by name."""
    tables: Rdict | None
    """The snapshot; None if it is empty."""
    since: dict[bytes, _Since]

    def entries(self, variable: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and value of every entry of a state variable. Raises `StoreUnreadable`."""
        if variable not in self.variables:
            raise StoreUnreadable(f"expected a state variable {variable!r}, found {', '.join(sorted(self.variables))}")
        prefix = variable_prefix(self.variables[variable])
        unseen = {key: since for key, since in self.since.items() if key.startswith(prefix)}
        for key, stored in self._stored(prefix):
            since = unseen.pop(key, None)
            if value := stored if since is None else since.over(stored):
                yield key, value
        for key, since in unseen.items():
            if value := since.over(b""):
                yield key, value

    def _stored(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        if self.tables is None:
            return
        try:
            at = self.tables.iter()
            at.seek(prefix)
            while at.valid() and (key := bytes(at.key())).startswith(prefix):
                yield key, bytes(at.value())
                at.next()
            at.status()
        except Exception as error:  # the library raises this class itself
            raise StoreUnreadable(_one_line(error)) from error


@contextmanager
def open_store(partition: Path, version: int, folder: Path) -> Iterator[Store]:
    """Open a partition at a version, with a new temporary folder for links to its tables. Raises `OSError`, `StoreUnreadable`."""
    snapshot = max((number for number in _snapshots(partition) if number <= version), default=None)
    if snapshot is None:
        raise StoreUnreadable(f"{partition} has no snapshot up to version {version}")
    since: dict[bytes, _Since] = {}
    for number in range(snapshot + 1, version + 1):
        for change in read_changes(partition / f"{number}{CHANGELOG}"):
            since.setdefault(change.key, _Since()).apply(change)
    folder.mkdir()
    try:
        metadata = _unpack(partition, snapshot, folder)
        variables = _variables(metadata, partition / f"{snapshot}{SNAPSHOT}")
        tables = _open(folder) if metadata["sstFiles"] else None
        try:
            yield Store(variables, tables, since)
        finally:
            if tables is not None:
                tables.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _snapshots(partition: Path) -> list[int]:
    return [int(path.stem) for path in partition.glob(f"[0-9]*{SNAPSHOT}") if path.stem.isdecimal() and path.is_file()]


def _unpack(partition: Path, snapshot: int, folder: Path) -> dict[str, Any]:
    """Put a snapshot's files into a folder, and return its list of them."""
    path = partition / f"{snapshot}{SNAPSHOT}"
    try:
        with ZipFile(path) as packed:
            packed.extractall(folder)
        version, _, listed = (folder / _METADATA).read_text(encoding="utf-8").partition("\n")
        metadata: dict[str, Any] = json.loads(listed)
        tables = [
            (Path(each["dfsSstFileName"]).name, Path(each["localFileName"]).name) for each in metadata["sstFiles"]
        ]
        if version != "v1" or not isinstance(metadata["columnFamilyMapping"], dict):
            raise StoreUnreadable(f"{path} is not a snapshot of version v1 with state variables")
    except (BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, TypeError, KeyError) as error:
        raise StoreUnreadable(f"{path} is not a snapshot as Spark writes it: {error}") from error
    for kept, name in tables:
        link_or_copy(partition / TABLES / kept, folder / name)
    return metadata


def _variables(metadata: dict[str, Any], path: Path) -> dict[str, int]:
    numbers: dict[Any, Any] = metadata["columnFamilyMapping"]
    if not all(type(number) is int and 0 <= number < 1 << 16 for number in numbers.values()):
        raise StoreUnreadable(
            f"{path} is not a snapshot as Spark writes it: expected the numbers of state variables, found {numbers}"
        )
    return {str(name): number for name, number in numbers.items()}


def _open(folder: Path) -> Rdict:
    try:
        # raw: keys and values are bytes. The snapshot's options name the operator that joins the entries of a list
        _, families = Options.load_latest(str(folder))
        return Rdict(str(folder), Options(raw_mode=True), column_families=families, access_type=AccessType.read_only())
    except Exception as error:  # the library raises this class itself
        raise StoreUnreadable(_one_line(error)) from error


def link_or_copy(source: Path, target: Path) -> None:
    """Link a file, or copy it if the file system has no links. Raises `OSError`, first `FileNotFoundError`."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


# --- changelogs ---------------------------------------------------------------------------------------------------------------------------
#
# A file is a stream of LZ4 blocks (Spark's codec ``lz4``), which hold the version of the format and then records: a kind, the key and the
# value, each after its size. Source: `StateStoreChangelogWriterV2` of Spark 4, and `LZ4BlockOutputStream` of lz4-java.

_BLOCK = Struct("<8sBiiI")
"""Magic, method and level, compressed size, size, checksum; the last block of a stream has size 0."""
_MAGIC = b"LZ4Block"
_STORED, _COMPRESSED = 0x10, 0x20
_VERSION = b"\x00\x02v2"
_SIZE = Struct(">i")
_NO_VALUE = -1

BLOCK_BYTES_MAX = 32 * 1024 * 1024
"""Bytes of the largest block that the format allows."""


class StoreUnreadable(Exception):
    """A file of a state store is damaged, or is not in the expected format. The message is one line."""


class Kind(IntEnum):
    """What a change does."""

    END = 0x00
    PUT = 0x01
    DELETE = 0x10
    MERGE = 0x11
    """Append to the value."""


_KINDS = frozenset(Kind)


class Change(NamedTuple):
    """A change of one key; ``value`` is empty if the key is deleted."""

    kind: Kind
    key: bytes
    value: bytes


def read_changes(path: Path) -> Iterator[Change]:
    """Yield a file's changes. Raises `OSError`, `StoreUnreadable`."""
    data = b"".join(_blocks(path, path.read_bytes()))
    if not data.startswith(_VERSION):
        raise StoreUnreadable(f"{path} is not a changelog of version v2")
    at = len(_VERSION)
    while True:
        kind = data[at : at + 1]
        if not kind or kind[0] not in _KINDS:
            raise _damaged(path, at)
        if kind[0] == Kind.END:
            return
        key, at = _sized(path, data, at + 1)
        value, at = _sized(path, data, at)
        yield Change(Kind(kind[0]), key, value)


def _sized(path: Path, data: bytes, at: int) -> tuple[bytes, int]:
    """Return the bytes after a size, and the place after them."""
    start = at + _SIZE.size
    if start > len(data):
        raise _damaged(path, at)
    (size,) = _SIZE.unpack_from(data, at)
    if size == _NO_VALUE:
        return b"", start
    if size < 0 or start + size > len(data):
        raise _damaged(path, at)
    return data[start : start + size], start + size


def _blocks(path: Path, data: bytes) -> Iterator[bytes]:
    codec = pa.Codec("lz4_raw")
    at = 0
    while at + _BLOCK.size <= len(data):
        magic, token, packed_size, size, _ = _BLOCK.unpack_from(data, at)
        at += _BLOCK.size
        packed = data[at : at + packed_size] if packed_size >= 0 else b""
        if magic != _MAGIC or len(packed) != packed_size or not 0 <= size <= BLOCK_BYTES_MAX:
            raise _damaged(path, at)
        at += packed_size
        if size == 0:
            return
        method = token & 0xF0
        if method == _STORED:
            yield packed
        elif method == _COMPRESSED:
            try:
                yield codec.decompress(packed, size, asbytes=True)
            except (OSError, pa.ArrowException) as error:
                raise _damaged(path, at) from error
        else:
            raise _damaged(path, at)
    raise StoreUnreadable(f"{path} is incomplete")


def _damaged(path: Path, at: int) -> StoreUnreadable:
    return StoreUnreadable(f"{path} is damaged near byte {at}")


# --- rows ---------------------------------------------------------------------------------------------------------------------------------
#
# Every key begins with the number of its variable. Rows follow, each after a version byte. A row has a word of null bits and one word per
# field. The word of a string, of bytes and of a nested row holds their place in the row and their size. Sources: `UnsafeRow` and
# `RocksDBStateEncoder` of Spark 4.

_VARIABLE = Struct("<H")
_PREFIX_SIZE = Struct("<I")
_FIELD = Struct("<II")
"""Size and place of what a field names."""
_INT = Struct("<i")

_NULL_BITS = 8
"""Bytes of the word of null bits in a row of up to 64 fields."""
_ROW_VERSION = 0
_JOINT = ord(",")
"""The byte that RocksDB's operator may put between list entries. It never begins the size of an entry, which is one more than a multiple
of 8."""


def variable_prefix(number: int) -> bytes:
    """Return the first bytes of every key of a variable."""
    return _VARIABLE.pack(number)


def lane_of_key(key: bytes) -> str:
    """Return the lane of a value's or a list's key. Raises `StoreUnreadable`."""
    return _text(_read(_row(key[_VARIABLE.size :])))


def lane_and_slot(key: bytes) -> tuple[str, int]:
    """Return the lane and the user key of a map's key. Raises `StoreUnreadable`."""
    start = _VARIABLE.size + _PREFIX_SIZE.size
    if len(key) < start:
        raise StoreUnreadable(f"a key of {len(key)} bytes is too short")
    end = start + _PREFIX_SIZE.unpack_from(key, _VARIABLE.size)[0]
    lane = _read(_read(_row(key[start:end])))
    slot = _read(_row(key[end:]))
    if len(slot) != _NULL_BITS + 8:
        raise StoreUnreadable(f"expected one number in a map's key, found {len(slot)} bytes")
    return _text(lane), _INT.unpack_from(slot, _NULL_BITS)[0]


def binary_of(value: bytes) -> bytes:
    """Return the only field of a value. Raises `StoreUnreadable`."""
    return _read(_row(value))


def list_of(value: bytes) -> Iterator[bytes]:
    """Yield the only field of each entry of a list. Raises `StoreUnreadable`."""
    at = 0
    while at < len(value):
        if value[at] == _JOINT:
            at += 1
        try:
            (size,) = _INT.unpack_from(value, at)
        except error:
            raise StoreUnreadable(f"a list of {len(value)} bytes is damaged at byte {at}") from None
        at += _INT.size
        if size % 8 != 1 or at + size > len(value):
            raise StoreUnreadable(f"a list of {len(value)} bytes is damaged at byte {at}")
        yield binary_of(value[at : at + size])
        at += size


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as wrong:
        raise StoreUnreadable(f"expected a lane's name in UTF-8, found byte {data[wrong.start]:#04x}") from None


def _row(data: bytes) -> bytes:
    if not data or data[0] != _ROW_VERSION:
        raise StoreUnreadable(f"expected a row of version {_ROW_VERSION}, found {data[:1].hex() or 'nothing'}")
    return data[1:]


def _read(row: bytes) -> bytes:
    """Return what the only field of a row names."""
    if len(row) < _NULL_BITS + _FIELD.size or row[0]:
        raise StoreUnreadable(f"expected a row with one field, found {len(row)} bytes")
    size, place = _FIELD.unpack_from(row, _NULL_BITS)
    if place + size > len(row):
        raise StoreUnreadable(f"a row of {len(row)} bytes names bytes {place} to {place + size}")
    return row[place : place + size]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
