# SPDX-License-Identifier: Apache-2.0
"""A request to watch has one answer, which comes when the gateway knows that its position exists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gateway_world import GatewayWorld, limited, until, verdict
from test_gateway_feeds import World as FeedWorld
from validator_channel.application import WATCH_TOPICS, RefusedMessage, Watch, Watching, write_main
from validator_channel.gateway.readers import Slice
from validator_channel.wire import MAIN

VERDICTS = WATCH_TOPICS["verdicts"]
NO_PARTITION = "watch: verdicts: after: expected partitions that the topic has (0), found 9"
REPLACED = "watch: verdicts: the request has ended: a later one has taken its place, or the topic is no longer granted"


@pytest.fixture
def world(tmp_path: Path) -> GatewayWorld:
    world = GatewayWorld(tmp_path)
    world.add_peer("alice", 2000)
    return world


def answers(peer: Any) -> list[Any]:
    return [each for each in peer.main if isinstance(each, Watching | RefusedMessage)]


def ask(peer: Any, after: Any) -> int:
    return peer.connection.send(MAIN, write_main(Watch("verdicts", after))) & 0xFFFFFFFF


@pytest.mark.parametrize("after", [{9: 1}, {0: 0, 9: 1}, {0: 99}])
async def test_request_for_a_position_that_does_not_exist_is_refused_once(
    world: GatewayWorld, after: dict[int, int]
) -> None:
    async with world.serving() as memory, world.peer("alice", VERDICTS) as alice:
        memory.emit("verdicts", verdict(1))
        wrong = ask(alice, after)
        await until(lambda: wrong in alice.delivered(MAIN))
        good = ask(alice, None)
        await until(lambda: alice.watched.get(VERDICTS))
        (refused, watching) = answers(alice)
        assert watching == Watching("verdicts", good, {})
        assert (type(refused), refused.topic, refused.index) == (RefusedMessage, MAIN, wrong)
        if 9 in after:
            assert refused.error == NO_PARTITION
        assert "(" not in refused.error.replace("(0)", "")
        assert (world.counted["refused_watches"], world.counted["feeds"]) == (1, 1)


async def test_each_request_of_a_peer_that_changes_its_mind_has_one_answer(world: GatewayWorld) -> None:
    async with world.serving() as memory, world.peer("alice", VERDICTS) as alice:
        memory.emit("verdicts", verdict(1))
        indices = [ask(alice, {0: 99}), ask(alice, {0: 99}), ask(alice, None)]
        await until(lambda: set(indices) <= set(alice.delivered(MAIN)))
        await until(lambda: alice.watched.get(VERDICTS))
        assert sorted(each.index for each in answers(alice)) == indices
        assert world.counted["feeds"] == 1


async def test_session_that_ends_before_the_answer_leaves_nothing(world: GatewayWorld) -> None:
    async with world.serving():
        async with world.peer("alice", VERDICTS) as alice:
            ask(alice, {0: 99})
        await until(lambda: world.counted["sessions_total"] == 1 and not world.counted["sessions"])
        assert world.counted["feeds"] == 0


def test_offset_beyond_what_was_read_is_looked_up() -> None:
    """Another gateway may have been further: the peer has a record that this one reads next."""
    world = FeedWorld()
    world.append(0, 1)
    world.begin()
    world.append(0, 1)
    world.append(0, 1)
    world.watch(None, {0: 1})
    world.watch(None, {0: 0, 1: 7})
    world.requests.clear()
    world.hub._reading = None
    first, second = (each.feed for each in world.watchers)
    said: list[str | None] = []
    world.hub.check(first, said.append)
    world.hub.check(second, said.append)
    assert said == []
    (request,) = world.requests
    assert (request.next, request.records_max) == ({0: 2}, 0)
    assert world.answer(10)
    assert said == [None]
    world.hub.take_slice(Slice(error="no such offset"))
    assert said == [None, "no such offset"]
    third = world.hub.watch(first.session, "verdicts", {1: 7}, 0)
    world.hub.check(third, said.append)
    world.hub.close(third)
    assert REPLACED.endswith(str(said[2]))
    fourth = world.hub.watch(first.session, "verdicts", {0: 0}, 0)
    world.hub.check(fourth, said.append)
    assert said[3:] == [None]


async def test_watched_verdict_is_what_watch_prints(world: GatewayWorld) -> None:
    """Hex begins with 0x, the clause is in the error, and a request that never expires has no session."""
    error = {"kind": "UpwardMessages/MessageSize", "idx": 0, "msg_size": 9, "max_size": 8, "clause": "1.4"}
    refused = verdict(1) | {"ok": False, "enacted": False, "error": error}
    request = verdict(2) | {"kind": "request", "expires_session": 2**32 - 1}
    async with world.serving() as memory, world.client("alice") as client:
        memory.emit("verdicts", refused)
        memory.emit("verdicts", request)
        first, second = [event.record async for event in limited(client.watch("verdicts"), 2)]
    assert first["error"] == error
    assert "clause" not in first
    assert (first["id"], first["runtime_digest"]) == (f"0x{'00' * 16}", f"0x{'00' * 32}")
    assert second["expires_session"] is None
