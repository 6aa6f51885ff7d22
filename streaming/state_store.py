# SPDX-License-Identifier: Apache-2.0
"""Opens one partition of Spark's RocksDB state at a version: the last snapshot up to it, and the changelogs since.

A snapshot is ``<version>.zip``: RocksDB's small files, and a list of its tables. These lie in the folder ``SSTs`` under other names, and
snapshots share them. Spark never changes a file after it has its name, and removes those that are several versions old.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from rocksdict import AccessType, Options, Rdict

from streaming.changelog import Change, Kind, StoreUnreadable, read_changes
from streaming.spark_rows import variable_prefix
from validator.checkpoint.files import CHANGELOG, SNAPSHOT

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
