# SPDX-License-Identifier: Apache-2.0
"""The client library in memory: every record of a chain, filters, positions, unreadable records, and streams that end early."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Condition
from typing import Any

import pytest
from validator_simulators.settings import SimulationSettings

from tests.unit.lanes.chains import Chain, chain, inputs_of
from validator import client
from validator.client import aio
from validator.client.aio import AsyncStream
from validator.client.streams import POLL_S, Wanted, read_record
from validator.codec.encode import Encoder, OutputRecord
from validator.codec.json_form import to_json
from validator.config import Config
from validator.core.limits import U32_MAX
from validator.core.outcomes import InputKind, Verdict
from validator.kafka.reader import TopicRecord
from validator.lanes.configured import lane_definition
from validator.lanes.processor import LaneProcessor

LANE = "rococo"
PARAS = [{"para_id": 2000, "balance": 10**12}, {"para_id": 2004, "balance": 10**12}]
TABLES: dict[str, Any] = {
    "job": {"directory": "nowhere"},
    "chains": {"polkadot": {"host_configuration": {"preset": "polkadot-2023"}, "genesis_paras": PARAS}},
}


def simulated(protocol: str = "router") -> Chain:
    return chain(SimulationSettings(seed=31, blocks=25, lane=LANE), protocol)


def tables(of: Chain) -> dict[str, Any]:
    return {"job": {"directory": "nowhere"}, "chains": {of.lane: of.table}}


def play(to: client.Client, of: Chain) -> None:
    """Send a simulated chain through a producer, which has to count by itself."""
    producer = to.producer(of.lane)
    for simulated_block in of.blocks:
        (head,) = [record for kind, record in simulated_block.records if kind == "blocks"]
        with producer.block(head["block"], parent=head.get("parent_number")) as block:
            bodies = sorted(
                (each for each in simulated_block.records if each[0] != "blocks"), key=lambda each: each[1]["index"]
            )
            for kind, record in bodies:
                fields = {name: value for name, value in record.items() if name not in ("lane", "block", "index")}
                if kind == "candidates":
                    index = block.candidate(**fields)
                elif kind == "channel-requests":
                    index = block.request(**fields)
                else:
                    index = block.downward(**fields)
                assert index == record["index"]
            for each in head["included"]:
                block.include(**each)
            for each in head["timed_out"]:
                block.time_out(**each)
            if head["session_change"] is not None:
                block.change_session(**head["session_change"])


def test_request_that_never_expires_has_no_session() -> None:
    verdict = Verdict(InputKind.REQUEST, 17, 1, 2000, expires_session=U32_MAX + 4)
    for session, expected in ((U32_MAX - 1, U32_MAX - 1), (U32_MAX, None), (U32_MAX + 4, None)):
        value = Encoder("polkadot", bytes(32)).verdict(verdict._replace(expires_session=session))
        assert read_record("verdicts", value, client.Position(0, 0)).expires_session == expected


def records_of(of: Chain, protocol: str) -> list[tuple[str, dict[str, Any]]]:
    """Return what a lane that took the records itself emits."""
    processor = LaneProcessor.create(lane_definition(Config.model_validate(tables(of)), of.lane))
    return [
        (record.topic, to_json(record.topic, record.value))
        for _, output in processor.process(inputs_of(of.records, protocol))
        for record in output
    ]


def plain(value: Any) -> Any:
    """Return a typed record's field in JSON form."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, client.MessageRef | client.MessageRange | client.HandlerEvent):
        return {name: plain(member) for name, member in value._asdict().items()}
    return [plain(each) for each in value] if isinstance(value, tuple) else value


@pytest.mark.parametrize("protocol", ["router", "early-hrmp"])
def test_typed_records_are_those_that_the_lane_emits(protocol: str) -> None:
    of = simulated(protocol)
    expected = records_of(of, protocol)
    with client.in_memory(tables(of)) as lanes:
        play(lanes, of)
        streams = {
            "verdicts": lanes.verdicts(),
            "dispatches": lanes.dispatches(),
            "channel-events": lanes.channel_events(),
            "headroom": lanes.headroom(),
            "receipts": lanes.receipts(),
        }
        found = {topic: list(stream) for topic, stream in streams.items()}
    for topic, records in found.items():
        wanted = [record for name, record in expected if name == topic]
        assert len(records) == len(wanted), topic
        for record, other in zip(records, wanted, strict=True):
            for name, value in other.items():
                if name == "ok":
                    assert record.ok is value
                elif name == "error":
                    error = record.error  # type: ignore[union-attr]
                    assert error is not None
                    assert {"kind": error.kind, **error.fields, "clause": error.clause} == value
                else:
                    assert plain(getattr(record, name)) == value, (topic, name)
    assert found["verdicts"]
    assert found["headroom"]
    assert len(found["receipts"]) == len(of.blocks)


def test_filters_and_positions() -> None:
    of = simulated()
    with client.in_memory(tables(of)) as lanes:
        play(lanes, of)
        everything = list(lanes.verdicts())
        para = everything[0].para_id
        assert list(lanes.verdicts(para=para)) == [each for each in everything if each.para_id == para]
        assert list(lanes.verdicts(rejected=True)) == [each for each in everything if not each.ok]
        with pytest.raises(client.UserError, match="lane: expected rococo, found 'rococoo'; did you mean 'rococo'"):
            lanes.verdicts(lane="rococoo")
        kind = next(each.error.kind for each in everything if each.error is not None and "/" in each.error.kind)
        group = kind.partition("/")[0]
        of_kind = [each for each in everything if each.error is not None and each.error.kind == kind]
        of_group = [each for each in everything if each.error is not None and each.error.kind.startswith(f"{group}/")]
        assert list(lanes.verdicts(error=kind)) == of_kind
        assert list(lanes.verdicts(error=group)) == of_group
        assert list(lanes.verdicts(error=group[:-1])) == []
        assert list(lanes.verdicts(start="now")) == []
        events = list(lanes.channel_events())
        either = [each for each in events if events[0].sender in (each.sender, each.recipient)]
        assert list(lanes.channel_events(para=events[0].sender)) == either

        first = lanes.verdicts(para=para)
        taken = first.take(3)
        kept = json.loads(json.dumps(first.positions))
        rest = list(lanes.verdicts(para=para, start=kept))
        assert [*taken, *rest] == [each for each in everything if each.para_id == para]
        whole = lanes.verdicts(para=para)
        assert list(whole)
        assert whole.positions["offsets"] == {0: len(everything)}, "records that are left out are taken, too"


def test_taking_more_than_arrives_takes_none() -> None:
    of = simulated()
    with client.in_memory(tables(of)) as lanes:
        play(lanes, of)
        receipts = lanes.receipts(follow=True)
        with pytest.raises(
            TimeoutError,
            match="receipts: expected 26 records within 0 s, found 25; lane rococo is waiting for the record of ",
        ):
            receipts.take(26, timeout_s=0.01)
        assert receipts.positions["offsets"] == {0: 0}
        assert (len(receipts.poll(0, 20)), len(receipts.poll(0))) == (20, 5)
        assert receipts.positions["offsets"] == {0: 25}
        assert receipts.poll(0) == []


class OddReading:
    """A topic that arrives in one poll; the value at offset 5 is of no known schema."""

    topic_id = None

    def __init__(self, values: list[bytes]) -> None:
        values = [*values[:5], b"\xc3\x01unknown", *values[5:]]
        self._left = [TopicRecord("verdicts", 0, at, b"", value, 0) for at, value in enumerate(values)]
        self._next = 0

    @property
    def at_end(self) -> bool:
        return not self._left

    def poll(self, timeout_s: float) -> list[TopicRecord]:
        found, self._left = self._left, []
        self._next += len(found)
        return found

    def positions(self) -> dict[int, int]:
        return {0: self._next}

    def close(self) -> None:
        """Nothing to give up."""


@pytest.fixture(scope="module")
def output() -> list[OutputRecord]:
    of = simulated()
    processor = LaneProcessor.create(lane_definition(Config.model_validate(tables(of)), of.lane))
    return [record for _, records in processor.process(inputs_of(of.records, "router")) for record in records]


@pytest.fixture(scope="module")
def verdict_values(output: list[OutputRecord]) -> list[bytes]:
    return [record.value for record in output if record.topic == "verdicts"]


UNREADABLE = re.escape("verdicts[0]@5: expected a record of validator.Verdict, found 9 bytes")


@pytest.mark.parametrize("follow", [False, True])
def test_stream_stays_at_a_record_that_it_cannot_read(verdict_values: list[bytes], follow: bool) -> None:
    stream: client.Stream[client.Verdict] = client.Stream(
        "verdicts", OddReading(verdict_values), Wanted(), follow=follow
    )
    found: list[int] = []
    for _ in range(3):
        with pytest.raises(client.UserError, match=UNREADABLE):
            found.extend(each.at.offset for each in stream)
    assert found == [0, 1, 2, 3, 4]
    assert stream.positions["offsets"] == {0: 5}
    assert not stream.at_end


def test_take_and_poll_stay_there_too(verdict_values: list[bytes]) -> None:
    stream: client.Stream[client.Verdict] = client.Stream(
        "verdicts", OddReading(verdict_values), Wanted(lane="none"), follow=True
    )
    for _ in range(2):
        with pytest.raises(client.UserError, match=UNREADABLE):
            stream.poll(0.01)
        assert stream.positions["offsets"] == {0: 5}, "what a filter leaves out is taken"
    stream = client.Stream("verdicts", OddReading(verdict_values), Wanted(), follow=True)
    with pytest.raises(client.UserError, match=UNREADABLE):
        stream.take(6)
    assert stream.positions["offsets"] == {0: 0}, "none is taken"
    assert len(stream.take(5)) == 5


def send_a_wrong_one(producer: client.Producer) -> None:
    with producer.block(1) as block:
        block.candidate(2000, hrmp_watermark=0)
        block.candidate(-1, hrmp_watermark=0)


def test_wrong_record_spoils_no_block() -> None:
    with client.in_memory(TABLES) as lanes:
        producer = lanes.producer("polkadot")
        with pytest.raises(client.UserError, match="para_id: expected an integer"):
            send_a_wrong_one(producer)
        assert list(lanes.verdicts()) == []
        with producer.block(1) as block:
            assert block.candidate(2000, hrmp_watermark=0, upward_messages=[b"\1\2"]) == 0
            assert block.downward(2000, b"x") == 0
            assert block.downward(2004, "0x00") == 1
        with pytest.raises(client.UserError, match="block 1 is sent already"):
            block.downward(2004, b"")
        with pytest.raises(client.UserError, match="expected a block after 1"):
            producer.block(1)
        assert [each.kind for each in lanes.verdicts()] == ["downward", "downward", "candidate"]
        with producer.block(3):
            pass
        assert lanes.waits_for("polkadot").startswith("waiting for the record of the block after 1")
        with pytest.raises(client.UserError, match="lane: expected polkadot, found 'kusama'"):
            lanes.producer("kusama")


def test_progress_says_where_a_lane_stands() -> None:
    with client.in_memory(TABLES) as lanes:
        found = lanes.progress("polkadot")
        assert (found.executed_block, found.waiting_blocks, found.parked) == (0, 0, None)
        producer = lanes.producer("polkadot")
        for number in (1, 2, 4):
            with producer.block(number):
                pass
        found = lanes.progress("polkadot")
        assert (found.executed_block, found.waiting_blocks, found.parked) == (2, 1, None)
        assert found.waiting_for == lanes.waits_for("polkadot")
        again = lanes.producer("polkadot", after=found.executed_block)
        with pytest.raises(
            client.UserError, match="expected a block after 2, which is sent or executed already, found 2"
        ):
            again.block(2)
        with again.block(3):
            pass
        assert lanes.progress("polkadot").executed_block == 4
        with pytest.raises(client.UserError, match="lane: expected polkadot, found 'kusama'"):
            lanes.progress("kusama")


def test_progress_with_asyncio() -> None:
    async def run() -> client.Progress:
        async with await aio.in_memory(TABLES) as lanes:
            async with lanes.producer("polkadot", after=0).block(1):
                pass
            return await lanes.progress("polkadot")

    assert asyncio.run(run()).executed_block == 1


def test_dry_run_says_what_a_block_would_then_say() -> None:
    with client.in_memory(TABLES) as lanes:
        with lanes.producer("polkadot").block(1) as block:
            block.downward(2000, b"x")
        bad = lanes.dry_run("polkadot", {"para_id": 2000, "hrmp_watermark": 9, "upward_messages": [b"y"]})
        assert [each.kind for each in bad.errors] == [
            "ProcessedDownwardMessages/AdvancementRule",
            "HrmpWatermark/AheadRelayParent",
        ]
        assert (bad.ok, bad.complete, bad.block, bad.headroom_after) == (False, True, 2, ())
        good = {"para_id": 2000, "hrmp_watermark": 1, "processed_downward_messages": 1}
        said = lanes.dry_run("polkadot", good)
        assert said.ok
        assert isinstance(said.headroom[0], client.ParaHeadroom)
        assert [each.downward_pending for each in (*said.headroom, *said.headroom_after)] == [1, 0]  # type: ignore[union-attr]
        assert lanes.dry_run("polkadot", good) == said, "asking changes nothing"
        with pytest.raises(client.UserError, match="kind: expected candidates"):
            lanes.dry_run("polkadot", good, "blocks")
        with pytest.raises(client.UserError, match="lane: expected polkadot"):
            lanes.dry_run("kusama", good)


def test_follower_in_another_thread_sees_what_arrives() -> None:
    async def run() -> list[int]:
        async with await aio.in_memory(TABLES) as lanes:
            seen: list[int] = []

            async def follow() -> None:
                async for receipt in await lanes.receipts(follow=True):
                    seen.append(receipt.block)
                    if receipt.block == 3:
                        return

            following = asyncio.create_task(follow())
            producer = lanes.producer("polkadot")
            for number in (1, 2, 3):
                async with producer.block(number) as block:
                    block.candidate(2000, hrmp_watermark=number - 1)
            await asyncio.wait_for(following, 60)
            assert len(await (await lanes.verdicts()).take(3)) == 3
            return seen

    assert asyncio.run(run()) == [1, 2, 3]


def test_exception_in_an_asynchronous_block_drops_it() -> None:
    async def run() -> list[client.Receipt]:
        async with await aio.in_memory(TABLES) as lanes:
            with pytest.raises(ZeroDivisionError):
                async with lanes.producer("polkadot").block(1):
                    raise ZeroDivisionError
            return [each async for each in await lanes.receipts()]

    assert asyncio.run(run()) == []


@pytest.mark.parametrize(
    ("configuration", "words"),
    [
        ({}, "no chain is configured"),
        ({"chain": {}}, "chain: no such key; did you mean 'chains'?"),
        ({"zzz": {}}, "zzz: no such key; known are audit, chains, "),
        ({"chains": {"polkadot": {"protocols": "router"}}}, "protocols"),
        ("missing.toml", "missing.toml"),
    ],
)
def test_wrong_configuration_is_named(configuration: Any, words: str) -> None:
    with pytest.raises(client.UserError, match=words):
        client.in_memory(configuration)


@pytest.mark.parametrize("start", ["end", {"zero": 1}, 5])
def test_wrong_start_is_named(start: Any) -> None:
    with client.in_memory(TABLES) as lanes, pytest.raises(client.UserError, match="start: expected"):
        lanes.verdicts(start=start)


def test_library_is_light() -> None:
    """It loads neither Spark nor what the command line prints with, and starts no process."""
    program = (
        "import sys, validator.client, validator.client.aio\n"
        "validator.client.in_memory({'chains': {'a': {}}})\n"
        "heavy = {'pyspark', 'pandas', 'pyarrow', 'rocksdict', 'typer', 'rich', 'matplotlib', 'py4j'}\n"
        "print(sorted(heavy & set(sys.modules)), 'validator.kafka.java' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[] False\n", "")


COUNT = 3


class Topic:
    """A reading whose records arrive when the test says so. It fails if two threads use it, or if it is closed in a poll."""

    def __init__(self, values: list[bytes]) -> None:
        self.topic_id = None
        self._values = values
        self._changed = Condition()
        self._arrived: list[TopicRecord] = []
        self._count = 0
        self._polls = 0
        self.polled = 0
        self.is_closed = False
        self.asked_s_max = 0.0

    def arrive(self) -> None:
        """Let the next record arrive."""
        with self._changed:
            self._arrived.append(TopicRecord("receipts", 0, self._count, b"", self._values[self._count], 0))
            self._count += 1
            self._changed.notify_all()

    @property
    def at_end(self) -> bool:
        return not self._arrived

    def positions(self) -> dict[int, int]:
        return {0: self._count - len(self._arrived)}

    def poll(self, timeout_s: float) -> list[TopicRecord]:
        self._polls += 1
        assert (self._polls, self.is_closed) == (1, False)
        self.polled += 1
        self.asked_s_max = max(self.asked_s_max, timeout_s)
        with self._changed:
            if not self._arrived:
                self._changed.wait(timeout_s)
            found, self._arrived = self._arrived, []
        self._polls -= 1
        return found

    def close(self) -> None:
        assert (self._polls, self.is_closed) == (0, False)
        self.is_closed = True


@pytest.fixture
def topic(output: list[OutputRecord]) -> Topic:
    return Topic([record.value for record in output if record.topic == "receipts"][:COUNT])


def stream_of(topic: Topic) -> client.Stream[client.Receipt]:
    return client.Stream("receipts", topic, Wanted(), follow=True)


async def until_polled(topic: Topic, before: int = 0) -> None:
    while topic.polled == before:
        await asyncio.sleep(0.001)


async def first(stream: AsyncStream[client.Receipt]) -> list[client.Receipt]:
    async for receipt in stream:
        return [receipt]
    return []


@pytest.mark.parametrize("how", ["take", "iterate"])
def test_record_that_arrives_after_a_cancellation_is_not_lost(topic: Topic, how: str) -> None:
    async def run() -> list[int]:
        async with AsyncStream(stream_of(topic), follow=True) as stream:
            waiting = asyncio.create_task(stream.take(1) if how == "take" else first(stream))
            await until_polled(topic)
            waiting.cancel()
            topic.arrive()  # the thread that looks is still there, and finds it
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert stream.positions["offsets"] == {0: 0}
            for _ in range(COUNT - 1):
                topic.arrive()
            found = [*await stream.take(2), *await first(stream)]
            assert stream.positions["offsets"] == {0: COUNT}
            return [each.at.offset for each in found]

    assert asyncio.run(run()) == [0, 1, 2]
    assert topic.is_closed


def test_timeout_of_asyncio_takes_none_of_what_is_here(topic: Topic) -> None:
    async def run() -> list[int]:
        stream = AsyncStream(stream_of(topic), follow=True)
        topic.arrive()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(stream.take(COUNT), 0.05)
        assert stream.positions["offsets"] == {0: 0}
        with pytest.raises(TimeoutError, match="receipts: expected 2 records within 0 s, found 1"):
            await stream.take(2, timeout_s=0.01)
        assert stream.positions["offsets"] == {0: 0}
        return [each.at.offset for each in await stream.take(1)]

    assert asyncio.run(run()) == [0]


def test_cancelled_take_keeps_the_program_no_longer_than_a_slice(topic: Topic) -> None:
    async def run() -> None:
        await asyncio.wait_for(AsyncStream(stream_of(topic), follow=True).take(1, timeout_s=600.0), 0.01)

    began = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(run())  # waits for the threads of the loop
    assert time.monotonic() - began < 60.0
    assert topic.asked_s_max <= POLL_S


def test_error_of_an_abandoned_look_is_raised_by_the_next_call() -> None:
    topic = Topic([b"\xc3\x01unknown"])
    reported: list[object] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
        stream = AsyncStream(stream_of(topic), follow=True)
        waiting = asyncio.create_task(stream.take(1))
        await until_polled(topic)
        waiting.cancel()
        topic.arrive()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(client.UserError, match="expected a record of validator"):
            await stream.take(1)

    asyncio.run(run())
    assert reported == []


@pytest.mark.parametrize("how", ["take", "iterate", "poll"])
def test_stream_is_closed_by_another_thread_between_two_polls(topic: Topic, how: str) -> None:
    stream = stream_of(topic)
    with ThreadPoolExecutor(1) as pool:
        ways = {
            "take": lambda: stream.take(1, 600.0),
            "iterate": lambda: next(iter(stream)),
            "poll": lambda: stream.poll(600.0),
        }
        reading = pool.submit(ways[how])
        while not topic.polled:
            time.sleep(0.001)
        stream.close()
        with pytest.raises(client.UserError, match="receipts: expected an open stream, found a closed one"):
            reading.result(60)
    assert topic.is_closed
    stream.close()


def test_asynchronous_stream_is_closed_while_a_task_follows(topic: Topic) -> None:
    async def run() -> None:
        stream = AsyncStream(stream_of(topic), follow=True)
        following = asyncio.create_task(first(stream))
        await until_polled(topic)
        await stream.close()
        with pytest.raises(client.UserError, match="found a closed one"):
            await asyncio.wait_for(following, 60)

    asyncio.run(run())
    assert topic.is_closed


JOURNEY = {
    "id": "polkadot.downward.relay.2004.0.3", "lane": "polkadot", "kind": "downward", "sender": None, "recipient": 2004, "opened_at": None,
    "number": 3, "status": "waiting", "payload_hash": None, "size": None, "mqc_head": bytes(32), "legs": [], "payload": None,
}  # fmt: skip


def test_records_of_a_plugin_have_the_fields_of_their_schema() -> None:
    from validator_journeys import records

    with client.in_memory({"chains": {"polkadot": {}}}) as lanes:
        backend: Any = lanes._backend
        for recipient in (2004, 2005):
            value = records.formats()["journeys"].encode({**JOURNEY, "recipient": recipient})
            backend._append("journeys", b"key", value)
        (found,) = lanes.plugin_records("journeys", lane="polkadot", para=2004)
        assert {name: found.fields[name] for name in JOURNEY} == JOURNEY
        assert (found.lane, found.paras, found.at) == ("polkadot", (2004,), client.Position(0, 0))
        assert [each.fields["recipient"] for each in lanes.plugin_records("journeys")] == [2004, 2005]
        backend._append("journeys", b"key", b"x")
        with pytest.raises(client.UserError, match=r"^journeys\[0\]@2: expected a record validator.journeys.Journey"):
            list(lanes.plugin_records("journeys", start={0: 2}))
        with pytest.raises(client.UserError, match=r"^topic: expected .*journeys, .*, found 'verdicts'"):
            lanes.plugin_records("verdicts")


def test_records_of_a_plugin_without_waiting() -> None:
    async def found() -> list[Any]:
        async with await aio.in_memory({"chains": {"polkadot": {}}}) as lanes:
            return [each async for each in await lanes.plugin_records("journeys")]

    assert asyncio.run(found()) == []
