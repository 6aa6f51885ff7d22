# SPDX-License-Identifier: Apache-2.0
"""Channel over TLS on loopback: goodput against framed TLS, latency of acknowledgements, memory, session set-ups.

Two processes. Goodput is over the processor time of the receiving process, from the end of the warm-up to the last message. Framed TLS and
Channel run in turns, and each ratio is between two neighbours.

Framed TLS is the least that a program does with messages of these sizes: an `asyncio.Protocol` in the same context (TLS 1.3, certificates
of both sides, buffers as asyncio makes them), a length of 4 bytes before each body, each frame written by itself as long as the transport
takes it. The receiver cuts the frames out of each read, copies each body and counts it. It acknowledges nothing, so it never writes.
Channel acknowledges every message, in its own frame; it writes in one piece what a turn of its loop has sent.
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
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from validator_channel import form
from validator_channel.errors import LocalError
from validator_channel.events import Event, MessageDelivered, MessageReceived, SessionOnline
from validator_channel.limits import ListenerLimits, Settings
from validator_channel.net.connection import Connection
from validator_channel.net.connector import connect
from validator_channel.net.listener import Listener
from validator_channel.net.outcomes import Counters
from validator_channel.net.peers import Peer
from validator_channel.session import Session
from validator_channel.wire import Role, unpack_message_id

from benchmarks.channel_tls import (
    CHANNEL,
    HOST,
    PEERS,
    FramedReceiver,
    FramedSender,
    context_of,
    files_of,
    peering_of,
    write_files,
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
    """Measure the form of Channel that Python imports here; framed TLS and Channel take turns."""
    say(f"channel: the core is {form()}")
    figures: list[Figure] = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        for size, count, goal in SIZES:
            say(f"channel: {count:,} messages of {size:,} bytes")
            framed, channel = [], []
            for _ in range(repeats):
                framed.append(_measure(folder, "framed", size, count * FRAMED_FACTOR)["cpu_s"] / FRAMED_FACTOR)
                channel.append(_measure(folder, "channel", size, count)["cpu_s"])
            ratio = tuple(base / cost for base, cost in zip(framed, channel, strict=True))
            measured = count * (1 - WARM_UP)
            figures += [
                Figure(
                    "channel", f"framed TLS, {size:,} bytes", "msg/CPU-s", tuple(measured / each for each in framed)
                ),
                Figure(
                    "channel",
                    f"Channel, {size:,} bytes",
                    "msg/CPU-s",
                    tuple(measured / each for each in channel),
                    note=form(),
                ),
                Figure(
                    "channel",
                    f"Channel against framed TLS, {size:,} bytes",
                    "times",
                    ratio,
                    at_least=goal,
                    note=form(),
                ),
            ]
        say("channel: acknowledgements at half load")
        figures += _latencies([_half_load(folder) for _ in range(repeats)])
        say(f"channel: {IDLE_SESSIONS} idle sessions")
        idle = tuple(_measure(folder, "idle", 0, IDLE_SESSIONS)["bytes"] / 1024 for _ in range(repeats))
        figures += [
            Figure("channel", "memory of an idle session, with TLS", "KiB", idle, at_most=100),
            Figure("channel", "memory of an idle session alone", "KiB", (_session_bytes() / 1024,)),
        ]
        say(f"channel: {SET_UPS} session set-ups")
        rates = tuple(SET_UPS / _measure(folder, "set_up", 0, SET_UPS)["cpu_s"] for _ in range(repeats))
        figures.append(Figure("channel", "set-ups: TLS, hello, JOIN", "sessions/CPU-s", rates, at_least=200))
    return figures


def _half_load(folder: Path) -> dict[str, Any]:
    """Measure latencies at half the rate that the machine has just carried."""
    size, count, _ = SIZES[0]
    return _measure(folder, "latency", size, LATENCY_MESSAGES, _measure(folder, "channel", size, count)["rate"] / 2)


def _latencies(results: list[dict[str, Any]]) -> Iterator[Figure]:
    retransmissions = sum(each["retransmissions"] for each in results)
    rate, waited = (statistics.median(each[name] for each in results) for name in ("rate", "waited"))
    note = (
        f"{form()}; {rate:,.0f} messages/s of {SIZES[0][0]} bytes; {retransmissions} sent twice;"
        f" the sender waited for a processor for {waited:.0%} of the time"
    )
    for name, goal in (("p50", None), ("p99", 10.0)):
        runs = tuple(each[name] * 1e3 for each in results)
        yield Figure("channel", f"send to acknowledgement, {name}", "ms", runs, at_most=goal, note=note)


def _measure(folder: Path, what: str, size: int, count: int, rate: float = 0.0) -> dict[str, Any]:
    """Run both processes and return what both measured."""
    with _listening(folder, what, count) as pipe:
        sent = asyncio.run(_SENDERS[what](folder, pipe.recv(), size, count, rate))
        assert pipe.poll(WAIT_S), f"{what}: the receiver did not finish"
        return {**pipe.recv(), **sent}


@contextmanager
def _listening(folder: Path, what: str, count: int) -> Iterator[Pipe]:
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


def _listen(folder: Path, what: str, count: int, pipe: Pipe) -> None:
    asyncio.run(_serve(folder, what, count, pipe))


async def _serve(folder: Path, what: str, count: int, pipe: Pipe) -> None:
    """Listen, send the port, wait until ``count`` messages or sessions have come, send what this took."""
    loop = asyncio.get_running_loop()
    meter = _Meter(count, what in {"idle", "set_up"})
    if what == "framed":
        context = context_of(folder, Role.LISTENER)
        server = await loop.create_server(lambda: FramedReceiver(meter.count_one), HOST, 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
    else:
        listener = _listener(folder, meter)
        await listener.start(HOST, 0)
        port = listener.port
    gc.collect()
    meter.start()
    pipe.send(port)
    await meter.finished.wait()
    pipe.send(meter.result())
    await loop.run_in_executor(None, pipe.poll, WAIT_S)


def _listener(folder: Path, meter: _Meter) -> Listener:
    def receive(connection: Connection, event: Event) -> None:
        if isinstance(event, MessageReceived):
            connection.consumed()
            meter.count_one()
        elif isinstance(event, SessionOnline) and meter.is_of_sessions:
            meter.count_one()

    peers = {CHANNEL: Peer(peering=peering_of(Role.LISTENER), sessions_max=max(IDLE_SESSIONS, SET_UPS))}
    limits = ListenerLimits(connects_per_s=100_000, connects_burst=100_000)
    return Listener(files_of(folder, Role.LISTENER), lambda: peers, receive, SETTINGS, limits)


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

    def count_one(self, _: bytes = b"") -> None:
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


def _waited_s() -> float:
    """Return how long this process was ready while others had the processors; 0 where the system does not say."""
    accounts = Path("/proc/self/schedstat")
    return int(accounts.read_text(encoding="ascii").split()[1]) / 1e9 if accounts.is_file() else 0.0


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * resource.getpagesize()


# --- the sending process ---


Report = Callable[[Connection, Event], None]


async def _connect(folder: Path, port: int, report: Report, session: int = 0) -> Connection:
    peer, files = Peer(peering=peering_of(Role.CONNECTOR)), files_of(folder, Role.CONNECTOR)
    return await connect(HOST, port, files, peer, session, report, SETTINGS)


async def _leave(connection: Connection) -> None:
    connection.leave()
    await asyncio.wait_for(connection.wait_closed(), WAIT_S)


async def _send_framed(folder: Path, port: int, size: int, count: int, rate: float) -> dict[str, Any]:
    context = context_of(folder, Role.CONNECTOR)
    _, sender = await asyncio.get_running_loop().create_connection(
        lambda: FramedSender(bytes(size), count), HOST, port, ssl=context
    )
    await asyncio.wait_for(sender.closed.wait(), WAIT_S)
    return {}


async def _send_channel(folder: Path, port: int, size: int, count: int, rate: float) -> dict[str, Any]:
    """Keep as many messages in flight as the settings allow."""
    payload, done = bytes(size), asyncio.Event()
    left, delivered = count, 0

    def report(connection: Connection, event: Event) -> None:
        nonlocal left, delivered
        if isinstance(event, MessageDelivered):
            delivered += 1
            if delivered == count:
                done.set()
            if left:
                left -= 1
                connection.send(0, payload)

    connection = await _connect(folder, port, report)
    for _ in range(SETTINGS.max_inflight):
        left -= 1
        connection.send(0, payload)
    await asyncio.wait_for(done.wait(), WAIT_S)
    await _leave(connection)
    return {}


async def _send_slowly(folder: Path, port: int, size: int, count: int, rate: float) -> dict[str, Any]:
    """Send at a rate and record how long after its time in the schedule each message is acknowledged."""
    payload, loop, done = bytes(size), asyncio.get_running_loop(), asyncio.Event()
    sent: dict[int, float] = {}
    delays: list[float] = []

    def report(connection: Connection, event: Event) -> None:
        if isinstance(event, MessageDelivered):
            delays.append(loop.time() - sent[event.index])
            if len(delays) == count:
                done.set()

    counters = Counters()
    peer, files = Peer(peering=peering_of(Role.CONNECTOR)), files_of(folder, Role.CONNECTOR)
    connection = await connect(HOST, port, files, peer, 0, report, SETTINGS, counters=counters)
    began, waited = loop.time(), _waited_s()
    while len(sent) < count:
        for _ in range(min(count, int((loop.time() - began) * rate)) - len(sent)):
            try:
                message_id = connection.send(0, payload)
            except LocalError:
                break  # the outbox is full; the wait counts, since it begins at the scheduled time
            sent[unpack_message_id(message_id).index] = began + (len(sent) + 1) / rate
        await asyncio.sleep(TICK_S)
    await asyncio.wait_for(done.wait(), WAIT_S)
    waited = (_waited_s() - waited) / (loop.time() - began)
    await _leave(connection)
    kept = delays[int(count * WARM_UP) :]
    p99 = statistics.quantiles(kept, n=100)[98]
    return {
        "p50": statistics.median(kept),
        "p99": p99,
        "rate": rate,
        "waited": waited,
        "retransmissions": counters.frames.retransmissions,
    }


async def _open_sessions(folder: Path, port: int, size: int, count: int, rate: float) -> dict[str, Any]:
    """Open sessions, some at a time, and keep them until all are open."""
    numbers = iter(range(count))

    async def work() -> list[Connection]:
        return [await _connect(folder, port, lambda connection, event: None, number) for number in numbers]

    connections = await asyncio.gather(*(work() for _ in range(SET_UPS_AT_ONCE)))
    return {"_": sum(map(len, connections))}


_SENDERS: Final = {
    "framed": _send_framed,
    "channel": _send_channel,
    "latency": _send_slowly,
    "idle": _open_sessions,
    "set_up": _open_sessions,
}
