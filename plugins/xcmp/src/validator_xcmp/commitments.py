# SPDX-License-Identifier: Apache-2.0
"""The bytes that a sender commits to: hashes of payloads and batches, links of the message queue chain, leaves of the three trees.

Source: xcmp_rules 1.1 ("F-v1"). Encoding is SCALE, little endian; the hash is BLAKE2b with a digest of 32 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from validator.plugin.protocol_api import BlockNumber, Hash, ParaId, blake2b_256, compact, message_hash, mqc_link
from validator_xcmp.merkle import CST, MQR, MSG, leaf_hash, tree_root

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
