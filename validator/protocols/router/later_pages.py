# SPDX-License-Identifier: Apache-2.0
"""The part of the Router's pages that only later rules need. It stands at a page's end, and only if it holds anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from validator.core.scale import DecodeError, Reader, Writer
from validator.core.types import ParaId
from validator.protocols.kit import PageLayout
from validator.protocols.router.books import Book, MessageQueue, Page
from validator.protocols.router.invariants import broken_book
from validator.protocols.router.state import RouterState

SEED = 1
"""First byte of a page with what router.txt needs. It is one more for each part at the page's end that only later rules need."""
EMPTY_COMMON_PARTS = (7, 3)
"""Bytes of the parts of the common page that hold nothing: what rules up to router/2025-07 need, and what rules since need."""
EMPTY_PARA_PARTS = (1,)
"""The same of a para's page."""
HEADROOM_PAGE = PageLayout("state encoding")


def with_later_parts(page: Writer, *parts: Writer) -> bytes:
    """Return a page with the later parts, oldest first, up to the last one that holds anything."""
    held = max((at for at, part in enumerate(parts, 1) if any(part.buffer)), default=0)
    added = b"".join(bytes(part.buffer) for part in parts[:held])
    return bytes((SEED + held,)) + bytes(page.buffer[1:]) + added


def whole_page(page: bytes, empty_parts: tuple[int, ...]) -> Reader:
    """Return a reader of a page after its first byte; a later part that the page does not have holds nothing. Raises `DecodeError`."""
    held = page[0] - SEED if page else -1
    if not 0 <= held <= len(empty_parts):
        raise DecodeError(
            f"state encoding version {page[0] if page else None}, expected {SEED} to {SEED + len(empty_parts)}"
        )
    reader = Reader(page + bytes(sum(empty_parts[held:])))
    reader.position = 1
    return reader


def later_common_part(state: RouterState) -> Writer:
    """Encode limits that may be absent, deposits that router.txt does not know, and the ring."""
    out, config = Writer(), state.host_configuration
    out.option(config.hrmp_notification_xcm_version, out.u8)
    out.option(config.hrmp_system_channel_max_places, out.u32)
    out.option(config.hrmp_system_channel_max_message_size, out.u32)
    out.option(config.message_queue_heap_size, out.u32)
    # the seed's rules take the recipient's deposit from the configuration, which cannot change before the request is settled
    requests = map(state.hrmp_open_channel_requests.__getitem__, state.hrmp_open_channel_requests_list)
    others = [
        (at, request.recipient_deposit)
        for at, request in enumerate(requests)
        if request.confirmed and request.recipient_deposit != config.hrmp_recipient_deposit
    ]
    for amounts in (others, sorted(state.hrmp_stranded_deposits.items())):
        out.compact(len(amounts))
        for key, amount in amounts:
            out.u32(key)
            out.u128(amount)
    queue = state.message_queue
    out.option(None if queue is None else queue.ring, lambda ring: _write_paras(out, ring))
    return out


def newest_common_part(state: RouterState) -> Writer:
    """Encode the least balance of an account, and requests and places that counts do not show."""
    out = Writer()
    out.option(state.host_configuration.existential_deposit, out.u128)
    for counts in (state.hrmp_lost_places, state.hrmp_uncounted_acceptances):
        out.compact(len(counts))
        for para, count in sorted(counts.items()):
            out.u32(para)
            out.u32(count)
    return out


def read_newest_common_part(reader: Reader, state: RouterState) -> None:
    """Read what `newest_common_part` wrote into the state, after its requests. Raises `DecodeError`."""
    least = reader.option(reader.u128)
    state.host_configuration = replace(state.host_configuration, existential_deposit=least)
    for counts in (state.hrmp_lost_places, state.hrmp_uncounted_acceptances):
        counts.update(reader.items(lambda: (reader.u32(), reader.u32())))


def read_later_common_part(reader: Reader, state: RouterState) -> None:
    """Read what `later_common_part` wrote into the state, after its requests. Raises `DecodeError`."""
    state.host_configuration = config = replace(
        state.host_configuration,
        hrmp_notification_xcm_version=reader.option(reader.u8),
        hrmp_system_channel_max_places=reader.option(reader.u32),
        hrmp_system_channel_max_message_size=reader.option(reader.u32),
        message_queue_heap_size=reader.option(reader.u32),
    )
    requests = [state.hrmp_open_channel_requests[each] for each in state.hrmp_open_channel_requests_list]
    for request in requests:
        request.recipient_deposit = config.hrmp_recipient_deposit if request.confirmed else 0
    for at, deposit in reader.items(lambda: (reader.u32(), reader.u128())):
        if at >= len(requests):
            raise DecodeError(f"a deposit of request {at}, but there are {len(requests)}")
        requests[at].recipient_deposit = deposit
    state.hrmp_stranded_deposits = dict(reader.items(lambda: (reader.u32(), reader.u128())))
    ring = reader.option(lambda: list(reader.items(reader.u32)))
    if ring is not None:
        state.message_queue = MessageQueue(ring=ring)


def later_para_part(state: RouterState, para: ParaId) -> Writer:
    """Encode a para's book."""
    out = Writer()
    book = None if state.message_queue is None else state.message_queue.books.get(para)
    out.option(book, lambda book: _write_book(out, book))
    return out


def read_later_para_part(reader: Reader, state: RouterState, para: ParaId) -> None:
    """Read what `later_para_part` wrote into the state. Raises `DecodeError`."""
    book = reader.option(lambda: _read_book(reader))
    if book is None:
        return
    if state.message_queue is None:
        raise DecodeError(f"para {para} has a book, but there is no ring")
    state.message_queue.books[para] = book
    unprocessed = [payload for page in book.pages.values() for payload in page.messages if payload is not None]
    if unprocessed:
        state.relay_dispatch_queue_size[para] = (len(unprocessed), sum(map(len, unprocessed)))


def _write_book(out: Writer, book: Book) -> None:
    out.u32(book.begin)
    out.u32(book.end)
    out.u32(book.next_index)
    out.compact(len(book.pages))
    for number, page in sorted(book.pages.items()):
        out.u32(number)
        out.u32(page.heap_used)
        out.compact(len(page.messages))
        for payload in page.messages:
            out.option(payload, out.bytes)


def _read_book(reader: Reader) -> Book:
    book = Book(reader.u32(), reader.u32(), reader.u32())
    for _ in range(reader.compact()):
        number, heap_used = reader.u32(), reader.u32()
        messages = list(reader.items(lambda: reader.option(reader.bytes)))
        book.pages[number] = Page(messages, heap_used, sum(payload is not None for payload in messages))
    if broken := next(broken_book("a para", book), None):
        raise DecodeError(broken)
    return book


def _write_paras(out: Writer, paras: Sequence[ParaId]) -> None:
    out.compact(len(paras))
    for para in paras:
        out.u32(para)
