# SPDX-License-Identifier: Apache-2.0
"""The Merkle trees of XCMP: the shape of RFC 9162 over BLAKE2b-256, with tagged leaves and a root that binds the number of leaves.

| what | hashed bytes |
|---|---|
| leaf | ``00 ++ tag[8] ++ 01 ++ data`` |
| node | ``01 ++ left ++ right`` |
| root | ``02 ++ tag[8] ++ 01 ++ u32_le(leaves) ++ MTH(leaves)``, where MTH of no leaves is the hash of the empty string |

The 01 after a tag is the format's version. Without the count in the root, a proof would verify under many other pairs of index and size:
RFC 9162 signs the size in the tree head, but nothing signs it here. Source: xcmp_rules 1.1 (X-I13).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from validator.plugin.protocol_api import Hash, blake2b_256
from validator_xcmp.limits import PROOF_PATH_HASHES_MAX, TREE_LEAVES_MAX

CST: Final = b"xcmp/cst"
"""Tag of the tree over a row of the channel state table."""
MQR: Final = b"xcmp/mqr"
"""Tag of the tree over the message queue heads of one candidate."""
MSG: Final = b"xcmp/msg"
"""Tag of the tree over the payloads of one logical message."""
TAGS: Final = (CST, MQR, MSG)

HASH_SIZE: Final = 32
"""Bytes of a hash."""
_VERSION: Final = b"\x01"
_LEAF: Final = b"\x00"
_NODE: Final = b"\x01"
_ROOT: Final = b"\x02"


class Path(NamedTuple):
    """A leaf's index in a tree of ``size`` leaves, and the siblings on its path to the root, from the bottom."""

    index: int  # type: ignore[assignment]  # shadows tuple.index
    size: int
    siblings: tuple[Hash, ...]


def leaf_hash(tag: bytes, data: bytes) -> Hash:
    """Return the hash of a leaf."""
    return blake2b_256(_LEAF + tag + _VERSION + data)


def tree_root(tag: bytes, leaves: Sequence[Hash]) -> Hash:
    """Return the root over leaf hashes; the sequence may be empty."""
    return _root(tag, len(leaves), _tree_hash(leaves))


class Tree:
    """A tree that stores all its nodes, so replacing a leaf costs only the hashes of its path."""

    __slots__ = ("_levels",)

    def __init__(self, leaves: Sequence[Hash]) -> None:
        """Build the tree over one or more leaf hashes."""
        self._levels = [list(leaves)]
        while len(self._levels[-1]) > 1:
            self._levels.append(_level_above(self._levels[-1]))

    def __len__(self) -> int:
        """Return the number of leaves."""
        return len(self._levels[0])

    def replace(self, leaves: Iterable[tuple[int, Hash]]) -> None:
        """Replace the hashes of existing leaves, given as ``(index, hash)``."""
        changed = set()
        for index, leaf in leaves:
            self._levels[0][index] = leaf
            changed.add(index >> 1)
        for below, level in pairwise(self._levels):
            for at in changed:
                pair = below[2 * at : 2 * at + 2]
                level[at] = _node(*pair) if len(pair) == 2 else pair[0]
            changed = {at >> 1 for at in changed}

    def root(self, tag: bytes) -> Hash:
        """Return the root that binds the number of leaves."""
        return _root(tag, len(self), self._levels[-1][0])


def prove(leaves: Sequence[Hash], index: int) -> Path:
    """Return the path of a leaf. Raises ``IndexError`` if there is no such leaf."""
    if not 0 <= index < len(leaves):
        raise IndexError(f"leaf: expected 0 to {len(leaves) - 1}, found {index}")
    siblings = []
    level, at = list(leaves), index
    while len(level) > 1:
        if at ^ 1 < len(level):
            siblings.append(level[at ^ 1])
        level, at = _level_above(level), at >> 1
    return Path(index, len(leaves), tuple(siblings))


def verify(tag: bytes, root: Hash, leaf: Hash, path: Path) -> bool:
    """Return whether the tree with this root has exactly the path's size and has the leaf at the path's index.

    ``leaf`` and ``path`` may hold any values: those that are not a u32, 32 bytes or a tuple of these prove nothing. The cost is at most
    `limits.PROOF_PATH_HASHES_MAX` + 1 hashes. Source: RFC 9162 2.1.3.2.
    """
    if tag not in TAGS or not is_hash(root) or not is_hash(leaf) or not isinstance(path, Path):
        return False
    index, size, siblings = path
    if not (_is_u32(index) and _is_u32(size) and index < size and isinstance(siblings, tuple)):
        return False
    if len(siblings) > PROOF_PATH_HASHES_MAX or not all(map(is_hash, siblings)):
        return False
    at, last, top = index, size - 1, leaf
    for sibling in siblings:
        if last == 0:
            return False
        if at & 1 or at == last:
            top = _node(sibling, top)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            top = _node(top, sibling)
        at, last = at >> 1, last >> 1
    return last == 0 and _root(tag, size, top) == root


def is_hash(value: object) -> bool:
    """Return whether a value is 32 bytes."""
    return type(value) is bytes and len(value) == HASH_SIZE


def _is_u32(value: object) -> bool:
    return type(value) is int and 0 <= value <= TREE_LEAVES_MAX


def _tree_hash(leaves: Sequence[Hash]) -> Hash:
    if not leaves:
        return blake2b_256(b"")
    level = list(leaves)
    while len(level) > 1:
        level = _level_above(level)
    return level[0]


def _level_above(level: list[Hash]) -> list[Hash]:
    """Return the level above. An odd node moves up unchanged, which equals RFC 9162's split at the largest power of two."""
    above = [_node(level[at], level[at + 1]) for at in range(0, len(level) - 1, 2)]
    if len(level) % 2:
        above.append(level[-1])
    return above


def _node(left: Hash, right: Hash) -> Hash:
    return blake2b_256(_NODE + left + right)


def _root(tag: bytes, size: int, top: Hash) -> Hash:
    return blake2b_256(_ROOT + tag + _VERSION + size.to_bytes(4, "little") + top)
