# SPDX-License-Identifier: Apache-2.0
"""Proofs over the channel state table, message roots and logical messages, and proofs of processing.

Every ``verify_`` function takes hostile input. Whatever a proof contains, the function either accepts or rejects it, at a cost in
proportion to the size of the proof and within `limits`. The values that the relay chain itself knows are trusted: roots, watermarks, ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from validator.plugin.protocol_api import U32_MAX, ZERO_HASH, BlockNumber, Hash, ParaId
from validator_xcmp.errors import (
    PovAheadRelayParent,
    PovBlocksNotDecreasing,
    PovBodyHashMismatch,
    PovBodyMissing,
    PovChainBroken,
    PovChainIncomplete,
    PovChainOverrun,
    PovCstProofInvalid,
    PovMissingSender,
    PovMqProofInvalid,
    PovRegressed,
    PovUnexpectedBody,
)
from validator_xcmp.limits import PROOF_BODY_BYTES_MAX, PROOF_BODY_PAYLOADS_MAX, PROOF_LINKS_MAX
from validator_xcmp.merkle import (
    CST,
    MQR,
    MSG,
    Path,
    batch_hash,
    cst_leaf,
    is_hash,
    mqr_leaf,
    msg_leaf,
    prove,
    verify,
    xcmp_link,
)
from validator_xcmp.records import Watermark
from validator_xcmp.state import Column

# --- rows, message roots, logical messages -----------------------------------------------------------------------------------------------


class RowProof(NamedTuple):
    """Proves that a sender's row has a column to the recipient with these values."""

    last_updated: BlockNumber
    message_root: Hash | None
    path: Path


class HeadProof(NamedTuple):
    """Proves that a message root covers this head of the channel to the recipient."""

    head: Hash
    path: Path


def prove_row(row: Sequence[Column], index: int) -> RowProof:
    """Return the proof of a row's column. Raises ``IndexError``."""
    path = prove([cst_leaf(column.recipient, column.last_updated, column.message_root) for column in row], index)
    return RowProof(row[index].last_updated, row[index].message_root, path)


def verify_row(cst_root: Hash, recipient: ParaId, proof: RowProof) -> bool:
    """Return whether the row with this root has the proof's column at the proof's index."""
    if not isinstance(proof, RowProof) or not _is_u32(proof.last_updated):
        return False
    if proof.message_root is not None and not is_hash(proof.message_root):
        return False
    return verify(CST, cst_root, cst_leaf(recipient, proof.last_updated, proof.message_root), proof.path)


def prove_head(heads: Mapping[ParaId, Hash], recipient: ParaId) -> HeadProof:
    """Return the proof of one recipient's head among all heads of a candidate. Raises ``KeyError``."""
    recipients = sorted(heads)
    head = heads[recipient]
    return HeadProof(head, prove([mqr_leaf(para, heads[para]) for para in recipients], recipients.index(recipient)))


def verify_head(message_root: Hash, recipient: ParaId, proof: HeadProof) -> bool:
    """Return whether the message root covers the proof's head for this recipient."""
    if not isinstance(proof, HeadProof) or not is_hash(proof.head):
        return False
    return verify(MQR, message_root, mqr_leaf(recipient, proof.head), proof.path)


def prove_payload(payloads: Sequence[bytes], index: int) -> Path:
    """Return the proof of one payload of a logical message. Raises ``IndexError``."""
    return prove([msg_leaf(payload) for payload in payloads], index)


def verify_payload(root: Hash, payload: bytes, proof: Path) -> bool:
    """Return whether the logical message with this root has the payload at the proof's index."""
    return type(payload) is bytes and verify(MSG, root, msg_leaf(payload), proof)


HashBatch: TypeAlias = Callable[[Sequence[bytes]], Hash]
"""H(batch) of a logical message's payloads."""

# --- proof of processing -----------------------------------------------------------------------------------------------------------------


class Link(NamedTuple):
    """A link of a channel's message queue chain: the inputs of its head."""

    prev_head: Hash
    prev_block: BlockNumber
    msg_hash: Hash


class SenderProof(NamedTuple):
    """The part of a proof that concerns one sender.

    ``head`` is present if something in the channel is unread. ``links`` go from the newest message back to the old watermark. ``bodies``
    are the payloads of each logical message up to the new watermark, by the height at which it was enacted.
    """

    row: RowProof
    head: HeadProof | None = None
    links: tuple[Link, ...] = ()
    bodies: Mapping[BlockNumber, tuple[bytes, ...]] = MappingProxyType({})


class ProcessingContext(NamedTuple):
    """The relay chain's values at the relay parent of the recipient's candidate.

    ``senders`` are all senders with a column to the recipient, ``cst_roots`` the roots of their rows. ``old_watermark`` is None if the
    recipient never had one.
    """

    recipient: ParaId
    relay_parent_number: BlockNumber
    old_watermark: Watermark | None
    new_watermark: Watermark
    senders: tuple[ParaId, ...]
    cst_roots: Mapping[ParaId, Hash]


class Message(NamedTuple):
    """A logical message that a recipient processes."""

    block: BlockNumber
    sender: ParaId
    payloads: tuple[bytes, ...]


def verify_processing(
    context: ProcessingContext, proof: Mapping[ParaId, SenderProof | None], hash_batch: HashBatch = batch_hash
) -> list[Message]:
    """Return exactly the logical messages between the old and the new watermark, in order of (block, sender).

    Raises `PovAheadRelayParent`, `PovRegressed`, `PovMissingSender` (the first sender, ascending, that the proof leaves out), then for each
    sender ascending `PovCstProofInvalid`, `PovMqProofInvalid`; for each link from the newest `PovChainBroken`, `PovBlocksNotDecreasing`;
    then `PovChainIncomplete`, `PovChainOverrun`; for each message ascending `PovBodyMissing`, `PovBodyHashMismatch`; then
    `PovUnexpectedBody`; finally `PovCstProofInvalid` for the lowest sender without a column to the recipient. ``hash_batch`` is H(batch),
    the hash of a logical message in its channel's chain. Source: xcmp_rules 1.2 "proof of
    processing".
    """
    new, old = context.new_watermark, context.old_watermark
    if new[0] > context.relay_parent_number:
        raise PovAheadRelayParent
    if old is not None and new < old:
        raise PovRegressed
    senders = sorted(dict.fromkeys(context.senders))
    if not isinstance(proof, Mapping):
        raise PovMissingSender(min(senders, default=None))
    parts: dict[ParaId, SenderProof] = {}
    for sender in senders:
        part = proof.get(sender)
        if not isinstance(part, SenderProof):
            raise PovMissingSender(sender)
        parts[sender] = part
    messages = [
        message for sender, part in parts.items() for message in _verify_sender(context, sender, part, hash_batch)
    ]
    if len(proof) > len(senders):
        raise PovCstProofInvalid(_lowest(sender for sender in proof if sender not in parts))
    return sorted(messages)


class SenderHistory(NamedTuple):
    """What a recipient must know about a sender to prove what it processes.

    ``row`` has the sender's columns at the relay parent. ``heads`` are the commitments of its newest candidate with a message to the
    recipient. ``messages`` are the channel's logical messages ``(block, payloads)``, oldest first. Before the first of them, the channel's
    head was ``base_head``, of a message enacted at ``base_block``.
    """

    row: Sequence[Column]
    heads: Mapping[ParaId, Hash] = MappingProxyType({})
    messages: tuple[tuple[BlockNumber, tuple[bytes, ...]], ...] = ()
    base_head: Hash = ZERO_HASH
    base_block: BlockNumber = 0


def prove_processing(
    context: ProcessingContext, histories: Mapping[ParaId, SenderHistory], hash_batch: HashBatch = batch_hash
) -> dict[ParaId, SenderProof | None]:
    """Return the proof of processing for everything up to the new watermark. Raises ``KeyError`` for a sender without a history."""
    return {sender: _prove_sender(context, sender, histories[sender], hash_batch) for sender in context.senders}


def _prove_sender(
    context: ProcessingContext, sender: ParaId, history: SenderHistory, hash_batch: HashBatch
) -> SenderProof:
    row = prove_row(history.row, [column.recipient for column in history.row].index(context.recipient))
    if row.message_root is None or _covers(context.old_watermark, row.last_updated, sender):
        return SenderProof(row)
    links: list[Link] = []
    bodies: dict[BlockNumber, tuple[bytes, ...]] = {}
    head, previous = history.base_head, history.base_block
    for block, payloads in history.messages:
        link = Link(head, previous, hash_batch(payloads))
        head, previous = xcmp_link(*link), block
        if not _covers(context.old_watermark, block, sender):
            links.append(link)
            if _covers(context.new_watermark, block, sender):
                bodies[block] = payloads
    return SenderProof(row, prove_head(history.heads, context.recipient), tuple(reversed(links)), bodies)


def _verify_sender(
    context: ProcessingContext, sender: ParaId, proof: SenderProof, hash_batch: HashBatch
) -> list[Message]:
    row = proof.row
    root = context.cst_roots.get(sender)
    if root is None or not verify_row(root, context.recipient, row):
        raise PovCstProofInvalid(sender)
    unread = row.message_root is not None and not _covers(context.old_watermark, row.last_updated, sender)
    head = proof.head
    # an unneeded head is still a claim, so check it
    if head is None:
        if unread:
            raise PovMqProofInvalid(sender)
    elif row.message_root is None or not verify_head(row.message_root, context.recipient, head):
        raise PovMqProofInvalid(sender)
    if not isinstance(proof.links, tuple):
        raise PovChainBroken(sender, depth=0)
    opened = [] if head is None or not unread else _open_chain(context, sender, head.head, proof)
    if len(proof.links) > len(opened):
        raise PovChainOverrun(sender, depth=len(opened))
    return _verify_bodies(context, sender, opened, proof.bodies, hash_batch)


def _open_chain(
    context: ProcessingContext, sender: ParaId, head: Hash, proof: SenderProof
) -> list[tuple[BlockNumber, Hash]]:
    """Return the ``(block, hash)`` of the channel's messages above the old watermark, newest first."""
    opened = []
    block = proof.row.last_updated
    for depth, link in enumerate(proof.links[:PROOF_LINKS_MAX]):
        if not _is_link(link) or xcmp_link(*link) != head:
            raise PovChainBroken(sender, depth=depth)
        if link.prev_block >= block:
            raise PovBlocksNotDecreasing(sender, depth=depth)
        opened.append((block, link.msg_hash))
        head, block = link.prev_head, link.prev_block
        # the first message of a channel names block 0 as the block of its predecessor
        if block == 0 or _covers(context.old_watermark, block, sender):
            return opened
    raise PovChainIncomplete(sender)


def _verify_bodies(
    context: ProcessingContext,
    sender: ParaId,
    opened: list[tuple[BlockNumber, Hash]],
    bodies: Mapping[BlockNumber, tuple[bytes, ...]],
    hash_batch: HashBatch,
) -> list[Message]:
    if not isinstance(bodies, Mapping):
        raise PovUnexpectedBody(sender)
    messages = []
    for block, hashed in reversed(opened):
        if not _covers(context.new_watermark, block, sender):
            break
        body = bodies.get(block)
        if body is None:
            raise PovBodyMissing(sender, block=block)
        if not _is_body(body) or hash_batch(body) != hashed:
            raise PovBodyHashMismatch(sender, block=block)
        messages.append(Message(block, sender, body))
    if len(bodies) > len(messages):
        taken = dict.fromkeys(message.block for message in messages)
        raise PovUnexpectedBody(sender, block=_lowest(block for block in bodies if block not in taken))
    return messages


def _covers(watermark: Watermark | None, block: BlockNumber, sender: ParaId) -> bool:
    return watermark is not None and (block, sender) <= watermark


def _lowest(numbers: Iterable[object]) -> int | None:
    """Return the lowest u32, or None if there is none: the keys of a proof may be anything."""
    return min((number for number in numbers if type(number) is int and 0 <= number <= U32_MAX), default=None)


def _is_u32(value: object) -> bool:
    return type(value) is int and 0 <= value <= U32_MAX


def _is_link(value: object) -> bool:
    return (
        isinstance(value, Link) and is_hash(value.prev_head) and _is_u32(value.prev_block) and is_hash(value.msg_hash)
    )


def _is_body(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) <= PROOF_BODY_PAYLOADS_MAX
        and all(type(payload) is bytes for payload in value)
        and sum(map(len, value)) <= PROOF_BODY_BYTES_MAX
    )
