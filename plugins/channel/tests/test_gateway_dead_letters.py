# SPDX-License-Identifier: Apache-2.0
"""Dead letters reach the peers that may have submitted their records, and nobody gets the bytes."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from gateway_world import LANE, GatewayWorld, candidate, limited, until
from validator_channel.application import DEAD_LETTERS, SUBMIT_TOPICS
from validator_channel.gateway.records import (
    dead_letter_keys,
    feed_keys,
    read_dead_letter,
    read_feed_record,
    record_hash,
)
from validator_channel.gateway.registry import Grant, PeerPolicy

from validator.testing.transport import MemoryTransport

RELAY: Any = {
    "lanes": {LANE: "all"},
    "submit": [*SUBMIT_TOPICS],
    "grants": ["relay-chain", "root-requests"],
}
REQUEST = {"lane": LANE, "block": 1, "index": 0}
RECORDS: dict[str, tuple[str, dict[str, Any]]] = {
    "candidate of 2000": ("candidates", candidate(1)),
    "candidate of 3000": ("candidates", candidate(1, para=3000)),
    "candidate of 2000 elsewhere": ("candidates", {**candidate(1), "lane": "kusama"}),
    "request of 2000": ("channel-requests", {**REQUEST, "kind": "close_channel", "origin": 2000, "channel": [2000, 3000]}),
    "request of root": ("channel-requests", {**REQUEST, "kind": "schedule_para_cleanup", "para_id": 2000}),
    "block": ("blocks", {
        "lane": LANE, "block": 1, "candidates": 0, "requests": 0, "downward": 0, "included": [], "timed_out": [], "session_change": None,
    }),
    "message to 2000": ("downward-messages", {"lane": LANE, "block": 1, "index": 0, "para_id": 2000, "msg": "ab"}),
}  # fmt: skip
SEEN = {
    "alice": {"candidate of 2000", "request of 2000"},
    "bob": {"candidate of 3000"},
    "carol": {"candidate of 2000", "candidate of 3000"},
    "relay": set(RECORDS) - {"candidate of 2000 elsewhere"},
    "node": {"block", "message to 2000"},
}
"""Which of these each peer of `world` gets: alice and bob speak for a para each, carol submits candidates of both and nothing else."""


@pytest.fixture
def world(tmp_path: Path) -> GatewayWorld:
    made = GatewayWorld(tmp_path)
    made.add_peer("alice", 2000, watch=[DEAD_LETTERS])
    made.add_peer("bob", 3000, watch=[DEAD_LETTERS])
    made.add_peer("carol", 2000, 3000, submit=["candidates"], watch=[DEAD_LETTERS])
    made.add_peer("relay", watch=[DEAD_LETTERS], **RELAY)
    made.add_peer("node", 2000, submit=["blocks", "downward-messages"], grants=["relay-chain"], watch=[DEAD_LETTERS])
    made.add_peer("dave", 2000, submit=[], watch=[DEAD_LETTERS])
    return made


def dead(memory: MemoryTransport, name: str, offset: int) -> dict[str, Any]:
    """Return the dead letter of a record, with the record's name as its detail."""
    topic, record = RECORDS[name]
    _, value = memory.forms.encode(topic, record)
    return letter(topic, value, offset, block=1, detail=name)


def letter(topic: str, value: bytes, offset: int = 0, **fields: Any) -> dict[str, Any]:
    return {
        "lane": LANE, "reason": "LATE",
        "detail": "block 1 was executed", "topic": f"some.prefix.{topic}", "partition": 0, "offset": offset, "block": None,
        "index": None, "raw": value.hex(), **fields,
    }  # fmt: skip


async def test_each_peer_gets_those_of_its_own_records_live_and_from_the_beginning(world: GatewayWorld) -> None:
    async with world.serving() as memory:
        for at, name in enumerate(RECORDS):
            if at == len(RECORDS) // 2:  # what comes before is read again, what comes after is read once for all
                await until(lambda: world.gateway is not None and world.gateway.port)
            memory.emit(DEAD_LETTERS, dead(memory, name, at))
        memory.emit(DEAD_LETTERS, letter("candidates", b"\xc3\x01 not a record", detail="of nobody"))
        memory.emit(DEAD_LETTERS, letter("elsewhere", b"of a topic that nobody submits to"))
        for peer, names in SEEN.items():
            async with world.client(peer) as client:
                found = [event.record async for event in limited(client.watch(DEAD_LETTERS), len(names))]
                assert {each["detail"] for each in found if each} == names, peer
        assert world.counted["alarms"] == 0


async def test_peer_gets_where_and_why_and_no_bytes(world: GatewayWorld) -> None:
    async with world.serving() as memory, world.client("alice") as client:
        await client.submit("candidates", RECORDS["candidate of 2000"][1])
        (written,) = memory.enqueued
        memory.emit(DEAD_LETTERS, letter("candidates", written.value, 7, block=1, index=0))
        async for event in limited(client.watch(DEAD_LETTERS), 1):
            assert event.record == {
                "lane": LANE, "topic": "candidates", "partition": 0, "offset": 7, "block": 1, "index": 0, "reason": "LATE",
                "detail": "block 1 was executed", "para_id": 2000, "record_hash": f"0x{written.headers['candidate-hash'].decode()}",
            }  # fmt: skip
            assert written.value.hex() not in json.dumps(event.record)


async def test_changed_grant_holds_for_a_live_feed(world: GatewayWorld) -> None:
    async with (
        world.serving() as memory,
        world.client("dave") as client,
        aclosing(client.watch(DEAD_LETTERS)) as events,
    ):
        waiting = asyncio.create_task(anext(events))
        await until(lambda: world.counted["feeds"] and not world.counted["feeds_catching_up"])
        memory.emit(DEAD_LETTERS, dead(memory, "candidate of 3000", 0))
        world.peers["dave"].table["submit"] = ["candidates"]
        world.write_registry()
        await until(lambda: client.welcome is not None and client.welcome.submit)
        memory.emit(DEAD_LETTERS, dead(memory, "candidate of 2000", 1))
        assert (await waiting).record["detail"] == "candidate of 2000"  # type: ignore[index]


def test_no_inputs_name_ends_with_another_ones() -> None:
    names = [*SUBMIT_TOPICS]
    assert [name for name in names for other in names if name != other and name.endswith(other)] == []


def test_hash_is_the_candidates_own_or_of_its_bytes() -> None:
    digest = blake2b(b"bytes", digest_size=32).hexdigest()
    assert record_hash("candidates", {"candidate_hash": "ab"}, b"bytes") == "ab"
    assert record_hash("candidates", {"candidate_hash": "0xab"}, b"bytes") == "ab"
    assert record_hash("candidates", {"candidate_hash": None}, b"bytes") == digest
    assert record_hash("channel-requests", {"candidate_hash": "ab"}, b"bytes") == digest


@pytest.mark.parametrize("record", [{}, {"lane": 5, "para_id": 2000}], ids=["empty", "lane"])
def test_record_without_a_lane_is_of_nobody(record: dict[str, Any]) -> None:
    keys, shown = read_dead_letter(letter("candidates", b""), lambda *_: record)
    assert keys == ()
    assert "raw" not in shown


def test_topic_that_is_submitted_and_grants_decide() -> None:
    policy = PeerPolicy(
        name="p", peer=1, gateway=2, lanes={LANE: frozenset({7})}, submit=("channel-requests", "blocks"),
        grants=frozenset({Grant.ROOT_REQUESTS}),
    )  # fmt: skip
    keys = {(LANE, 7, "channel-requests"), (LANE, None, "blocks"), (LANE, None, Grant.ROOT_REQUESTS)}
    assert feed_keys(policy, DEAD_LETTERS) == dead_letter_keys(policy) == keys
    record = read_feed_record(DEAD_LETTERS, 0, 0, letter("candidates", b""), lambda *_: {"lane": LANE, "para_id": 7})
    assert not record.is_for(feed_keys(policy, DEAD_LETTERS))
