# SPDX-License-Identifier: Apache-2.0
"""Heads of downward queues that do not follow from messages: the state root decides. Source: chain_2026 sections 3 and 4."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from oracle_world import execute, facts, kinds, verdict
from oracle_world import judged as compared
from paged_world import paged_metadata
from relay_world import FIRST, LANE, SPEC, Collected, World, empty_chain
from test_judge_recorded import followed, judged
from validator_relay_chain import fetch, keys
from validator_relay_chain.block_reads import BlockReads, read_heads_and_lists
from validator_relay_chain.convert import link
from validator_relay_chain.errors import ChainContradiction
from validator_relay_chain.header import to_hex
from validator_relay_chain.oracle import records
from validator_relay_chain.oracle.facts import DownwardFact, DownwardReset
from validator_relay_chain.oracle.judge import Judge
from validator_simulators.relay_chain import Fault, FaultKind, MockNode
from validator_simulators.relay_chain.made import PARACHAIN, MadeChain, MadeState

PARA = 2000
RESET = FIRST + 2
"""The block in which root changes the queue."""
OTHER = b"\x07" * 32


def replaced(state: MadeState) -> None:
    state.downward_heads[PARA] = OTHER


def removed(state: MadeState) -> None:
    del state.downward_heads[PARA]
    del state.downward[PARA]


def changed(change: Any = lambda _: None) -> MadeChain:
    """Return a chain with downward messages before and after a change of the queue."""
    chain = empty_chain()
    chain.add()
    chain.add(downward=[(PARA, b"before")])
    chain.add(hidden=change, downward=[(PARA, b"in the block")])
    chain.add(downward=[(PARA, b"after"), (2004, b"to another")])
    chain.add(new_session=True)
    chain.add(downward=[(PARA, b"later")])
    return chain


def follow(chain: MadeChain, folder: Path, *faults: Fault) -> tuple[Collected, World]:
    with MockNode(chain.recording, faults) as node:
        world, out = World([node.url], folder, to_block=chain.number), Collected()
        world.follow(out, world.seed())
    return out, world


@pytest.mark.parametrize(("change", "head"), [(replaced, OTHER), (removed, bytes(32))])
def test_proven_head_is_believed_and_the_lane_continues(change: Any, head: bytes, tmp_path: Path) -> None:
    chain = changed(change)
    out, world = follow(chain, tmp_path)
    assert out.blocks() == list(range(FIRST, chain.number + 1))
    sent = [(each["block"], bytes.fromhex(each["msg"])) for topic, each in out.records if topic == "downward-messages"]
    assert [msg for _, msg in sent] == [b"before", b"in the block", b"after", b"to another", b"later"]
    (line,) = [line for line in world.told if "downward queue" in line]
    assert line.startswith(f"block {RESET}: downward queue of para {PARA}: expected messages that lead to head 0x")
    assert line.endswith("the state root proves the head, and the lane continues without it")
    facts_ = {body["block"]: body["downward_resets"] for topic, body in out.records if topic == records.FACTS}
    assert facts_.pop(RESET) == [{"para_id": PARA, "mqc_head": link(head, RESET, b"in the block").hex()}]
    assert not any(facts_.values())


@pytest.mark.parametrize("change", [replaced, removed])
def test_judge_names_it_once(change: Any, tmp_path: Path) -> None:
    found = judged(*followed(changed(change).recording, tmp_path, joined=FIRST + 1))
    assert kinds(found) == [("DownwardReset", "downward-reset")]
    (each,) = found
    assert (each.block, each.difference.para_id) == (RESET, PARA)


def test_head_that_nothing_proves_stops_the_lane(tmp_path: Path) -> None:
    without = Fault(FaultKind.NO_METHOD, "state_getReadProof", count=None)
    with pytest.raises(
        ChainContradiction, match=rf"block {RESET}: downward queue of para {PARA}: .* every node says so"
    ):
        follow(changed(replaced), tmp_path, without)


def test_spare_proves_what_the_first_node_cannot(tmp_path: Path) -> None:
    chain = changed(replaced)
    without = Fault(FaultKind.NO_METHOD, "state_getReadProof", count=None)
    with MockNode(chain.recording, [without]) as first, MockNode(chain.recording) as spare:
        world, out = World([first.url, spare.url], tmp_path, to_block=chain.number), Collected()
        world.follow(out, world.seed())
    assert out.records == follow(chain, tmp_path / "alone")[0].records


def lies_about_the_head(patch: pytest.MonkeyPatch) -> None:
    def heads(chain: Any, para_ids: Any, block_hash: bytes) -> Any:
        found, lists = read_heads_and_lists(chain, para_ids, block_hash)
        return found | {PARA: OTHER}, lists

    patch.setattr(fetch, "read_heads_and_lists", heads)


def hides_messages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BlockReads, "queue", lambda *_: ())


@pytest.mark.parametrize("lie", [lies_about_the_head, hides_messages])
def test_what_a_node_says_without_proof_is_no_reset(lie: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = changed()
    expected, _ = follow(chain, tmp_path)
    lie(monkeypatch)
    found, world = follow(chain, tmp_path)
    assert found.records == expected.records
    assert not [line for line in world.told if "continues without it" in line]


def test_judge_compares_a_queue_again_once_both_heads_agree() -> None:
    judge = Judge(LANE)
    for number in range(1, 6):
        execute(judge, number, verdict(number, "downward", messages=[(PARA, b"%032d" % min(number, 3))]))
    reset = (DownwardReset(PARA, OTHER),)
    assert kinds(compared(judge, facts(1, downward_resets=reset))) == [("DownwardReset", "downward-reset")]
    said = [[DownwardFact(PARA, None, head)] for head in (OTHER, b"%032d" % 3, OTHER)]
    assert kinds(compared(judge, facts(2, downward=tuple(said[0])))) == []
    again = Judge.from_json(LANE, judge.to_json())
    assert kinds(compared(again, facts(3, downward=tuple(said[1])))) == []
    assert kinds(compared(again, facts(4, downward=tuple(said[2])))) == [("DownwardHead", "downward-reset")]


WAITING = 14
"""Messages of a para that goes: at once and in idle time a block removes three of their pages."""


def returning(away: int, *, has_pages: bool) -> MadeChain:
    """Return a chain in which a para goes with messages waiting, and returns after ``away`` blocks."""
    chain = empty_chain()
    state = chain.state
    if has_pages:
        chain.recording.put_metadata(str(SPEC), paged_metadata())
        state.has_pages = True

    def gone(state: MadeState) -> None:
        del state.lifecycles[PARA], state.downward_heads[PARA]
        state.channels.clear()
        state.downward.pop(PARA, None)
        state.bury(PARA)

    chain.add()
    for at in range(WAITING):
        chain.add(downward=[(PARA, b"%d" % at)])
    chain.add(hidden=gone, new_session=True)
    for _ in range(away):
        chain.add()
    chain.add(hidden=lambda state: state.lifecycles.update({PARA: PARACHAIN}), new_session=True)
    for at in range(3):
        chain.add(downward=[(PARA, b"again %d" % at), (2004, b"x")])
    chain.add(new_session=True)
    return chain


def pages(chain: MadeChain, number: int) -> list[int]:
    """Return the pages of the para in storage after a block, dead or waiting."""
    block = chain.recording.at(chain.recording.canonical[number])
    assert block is not None
    found = (bytes.fromhex(key[2:]) for key in block.storage if key.startswith(to_hex(keys.DMP_PAGES)))
    return sorted(page for para, page in map(keys.page_of, found) if para == PARA)


@pytest.mark.parametrize(
    ("away", "left", "after"),
    [
        (1, [11, 8, 5, 3, 2, 3, 3], [14, 15, 16]),  # idle time removes pages while new ones come
        (4, [11, 8, 5, 2, 0, 0, 1, 2, 3, 3], [0, 1, 2]),  # no page is left, so numbers begin again
    ],
)
def test_queue_of_a_para_that_returns_begins_behind_its_dead_pages(
    away: int, left: list[int], after: list[int], tmp_path: Path
) -> None:
    chain = returning(away, has_pages=True)
    assert [len(pages(chain, number)) for number in range(FIRST + WAITING + 1, chain.number + 1)] == left
    assert pages(chain, chain.number) == after
    found, world = follow(chain, tmp_path)
    plain, _ = follow(returning(away, has_pages=False), tmp_path / "plain")
    assert [(topic, body) for topic, body in found.records if topic == "downward-messages"] == [
        (topic, body) for topic, body in plain.records if topic == "downward-messages"
    ]
    assert len([topic for topic, _ in found.records if topic == "downward-messages"]) == WAITING + 2 * 3
    assert not [line for line in world.told if "downward queue" in line]
    assert kinds(judged(*followed(chain.recording, tmp_path / "lane", joined=FIRST))) == []
