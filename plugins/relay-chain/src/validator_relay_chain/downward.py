# SPDX-License-Identifier: Apache-2.0
"""Downward queues in storage: a queue is its pages, in order, then what one value still holds.

Before 2026 all of a queue is in the value ``DownwardMessageQueues``. Later runtimes keep a message to a page, and say in
``DownwardMessageQueueMeta`` which pages wait. A migration moves messages from value to pages over many blocks, so a queue may be in both.
Pages outside of what the meta says are dead: a para that returns begins its queue behind them. They are never read.
Source: polkadot-sdk 11909, polkadot/runtime/parachains/src/dmp.rs; chain_2026 section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from validator.plugin.api import DecodeError, Reader, Writer
from validator_relay_chain import keys
from validator_relay_chain.limits import PAGES_PER_READ, QUEUE_PAGES_MAX
from validator_relay_chain.storage import Queued, decode_queue

Value = bytes | None

META: Final = ("Dmp", "DownwardMessageQueueMeta")
PAGES: Final = ("Dmp", "DownwardMessageQueuePages")
QUEUES: Final = ("Dmp", "DownwardMessageQueues")


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


def length(meta: Value, queue: Value) -> int:
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
