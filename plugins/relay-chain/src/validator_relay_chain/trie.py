# SPDX-License-Identifier: Apache-2.0
"""The state trie of a relay chain: roots of small tries, and proofs of storage values.

Keys are cut into nibbles. A node is a leaf or a branch with up to sixteen children; a child whose encoding is shorter than a hash stands in
its parent, any other is named by its BLAKE2b-256 hash. State version 1 keeps values of more than 32 bytes apart, by their hash.
Source: polkadot-sdk, substrate/primitives/trie/src/node_codec.rs and node_header.rs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from validator.plugin.api import DecodeError, Reader, Writer
from validator_relay_chain.hashing import blake2b_256

HASH_BYTES: Final = 32
INLINE_VALUE_BYTES_MAX: Final = 32
"""Bytes of a value that state version 1 keeps in its node."""
DEPTH_MAX: Final = 512
"""Nodes between the root and a value: a key of 256 bytes has as many nibbles."""

_EMPTY: Final = b"\x00"


class ProofError(ValueError):
    """A proof does not lead from the root to the key."""


class _Kind(NamedTuple):
    """A kind of nodes: the bits that its header begins with, and how many bits of the header count nibbles."""

    prefix: int
    count_bits: int
    is_branch: bool = False
    has_value: bool = True
    is_hashed: bool = False


_LEAF: Final = _Kind(0b0100_0000, 6)
_LEAF_HASHED: Final = _Kind(0b0010_0000, 5, is_hashed=True)
_BRANCH: Final = _Kind(0b1000_0000, 6, is_branch=True, has_value=False)
_BRANCH_VALUE: Final = _Kind(0b1100_0000, 6, is_branch=True)
_BRANCH_HASHED: Final = _Kind(0b0001_0000, 4, is_branch=True, is_hashed=True)
_KINDS: Final = (_BRANCH_VALUE, _BRANCH, _LEAF, _LEAF_HASHED, _BRANCH_HASHED)
_KIND_OF: Final = {(each.is_branch, each.has_value, each.is_hashed): each for each in _KINDS}


class _Node(NamedTuple):
    partial: bytes
    """One nibble a byte."""
    value: bytes | None
    is_hashed: bool
    children: tuple[bytes | None, ...]
    """Sixteen of a branch: the hash, or the node itself if it is shorter; none of a leaf."""


# --- roots ---


def root_of(pairs: Mapping[bytes, bytes], version: int = 0, store: dict[bytes, bytes] | None = None) -> bytes:
    """Return the root of the trie with these values. ``store`` gets every node, and every value kept apart, by its hash."""
    kept = {} if store is None else store
    items = sorted((_nibbles(key), value) for key, value in pairs.items())
    encoded = _build(items, 0, version, kept) if items else _EMPTY
    root = blake2b_256(encoded)
    kept[root] = encoded
    return root


def ordered_root(values: Iterable[bytes], version: int = 0) -> bytes:
    """Return the root of a list: its keys are the places as compact integers. Headers have that of the block's extrinsics."""
    pairs = {}
    for index, value in enumerate(values):
        key = Writer()
        key.compact(index)
        pairs[bytes(key.buffer)] = value
    return root_of(pairs, version)


def _build(items: Sequence[tuple[bytes, bytes]], depth: int, version: int, store: dict[bytes, bytes]) -> bytes:
    """Return the encoding of the node that holds sorted items, which agree in their first ``depth`` nibbles."""
    first, last = items[0][0], items[-1][0]
    end = depth
    while end < len(first) and end < len(last) and first[end] == last[end]:
        end += 1
    if len(items) == 1:
        return _encode(first[depth:], items[0][1], (), version, store)
    own = items[0][1] if len(first) == end else None
    rest = items if own is None else items[1:]
    children: list[bytes | None] = [None] * 16
    start = 0
    while start < len(rest):
        nibble = rest[start][0][end]
        stop = start
        while stop < len(rest) and rest[stop][0][end] == nibble:
            stop += 1
        child = _build(rest[start:stop], end + 1, version, store)
        if len(child) >= HASH_BYTES:
            name = blake2b_256(child)
            store[name] = child
            child = name
        children[nibble] = child
        start = stop
    return _encode(first[depth:end], own, tuple(children), version, store)


def _encode(
    partial: bytes, value: bytes | None, children: tuple[bytes | None, ...], version: int, store: dict[bytes, bytes]
) -> bytes:
    hashed = value is not None and version >= 1 and len(value) > INLINE_VALUE_BYTES_MAX
    out = Writer()
    out.buffer += _header(_KIND_OF[bool(children), value is not None, hashed], len(partial))
    padded = (b"\x00" if len(partial) % 2 else b"") + partial
    out.buffer += bytes(high << 4 | low for high, low in zip(padded[::2], padded[1::2], strict=True))
    if children:
        out.buffer += sum(1 << at for at, child in enumerate(children) if child is not None).to_bytes(2, "little")
    if hashed and value is not None:
        name = blake2b_256(value)
        store[name] = value
        out.buffer += name
    elif value is not None:
        out.bytes(value)
    for child in children:
        if child is not None:
            out.bytes(child)
    return bytes(out.buffer)


def _header(kind: _Kind, count: int) -> bytes:
    most = (1 << kind.count_bits) - 1
    if count < most:
        return bytes((kind.prefix | count,))
    left = count - most
    return bytes((kind.prefix | most,)) + b"\xff" * (left // 255) + bytes((left % 255,))


# --- proofs ---


def read_proof(root: bytes, nodes: Iterable[bytes], keys: Iterable[bytes]) -> dict[bytes, bytes | None]:
    """Return the values that a proof (``state_getReadProof``) has under a root; None is proven absence.

    Raises `ProofError`: a node is missing, or malformed.
    """
    store = {blake2b_256(node): node for node in nodes}
    return {key: _look_up(root, store, key) for key in keys}


def make_proof(
    pairs: Mapping[bytes, bytes], keys: Iterable[bytes], version: int = 0
) -> tuple[bytes, tuple[bytes, ...]]:
    """Return the root of a trie and the nodes that prove some of its keys, as a node of the network would."""
    store: dict[bytes, bytes] = {}
    root = root_of(pairs, version, store)
    used: dict[bytes, bytes] = {}
    for key in keys:
        _look_up(root, store, key, used)
    return root, tuple(used.values())


def _look_up(
    root: bytes, store: Mapping[bytes, bytes], key: bytes, used: dict[bytes, bytes] | None = None
) -> bytes | None:
    def fetch(name: bytes) -> bytes:
        found = store.get(name)
        if found is None:
            raise ProofError(f"proof: node 0x{name.hex()} on the way to key 0x{key.hex()} is missing")
        if used is not None:
            used[name] = found
        return found

    left = _nibbles(key)
    encoded = fetch(root)
    for _ in range(DEPTH_MAX):
        node = _decode(encoded)
        if node is None or left[: len(node.partial)] != node.partial:
            return None
        left = left[len(node.partial) :]
        if not left:
            return fetch(node.value) if node.is_hashed and node.value is not None else node.value
        child = node.children[left[0]] if node.children else None
        if child is None:
            return None
        left = left[1:]
        encoded = fetch(child) if len(child) == HASH_BYTES else child
    raise ProofError(f"proof: key 0x{key.hex()} is deeper than {DEPTH_MAX} nodes")


def _decode(encoded: bytes) -> _Node | None:
    """Return a node, or None for the empty trie. Raises `ProofError`."""
    if encoded == _EMPTY:
        return None
    reader = Reader(encoded)
    try:
        first = reader.u8()
        kind = next((each for each in _KINDS if first >> each.count_bits == each.prefix >> each.count_bits), None)
        if kind is None:
            raise DecodeError(f"a node begins with 0x{first:02x}")
        count = first & ((1 << kind.count_bits) - 1)
        if count == (1 << kind.count_bits) - 1:
            more = 255
            while more == 255:
                more = reader.u8()
                count += more
        packed = _nibbles(reader.take((count + 1) // 2))
        bitmap = int.from_bytes(reader.take(2), "little") if kind.is_branch else 0
        value = None
        if kind.has_value:
            value = reader.take(HASH_BYTES) if kind.is_hashed else reader.bytes()
        children = tuple(reader.bytes() if bitmap >> at & 1 else None for at in range(16)) if kind.is_branch else ()
        reader.end()
    except DecodeError as error:
        raise ProofError(f"proof: a node is malformed: {error}") from error
    return _Node(packed[count % 2 :], value, kind.is_hashed, children)


def _nibbles(data: bytes) -> bytes:
    return bytes(nibble for byte in data for nibble in (byte >> 4, byte & 15))
