# SPDX-License-Identifier: Apache-2.0
"""The peers: each submits its records over Channel, watches its verdicts, and remembers what it saw."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from scene import PeerFiles
from validator_channel.client import ChannelClient, ClientClosed, ClientLimits, Refused
from validator_simulators import Simulation
from validator_simulators.demo.comparison import Comparison

FIRST_BLOCKS = 5
"""Blocks that are sent before the first verdict: the first batch of a new job is slow whatever it contains."""

Place = tuple[int, str, int]
"""Block, kind, index."""


@dataclass
class Wire:
    """What an eavesdropper between a peer and the gateway sees: a proxy that passes bytes on, and counts and shows them."""

    target: int
    port: int = 0
    sent: int = 0
    received: int = 0
    last: bytes = b""
    connections: int = 0

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            there = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        await asyncio.gather(self._pass(reader, there[1], is_sent=True), self._pass(there[0], writer, is_sent=False))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_sent: bool) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if is_sent:
                    self.sent += len(data)
                    self.last = data[:24]
                else:
                    self.received += len(data)
                writer.write(data)
                await writer.drain()
        writer.close()


@dataclass
class Peer:
    """One peer with its numbers."""

    files: PeerFiles
    wire: Wire
    sent: int = 0
    acknowledged: int = 0
    refused: int = 0
    resubmitted: int = 0
    accepted: int = 0
    rejected: int = 0
    twice: int = 0
    foreign: int = 0
    latencies_ms: deque[float] = field(default_factory=lambda: deque(maxlen=1_000))
    seen: Counter[Place] = field(default_factory=Counter)
    tape: deque[str] = field(default_factory=lambda: deque(maxlen=50))
    client: ChannelClient | None = None

    @property
    def name(self) -> str:
        """Return the peer's name."""
        return self.files.name

    @property
    def verdicts(self) -> int:
        """Return the number of verdicts, each counted once."""
        return len(self.seen)

    @property
    def latency_ms(self) -> float | None:
        """Return the median time from submitting a record to its acknowledgement."""
        ordered = sorted(self.latencies_ms)
        return ordered[len(ordered) // 2] if ordered else None

    async def submit(self, topic: str, record: dict[str, Any]) -> None:
        """Submit a record and note what became of it."""
        assert self.client is not None
        began = time.monotonic()
        self.sent += 1
        try:
            receipt = await self.client.submit(topic, record)
        except Refused as refusal:
            self.refused += 1
            self.tape.append(f"[red]refused[/] {refusal.error}")
            return
        took_ms = (time.monotonic() - began) * 1000
        self.latencies_ms.append(took_ms)
        self.acknowledged += 1
        self.resubmitted += receipt.attempts > 1
        if topic == "candidates":
            place = f"{record['block']}/{record['index']}"
            self.tape.append(
                f"candidate {place} of {record['para_id']}  message {receipt.message[16:]}  acknowledged in {took_ms:.1f} ms"
            )

    def take(self, record: dict[str, Any]) -> None:
        """Note a verdict."""
        place = record["block"], record["kind"], record["index"]
        paras = self.files.paras
        self.foreign += paras is not None and record["para_id"] not in paras
        self.twice += place in self.seen
        self.seen[place] += 1
        if record["ok"]:
            self.accepted += 1
        else:
            self.rejected += 1
        word = "[green]accepted[/]" if record["ok"] else f"[red]rejected[/] {record['error']['kind']}"
        self.tape.append(
            f"verdict {record['block']}/{record['index']} of {record['para_id']} ({record['kind']})  {word}"
        )


class Traffic:
    """A simulated relay chain: a team's peer submits the candidates of its paras, the relay chain's node all other records."""

    def __init__(self, simulation: Simulation, files: Sequence[PeerFiles], port: int) -> None:
        self.comparison = Comparison()
        self.expected: Counter[str] = Counter()
        self.blocks_sent = 0
        self._simulation = simulation
        self.peers = [Peer(each, Wire(port)) for each in files]
        self.relay = next(peer for peer in self.peers if peer.files.paras is None)
        self._teams = {para: peer for peer in self.peers for para in peer.files.paras or ()}

    async def run(
        self, blocks_per_s: float, on_block: Callable[[int], None], problem: Callable[[], str | None]
    ) -> None:
        """Submit every block, and return when every expected verdict has arrived. Raises ``RuntimeError`` for a ``problem``."""
        limits = ClientLimits(pause_s_min=0.1, pause_s_max=1.0)
        watches = []
        for peer in self.peers:
            await peer.wire.start()
            peer.client = await ChannelClient(peer.files.client_config(peer.wire.port), limits=limits).__aenter__()
            watches.append(asyncio.create_task(self._watch(peer)))
        feeding = asyncio.create_task(self._feed(blocks_per_s, on_block))
        try:
            while not (feeding.done() and self._is_complete()):
                if feeding.done():
                    feeding.result()
                if (found := problem()) is not None:
                    raise RuntimeError(found)
                await asyncio.sleep(0.05)
        finally:
            feeding.cancel()
            for peer, watch in zip(self.peers, watches, strict=True):
                assert peer.client is not None
                await peer.client.__aexit__(None, None, None)
                with suppress(ClientClosed):
                    await watch

    async def _feed(self, blocks_per_s: float, on_block: Callable[[int], None]) -> None:
        lane = self._simulation.settings.lane
        due = time.monotonic()
        for block in self._simulation.blocks():
            self.comparison.expect_block(lane, block.block, block.expected, [], frozenset())
            self.expected[self.relay.name] += len(block.expected)
            submitting = asyncio.gather(*(self._submit(topic, record) for topic, record in block.records))
            await asyncio.sleep(
                0
            )  # the records are on their way: a gateway that is killed now leaves some to be sent again
            on_block(self.blocks_sent + 1)
            await submitting
            self.blocks_sent += 1
            if self.blocks_sent == FIRST_BLOCKS:
                while not self.relay.verdicts:
                    await asyncio.sleep(0.05)
                due = time.monotonic()
            due += 1 / blocks_per_s
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _submit(self, topic: str, record: dict[str, Any]) -> None:
        peer = self._teams.get(record["para_id"], self.relay) if topic == "candidates" else self.relay
        await peer.submit(topic, record)

    async def _watch(self, peer: Peer) -> None:
        assert peer.client is not None
        async for event in peer.client.watch("verdicts"):
            assert event.record is not None
            record = dict(event.record)
            peer.take(record)
            if peer is self.relay:
                self.comparison.observe("verdicts", record)
                if record["para_id"] in self._teams:
                    self.expected[self._teams[record["para_id"]].name] += 1

    def _is_complete(self) -> bool:
        """Return whether the relay chain's node has every verdict, and each team as many as the node has of its paras."""
        return not self.comparison.missing() and all(peer.verdicts >= self.expected[peer.name] for peer in self.peers)
