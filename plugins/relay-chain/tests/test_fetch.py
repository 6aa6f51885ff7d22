# SPDX-License-Identifier: Apache-2.0
"""Blocks are fetched into files in any order, and followed from there without a node: to the same records."""

from __future__ import annotations

import dataclasses
import random
import threading
from pathlib import Path

import pytest
from paged_world import paged_chain
from relay_world import FIRST, GENESIS, SESSION, Collected, World, busy_chain, late_chain, load
from validator_relay_chain import archive, backfill
from validator_relay_chain.archive import LATER, Archive, KeptChain, Range, missing_ranges, ranges_of
from validator_relay_chain.backfill import RangeFetcher, Work
from validator_relay_chain.config import ChainSource
from validator_relay_chain.errors import BadAnswer, ChainContradiction, FollowError, StatePruned
from validator_relay_chain.header import to_hex
from validator_relay_chain.metadata import MetadataCache
from validator_relay_chain.pool import NodePool
from validator_relay_chain.seeding import Seed
from validator_simulators.relay_chain import Fault, FaultKind, MockNode
from validator_simulators.relay_chain.made import MadeChain

in_every_speech = pytest.mark.usefixtures("speech")
"""Whatever the node speaks; the other tests are about files, and one way of asking is enough for them."""

EVERY = 3
NOWHERE = "ws://127.0.0.1:1"


class KeptWorld(World):
    """A lane that takes its blocks from files where it can."""

    def chain(self) -> KeptChain:
        """Return the chain, with a new connection."""
        pool = NodePool(self.urls, self.time, genesis=GENESIS, tell=self.tell, answer_s_max=self.answer_s_max)
        blocks = Archive(self.folder / "blocks", GENESIS)
        return KeptChain(pool, MetadataCache(self.folder / "metadata"), load, blocks=blocks)


@pytest.fixture(autouse=True)
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "BLOCKS_PER_RANGE", 8)


def work_of(node: MockNode, folder: Path, last: int, *spares: MockNode, in_flight: int = 4) -> Work:
    urls = (node.url, *(each.url for each in spares))
    source = ChainSource(
        rpc=urls, genesis=to_hex(GENESIS), folder=str(folder), to_block=last, compare_every_blocks=EVERY
    )
    return Work(source, in_flight)


def fetched(work: Work, first: int = FIRST + 1, *, told: list[str] | None = None, shuffled: bool = False) -> Path:
    """Fetch what is missing, and return the folder."""
    folder, last = work.source.blocks_folder, work.source.to_block
    assert last is not None
    ranges = missing_ranges(ranges_of(folder), first, last)
    if shuffled:
        random.Random(7).shuffle(ranges)
    fetcher = RangeFetcher(work, threading.Event(), [].append if told is None else told.append)
    for each in ranges:
        fetcher.fetch(each)
    fetcher.close()
    return folder


def from_node(chain: MadeChain, folder: Path) -> tuple[Collected, Seed]:
    with MockNode(chain.recording) as node:
        world = World([node.url], folder, to_block=chain.number, compare_every_blocks=EVERY)
        out, seed = Collected(), world.seed()
        world.follow(out, seed)
    return out, seed


def from_files(folder: Path, seed: Seed, last: int, url: str = NOWHERE) -> tuple[Collected, KeptWorld]:
    world = KeptWorld([url], folder, to_block=last, compare_every_blocks=EVERY)
    out = Collected()
    world.follow(out, seed)
    return out, world


@in_every_speech
@pytest.mark.parametrize("make", [busy_chain, paged_chain])
@pytest.mark.parametrize("shuffled", [False, True])
def test_records_are_the_same_without_a_node(make: object, tmp_path: Path, *, shuffled: bool) -> None:
    chain = make()  # type: ignore[operator]
    expected, seed = from_node(chain, tmp_path)
    with MockNode(chain.recording) as node:
        folder = fetched(work_of(node, tmp_path, chain.number), shuffled=shuffled)
    found, world = from_files(tmp_path, seed, chain.number)
    assert found.records == expected.records
    assert found.cursor == expected.cursor
    assert all(": runtime " in line for line in world.told), "no node was asked"
    assert not (folder / LATER).exists(), "all that is read was fetched"


def test_same_blocks_are_the_same_bytes(tmp_path: Path) -> None:
    chain = busy_chain()
    with MockNode(chain.recording) as node:
        one = fetched(work_of(node, tmp_path / "one", chain.number, in_flight=1))
        many = fetched(work_of(node, tmp_path / "many", chain.number, in_flight=16), shuffled=True)
    files = sorted(path.name for path in one.iterdir())
    assert files == sorted(path.name for path in many.iterdir())
    assert len(files) == 5
    assert all((one / name).read_bytes() == (many / name).read_bytes() for name in files)


@in_every_speech
def test_what_a_lane_alone_knows_to_ask_is_asked_once(tmp_path: Path) -> None:
    chain = late_chain()
    features = ("forced_requests", "cancel_open_request")
    with MockNode(chain.recording) as node:
        seed = World([node.url], tmp_path).seed()
        folder = fetched(work_of(node, tmp_path, chain.number))
        found = [Collected(), Collected(), Collected()]
        for out, kind, url in zip(found, (World, KeptWorld, KeptWorld), (node.url, node.url, NOWHERE), strict=True):
            world = kind([url], tmp_path, to_block=chain.number, compare_every_blocks=EVERY, features=features)
            world.follow(out, seed)
            if kind is KeptWorld and url == node.url:
                later = (folder / LATER).read_bytes()
                (folder / LATER).write_bytes(later + b'{"block": "0x')  # killed while it wrote
    assert found[0].records == found[1].records == found[2].records
    assert later.count(b"\n") > 1


def test_fetching_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    chain = busy_chain()
    expected, seed = from_node(chain, tmp_path)
    with MockNode(chain.recording) as node:
        fetched(work_of(node, tmp_path, FIRST + 12))
        folder = tmp_path / "blocks"
        (folder / Range(FIRST + 5, FIRST + 11).name).unlink(missing_ok=True)
        sorted(folder.glob("*.avro"))[0].unlink()
        kept = {path: path.read_bytes() for path in folder.glob("*.avro")}
        fetched(work_of(node, tmp_path, chain.number))
    assert kept
    assert all(path.read_bytes() == content for path, content in kept.items()), "files are not fetched twice"
    covered = [number for each in ranges_of(folder) for number in range(each.first, each.last + 1)]
    assert covered == list(range(FIRST + 1, chain.number + 1))
    assert from_files(tmp_path, seed, chain.number)[0].records == expected.records


def test_blocks_after_the_files_come_from_the_node(tmp_path: Path) -> None:
    chain = busy_chain()
    expected, seed = from_node(chain, tmp_path)
    with MockNode(chain.recording) as node:
        fetched(work_of(node, tmp_path, SESSION))
        node.requests.clear()
        found, _ = from_files(tmp_path, seed, chain.number, node.url)
        asked = node.requests["chain_getBlock"]
    assert found.records == expected.records
    assert asked == chain.number - SESSION


@in_every_speech
def test_nodes_that_fail_in_between_change_no_byte(tmp_path: Path) -> None:
    chain = busy_chain()
    with MockNode(chain.recording) as node:
        expected = fetched(work_of(node, tmp_path / "one", chain.number))
    faults = [Fault(FaultKind.CUT, "chain_getBlock", 5, 1), Fault(FaultKind.RATE_LIMIT, "state_queryStorageAt", 6, 1)]
    told: list[str] = []
    with MockNode(chain.recording, faults) as node:
        found = fetched(work_of(node, tmp_path / "two", chain.number), told=told)
    assert told, "no fault has struck"
    assert [path.read_bytes() for path in sorted(found.iterdir())] == [
        path.read_bytes() for path in sorted(expected.iterdir())
    ]


def test_node_of_another_fork_is_left_for_the_spare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill.os, "getpid", lambda: 0)
    chain, fork = busy_chain(), busy_chain()
    number = FIRST + 6
    fork.recording.canonical[number] = fork.recording.canonical[number + 1]
    with MockNode(fork.recording) as liar, MockNode(chain.recording) as spare:
        folder = fetched(work_of(liar, tmp_path / "one", chain.number, spare), told=(told := []))
        with pytest.raises(BadAnswer, match="expected a child of"):
            fetched(work_of(liar, tmp_path / "two", chain.number))
    assert any("expected a child of" in line for line in told)
    assert sorted(ranges_of(folder))[-1].last == chain.number
    assert not list((tmp_path / "two" / "blocks").glob(".*"))


@in_every_speech
def test_state_that_is_gone_ends_it(tmp_path: Path) -> None:
    chain = busy_chain()
    pruned = Fault(FaultKind.PRUNED, "state_queryStorageAt", count=None)
    with MockNode(chain.recording, [pruned]) as node, pytest.raises(StatePruned, match="an archive node is needed"):
        fetched(work_of(node, tmp_path, chain.number))
    assert not ranges_of(tmp_path / "blocks")


def test_damaged_file_is_named(tmp_path: Path) -> None:
    chain = busy_chain()
    _, seed = from_node(chain, tmp_path)
    with MockNode(chain.recording) as node:
        folder = fetched(work_of(node, tmp_path, chain.number))
    path = folder / ranges_of(folder)[1].name
    content = path.read_bytes()
    for damaged in (content[:-40], content[: len(content) // 2] + b"?" * 30 + content[len(content) // 2 + 30 :], b""):
        path.write_bytes(damaged)
        with pytest.raises(FollowError, match=f"{path.name}: .*: remove the file, and fetch its blocks again"):
            from_files(tmp_path, seed, chain.number)
    path.write_bytes(content)
    with pytest.raises(FollowError, match="expected blocks of the chain with genesis 0x0000"):
        list(archive.read_range(path, ranges_of(folder)[1], bytes(32)))


def test_file_of_another_fork_is_named(tmp_path: Path) -> None:
    chain = busy_chain()
    _, seed = from_node(chain, tmp_path)
    with MockNode(chain.recording) as node:
        folder = fetched(work_of(node, tmp_path, chain.number))
    first, second = (folder / each.name for each in ranges_of(folder)[:2])
    number = ranges_of(folder)[1].first
    blocks = [
        dataclasses.replace(each, raw=dataclasses.replace(
            each.raw, header=dataclasses.replace(each.raw.header, parent_hash=bytes(32))))
        for each in archive.read_range(second, ranges_of(folder)[1], GENESIS)
    ]  # fmt: skip
    ends = archive.ends_of(second)._replace(parent=bytes(32))
    archive.write_range(folder, ranges_of(folder)[1], GENESIS, ends, blocks)
    out = Collected()
    with pytest.raises(ChainContradiction, match=f"{second.name}: block {number}.*remove the file"):
        KeptWorld([NOWHERE], tmp_path, to_block=chain.number, compare_every_blocks=EVERY).follow(out, seed)
    assert out.blocks() == list(range(FIRST, number))
    assert archive.ends_of(first).last != archive.ends_of(second).parent


def test_ranges_stay_within_their_multiples() -> None:
    assert missing_ranges([], 101, 120) == [(101, 103), (104, 111), (112, 119), (120, 120)]
    assert missing_ranges([Range(104, 111), Range(101, 102)], 101, 120) == [(103, 103), (112, 119), (120, 120)]
    assert missing_ranges([Range(90, 130)], 101, 120) == []
    assert missing_ranges([Range(110, 130)], 101, 109) == [(101, 103), (104, 109)]
