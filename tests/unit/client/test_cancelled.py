# SPDX-License-Identifier: Apache-2.0
"""Streams whose reader is cancelled, or that another thread closes: no record is lost, and no thread continues to wait."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Condition

import pytest

from tests.unit.client.test_client import LANE, simulated, tables
from tests.unit.lanes.chains import inputs_of
from validator import client
from validator.client.aio import AsyncStream
from validator.client.streams import POLL_S, Wanted
from validator.config import Config
from validator.kafka.reader import TopicRecord
from validator.lanes.configured import lane_definition
from validator.lanes.processor import LaneProcessor

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


@pytest.fixture(scope="module")
def values() -> list[bytes]:
    of = simulated()
    processor = LaneProcessor.create(lane_definition(Config.model_validate(tables(of)), LANE))
    output = [record for _, records in processor.process(inputs_of(of.records, "router")) for record in records]
    return [record.value for record in output if record.topic == "receipts"][:COUNT]


@pytest.fixture
def topic(values: list[bytes]) -> Topic:
    return Topic(values)


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
