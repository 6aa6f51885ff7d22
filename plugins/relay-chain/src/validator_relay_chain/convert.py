# SPDX-License-Identifier: Apache-2.0
"""Turns blocks into a lane's records, one block after the other, and the position after each.

No clock, no randomness and no connection: what a block needs of storage comes through `BlockReads`. The same block after the same position
gives the same records, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from validator.plugin.api import Writer
from validator_relay_chain.block import ChainBlock, Receipt
from validator_relay_chain.block_reads import BlockReads
from validator_relay_chain.candidates import BackedCandidate
from validator_relay_chain.channels import Found, JsonRecord, find, requests_of
from validator_relay_chain.errors import BadAnswer, ChainContradiction, UndecodableBlock
from validator_relay_chain.hashing import blake2b_256
from validator_relay_chain.header import to_hex
from validator_relay_chain.limits import NUMBERS_MAX, PENDING_MAX, RECENT_HASHES
from validator_relay_chain.metadata import Runtime
from validator_relay_chain.position import Pending, Position
from validator_relay_chain.rules import CONFIGURATION, SIGNALS, changed_limits
from validator_relay_chain.storage import ChannelId, Queued, para_changes

ZERO: Final = bytes(32)


@dataclass(frozen=True, slots=True)
class DownwardSent:
    """A downward message that a block queued."""

    para_id: int
    msg: bytes


@dataclass(frozen=True, slots=True)
class Step:
    """A converted block: the records in the order in which they are sent, and the position after them."""

    block: ChainBlock
    records: tuple[tuple[str, JsonRecord], ...]
    position: Position
    notices: tuple[str, ...]
    """What somebody should know, one line each."""
    unread: tuple[str, ...]
    """What of the chain the block changed and nobody could decode: the lane continues without it."""
    included_known: tuple[tuple[int, bool], ...]
    """Para of each inclusion, and whether the lane has its candidate."""
    timed_out_known: tuple[tuple[int, bool], ...]
    downward: tuple[DownwardSent, ...]
    without_event: tuple[tuple[ChannelId, bool], ...] = ()
    """Channels that were found in storage alone, and whether each has opened."""
    downward_resets: tuple[int, ...] = ()
    """Paras whose downward head is proven and does not follow from messages."""


def convert(
    lane: str,
    position: Position,
    block: ChainBlock,
    runtime: Runtime,
    reads: BlockReads,
    *,
    believes_heads: bool = False,
    features: Collection[str] = (),
) -> Step:
    """Return the records of the block after a position.

    A head of a downward queue follows from its messages, or is proven by the state root; with ``believes_heads`` neither is needed: a
    simulator may take messages in the block that sends them.
    ``features`` names what the lane's rules know: with signals, a candidate's upward messages are sent as they are.

    A session change drops all pending candidates at the end of its block, without an event: they have timed out in the next block's record.
    Raises `BadAnswer` if it is not the next block, or if a node's storage contradicts itself; `ChainContradiction` for what the chain
    cannot have done; `NodeError`.
    """
    _check_next(position, block)
    number = block.number
    notices: list[str] = []
    pending = _Waiting(position.pending)
    included, gone = _include(pending, block.included)
    timed_out = [pending.take(each) for each in block.timed_out]
    gone += pending.clear() if position.new_session else _replaced(pending, block, runtime)
    for candidate in block.candidates:
        pending.add(Pending(candidate.para_id, candidate.commitments_hash, number))
    if block.dropped:
        notices.append(f"block {number}: the runtime dropped {block.dropped} candidates of the inherent")
    requests, unread = requests_of(block.channel_events)
    unread += block.unread
    notices += [f"block {number}: {each} has no record: compare the lane with the chain" for each in unread]
    lifecycles = reads.lifecycles() if block.new_session else position.lifecycles
    hidden = _hidden(position, block, requests, lifecycles, reads, features)
    requests = [*hidden.before, *requests, *hidden.requests]
    notices += hidden.notices
    configuration = position.configuration
    if block.new_session:
        try:
            configuration = reads.configuration()
        except UndecodableBlock as error:
            notices.append(f"block {number}: {error}: the lane keeps the limits that it has")
            unread.append(CONFIGURATION)
    downward = _downward(position, lifecycles, number, reads, believes_heads=believes_heads)
    sent = downward.sent
    notices += downward.notices
    record: JsonRecord = {
        "lane": lane,
        "block": number,
        "parent_number": None,
        "block_hash": block.header.hash.hex(),
        "candidates": len(block.candidates),
        "requests": len(requests),
        "downward": len(sent),
        "included": [_ref(each) for each in included if each is not None],
        "timed_out": [_ref(each) for each in (*timed_out, *gone) if each is not None],
        "session_change": _session_change(position, lifecycles, configuration) if block.new_session else None,
    }
    parents = relay_parents(position, number, (each.relay_parent for each in block.candidates), reads.header_number)
    place = {"lane": lane, "block": number}
    records: list[tuple[str, JsonRecord]] = [
        *(("candidates", candidate_record(
            lane, number, index, each, parents.numbers[each.relay_parent], sends_signals=SIGNALS in features))
          for index, each in enumerate(block.candidates)),
        *(("channel-requests", place | {"index": index} | each) for index, each in enumerate(requests)),
        *(("downward-messages", place | {"index": index, "para_id": each.para_id, "msg": each.msg.hex()})
          for index, each in enumerate(sent)),
        ("blocks", record),
    ]  # fmt: skip
    notices += _unknown(number, block.included, included, "included")
    after = Position(
        position.genesis,
        number,
        block.header.hash,
        runtime.spec_name,
        runtime.spec_version,
        block.header.updates_runtime,
        block.new_session,
        (*position.recent, block.header.hash)[-RECENT_HASHES:],
        pending.left(),
        lifecycles,
        configuration,
        downward.heads,
        hidden.after,
        parents.kept,
    )
    return Step(
        block,
        tuple(records),
        after,
        tuple(notices),
        tuple(unread),
        _known(block.included, included),
        _known(block.timed_out, timed_out),
        tuple(sent),
        hidden.late,
        tuple(downward.resets),
    )


def candidate_record(
    lane: str,
    block: int,
    index: int,
    candidate: BackedCandidate,
    relay_parent_number: int,
    *,
    sends_signals: bool,
) -> JsonRecord:
    """Return the record of a candidate, with signals among its upward messages or without."""
    upward = candidate.upward_messages if sends_signals else candidate.upward_messages[: candidate.messages]
    return {
        "lane": lane,
        "block": block,
        "index": index,
        "para_id": candidate.para_id,
        "relay_parent_number": relay_parent_number,
        "hrmp_watermark": candidate.hrmp_watermark,
        "upward_messages": [each.hex() for each in upward],
        "processed_downward_messages": candidate.processed_downward_messages,
        "horizontal_messages": [
            {"recipient": each.recipient, "data": each.data.hex()} for each in candidate.horizontal_messages
        ],
        "candidate_hash": candidate.candidate_hash.hex(),
    }


def link(head: bytes, block: int, msg: bytes) -> bytes:
    """Return the head of a downward queue after a message. Source: polkadot-sdk, dmp.rs ``queue_downward_message``."""
    encoded = Writer()
    encoded.bytes(msg)
    out = Writer()
    out.hash(head)
    out.u32(block)
    out.hash(blake2b_256(bytes(encoded.buffer)))
    return blake2b_256(bytes(out.buffer))


def _check_next(position: Position, block: ChainBlock) -> None:
    if block.number != position.number + 1 or block.header.parent_hash != position.hash:
        raise BadAnswer(
            f"block {block.number} {to_hex(block.header.hash)}: expected a child of block {position.number} {to_hex(position.hash)}, "
            f"found one of {to_hex(block.header.parent_hash)}"
        )


class _Waiting:
    """The candidates that wait for availability, in the order in which they were backed."""

    def __init__(self, pending: Iterable[Pending]) -> None:
        self._pending = {(each.para_id, each.commitments_hash): each for each in pending}

    def take(self, receipt: Receipt) -> Pending | None:
        """Remove a candidate, or return None if the lane never had it."""
        return self._pending.pop((receipt.para_id, receipt.commitments_hash), None)

    def of(self, para_id: int) -> list[Pending]:
        """Return a para's candidates."""
        return [each for each in self._pending.values() if each.para_id == para_id]

    def drop(self, pending: Pending) -> None:
        """Remove a candidate."""
        del self._pending[pending.para_id, pending.commitments_hash]

    def add(self, pending: Pending) -> None:
        """Add a candidate. Raises `ChainContradiction` if there are too many."""
        if len(self._pending) >= PENDING_MAX:
            raise ChainContradiction(f"block {pending.backed_at}: expected at most {PENDING_MAX} pending candidates")
        self._pending[pending.para_id, pending.commitments_hash] = pending

    def clear(self) -> list[Pending]:
        """Remove and return all candidates."""
        found = list(self._pending.values())
        self._pending.clear()
        return found

    def left(self) -> tuple[Pending, ...]:
        """Return what waits."""
        return tuple(self._pending.values())


def _include(pending: _Waiting, receipts: Iterable[Receipt]) -> tuple[list[Pending | None], list[Pending]]:
    """Remove the candidates that were included, and the older ones of their paras: a dispute must have taken those, without an event."""
    included: list[Pending | None] = []
    gone: list[Pending] = []
    for receipt in receipts:
        older = pending.of(receipt.para_id)
        found = pending.take(receipt)
        included.append(found)
        for each in older[: older.index(found)] if found is not None else ():
            pending.drop(each)
            gone.append(each)
    return included, gone


def _replaced(pending: _Waiting, block: ChainBlock, runtime: Runtime) -> list[Pending]:
    """Remove and return what is still pending although the next candidate of its para is backed.

    A dispute must have taken it, without an event. Runtimes with a queue of pending candidates for each para back several.
    """
    if runtime.has("ParaInclusion", "V1"):
        return []
    found = []
    for candidate in block.candidates:
        for each in pending.of(candidate.para_id):
            pending.drop(each)
            found.append(each)
    return found


def _ref(pending: Pending) -> JsonRecord:
    return {"para_id": pending.para_id, "backed_at": pending.backed_at}


def _known(receipts: Sequence[Receipt], found: Sequence[Pending | None]) -> tuple[tuple[int, bool], ...]:
    return tuple((receipt.para_id, pending is not None) for receipt, pending in zip(receipts, found, strict=True))


def _unknown(number: int, receipts: Sequence[Receipt], found: Sequence[Pending | None], what: str) -> list[str]:
    return [
        f"block {number}: para {receipt.para_id}: a candidate was {what} that the lane does not have"
        for receipt, pending in zip(receipts, found, strict=True)
        if pending is None
    ]


@dataclass(slots=True)
class _Downward:
    """The heads of downward queues after a block, and what moved them."""

    heads: dict[int, bytes]
    sent: list[DownwardSent] = field(default_factory=list)
    resets: list[int] = field(default_factory=list)
    """Paras whose head does not follow from messages."""
    notices: list[str] = field(default_factory=list)


def _downward(
    position: Position, lifecycles: Mapping[int, int], number: int, reads: BlockReads, *, believes_heads: bool
) -> _Downward:
    """Return the heads after the block and the messages that moved them, para by para.

    A message is one of this block's if its queue entry says so. The old head, linked over these messages, must be the new head. Where it
    is not, both are read again with their proof: what is proven is believed. Raises `BadAnswer` if nothing proves it.
    """
    para_ids = sorted({*position.lifecycles, *lifecycles, *position.heads})
    found = _Downward(dict(reads.heads(para_ids)))
    if found.heads == position.heads:
        return found
    for para_id in para_ids:
        new, old = found.heads.get(para_id, ZERO), position.heads.get(para_id, ZERO)
        if new == old or (new == ZERO and para_id not in lifecycles):
            continue
        messages = _sent(number, reads.queue(para_id))
        if (linked := _linked(old, number, messages)) != new:
            proven = reads.proven_downward(para_id)
            text = (
                f"block {number}: downward queue of para {para_id}: expected messages that lead to head {to_hex(new)}, found "
                f"{len(messages)} that lead to {to_hex(linked)}"
            )
            if proven is None and not believes_heads:
                raise BadAnswer(text)
            if proven is None:
                found.notices.append(f"{text}: the head of the simulator is believed")
            else:
                new, messages = proven[0] or ZERO, _sent(number, proven[1])
                _set_head(found.heads, para_id, new)
                if _linked(old, number, messages) != new:
                    found.resets.append(para_id)
                    found.notices.append(f"{text}: the state root proves the head, and the lane continues without it")
        found.sent += [DownwardSent(para_id, msg) for msg in messages]
    return found


def _sent(number: int, queue: Iterable[Queued]) -> list[bytes]:
    return [each.msg for each in queue if each.sent_at == number]


def _linked(head: bytes, number: int, messages: Iterable[bytes]) -> bytes:
    for msg in messages:
        head = link(head, number, msg)
    return head


def _set_head(heads: dict[int, bytes], para_id: int, head: bytes) -> None:
    if head == ZERO:
        heads.pop(para_id, None)
    else:
        heads[para_id] = head


def _hidden(
    position: Position,
    block: ChainBlock,
    requests: Sequence[JsonRecord],
    lifecycles: Mapping[int, int],
    reads: BlockReads,
    features: Collection[str],
) -> Found:
    """Return the changes of channels that the block's events do not show."""
    leaving = para_changes(position.lifecycles, lifecycles)[0] if block.new_session else None
    return find(block.number, position.channels, requests, block.candidates, reads, features, leaving)


def _session_change(position: Position, lifecycles: Mapping[int, int], configuration: Mapping[str, int]) -> JsonRecord:
    outgoing, onboarding = para_changes(position.lifecycles, lifecycles)
    config = changed_limits(position.configuration, configuration)
    return {"outgoing": outgoing, "onboarding": onboarding, "new_config": config or None}


class RelayParents(NamedTuple):
    """The relay parents of a block's candidates."""

    numbers: dict[bytes, int]
    kept: dict[bytes, int]
    """Those that are not recent, of earlier blocks, too, the oldest first."""


def relay_parents(position: Position, block: int, wanted: Iterable[bytes], ask: Callable[[bytes], int]) -> RelayParents:
    """Return the numbers of the relay parents of the block after a position.

    ``ask`` is called once for each that the position does not know.
    """
    numbers: dict[bytes, int] = {}
    kept = dict(position.parents)
    for parent in wanted:
        if parent in numbers:
            continue
        known = position.number_of(parent)
        numbers[parent] = ask(parent) if known is None else known
        if known is None:
            kept[parent] = numbers[parent]
    youngest = sorted((number, parent) for parent, number in kept.items() if number >= block - NUMBERS_MAX)
    return RelayParents(numbers, {parent: number for number, parent in youngest[-NUMBERS_MAX:]})
