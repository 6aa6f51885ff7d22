# SPDX-License-Identifier: Apache-2.0
"""Values of the relay chain's storage that contain payloads or are simple, decoded by position; `layout` checks their shape.

Each function raises `DecodeError` unless the value ends where it should. Source: polkadot-sdk, polkadot/runtime/parachains/src.

A downward queue is its pages, in order, then what one value still holds. Before 2026 all of a queue is in the value
``DownwardMessageQueues``. Later runtimes keep a message to a page, and say in ``DownwardMessageQueueMeta`` which pages wait. A migration
moves messages from value to pages over many blocks, so a queue may be in both. Pages outside of what the meta says are dead: a para that
returns begins its queue behind them. They are never read. Source: polkadot-sdk 11909, dmp.rs; chain_2026 section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from validator.plugin.api import DecodeError, Reader, Writer
from validator_relay_chain import keys
from validator_relay_chain.limits import PAGES_PER_READ, QUEUE_PAGES_MAX

T = TypeVar("T")

Value = bytes | None
"""A value of storage, or that there is none."""
ChannelId = tuple[int, int]
"""Sender and recipient."""

HASH_BYTES: Final = 32
"""Bytes of a hash, which is all that its value has."""


class Queued(NamedTuple):
    """A message that waits for a para."""

    sent_at: int
    """The block that queued it."""
    msg: bytes


class Channel(NamedTuple):
    """A value of ``Hrmp.HrmpChannels``."""

    max_capacity: int
    max_total_size: int
    max_message_size: int
    msg_count: int
    total_size: int
    mqc_head: bytes | None
    sender_deposit: int
    recipient_deposit: int


class OpenRequest(NamedTuple):
    """A value of ``Hrmp.HrmpOpenChannelRequests``."""

    confirmed: bool
    age: int
    sender_deposit: int
    max_message_size: int
    max_capacity: int
    max_total_size: int


def _whole(raw: bytes, read: Callable[[Reader], T]) -> T:
    reader = Reader(raw)
    value = read(reader)
    reader.end()
    return value


def decode_channel(raw: bytes) -> Channel:
    """Return a channel."""
    return _whole(
        raw,
        lambda r: Channel(r.u32(), r.u32(), r.u32(), r.u32(), r.u32(), r.option(r.hash), r.u128(), r.u128()),
    )


def encode_channel(channel: Channel) -> bytes:
    """Return the value of a channel."""
    out = Writer()
    for number in channel[:5]:
        out.u32(number)
    out.option(channel.mqc_head, out.hash)
    out.u128(channel.sender_deposit)
    out.u128(channel.recipient_deposit)
    return bytes(out.buffer)


def decode_queue(raw: bytes) -> tuple[Queued, ...]:
    """Return the messages of a downward queue or of a channel, oldest first."""
    return _whole(raw, lambda r: tuple(r.items(lambda: Queued(r.u32(), r.bytes()))))


def encode_queue(messages: Iterable[Queued]) -> bytes:
    """Return the value of a queue."""
    queue = tuple(messages)
    out = Writer()
    out.compact(len(queue))
    for message in queue:
        out.u32(message.sent_at)
        out.bytes(message.msg)
    return bytes(out.buffer)


def decode_digests(raw: bytes) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Return, for each block with messages for a recipient, their senders."""
    return _whole(raw, lambda r: tuple(r.items(lambda: (r.u32(), tuple(r.items(r.u32))))))


def decode_u32(raw: bytes) -> int:
    """Return a number."""
    return _whole(raw, lambda r: r.u32())


def decode_hash(raw: bytes) -> bytes:
    """Return 32 bytes."""
    return _whole(raw, lambda r: r.hash())


def decode_paras(raw: bytes) -> tuple[int, ...]:
    """Return the paras of an index of channels."""
    return _whole(raw, lambda r: tuple(r.items(r.u32)))


def decode_channels(raw: bytes) -> tuple[tuple[int, int], ...]:
    """Return the channels of a list of requests: sender, recipient."""
    return _whole(raw, lambda r: tuple(r.items(lambda: (r.u32(), r.u32()))))


def decode_open_request(raw: bytes) -> OpenRequest:
    """Return a request to open a channel."""
    return _whole(raw, lambda r: OpenRequest(r.boolean(), r.u32(), r.u128(), r.u32(), r.u32(), r.u32()))


def decode_payloads(raw: bytes) -> tuple[bytes, ...]:
    """Return the messages of ``Ump.RelayDispatchQueues``."""
    return _whole(raw, lambda r: tuple(r.items(r.bytes)))


class Meta(NamedTuple):
    """A value of ``DownwardMessageQueueMeta``: pages from ``first`` to ``end`` - 1 wait."""

    first: int = 0
    end: int = 0


def decode_meta(raw: Value) -> Meta:
    """Return the meta of a queue; no pages wait if there is none. Raises `DecodeError`, also for more pages than a queue can have."""
    if raw is None:
        return Meta()
    reader = Reader(raw)
    found = Meta(reader.u64(), reader.u64())
    reader.end()
    if not 0 <= found.end - found.first <= QUEUE_PAGES_MAX:
        raise DecodeError(f"pages {found.first} to {found.end}: expected at most {QUEUE_PAGES_MAX}, in order")
    return found


def encode_meta(meta: Meta) -> bytes:
    """Return the value of a meta."""
    out = Writer()
    out.u64(meta.first)
    out.u64(meta.end)
    return bytes(out.buffer)


def decode_page(raw: bytes) -> Queued:
    """Return the message of a page. Raises `DecodeError`."""
    reader = Reader(raw)
    found = Queued(reader.u32(), reader.bytes())
    reader.end()
    return found


def encode_page(message: Queued) -> bytes:
    """Return the value of a page."""
    out = Writer()
    out.u32(message.sent_at)
    out.bytes(message.msg)
    return bytes(out.buffer)


def waiting_messages(meta: Value, queue: Value) -> int:
    """Return how many messages wait, from both values. Raises `DecodeError`."""
    first, end = decode_meta(meta)
    return end - first + (0 if queue is None else len(decode_queue(queue)))


def whole_queues(
    metas: Mapping[bytes, bytes], pages: Mapping[bytes, bytes], queues: Mapping[bytes, bytes]
) -> dict[int, tuple[Queued, ...]]:
    """Return all downward queues of stored values, by their keys, by para.

    Raises `DecodeError`, also for a page that is not there; ``ValueError`` for a key of another map.
    """
    found: dict[int, tuple[Queued, ...]] = {}
    for key, raw in metas.items():
        para, meta = keys.para_of(key), decode_meta(raw)
        found[para] = _messages(para, range(meta.first, meta.end), pages)
    for key, raw in queues.items():
        para = keys.para_of(key)
        found[para] = found.get(para, ()) + decode_queue(raw)
    return {para: queue for para, queue in sorted(found.items()) if queue}


def sent_since(
    para: int, block: int, read: Callable[[Sequence[bytes]], Mapping[bytes, Value]], *, has_pages: bool
) -> tuple[Queued, ...]:
    """Return the messages of a queue that were sent in a block or later, oldest first; older ones may stand before them.

    ``read`` returns values by key, ``has_pages`` says whether the runtime knows pages. Messages stand in the order in which they were sent,
    so pages are read from the last one back. Raises `DecodeError` and what ``read`` raises.
    """
    queue_key, meta_key = keys.para_key(keys.DMP_QUEUES, para), keys.para_key(keys.DMP_META, para)
    values = read([queue_key, meta_key] if has_pages else [queue_key])
    raw = values[queue_key]
    found = () if raw is None else decode_queue(raw)
    if not has_pages:
        return found
    meta = decode_meta(values[meta_key])
    end = meta.end
    while end > meta.first and not (found and found[0].sent_at < block):
        numbers = range(max(meta.first, end - PAGES_PER_READ), end)
        found = _messages(para, numbers, read([keys.page_key(para, number) for number in numbers])) + found
        end = numbers.start
    return found


def _messages(para: int, numbers: Iterable[int], pages: Mapping[bytes, Value]) -> tuple[Queued, ...]:
    found = []
    for number in numbers:
        raw = pages.get(keys.page_key(para, number))
        if raw is None:
            raise DecodeError(f"page {number} of the downward queue of para {para} is not there, although it waits")
        found.append(decode_page(raw))
    return tuple(found)


ONBOARDING: Final = 0
PARATHREAD: Final = 1
PARACHAIN: Final = 2
UPGRADING: Final = 3
DOWNGRADING: Final = 4
OFFBOARDING: Final = (5, 6)
VALID: Final = (PARATHREAD, PARACHAIN, UPGRADING, DOWNGRADING)
_PARATHREADS: Final = (PARATHREAD, UPGRADING)


def para_kind(lifecycle: int) -> str:
    """Return the kind of a valid para, as records name it."""
    return "parathread" if lifecycle in _PARATHREADS else "parachain"


def is_para(lifecycle: int) -> bool:
    """Return whether a para takes part in traffic: it still does while it waits to be offboarded."""
    return lifecycle in VALID or lifecycle in OFFBOARDING


def para_changes(before: Mapping[int, int], after: Mapping[int, int]) -> tuple[list[int], list[dict[str, Any]]]:
    """Return the outgoing paras and those that are onboarded, as a session change's record lists them."""
    outgoing = sorted(
        para for para, lifecycle in before.items() if is_para(lifecycle) and not is_para(after.get(para, 0))
    )
    onboarding = [
        {"para_id": para, "kind": para_kind(lifecycle)}
        for para, lifecycle in sorted(after.items())
        if lifecycle in VALID and not is_para(before.get(para, 0))
    ]
    return outgoing, onboarding


def channel_name(channel: ChannelId) -> str:
    """Return a channel as lines and STATE.json name it."""
    return f"{channel[0]}->{channel[1]}"
