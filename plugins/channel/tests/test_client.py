# SPDX-License-Identifier: Apache-2.0
"""The client: over any number of lost sessions nothing is lost or doubled, and whoever waits gets the end."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from channel_tls import Pki
from gateway_world import GatewayWorld, candidate, until, verdict
from validator_channel.client import (
    ChannelClient,
    ClientClosed,
    ClientLimits,
    ConfigError,
    NotConnected,
    Refused,
    load_config,
)
from validator_channel.client.client import pause_s
from validator_channel.gateway import plugin
from validator_channel.net.tls import TlsError

from validator.testing.transport import MemoryTransport

QUICK = ClientLimits(pause_s_min=0.01, pause_s_max=0.05)
ONCE = ClientLimits(pause_s_min=0.01, pause_s_max=0.05, attempts_max=2)


@pytest.fixture
def world(tmp_path: Path) -> GatewayWorld:
    made = GatewayWorld(tmp_path)
    made.add_peer("alice", 2000, sessions_max=1000)
    return made


def cut(client: ChannelClient) -> bool:
    """Cut the client's connection, as a network does."""
    if client._connection is None or client.welcome is None:
        return False
    client._connection._abort_transport()
    return True


def is_active(client: ChannelClient) -> bool:
    """Return whether the gateway has begun to send new verdicts."""
    watcher = client._watchers.get("verdicts")
    return watcher is not None and watcher._begin == "end" and watcher._is_active


def blocks(memory: MemoryTransport) -> list[int]:
    return [memory.forms.decode("candidates", record.value)["block"] for record in memory.enqueued]


async def take(events: Any, count: int) -> list[int]:
    return [(await anext(events)).record["block"] for _ in range(count)]


async def test_lost_connections_lose_and_double_nothing(world: GatewayWorld) -> None:
    count = 400

    def verdicts(memory: MemoryTransport) -> list[dict[str, Any]]:
        return [memory.forms.decode("verdicts", value) for topic, _, value in memory.outputs if topic == "verdicts"]

    async with world.serving() as memory, world.client("alice", limits=replace(QUICK, pending_max=50)) as client:
        watching = asyncio.create_task(take(client.watch("verdicts"), count))

        async def one(block: int) -> int:
            receipt = await client.submit("candidates", candidate(block))
            memory.emit("verdicts", verdict(block))
            return receipt.attempts

        submitting = asyncio.gather(*(one(block) for block in range(1, count + 1)))
        for number in range(1, 6):
            await until(lambda number=number: len(memory.enqueued) >= number * 50)  # type: ignore[misc]
            await until(lambda: cut(client))
            await until(lambda: client._connection is None)
        attempts = await submitting
        assert max(attempts) >= 2
        assert await watching == [each["block"] for each in verdicts(memory)]
    assert blocks(memory) == list(range(1, count + 1))
    assert world.counted["sessions_total"] == 6


async def test_gateway_that_is_restarted_is_found_again(world: GatewayWorld) -> None:
    memory = MemoryTransport(plugin, world.config())
    async with world.serving(memory):
        assert world.gateway is not None
        port = world.gateway.port
        client = world.client("alice", limits=QUICK)
        await client.__aenter__()
        events = client.watch("verdicts")
        memory.emit("verdicts", verdict(1))
        assert await take(events, 1) == [1]
        first = await client.submit("candidates", candidate(1))
    await until(lambda: client.welcome is None)
    submitting = asyncio.create_task(client.submit("candidates", candidate(2)))
    memory.emit("verdicts", verdict(2))
    memory.config = replace(memory.config, listen=f"127.0.0.1:{port}")
    async with world.serving(memory):
        second = await submitting
        memory.emit("verdicts", verdict(3))
        assert await take(events, 2) == [2, 3]
        await client.__aexit__(None, None, None)
    assert first.session_instance != second.session_instance
    assert blocks(memory) == [1, 2]


async def test_watch_continues_where_it_was_told(world: GatewayWorld) -> None:
    async with world.serving() as memory, world.client("alice") as client:
        for block in range(1, 11):
            memory.emit("verdicts", verdict(block))
        events = client.watch("verdicts")
        for _ in range(4):
            last = await anext(events)
        await events.aclose()
        again = client.watch("verdicts", after=last.after)
        assert await take(again, 6) == [5, 6, 7, 8, 9, 10]
        await again.aclose()
        from_end = client.watch("verdicts", after="end")
        waiting = asyncio.create_task(take(from_end, 1))
        await until(lambda: is_active(client))
        memory.emit("verdicts", verdict(11))
        assert await waiting == [11]
        await until(lambda: cut(client))
        await until(lambda: client.welcome is None)
        memory.emit("verdicts", verdict(12))
        assert await take(from_end, 1) == [12]


async def test_watch_from_the_end_keeps_its_position_before_the_first_record(world: GatewayWorld) -> None:
    async with world.serving() as memory, world.client("alice") as client:
        memory.emit("verdicts", verdict(1))
        async for _ in client.watch("verdicts"):
            break
        waiting = asyncio.create_task(take(client.watch("verdicts", after="end"), 2))
        await until(lambda: is_active(client))
        await until(lambda: cut(client))
        await until(lambda: client.welcome is None)
        memory.emit("verdicts", verdict(2))
        await until(lambda: client.welcome is not None)
        memory.emit("verdicts", verdict(3))
        assert await waiting == [2, 3]


async def test_position_beyond_the_end_is_refused(world: GatewayWorld) -> None:
    async with world.serving(), world.client("alice") as client:
        with pytest.raises(Refused, match="watch: verdicts: "):
            await anext(client.watch("verdicts", after={0: 99}))
        with pytest.raises(Refused, match="watch: verdicts: "):
            await anext(client.watch("verdicts", after={77: 0}))


async def test_equal_records_are_one(world: GatewayWorld) -> None:
    async with world.serving() as memory, world.client("alice") as client:
        receipts = await asyncio.gather(*(client.submit("candidates", candidate(1)) for _ in range(5)))
        assert len({receipt.message for receipt in receipts}) == 1
        receipt = await client.submit("candidates", json.dumps(candidate(1)).encode())
        assert receipt.message != receipts[0].message
    assert blocks(memory) == [1]


async def test_cancelled_submission_does_not_disturb_the_others(world: GatewayWorld) -> None:
    async with world.serving() as memory, world.client("alice", limits=replace(QUICK, pending_max=2)) as client:
        memory.hold()
        tasks = [asyncio.create_task(client.submit("candidates", candidate(block))) for block in range(1, 5)]
        await until(lambda: world.counted["in_kafka"] == 2)
        tasks[0].cancel()
        tasks[2].cancel()
        memory.release()
        await asyncio.gather(tasks[1], tasks[3])
    assert blocks(memory) == [1, 2, 4]


async def test_record_that_does_not_fit_into_a_frame_is_refused(world: GatewayWorld) -> None:
    async with world.serving(), world.client("alice") as client:
        with pytest.raises(Refused, match="do not fit into a frame") as caught:
            await client.submit("candidates", b'"' + b"x" * 1_000_000 + b'"')
        assert caught.value.code == "PAYLOAD_TOO_LARGE"
        await client.submit("candidates", candidate(1))


async def test_wrong_arguments(world: GatewayWorld) -> None:
    async with world.serving(), world.client("alice") as client:
        with pytest.raises(ValueError, match="topic: expected one of candidates, "):
            await client.submit("verdicts", {})
        with pytest.raises(ValueError, match="topic: expected one of verdicts, "):
            await anext(client.watch("candidates"))


async def test_new_watch_of_a_topic_ends_the_one_before(world: GatewayWorld) -> None:
    async with world.serving() as memory, world.client("alice") as client:
        first, second = client.watch("verdicts"), client.watch("verdicts")
        for block in (1, 2, 3):
            memory.emit("verdicts", verdict(block))
        assert await take(first, 1) == [1]
        waiting = asyncio.create_task(take(second, 3))
        assert [event.record["block"] async for event in first if event.record] in ([], [2], [2, 3])
        assert await waiting == [1, 2, 3]
        memory.emit("verdicts", verdict(4))
        assert await take(second, 1) == [4]


async def test_closed_client_tells_everybody(world: GatewayWorld) -> None:
    async with world.serving() as memory:
        memory.hold()
        client = world.client("alice")
        async with client:
            await client.ready()
            submitting = asyncio.create_task(client.submit("candidates", candidate(1)))
            watching = asyncio.create_task(take(client.watch("verdicts"), 1))
            await until(lambda: world.counted["in_kafka"])
        with pytest.raises(ClientClosed):
            await submitting
        with pytest.raises(ClientClosed):
            await watching
        with pytest.raises(ClientClosed):
            await client.submit("candidates", candidate(2))
        memory.release()


async def test_client_gives_up_after_so_many_attempts(world: GatewayWorld, tmp_path: Path) -> None:
    other = Pki(tmp_path / "other")

    async with world.serving():
        good = world.client_config("alice")
        for config, kind in (
            (replace(good, gateways=(("127.0.0.1", 1),)), NotConnected),
            (replace(good, tls=replace(good.tls, ca=other.ca, crl=None)), NotConnected),
            (replace(good, psk=b"\x07" * 32), NotConnected),
            (replace(good, pins=frozenset({b"\x07" * 32})), NotConnected),
            (replace(good, server_name="elsewhere.example"), NotConnected),
            (replace(good, tls=replace(good.tls, certificate=tmp_path / "nowhere.crt")), TlsError),
        ):
            async with ChannelClient(config, limits=ONCE) as client:
                waiting = [
                    client.ready(),
                    client.submit("candidates", candidate(1)),
                    anext(client.watch("verdicts")),
                ]
                for found in await asyncio.gather(*waiting, return_exceptions=True):  # type: ignore[call-overload]
                    assert isinstance(found, kind)
                    assert "\n" not in str(found)
                with pytest.raises(kind):
                    await client.submit("candidates", candidate(1))


async def test_second_gateway_is_tried(world: GatewayWorld) -> None:
    async with world.serving():
        assert world.gateway is not None
        async with world.client("alice", 1, world.gateway.port) as client:
            await client.submit("candidates", candidate(1))


async def test_silent_gateway_is_noticed(world: GatewayWorld) -> None:
    """Its machine is gone: nothing is closed, and nothing is answered."""

    settings = replace(world.client("alice", 1)._settings, ack_timeout=0.05, backoff=1.0, max_retries=1)
    async with (
        world.serving(),
        world.client("alice", limits=replace(QUICK, keep_alive_s=0.05), settings=settings) as client,
    ):
        await client.ready()
        assert world.gateway is not None
        (connection,) = list(world.gateway._listener.sessions)
        connection.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: client.counters.snapshot().get("ended.ACK_TIMEOUT"))
        await client.submit("candidates", candidate(1))


def test_pauses_grow_and_are_spread() -> None:
    limits = ClientLimits(pause_s_min=1.0, pause_s_max=10.0)
    pauses = [pause_s(limits, failures, Random(failures)) for failures in range(1, 200)]
    for failures, pause in enumerate(pauses, start=1):
        longest = min(10.0, 2.0 ** (failures - 1))
        assert longest / 2 <= pause <= longest
    assert len(set(pauses)) > 190
    assert pause_s(limits, 5, Random(1)) == pause_s(limits, 5, Random(1))


def test_client_needs_neither_the_product_nor_kafka() -> None:
    program = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("validator", "streaming", "pyspark", "confluent_kafka", "pluggy", "fastavro", "pydantic"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import validator_channel.client
import validator_channel.command
import validator_channel.gateway.service
print("imported")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("imported\n", 0), done.stderr


# --- configuration ---

PEER, GATEWAY = "0123456789abcdef0011223344556677", "0123456789abcdeffedcba9876543210"
GOOD = f"""
gateways = ["gateway.example:9443", "[::1]:9444"]
peer = "{PEER}"
gateway = "{GATEWAY}"
certificate = "alice.crt"
key = "alice.key"
ca = "/etc/ca.crt"
"""


def test_configuration_of_a_client(tmp_path: Path) -> None:
    path = tmp_path / "channel.toml"
    path.write_text(GOOD)
    config = load_config(path)
    assert config.gateways == (("gateway.example", 9443), ("::1", 9444))
    assert (config.peer, config.gateway) == (int(PEER, 16), int(GATEWAY, 16))
    assert (config.tls.certificate, config.tls.ca, config.tls.crl) == (
        tmp_path / "alice.crt",
        Path("/etc/ca.crt"),
        None,
    )
    changed = load_config(path, {"gateways": ["other:1"], "key": "mine.key", "psk_file": None})
    assert (changed.gateways, changed.tls.key) == ((("other", 1),), Path("mine.key"))


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('gateways = ["x"]', "gateways: expected a list of 1 to 16 HOST:PORT, found ['x']"),
        ("gateways = []", "gateways: expected a list"),
        ('gateways = "x:1"', "gateways: expected a list"),
        ('gateways = ["x:70000"]', "gateways: expected a list"),
        ('peer = "1"', "peer: expected 32 lower-case hex digits, found '1'"),
        (f'peer = "{GATEWAY}"', "gateway: expected two peers of one channel"),
        ("key = 5", "key: expected text, found 5"),
        ('pins = ["00"]', "pins: expected a list of 64 lower-case hex digits"),
        ('psk_file = "nowhere"', "psk_file: "),
        ("surplus = 1", "surplus: no such key, expected one of gateways, "),
    ],
)
def test_wrong_configuration_of_a_client_is_one_line(tmp_path: Path, line: str, text: str) -> None:
    path = tmp_path / "channel.toml"
    kept = [each for each in GOOD.splitlines() if each.split(" = ")[0] != line.split(" = ", maxsplit=1)[0]]
    path.write_text("\n".join([*kept, line]))
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}: {text}")
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"nowhere.toml: No such file"):
        load_config(tmp_path / "nowhere.toml")
