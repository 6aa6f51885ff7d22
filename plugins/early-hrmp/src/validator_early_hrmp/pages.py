# SPDX-License-Identifier: Apache-2.0
"""Canonical bytes of a state, in pages: one for each para with what it owns, one for what nobody owns.

A para owns its account, its pending candidates, its downward queue and watermark, and the channels that lead to it. What can be recomputed
(uses of channels, counts, indexes) is left out and recomputed on loading. Strict: what `encode_para_page` would not write is damage.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import astuple
from itertools import pairwise
from typing import Final

from validator.plugin.api import (
    Account,
    Balances,
    BlockNumber,
    ChannelId,
    DecodeError,
    ParaId,
    PendingCandidate,
    Reader,
    Upgrade,
    Writer,
    upgraded,
)
from validator_early_hrmp.configuration import MAXIMA, EarlyHrmpConfiguration
from validator_early_hrmp.records import Candidate, HrmpMessage
from validator_early_hrmp.state import (
    Channel,
    CloseRequest,
    EarlyHrmpState,
    OpenRequest,
    QueuedMessage,
    QueueTail,
    Touched,
    add_channel,
    add_close_request,
    add_open_request,
)

ENCODING_VERSION: Final = 1
"""First byte of every page."""
UPGRADES: Final[dict[int, Upgrade]] = {}
"""By version, what makes a page of the version after it."""

_BALANCES: Final = tuple(Balances)


def para_pages(state: EarlyHrmpState) -> list[ParaId]:
    """Return, ascending, the paras that may own anything."""
    return sorted({
        *state.paras,
        *state.accounts,
        *state.pending_candidates,
        *state.downward_queues,
        *state.downward_queue_tails,
        *state.dmq_watermarks,
        *state.ingress,
    })  # fmt: skip


def encode_common_page(state: EarlyHrmpState) -> bytes:
    """Encode what no para owns: limits, mode, session, requests in the order of their lists."""
    out = Writer()
    out.u8(ENCODING_VERSION)
    for limit in astuple(state.configuration):
        out.compact(limit)
    out.u8(_BALANCES.index(state.balances_mode))
    out.u32(state.session_index)
    out.compact(len(state.open_requests))
    for request in state.open_requests:
        out.u32(request.sender)
        out.u32(request.recipient)
        out.u128(request.sender_deposit)
        out.u128(request.recipient_deposit)
        out.u8(request.confirmed)
        out.u32(request.age)
    out.compact(len(state.close_requests))
    for initiator, sender, recipient in state.close_requests:
        out.u32(initiator)
        out.u32(sender)
        out.u32(recipient)
    return bytes(out.buffer)


def encode_para_page(state: EarlyHrmpState, para: ParaId) -> bytes | None:
    """Encode what a para owns, or return None where that is nothing."""
    out = Writer()
    out.u8(para in state.paras)
    account = state.accounts.get(para) or Account()
    out.compact(account.free)
    out.compact(account.reserved)
    pending = state.pending_candidates.get(para, ())
    out.compact(len(pending))
    for backed_at, candidate in pending:
        out.u32(backed_at)
        _write_candidate(out, candidate)

    queue = state.downward_queues.get(para, {})
    out.compact(len(queue))
    for block, messages in queue.items():
        out.u32(block)
        out.compact(len(messages))
        for sender, instance, data in messages:
            out.u8(sender is not None)
            if sender is not None:
                out.u32(sender)
                out.u32(instance)
            out.bytes(data)
    count, head = state.downward_queue_tails.get(para, (0, b""))
    out.compact(count)
    out.hash(head)
    out.option(state.dmq_watermarks.get(para), out.u32)

    senders = state.ingress.get(para, ())
    out.compact(len(senders))
    for sender in senders:
        channel = state.channels[sender, para]
        out.u32(sender)
        out.u128(channel.sender_deposit)
        out.u128(channel.recipient_deposit)
        out.u32(channel.instance)
        out.u8(channel.sealed)
    if not any(out.buffer):
        return None
    return bytes((ENCODING_VERSION,)) + para.to_bytes(4, "little") + bytes(out.buffer)


def encode_untold_page(state: EarlyHrmpState) -> bytes:
    """Encode whose headroom has changed and has not been told yet: not part of the state, but a restored lane has to tell it."""
    out = Writer()
    out.u8(ENCODING_VERSION)
    out.compact(len(state.touched.paras))
    for para in sorted(state.touched.paras):
        out.u32(para)
    out.compact(len(state.touched.channels))
    for sender, recipient in sorted(state.touched.channels):
        out.u32(sender)
        out.u32(recipient)
    return bytes(out.buffer)


def decode_state(common_page: bytes, pages: Iterable[bytes]) -> EarlyHrmpState:
    """Rebuild a state from its pages, derived fields included. Raises `DecodeError`."""
    reader = _versioned(common_page)
    state = EarlyHrmpState(EarlyHrmpConfiguration(*(reader.compact() for _ in MAXIMA)))
    state.balances_mode = reader.choice(_BALANCES)
    state.session_index = reader.u32()
    for _ in range(reader.compact()):
        add_open_request(state, _read_open_request(reader))
    if len(state.requested) != len(state.open_requests):
        raise DecodeError("two open requests are for one channel")
    for _ in range(reader.compact()):
        add_close_request(state, CloseRequest(reader.u32(), reader.u32(), reader.u32()))
    if len(state.closing) != len(state.close_requests):
        raise DecodeError("two close requests are for one channel")
    reader.end()
    previous = -1
    for page in pages:
        para = _read_para_page(_versioned(page), state)
        if para <= previous:
            raise DecodeError(f"the page of para {para} follows that of para {previous}")
        previous = para
    state.touched = Touched()
    return state


def decode_untold_page(page: bytes, state: EarlyHrmpState) -> None:
    """Mark in a state whose headroom is still to be told. Raises `DecodeError`."""
    reader = _versioned(page)
    state.touched.paras.update(dict.fromkeys(reader.items(reader.u32)))
    state.touched.channels.update(dict.fromkeys(reader.items(lambda: (reader.u32(), reader.u32()))))
    reader.end()


def owner_of(page: bytes) -> ParaId:
    """Return whose page it is. Raises `DecodeError`."""
    return _versioned(page).u32()


def is_current(page: bytes) -> bool:
    """Say whether encoding what a page holds gives that page again."""
    return page[0] == ENCODING_VERSION


def _versioned(page: bytes) -> Reader:
    return upgraded(page, ENCODING_VERSION, UPGRADES, "early-hrmp state encoding")


def _read_open_request(reader: Reader) -> OpenRequest:
    return OpenRequest(
        sender=reader.u32(),
        recipient=reader.u32(),
        sender_deposit=reader.u128(),
        recipient_deposit=reader.u128(),
        confirmed=reader.boolean(),
        age=reader.u32(),
    )


def _write_candidate(out: Writer, candidate: Candidate) -> None:
    out.u32(candidate.para_id)
    out.u32(candidate.relay_parent_number)
    out.u32(candidate.dmq_watermark)
    out.compact(len(candidate.hrmp_messages))
    for sender, recipient, payload, _ in candidate.hrmp_messages:
        out.u32(sender)
        out.u32(recipient)
        out.bytes(payload)
    out.option(candidate.candidate_hash, out.bytes)


def _read_candidate(reader: Reader) -> Candidate:
    para_id, relay_parent_number, dmq_watermark = reader.u32(), reader.u32(), reader.u32()
    messages = tuple(reader.items(lambda: HrmpMessage(reader.u32(), reader.u32(), reader.bytes())))
    return Candidate(para_id, relay_parent_number, dmq_watermark, messages, reader.option(reader.bytes))


def _read_message(reader: Reader) -> QueuedMessage:
    if reader.boolean():
        return QueuedMessage(reader.u32(), reader.u32(), reader.bytes())
    return QueuedMessage(None, 0, reader.bytes())


def _read_para_page(reader: Reader, state: EarlyHrmpState) -> ParaId:
    para = reader.u32()
    start = reader.position
    registered = reader.boolean()
    free, reserved = reader.compact(), reader.compact()
    if registered:
        state.paras[para] = None
    if registered or free or reserved:
        state.accounts[para] = Account(free, reserved)
    pending = deque(reader.items(lambda: PendingCandidate(reader.u32(), _read_candidate(reader))))
    if pending:
        state.pending_candidates[para] = pending

    blocks: list[tuple[BlockNumber, list[QueuedMessage]]] = reader.items(
        lambda: (reader.u32(), reader.items(lambda: _read_message(reader)))
    )
    _check_ascending(f"the blocks of the queue of para {para}", [block for block, _ in blocks])
    if not all(messages for _, messages in blocks):
        raise DecodeError(f"the queue of para {para} has a block without messages")
    if blocks:
        state.downward_queues[para] = dict(blocks)
    count = reader.compact()
    if count:
        state.downward_queue_tails[para] = QueueTail(count, reader.hash())
    watermark = reader.option(reader.u32)
    if watermark is not None:
        state.dmq_watermarks[para] = watermark

    senders = []
    for _ in range(reader.compact()):
        senders.append(reader.u32())
        _read_channel(reader, state, (senders[-1], para))
    _check_ascending(f"the senders to para {para}", senders)
    reader.end()
    if not any(reader.data[start:]):
        raise DecodeError(f"the page of para {para} is empty")
    _count_uses(state, para)
    return para


def _read_channel(reader: Reader, state: EarlyHrmpState, channel_id: ChannelId) -> None:
    channel = Channel(reader.u128(), reader.u128(), instance=reader.u32(), sealed=reader.boolean())
    add_channel(state, channel_id, channel)


def _count_uses(state: EarlyHrmpState, para: ParaId) -> None:
    for messages in state.downward_queues.get(para, {}).values():
        for sender, instance, data in messages:
            channel = None if sender is None else state.channels.get((sender, para))
            if channel is not None and channel.instance == instance:
                channel.used_places += 1
                channel.used_bytes += len(data)


def _check_ascending(what: str, items: list[int]) -> None:
    if any(item >= following for item, following in pairwise(items)):
        raise DecodeError(f"{what} are not in ascending order")
