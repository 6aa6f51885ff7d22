# SPDX-License-Identifier: Apache-2.0
"""Candidates whose relay parent is older than the blocks that a position knows, as descriptors of version 3 allow."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from relay_world import FIRST, Collected, World, empty_chain
from validator_relay_chain import convert, position
from validator_relay_chain.channels import Channels
from validator_relay_chain.convert import relay_parents
from validator_relay_chain.errors import ParentUnknown
from validator_relay_chain.limits import CURSOR_BYTES_MAX, NUMBERS_MAX
from validator_relay_chain.position import Position
from validator_relay_chain.source import Chain
from validator_simulators.relay_chain import MockNode
from validator_simulators.relay_chain.made import MadeCandidate, MadeChain

JOINED = FIRST + 10
OLD = (FIRST + 2, FIRST + 5)
"""Blocks before the lane joins, on which every later candidate builds."""
LAST = FIRST + 20
RESTARTED = FIRST + 15


def hash_of(chain: MadeChain, number: int) -> bytes:
    return bytes.fromhex(chain.recording.canonical[number][2:])


def chain_of_old_parents(unknown: bytes | None = None) -> MadeChain:
    """Return a chain in which each block backs a candidate on each of the old blocks; one at the end may build on an unknown block."""
    chain = empty_chain()
    while chain.number < LAST:
        number, candidates = chain.number + 1, list[MadeCandidate]()
        if number > JOINED:
            candidates = [
                MadeCandidate(para, hash_of(chain, old), old) for para, old in zip((2000, 2004), OLD, strict=True)
            ]
        if number == LAST and unknown is not None:
            candidates = [MadeCandidate(2000, unknown, number - 1)]
        chain.add(backed=candidates, included=sorted(chain._pending))
    return chain


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the hashes of the headers that were asked for."""
    found: list[bytes] = []
    header = Chain.header

    def noting(self: Chain, block_hash: bytes) -> object:
        found.append(block_hash)
        return header(self, block_hash)

    monkeypatch.setattr(Chain, "header", noting)
    return found


def test_older_parent_is_asked_for_once_by_whichever_process(
    asked: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (convert, position):
        monkeypatch.setattr(module, "RECENT_HASHES", 3)
    chain, out = chain_of_old_parents(), Collected()
    with MockNode(chain.recording) as node:
        seed = World([node.url], tmp_path).seed(JOINED)
        for last in (RESTARTED, LAST):
            World([node.url], tmp_path, to_block=last).follow(out, seed)
    for number in range(JOINED + 1, LAST + 1):
        assert [each["relay_parent_number"] for each in out.of("candidates", number)] == list(OLD)
    for old in OLD:
        assert asked.count(hash_of(chain, old)) == 1
    assert out.cursor is not None
    assert Position.decode(out.cursor).parents == {hash_of(chain, old): old for old in OLD}


def test_parent_that_no_node_knows_stops_the_lane_with_what_is_needed(tmp_path: Path) -> None:
    chain, out = chain_of_old_parents(unknown=bytes.fromhex("ab" * 32)), Collected()
    with MockNode(chain.recording) as node:
        world = World([node.url], tmp_path, to_block=LAST)
        with pytest.raises(
            ParentUnknown,
            match=rf"^block {LAST}: the relay parent of a candidate is block 0x(ab){{32}}, whose header no node has: a node that keeps ",
        ):
            world.follow(out, world.seed(JOINED))
    assert out.blocks() == list(range(JOINED, LAST))
    assert not any("is asked for again" in line for line in world.told)


def test_spare_knows_what_the_first_node_has_forgotten(tmp_path: Path) -> None:
    forgetful, whole = chain_of_old_parents(), chain_of_old_parents()
    with MockNode(whole.recording) as spare:
        world, expected = World([spare.url], tmp_path, to_block=LAST), Collected()
        seed = world.seed(JOINED)
        world.follow(expected, seed)
        for old in OLD:
            del forgetful.recording.blocks[forgetful.recording.canonical.pop(old)]
        with MockNode(forgetful.recording) as node:
            out = Collected()
            World([node.url, spare.url], tmp_path, to_block=LAST).follow(out, seed)
    assert out.records == expected.records


def made_up(number: int) -> bytes:
    return number.to_bytes(32, "little")


def position_at(number: int, parents: dict[bytes, int]) -> Position:
    return Position(
        genesis=bytes(32), number=number, hash=bytes(32), spec_name="polkadot", spec_version=1, next_runtime=False,
        new_session=False, recent=(b"\1" * 32, bytes(32)), pending=(), lifecycles={}, configuration={}, heads={}, channels=Channels(),
        parents=parents,
    )  # fmt: skip


def test_parents_are_kept_as_long_as_the_chain_allows_and_no_more_of_them() -> None:
    known = {made_up(each): each for each in (5, 6, 9_000)}
    found = relay_parents(position_at(5 + NUMBERS_MAX, known), 6 + NUMBERS_MAX, [bytes(32)], lambda _: 0)
    assert found.numbers == {bytes(32): 5 + NUMBERS_MAX}
    assert found.kept == {made_up(each): each for each in (6, 9_000)}

    at = 2 * NUMBERS_MAX
    everything = {made_up(each): each for each in range(at)}
    wanted = [made_up(at - 1), made_up(at), made_up(at)]
    asked: list[bytes] = []

    def ask(parent: bytes) -> int:
        asked.append(parent)
        return int.from_bytes(parent, "little")

    found = relay_parents(position_at(at, everything), at + 1, wanted, ask)
    assert asked == [made_up(at)]
    assert list(found.kept.values()) == list(range(at - NUMBERS_MAX + 1, at + 1))


def test_cursor_with_every_parent_fits_and_one_of_an_earlier_version_has_none() -> None:
    parents = {sha256(made_up(each)).digest(): each for each in range(NUMBERS_MAX)}
    full = position_at(NUMBERS_MAX, parents)
    assert len(full.encode()) < CURSOR_BYTES_MAX / 2
    assert Position.decode(full.encode()) == full
    without = replace(full, parents={})
    assert Position.decode(without.encode()) == without
