# SPDX-License-Identifier: Apache-2.0
"""Canonical bytes of a state, in pages: one common page, and one page for each para that owns anything.

A para owns its account, its pending candidates, its downward queue and watermark, and its inbound channels. Derived values (usage of
channels, counts, indexes) are left out and recomputed on loading. Decoding is strict: it rejects a page that `encode_para_page` would not
write.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple
from itertools import pairwise
from typing import Final

from validator.plugin.protocol_api import (
    Balances,
    BlockNumber,
    ChannelId,
    DecodeError,
    ParaId,
    Reader,
    Writer,
)
from validator.protocols.kit import Account, OpenRequest, PageLayout, read_pending, write_pending
from validator_early_hrmp.records import Candidate, HrmpMessage
from validator_early_hrmp.state import (
    MAXIMA,
    Channel,
    CloseRequest,
    EarlyHrmpConfiguration,
    EarlyHrmpState,
    QueuedMessage,
    QueueTail,
    add_channel,
    add_close_request,
)

PAGES: Final = PageLayout("early-hrmp state encoding")

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
    out = PAGES.begin()
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
    """Encode what a para owns. Return None if it owns nothing."""
    out = Writer()
    out.u8(para in state.paras)
    account = state.accounts.get(para) or Account()
    out.compact(account.free)
    out.compact(account.reserved)
    write_pending(out, state, para, _write_candidate)
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
    return PAGES.owned(para, out)


def decode_state(common_page: bytes, headroom_page: bytes, pages: Iterable[bytes]) -> EarlyHrmpState:
    """Rebuild a state from its pages, derived fields included. Raises `DecodeError`."""
    reader = PAGES.read(common_page)
    state = EarlyHrmpState(EarlyHrmpConfiguration(*(reader.compact() for _ in MAXIMA)))
    state.balances_mode = reader.choice(_BALANCES)
    state.session_index = reader.u32()
    for _ in range(reader.compact()):
        state.open_requests.add(_read_open_request(reader))
    if len(state.open_requests.by_channel) != len(state.open_requests):
        raise DecodeError("two open requests are for one channel")
    for _ in range(reader.compact()):
        add_close_request(state, CloseRequest(reader.u32(), reader.u32(), reader.u32()))
    if len(state.closing) != len(state.close_requests):
        raise DecodeError("two close requests are for one channel")
    reader.end()
    previous = -1
    for page in pages:
        para = _read_para_page(PAGES.read(page), state)
        if para <= previous:
            raise DecodeError(f"the page of para {para} follows that of para {previous}")
        previous = para
    state.touched = PAGES.read_headroom_page(headroom_page)
    return state


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
    read_pending(reader, state, para, _read_candidate)
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
