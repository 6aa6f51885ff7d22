# SPDX-License-Identifier: Apache-2.0
"""Canonical bytes of a state, in pages: one common page, and one page for each para that owns anything.

A para owns its account, its row of the channel state table with the metadata, its watermark, its downward queue and its pending candidates.
Derived values (roots, the index of senders, counts) are left out and recomputed on loading.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import astuple, fields
from typing import Any, TypeVar

from validator.plugin.protocol_api import Balances, DecodeError, ParaId, ParaKind, Reader, Writer
from validator.protocols.kit import Account, OpenRequest, PageLayout, read_pending, write_pending
from validator_xcmp.records import Candidate, Watermark
from validator_xcmp.state import (
    Column,
    DownwardTail,
    QueuedMessage,
    XcmpConfiguration,
    XcmpState,
    append_column,
    recompute_root,
)

PAGES = PageLayout("xcmp state encoding")

S = TypeVar("S", bound=XcmpState)

_CONFIGURATION = tuple(field.name for field in fields(XcmpConfiguration))
_PARA_KINDS = tuple(ParaKind)
_BALANCES = tuple(Balances)


def owning_paras(state: XcmpState) -> list[ParaId]:
    """Return, ascending, the paras that own anything."""
    return sorted({
        *state.paras,
        *state.accounts,
        *state.pending_candidates,
        *state.rows,
        *state.watermarks,
        *state.downward_queues,
        *state.downward_tails,
    })  # fmt: skip


def encode_common_page(state: XcmpState) -> bytes:
    """Encode what no para owns: configuration, mode, session, requests, the condemned set."""
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
        out.u8(request.confirmed)
        out.u32(request.age)
        out.u128(request.recipient_deposit)
    for channels in (state.close_requests, state.condemned):
        out.compact(len(channels))
        for (sender, recipient), value in channels.items():
            out.u32(sender)
            out.u32(recipient)
            out.u32(value)
    return bytes(out.buffer)


def encode_para_page(
    state: XcmpState, para: ParaId, write_candidate: Callable[[Writer, Any], None] | None = None
) -> bytes | None:
    """Encode what a para owns. Return None if it owns nothing.

    A protocol whose candidates have more fields passes ``write_candidate`` for those that are pending.
    """
    out = Writer()
    kind = state.paras.get(para)
    out.u8(0 if kind is None else 1 + _PARA_KINDS.index(kind))
    account = state.accounts.get(para) or Account()
    out.compact(account.free)
    out.compact(account.reserved)
    write_pending(out, state, para, write_candidate or _write_candidate)
    row = state.rows.get(para, ())
    out.compact(len(row))
    for column in row:
        _write_column(out, column)
    watermark = state.watermarks.get(para)
    out.u8(watermark is not None)
    if watermark is not None:
        _write_watermark(out, watermark)
    queue = state.downward_queues.get(para, ())
    out.compact(len(queue))
    for sent_at, msg in queue:
        out.u32(sent_at)
        out.bytes(msg)
    tail = state.downward_tails.get(para)
    out.u8(tail is not None)
    if tail is not None:
        out.hash(tail.head)
        out.compact(tail.sent)
    return PAGES.owned(para, out)


def decode_state(common_page: bytes, headroom_page: bytes, pages: Iterable[bytes]) -> XcmpState:
    """Rebuild a state from its pages, derived fields included. Raises `DecodeError`."""
    return decode_into(XcmpState, common_page, headroom_page, pages)


def decode_into(
    make: Callable[[XcmpConfiguration], S],
    common_page: bytes,
    headroom_page: bytes,
    pages: Iterable[bytes],
    read_candidate: Callable[[Reader], Any] | None = None,
) -> S:
    """Rebuild a state that is an `XcmpState` and may be more. Raises `DecodeError`."""
    reader = PAGES.read(common_page)
    state = make(XcmpConfiguration(**{name: reader.compact() for name in _CONFIGURATION}))
    state.balances_mode = reader.choice(_BALANCES)
    state.session_index = reader.u32()
    for request in reader.items(lambda: _read_request(reader)):
        if request.channel_id in state.open_requests.by_channel:
            raise DecodeError(f"channel {request.channel_id} is requested twice")
        state.open_requests.add(request)
    state.close_requests = dict(reader.items(lambda: ((reader.u32(), reader.u32()), reader.u32())))
    state.condemned = dict(reader.items(lambda: ((reader.u32(), reader.u32()), reader.u32())))
    reader.end()
    for page in pages:
        _read_para_page(PAGES.read(page), state, read_candidate or _read_candidate)
    for sender in state.rows:
        recompute_root(state, sender)
    state.touched = PAGES.read_headroom_page(headroom_page, channels=False)
    return state


def _read_para_page(reader: Reader, state: XcmpState, read_candidate: Callable[[Reader], Any]) -> None:
    para = reader.u32()
    kind = reader.choice((None, *_PARA_KINDS))
    if kind is not None:
        state.paras[para] = kind
    free, reserved = reader.compact(), reader.compact()
    if kind is not None or free or reserved:
        state.accounts[para] = Account(free, reserved)
    read_pending(reader, state, para, read_candidate)
    for column in reader.items(lambda: _read_column(reader)):
        if para in state.ingress.get(column.recipient, ()):
            raise DecodeError(f"para {para} has two columns to {column.recipient}")
        append_column(state, para, column)
    if reader.boolean():
        state.watermarks[para] = _read_watermark(reader)
    queue = deque(reader.items(lambda: QueuedMessage(reader.u32(), reader.bytes())))
    if queue:
        state.downward_queues[para] = queue
    if reader.boolean():
        state.downward_tails[para] = DownwardTail(reader.hash(), reader.compact())
    reader.end()


def _read_request(reader: Reader) -> OpenRequest:
    sender, recipient, sender_deposit = reader.u32(), reader.u32(), reader.u128()
    confirmed, age, recipient_deposit = reader.boolean(), reader.u32(), reader.u128()
    return OpenRequest(sender, recipient, sender_deposit, recipient_deposit, confirmed, age)


def _write_column(out: Writer, column: Column) -> None:
    out.u32(column.recipient)
    out.u32(column.capacity)
    out.u128(column.sender_deposit)
    out.u128(column.recipient_deposit)
    out.u32(column.last_updated)
    out.option(column.message_root, out.hash)


def _read_column(reader: Reader) -> Column:
    return Column(reader.u32(), reader.u32(), reader.u128(), reader.u128(), reader.u32(), reader.option(reader.hash))


def _write_watermark(out: Writer, watermark: Watermark) -> None:
    out.u32(watermark[0])
    out.u32(watermark[1])


def _read_watermark(reader: Reader) -> Watermark:
    return reader.u32(), reader.u32()


def _write_candidate(out: Writer, candidate: Candidate) -> None:
    out.u32(candidate.para_id)
    out.u32(candidate.relay_parent_number)
    _write_watermark(out, candidate.watermark)
    out.bytes(candidate.bitfield.encode())
    out.option(candidate.message_root, out.hash)
    out.option(candidate.candidate_hash, out.bytes)


def _read_candidate(reader: Reader) -> Candidate:
    para_id, relay_parent_number, watermark = reader.u32(), reader.u32(), _read_watermark(reader)
    bits = reader.bytes()
    if bits.strip(b"01"):
        raise DecodeError(f"bitfield of a candidate of para {para_id}: expected 0 and 1, found {bits[:64]!r}")
    return Candidate(
        para_id,
        relay_parent_number,
        watermark,
        bits.decode(),
        reader.option(reader.hash),
        reader.option(reader.bytes),
    )
