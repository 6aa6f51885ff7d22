# SPDX-License-Identifier: Apache-2.0
"""Commitments of XCMP channels: hashes, Merkle trees and proofs, and the roots of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from validator.plugin.protocol_api import BlockNumber, Hash, ParaId, blake2b_256, compact, message_hash, mqc_link
from validator_xcmp import limits
from validator_xcmp.limits import PROOF_PATH_HASHES_MAX, TREE_LEAVES_MAX

if TYPE_CHECKING:
    from validator_xcmp.state import Column


# --- merkle ---------------------------------------------------------------------------------------------------------------------------


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


# --- commitments ----------------------------------------------------------------------------------------------------------------------
# The bytes that a sender commits to: hashes of payloads and batches, links of the message queue chain, leaves of the three trees.
#
# Source: xcmp_rules 1.1 ("F-v1"). Encoding is SCALE, little endian; the hash is BLAKE2b with a digest of 32 bytes.


__all__ = [
    "batch_hash",
    "cst_leaf",
    "hrmp_link",
    "message_hash",
    "mq_root",
    "mqr_leaf",
    "msg_leaf",
    "msg_root",
    "xcmp_link",
]


def batch_hash(payloads: Sequence[bytes]) -> Hash:
    """Return H(batch): the hash of a logical message, which is all payloads from one sender to one recipient in one block."""
    return blake2b_256(compact(len(payloads)) + b"".join(compact(len(payload)) + payload for payload in payloads))


def hrmp_link(prev_head: Hash, block: BlockNumber, hashed_message: Hash) -> Hash:
    """Return the head after an HRMP or downward message; ``block`` is the height at which **this** message is enqueued."""
    return mqc_link(prev_head, block, hashed_message)


def xcmp_link(prev_head: Hash, prev_block: BlockNumber, hashed_batch: Hash) -> Hash:
    """Return the head after an XCMP message.

    ``prev_block`` is the height at which the **previous** message of the channel was enacted, 0 for the first. A sender computes the link
    before it knows the height of this message, which only the channel state table records later.
    """
    return blake2b_256(prev_head + prev_block.to_bytes(4, "little") + hashed_batch)


def cst_leaf(recipient: ParaId, last_updated: BlockNumber, message_root: Hash | None) -> Hash:
    """Return the leaf of a column. It contains the recipient, so a shifted index can never prove another channel."""
    root = b"\x00" if message_root is None else b"\x01" + message_root
    return leaf_hash(CST, recipient.to_bytes(4, "little") + last_updated.to_bytes(4, "little") + root)


def mqr_leaf(recipient: ParaId, head: Hash) -> Hash:
    """Return the leaf for the head of one channel's message queue chain."""
    return leaf_hash(MQR, recipient.to_bytes(4, "little") + head)


def mq_root(heads: Mapping[ParaId, Hash]) -> Hash:
    """Return the ``sender_message_queue_merkle_root`` over a candidate's heads by recipient; leaves are in ascending order."""
    return tree_root(MQR, [mqr_leaf(recipient, heads[recipient]) for recipient in sorted(heads)])


def msg_leaf(payload: bytes) -> Hash:
    """Return the leaf of one payload of a logical message."""
    return leaf_hash(MSG, compact(len(payload)) + payload)


def msg_root(payloads: Sequence[bytes]) -> Hash:
    """Return the root over the payloads of a logical message, in order."""
    return tree_root(MSG, [msg_leaf(payload) for payload in payloads])


# --- row trees ------------------------------------------------------------------------------------------------------------------------
# Roots of rows. The nodes of long rows are cached, so a change costs only its paths, not the full row.
#
# The cache is derived from the rows and is not part of the state.


def row_root(row: Sequence[Column]) -> Hash:
    """Return the root over a row's columns."""
    return tree_root(CST, list(map(_leaf, row)))


class RowTrees:
    """A cache of the nodes of long rows, with at most `limits.ROW_TREES_COLUMNS_MAX` columns in total."""

    __slots__ = ("_trees", "columns")

    def __init__(self) -> None:
        self._trees: dict[ParaId, Tree] = {}
        self.columns = 0

    def root(self, sender: ParaId, row: Sequence[Column], changed: Sequence[int]) -> Hash:
        """Return a row's root. Only the ``changed`` columns may differ from the last call for this sender, unless `forget` came between."""
        if len(row) < limits.ROW_TREE_COLUMNS_MIN:
            return row_root(row)
        tree = self._trees.pop(sender, None)
        if tree is None:
            tree = Tree(list(map(_leaf, row)))
            self.columns += len(tree)
        else:
            tree.replace((index, _leaf(row[index])) for index in changed)
        self._trees[sender] = tree
        while self.columns > limits.ROW_TREES_COLUMNS_MAX and len(self._trees) > 1:
            self.forget(next(iter(self._trees)))
        return tree.root(CST)

    def forget(self, sender: ParaId) -> None:
        """Drop the nodes of a row whose columns were added, removed or moved."""
        tree = self._trees.pop(sender, None)
        if tree is not None:
            self.columns -= len(tree)


def _leaf(column: Column) -> Hash:
    return cst_leaf(column.recipient, column.last_updated, column.message_root)
