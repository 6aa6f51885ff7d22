# SPDX-License-Identifier: Apache-2.0
"""Channel over TLS on loopback: goodput against framed TLS, latency of acknowledgements, memory, session set-ups.

Two processes. Goodput is over the processor time of the receiving process, from the end of the warm-up to the last message. Both write
each message when it is sent; Channel then writes what one turn of its loop has sent in one piece, and acknowledges every message.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import resource
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from validator_channel.errors import LocalError
from validator_channel.events import Event, MessageDelivered, MessageReceived, SessionOnline
from validator_channel.ids import Role, unpack_message_id
from validator_channel.limits import Settings
from validator_channel.session import Session
from validator_channel.states import State

from benchmarks.channel_tls import (
    CHANNEL,
    PEERS,
    ChannelProtocol,
    FramedReceiver,
    FramedSender,
    read_material,
    write_certificates,
)
from benchmarks.figures import Figure

SETTINGS: Final = Settings(max_inflight=128, window=128)
"""128 messages in flight, so that a turn of the receiver's loop is shared by many."""
SIZES: Final = ((256, 30_000, 0.30), (4_096, 20_000, 0.35), (65_536, 2_500, 0.40))
"""(bytes of a payload, messages, goal of the ratio)."""
FRAMED_FACTOR: Final = 3
"""Messages of the baseline, which takes less time for each, in multiples of those of Channel."""
WARM_UP: Final = 0.2
"""Share of the messages before the clock starts."""
LATENCY_MESSAGES: Final = 6_000
IDLE_SESSIONS: Final = 300
SET_UPS: Final = 400
SET_UPS_AT_ONCE: Final = 8
TICK_S: Final = 0.001
WAIT_S: Final = 120


def run(say: Callable[[str], None], repeats: int) -> list[Figure]:
    """Measure; framed TLS and Channel take turns."""
    figures: list[Figure] = []
    rate = 0.0
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_certificates(folder)
        for size, count, goal in SIZES:
            say(f"channel: {count:,} messages of {size:,} bytes")
            framed, channel = [], []
            for _ in range(repeats):
                framed.append(_measure(folder, "framed", size, count * FRAMED_FACTOR)["cpu_s"] / FRAMED_FACTOR)
                result = _measure(folder, "channel", size, count)
                channel.append(result["cpu_s"])
                rate = rate or result["rate"]
            ratio = tuple(base / cost for base, cost in zip(framed, channel, strict=True))
            measured = count * (1 - WARM_UP)
            figures += [
                Figure(
                    "channel", f"framed TLS, {size:,} bytes", "msg/CPU-s", tuple(measured / each for each in framed)
                ),
                Figure("channel", f"Channel, {size:,} bytes", "msg/CPU-s", tuple(measured / each for each in channel)),
                Figure("channel", f"Channel against framed TLS, {size:,} bytes", "times", ratio, at_least=goal),
            ]
        say("channel: acknowledgements at half load")
        figures += _latencies([_measure(folder, "latency", 256, LATENCY_MESSAGES, rate / 2) for _ in range(repeats)])
        say(f"channel: {IDLE_SESSIONS} idle sessions")
        idle = tuple(_measure(folder, "idle", 0, IDLE_SESSIONS)["bytes"] / 1024 for _ in range(repeats))
        note = "most of it is the read buffer of asyncio's TLS, 256 KiB"
        figures += [
            Figure("channel", "memory of an idle session, with TLS", "KiB", idle, at_most=100, note=note),
            Figure("channel", "memory of an idle session alone", "KiB", (_session_bytes() / 1024,)),
        ]
        say(f"channel: {SET_UPS} session set-ups")
        rates = tuple(SET_UPS / _measure(folder, "set_up", 0, SET_UPS)["cpu_s"] for _ in range(repeats))
        figures.append(Figure("channel", "set-ups: TLS, hello, JOIN", "sessions/CPU-s", rates, at_least=200))
    return figures


def _latencies(results: list[dict[str, Any]]) -> Iterator[Figure]:
    retransmissions = sum(each["retransmissions"] for each in results)
    note = f"{results[0]['rate']:,.0f} messages/s of 256 bytes; {retransmissions} sent twice"
    for name, goal in (("p50", None), ("p99", 5.0)):
        runs = tuple(each[name] * 1e3 for each in results)
        yield Figure("channel", f"send to acknowledgement, {name}", "ms", runs, at_most=goal, note=note)


def _measure(folder: Path, what: str, size: int, count: int, rate: float = 0.0) -> dict[str, Any]:
    """Run both processes and return what both measured."""
    with _listening(folder, what, count) as pipe:
        sent = asyncio.run(_SENDERS[what](folder, pipe.recv(), size, count, rate))
        assert pipe.poll(WAIT_S), f"{what}: the receiver did not finish"
        return {**pipe.recv(), **sent}


@contextmanager
def _listening(folder: Path, what: str, count: int) -> Iterator[Connection]:
    context = multiprocessing.get_context("spawn")
    pipe, other = context.Pipe()
    process = context.Process(target=_listen, args=(folder, what, count, other), daemon=True)
    process.start()
    other.close()  # so that the end of the process is the end of the pipe
    try:
        yield pipe
    finally:
        pipe.close()
        process.join(WAIT_S)


def _session_bytes() -> float:
    """Return what Python allocates for a session with its keys."""
    tracemalloc.start()
    sessions = [Session(Role.LISTENER, CHANNEL, *PEERS[::-1], session) for session in range(IDLE_SESSIONS)]
    for session in sessions:
        session.open(0.0)
        session.secured(bytes(32), bytes(range(32)), 0.0)
    allocated, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return allocated / len(sessions)


# --- the receiving process ---


def _listen(folder: Path, what: str, count: int, pipe: Connection) -> None:
    asyncio.run(_serve(folder, what, count, pipe))


async def _serve(folder: Path, what: str, count: int, pipe: Connection) -> None:
    """Listen, send the port, wait until ``count`` messages or sessions have come, send what this took."""
    loop = asyncio.get_running_loop()
    material = read_material(folder, Role.LISTENER)
    meter = _Meter(count, what in {"idle", "set_up"})
    settings = SETTINGS

    def receive(protocol: ChannelProtocol, event: Event) -> None:
        if isinstance(event, MessageReceived):
            assert protocol.session is not None
            protocol.session.consumed()
            meter.count_one()
        elif isinstance(event, SessionOnline) and meter.is_of_sessions:
            meter.count_one()

    def protocol() -> asyncio.Protocol:
        if what == "framed":
            return FramedReceiver(lambda body: meter.count_one())
        return ChannelProtocol(Role.LISTENER, material, settings, receive)

    server = await loop.create_server(protocol, "127.0.0.1", 0, ssl=material.context)
    gc.collect()
    meter.start()
    pipe.send(server.sockets[0].getsockname()[1])
    await meter.finished.wait()
    pipe.send(meter.result())
    await loop.run_in_executor(None, pipe.poll, WAIT_S)
    server.close()


class _Meter:
    """Counts messages or sessions; the clock starts after the warm-up, for sessions at once."""

    def __init__(self, count: int, is_of_sessions: bool) -> None:
        self.is_of_sessions = is_of_sessions
        self.finished = asyncio.Event()
        self._seen = 0
        self._first, self._last = 0 if is_of_sessions else int(count * WARM_UP), count

    def start(self) -> None:
        self._bytes = _resident_bytes()
        self._began = time.perf_counter(), _cpu_s()

    def count_one(self) -> None:
        self._seen += 1
        if self._seen == self._first:
            self._began = time.perf_counter(), _cpu_s()
        elif self._seen == self._last:
            self._ended = time.perf_counter(), _cpu_s()
            self.finished.set()

    def result(self) -> dict[str, Any]:
        wall, cpu = (end - begin for begin, end in zip(self._began, self._ended, strict=True))
        number = self._last - self._first
        return {"cpu_s": cpu, "rate": number / wall, "bytes": (_resident_bytes() - self._bytes) / number}


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * resource.getpagesize()


# --- the sending process ---


async def _connect(
    folder: Path, port: int, on_event: Callable[[ChannelProtocol, Event], None], session: int = 0
) -> ChannelProtocol:
    material = read_material(folder, Role.CONNECTOR)
    online = asyncio.Event()

    def report(protocol: ChannelProtocol, event: Event) -> None:
        if isinstance(event, SessionOnline):
            online.set()
        on_event(protocol, event)

    _, protocol = await asyncio.get_running_loop().create_connection(
        lambda: ChannelProtocol(Role.CONNECTOR, material, SETTINGS, report, session),
        "127.0.0.1",
        port,
        ssl=material.context,
    )
    await asyncio.wait_for(online.wait(), WAIT_S)
    return protocol


async def _leave(protocol: ChannelProtocol) -> None:
    assert protocol.session is not None
    if protocol.session.state is State.ONLINE:
        protocol.session.leave(asyncio.get_running_loop().time())
        protocol.turn()
    while not protocol.session.is_closed:
        await asyncio.sleep(TICK_S)


async def _send_framed(folder: Path, port: int, size: int, count: int, rate: float) -> dict[str, Any]:
    material = read_material(folder, Role.CONNECTOR)
    _, sender = await asyncio.get_running_loop().create_connection(
        lambda: FramedSender(bytes(size), count), "127.0.0.1", port, ssl=material.context
    )
    await asyncio.wait_for(sender.closed.wait(), WAIT_S)
    return {}


async def _send_channel(folder: Path, port: int, size: int, count: int, rate: float) -> dict[str, Any]:
    """Keep as many messages in flight as the settings allow."""
    payload, loop, done = bytes(size), asyncio.get_running_loop(), asyncio.Event()
    left, delivered = count, 0

    def report(protocol: ChannelProtocol, event: Event) -> None:
        nonlocal left, delivered
        if isinstance(event, MessageDelivered):
            delivered += 1
            if delivered == count:
                done.set()
            if left:
                left -= 1
                assert protocol.session is not None
                protocol.session.send(0, payload, loop.time())

    protocol = await _connect(folder, port, report)
    assert protocol.session is not None
    for _ in range(SETTINGS.max_inflight):
        left -= 1
        protocol.session.send(0, payload, loop.time())
    protocol.turn()
    await asyncio.wait_for(done.wait(), WAIT_S)
    await _leave(protocol)
    return {}


async def _send_slowly(folder: Path, port: int, size: int, count: int, rate: float) -> dict[str, Any]:
    """Send at a rate and record how long after its time in the schedule each message is acknowledged."""
    payload, loop, done = bytes(size), asyncio.get_running_loop(), asyncio.Event()
    sent: dict[int, float] = {}
    delays: list[float] = []

    def report(protocol: ChannelProtocol, event: Event) -> None:
        if isinstance(event, MessageDelivered):
            delays.append(loop.time() - sent[event.index])
            if len(delays) == count:
                done.set()

    protocol = await _connect(folder, port, report)
    session = protocol.session
    assert session is not None
    began = loop.time()
    while len(sent) < count:
        now = loop.time()
        for _ in range(min(count, int((now - began) * rate)) - len(sent)):
            try:
                message_id = session.send(0, payload, now)
            except LocalError:
                break  # the outbox is full; the wait counts, since it begins at the scheduled time
            sent[unpack_message_id(message_id).index] = began + (len(sent) + 1) / rate
        protocol.turn()
        await asyncio.sleep(TICK_S)
    await asyncio.wait_for(done.wait(), WAIT_S)
    frames = session._link._sealer._counter  # type: ignore[union-attr]
    await _leave(protocol)
    kept = delays[int(count * WARM_UP) :]
    p99 = statistics.quantiles(kept, n=100)[98]
    # JOIN and the acknowledgement of the peer's JOIN are the other two frames
    return {"p50": statistics.median(kept), "p99": p99, "rate": rate, "retransmissions": frames - 2 - count}


async def _open_sessions(folder: Path, port: int, size: int, count: int, rate: float) -> dict[str, Any]:
    """Open sessions, some at a time, and keep them until all are open."""
    protocols: dict[int, ChannelProtocol] = {}
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            protocols[number] = await _connect(folder, port, lambda protocol, event: None, number)

    await asyncio.gather(*(work() for _ in range(SET_UPS_AT_ONCE)))
    return {"_": len(protocols)}


_SENDERS: Final = {
    "framed": _send_framed,
    "channel": _send_channel,
    "latency": _send_slowly,
    "idle": _open_sessions,
    "set_up": _open_sessions,
}
