# SPDX-License-Identifier: Apache-2.0
"""Downward queues in one value, in pages, and in both while they move: the same records, state and facts. Source: chain_2026 section 3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from paged_world import LAST, MIGRATED, PAGED, UPGRADE, paged_chain, paged_metadata
from relay_world import FIRST, LANE, Collected, World, load
from validator_relay_chain import keys
from validator_relay_chain.errors import ChainContradiction, UndecodableBlock
from validator_relay_chain.header import to_hex
from validator_relay_chain.limits import PAGES_PER_READ, QUEUE_PAGES_MAX
from validator_relay_chain.oracle.records import FACTS
from validator_relay_chain.storage import (
    Meta,
    Queued,
    decode_meta,
    encode_meta,
    encode_page,
    encode_queue,
    sent_since,
    whole_queues,
)
from validator_simulators.relay_chain import Fault, FaultKind, MockNode
from validator_simulators.relay_chain.made import MadeChain

from validator.plugin.api import DecodeError

PARA = 2004


@cache
def chain(*, with_pages: bool) -> MadeChain:
    return paged_chain(with_pages=with_pages)


def followed(folder: Path, *, with_pages: bool = True, first: int = FIRST) -> tuple[Any, Collected]:
    with MockNode(chain(with_pages=with_pages).recording) as node:
        world = World([node.url], folder, to_block=LAST)
        seed, out = world.seed(first), Collected()
        world.follow(out, seed)
    return seed, out


def downward_of(out: Collected) -> list[tuple[int, int, str]]:
    return [
        (record["block"], record["para_id"], record["msg"])
        for topic, record in out.records
        if topic == "downward-messages"
    ]


def test_queues_that_move_into_pages_give_the_same_records(tmp_path: Path) -> None:
    """The chain upgrades in the middle, and nobody starts anything again."""
    _, moved = followed(tmp_path / "moved")
    _, stayed = followed(tmp_path / "stayed", with_pages=False)
    assert moved.blocks() == list(range(FIRST, LAST + 1))
    found = downward_of(moved)
    assert found == downward_of(stayed)
    assert {block for block, _, _ in found} == set(range(FIRST + 1, LAST + 1))


def test_judge_counts_what_waits_in_value_and_pages(tmp_path: Path) -> None:
    counted = []
    for with_pages in (True, False):
        with MockNode(chain(with_pages=with_pages).recording) as node:
            world = World([node.url], tmp_path / str(with_pages), to_block=LAST, compare_every_blocks=1)
            seed, out = world.seed(), Collected()
            world.follow(out, seed)
        facts = [record for topic, record in out.records if topic == FACTS]
        assert all(not each["unread"] for each in facts)
        counted.append([{each["para_id"]: each["messages"] for each in record["downward"]} for record in facts])
    assert counted[0] == counted[1]
    assert max(each[PARA] for each in counted[0]) > 3


@pytest.mark.parametrize("after", [FIRST + 2, UPGRADE, UPGRADE + 1, UPGRADE + 3, MIGRATED - 1, MIGRATED, LAST - 2])
def test_lane_joins_before_during_and_after_the_move(tmp_path: Path, after: int) -> None:
    states = []
    for with_pages in (True, False):
        seed, out = followed(tmp_path / str(with_pages), with_pages=with_pages, first=after)
        states.append((seed.state["state"]["dmq"], seed.state["state"]["dmq_heads"], downward_of(out)))
    assert states[0] == states[1]
    assert states[0][0][str(PARA)]


def test_the_queue_is_in_both_places_while_it_moves() -> None:
    """Otherwise the tests above show nothing."""
    recording = chain(with_pages=True).recording
    both = []
    for number in range(FIRST, LAST + 1):
        block = recording.at(recording.canonical[number])
        assert block is not None
        places = [to_hex(keys.para_key(item, PARA)) in block.storage for item in (keys.DMP_QUEUES, keys.DMP_META)]
        both.append(places)
    assert both[:3] == [[True, False]] * 3
    assert [True, True] in both
    assert both[-3:] == [[False, True]] * 3


# --- values ---


def reads(values: Mapping[bytes, bytes], asked: list[bytes]) -> Any:
    def read(wanted: Sequence[bytes]) -> dict[bytes, bytes | None]:
        asked.extend(wanted)
        return {key: values.get(key) for key in wanted}

    return read


def stored(first: int, end: int, value: Sequence[Queued] = (), *, dead: bool = True) -> dict[bytes, bytes]:
    """Return a queue whose page numbers say when they were sent, with dead pages around those that wait."""
    found = {keys.para_key(keys.DMP_META, PARA): encode_meta(Meta(first, end))}
    for number in range(max(0, first - 3) if dead else first, end + 3 if dead else end):
        found[keys.page_key(PARA, number)] = encode_page(Queued(number, b"%d" % number))
    if value:
        found[keys.para_key(keys.DMP_QUEUES, PARA)] = encode_queue(value)
    return found


def test_only_pages_that_wait_are_read_and_only_as_far_back_as_needed() -> None:
    asked: list[bytes] = []
    found = sent_since(PARA, 499, reads(stored(100, 500), asked), has_pages=True)
    assert found[-1] == Queued(499, b"499")
    pages = [keys.page_of(key)[1] for key in asked[2:]]
    assert pages == list(range(500 - PAGES_PER_READ, 500))


def test_messages_of_a_block_may_stand_in_pages_and_in_the_value() -> None:
    value = [Queued(7, b"a"), Queued(7, b"b")]
    found = sent_since(PARA, 7, reads(stored(5, 8, value), []), has_pages=True)
    assert [each.sent_at for each in found] == [5, 6, 7, 7, 7]
    found = sent_since(PARA, 7, reads(stored(5, 8, [Queued(6, b"old"), *value]), []), has_pages=True)
    assert [each.msg for each in found] == [b"old", b"a", b"b"], "what is before the block needs no page"


def test_runtime_without_pages_is_asked_for_one_value() -> None:
    asked: list[bytes] = []
    values = {keys.para_key(keys.DMP_QUEUES, PARA): encode_queue([Queued(3, b"m")])}
    assert sent_since(PARA, 3, reads(values, asked), has_pages=False) == (Queued(3, b"m"),)
    assert asked == [keys.para_key(keys.DMP_QUEUES, PARA)]


def test_whole_queues_are_pages_then_the_value() -> None:
    values = stored(2, 4, [Queued(9, b"v")])
    metas = {key: raw for key, raw in values.items() if key.startswith(keys.DMP_META)}
    pages = {key: raw for key, raw in values.items() if key.startswith(keys.DMP_PAGES)}
    queues = {key: raw for key, raw in values.items() if key.startswith(keys.DMP_QUEUES)}
    assert whole_queues(metas, pages, queues) == {PARA: (Queued(2, b"2"), Queued(3, b"3"), Queued(9, b"v"))}
    assert whole_queues({}, pages, {}) == {}, "pages without a meta are dead"
    pages.pop(keys.page_key(PARA, 3))
    with pytest.raises(DecodeError, match="page 3 of the downward queue of para 2004 is not there, although it waits"):
        whole_queues(metas, pages, queues)


@pytest.mark.parametrize("meta", [Meta(5, 4), Meta(0, QUEUE_PAGES_MAX + 1)])
def test_meta_that_no_queue_can_have_is_refused(meta: Meta) -> None:
    with pytest.raises(DecodeError, match="expected at most"):
        decode_meta(encode_meta(meta))


def test_page_key_has_both_hashers() -> None:
    key = keys.page_key(PARA, 2**40)
    assert keys.page_of(key) == (PARA, 2**40)
    assert len(key) == 32 + 16 + 4 + 8 + 8
    with pytest.raises(ValueError, match="a page of a downward queue"):
        keys.page_of(key[:-1] + b"\x01")


# --- nodes and runtimes ---


def test_page_that_a_node_withholds_is_its_fault(tmp_path: Path) -> None:
    recording = paged_chain().recording
    block = recording.at(recording.canonical[MIGRATED + 3])
    assert block is not None
    waiting = [key for key in block.storage if key.startswith(to_hex(keys.DMP_PAGES))]
    for key in waiting:
        del block.storage[key]
    with MockNode(recording, [Fault(FaultKind.NO_METHOD, "state_getReadProof", count=None)]) as node:
        world = World([node.url], tmp_path, to_block=LAST)
        with pytest.raises(ChainContradiction, match="is not there, although it waits"):
            world.follow(Collected(), world.seed())


def test_runtime_needs_the_value_or_both_items_of_pages() -> None:
    assert load("polkadot", PAGED, paged_metadata()).has_downward_pages
    half = paged_metadata().replace(b"DownwardMessageQueuePages", b"DownwardMessageQueueOther")
    with pytest.raises(UndecodableBlock, match=r"it has no storage item Dmp.DownwardMessageQueues"):
        load(LANE, PAGED, half)
