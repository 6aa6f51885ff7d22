# SPDX-License-Identifier: Apache-2.0
"""Nodes of the newer JSON-RPC, `chainHead_v1` and `archive_v1`: what they alone do. `test_follow` and others run on them, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from answers_world import crowded, prepared
from relay_recordings import Answer, served
from relay_world import FIRST, LAST, Collected, World, busy_chain, chain, shipped
from validator_relay_chain import connection, modern
from validator_relay_chain.errors import BadAnswer, NodeError, RpcFault, StatePruned, Unreachable
from validator_relay_chain.header import Header
from validator_relay_chain.limits import PINNED_MAX
from validator_relay_chain.modern import ModernConnection
from validator_relay_chain.pool import open_wire
from validator_relay_chain.position import Position
from validator_relay_chain.seeding import Seed
from validator_simulators.relay_chain import Fault, FaultKind, MockNode, Speech
from validator_simulators.relay_chain import modern as mock_modern
from websockets.sync.server import ServerConnection

OLD, ARCHIVE, HEAD = Speech.OLD, Speech.ARCHIVE, Speech.HEAD


def moving(node: MockNode, out: Collected, step: int = 1) -> None:
    """Let the head of a node move on with the lane."""

    def finalise(position: Position) -> None:
        if position.number >= node.head:
            node.finalise(min(position.number + step, LAST))

    out.before = finalise


def troubles(world: World) -> list[str]:
    """Return the lines about anything but an upgrade and missing proofs."""
    return [line for line in world.told if "runtime" not in line and "which have no such call" not in line]


# --- heads ---


@pytest.mark.parametrize("speaks", [(ARCHIVE,), (ARCHIVE, HEAD), (HEAD,)], ids=str)
def test_head_that_moves_is_followed(
    speaks: tuple[Speech, ...], undisturbed: tuple[Seed, Collected], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_ASK_S", 0.01)
    seed, expected = undisturbed
    with MockNode(chain().recording, head=FIRST, speaks=speaks) as node:
        world, out = World([node.url], tmp_path), Collected()
        moving(node, out, step=3)
        out.commit(seed.records, seed.position)
        world.follow(out, seed)
    assert out.records == expected.records
    assert troubles(world) == []


def test_older_node_without_notifications_is_asked_for_its_head(
    undisturbed: tuple[Seed, Collected], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_ASK_S", 0.01)
    seed, expected = undisturbed
    refused = Fault(FaultKind.NO_METHOD, "chain_subscribeFinalizedHeads", count=None)
    with MockNode(chain().recording, [refused], head=FIRST) as node:
        out = Collected()
        moving(node, out, step=3)
        out.commit(seed.records, seed.position)
        World([node.url], tmp_path).follow(out, seed)
    assert out.records == expected.records


def test_blocks_are_released_before_a_node_keeps_too_many(
    undisturbed: tuple[Seed, Collected], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mock_modern, "PINNED_MAX", PINNED_MAX + 8)
    last = FIRST + 4 * PINNED_MAX
    made = busy_chain(last)
    with MockNode(made.recording, head=FIRST, speaks=[HEAD]) as node:
        world, out = World([node.url], tmp_path, to_block=last), Collected()

        def finalise(position: Position) -> None:
            if position.number >= node.head:
                node.finalise(min(position.number + 2, last))

        out.before = finalise
        world.follow(out, world.seed())
        (client,) = node._clients or [None]
        assert client is None or client.follow is None or len(client.follow.pinned) <= PINNED_MAX + 2
    assert out.blocks() == list(range(FIRST, last + 1))
    assert troubles(world) == []
    assert node.requests["chainHead_v1_unpin"] > PINNED_MAX


def test_subscription_that_stops_is_made_again(
    undisturbed: tuple[Seed, Collected], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed, expected = undisturbed
    monkeypatch.setattr(mock_modern, "PINNED_MAX", 9)
    monkeypatch.setattr(mock_modern, "FINALISED_MAX", 9)
    with MockNode(chain().recording, head=FIRST, speaks=[HEAD]) as node:
        world, out = World([node.url], tmp_path), Collected()
        moving(node, out, step=4)
        out.commit(seed.records, seed.position)
        world.follow(out, seed)
    assert out.records == expected.records
    assert any("the node has stopped to report its chain" in line for line in world.told)


# --- which blocks ---


def test_block_that_is_not_among_the_last_ones_needs_an_archive(
    undisturbed: tuple[Seed, Collected], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mock_modern, "FINALISED_MAX", 4)
    seed, expected = undisturbed
    with MockNode(chain().recording, speaks=[HEAD]) as light, MockNode(chain().recording, speaks=[ARCHIVE]) as archive:
        with pytest.raises(
            StatePruned, match=r"block 1\d\d is not among the last blocks, .*: an archive node is needed"
        ):
            World([light.url], tmp_path).seed()
        with pytest.raises(StatePruned, match="is not among the last blocks"):
            World([light.url], tmp_path).follow(Collected(), seed)
        out = Collected()
        World([light.url, archive.url], tmp_path).follow(out, seed)
    assert out.records == expected.records


def test_lane_joins_at_the_head_of_a_light_client(tmp_path: Path) -> None:
    with MockNode(chain().recording, speaks=[HEAD]) as light, MockNode(chain().recording) as full:
        world = World([light.url], tmp_path)
        assert world.seed(LAST) == World([full.url], tmp_path / "full").seed(LAST)
    assert len([line for line in world.told if "which have no such call; it is done without" in line]) == 1


def test_long_lists_of_keys_are_continued(tmp_path: Path) -> None:
    with (
        MockNode(crowded().recording, speaks=[HEAD]) as light,
        MockNode(crowded().recording, speaks=[ARCHIVE]) as archive,
        MockNode(crowded().recording) as full,
    ):
        expected = prepared(World([full.url], tmp_path), tmp_path / "full").seed
        for node in (light, archive):
            assert prepared(World([node.url], tmp_path), tmp_path / node.url[-5:]).seed == expected
    assert light.requests["chainHead_v1_continue"] >= 3


def test_endpoints_of_all_kinds_are_mixed(undisturbed: tuple[Seed, Collected], tmp_path: Path) -> None:
    seed, expected = undisturbed
    faults = (
        Fault(FaultKind.CUT, "chain_getBlock", after=4),
        Fault(FaultKind.PRUNED, "state_getStorage", after=5),
        Fault(FaultKind.WRONG_ANSWER, "chain_getBlock", after=6),
        Fault(FaultKind.NO_METHOD, "state_queryStorageAt", after=7),
    )
    kinds = ((OLD,), (ARCHIVE,), (HEAD,), (ARCHIVE, HEAD), (OLD, ARCHIVE, HEAD))
    asked = 0
    for first in range(len(kinds)):
        with (
            MockNode(chain().recording, faults, speaks=kinds[first]) as one,
            MockNode(chain().recording, faults, speaks=kinds[(first + 1) % len(kinds)]) as two,
            MockNode(chain().recording, faults, speaks=kinds[(first + 2) % len(kinds)]) as three,
        ):
            world, out = World([one.url, two.url, three.url], tmp_path), Collected()
            world.follow(out, seed)
            assert out.records == expected.records
            asked += sum(node.requests["chain_getBlock"] > 0 for node in (one, two, three))
    assert asked > 2 * len(kinds), "hardly more than one node of each three was asked"


def test_node_that_speaks_all_is_asked_in_the_older_way(tmp_path: Path) -> None:
    with MockNode(chain().recording, speaks=[OLD, ARCHIVE, HEAD]) as node:
        World([node.url], tmp_path).seed()
    assert not [name for name in node.requests if name.startswith(("archive_v1", "chainHead_v1"))]


def test_node_that_speaks_nothing_of_it_is_one_line(tmp_path: Path) -> None:
    with MockNode(chain().recording, speaks=[]) as node, pytest.raises(RpcFault) as caught:
        World([node.url], tmp_path).seed()
    assert str(caught.value) == (
        f"{node.url}: chain_subscribeFinalizedHeads: the node does not offer it: error -32601: Method not found; "
        "the node offers neither chain_* and state_* nor chainHead_v1 or archive_v1"
    )


# --- headers ---


def test_recorded_header_is_decoded_from_its_encoding() -> None:
    recording = shipped()
    for hash_ in recording.canonical.values():
        header = Header.from_json(recording.blocks[hash_].header)
        assert Header.decode(header.encode()) == header
        assert {log[0] for log in header.logs} >= {5, 6}
    updated = Header(2**32 - 1, bytes(32), bytes(32), bytes(32), (b"\x08", b"\x00\x04x", b"\x04abcd\x04x"))
    assert Header.decode(updated.encode()) == updated


@pytest.mark.parametrize(
    "raw", [b"", bytes(96), Header(1, bytes(32), bytes(32), bytes(32), (b"\x07",)).encode(), bytes(97) + b"\x00\x00"]
)
def test_bytes_that_are_no_header_are_refused(raw: bytes) -> None:
    with pytest.raises(BadAnswer, match="header: "):
        Header.decode(raw)


# --- a node that means harm ---

REFUSED = {"error": {"code": -32601, "message": "Method not found"}}
HASH = "0x" + "11" * 32


def event(result: Any) -> str:
    return json.dumps({"method": "chainHead_v1_followEvent", "params": {"subscription": "a", "result": result}})


def light(events: list[Any], answers: dict[str, Any]) -> Answer:
    """Answer as a light client that sends some events, and some results."""

    def answer(socket: ServerConnection, asked: dict[str, Any]) -> Any:
        method = asked["method"]
        if method == "chainHead_v1_follow":
            socket.send(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": "a"}))
            for each in events:
                socket.send(event(each))
            return None
        return {"result": answers[method]} if method in answers else REFUSED

    return answer


@pytest.mark.parametrize(
    "sent",
    [
        {"event": "initialized"},
        {"event": "initialized", "finalizedBlockHashes": "0x"},
        {"event": "initialized", "finalizedBlockHashes": [1]},
        {"event": "initialized", "finalizedBlockHashes": ["0x" + "1" * 10_000]},
        {"event": "finalized", "finalizedBlockHashes": [HASH], "prunedBlockHashes": {}},
        {"event": "finalized", "finalizedBlockHashes": [HASH] * 5_000},
        {"event": "operationBodyDone", "operationId": 3, "value": []},
        {"event": "stop"},
    ],
)
def test_event_of_another_form_closes_the_connection(sent: Any) -> None:
    with served(light([sent], {})) as url:
        wire = ModernConnection(url)
        with pytest.raises((BadAnswer, Unreachable)):
            wire.call("chain_getFinalizedHead", (), 20.0)
        wire.close()


def test_flood_of_operations_that_nobody_asked_for_has_an_end() -> None:
    flood = [{"event": "operationStorageItems", "operationId": str(at), "items": []} for at in range(100)]
    with served(light(flood, {})) as url:
        wire = ModernConnection(url)
        with pytest.raises(BadAnswer, match="expected events of operations that were asked for"):
            wire.call("chain_getFinalizedHead", (), 20.0)
        wire.close()


@pytest.mark.parametrize(
    ("result", "sent", "error"),
    [
        ({"result": "limitReached"}, None, "has forgotten that it reports its chain"),
        ("started", None, "has forgotten that it reports its chain"),
        ({"result": "started", "operationId": 5}, None, "expected the id of an operation"),
        ({"result": "started", "operationId": "x"}, {"event": "operationInaccessible"}, "cannot get at it now"),
        ({"result": "started", "operationId": "x"}, {"event": "operationError", "error": "trap"}, "trap"),
        ({"result": "started", "operationId": "x"}, {"event": "operationStorageItems", "items": [3]}, "expected storage items"),
        ({"result": "started", "operationId": "x"}, {"event": "operationStorageItems"}, "expected storage items"),
        ({"result": "started", "operationId": "x"}, {"event": "stop"}, "no result within|stopped to report"),
        (None, None, "has forgotten that it reports its chain"),
    ],
)  # fmt: skip
def test_operation_that_fails_says_why(result: Any, sent: Any, error: str) -> None:
    def answer(socket: ServerConnection, asked: dict[str, Any]) -> Any:
        if asked["method"] != "chainHead_v1_storage":
            return begun(socket, asked)
        if sent is not None:
            socket.send(event({"operationId": "x", **sent}))
        return {"result": result}

    begun = light([{"event": "initialized", "finalizedBlockHashes": [HASH]}], {})
    with served(answer) as url:
        wire = ModernConnection(url)
        with pytest.raises(NodeError, match=error):
            wire.call("state_getStorage", ("0x00", HASH), 1.0)
        wire.close()


@pytest.mark.parametrize(
    ("method", "params", "answers"),
    [
        ("chain_getHeader", (HASH,), {"archive_v1_header": "0x00"}),
        ("chain_getHeader", (HASH,), {"archive_v1_header": 7}),
        ("chain_getBlockHash", (5,), {"archive_v1_hashByHeight": None}),
        ("chain_getBlockHash", (5,), {"archive_v1_hashByHeight": [HASH, HASH]}),
        ("chain_getFinalizedHead", (), {"archive_v1_hashByHeight": []}),
        ("state_getRuntimeVersion", (HASH,), {"archive_v1_call": {"success": True, "value": "0x0c"}}),
        ("state_getRuntimeVersion", (HASH,), {"archive_v1_call": {"success": False, "error": "trap"}}),
        ("state_getRuntimeVersion", (HASH,), {"archive_v1_call": [1]}),
        ("state_getMetadata", (HASH,), {"archive_v1_call": {"success": True, "value": "0xff"}}),
        ("state_getStorage", ("0x00", HASH), {"archive_v1_storage": {}}),
        ("state_getReadProof", (["0x00"], HASH), {}),
    ],
)  # fmt: skip
def test_answer_of_another_form_is_the_nodes_trouble(method: str, params: tuple[Any, ...], answers: Any) -> None:
    def answer(_: ServerConnection, asked: dict[str, Any]) -> Any:
        known = {"archive_v1_finalizedHeight": 5, **answers}
        return {"result": known[asked["method"]]} if asked["method"] in known else REFUSED

    with served(answer) as url:
        wire = open_wire(url)
        with pytest.raises(NodeError):
            wire.call(method, params, 2.0)
        wire.close()


def test_every_question_of_the_plugin_has_an_answer_or_can_be_done_without() -> None:
    asked = {"chain_getBlock", "chain_getBlockHash", "chain_getFinalizedHead", "chain_getHeader", "state_call"}
    asked |= {
        "state_getKeysPaged",
        "state_getMetadata",
        "state_getRuntimeVersion",
        "state_getStorage",
        "state_queryStorageAt",
    }
    assert set(modern._ANSWERS) == asked
