# SPDX-License-Identifier: Apache-2.0
"""Upward messages that wait in pages when a lane joins: what was stored is what the lane's state has."""

from __future__ import annotations

from pathlib import Path

import pytest
from relay_world import FIRST, LANE, World, empty_chain
from validator_relay_chain import keys
from validator_relay_chain.prepare import configuration as tables
from validator_relay_chain.prepare import prepare
from validator_relay_chain.upward import ORIGIN, decode_book, decode_page, page_of, upward_state
from validator_simulators.relay_chain import MockNode

from validator.config import Config
from validator.lanes.configured import lane_definition
from validator.plugin.api import DecodeError, Writer

Page = tuple[int, list[tuple[bytes, bool]]]
"""Index of the first waiting message, and messages with whether they are processed."""


def origin(para: int) -> bytes:
    return ORIGIN + para.to_bytes(4, "little")


def book(begin: int, end: int, ring: tuple[int, int] | None, messages: int, size: int) -> bytes:
    out = Writer()
    for number in (begin, end, end - begin):
        out.u32(number)
    out.buffer += b"\x00" if ring is None else b"\x01" + origin(ring[0]) + origin(ring[1])
    out.u64(messages)
    out.u64(size)
    return bytes(out.buffer)


def page(first: int, messages: list[tuple[bytes, bool]]) -> bytes:
    heap = b"".join(len(each).to_bytes(4, "little") + bytes([done]) + each for each, done in messages)
    left = [each for each, done in messages if not done]
    out = Writer()
    for number in (len(left), sum(map(len, left)), first, 0, 0):
        out.u32(number)
    out.bytes(heap)
    return bytes(out.buffer)


def stored() -> dict[bytes, bytes]:
    """Return a storage: 2004 is served next, then 1000; 2000 has only a message that was set aside."""
    pages: dict[tuple[int, int], Page] = {
        (1000, 7): (1, [(b"aside", False), (b"waits", False)]),
        (1000, 8): (0, [(b"later", False)]),
        (2000, 2): (2, [(b"done", True), (b"too heavy", False)]),
        (2004, 0): (1, [(b"done", True), (b"next", False)]),
    }
    books = {
        1000: book(7, 9, (2004, 2004), 3, 15),
        2000: book(3, 3, None, 1, 9),
        2004: book(0, 1, (1000, 1000), 1, 4),
        3000: book(4, 4, None, 0, 0),
    }
    found = {keys.map_key(keys.MQ_BOOKS, origin(para)): raw for para, raw in books.items()}
    for (para, number), given in pages.items():
        found[keys.map_key(keys.MQ_PAGES, origin(para), number.to_bytes(4, "little"))] = page(*given)
    return found | {keys.MQ_HEAD: origin(2004)}


def test_lane_begins_with_the_stored_messages(tmp_path: Path) -> None:
    chain = empty_chain()
    chain.add(changes=stored())
    with MockNode(chain.recording) as node:
        world = World([node.url], tmp_path)
        prepared = prepare(world.chain(), LANE, tmp_path / LANE, from_block=FIRST + 1, tell=world.told.append)
        made = tables(prepared, [node.url], str(tmp_path / LANE), None)
    assert world.told == []
    state = prepared.seed.state["state"]
    assert state["ready_ring"] == [2004, 1000]
    assert state["ump_books"]["1000"]["pages"]["7"]["messages"] == [b"aside".hex(), b"waits".hex()]
    assert state["ump_books"]["1000"]["next_index"] == 1
    assert state["ump_books"]["2000"] == {
        "begin": 3, "end": 3, "next_index": 0, "pages": {"2": {"heap_used": 23, "messages": [None, b"too heavy".hex()]}}
    }  # fmt: skip
    assert "3000" not in state["ump_books"]
    lane = lane_definition(Config.model_validate(made | {"job": {"directory": str(tmp_path)}}), LANE)
    assert lane.first_block == FIRST


@pytest.mark.parametrize(
    ("change", "notice"),
    [
        ({(1000, 8): None}, "expected pages 7 to 8, found 7: "),
        ({(1000, 7): (1, [(b"aside", False), (b"waits", True)])}, "page 7: expected messages that wait from 1 on, "),
        ({(1000, 7): (1, [(b"waits", False)])}, "page 7: expected messages that wait from 1 on, "),
        ({(1000, 8): (0, [(b"late", False)])}, "expected 3 messages of 15 bytes, found 3 of 14: "),
        ({(1000, 9): (0, [(b"more", False)])}, "expected pages before 9, found page 9: "),
    ],
)
def test_book_that_contradicts_its_pages_is_left_out(change: dict[tuple[int, int], Page | None], notice: str) -> None:
    values = stored()
    for (para, number), given in change.items():
        key = keys.map_key(keys.MQ_PAGES, origin(para), number.to_bytes(4, "little"))
        values.pop(key, None)
        values |= {} if given is None else {key: page(*given)}
    of = {prefix: [each for each in values.items() if each[0].startswith(prefix)] for prefix in PREFIXES}
    found = upward_state(of[keys.MQ_BOOKS], of[keys.MQ_PAGES], values[keys.MQ_HEAD], lambda _: True)
    assert found.keys["ready_ring"] == [2004]
    (told,) = found.notices
    assert told.startswith(f"upward messages of para 1000: {notice}")


PREFIXES = (keys.MQ_BOOKS, keys.MQ_PAGES)


def test_ring_that_ends_early_is_completed() -> None:
    books = {keys.map_key(keys.MQ_BOOKS, origin(para)): book(0, 1, None, 1, 1) for para in (5, 3, 4)}
    pages = {
        keys.map_key(keys.MQ_PAGES, origin(para), bytes(4)): page(0, [(b"x", False)]) for para in (3, 4, 5)
    }  # fmt: skip
    for head, ring in ((origin(4), [4, 3, 5]), (None, [3, 4, 5]), (origin(9), [3, 4, 5])):
        found = upward_state(books.items(), pages.items(), head, lambda _: True)
        assert (found.keys["ready_ring"], found.notices) == (ring, ())


def test_bytes_that_are_no_book_page_or_key_are_refused() -> None:
    for raw in (b"", book(0, 0, None, 0, 0)[:-1], book(0, 0, None, 0, 0) + b"\0", book(0, 0, (1, 1), 0, 0)[:20]):
        with pytest.raises(DecodeError):
            decode_book(raw)
    with pytest.raises(DecodeError, match="expected a para's, found 0x0100"):
        decode_book(book(0, 0, (1, 1), 0, 0).replace(origin(1), b"\1\0" + bytes(4)))
    for raw in (b"", page(0, [(b"abc", False)])[:-1], page(0, [(b"abc", False)]).replace(b"\3\0\0\0\0", b"\4\0\0\0\0")):
        with pytest.raises(DecodeError):
            decode_page(raw)
    with pytest.raises(ValueError, match="storage key: expected one of a map by 2 keys"):
        page_of(keys.map_key(keys.MQ_BOOKS, origin(1)))
