# SPDX-License-Identifier: Apache-2.0
"""The gateway cases of channel_samples.json that need no broker, with real TLS; `tests/channel` has the others."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gateway_world import LANE, PATIENT, GatewayWorld, candidate, limited, refusals, until, verdict
from validator_channel.application import SUBMIT_TOPICS, WATCH_TOPICS, Watch, Watching, write_main
from validator_channel.client import ClientLimits, Refused
from validator_channel.gateway import plugin
from validator_channel.net.connection import Connection
from validator_channel.wire import MAIN

from validator.testing.transport import MemoryTransport

CANDIDATES, REQUESTS = SUBMIT_TOPICS["candidates"], SUBMIT_TOPICS["channel-requests"]
VERDICTS = WATCH_TOPICS["verdicts"]
SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "traces" / "channel_samples.json"
RETRANSMITS = replace(PATIENT, ack_timeout=0.05, backoff=1.0, max_retries=100)


@pytest.fixture
def world(tmp_path: Path) -> GatewayWorld:
    made = GatewayWorld(tmp_path)
    made.add_peer("alice", 2000, 2004)
    made.add_peer("bob", 3000)
    return made


def request(kind: str, **fields: Any) -> dict[str, Any]:
    return {"lane": LANE, "block": 2, "index": 0, "kind": kind, **fields}


def test_every_case_has_a_test() -> None:
    if not SAMPLES.exists():
        pytest.skip("the checkout has no sibling ../shared/traces")
    ids = {case["id"] for case in json.loads(SAMPLES.read_text())["gateway_cases"]}
    here, processes = Path(__file__).parent, Path(__file__).parents[3] / "tests" / "channel"
    sources = "".join(path.read_text() for folder in (here, processes) for path in folder.glob("test_*.py"))
    assert ids == {name.upper() for name in re.findall(r"def test_(gw\d+)_", sources)}


OTHERS = [
    (CANDIDATES, candidate(5, para=3000), "para_id: expected one of this peer's paras in polkadot, found 3000"),
    (CANDIDATES, candidate(5, lane="kusama"), "lane: expected one of this peer's lanes, found 'kusama'"),
    (CANDIDATES, candidate(5, para_id=True), "para_id: expected one of this peer's paras in polkadot, found True"),
    (CANDIDATES, candidate(5, para_id=2000.0), "para_id: expected one of this peer's paras in polkadot, found 2000.0"),
    (REQUESTS, request("close_channel", origin=3000, channel=[2000, 3000]), "origin: expected one of this peer's paras"),
    (REQUESTS, request("init_open_channel", recipient=2000), "origin: expected one of this peer's paras"),
    (REQUESTS, request("force_open_channel", sender=2000, recipient=2004), "kind: 'force_open_channel' needs the grant"),
    (REQUESTS, request("schedule_para_cleanup", para_id=2000), "kind: 'schedule_para_cleanup' needs the grant"),
    (REQUESTS, request("service_overweight", para_id=2000, origin=2000), "kind: 'service_overweight' needs the grant"),
    (REQUESTS, {"lane": LANE, "origin": 2000}, "kind: None needs the grant"),
]  # fmt: skip


async def test_gw01_record_for_another_para_is_refused_to_its_peer_alone(world: GatewayWorld) -> None:
    async with (
        world.serving() as memory,
        world.peer("alice", CANDIDATES, REQUESTS) as alice,
        world.peer("bob", CANDIDATES) as bob,
    ):
        sent = [(topic, alice.send(topic, record)) for topic, record, _ in OTHERS]
        await until(lambda: len(alice.delivered(CANDIDATES)) + len(alice.delivered(REQUESTS)) == len(sent))
        errors = refusals(alice)
        assert list(errors) == sent
        for place, (_, _, text) in zip(sent, OTHERS, strict=True):
            assert text in errors[place], place
        assert memory.enqueued == []
        assert refusals(bob) == {}

        alice.send(CANDIDATES, candidate(5))
        await until(lambda: memory.enqueued)
        assert alice.closed is None
    assert [record.topic for record in memory.enqueued] == ["candidates"]
    assert world.counted["refused_unauthorised"] == len(OTHERS)


async def test_gw01_refusal_arrives_before_its_acknowledgement(world: GatewayWorld) -> None:
    """Also if `main` is full of refusals: what is acknowledged without a refusal was accepted."""
    count = 60

    async with world.serving(), world.peer("alice", CANDIDATES) as alice:
        told: list[tuple[int, bool]] = []
        handle = alice.handle

        def spy(connection: Connection, event: Any) -> None:
            handle(connection, event)
            new = alice.delivered(CANDIDATES)[len(told) :]
            told.extend((index, (CANDIDATES, index) in refusals(alice)) for index in new)

        alice.handle = spy  # type: ignore[method-assign]
        alice.connection._terms = replace(alice.connection._terms, handler=spy)
        for number in range(count):
            alice.send(CANDIDATES, candidate(2 + number, para=2000 if number % 3 == 0 else 1))
        await until(lambda: len(told) == count)
        assert sum(is_refused for _, is_refused in told) == 40
        accepted = {index for index, is_refused in told if not is_refused}
        assert accepted == {2 * number for number in range(0, count, 3)}


async def test_gw02_while_kafka_is_down_nothing_is_acknowledged_and_nothing_doubled(world: GatewayWorld) -> None:
    async with world.serving() as memory:
        memory.hold()
        async with world.peer("alice", CANDIDATES, settings=RETRANSMITS) as alice:
            for number in range(10):
                alice.send(CANDIDATES, candidate(2 + number))
            session = alice.connection._session
            assert session is not None
            await until(lambda: session.counts.retransmissions >= 30)
            assert alice.delivered(CANDIDATES) == []
            assert memory.enqueued == []
            memory.release()
            await until(lambda: len(alice.delivered(CANDIDATES)) == 10)
            assert alice.delivered(CANDIDATES) == [2 * number for number in range(10)]
    blocks = [memory.forms.decode("candidates", record.value)["block"] for record in memory.enqueued]
    assert blocks == list(range(2, 12))


async def test_gw02_full_queue_holds_up_and_loses_nothing(world: GatewayWorld) -> None:
    """Kafka's queue takes two records; the peer's window closes, and its connection is not read above the limit of bytes."""
    world._config = {"limits": {"pending_bytes_max": 2_000}}

    memory = MemoryTransport(plugin, world.config())
    memory.enqueued_records_max = 2
    async with world.serving(memory):
        memory.hold()
        async with world.client("alice") as client, world.peer("bob", CANDIDATES) as bob:
            sent = [asyncio.create_task(client.submit("candidates", candidate(2 + n))) for n in range(300)]
            await until(lambda: world.counted["kafka_full"] > 3 and world.counted["reading_paused"])
            assert world.counted["received"] <= 2 + 64
            bob.send(CANDIDATES, candidate(2, para=3000))
            memory.release()
            receipts = await asyncio.gather(*sent)
            await until(lambda: bob.delivered(CANDIDATES))
            assert {receipt.attempts for receipt in receipts} == {1}
    records = [memory.forms.decode("candidates", record.value) for record in memory.enqueued]
    assert [each["block"] for each in records if each["para_id"] == 2000] == list(range(2, 302))
    assert [each["block"] for each in records if each["para_id"] == 3000] == [2]
    assert world.counted["in_kafka"] == 0


async def test_gw02_record_of_a_lost_session_is_not_written_again_by_the_next_one(world: GatewayWorld) -> None:
    async with world.serving() as memory:
        memory.hold()
        for attempt in range(1, 4):
            async with world.peer("alice", CANDIDATES) as alice:
                alice.send(CANDIDATES, candidate(7))
                alice.send(CANDIDATES, candidate(8))
                await until(lambda attempt=attempt: world.counted["received"] == 2 * attempt)  # type: ignore[misc]
            await until(lambda: world.counted["sessions"] == 0)
        async with world.peer("alice", CANDIDATES) as alice:
            alice.send(CANDIDATES, candidate(7))
            alice.send(CANDIDATES, candidate(8))
            await until(lambda: world.counted["received"] == 8)
            memory.release()
            await until(lambda: len(alice.delivered(CANDIDATES)) == 2)
            alice.send(CANDIDATES, candidate(7))  # confirmed by now
            await until(lambda: len(alice.delivered(CANDIDATES)) == 3)
    assert len(memory.enqueued) == 2
    assert world.counted["duplicates"] == 7


@pytest.mark.parametrize("reads", [True, False], ids=["without-acknowledging", "without-reading"])
async def test_gw04_peer_that_never_reads_is_closed_and_harms_nobody(world: GatewayWorld, reads: bool) -> None:
    world._config = {
        "limits": {"feed_records_max": 32, "feed_bytes_max": 20_000},
        "session": {"ack_timeout_s": 1.0, "retries_max": 2},
    }
    count = 1_000

    async with world.serving() as memory, world.client("bob") as client:
        async with world.peer("alice", VERDICTS, acknowledges=False) as alice:
            assert world.gateway is not None
            alice.connection.send(MAIN, write_main(Watch("verdicts", None)))
            await until(lambda: world.counted["feeds"] == 1)
            (session,) = [each for each in world.gateway._bridge._sessions.values() if each.policy.name == "alice"]
            (feed,) = session.feeds.values()
            if not reads:
                alice.connection.pause_reading()
            for block in range(1, count + 1):
                memory.emit("verdicts", verdict(block, para=2000))
                memory.emit("verdicts", verdict(block, para=3000))
            seen, rooms = [], []  # before the session is closed, which on a busy machine may be soon
            async for event in limited(client.watch("verdicts"), count):
                seen.append(event.record["block"])
                rooms.append(feed.room)
            assert seen == list(range(1, count + 1))
            records, size = min(rooms)
            assert 0 <= records < 32
            assert -2_000 < size < 20_000
            await until(lambda: session.is_closed and world.counted["feeds"] == 0)
            assert len(alice.watched.get(VERDICTS, ())) <= 64
            assert feed.room[0] == 32
        async with world.client("alice") as again:
            seen = [event.record["block"] async for event in limited(again.watch("verdicts"), count)]
            assert seen == list(range(1, count + 1))


async def test_gw05_each_peer_receives_only_its_own_records_in_order(world: GatewayWorld) -> None:
    world.add_peer("carol", lanes={LANE: "all"})
    world.add_peer("dave", lanes={"kusama": "all"})
    count = 200

    async def collect(name: str, sees: list[tuple[int, int]]) -> list[tuple[int, int]]:
        async with world.client(name) as client:
            events = limited(client.watch("verdicts"), len(sees))
            return [(event.record["block"], event.record["para_id"]) async for event in events]

    blocks = range(1, count + 1)
    expected = {
        "alice": [(block, para) for block in blocks for para in (2000, 2004)],
        "bob": [(block, 3000) for block in blocks],
        "carol": [(block, para) for block in blocks for para in (2000, 3000, 2004, 4000)],
        "dave": [(1, 2000)],
    }
    async with world.serving() as memory:
        for block in range(1, count + 1):
            for para in (2000, 3000, 2004, 4000):
                memory.emit("verdicts", verdict(block, para=para))
            if block == count // 2:
                watches = [asyncio.create_task(collect(name, sees)) for name, sees in expected.items()]
                await until(lambda: world.counted["delivered"] > 100)
        memory.emit("verdicts", verdict(1, lane="kusama"))
        for name, watch in zip(expected, watches, strict=True):
            assert await watch == expected[name], name


@pytest.mark.parametrize("watches", [True, False])
async def test_gw06_peer_cannot_publish_on_the_gateways_topics(world: GatewayWorld, watches: bool) -> None:
    async with world.serving() as memory, world.peer("alice", *WATCH_TOPICS.values(), CANDIDATES) as alice:
        if watches:
            alice.connection.send(MAIN, write_main(Watch("verdicts", None)))
            await until(lambda: any(isinstance(each, Watching) for each in alice.main))
        for topic in WATCH_TOPICS.values():
            index = alice.send(topic, verdict(5))
            await until(lambda topic=topic: alice.rejected(topic))  # type: ignore[misc]
            assert alice.rejected(topic) == {index: "NOT_AUTHORIZED"}
        alice.send(CANDIDATES, candidate(2))
        await until(lambda: alice.delivered(CANDIDATES))
        assert [record.topic for record in memory.submitted and memory.enqueued] == ["candidates"]


async def test_gw06_topic_that_is_not_granted_cannot_be_registered(tmp_path: Path) -> None:
    world = GatewayWorld(tmp_path)
    world.add_peer("eve", 2000, submit=["candidates"], watch=[])

    async with world.serving() as memory, world.peer("eve", CANDIDATES) as eve:
        for topic in (VERDICTS, REQUESTS, SUBMIT_TOPICS["blocks"], 4_000_000):
            eve.connection.register_topic(topic)
        await until(lambda: len([each for each in eve.events if type(each).__name__ == "TopicRefused"]) == 4)
        index = eve.connection.send(MAIN, write_main(Watch("verdicts", None))) & 0xFFFFFFFF
        await until(lambda: refusals(eve))
        assert refusals(eve) == {(MAIN, index): "watch: 'verdicts' is not granted to this peer"}
        async with world.client("eve") as client:
            with pytest.raises(Refused, match="channel-requests: not granted to this peer"):
                await client.submit("channel-requests", {})
            with pytest.raises(Refused, match="'verdicts' is not granted"):
                await anext(client.watch("verdicts"))
        assert memory.enqueued == []


async def test_limits_of_client_can_be_small(world: GatewayWorld) -> None:
    """One record in flight, one record queued: slow, but nothing is lost."""

    async with (
        world.serving() as memory,
        world.client("alice", limits=ClientLimits(pending_max=1, queue_max=1)) as client,
    ):
        for block in range(1, 101):
            memory.emit("verdicts", verdict(block))
        await asyncio.gather(*(client.submit("candidates", candidate(2 + n)) for n in range(20)))
        seen = [event.record["block"] async for event in limited(client.watch("verdicts"), 100)]
        assert seen == list(range(1, 101))
