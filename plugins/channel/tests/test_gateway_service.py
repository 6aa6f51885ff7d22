# SPDX-License-Identifier: Apache-2.0
"""The gateway as a whole, with real TLS and Kafka in memory: a registry that changes, rates, failures, and an end in order."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from gateway_world import LANE, GatewayWorld, candidate, refusals, until, verdict
from validator_channel.application import SUBMIT_TOPICS, Watch, write_main
from validator_channel.client import NotConnected, Refused
from validator_channel.gateway import plugin
from validator_channel.gateway.intake import Duplicates
from validator_channel.net.sockets import TokenBucket
from validator_channel.tables import ConfigError
from validator_channel.wire import MAIN

from validator.plugin.api import LeaseLost
from validator.plugin.registry import PluginError
from validator.testing.transport import MemoryTransport

CANDIDATES = SUBMIT_TOPICS["candidates"]


@pytest.fixture
def world(tmp_path: Path) -> GatewayWorld:
    made = GatewayWorld(tmp_path, limits={"registry_poll_s": 0.02})
    made.add_peer("alice", 2000, 2004)
    made.add_peer("bob", 3000)
    return made


@pytest.mark.parametrize("how", ["disabled", "removed", "other-key"])
async def test_session_of_a_peer_that_may_not_connect_any_more_is_closed(world: GatewayWorld, how: str) -> None:
    async with world.serving(), world.peer("alice", CANDIDATES) as alice, world.peer("bob", CANDIDATES) as bob:
        if how == "disabled":
            world.peers["alice"].table["enabled"] = False
        elif how == "other-key":
            world.peers["alice"].table["pins"] = {"current": "ab" * 32}
        else:
            gone = world.peers.pop("alice")
        world.write_registry()
        await until(lambda: alice.closed is not None)
        if how == "removed":
            world.peers["alice"] = gone
        limits = type(world.client("alice")._limits)(pause_s_min=0.01, attempts_max=2)
        async with world.client("alice", limits=limits) as client:
            with pytest.raises(NotConnected):
                await client.ready()
        bob.send(CANDIDATES, candidate(2, para=3000))
        await until(lambda: bob.delivered(CANDIDATES))


async def test_changed_lanes_hold_for_live_sessions(world: GatewayWorld) -> None:
    async with world.serving() as memory, world.client("alice") as client:
        events = client.watch("verdicts")
        for para in (2000, 2004, 3000, 4000):
            memory.emit("verdicts", verdict(1, para=para))
        assert [(await anext(events)).record["para_id"] for _ in range(2)] == [2000, 2004]  # type: ignore[index]
        with pytest.raises(Refused):
            await client.submit("candidates", candidate(1, para=4000))

        world.peers["alice"].table["lanes"] = {LANE: [2000, 4000]}
        world.write_registry()
        await until(lambda: world.counted["registry_reloads"] == 1)
        for para in (2004, 3000, 4000, 2000):
            memory.emit("verdicts", verdict(2, para=para))
        found = [(await anext(events)).record for _ in range(2)]
        assert [(each["block"], each["para_id"]) for each in found if each] == [(2, 4000), (2, 2000)]
        await client.submit("candidates", candidate(1, para=4000))
        with pytest.raises(Refused, match="found 2004"):
            await client.submit("candidates", candidate(1, para=2004))
        assert world.counted["sessions_total"] == 1


async def test_changed_topics_hold_for_live_sessions(world: GatewayWorld) -> None:
    world.peers["alice"].table |= {"submit": ["candidates"], "watch": ["verdicts"]}

    async with world.serving() as memory, world.client("alice") as client:
        events = client.watch("verdicts")
        memory.emit("verdicts", verdict(1))
        await anext(events)
        with pytest.raises(Refused, match="channel-requests: not granted"):
            await client.submit("channel-requests", {"lane": LANE})
        world.peers["alice"].table |= {"submit": ["channel-requests"], "watch": ["receipts"]}
        world.write_registry()
        with pytest.raises(Refused, match="'verdicts' is not granted"):
            await anext(events)
        with pytest.raises(Refused, match="candidates: "):
            await client.submit("candidates", candidate(1))
        request = {
            "lane": LANE,
            "block": 1,
            "index": 0,
            "kind": "close_channel",
            "origin": 2000,
            "channel": [2000, 9],
        }
        await client.submit("channel-requests", request)
        assert [record.topic for record in memory.enqueued] == ["channel-requests"]


async def test_broken_registry_leaves_everything_as_it_was(
    world: GatewayWorld, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.serving(), world.client("alice") as client:
        good = world.registry.read_text()
        await client.submit("candidates", candidate(1))
        world.registry.write_text(good.replace('"submit"', '"submits"').replace("submit", "submits"))
        await until(lambda: world.counted["registry_broken"])
        await client.submit("candidates", candidate(2))
        world.registry.write_text(good)
        await until(lambda: not world.counted["registry_broken"])
        assert world.counted["alarms"] == 2
        assert world.counted["sessions_total"] == 1
    lines = [record.message for record in caplog.records if "the registry stays as it was" in record.message]
    assert len(lines) == 2
    assert "peers.toml: peers.alice.submits: no such key" in lines[0]


async def test_changed_pre_shared_key_holds_for_the_next_session(world: GatewayWorld) -> None:
    def write_key(digits: str) -> None:
        replacement = world.folder / "alice.new"
        replacement.write_text(digits * 32)
        replacement.chmod(0o600)
        replacement.replace(world.folder / "alice.psk")

    write_key("11")
    world.peers["alice"].table["psk_file"] = "alice.psk"
    async with world.serving():
        async with world.client("alice", psk=b"\x11" * 32) as live:
            await live.submit("candidates", candidate(1))
            write_key("22")
            await until(lambda: world.counted["registry_reloads"])
            await live.submit("candidates", candidate(2))
            async with world.client("alice", psk=b"\x22" * 32) as client:
                await client.submit("candidates", candidate(3))
        assert world.counted["sessions_total"] == 2


async def test_records_above_the_rate_wait(world: GatewayWorld) -> None:
    world.peers["alice"].table |= {"records_per_s": 100, "burst": 5}

    loop = asyncio.get_running_loop()
    async with world.serving() as memory, world.client("alice") as client, world.client("alice") as second:
        began = loop.time()
        records = [candidate(2 + number) for number in range(40)]
        await asyncio.gather(*(each.submit("candidates", record) for record in records[::2] for each in (client,)),
                             *(second.submit("candidates", record) for record in records[1::2]))  # fmt: skip
        assert len(memory.enqueued) == 40
        assert world.counted["rate_waits"] > 0
        assert loop.time() - began >= (40 - 5) / 100


async def test_changed_rate_holds_for_the_next_record_of_live_and_of_new_sessions(
    world: GatewayWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """A peer without a session at the change has its old bucket, too; a record that waits for the old rate does not wait on."""
    caplog.set_level("INFO", "validator_channel")
    loop = asyncio.get_running_loop()

    async def change(**table: Any) -> None:
        world.peers["alice"].table |= table
        reloads = world.counted["registry_reloads"]
        world.write_registry()
        await until(lambda: world.counted["registry_reloads"] > reloads)

    async with world.serving() as memory:
        async with world.client("alice") as client:
            await client.submit("candidates", candidate(1))
        await until(lambda: not world.counted["sessions"])
        await change(records_per_s=0.001, burst=2)
        async with world.client("alice") as client:
            first = [asyncio.ensure_future(client.submit("candidates", candidate(block))) for block in (2, 3, 4)]
            await asyncio.wait(first[:2])
            await until(lambda: world.counted["rate_waits"] == 1)
            assert [each.done() for each in first] == [True, True, False]
            began = loop.time()
            await change(records_per_s=50)
            await first[2]
            assert loop.time() - began < 60
            await change(records_per_s=0.001, burst=1)
            waiting = asyncio.ensure_future(client.submit("candidates", candidate(5)))
            second = asyncio.ensure_future(client.submit("candidates", candidate(6)))
            await until(lambda: world.counted["rate_waits"] >= 2)
            assert not second.done()
            waiting.cancel()
            second.cancel()
        assert len(memory.enqueued) <= 5
    lines = [record.message for record in caplog.records if "the registry has changed: alice" in record.message]
    assert lines == [
        "the registry has changed: alice: records_per_s 100.0 -> 0.001, burst 200 -> 2",
        "the registry has changed: alice: records_per_s 0.001 -> 50.0",
        "the registry has changed: alice: records_per_s 50.0 -> 0.001, burst 2 -> 1",
    ]


async def test_large_records_are_read_in_a_thread_and_keep_their_order(world: GatewayWorld) -> None:
    async with world.serving() as memory, world.client("alice") as client:
        large, bad = {"upward_messages": ["00" * 20_000]}, {"upward_messages": ["xy" * 20_000]}
        records = [candidate(number, **(large if number % 3 == 0 else {})) for number in range(1, 31)]
        sent = [client.submit("candidates", record) for record in records]
        with pytest.raises(Refused, match="upward_messages"):
            await asyncio.gather(client.submit("candidates", candidate(99, **bad)), *sent)
        await until(lambda: len(memory.enqueued) == 30)
        found = [memory.forms.decode("candidates", record.value)["block"] for record in memory.enqueued]
        assert found == list(range(1, 31))


async def test_too_many_messages_on_main_are_refused(world: GatewayWorld) -> None:
    count = 200

    async with world.serving(), world.peer("alice") as alice:
        for _ in range(count):
            alice.connection.send(MAIN, write_main(Watch("verdicts", "end")))
        await until(lambda: len(alice.delivered(MAIN)) == count)
        assert 0 < world.counted["refused_watches"] <= count - 50
        assert set(refusals(alice).values()) == {"main: expected at most 10 messages per second"}
        assert world.counted["feeds"] == 1


async def test_record_that_kafka_refuses_is_refused(world: GatewayWorld) -> None:
    async with world.serving() as memory, world.client("alice") as client:
        memory.refuse = lambda _: "too large for 10.0.0.7:9092"
        with pytest.raises(Refused) as caught:
            await client.submit("candidates", candidate(1))
        assert caught.value.error == "candidates: the gateway could not store the record"
        memory.refuse = lambda _: None
        await client.submit("candidates", candidate(1))
        assert (world.counted["failed"], world.counted["confirmed"]) == (1, 1)


async def test_end_in_order_acknowledges_what_kafka_has_and_nothing_else(world: GatewayWorld) -> None:
    """Kafka takes the first records and is down from then on; the peer reports exactly the others as undelivered."""
    world._config["limits"] |= {"drain_s": 1.0}

    async with world.serving() as memory, world.peer("alice", CANDIDATES) as alice:
        for number in range(5):
            alice.send(CANDIDATES, candidate(2 + number))
        await until(lambda: len(alice.delivered(CANDIDATES)) == 5)
        memory.hold()
        for number in range(5, 9):
            alice.send(CANDIDATES, candidate(2 + number))
        await until(lambda: world.counted["in_kafka"] == 4)
        memory.stop()
        await world.running
        await until(lambda: alice.closed is not None)
        assert alice.closed is not None
        assert [each.index for each in alice.closed.undelivered] == [10, 12, 14, 16]
        assert len(memory.enqueued) == 5


async def test_end_in_order_is_clean(world: GatewayWorld) -> None:
    async with world.serving() as memory, world.peer("alice", CANDIDATES) as alice:
        alice.send(CANDIDATES, candidate(2))
        await until(lambda: alice.delivered(CANDIDATES))
        memory.stop()
        await world.running
        await until(lambda: alice.closed is not None)
        assert alice.closed is not None
        assert alice.closed.is_clean


async def test_lost_lease_ends_the_gateway(world: GatewayWorld) -> None:
    with suppress(
        LeaseLost
    ):  # a reader may learn of it before the gateway looks whether to stop; who runs it knows in either case
        async with world.serving() as memory, world.peer("alice", CANDIDATES) as alice:
            memory.lose_lease()
            alice.send(CANDIDATES, candidate(2))
            await asyncio.wait([world.running])  # nobody stops it; `run` bounds how long it may take


async def test_sessions_of_a_peer_are_limited(world: GatewayWorld) -> None:
    world.peers["alice"].table["sessions_max"] = 2

    async with world.serving(), world.peer("alice"), world.peer("alice"):
        with pytest.raises(Exception, match="SESSION_LIMIT"):
            async with world.peer("alice"):
                pass


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"listen": "nowhere"}, "listen"),
        ({"listen": "127.0.0.1:70000"}, "listen"),
        ({"limits": {"drain_s": 0}}, "drain_s: expected a number above 0"),
        ({"limits": {"drain": 1}}, "limits"),
        ({"session": {"window_records": 5000}}, "window: expected a number from 1 to 1024"),
        ({"certificate": 5}, "config.certificate"),
        ({"surplus": 5}, "config.surplus: no such key"),
    ],
)
def test_wrong_configuration_is_reported(world: GatewayWorld, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(PluginError, match=r".") as caught:
        MemoryTransport(plugin, {**world.config(), **changes})
    assert text in str(caught.value)


def test_broken_registry_at_the_start_ends_the_gateway(world: GatewayWorld, capsys: pytest.CaptureFixture[str]) -> None:
    config = world.config()
    world.registry.write_text("[peers.a]\n[peers.b]\nenabled = 5\n")
    with pytest.raises(ConfigError):
        MemoryTransport(plugin, config).run()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 7
    assert "peers.b.enabled: expected true or false, found 5" in lines[-1]


def test_plugin_runs_as_a_transport(world: GatewayWorld, capsys: pytest.CaptureFixture[str]) -> None:
    memory = MemoryTransport(plugin, world.config())
    with memory.open() as context:
        context.stop()
        plugin.run(context)
    log = capsys.readouterr().err
    assert "INFO channel: listening on 127.0.0.1 port " in log
    assert "INFO channel: counted: " in log


# --- parts ---


def test_token_bucket() -> None:
    bucket = TokenBucket(per_s=2.0, burst=3, now=10.0)
    assert [bucket.take(10.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert bucket.take(10.25) == 0.25
    assert bucket.take(10.5) == 0.0
    assert bucket.take(9.0) == 0.5  # a clock that goes back gives nothing
    assert [bucket.take(100.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    bucket.set_rate(10.0, 1, 200.0)
    assert [bucket.take(200.0) for _ in range(2)] == [0.0, 0.1]


def test_duplicates_join_what_is_pending_and_what_is_confirmed() -> None:
    found: list[tuple[str, str | None]] = []
    duplicates = Duplicates(records_max=2, seconds_max=10.0)
    one = duplicates.identity("candidates", b"1")
    assert one != duplicates.identity("blocks", b"1")
    assert not duplicates.join(one, lambda error: found.append(("early", error)), 0.0)
    duplicates.add(one, lambda error: found.append(("first", error)))
    assert duplicates.join(one, lambda error: found.append(("second", error)), 1.0)
    assert found == []
    duplicates.settle(one, None, 2.0)
    assert found == [("first", None), ("second", None)]
    assert duplicates.join(one, lambda error: found.append(("third", error)), 11.0)
    assert found[2:] == [("third", None)]
    assert not duplicates.join(one, lambda error: found.append(("late", error)), 12.0)


def test_duplicates_forget_a_failure_and_the_oldest() -> None:
    found: list[str | None] = []
    duplicates = Duplicates(records_max=2, seconds_max=10.0)
    for name in (b"1", b"2", b"3"):
        duplicates.add(name, found.append)
        duplicates.settle(name, None, 0.0)
    assert len(duplicates) == 2
    assert [duplicates.join(name, found.append, 0.0) for name in (b"1", b"2", b"3")] == [False, True, True]
    duplicates.add(b"4", found.append)
    duplicates.settle(b"4", "no", 0.0)
    assert found[-1] == "no"
    assert not duplicates.join(b"4", found.append, 0.0)
    duplicates.settle(b"5", None, 0.0)
