# SPDX-License-Identifier: Apache-2.0
"""A chain as its nodes show it: headers, blocks, storage and runtimes, each answer checked as far as a hash goes.

The functions that read an answer raise `BadAnswer` for one that cannot be right.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from validator.plugin.api import DecodeError, Reader
from validator_relay_chain import keys
from validator_relay_chain.block import RawBlock, check_hash, read_block
from validator_relay_chain.errors import (
    BadAnswer,
    BodyMissing,
    NotKnownHere,
    NotOffered,
    RpcFault,
    StatePruned,
    TooMuch,
    UndecodableBlock,
)
from validator_relay_chain.header import Header, from_hex, shown, to_hex
from validator_relay_chain.limits import (
    KEYS_MAX,
    KEYS_PER_PAGE,
    NUMBERS_MAX,
    RUNTIMES_MAX,
    SPEC_VERSION_MAX,
    VALUES_PER_CALL,
)
from validator_relay_chain.metadata import VERSIONS, MetadataCache, Runtime, is_readable
from validator_relay_chain.pool import Call, NodePool, known
from validator_relay_chain.storage import Value
from validator_relay_chain.trie import ProofError, read_proof

EXTRINSICS_V1_SINCE: Final = 2
"""The runtime's ``systemVersion`` from which on the extrinsics root has state version 1."""

AT_VERSION: Final = "Metadata_metadata_at_version"
"""The runtime's function that gives metadata in a version of the format."""


@dataclass(frozen=True, slots=True)
class Version:
    """The version of a runtime."""

    spec_name: str
    spec_version: int
    extrinsics_version: int


def read_header(answer: Any, block_hash: bytes) -> Header:
    """Return a header that must have a hash."""
    header = Header.from_json(answer)
    check_hash(header, block_hash)
    return header


def read_values(answer: Any, wanted: Sequence[bytes]) -> dict[bytes, Value]:
    """Return the values of one set of changes, by key; None where there is none."""
    found: dict[bytes, Value] = dict.fromkeys(wanted)
    if not isinstance(answer, list) or len(answer) != 1 or not isinstance(answer[0], dict):
        raise BadAnswer(f"state_queryStorageAt: expected one set of changes, found {shown(answer)}")
    changes = answer[0].get("changes")
    if not isinstance(changes, list):
        raise BadAnswer(f"state_queryStorageAt: expected changes, found {shown(changes)}")
    for change in changes:
        if not isinstance(change, list) or len(change) != 2:
            raise BadAnswer(f"state_queryStorageAt: expected key and value, found {shown(change)}")
        key = from_hex(change[0], "storage key")
        if key not in found:
            raise BadAnswer(f"state_queryStorageAt: expected the keys that were asked for, found 0x{key.hex()}")
        found[key] = None if change[1] is None else from_hex(change[1], "storage value")
    if len(changes) != len(found):
        raise NotKnownHere(f"state_queryStorageAt: expected {len(found)} values, found {len(changes)}")
    return found


def read_keys(answer: Any, prefix: bytes, size: int, last: bytes | None) -> list[bytes]:
    """Return a page of keys, ascending, after the ``last`` one."""
    if not isinstance(answer, list) or len(answer) > size:
        raise BadAnswer(f"state_getKeysPaged: expected at most {size} keys, found {shown(answer)}")
    found = [from_hex(each, "storage key") for each in answer]
    for key in found:
        if not key.startswith(prefix) or (last is not None and key <= last):
            raise BadAnswer(f"state_getKeysPaged: expected ascending keys of 0x{prefix.hex()}, found 0x{key.hex()}")
        last = key
    return found


def read_metadata(answer: Any) -> bytes:
    """Return the metadata of an ``Option<Vec<u8>>``; none is empty."""
    raw = from_hex(known("metadata")(answer), "metadata")
    reader = Reader(raw)
    try:
        found = reader.option(reader.bytes)
    except DecodeError as error:
        raise BadAnswer(f"state_call {AT_VERSION}: {error}") from error
    return found or b""


def read_version(answer: Any) -> Version:
    """Return the version of a runtime."""
    if not isinstance(answer, dict) or type(answer.get("specVersion")) is not int:
        raise BadAnswer(f"state_getRuntimeVersion: expected a specVersion, found {shown(answer)}")
    if not 0 <= answer["specVersion"] <= SPEC_VERSION_MAX:
        raise BadAnswer(f"state_getRuntimeVersion: expected a u32 as specVersion, found {shown(answer['specVersion'])}")
    name = answer.get("specName")
    if not isinstance(name, str) or not 1 <= len(name) <= 64 or not name.isascii() or not name.isprintable():
        raise BadAnswer(f"state_getRuntimeVersion: expected a specName, found {shown(name)}")
    system = answer.get("systemVersion", answer.get("stateVersion", 0))
    is_v1 = type(system) is int and system >= EXTRINSICS_V1_SINCE
    return Version(name, answer["specVersion"], int(is_v1))


T = TypeVar("T")


class Chain:
    """One relay chain. Methods raise `NodeError`; the pool repeats what a node may still answer. Any thread may use it.

    ``load`` decodes metadata, which takes half a second of processor time.
    """

    def __init__(self, pool: NodePool, cache: MetadataCache, load: Callable[..., Runtime] = Runtime) -> None:
        self.pool = pool
        self._cache = cache
        self._decode = load
        self._runtimes: OrderedDict[tuple[str, int], Runtime] = OrderedDict()
        self._numbers: OrderedDict[bytes, int] = OrderedDict()
        self._lock = threading.Lock()

    # --- blocks ---

    def kept_after(self, number: int) -> Header | None:  # noqa: ARG002 - of `KeptChain`
        """Return the last header of the blocks after ``number`` that no node is needed for, or None: all need one."""
        return None

    def kept_in(self, number: int) -> Path | None:  # noqa: ARG002 - of `KeptChain`
        """Return the file that has a block, or None: it is a node's."""
        return None

    def hash_at(self, number: int) -> bytes:
        """Return the hash of a block on the node's best chain."""
        what = f"the hash of block {number}"
        return self.pool.ask(lambda found: from_hex(known(what)(found), what, 32), "chain_getBlockHash", number)

    def hashes_at(self, numbers: Sequence[int]) -> list[bytes] | None:
        """Return the hashes of blocks on the node's best chain, in one call; None if no node answers for several blocks at once."""
        what = "the hashes of blocks"

        def read(found: Any) -> list[bytes] | None:
            if found is None:
                return None
            if not isinstance(found, list) or len(found) != len(numbers):
                raise BadAnswer(f"{what}: expected a list of {len(numbers)}, found another form")
            return [
                from_hex(known(f"the hash of block {at}")(each), what, 32)
                for at, each in zip(numbers, found, strict=True)
            ]

        try:
            return self.pool.ask(read, "chain_getBlockHash", list(numbers), is_optional=True)
        except NotOffered:
            return None

    def finalised_head(self) -> bytes:
        """Return the hash of the node's last finalised block."""
        return self.pool.ask(lambda found: from_hex(found, "finalised head", 32), "chain_getFinalizedHead")

    def header(self, block_hash: bytes) -> Header:
        """Return the header with a hash."""

        return self.pool.ask(
            lambda found: read_header(known(f"block {to_hex(block_hash)}")(found), block_hash),
            "chain_getHeader",
            to_hex(block_hash),
        )

    def header_if_known(self, block_hash: bytes) -> Header | None:
        """Return the header with a hash, or None if the node in use does not know it."""

        def read(call: Call) -> Header | None:
            try:
                found = call("chain_getHeader", to_hex(block_hash))
            except (NotKnownHere, StatePruned):
                return None
            return None if found is None else read_header(found, block_hash)

        return self.pool.use(read)

    def number_of(self, block_hash: bytes) -> int:
        """Return the number of a block; it is asked for once, and not at all if the block was read before, within `NUMBERS_MAX` others."""
        with self._lock:
            found = self._numbers.get(block_hash)
        return self._note(self.header(block_hash)).number if found is None else found

    def _note(self, header: Header) -> Header:
        """Keep the number of a block."""
        with self._lock:
            self._numbers[header.hash] = header.number
            while len(self._numbers) > NUMBERS_MAX:
                self._numbers.popitem(last=False)
        return header

    def block(self, block_hash: bytes) -> RawBlock:
        """Return the block with a hash, and its events."""
        shown = to_hex(block_hash)

        def read(call: Call) -> RawBlock:
            found = call("chain_getBlock", shown)
            if found is None:
                header = Header.from_json(known(f"block {shown}")(call("chain_getHeader", shown)))
                raise BodyMissing(
                    f"block {header.number}: bodies are needed: the node has this block's header and not its extrinsics, as nodes "
                    "without --blocks-pruning archive and freshly synced ones do"
                )
            return read_block(found, "0x", block_hash)

        with _naming(f"the extrinsics of block {shown}"):
            body = self.pool.use(read)
        events, are_proven = self._events(body.header)
        return RawBlock(self._note(body.header), body.extrinsics, events, are_proven)

    def _events(self, header: Header) -> tuple[bytes, bool]:
        """Return the events of a block, and whether they are proven: they are where a node gives proofs, and not too big."""
        what = f"block {header.number}: System.Events"
        with suppress(TooMuch):
            proven = self.proven([keys.SYSTEM_EVENTS], header)
            if proven is not None:
                return proven[keys.SYSTEM_EVENTS] or b"", True
        with _naming(what):
            given = self.pool.ask(
                lambda found: from_hex(known(what)(found), what),
                "state_getStorage",
                to_hex(keys.SYSTEM_EVENTS),
                to_hex(header.hash),
            )
        return given, False

    # --- storage ---

    def value(self, key: bytes, block_hash: bytes) -> Value:
        """Return a value after a block, or None if there is none."""
        with _naming(keys.name_of(key)):
            return self.pool.ask(
                lambda found: None if found is None else from_hex(found, "storage value"),
                "state_getStorage",
                to_hex(key),
                to_hex(block_hash),
            )

    def values(self, wanted: Sequence[bytes], block_hash: bytes) -> dict[bytes, Value]:
        """Return values after a block, by key; None where there is none. What is too much is asked in halves, down to one key."""
        found: dict[bytes, Value] = {}
        for answer in _in_parts(wanted, lambda part: self._values(part, block_hash)):
            found |= answer
        return found

    def _values(self, part: Sequence[bytes], block_hash: bytes) -> dict[bytes, Value]:
        return self.pool.ask(
            lambda answer: read_values(answer, part),
            "state_queryStorageAt",
            [to_hex(key) for key in part],
            to_hex(block_hash),
            is_divisible=len(part) > 1,
        )

    def keys_of(self, prefix: bytes, block_hash: bytes) -> Iterator[list[bytes]]:
        """Yield the keys of a storage item after a block, a page at a time, ascending. Raises `BadAnswer` for other or too many keys.

        A page that is too much for a node is asked in halves, down to one key.
        """
        last: bytes | None = None
        count, size = 0, KEYS_PER_PAGE
        while True:
            try:
                page = self._page(prefix, size, last, block_hash)
            except TooMuch as error:
                if size == 1:
                    raise error.saying(f"keys of {keys.name_of(prefix)}: {error}") from error
                size //= 2
                continue
            count += len(page)
            if count > KEYS_MAX:
                raise BadAnswer(f"keys of 0x{prefix.hex()}: expected at most {KEYS_MAX}")
            if page:
                yield page
                last = page[-1]
            if len(page) < size:
                return

    def _page(self, prefix: bytes, size: int, last: bytes | None, block_hash: bytes) -> list[bytes]:
        return self.pool.ask(
            lambda found: read_keys(found, prefix, size, last),
            "state_getKeysPaged",
            to_hex(prefix),
            size,
            None if last is None else to_hex(last),
            to_hex(block_hash),
            is_divisible=size > 1,
        )

    def proven(self, wanted: Sequence[bytes], header: Header) -> dict[bytes, Value] | None:
        """Return values after a block as nodes prove them against its state root; None if it has none, or no node gives proofs.

        Raises `BadAnswer` if every node's proof is wrong.
        """
        if header.is_simulated:
            return None
        found: dict[bytes, Value] = {}
        try:
            for proven in _in_parts(wanted, lambda part: self._proven(part, header)):
                found |= proven
        except NotOffered:
            return None
        return found

    def _proven(self, part: Sequence[bytes], header: Header) -> Mapping[bytes, Value]:
        def read(found: Any) -> Mapping[bytes, Value]:
            nodes = found.get("proof") if isinstance(found, dict) else None
            if not isinstance(nodes, list):
                raise BadAnswer("proof: expected a list of nodes, found none")
            try:
                return read_proof(header.state_root, tuple(from_hex(node, "proof: node") for node in nodes), part)
            except ProofError as error:
                raise BadAnswer(f"block {header.number}: {error}") from error

        return self.pool.ask(
            read,
            "state_getReadProof",
            [to_hex(key) for key in part],
            to_hex(header.hash),
            is_optional=True,
            is_divisible=len(part) > 1,
        )

    def checked(self, given: Mapping[bytes, Value], header: Header) -> tuple[dict[bytes, Value], bool]:
        """Return values that a node gave after a block as they are proven, and whether they are. A line names a value that was another."""
        proven = self.proven(list(given), header)
        if proven is None:
            return dict(given), False
        for key, value in given.items():
            if proven[key] != value:
                self.pool.tell(
                    f"block {header.number}: {keys.name_of(key)}: a node's value is not the one under the header's state root; the "
                    "proven one is taken"
                )
        return proven, True

    # --- runtimes ---

    def version(self, block_hash: bytes) -> Version:
        """Return the version of the runtime in the state after a block: it executes the next one."""
        return self.pool.ask(read_version, "state_getRuntimeVersion", to_hex(block_hash))

    def runtime(self, block_hash: bytes, *, version: Version | None = None, afresh: bool = False) -> Runtime:
        """Return the runtime in the state after a block, from memory or the cache if its version is there and not wanted ``afresh``."""
        found = self.version(block_hash) if version is None else version
        name = found.spec_name, found.spec_version
        with self._lock:
            runtime = None if afresh else self._runtimes.get(name)
        if runtime is None:
            runtime = self._load(block_hash, found, afresh=afresh)
            with self._lock:
                self._runtimes[name] = runtime
                while len(self._runtimes) > RUNTIMES_MAX:
                    self._runtimes.popitem(last=False)
        return runtime

    def _load(self, block_hash: bytes, version: Version, *, afresh: bool) -> Runtime:
        genesis = self.pool.genesis or self.hash_at(0)
        name = version.spec_name, version.spec_version
        kept = None if afresh else self._cache.read(genesis, *name)
        if kept is not None:
            try:
                return self._decode(*name, kept, extrinsics_version=version.extrinsics_version)
            except UndecodableBlock:
                pass  # what an earlier program or node left
        with _naming(f"metadata of {version.spec_name} {version.spec_version}"):
            raw = self._metadata(block_hash)
        runtime = self._decode(*name, raw, extrinsics_version=version.extrinsics_version)
        self._cache.write(genesis, *name, raw)
        return runtime

    def _metadata(self, block_hash: bytes) -> bytes:
        """Return metadata as the node gives it or, if this plugin does not read that, in a version that it reads."""
        shown = to_hex(block_hash)
        given, refusal = b"", None
        try:
            given = self.pool.ask(
                lambda found: from_hex(known("metadata")(found), "metadata"), "state_getMetadata", shown
            )
        except RpcFault as error:
            refusal = error
        if is_readable(given):
            return given
        try:
            for version in reversed(VERSIONS):
                found = self.pool.ask(
                    read_metadata, "state_call", AT_VERSION, to_hex(version.to_bytes(4, "little")), shown
                )
                if is_readable(found):
                    return found
        except RpcFault as error:
            refusal = refusal or error
        if not given and refusal is not None:
            raise refusal
        return given  # decoding says what was expected


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """Name what was asked for in the error that says that it is too much."""
    try:
        yield
    except TooMuch as error:
        raise error.saying(f"{what}: {error}") from error


def _in_parts(wanted: Sequence[bytes], ask: Callable[[Sequence[bytes]], T]) -> Iterator[T]:
    """Yield the answers for parts of some keys, which are halved as long as they are too much, down to one key."""
    size, at = VALUES_PER_CALL, 0
    while at < len(wanted):
        part = wanted[at : at + size]
        try:
            answer = ask(part)
        except TooMuch as error:
            if len(part) == 1:
                raise error.saying(f"{keys.name_of(part[0])}: {error}") from error
            size = len(part) // 2
            continue
        yield answer
        at += len(part)
