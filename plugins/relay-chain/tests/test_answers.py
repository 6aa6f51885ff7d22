# SPDX-License-Identifier: Apache-2.0
"""Nodes as they are: what an answer means, whatever number the node uses, and that nothing is asked again without end or without a line."""

from __future__ import annotations

from pathlib import Path

import pytest
from answers_world import A_MINUTE_S, JOINED, crowded, prepared, waited_s
from relay_world import FIRST, LAST, Collected, World, chain
from validator_relay_chain import connection, pool
from validator_relay_chain.errors import (
    BodyMissing,
    NodeError,
    NotKnownHere,
    RateLimited,
    RpcFault,
    StatePruned,
    TooMuch,
    Unwilling,
    fault,
)
from validator_relay_chain.pool import Stopped
from validator_relay_chain.seeding import Seed
from validator_simulators.relay_chain import Fault, FaultKind, MockNode

in_every_speech = pytest.mark.usefixtures("speech")
"""Whatever the nodes speak."""


# --- what an answer means ---


@pytest.mark.parametrize(
    ("code", "text", "meaning"),
    [
        (-32999, "RPC rate limit exceeded", RateLimited),
        (-32005, "limit", RateLimited),
        (429, "x", RateLimited),
        (-32000, "Too Many Requests", RateLimited),
        (4003, "Client error: UnknownBlock: State already discarded for 0x12", StatePruned),
        (-32603, "Client(UnknownBlock(\"State already discarded for BlockId::Hash(0x12)\"))", StatePruned),
        (-32000, "Api called for an unknown Block: State already discarded", StatePruned),
        (1, "UnknownBlock: State already discarded", StatePruned),
        (-32603, "Client error: UnknownBlock: Header was not found in the database: 0x12", NotKnownHere),
        (4003, "UnknownBlock: Header was not found in the database", NotKnownHere),
        (-32000, "unknown block", NotKnownHere),
        (1, "Block 0x12ab not found", NotKnownHere),
        (-32008, "Response is too big", TooMuch),
        (-32702, "x", TooMuch),
        (-32007, "Request is too big", TooMuch),
        (-32000, "The response is too large", TooMuch),
        (4002, "count exceeds maximum value. value: 1000, max: 100", TooMuch),
        (-32602, "Invalid params: count exceeds maximum value", TooMuch),
        (-32601, "Method not found", RpcFault),
        (-32602, "Invalid params", RpcFault),
        (-32000, "Method not found", RpcFault),
        (1, "RPC call is unsafe to be called externally", RpcFault),
        (-32603, "this method is not allowed", RpcFault),
        (-32603, "Internal error", Unwilling),
        (-32604, "x", Unwilling),
        (-32000, "Server error", Unwilling),
        (None, "x", Unwilling),
    ],
)  # fmt: skip
def test_text_counts_before_the_number(code: int | None, text: str, meaning: type[NodeError]) -> None:
    assert type(fault("node: method", {"code": code, "message": text})) is meaning
    if code is not None and meaning in (StatePruned, NotKnownHere, TooMuch) and text != "x":
        assert type(fault("node: method", {"code": -32000, "message": "Server error", "data": text})) is meaning


# --- passing ---


@in_every_speech
@pytest.mark.parametrize("kind", [FaultKind.RATE_LIMIT, FaultKind.ERROR, FaultKind.REFUSED])
def test_preparing_outlasts_an_error_that_passes(kind: FaultKind, node: MockNode, seed: Seed, tmp_path: Path) -> None:
    for method in ("chain_subscribeFinalizedHeads", "chain_getFinalizedHead", "state_queryStorageAt"):
        node.order(Fault(kind, method, count=3))
    world = World([node.url], tmp_path)
    assert prepared(world, tmp_path).seed == seed
    assert len(world.told) >= 6


@in_every_speech
def test_what_is_asked_again_says_so_once_a_minute_with_the_cause(node: MockNode, seed: Seed, tmp_path: Path) -> None:
    node.order(Fault(FaultKind.RATE_LIMIT, "chain_getBlock", count=None))
    world = World([node.url], tmp_path)
    world.time._pauses_max = 60
    with pytest.raises(Stopped):
        world.follow(Collected(), seed)
    lines = [each for each in world.told if "the node limits the rate of calls: RPC rate limit" in each]
    assert len(lines) >= waited_s(world) / A_MINUTE_S > 5


@in_every_speech
def test_a_node_without_new_blocks_is_waited_for_with_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from validator_relay_chain import follow

    monkeypatch.setattr(follow, "WAIT_LINE_S", 1.0)
    with MockNode(chain().recording, head=FIRST + 2) as node:
        world, out = World([node.url], tmp_path, to_block=FIRST + 3), Collected()

        def seen(line: str) -> None:
            world.told.append(line)
            if "waiting for one" in line:
                node.finalise(LAST)

        world.tell = seen
        world.follow(out, world.seed())
    assert out.blocks()[-1] == FIRST + 3
    assert any(f"no finalised block after {FIRST + 2} for 1 s: waiting for one" in line for line in world.told)


# --- never ---


@in_every_speech
@pytest.mark.parametrize("kind", [FaultKind.ERROR, FaultKind.REFUSED, FaultKind.NO_METHOD])
@pytest.mark.parametrize("method", ["chain_getBlock", "state_getStorage", "state_queryStorageAt"])
def test_needed_call_that_every_node_refuses_ends_within_a_minute(
    kind: FaultKind, method: str, node: MockNode, spare: MockNode, seed: Seed, tmp_path: Path
) -> None:
    for each in (node, spare):
        each.order(Fault(kind, method, count=None))
    for urls in ([node.url], [node.url, spare.url]):
        world, out = World(urls, tmp_path, in_flight=1), Collected()
        with pytest.raises(RpcFault) as caught:
            world.follow(out, seed)
        assert all(f"{url}: " in str(caught.value) for url in urls)
        assert waited_s(world) <= A_MINUTE_S


@in_every_speech
@pytest.mark.parametrize("kind", [FaultKind.ERROR, FaultKind.REFUSED, FaultKind.NO_METHOD])
def test_spare_has_the_call_that_a_node_refuses(
    kind: FaultKind, node: MockNode, spare: MockNode, seed: Seed, tmp_path: Path
) -> None:
    undisturbed, out = Collected(), Collected()
    World([spare.url], tmp_path).follow(undisturbed, seed)
    node.order(Fault(kind, "chain_getBlock", count=None))
    World([node.url, spare.url], tmp_path).follow(out, seed)
    assert out.records == undisturbed.records


# --- optional ---


@pytest.mark.parametrize("kind", [FaultKind.ERROR, FaultKind.REFUSED, FaultKind.NO_METHOD, FaultKind.PRUNED])
def test_refused_proofs_are_done_without_and_said_once(
    kind: FaultKind, node: MockNode, seed: Seed, tmp_path: Path
) -> None:
    node.order(Fault(kind, "state_getReadProof", count=None))
    world = World([node.url], tmp_path)
    assert prepared(world, tmp_path).seed == seed
    assert len([line for line in world.told if "it is done without" in line]) == 1
    assert world.told[-1] == f"block {JOINED}: the node gives no proofs of storage, so the state is what it says"
    assert node.requests["state_getReadProof"] <= 3
    assert waited_s(world) < 10


@in_every_speech
def test_pruned_node_with_an_archive_spare_without_proofs_is_enough(
    node: MockNode, spare: MockNode, seed: Seed, tmp_path: Path
) -> None:
    for method in ("state_getStorage", "state_queryStorageAt", "state_getKeysPaged", "state_getReadProof"):
        node.order(Fault(FaultKind.PRUNED, method, count=None))
    spare.order(Fault(FaultKind.NO_METHOD, "state_getReadProof", count=None))
    assert prepared(World([node.url, spare.url], tmp_path), tmp_path).seed == seed


def test_spare_proves_what_the_first_node_does_not(node: MockNode, spare: MockNode, seed: Seed, tmp_path: Path) -> None:
    node.order(Fault(FaultKind.NO_METHOD, "state_getReadProof", count=None))
    world = World([node.url, spare.url], tmp_path)
    assert prepared(world, tmp_path).seed == seed
    assert not [line for line in world.told if "no proofs" in line]


# --- too much ---


@pytest.fixture(scope="module")
def crowded_seed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Seed, int]:
    """Return what an honest node gives of the crowded chain, and how many requests that takes."""
    with MockNode(crowded().recording) as node:
        world = World([node.url], tmp_path_factory.mktemp("seed"))
        found = prepared(world, tmp_path_factory.mktemp("lane")).seed
        return found, node.requests.total()


@pytest.mark.parametrize(
    "order",
    [
        Fault(FaultKind.TOO_BIG, "state_queryStorageAt", count=None, value=1_500),
        Fault(FaultKind.TOO_BIG, "state_getReadProof", count=None, value=3_000),
        Fault(FaultKind.TOO_BIG, "state_getKeysPaged", count=None, value=2_000),
        Fault(FaultKind.FEW_KEYS, "state_getKeysPaged", count=None, value=7),
    ],
    ids=lambda order: f"{order.kind}-{order.method}",
)
def test_too_much_is_asked_in_halves(order: Fault, crowded_seed: tuple[Seed, int], tmp_path: Path) -> None:
    seed, requests = crowded_seed
    with MockNode(crowded().recording, [order]) as node:
        world = World([node.url], tmp_path)
        found = prepared(world, tmp_path)
    assert found.seed == seed
    assert world.told == []
    assert node.requests.total() > requests


def test_message_over_the_limit_of_the_connection_is_asked_in_halves(
    crowded_seed: tuple[Seed, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MockNode(crowded().recording) as node:
        world = World([node.url], tmp_path)
        kept = world.chain()
        kept.runtime(kept.hash_at(JOINED))  # metadata are kept from here
        kept.pool.close()
        monkeypatch.setattr(connection, "ANSWER_BYTES_MAX", 5_000)
        found = prepared(World([node.url], tmp_path), tmp_path)
    assert found.seed == crowded_seed[0]
    assert node.requests["chain_subscribeFinalizedHeads"] > 2, (
        "a connection is lost with each message that is too large"
    )
    assert world.told == []


@pytest.mark.parametrize(
    ("method", "item"),
    [
        ("state_queryStorageAt", "Configuration.ActiveConfig: "),
        ("state_getKeysPaged", "keys of Paras.ParaLifecycles: "),
        ("state_getMetadata", "metadata of polkadot 9430: "),
    ],
)
def test_one_key_that_is_too_large_ends_with_the_name_of_its_item(
    method: str, item: str, node: MockNode, spare: MockNode, seed: Seed, tmp_path: Path
) -> None:
    node.order(Fault(FaultKind.TOO_BIG, method, count=None))
    with pytest.raises(TooMuch) as caught:
        prepared(World([node.url], tmp_path), tmp_path)
    assert str(caught.value) == (
        f"{item}{node.url}: {method}: it is more than the node gives at once: Response is too big"
    )
    assert prepared(World([node.url, spare.url], tmp_path), tmp_path).seed == seed


def test_block_that_is_too_large_is_named(node: MockNode, seed: Seed, tmp_path: Path) -> None:
    node.order(Fault(FaultKind.TOO_BIG, "chain_getBlock", after=2, count=None))
    with pytest.raises(TooMuch, match=r"the extrinsics of block 0x[0-9a-f]{64}: ws://"):
        World([node.url], tmp_path).follow(Collected(), seed)


# --- not here ---


def test_body_that_no_node_has_ends_with_the_kind_of_node_that_is_needed(
    node: MockNode, spare: MockNode, seed: Seed, tmp_path: Path
) -> None:
    node.order(Fault(FaultKind.NULL, "chain_getBlock", after=5, count=None))
    world, out = World([node.url], tmp_path, in_flight=1), Collected()
    with pytest.raises(BodyMissing, match=r"block 1\d\d: bodies are needed: .* without --blocks-pruning archive"):
        world.follow(out, seed)
    assert waited_s(world) <= A_MINUTE_S
    undisturbed, out = Collected(), Collected()
    World([spare.url], tmp_path).follow(undisturbed, seed)
    World([node.url, spare.url], tmp_path).follow(out, seed)
    assert out.records == undisturbed.records


@in_every_speech
@pytest.mark.parametrize("method", ["state_getStorage", "state_queryStorageAt"])
def test_block_that_a_node_does_not_have_has_an_end(
    method: str, node: MockNode, spare: MockNode, seed: Seed, tmp_path: Path
) -> None:
    node.order(Fault(FaultKind.NO_HEADER, method, count=None))
    world = World([node.url], tmp_path, in_flight=1)
    with pytest.raises(NotKnownHere, match="the block is not known here: Client error: UnknownBlock: Header"):
        world.follow(Collected(), seed)
    assert waited_s(world) <= 2 * A_MINUTE_S
    undisturbed, out = Collected(), Collected()
    World([spare.url], tmp_path).follow(undisturbed, seed)
    World([node.url, spare.url], tmp_path).follow(out, seed)
    assert out.records == undisturbed.records


@pytest.mark.parametrize("kind", [FaultKind.NULL, FaultKind.NO_HEADER])
@in_every_speech
def test_parents_that_a_node_does_not_know_are_done_without(
    kind: FaultKind, speech: str, node: MockNode, seed: Seed, tmp_path: Path
) -> None:
    order = Fault(kind, "chain_getHeader", after=2 if speech != "head" else 3)
    node.order(order)
    world = World([node.url], tmp_path)
    found = prepared(world, tmp_path).seed
    assert (found.state, found.records) == (seed.state, seed.records)
    assert found.position.recent == seed.position.recent[-2:]
    assert waited_s(world) == 0


# --- the start ---


def test_wrong_address_ends_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "START_ROUNDS_MAX", 2)
    with MockNode(chain().recording) as gone:
        url = gone.url
    world = World([url], tmp_path)
    with pytest.raises(NodeError, match="no connection"):
        prepared(world, tmp_path)
    assert len(world.told) == 1
