# SPDX-License-Identifier: Apache-2.0
"""Gateways as processes on a real broker, killed and replaced: by count and by byte, nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gateway_world import LANE, PATIENT, candidate, until, verdict
from validator_channel.application import SUBMIT_TOPICS
from validator_channel.client import ChannelClient, ClientLimits
from validator_channel.events import SessionClosed

from tests.channel.gateways import Delivered, Gateways, as_text, free_port
from tests.sending import send
from validator.codec.json_form import encode_input, encode_json
from validator.config.toml import to_toml
from validator.core.inputs import RecordKind
from validator.kafka.broker import EmbeddedBroker

CANDIDATES = SUBMIT_TOPICS["candidates"]


@pytest.fixture
def world(tmp_path: Path, kafka: dict[str, Any]) -> Gateways:
    return made_world(tmp_path, kafka)


def made_world(folder: Path, kafka: dict[str, Any]) -> Gateways:
    made = Gateways(folder, kafka, f"channel-{folder.name}.")
    made.add_peer("alice", 2000, records_per_s=1_000_000, burst=1_000_000)
    made.add_peer("bob", 3000)
    return made


def value_of(world: Gateways, record: dict[str, Any]) -> bytes:
    return encode_input(world.codec, RecordKind.CANDIDATE, record, "router")


def emit(world: Gateways, *verdicts: dict[str, Any]) -> None:
    (name,) = world.codec.names("verdicts")
    values = [encode_json(world.codec.schemas[name], each) for each in verdicts]
    send(world.kafka, world.prefix, [("verdicts", LANE.encode(), value) for value in values])


def blocks_of(world: Gateways) -> list[int]:
    return [record["block"] for record in world.decoded()]


async def watch_blocks(client: ChannelClient, count: int) -> list[int]:
    events = client.watch("verdicts")
    return [(await anext(events)).record["block"] for _ in range(count)]  # type: ignore[index]


async def submit_all(client: ChannelClient, records: list[dict[str, Any]]) -> list[Any]:
    return await asyncio.gather(*(client.submit("candidates", record) for record in records))


async def test_records_are_in_kafka_byte_for_byte_with_their_headers(world: Gateways) -> None:
    records = [candidate(2 + number) for number in range(50)]
    with world.start() as gateway:
        port = await gateway.listening()
        async with world.client("alice", port) as client:
            receipts = await submit_all(client, records)
            emit(world, verdict(2, para=3000), verdict(2), verdict(3))
            events = client.watch("verdicts")
            seen = [await anext(events) for _ in range(2)]
            assert [(each.offset, each.record["block"]) for each in seen if each.record] == [(1, 2), (2, 3)]
        gateway.send(signal.SIGTERM)
        assert await gateway.ended() == 0
    found = world.records()
    assert [each.value for each in found] == [value_of(world, record) for record in records]
    assert {each.key for each in found} == {LANE.encode()}
    for record, receipt in zip(found, receipts, strict=True):
        headers = {name: value.decode() for name, value in record.headers}
        peer = world.peers["alice"].peer
        assert headers["peer"] == format(peer, "032x")
        assert headers["channel"] == format(peer >> 64, "016x")
        assert (headers["message"], headers["session-instance"]) == (receipt.message, receipt.session_instance)
        assert len(headers["candidate-hash"]) == 64
        assert abs(int(headers["received-at"]) - record.timestamp_ms) < 3_600_000
    assert len({dict(each.headers)["candidate-hash"] for each in found}) == len(records)


async def test_gw03_record_that_was_written_before_the_gateway_died_is_acknowledged_by_the_next_one(
    world: Gateways,
) -> None:
    """It may be in Kafka twice, with equal bytes, which a lane counts as a duplicate (`test_end_to_end.py` has the verdict)."""
    records = [candidate(2 + number) for number in range(100)]
    port = free_port()
    listen = {"listen": f"127.0.0.1:{port}"}
    async with world.client("alice", port) as client:
        inject = {"CHANNEL_DIES": "before-ack", "CHANNEL_DIES_AFTER": 20}
        with world.start("one", inject=inject, **listen) as first:
            await first.listening()
            submitting = [asyncio.create_task(client.submit("candidates", record)) for record in records]
            assert await first.ended() == -signal.SIGKILL
        acknowledged_before = sum(each.done() for each in submitting)
        with world.start("two", **listen) as second:
            receipts = await asyncio.gather(*submitting)
            second.send(signal.SIGTERM)
            assert await second.ended() == 0
    assert acknowledged_before <= 20
    assert max(receipt.attempts for receipt in receipts) >= 2
    counts = Counter(each.value for each in world.records())
    assert set(counts) == {value_of(world, record) for record in records}
    assert 1 <= sum(count - 1 for count in counts.values()) <= 64


async def test_gw09_sigterm_in_the_middle_of_10_000_candidates(world: Gateways) -> None:
    count = 10_000
    settings = replace(PATIENT, ack_timeout=30.0, outbox_limit=count, max_inflight=64, window=64)
    with world.start() as gateway:
        await gateway.listening()
        async with world.peer("alice", CANDIDATES, settings=settings, port=gateway.port) as alice:
            index_of = {alice.send(CANDIDATES, candidate(2 + number)): 2 + number for number in range(count)}
            await until(lambda: len(alice.events) > count // 3)
            gateway.send(signal.SIGTERM)
            await until(lambda: alice.closed is not None)
            assert await gateway.ended() == 0
            acknowledged = {index_of[index] for index in alice.delivered(CANDIDATES)}
            closed = alice.closed
    assert isinstance(closed, SessionClosed)
    undelivered = {index_of[each.index] for each in closed.undelivered}
    assert acknowledged | undelivered == set(range(2, 2 + count))
    assert acknowledged.isdisjoint(undelivered)
    assert 0 < len(acknowledged) < count
    written = blocks_of(world)
    assert written == list(range(2, 2 + len(written)))  # in order, once each
    assert acknowledged <= set(written)
    assert len(written) - len(acknowledged) <= 64
    assert [each.value for each in world.records()] == [value_of(world, candidate(block)) for block in written]
    counted = gateway.counted()
    assert counted["confirmed"] == counted["enqueued"] == len(written)


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        yield broker


@pytest.mark.broker
async def test_broker_is_killed_and_comes_back(own_broker: EmbeddedBroker, tmp_path: Path) -> None:
    records = [candidate(2 + number) for number in range(200)]
    world = made_world(tmp_path, own_broker.kafka)
    with world.start(session_ms=45_000) as gateway:
        port = await gateway.listening()
        async with world.client("alice", port) as client:
            watching = client.watch("verdicts")
            emit(world, verdict(1))
            assert (await anext(watching)).offset == 0
            first = await submit_all(client, records[:50])
            pid = own_broker.status().pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await until(lambda: not own_broker.status().running)
            submitting = asyncio.create_task(submit_all(client, records[50:]))
            await until(lambda: client.counters.snapshot()["online"] == 1 and client.pending == 150)
            await asyncio.get_running_loop().run_in_executor(None, own_broker.start)
            receipts = first + await submitting
            emit(world, verdict(2))
            assert (await anext(watching)).record["block"] == 2  # type: ignore[index]
        gateway.send(signal.SIGTERM)
        assert await gateway.ended() == 0
        counted = gateway.counted()
    assert len(receipts) == len(records)
    assert [each.value for each in world.records()] == [value_of(world, record) for record in records]
    assert counted["acknowledged"] >= len(records)


OUTAGE_S_MAX = 300.0
"""How long the test of an outage may take: it waits for Kafka's session, two starts of a gateway and one of the broker."""


@pytest.mark.long
@pytest.mark.broker
def test_gateway_continues_by_itself_after_an_outage_longer_than_its_session(
    own_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Its sessions end with its lease, and its client submits what was not acknowledged to the gateway that is active next."""
    world = made_world(tmp_path, own_broker.kafka)

    async def main() -> None:
        with world.start(listen=f"127.0.0.1:{free_port()}") as gateway:
            async with world.client("alice", await gateway.listening()) as client:
                first = await submit_all(client, records[:50])
                pid = own_broker.status().pid
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
                submitting = asyncio.create_task(submit_all(client, records[50:]))
                await gateway.wait_for(lambda: gateway.said("; it begins again as standby"))
                await until(lambda: not client.status.is_online)
                await asyncio.get_running_loop().run_in_executor(None, own_broker.start)
                receipts = first + await submitting
            assert gateway.process.poll() is None
            gateway.send(signal.SIGTERM)
            assert await gateway.ended() == 0
        assert len(receipts) == len(records)
        written = Counter(each.value for each in world.records())
        assert set(written) == {value_of(world, record) for record in records}

    async def bounded() -> None:
        async with asyncio.timeout(OUTAGE_S_MAX):
            await main()

    records = [candidate(2 + number) for number in range(60)]
    asyncio.run(bounded())


async def test_standby_takes_over(world: Gateways) -> None:
    records = [candidate(2 + number) for number in range(1_000)]
    ports = free_port(), free_port()
    limits = ClientLimits(pause_s_min=0.05, pause_s_max=0.2, pending_max=64)
    delivered = Delivered()
    async with world.client("alice", *ports, limits=limits, on_event=delivered) as client:
        with (
            world.start("one", listen=f"127.0.0.1:{ports[0]}") as one,
            world.start("two", listen=f"127.0.0.1:{ports[1]}") as two,
        ):
            await until(lambda: one.port or two.port)
            active, standby = (one, two) if one.port else (two, one)
            submitting = asyncio.create_task(submit_all(client, records))
            watching = asyncio.create_task(watch_blocks(client, 40))
            emit(world, *(verdict(block) for block in range(1, 21)))
            await until(lambda: delivered.count > 100)
            active.send(signal.SIGKILL)
            await standby.listening()
            emit(world, *(verdict(block) for block in range(21, 41)))
            receipts = await submitting
            assert await watching == list(range(1, 41))
            standby.send(signal.SIGTERM)
            assert await standby.ended() == 0
    assert len(receipts) == len(records)
    counts = Counter(as_text(world.decoded()))
    assert len(counts) == len(records)
    assert sum(counts.values()) - len(records) <= 64


async def test_killed_peer_leaves_nothing_behind_and_the_next_one_continues(world: Gateways) -> None:
    """`validator-channel submit` is killed in the middle of a file and run again: Kafka has each record once, in order."""
    records = [candidate(2 + number) for number in range(1_000)]
    file = world.folder / "candidates.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    with world.start() as gateway:
        config = configure(world, await gateway.listening())
        command = [sys.executable, "-c", PEER, "submit", str(file), f"--config={config}", "--json"]
        first = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert first.stdout is not None
        for _ in range(200):
            assert json.loads(await first.stdout.readline())["ok"]
        first.kill()
        await first.communicate()
        second = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        out, _ = await second.communicate()
        assert second.returncode == 0
        assert len(out.splitlines()) == len(records)
        gateway.send(signal.SIGTERM)
        assert await gateway.ended() == 0
    assert [each.value for each in world.records()] == [value_of(world, record) for record in records]
    assert gateway.counted()["duplicates"] >= 200


PEER = "from validator_channel.command import main; main()"


def configure(world: Gateways, port: int) -> Path:
    """Write the configuration of alice's client."""
    config = world.client_config("alice", port)
    path = world.folder / "channel.toml"
    files = {"certificate": config.tls.certificate, "key": config.tls.key, "ca": config.tls.ca}
    peers = {"peer": format(config.peer, "032x"), "gateway": format(config.gateway, "032x")}
    path.write_text(
        to_toml({"gateways": [f"127.0.0.1:{port}"], **peers, **{key: str(each) for key, each in files.items()}})
    )
    return path
