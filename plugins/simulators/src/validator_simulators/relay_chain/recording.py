# SPDX-License-Identifier: Apache-2.0
"""What a mock node knows: blocks, storage by block, proofs, metadata and runtime versions, recorded or made up.

A recording is read from files in the form of a node's own answers, and kept as they stand. What no file has is added with `put_block`,
`put_storage` and `set_runtime`, and listed in `made`: so a test can say what of a run was real.
"""

from __future__ import annotations

import gzip
import json
import lzma
from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from validator_relay_chain.trie import make_proof

Json: TypeAlias = dict[str, Any]

METADATA_SUFFIX: Final = ".scale"
STORAGE_FILE: Final = "storage.jsonl"
RUNTIMES_FILE: Final = "runtime_versions.json"
METHODS_FILE: Final = "rpc_methods.json"
MADE_FILE: Final = "made.jsonl"
"""Storage that was made up: lines with `from_block` and `storage`."""

SHIPPED: Final = Path(__file__).with_name("shipped")
"""Four blocks of Polkadot, 17844553 to 17844556, and what decodes them; its README.md says where they come from."""

GENESIS_HASH: Final = "0x91b171bb158e2d3848fa23a9f1c25182fb8e20313b2c1eb49219da7a70ce90c3"
"""Hash of Polkadot's block 0."""

METADATA_IN_PLACE: Final = {9420: 9430, 9431: 9430, 1002007: 1002005}
"""Spec versions whose metadata was not recorded, and what decodes their blocks."""

UNRECORDED_SPEC_VERSION: Final = 1_002_005
"""The spec version of blocks that do not say theirs."""


class RecordingError(ValueError):
    """A file of a recording is missing or is none."""


@dataclass(frozen=True, slots=True)
class RecordedBlock:
    """A block as a node gives it; ``header`` and ``body`` are None where they were not recorded."""

    number: int
    hash: str
    header: Json | None
    body: Json | None
    """The result of `chain_getBlock`."""
    storage: dict[str, str]
    """Storage that this block alone has, such as its events."""
    spec_version: int
    is_whole: bool = False
    """Whether ``storage`` is everything, and the header's state root is its root."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Storage after a block that is proven against its state root."""

    proof: list[str]
    values: dict[str, str]


@dataclass
class Recording:
    """Blocks and storage of one chain. Only the mock's own thread, or a test before it serves, changes it."""

    genesis: str = GENESIS_HASH
    chain: str = "Polkadot"
    blocks: dict[str, RecordedBlock] = field(default_factory=dict)
    """By hash, those of forks included."""
    canonical: dict[int, str] = field(default_factory=dict)
    """By number, the hash of the finalised block."""
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    metadata: dict[str, bytes] = field(default_factory=dict)
    """By the name of its file, such as ``9430`` or ``1003003.v15``."""
    versions: dict[int, Json] = field(default_factory=dict)
    """Recorded results of `state_getRuntimeVersion` by spec version."""
    methods: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    """What was added by tests and is not recorded."""
    _history: dict[str, list[tuple[int, str | None]]] = field(default_factory=dict)
    _runtimes: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def load(cls, folder: Path, *files: str) -> Recording:
        """Read a folder: its blocks (the named files, or all ``*.jsonl`` of it), storage, metadata, versions and methods.

        Files may be compressed with gzip or xz. Raises `RecordingError` for a folder without blocks, then for a file that cannot be read.
        """
        found = cls()
        paths = [folder / name for name in files] or sorted(
            path for path in folder.glob("*.jsonl*") if not path.name.startswith((STORAGE_FILE, MADE_FILE))
        )
        if not paths:
            raise RecordingError(f"{folder}: expected files *.jsonl, *.jsonl.gz or *.jsonl.xz with blocks, found none")
        for path in paths:
            for number, line in enumerate(_lines(path), 1):
                found._take_block(path, number, line)
        for path in sorted(folder.glob(STORAGE_FILE + "*")):
            for number, line in enumerate(_lines(path), 1):
                found._take_snapshot(path, number, line)
        for path in sorted(folder.glob(MADE_FILE + "*")):
            for number, line in enumerate(_lines(path), 1):
                read = _parsed(path, number, line)
                found.put_storage(read["from_block"], read["storage"])
        for path in sorted([*folder.glob("metadata/*"), *folder.glob(f"*{METADATA_SUFFIX}*")]):
            found.metadata[path.name.partition(METADATA_SUFFIX)[0]] = _content(path)
        if (folder / RUNTIMES_FILE).exists():
            recorded = _parsed(folder / RUNTIMES_FILE, 1, _content(folder / RUNTIMES_FILE))
            found.versions = {int(version): each for version, each in recorded["state_getRuntimeVersion"].items()}
        if (folder / METHODS_FILE).exists():
            found.methods = _parsed(folder / METHODS_FILE, 1, _content(folder / METHODS_FILE))["methods"]
        return found

    # --- what is asked ---

    @property
    def first(self) -> int:
        """The lowest block."""
        return min(self.canonical)

    @property
    def last(self) -> int:
        """The highest block whose header is known."""
        return max(number for number, hash_ in self.canonical.items() if self.blocks[hash_].header is not None)

    def at(self, hash_: str) -> RecordedBlock | None:
        """Return a block by its hash."""
        return self.blocks.get(hash_)

    def value(self, block: RecordedBlock, key: str) -> str | None:
        """Return what storage holds under a key after a block; None if nothing is known."""
        if key in block.storage or block.is_whole:
            return block.storage.get(key)
        snapshot = self._snapshot(block)
        if snapshot is not None and key in snapshot.values:
            return snapshot.values[key]
        changes = self._history.get(key, [])
        at = bisect_right(changes, block.number, key=lambda change: change[0])
        return changes[at - 1][1] if at else None

    def keys(self, block: RecordedBlock, prefix: str) -> list[str]:
        """Return the keys below a prefix that have a value after a block, in ascending order."""
        if block.is_whole:
            return sorted(key for key in block.storage if key.startswith(prefix))
        snapshot = self._snapshot(block)
        known = {*block.storage, *(snapshot.values if snapshot else ()), *self._history}
        return sorted(key for key in known if key.startswith(prefix) and self.value(block, key) is not None)

    def proof(self, block: RecordedBlock, keys: list[str]) -> list[str] | None:
        """Return a proof of values after a block: a recorded one, which proves more, or one of a whole storage; None if there is none."""
        if block.is_whole:
            pairs = {bytes.fromhex(key[2:]): bytes.fromhex(value[2:]) for key, value in block.storage.items()}
            _, nodes = make_proof(pairs, [bytes.fromhex(key[2:]) for key in keys])
            return [f"0x{node.hex()}" for node in nodes]
        snapshot = self._snapshot(block)
        return None if snapshot is None or not set(keys) <= snapshot.values.keys() else snapshot.proof

    def spec_version(self, block: RecordedBlock) -> int:
        """Return the version of the runtime that is in the state after a block."""
        at = bisect_right(self._runtimes, block.number, key=lambda change: change[0])
        return self._runtimes[at - 1][1] if at else block.spec_version

    def runtime_version(self, block: RecordedBlock) -> Json:
        """Return the result of `state_getRuntimeVersion`: a recorded one, or one with another number if that version was not recorded."""
        version = self.spec_version(block)
        known = self.versions.get(version) or next(iter(self.versions.values()), {"specName": "polkadot"})
        return {**known, "specVersion": version}

    def metadata_of(self, version: int) -> bytes | None:
        """Return the metadata in version 14 that decodes the blocks of a spec version."""
        return self.metadata.get(str(version)) or self.metadata.get(str(METADATA_IN_PLACE.get(version)))

    def metadata_at(self, version: int, format_version: int) -> bytes | None:
        """Return the metadata of a spec version in a version of the format."""
        found = self.metadata.get(f"{version}.v{format_version}") or self.metadata_of(version)
        return found if found is not None and found[4] == format_version else None

    # --- what tests add ---

    def put_block(self, block: RecordedBlock, *, canonical: bool = True) -> None:
        """Add a made-up block; a fork's block is not canonical."""
        self.blocks[block.hash] = block
        self.made.append(f"block {block.number} {block.hash}")
        if canonical:
            self.canonical[block.number] = block.hash

    def put_storage(self, from_block: int, values: dict[str, str | None]) -> None:
        """Set storage after a block and all later ones, until it is set again; None removes."""
        for key, value in values.items():
            changes = self._history.setdefault(key, [])
            changes[:] = [change for change in changes if change[0] != from_block]
            insort(changes, (from_block, value), key=lambda change: change[0])
            self.made.append(f"storage {key} from {from_block}")

    def set_runtime(self, from_block: int, spec_version: int) -> None:
        """Set the runtime that is in the state after a block and all later ones."""
        insort(self._runtimes, (from_block, spec_version))
        self.made.append(f"runtime {spec_version} from {from_block}")

    def put_metadata(self, name: str, metadata: bytes) -> None:
        """Add the metadata of a spec version, or replace it."""
        self.metadata[name] = metadata
        self.made.append(f"metadata {name}")

    def made_storage(self) -> Iterator[tuple[int, dict[str, str | None]]]:
        """Return what `put_storage` set, by the block from which it holds."""
        by_block: dict[int, dict[str, str | None]] = {}
        for key, changes in self._history.items():
            for block, value in changes:
                by_block.setdefault(block, {})[key] = value
        yield from sorted(by_block.items())

    # --- reading ---

    def _snapshot(self, block: RecordedBlock) -> Snapshot | None:
        return self.snapshots.get(block.number) if self.canonical.get(block.number) == block.hash else None

    def _take_block(self, path: Path, number: int, line: bytes) -> None:
        read = _parsed(path, number, line)
        try:
            version = read["specVersion"]
            block = RecordedBlock(
                read["number"], read["chain_getBlockHash"], read["chain_getHeader"], read["chain_getBlock"],
                read["state_getStorage"], UNRECORDED_SPEC_VERSION if version is None else version,
            )  # fmt: skip
        except KeyError as error:
            raise RecordingError(f"{path}, line {number}: expected a block with the key {error}, found none") from None
        self.blocks[block.hash] = block
        self.canonical[block.number] = block.hash

    def _take_snapshot(self, path: Path, number: int, line: bytes) -> None:
        read = _parsed(path, number, line)
        try:
            self.snapshots[read["relay_block"]] = Snapshot(
                read["state_getReadProof"]["proof"], read["state_getStorage"]
            )
        except KeyError as error:
            raise RecordingError(f"{path}, line {number}: expected storage with the key {error}, found none") from None


def chain_of(blocks: Iterable[RecordedBlock]) -> Recording:
    """Return a chain that consists of made-up blocks."""
    found = Recording()
    for block in blocks:
        found.put_block(block)
    return found


def _lines(path: Path) -> Iterator[bytes]:
    yield from _content(path).splitlines()


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            return gzip.decompress(content)
        return lzma.decompress(content) if path.suffix == ".xz" else content
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise RecordingError(f"{path} cannot be read: {error}") from None


def _parsed(path: Path, number: int, text: bytes) -> Json:
    try:
        read = json.loads(text)
    except ValueError as error:
        raise RecordingError(f"{path}, line {number}: expected JSON: {error}") from None
    if not isinstance(read, dict):
        raise RecordingError(f"{path}, line {number}: expected an object, found {type(read).__name__}")
    return read
