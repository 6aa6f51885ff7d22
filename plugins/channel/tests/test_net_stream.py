# SPDX-License-Identifier: Apache-2.0
"""Flow control of a stream over a transport that a test controls; rates and shares of addresses."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from channel_tls import run, until
from validator_channel.limits import ConnectionLimits, ListenerLimits
from validator_channel.net.connection import NEVER, WRITE_TIMEOUT, Stream
from validator_channel.net.listener import HalfOpen
from validator_channel.net.sockets import TokenBuckets, address_key, listen


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__({"socket": socket.socket()})
        self.calls: list[Any] = []

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.calls.append(("limits", high))

    def write(self, data: Any) -> None:
        self.calls.append(bytes(data))

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")

    def take(self) -> list[Any]:
        calls, self.calls = self.calls, []
        return calls


class Lines(Stream):
    """A protocol without content: what a test appends to ``waiting`` is output of the next turn."""

    def __init__(self, **limits: Any) -> None:
        super().__init__(ConnectionLimits(**limits))
        self.waiting: list[bytes] = []
        self.has_input = False
        self.deadline = NEVER
        self.turns = 0
        self.dropped: list[str] = []
        self.due: list[float] = []
        self.readings: list[bool] = []

    def say(self, *data: bytes) -> None:
        self.waiting += data
        self._schedule()

    def finish(self, *, lingers: bool) -> None:
        self._close_transport(lingers=lingers)

    def drop(self, code: str) -> None:
        self.dropped.append(code)

    def _take_turn(self) -> None:
        self.turns += 1
        self._output += self.waiting
        self.waiting = []

    def _has_input(self) -> bool:
        return self.has_input

    def _note_reading(self) -> None:
        self.readings.append(not self._is_paused)

    def _next_deadline(self) -> float:
        return self.deadline

    def _handle_deadlines(self, now: float) -> None:
        self.due.append(now)
        self.deadline = NEVER


async def turn() -> None:
    """Let the loop run what is scheduled, and what that schedules."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def connected(**limits: Any) -> tuple[Lines, FakeTransport]:
    stream, transport = Lines(**limits), FakeTransport()
    stream.connection_made(transport)
    return stream, transport


def test_output_of_one_turn_is_one_write() -> None:
    async def main() -> None:
        stream, transport = connected(write_buffer_bytes=7)
        assert transport.take() == [("limits", 7)]
        stream.say(b"a", b"b")
        stream.say(b"c")
        await turn()
        assert transport.take() == [b"abc"]
        assert stream.turns == 1

    run(main())


def test_blocked_transport_holds_output_back_and_then_stops_reading() -> None:
    async def main() -> None:
        stream, transport = connected(blocked_bytes=10)
        transport.take()
        stream.pause_writing()
        stream.say(b"x" * 10)
        await turn()
        assert transport.take() == []
        stream.say(b"y")
        await turn()
        assert transport.take() == ["pause"]
        stream.say(b"z")
        await turn()
        assert transport.take() == []
        stream.resume_writing()
        await turn()
        assert transport.take() == [b"x" * 10 + b"yz", "resume"]

    run(main())


def test_reading_stops_while_frames_wait_or_the_application_wants() -> None:
    async def main() -> None:
        stream, transport = connected()
        transport.take()
        stream.has_input = True
        stream.say()
        await turn()
        stream.pause_reading()
        stream.has_input = False
        stream.say()
        await turn()
        assert transport.take() == ["pause"]
        stream.resume_reading()
        stream.resume_reading()
        assert transport.take() == ["resume"]
        assert stream.readings == [False, True]

    run(main())


def test_transport_that_stays_blocked_is_dropped() -> None:
    async def main() -> None:
        stream, _ = connected(write_timeout=0.01)
        stream.pause_writing()
        stream.resume_writing()
        stream.pause_writing()
        await until(lambda: stream.dropped)
        assert stream.dropped == [WRITE_TIMEOUT]
        assert stream.due == []

    run(main())


def test_timer_fires_at_the_first_deadline() -> None:
    async def main() -> None:
        stream, _ = connected()
        loop = asyncio.get_running_loop()
        stream.deadline = loop.time() + 600
        stream.say()
        await turn()
        stream.deadline = first = loop.time() + 0.01
        stream.say()
        await until(lambda: stream.due)
        assert stream.due[0] >= first - 1e-6

    run(main())


@pytest.mark.parametrize("lingers", [False, True])
def test_end_writes_everything_and_resumes_reading(lingers: bool) -> None:
    async def main() -> None:
        stream, transport = connected(shutdown_timeout=0.01)
        transport.take()
        stream.pause_reading()
        stream.pause_writing()
        stream.say(b"last")
        await turn()
        stream.finish(lingers=lingers)
        stream.say(b"too late")
        await turn()
        expected = ["pause", b"last", "resume"] if lingers else ["pause", b"last", "close", "resume"]
        assert transport.take() == expected
        if lingers:
            await until(lambda: transport.calls)
            assert transport.take() == ["abort"]

    run(main())


# --- rates and shares ---


def test_token_bucket_allows_a_burst_and_then_a_rate() -> None:
    buckets = TokenBuckets(per_second=2.0, burst=3, keys_max=2)
    assert [buckets.take("a", 0.0) for _ in range(4)] == [True, True, True, False]
    assert buckets.take("b", 0.0)
    assert [buckets.take("a", 0.5), buckets.take("a", 0.6)] == [True, False]
    assert [buckets.take("a", 100.0) for _ in range(4)] == [True, True, True, False]
    assert buckets.take("c", 100.0)
    assert len(buckets) == 2
    assert buckets.take("a", 100.0) is False  # b was forgotten, not a


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1%eth0", "2001:db8:1:2::/64"),
        ("a path", "a path"),
    ],
)
def test_address_key(host: str, key: str) -> None:
    assert address_key(host) == key


def test_half_open_places_are_shared() -> None:
    async def main() -> None:
        half_open = HalfOpen(total=4, share=3)
        tasks: dict[str, list[asyncio.Task[None]]] = {"a": [], "b": [], "c": []}

        async def wait() -> None:
            await asyncio.Event().wait()

        async def ask(address: str) -> str | None:
            why = half_open.make_room(address)
            if why is None:
                tasks[address].append(asyncio.create_task(wait()))
                half_open.add(address, tasks[address][-1])
            await turn()
            return why

        assert [await ask("a") for _ in range(4)] == [None, None, None, "share"]
        assert [await ask("b") for _ in range(3)] == [None, None, "full"]
        assert [task.cancelled() for task in tasks["a"]] == [True, False, False]
        assert await ask("c") is None
        assert len(half_open) == 4
        assert sum(task.cancelled() for task in [*tasks["a"], *tasks["b"]]) == 2
        for task in half_open.tasks():
            task.cancel()
        await turn()
        assert len(half_open) == 0

    run(main())


def test_listening_sockets_of_a_host_have_one_port() -> None:
    async def main() -> None:
        sockets = await listen("localhost", 0, 5)
        try:
            assert len({each.getsockname()[1] for each in sockets}) == 1
        finally:
            for each in sockets:
                each.close()

    run(main())


@pytest.mark.parametrize("limits", [ConnectionLimits, ListenerLimits])
def test_limits_are_positive(limits: type[Any]) -> None:
    name = "write_timeout" if limits is ConnectionLimits else "half_open"
    with pytest.raises(ValueError, match=f"{name}: expected a number above 0, found 0"):
        limits(**{name: 0})
