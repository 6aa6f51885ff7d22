# SPDX-License-Identifier: Apache-2.0
"""Upward messages that wait in the pallet ``MessageQueue``: its books, pages and ring, as a lane's STATE.json lays them out.

Source: polkadot-sdk, substrate/frame/message-queue/src/lib.rs (``BookState``, ``Page``, ``ItemHeader``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from validator.plugin.api import DecodeError, Reader
from validator_relay_chain import keys
from validator_relay_chain.channels import JsonRecord
from validator_relay_chain.limits import PAGE_MESSAGES_MAX

ORIGIN: Final = b"\x00\x00"
"""``AggregateMessageOrigin::Ump(UmpQueueId::Para(..))``, which the para follows."""
ORIGIN_BYTES: Final = len(ORIGIN) + keys.PARA_BYTES


class StoredBook(NamedTuple):
    """A value of ``BookStateFor``. Pages from ``begin`` to ``end`` - 1 have messages that wait, older ones some that were set aside."""

    begin: int
    end: int
    pages: int
    """Pages that there are, those of messages set aside included."""
    following: int | None
    """The next para of the ring, if this one is in it."""
    messages: int
    """Messages that are not processed."""
    size: int
    """Their bytes."""


class StoredPage(NamedTuple):
    """A value of ``Pages``: messages by index, None for a processed one; those before ``first`` were processed or set aside."""

    first: int
    heap_bytes: int
    messages: tuple[bytes | None, ...]


@dataclass(frozen=True, slots=True)
class UpwardState:
    """The keys of STATE.json about upward messages in pages, and what somebody should know."""

    keys: JsonRecord
    notices: tuple[str, ...]


def decode_book(raw: bytes) -> StoredBook:
    """Return a book. Raises `DecodeError`."""
    reader = Reader(raw)
    begin, end, pages = reader.u32(), reader.u32(), reader.u32()
    neighbours = reader.option(lambda: (_origin(reader), _origin(reader)))
    book = StoredBook(begin, end, pages, neighbours and neighbours[1], reader.u64(), reader.u64())
    reader.end()
    return book


def decode_page(raw: bytes) -> StoredPage:
    """Return a page. Raises `DecodeError`, also if its messages do not end where its heap does."""
    reader = Reader(raw)
    reader.u32()  # messages that are left
    reader.u32()  # their bytes
    first = reader.u32()
    reader.u32()  # where that message begins
    reader.u32()  # where the last one begins
    heap = Reader(reader.bytes())
    reader.end()
    messages: list[bytes | None] = []
    while heap.position < len(heap.data):
        if len(messages) >= PAGE_MESSAGES_MAX:
            raise DecodeError(f"a page has more than {PAGE_MESSAGES_MAX} messages")
        size = heap.u32()
        is_processed = heap.boolean()
        payload = heap.take(size)
        messages.append(None if is_processed else payload)
    return StoredPage(first, len(heap.data), tuple(messages))


def decode_origin(raw: bytes) -> int:
    """Return the para of an origin. Raises `DecodeError` for another origin."""
    reader = Reader(raw)
    para = _origin(reader)
    reader.end()
    return para


def upward_state(
    books: Iterable[tuple[bytes, bytes]],
    pages: Iterable[tuple[bytes, bytes]],
    head: bytes | None,
    is_para: Callable[[int], bool],
) -> UpwardState:
    """Return what a lane begins with of stored books and pages, by their keys, and of the value of ``ServiceHead``.

    A book that lacks a page, or does not have the messages that it counts, is left out with a notice, so that the lane can begin. Raises
    `DecodeError`, and ``ValueError`` for another key.
    """
    notices: list[str] = []
    stored: dict[int, dict[int, StoredPage]] = {}
    for key, raw in pages:
        para, number = page_of(key)
        stored.setdefault(para, {})[number] = decode_page(raw)
    found: dict[int, StoredBook] = {}
    listed: JsonRecord = {}
    for key, raw in books:
        para = book_of(key)
        book = decode_book(raw)
        left = {number: page for number, page in sorted(stored.get(para, {}).items()) if any_left(page)}
        if not is_para(para) or (book.begin == book.end and not left):
            continue
        broken = _broken(book, left)
        if broken is not None:
            notices.append(f"upward messages of para {para}: {broken}: they are left out, room is overestimated")
            continue
        found[para] = book
        listed[str(para)] = _listed(book, left)
    ring = _ring(found, head)
    return UpwardState({"ready_ring": ring, "ump_books": listed}, tuple(notices))


def any_left(page: StoredPage) -> bool:
    """Return whether a message of a page is not processed."""
    return any(message is not None for message in page.messages)


def book_of(key: bytes) -> int:
    """Return the para of a key of ``BookStateFor``. Raises ``ValueError``."""
    return _para(keys.map_keys(key, (ORIGIN_BYTES,))[0])


def page_of(key: bytes) -> tuple[int, int]:
    """Return para and number of a key of ``Pages``. Raises ``ValueError``."""
    origin, number = keys.map_keys(key, (ORIGIN_BYTES, 4))
    return _para(origin), int.from_bytes(number, "little")


def _para(origin: bytes) -> int:
    try:
        return decode_origin(origin)
    except DecodeError as error:
        raise ValueError(f"storage key: {error}") from error


def _origin(reader: Reader) -> int:
    kind = reader.take(len(ORIGIN))
    if kind != ORIGIN:
        raise DecodeError(f"an origin of messages: expected a para's, found 0x{kind.hex()}")
    return reader.u32()


def _broken(book: StoredBook, pages: Mapping[int, StoredPage]) -> str | None:
    """Return why a book and its pages do not fit, or None."""
    if book.begin > book.end or any(number not in pages for number in range(book.begin, book.end)):
        return f"expected pages {book.begin} to {book.end - 1}, found {', '.join(map(str, pages)) or 'none'}"
    if any(number >= book.end for number in pages):
        return f"expected pages before {book.end}, found page {max(pages)}"
    for number in range(book.begin, book.end):
        page = pages[number]
        first = page.first if number == book.begin else 0
        if first >= len(page.messages) or None in page.messages[first:]:
            return f"page {number}: expected messages that wait from {first} on, found processed ones or none"
    sizes = [len(message) for page in pages.values() for message in page.messages if message is not None]
    if (len(sizes), sum(sizes)) != (book.messages, book.size):
        return f"expected {book.messages} messages of {book.size} bytes, found {len(sizes)} of {sum(sizes)}"
    return None


def _listed(book: StoredBook, pages: Mapping[int, StoredPage]) -> JsonRecord:
    return {
        "begin": book.begin,
        "end": book.end,
        "next_index": pages[book.begin].first if book.begin < book.end else 0,
        "pages": {
            str(number): {
                "heap_used": page.heap_bytes,
                "messages": [None if each is None else each.hex() for each in page.messages],
            }
            for number, page in pages.items()
        },
    }


def _ring(books: Mapping[int, StoredBook], head: bytes | None) -> list[int]:
    """Return the paras with waiting messages in the order in which they are served; those that the ring does not reach come last."""
    waiting = {para for para, book in books.items() if book.begin < book.end}
    ring: list[int] = []
    at = None if head is None else decode_origin(head)
    while at in books and at not in ring and at is not None:
        ring.append(at)
        at = books[at].following
    ring = [para for para in ring if para in waiting]
    return [*ring, *sorted(waiting - set(ring))]
