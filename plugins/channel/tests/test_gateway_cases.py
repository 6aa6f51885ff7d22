# SPDX-License-Identifier: Apache-2.0
"""The gateway cases of channel_samples.json that need no broker, with real TLS; `tests/channel` has the others."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from channel_tls import run
from gateway_world import LANE, PATIENT, BarePeer, GatewayWorld, candidate, until, verdict
from validator_channel.application import SUBMIT_TOPICS, WATCH_TOPICS, RefusedMessage, Watch, Watching, write_main
from validator_channel.client import ClientLimits, Refused
from validator_channel.ids import MAIN
from validator_channel.net.connection import Connection

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


def refusals(peer: BarePeer) -> dict[tuple[int, int], str]:
    return {(each.topic, each.index): each.error for each in peer.main if isinstance(each, RefusedMessage)}


def request(kind: str, **fields: Any) -> dict[str, Any]:
    return {"lane": LANE, "block": 2, "index": 0, "kind": kind, **fields}


def test_every_case_has_a_test() -> None:
    if not SAMPLES.exists():
        pytest.skip("the shared samples are not here")
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


def test_gw01_record_for_another_para_is_refused_to_its_peer_alone(world: GatewayWorld) -> None:
    async def main() -> None:
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

    run(main())


def test_gw01_refusal_arrives_before_its_acknowledgement(world: GatewayWorld) -> None:
    """Also if `main` is full of refusals: what is acknowledged without a refusal was accepted."""
    count = 60

    async def main() -> None:
        async with world.serving(), world.peer("alice", CANDIDATES) as alice:
            told: list[tuple[int, bool]] = []
            handle = alice.handle

            def spy(connection: Connection, event: Any) -> None:
                handle(connection, event)
                for index in alice.delivered(CANDIDATES)[len(told) :]:
                    told.append((index, (CANDIDATES, index) in refusals(alice)))

            alice.handle = spy  # type: ignore[method-assign]
            alice.connection._terms = replace(alice.connection._terms, handler=spy)
            for number in range(count):
                alice.send(CANDIDATES, candidate(2 + number, para=2000 if number % 3 == 0 else 1))
            await until(lambda: len(told) == count)
            assert sum(is_refused for _, is_refused in told) == 40
            accepted = {index for index, is_refused in told if not is_refused}
            assert accepted == {2 * number for number in range(0, count, 3)}

    run(main())


def test_gw02_while_kafka_is_down_nothing_is_acknowledged_and_nothing_doubled(world: GatewayWorld) -> None:
    async def main() -> None:
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

    run(main())


def test_gw02_full_queue_holds_up_and_loses_nothing(world: GatewayWorld) -> None:
    """Kafka's queue takes two records; the peer's window closes, and its connection is not read above the limit of bytes."""
    world._config = {"limits": {"pending_bytes_max": 2_000}}

    async def main() -> None:
        memory_of = world.serving()
        async with memory_of as memory:
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

    from validator.testing.transport import MemoryTransport

    original = MemoryTransport.__init__

    def small(self: Any, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        self.enqueued_records_max = 2

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryTransport, "__init__", small)
        run(main())


def test_gw02_record_of_a_lost_session_is_not_written_again_by_the_next_one(world: GatewayWorld) -> None:
    async def main() -> None:
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

    run(main())


@pytest.mark.parametrize("reads", [True, False], ids=["without-acknowledging", "without-reading"])
def test_gw04_peer_that_never_reads_is_closed_and_harms_nobody(world: GatewayWorld, reads: bool) -> None:
    world._config = {
        "limits": {"feed_records_max": 32, "feed_bytes_max": 20_000},
        "session": {"ack_timeout_s": 0.3, "retries_max": 2},
    }
    count = 1_000

    async def main() -> None:
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
                seen = [event.record["block"] async for event in limited(client.watch("verdicts"), count)]
                assert seen == list(range(1, count + 1))
                records, size = feed.room
                assert 0 <= records < 32
                assert -2_000 < size < 20_000
                await until(lambda: session.is_closed and world.counted["feeds"] == 0)
                assert len(alice.watched.get(VERDICTS, ())) <= 64
                assert feed.room[0] == 32
            async with world.client("alice") as again:
                seen = [event.record["block"] async for event in limited(again.watch("verdicts"), count)]
                assert seen == list(range(1, count + 1))

    run(main())


async def limited(events: Any, count: int) -> Any:
    """Yield so many events, and end the watch."""
    async for event in events:
        yield event
        count -= 1
        if not count:
            await events.aclose()
            return


def test_gw05_each_peer_receives_only_its_own_records_in_order(world: GatewayWorld) -> None:
    world.add_peer("carol", lanes={LANE: "all"})
    world.add_peer("dave", lanes={"kusama": "all"})
    count = 200

    async def main() -> None:
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
    run(main())


@pytest.mark.parametrize("watches", [True, False])
def test_gw06_peer_cannot_publish_on_the_gateways_topics(world: GatewayWorld, watches: bool) -> None:
    async def main() -> None:
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

    run(main())


def test_gw06_topic_that_is_not_granted_cannot_be_registered(tmp_path: Path) -> None:
    world = GatewayWorld(tmp_path)
    world.add_peer("eve", 2000, submit=["candidates"], watch=[])

    async def main() -> None:
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

    run(main())


BAD = [
    b"", b"x", b"{", b"{}{}", b"[]", b"null", b"1", b'"text"', b"\xff\xfe{\x00}\x00", b"\xef\xbb\xbf{}", b'{"lane": NaN}', b'{"a": 1, "a": 2}',
    b'{"lane": "\\ud800"}', b"1" * 100_000, b'{"block": ' + b"9" * 100_000 + b"}", b"[" * 100_000, b'{"a":' * 100_000, b"{}",
    json.dumps(candidate(5) | {"surplus": 1}).encode(), json.dumps(candidate(10**30)).encode(), json.dumps(candidate(-1)).encode(),
    json.dumps(candidate(5, upward_messages=["xyz"])).encode(), json.dumps(candidate(5, candidate_hash="00")).encode(),
    json.dumps(candidate(5, hrmp_watermark=1e3)).encode(), json.dumps([candidate(5)]).encode(), b" " * 600_000,
    json.dumps(candidate(5, horizontal_messages=[{"recipient": 1}] * 1_000)).encode(),
]  # fmt: skip


def test_gw07_bad_records_are_refused_and_the_session_stays(world: GatewayWorld) -> None:
    async def main() -> None:
        async with world.serving() as memory, world.peer("alice", CANDIDATES) as alice:
            for payload in BAD:
                index = alice.send(CANDIDATES, payload)
                await until(lambda index=index: index in alice.delivered(CANDIDATES))  # type: ignore[misc]
                error = refusals(alice)[CANDIDATES, index]
                assert error.startswith("candidates: "), payload[:50]
                assert len(error) <= 256
                assert "\n" not in error
            assert memory.enqueued == []
            assert alice.closed is None
            alice.send(CANDIDATES, candidate(9))
            await until(lambda: memory.enqueued)

    run(main())


def test_gw07_sessions_take_turns_whatever_one_of_them_sends(world: GatewayWorld) -> None:
    """A peer whose 60 records are large and bad does not hold up another one until they are all read."""

    async def main() -> None:
        async with (
            world.serving() as memory,
            world.peer("alice", CANDIDATES) as alice,
            world.peer("bob", CANDIDATES) as bob,
        ):
            seen: list[int] = []
            for _ in range(60):
                alice.send(CANDIDATES, b'{"a":' + b"[" * 300_000)
            await until(lambda: world.counted["refused_malformed"])
            for number in range(5):
                bob.send(CANDIDATES, candidate(2 + number, para=3000))
            await until(lambda: len(memory.enqueued) == 5 or len(refusals(alice)) == 60)
            seen.append(world.counted["refused_malformed"])
            assert len(memory.enqueued) == 5
            assert seen[0] < 60
            await until(lambda: len(refusals(alice)) == 60)

    run(main())


MARK = "5ec2e75ec2e75ec2e7"


@contextmanager
def logged() -> Iterator[list[str]]:
    """Collect every line of every logger, with tracebacks."""
    lines: list[str] = []
    handler = logging.Handler(logging.DEBUG)
    handler.emit = lambda record: lines.append(logging.Formatter().format(record))  # type: ignore[method-assign]
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


def test_gw08_log_and_metrics_hold_no_secret_and_no_payload(world: GatewayWorld, tmp_path: Path) -> None:
    psk = "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0"
    (tmp_path / "alice.psk").write_text(psk)
    (tmp_path / "alice.psk").chmod(0o600)
    world.peers["alice"].table["psk_file"] = "alice.psk"
    lines: list[str] = []

    async def main() -> None:
        async with world.serving() as memory:
            config = replace(world.client_config("alice"), psk=bytes.fromhex(psk))
            client = world.client("alice")
            client._config = config
            async with client, world.peer("bob", CANDIDATES, VERDICTS) as bob:
                await client.submit("candidates", candidate(2, upward_messages=[MARK]))
                for record in (candidate(2, para=1, upward_messages=[MARK]), MARK.encode(), {"lane": LANE, MARK: MARK}):
                    with pytest.raises(Refused):
                        await client.submit("candidates", record)
                memory.emit("dispatches", dispatch(MARK))
                (event,) = [event async for event in limited(client.watch("dispatches"), 1)]
                assert event.record["payload"] == MARK
                memory.refuse = lambda record: f"no place for {record.value!r}"
                with pytest.raises(Refused, match="could not store"):
                    await client.submit("candidates", candidate(3, upward_messages=[MARK]))
                memory.outputs.append(("verdicts", b"", MARK.encode()))
                bob.send(VERDICTS, MARK.encode())
                await until(lambda: bob.rejected(VERDICTS))
                bob.connection.send(MAIN, MARK.encode())
                world.registry.write_text(f'[peers.alice]\npsk = "{psk[:20]}"\n')
                await until(lambda: world.counted["registry_broken"])
                shown = [repr(client), repr(config), repr(world.gateway.registry.peers)]  # type: ignore[union-attr]
                shown += [repr(each) for each in world.gateway._bridge._sessions.values()]  # type: ignore[union-attr]
            lines.extend(shown)
        lines.append(json.dumps(world.counted))

    with logged() as found:
        run(main())
    text = "\n".join(lines + found)
    assert f"peer={format(world.peers['alice'].peer, '032x')}" in text
    key = world.peers["alice"].files.key.read_text().splitlines()[1]
    assert world.server is not None
    own = world.server.key.read_text().splitlines()[1]
    for secret in (
        MARK,
        MARK.encode().hex(),
        bytes.fromhex(MARK).decode("latin-1"),
        psk,
        psk[:20],
        repr(bytes.fromhex(psk))[2:-1],
        key,
        own,
    ):
        assert secret not in text, secret


def dispatch(payload: str) -> dict[str, Any]:
    return {
        "lane": LANE, "block": 5, "index": 0, "para_id": 2000, "payload": payload, "weight": 1, "outcome": "ok", "failure": None,
        "handler": None, "kind": None, "events": [], "runtime_digest": "00" * 32,
    }  # fmt: skip


def test_limits_of_client_can_be_small(world: GatewayWorld) -> None:
    """One record in flight, one record queued: slow, but nothing is lost."""

    async def main() -> None:
        async with (
            world.serving() as memory,
            world.client("alice", limits=ClientLimits(pending_max=1, queue_max=1)) as client,
        ):
            for block in range(1, 101):
                memory.emit("verdicts", verdict(block))
            await asyncio.gather(*(client.submit("candidates", candidate(2 + n)) for n in range(20)))
            seen = [event.record["block"] async for event in limited(client.watch("verdicts"), 100)]
            assert seen == list(range(1, 101))

    run(main())
