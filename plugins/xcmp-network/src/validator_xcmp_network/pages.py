# SPDX-License-Identifier: Apache-2.0
"""Canonical bytes of a state, in pages: one common page, and one page for each para that owns anything.

A page begins with the page of XCMP channels. A recipient also owns its ingress queue and the senders of its fixed channels. Derived values
(indexes, counts) are left out and recomputed on loading.
"""

from __future__ import annotations

from collections.abc import Sequence

from validator_xcmp import encoding as xcmp

from validator.plugin.protocol_api import DecodeError, ParaId, Reader, Writer
from validator.protocols.kit import PageLayout, Touched
from validator_xcmp_network.queues import IngressQueue, Memory, QueuedMessage
from validator_xcmp_network.records import Candidate, OutboxMessage
from validator_xcmp_network.state import ChannelMode, IntraBlock, NetworkConfiguration, NetworkState

PAGES = PageLayout("xcmp-network state encoding")

_INTRA_BLOCK = tuple(IntraBlock)
_CHANNELS = tuple(ChannelMode)
_NO_HEADROOM = xcmp.PAGES.headroom_page(Touched(), channels=False)


def owning_paras(state: NetworkState) -> list[ParaId]:
    """Return, ascending, the paras that own anything."""
    return sorted({*xcmp.owning_paras(state), *state.queues, *state.fixed_channels.recipients()})


def encode_common_page(state: NetworkState) -> bytes:
    """Encode what no para owns: bounds and modes, then the common page of XCMP channels."""
    out, network = PAGES.begin(), state.network
    out.u32(network.max_block_bytes)
    out.u32(network.max_channel_messages)
    out.option(network.max_ingress_messages, out.u32)
    out.u8(_INTRA_BLOCK.index(network.intra_block))
    out.u8(network.require_bodies)
    out.u8(_CHANNELS.index(network.channels))
    out.bytes(xcmp.encode_common_page(state))
    return bytes(out.buffer)


def encode_para_page(state: NetworkState, para: ParaId) -> bytes | None:
    """Encode what a para owns. Return None if it owns nothing."""
    out = Writer()
    out.bytes(xcmp.encode_para_page(state, para, _write_candidate) or b"")
    out.bytes(state.fixed_channels.packed(para))
    queue = state.queues.get(para)
    out.u8(queue is not None)
    if queue is not None:
        _write_queue(out, queue)
    return PAGES.owned(para, out)


def decode_state(common_page: bytes, headroom_page: bytes, owned: Sequence[bytes]) -> NetworkState:
    """Rebuild a state from its pages, derived fields included. Raises `DecodeError`."""
    reader = PAGES.read(common_page)
    network = NetworkConfiguration(
        max_block_bytes=reader.u32(),
        max_channel_messages=reader.u32(),
        max_ingress_messages=reader.option(reader.u32),
        intra_block=reader.choice(_INTRA_BLOCK),
        require_bodies=reader.boolean(),
        channels=reader.choice(_CHANNELS),
    )
    common = reader.bytes()
    reader.end()
    readers = [PAGES.read(page) for page in owned]
    paras = [each.u32() for each in readers]
    channels = [page for each in readers if (page := each.bytes())]
    state = xcmp.decode_into(
        lambda limits: NetworkState(limits, network=network), common, _NO_HEADROOM, channels, _read_candidate
    )
    for para, each in zip(paras, readers, strict=True):
        state.fixed_channels.unpack(para, each.bytes())
        if each.boolean():
            state.queues[para] = _read_queue(each)
        each.end()
    state.touched = PAGES.read_headroom_page(headroom_page)
    return state


def _write_queue(out: Writer, queue: IngressQueue) -> None:
    out.u32(queue.watermark)
    out.compact(len(queue.acked))
    for sender in sorted(queue.acked):
        out.u32(sender)
    out.compact(queue.count)
    for entry in queue:
        out.u32(entry.sent_at)
        out.u32(entry.sender)
        out.hash(entry.root)
        out.u32(entry.size)
        out.u8(entry.held)
    out.bytes(bytes(queue.memory.names))
    out.option(queue.memory.floor, out.u32)


def _read_queue(reader: Reader) -> IngressQueue:
    watermark = reader.u32()
    acked = dict.fromkeys(reader.items(reader.u32))
    queue = IngressQueue()
    last = (-1, -1)
    for entry in reader.items(
        lambda: QueuedMessage(reader.u32(), reader.u32(), reader.hash(), reader.u32(), reader.boolean())
    ):
        if (entry.sent_at, entry.sender) <= last:
            raise DecodeError(f"message ({entry.sent_at}, {entry.sender}) is out of order")
        last = entry.sent_at, entry.sender
        queue.append(entry)
    names = reader.bytes()
    if len(names) % 8:
        raise DecodeError(f"remembered messages: expected a multiple of 8 bytes, found {len(names)}")
    queue.memory = Memory(names, reader.option(reader.u32))
    queue.watermark, queue.acked = watermark, acked
    return queue


def _write_candidate(out: Writer, candidate: Candidate) -> None:
    out.u32(candidate.para_id)
    out.u32(candidate.relay_parent_number)
    out.compact(len(candidate.outbox))
    for recipient, root, size in candidate.outbox:
        out.u32(recipient)
        out.hash(root)
        out.u32(size)
    out.compact(len(candidate.acks))
    for block, sender in candidate.acks:
        out.u32(block)
        out.u32(sender)
    out.u8(candidate.watermark is not None)
    for part in candidate.watermark or ():
        out.u32(part)
    out.bytes(candidate.bitfield.encode())
    out.option(candidate.message_root, out.hash)
    out.option(candidate.candidate_hash, out.bytes)


def _read_candidate(reader: Reader) -> Candidate:
    para_id, relay_parent_number = reader.u32(), reader.u32()
    outbox = reader.items(lambda: OutboxMessage(reader.u32(), reader.hash(), reader.u32()))
    acks = reader.items(lambda: (reader.u32(), reader.u32()))
    watermark = (reader.u32(), reader.u32()) if reader.boolean() else None
    bits = reader.bytes()
    if bits.strip(b"01"):
        raise DecodeError(f"bitfield of a candidate of para {para_id}: expected 0 and 1, found {bits[:64]!r}")
    return Candidate(
        para_id,
        relay_parent_number,
        tuple(outbox),
        tuple(acks),
        watermark,
        bits.decode(),
        reader.option(reader.hash),
        reader.option(reader.bytes),
    )
