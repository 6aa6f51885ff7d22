# SPDX-License-Identifier: Apache-2.0
"""The state as pages: heights, each queue's numbers, its messages by chunks of numbers, pending candidates by para, facts by block.

A batch writes only what its blocks have changed: of a long queue, the chunks at its two ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from validator.plugin.protocol_api import Encoding, Reader, Writer
from validator_journeys.content import Content
from validator_journeys.facts import CandidateFact
from validator_journeys.plain import decode_plain, encode_plain
from validator_journeys.waiting import CHUNK_MESSAGES, Channels, Kept, Queue, QueueName, Waiting

PAGE: Final = Encoding("page of journeys")

_AHEAD: Final = b"a"
_HEIGHT: Final = b"h"
_MESSAGES: Final = b"m"
_PENDING: Final = b"p"
_QUEUE: Final = b"q"


def changes(waiting: Waiting, stored: set[bytes]) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the pages that have changed since the last call, None for one that is gone; ``stored`` are the names of all that there are."""
    out = PAGE.begin()
    out.u64(waiting.height + 1)
    found: dict[bytes, bytes | None] = {_HEIGHT: bytes(out.buffer)}
    for name in sorted(waiting.touched_chunks, key=_queue_page):
        queue = waiting.queues.get(name)
        start = _queue_page(name)
        found[_QUEUE + start] = None if queue is None else _encode_queue(queue)
        for chunk in sorted(waiting.touched_chunks[name]):
            found[_MESSAGES + start + chunk.to_bytes(8)] = None if queue is None else _encode_chunk(queue, chunk)
    for para in sorted(waiting.touched_pending):
        kept = waiting.pending.get(para)
        found[_PENDING + para.to_bytes(4)] = None if kept is None else _encode_pending(kept)
    for block in sorted(waiting.touched_ahead):
        facts = waiting.ahead.get(block)
        found[_AHEAD + block.to_bytes(8)] = None if facts is None else _encode_facts(facts)
    waiting.touched_chunks.clear()
    waiting.touched_pending.clear()
    waiting.touched_ahead.clear()
    for page, content in found.items():
        if content is not None:
            stored.add(page)
            yield page, content
        elif page in stored:
            stored.remove(page)
            yield page, None


def restore(lane: str, channels: Channels, pages: Mapping[bytes, bytes]) -> Waiting:
    """Return the state that the pages describe. Raises `DecodeError`."""
    waiting = Waiting(lane, channels)
    for name in sorted(pages, key=lambda page: (page[:1] == _MESSAGES, page)):  # messages need their queue
        reader, kind, rest = PAGE.read(pages[name]), name[:1], name[1:]
        if kind == _HEIGHT:
            waiting.height = reader.u64() - 1
        elif kind == _QUEUE:
            waiting.queues[_queue_name(rest)] = Queue(reader.u32(), {}, reader.u64(), reader.u64())
        elif kind == _MESSAGES:
            _read_chunk(reader, waiting.queues[_queue_name(rest[:10])])
        elif kind == _PENDING:
            waiting.pending[int.from_bytes(rest)] = _read_pending(reader)
        elif kind == _AHEAD:
            facts = reader.items(lambda: ((reader.u8(), reader.u32()), reader.bytes()))  # noqa: B023 - called at once
            waiting.keep_ahead(int.from_bytes(rest), dict(facts))
        reader.end()
    return waiting


def _queue_page(name: QueueName) -> bytes:
    return b"".join(b"\0" * 5 if para is None else b"\1" + para.to_bytes(4) for para in name)


def _queue_name(page: bytes) -> QueueName:
    sender, recipient = (int.from_bytes(end[1:]) if end[0] else None for end in (page[:5], page[5:]))
    return sender, recipient


def _encode_queue(queue: Queue) -> bytes:
    out = PAGE.begin()
    out.u32(queue.opened_at)
    out.u64(queue.numbered)
    out.u64(queue.unseen)
    return bytes(out.buffer)


def _encode_chunk(queue: Queue, chunk: int) -> bytes | None:
    """Return a chunk of a queue's messages, None if none of them waits."""
    first = chunk * CHUNK_MESSAGES
    there = [number for number in range(first, first + CHUNK_MESSAGES) if number in queue.waiting]
    if not there:
        return None
    out = PAGE.begin()
    out.compact(len(there))
    for number in there:
        out.u64(number)
        out.bytes(queue.waiting[number])
    return bytes(out.buffer)


def _read_chunk(reader: Reader, queue: Queue) -> None:
    for number, packed in reader.items(lambda: (reader.u64(), reader.bytes())):
        queue.waiting[number] = packed


def _encode_pending(kept: list[Kept]) -> bytes:
    out = PAGE.begin()
    out.bytes(encode_plain(kept))
    return bytes(out.buffer)


def _read_pending(reader: Reader) -> list[Kept]:
    return [
        Kept(backed_at, candidate_hash, None if messages is None else _candidate(*messages))
        for backed_at, candidate_hash, messages in decode_plain(reader.bytes())
    ]


def _candidate(
    upward: tuple[tuple[bytes, int, bytes], ...], horizontal: tuple[tuple[int, tuple[bytes, int, bytes]], ...]
) -> CandidateFact:
    return CandidateFact(
        tuple(Content(*each) for each in upward),
        tuple((recipient, Content(*content)) for recipient, content in horizontal),
    )


def _encode_facts(facts: Mapping[tuple[int, int], bytes]) -> bytes:
    out: Writer = PAGE.begin()
    out.compact(len(facts))
    for source, index in sorted(facts):
        out.u8(source)
        out.u32(index)
        out.bytes(facts[source, index])
    return bytes(out.buffer)
