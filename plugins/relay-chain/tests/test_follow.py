# SPDX-License-Identifier: Apache-2.0
"""A lane follows a node over a real connection: each block once, in order, whatever node and connection do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from relay_world import FIRST, GENESIS, LANE, LAST, SESSION, Collected, World, busy_chain, chain
from validator_relay_chain.channels import JsonRecord
from validator_relay_chain.errors import ChainContradiction, FollowError, StatePruned, UndecodableBlock, WrongChain
from validator_relay_chain.header import to_hex
from validator_relay_chain.limits import CALLS_PER_NODE_MAX
from validator_relay_chain.oracle.records import FACTS
from validator_relay_chain.pool import Stopped
from validator_relay_chain.position import Position
from validator_relay_chain.seeding import Seed
from validator_simulators.relay_chain import Fault, FaultKind, MockNode
from validator_simulators.relay_chain.made import MadeCandidate

pytestmark = pytest.mark.usefixtures("speech")


# --- records ---


def test_every_block_is_there_once_in_order_and_its_record_comes_last(undisturbed: tuple[Seed, Collected]) -> None:
    _, out = undisturbed
    assert out.blocks() == list(range(FIRST, LAST + 1))
    last_of = {}
    lane_records = [each for each in out.records if each[0] != FACTS]
    for at, (_, record) in enumerate(lane_records):
        last_of[record["block"]] = at
    assert [topic for at, (topic, _) in enumerate(lane_records) if at in last_of.values()] == ["blocks"] * len(last_of)
    for number in out.blocks():
        block = out.block(number)
        for topic, name in (
            ("candidates", "candidates"),
            ("channel-requests", "requests"),
            ("downward-messages", "downward"),
        ):
            assert [each["index"] for each in out.of(topic, number)] == list(range(block[name])), (number, topic)


def test_block_record_names_hash_and_inclusions(undisturbed: tuple[Seed, Collected]) -> None:
    _, out = undisturbed
    canonical = chain().recording.canonical
    for number in out.blocks():
        assert "0x" + out.block(number)["block_hash"] == canonical[number]
    assert out.block(103)["included"] == [{"para_id": para, "backed_at": 102} for para in (1000, 2000, 2004)]
    for number in out.blocks()[1:]:
        for each in out.block(number)["included"]:
            assert each["backed_at"] < number
            assert each["para_id"] in [record["para_id"] for record in out.of("candidates", each["backed_at"])]


def test_candidate_record_has_commitments_and_the_number_of_its_relay_parent(
    undisturbed: tuple[Seed, Collected],
) -> None:
    _, out = undisturbed
    records = {each["para_id"]: each for each in out.of("candidates", 102)}
    assert records[2000]["relay_parent_number"] == 101
    assert records[2000]["hrmp_watermark"] == 101
    assert records[2000]["upward_messages"] == [b"up".hex()]
    assert records[2000]["horizontal_messages"] == [{"recipient": 2004, "data": b"across 102".hex()}]


def test_downward_messages_are_those_that_the_block_queued(undisturbed: tuple[Seed, Collected]) -> None:
    _, out = undisturbed
    found = [(each["para_id"], bytes.fromhex(each["msg"])) for each in out.of("downward-messages", 105)]
    assert found == [(2000, b"to 2000 105"), (2004, b"a"), (2004, b"b")]
    assert not out.of("downward-messages", 106)


def test_requests_come_from_events(undisturbed: tuple[Seed, Collected]) -> None:
    _, out = undisturbed

    def request(number: int) -> JsonRecord:
        (found,) = out.of("channel-requests", number)
        return {name: value for name, value in found.items() if name not in ("lane", "block", "index")}

    assert request(103) == {
        "kind": "init_open_channel", "origin": 1000, "recipient": 2000, "max_places": 1000, "max_message_size": 102_400,
    }  # fmt: skip
    assert request(104) == {"kind": "accept_open_channel", "origin": 2000, "sender": 1000}
    assert request(120) == {"kind": "close_channel", "origin": 2000, "channel": [2000, 2004]}


def test_session_change_drops_what_is_pending_in_the_next_block(undisturbed: tuple[Seed, Collected]) -> None:
    _, out = undisturbed
    assert out.block(SESSION)["session_change"] == {"outgoing": [], "onboarding": [], "new_config": None}
    assert all(out.block(number)["session_change"] is None for number in out.blocks() if number != SESSION)
    left = {each["para_id"] for each in out.of("candidates", SESSION - 1)}
    left -= {each["para_id"] for name in ("included", "timed_out") for each in out.block(SESSION)[name]}
    assert {each["para_id"] for each in out.block(SESSION + 1)["timed_out"]} == left
    assert out.block(SESSION + 1)["included"] == []


def test_lane_accepts_every_candidate_and_ends_with_the_heads_of_the_chain(undisturbed: tuple[Seed, Collected]) -> None:
    _, out = undisturbed
    assert out.cursor is not None
    position = Position.decode(out.cursor)
    assert (position.number, to_hex(position.hash)) == (LAST, chain().recording.canonical[LAST])
    assert dict(position.heads) == chain().state.downward_heads


# --- what goes wrong ---

FAULTS: list[tuple[Fault, int]] = [
    (Fault(FaultKind.CUT, "state_getReadProof", after=3, count=2), 1),
    (Fault(FaultKind.CUT, "chain_getBlock", after=0, count=1), 1),
    (Fault(FaultKind.RATE_LIMIT, None, after=10, count=7), 1),
    (Fault(FaultKind.ERROR, "chain_getBlock", after=2, count=2), 1),
    (Fault(FaultKind.NULL, "chain_getHeader", after=3, count=2), 1),
    (Fault(FaultKind.NULL, "chain_getBlock", after=3, count=CALLS_PER_NODE_MAX - 1), 1),  # one block may meet them all
    (Fault(FaultKind.NULL, "state_getReadProof", after=3, count=1), 1),
    (Fault(FaultKind.WRONG_HEADER, "chain_getBlock", after=4, count=2), 1),
    (Fault(FaultKind.WRONG_HEADER, "chain_getHeader", after=2, count=1), 1),
    (Fault(FaultKind.WRONG_ANSWER, "chain_getBlock", after=5, count=1), 1),
    (Fault(FaultKind.TRUNCATED, "chain_getBlock", after=5, count=1), 1),
    (Fault(FaultKind.REORDER, "chain_getBlock", after=1, count=5), 0),
    (Fault(FaultKind.NO_METHOD, "state_getReadProof", count=1), 0),
]


@pytest.mark.parametrize("fault", [fault for fault, _ in FAULTS], ids=lambda fault: f"{fault.kind}-{fault.method}")
def test_fault_of_a_node_changes_no_record(
    fault: Fault, node: MockNode, undisturbed: tuple[Seed, Collected], tmp_path: Path
) -> None:
    seed, expected = undisturbed
    node.order(fault)
    out = Collected()
    world = World([node.url], tmp_path)
    world.follow(out, seed)
    assert out.records == expected.records
    assert out.cursor == expected.cursor
    if dict(FAULTS)[fault]:
        assert len(world.told) > 1, "nobody was warned"


def test_silent_node_is_left_for_its_spare(speech: str, undisturbed: tuple[Seed, Collected], tmp_path: Path) -> None:
    seed, expected = undisturbed
    silent = Fault(FaultKind.SILENT, "chain_getBlock", after=2, count=None)
    with MockNode(chain().recording, [silent]) as first, MockNode(chain().recording) as spare:
        world = World([first.url, spare.url], tmp_path, answer_s_max=0.5)
        out = Collected()
        world.follow(out, seed)
    assert out.records == expected.records
    assert any(f"{spare.url} takes over" in each for each in world.told), world.told
    if speech == "old":  # the others have no read proofs, for which a node may be left before it is silent
        assert any(f"0.5 s; {spare.url} takes over" in each for each in world.told), world.told


def test_pruned_node_is_left_for_an_archive_node(undisturbed: tuple[Seed, Collected], tmp_path: Path) -> None:
    seed, expected = undisturbed
    pruned = Fault(FaultKind.PRUNED, "state_getStorage", count=None)
    with MockNode(chain().recording, [pruned]) as first, MockNode(chain().recording) as archive:
        out = Collected()
        World([first.url, archive.url], tmp_path).follow(out, seed)
    assert out.records == expected.records


def test_state_that_no_node_has_ends_the_lane_in_one_line(
    node: MockNode, undisturbed: tuple[Seed, Collected], tmp_path: Path
) -> None:
    seed, _ = undisturbed
    node.order(Fault(FaultKind.PRUNED, "state_queryStorageAt", after=10, count=None))
    out = Collected()
    with pytest.raises(StatePruned, match="the node has discarded the state of this block, an archive node is needed"):
        World([node.url], tmp_path).follow(out, seed)
    assert out.blocks() == list(range(FIRST, out.blocks()[-1] + 1))


def test_node_of_another_chain_is_not_used(undisturbed: tuple[Seed, Collected], tmp_path: Path) -> None:
    seed, expected = undisturbed
    elsewhere = Fault(FaultKind.WRONG_ANSWER, "chain_getBlockHash", count=None)
    with MockNode(chain().recording, [elsewhere]) as wrong, MockNode(chain().recording) as right:
        world = World([wrong.url, right.url], tmp_path)
        out = Collected()
        world.follow(out, seed)
        assert out.records == expected.records
        assert world.told[0].endswith("; it is not used")
        with pytest.raises(WrongChain, match=f"expected the chain with genesis {to_hex(GENESIS)}, found 0x"):
            World([wrong.url], tmp_path).follow(Collected(), seed)


def test_node_with_another_block_at_the_position_never_overwrites(
    undisturbed: tuple[Seed, Collected], tmp_path: Path
) -> None:
    seed, _ = undisturbed
    other = busy_chain(FIRST)
    other.add(backed=[MadeCandidate(2000, other.parent, FIRST)], downward=[(1000, b"elsewhere")])
    for _ in range(5):
        other.add()
    with MockNode(chain().recording) as right:
        out = Collected()
        World([right.url], tmp_path, to_block=FIRST + 3).follow(out, seed)
    before = list(out.records)
    with (
        MockNode(other.recording) as fork,
        pytest.raises(
            ChainContradiction, match=f"finalised block {FIRST + 3}: expected 0x.*, which was followed, found 0x"
        ),
    ):
        World([fork.url], tmp_path).follow(out, seed)
    assert out.records == before


def test_lagging_node_is_waited_for(undisturbed: tuple[Seed, Collected], tmp_path: Path) -> None:
    seed, expected = undisturbed
    with MockNode(chain().recording, head=FIRST - 0 + 5) as node:
        out = Collected()
        World([node.url], tmp_path, to_block=FIRST + 5).follow(out, seed)
        node.finalise(FIRST + 2)

        def finalise(_: Position) -> None:
            node.finalise(LAST)

        world = World([node.url], tmp_path)
        node.finalise(FIRST + 6)
        out.before = finalise
        world.follow(out, seed)
    assert _of_lane(out) == _of_lane(expected)  # the last block of the first run has more facts


def _of_lane(out: Collected) -> list[tuple[str, JsonRecord]]:
    return [each for each in out.records if each[0] != FACTS]


def test_skipped_heads_are_filled_in(undisturbed: tuple[Seed, Collected], tmp_path: Path) -> None:
    seed, expected = undisturbed
    heads = iter((FIRST + 9, FIRST + 10, FIRST + 24, LAST))
    with MockNode(chain().recording, head=FIRST + 1) as node:
        out = Collected(
            before=lambda position: node.finalise(next(heads, LAST)) if position.number == node.head else None
        )
        out.commit(seed.records, seed.position)
        World([node.url], tmp_path).follow(out, seed)
    assert out.records == expected.records


def test_node_without_new_blocks_is_left(speech: str, undisturbed: tuple[Seed, Collected], tmp_path: Path) -> None:
    seed, expected = undisturbed
    with MockNode(chain().recording, head=FIRST + 3) as stuck, MockNode(chain().recording) as spare:
        world = World([stuck.url, spare.url], tmp_path, stall_s_max=1.5)
        out = Collected()
        world.follow(out, seed)
    assert out.records == expected.records
    assert any(f"{spare.url} takes over" in each for each in world.told), world.told
    if speech == "old":  # the others have no read proofs, for which a node may be left before it stands still
        # on a slow machine the node may be left before its last block has arrived
        assert any(re.search(r"no finalised block after \d+ for 1\.5 s", each) for each in world.told), world.told


def test_unreachable_node_is_an_error_at_the_start_only(undisturbed: tuple[Seed, Collected], tmp_path: Path) -> None:
    seed, expected = undisturbed
    with MockNode(chain().recording) as node:
        url = node.url
    with pytest.raises(FollowError, match=f"{url}: no connection: "):
        World([url], tmp_path).follow(Collected(), seed)
    with MockNode(chain().recording, head=FIRST + 4) as first, MockNode(chain().recording) as spare:
        world = World([first.url, spare.url], tmp_path, stall_s_max=1.5)
        out = Collected(before=lambda position: first.cut() if position.number == FIRST + 4 else None)
        first.order(Fault(FaultKind.CUT, "chain_subscribeFinalizedHeads", after=1))
        world.follow(out, seed)
    assert out.records == expected.records


def test_pauses_grow_and_have_an_upper_bound(
    node: MockNode, undisturbed: tuple[Seed, Collected], tmp_path: Path
) -> None:
    seed, _ = undisturbed
    world = World([node.url], tmp_path)
    world.time._pauses_max = 40
    node.order(Fault(FaultKind.RATE_LIMIT, count=None))
    with pytest.raises(FollowError):
        world.follow(Collected(), seed)  # before the first answer there are few attempts
    world.time.pauses.clear()
    node.faults.clear()
    node.order(Fault(FaultKind.RATE_LIMIT, "chain_getBlock", count=None))
    with pytest.raises(Stopped):
        world.follow(Collected(), seed)
    waits = [round(each, 1) for each in world.time.pauses if each > 0.1]
    assert waits[:4] == [0.5, 1.0, 2.0, 4.0]
    assert max(waits) == 60.0


# --- undecodable blocks ---


def test_wrong_metadata_is_fetched_once_more(
    node: MockNode, undisturbed: tuple[Seed, Collected], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from validator_relay_chain import follow

    seed, expected = undisturbed
    decode, calls = follow.decode_block, []

    def fails_once(raw: Any, runtime: Any) -> Any:
        calls.append(raw.header.number)
        if len(calls) == 5:
            raise UndecodableBlock("an event does not decode")
        return decode(raw, runtime)

    monkeypatch.setattr(follow, "decode_block", fails_once)
    out, world = Collected(), World([node.url], tmp_path)
    world.follow(out, seed)
    assert out.records == expected.records
    assert "an event does not decode; the metadata is fetched once more" in world.told[:2]
    assert node.requests["state_getMetadata"] == 3  # at the start, once more, and after the upgrade


def test_block_that_never_decodes_stops_the_lane(
    node: MockNode, undisturbed: tuple[Seed, Collected], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from validator_relay_chain import follow

    seed, _ = undisturbed
    decode = follow.decode_block

    def fails(raw: Any, runtime: Any) -> Any:
        if raw.header.number == FIRST + 9:
            raise UndecodableBlock(f"block {FIRST + 9}: an event does not decode")
        return decode(raw, runtime)

    monkeypatch.setattr(follow, "decode_block", fails)
    out = Collected()
    with pytest.raises(UndecodableBlock, match=f"block {FIRST + 9}: an event does not decode"):
        World([node.url], tmp_path).follow(out, seed)
    assert FIRST + 9 not in out.blocks()


def test_position_continues_from_its_bytes_alone(undisturbed: tuple[Seed, Collected]) -> None:
    _, out = undisturbed
    for step in out.steps:
        assert Position.decode(step.position.encode()) == step.position
    assert LANE in {record["lane"] for _, record in out.records}


def test_a_request_to_stop_ends_a_follower_that_waits_at_the_head(tmp_path: Path) -> None:
    with MockNode(chain().recording, head=FIRST + 3) as node:
        world, out = World([node.url], tmp_path, stall_s_max=20.0), Collected()
        seed = world.seed()

        def stop(position: Position) -> None:
            if position.number > FIRST:
                world.time.stop.set()

        out.before = stop
        with pytest.raises(Stopped, match="asked to stop"):
            world.follow(out, seed)
    assert out.blocks()[-1] == FIRST + 3
    assert not [line for line in world.told if "no finalised block" in line], (
        "it did not wait for the node to be given up"
    )
