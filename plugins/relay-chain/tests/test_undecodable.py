# SPDX-License-Identifier: Apache-2.0
"""What cannot be decoded: a lane continues without what it can do without, says so, and the judge says so; nothing else is passed over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from oracle_world import facts, judged, kinds, refusal, verdict
from relay_world import (
    FIRST,
    GENESIS,
    LANE,
    SPEC,
    Collected,
    World,
    configuration,
    empty_chain,
    load,
    metadata,
    runtime,
)
from test_blocks import first_block
from validator_relay_chain import keys, layout
from validator_relay_chain.block import ChannelEvent, RawBlock, decode_block
from validator_relay_chain.block_reads import BlockReads
from validator_relay_chain.channels import requests_of
from validator_relay_chain.errors import BadAnswer, UndecodableBlock
from validator_relay_chain.header import Header, to_hex
from validator_relay_chain.metadata import MetadataCache, Runtime
from validator_relay_chain.oracle.facts import BlockFacts
from validator_relay_chain.oracle.judge import Judge
from validator_relay_chain.oracle.records import FACTS
from validator_relay_chain.prepare import configuration as tables
from validator_relay_chain.prepare import prepare
from validator_relay_chain.rules import CONFIGURATION
from validator_relay_chain.trie import ordered_root
from validator_simulators.relay_chain import MockNode
from validator_simulators.relay_chain.made import MadeCandidate, MadeChain, _candidate_event, inherent

SPOILED, WHOLE = FIRST + 3, FIRST + 6
"""Blocks that end a session: the limits after the first one do not decode, those after the second do."""
LAST = FIRST + 8


def changed_limits() -> bytes:
    """Return the value of `ActiveConfig` with another first field that the Router knows."""
    value = runtime().value("Configuration", "ActiveConfig", configuration())
    old, new = (value["max_upward_queue_count"] + more for more in (0, 1))
    raw = configuration()
    at = raw.index(old.to_bytes(4, "little"))
    return raw[:at] + new.to_bytes(4, "little") + raw[at + 4 :]


def spoiled_chain() -> MadeChain:
    chain = empty_chain()
    for number in range(FIRST, LAST + 1):
        changes = {SPOILED: configuration()[:-1], WHOLE: changed_limits()}
        changed = {keys.ACTIVE_CONFIG: changes[number]} if number in changes else None
        chain.add(changes=changed, new_session=number in changes, downward=[(2000, b"%d" % number)])
    return chain


@pytest.fixture(scope="module")
def node() -> Iterator[MockNode]:
    with MockNode(spoiled_chain().recording) as node:
        yield node


def facts_at(out: Collected, number: int) -> dict[str, Any]:
    (found,) = out.of(FACTS, number)
    return found


def test_lane_keeps_its_limits_until_a_session_begins_whose_limits_decode(node: MockNode, tmp_path: Path) -> None:
    world, out = World([node.url], tmp_path, to_block=LAST), Collected()
    world.follow(out, world.seed())
    assert out.blocks() == list(range(FIRST, LAST + 1))
    assert out.block(SPOILED)["session_change"]["new_config"] is None
    assert list(out.block(WHOLE)["session_change"]["new_config"]) == ["max_upward_queue_count"]
    assert [facts_at(out, number)["unread"] for number in (SPOILED, WHOLE)] == [[CONFIGURATION], []]
    (told,) = world.told
    assert told.startswith(f"block {SPOILED}: runtime polkadot {SPEC}: {CONFIGURATION} does not decode: ")
    assert told.endswith(": the lane keeps the limits that it has")


def test_lane_that_joins_without_limits_has_the_preset_until_they_decode(node: MockNode, tmp_path: Path) -> None:
    world = World([node.url], tmp_path, to_block=LAST)
    prepared = prepare(world.chain(), LANE, tmp_path / LANE, from_block=SPOILED + 1, tell=world.told.append)
    limits = tables(prepared, [node.url], "folder", None)["chains"][LANE]["host_configuration"]
    assert limits == {"preset": "polkadot-2023"}
    assert world.told[-1].endswith("the limits of preset polkadot-2023 hold until a session begins whose limits decode")
    out = Collected()
    world.follow(out, prepared.seed)
    changed = out.block(WHOLE)["session_change"]["new_config"]
    value = runtime().value("Configuration", "ActiveConfig", changed_limits())
    assert changed["max_upward_queue_count"] == value["max_upward_queue_count"]
    assert len(changed) > 10


def test_value_that_the_state_root_does_not_prove_is_the_nodes_trouble(tmp_path: Path) -> None:
    chain = spoiled_chain()
    block = chain.recording.blocks[chain.recording.canonical[WHOLE]]
    block.storage[to_hex(keys.ACTIVE_CONFIG)] = to_hex(configuration())
    with MockNode(chain.recording) as liar:
        followed = World([liar.url], tmp_path).chain()
        header = Header.from_json(block.header)
        with pytest.raises(BadAnswer, match=f"block {WHOLE}: "):
            BlockReads(followed, header, {}, (None, None), {}, runtime()).configuration()
        followed.pool.close()


def test_spare_is_asked_for_metadata_and_block_before_the_lane_stops(node: MockNode, tmp_path: Path) -> None:
    seed = World([node.url], tmp_path, to_block=LAST).seed()
    liar = spoiled_chain()
    for number in range(FIRST + 2, LAST + 1):
        storage = liar.recording.blocks[liar.recording.canonical[number]].storage
        storage[to_hex(keys.SYSTEM_EVENTS)] += "00"
    with MockNode(liar.recording) as other:
        world, out = World([other.url, node.url], tmp_path, to_block=LAST), Collected()
        world.follow(out, seed)
    assert out.blocks() == list(range(FIRST, LAST + 1))
    assert [line for line in world.told if f"{node.url} takes over" in line] != []

    with MockNode(liar.recording) as one, MockNode(liar.recording) as two:
        world, out = World([one.url, two.url], tmp_path, to_block=LAST), Collected()
        with pytest.raises(Exception, match=f"block {FIRST + 2}: "):
            world.follow(out, seed)
    assert out.blocks() == [FIRST, FIRST + 1]


def test_metadata_that_does_not_decode_is_not_kept(node: MockNode, tmp_path: Path) -> None:
    world = World([node.url], tmp_path)
    cache = MetadataCache(tmp_path / "metadata")
    cache.write(GENESIS, "polkadot", SPEC, b"meta\x0e\x04")
    chain = world.chain()
    assert repr(chain.runtime(chain.hash_at(FIRST))) == f"polkadot {SPEC}"
    chain.pool.close()
    assert cache.read(GENESIS, "polkadot", SPEC) == metadata()


# --- parts of a block ---


def test_extrinsic_that_does_not_decode_is_passed_over_unless_it_has_the_candidates() -> None:
    candidate = MadeCandidate(2000, bytes(32), 99)
    strange, whole = b"\x0c\x04", inherent([candidate])

    def block(extrinsics: tuple[bytes, ...], *events: bytes) -> RawBlock:
        listed = bytes([4 * len(events)]) + b"".join(events)
        return RawBlock(Header(100, bytes(32), bytes(32), ordered_root(extrinsics), ()), extrinsics, listed)

    backed = _candidate_event("Backed", candidate)
    found = decode_block(block((strange, whole), backed), runtime())
    assert (found.candidates, found.unread) == ((candidate.backed(),), ("extrinsic 0",))
    found = decode_block(block((strange, whole[:-1])), runtime())
    assert (found.candidates, found.unread) == ((), ("extrinsic 0", "extrinsic 1"))
    with pytest.raises(UndecodableBlock, match=r"block 100: polkadot 9430: DecodeError: an extrinsic says"):
        decode_block(block((strange, whole[:-1]), backed), runtime())


def test_event_with_strange_fields_has_no_record() -> None:
    events = [
        ChannelEvent("OpenChannelAccepted", (1, 2, 3)),
        ChannelEvent("ChannelClosed", (1, {"sender": 1, "recipient": 2})),
    ]
    requests, unread = requests_of(events)
    assert [each["kind"] for each in requests] == ["close_channel"]
    assert unread == ["event Hrmp.OpenChannelAccepted"]


def test_item_of_another_shape_stops_only_who_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(layout.STORAGE, ("Hrmp", "HrmpWatermarks"), "u64")  # type: ignore[arg-type]
    other = Runtime("polkadot", SPEC, metadata())
    assert list(other.unread) == ["Hrmp.HrmpWatermarks"]
    assert decode_block(first_block(), other) == decode_block(first_block(), load("polkadot", SPEC, metadata()))
    with pytest.raises(UndecodableBlock, match=r"Hrmp.HrmpWatermarks: .* a lane cannot join the chain under it"):
        other.check_seeded()
    monkeypatch.setitem(layout.STORAGE, ("Dmp", "DownwardMessageQueues"), "u64")  # type: ignore[arg-type]
    with pytest.raises(UndecodableBlock, match=r"Dmp.DownwardMessageQueues: expected the shape u64"):
        Runtime("polkadot", SPEC, metadata())


# --- the judge ---


def test_judge_names_once_what_is_not_decoded_and_what_follows_from_it() -> None:
    judge = Judge(LANE)

    def judge_block(number: int, *verdicts: dict[str, Any], **fields: Any) -> list[tuple[str, str]]:
        judge.take("receipts", {"block": number, "accepted": len(verdicts), "rejected": 0})
        for each in verdicts:
            judge.take("verdicts", each)
        return kinds(judged(judge, replace(facts(number, backed=len(verdicts)), **fields)))

    assert judge_block(10, unread=(CONFIGURATION,), session_ends=True) == [("NotDecoded", "not-decoded")]
    refused = verdict(11, error=refusal("UpwardMessages/TooLong"))
    assert judge_block(11, refused) == [("CandidateRefused", "not-decoded")]
    assert judge_block(20, unread=(CONFIGURATION,), session_ends=True) == []
    again = Judge.from_json(LANE, judge.to_json())
    assert again.known.limits_unread == 10
    assert judge_block(30, session_ends=True) == []
    refused = verdict(31, error=refusal("UpwardMessages/TooLong"), para_id=2004)
    assert judge_block(31, refused) == [("CandidateRefused", "ours")]


def test_facts_name_what_is_not_decoded() -> None:
    given = BlockFacts(LANE, 1, bytes(32), 0, unread=(CONFIGURATION,))
    assert given.to_json()["unread"] == [CONFIGURATION]
