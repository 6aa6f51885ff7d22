# SPDX-License-Identifier: Apache-2.0
"""A gateway with real TLS and Kafka in memory, peers with their own channels and certificates, and records that they may submit."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from channel_tls import SECONDS_MAX, Pki, until
from validator_channel.application import WATCH_TOPICS, MainMessage, RefusedMessage, Watched, read_main, read_watched
from validator_channel.client import ChannelClient, ClientConfig, ClientLimits
from validator_channel.client.client import SETTINGS
from validator_channel.events import Event, MessageDelivered, MessageReceived, MessageRejected, SessionClosed, TopicOpen
from validator_channel.gateway import plugin
from validator_channel.gateway.service import Gateway
from validator_channel.hello import Peering
from validator_channel.limits import Settings
from validator_channel.net.connection import Connection
from validator_channel.net.connector import connect
from validator_channel.net.peers import Peer
from validator_channel.net.tls import TlsFiles
from validator_channel.wire import format_id, unpack_message_id

from validator.testing.transport import MemoryTransport

LANE = "polkadot"
SUBMIT = ("candidates", "channel-requests")
WATCH = tuple(WATCH_TOPICS)
PATIENT = replace(SETTINGS, handshake_timeout=SECONDS_MAX, setup_timeout=SECONDS_MAX)


@dataclass
class PeerEntry:
    """One peer: its identifiers, its certificate, and its table in the registry."""

    name: str
    peer: int
    gateway: int
    files: TlsFiles
    table: dict[str, Any] = field(default_factory=dict)


def candidate(block: int, para: int = 2000, index: int = 0, **fields: Any) -> dict[str, Any]:
    """Return a candidate in JSON form."""
    return {
        "lane": LANE,
        "block": block,
        "index": index,
        "para_id": para,
        "hrmp_watermark": block - 1,
        "upward_messages": [],
        "processed_downward_messages": 0,
        "horizontal_messages": [],
        **fields,
    }


def verdict(block: int, para: int = 2000, index: int = 0, lane: str = LANE) -> dict[str, Any]:
    """Return a verdict in JSON form."""
    return {
        "lane": lane, "block": block, "kind": "candidate", "index": index, "para_id": para, "ok": True, "error": None,
        "enacted": True, "messages": [], "id": "00" * 16, "runtime_digest": "00" * 32,
    }  # fmt: skip


class GatewayWorld:
    """A gateway that tests start and stop, and its peers."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.folder = folder
        self.pki = Pki(folder / "pki")
        self.peers: dict[str, PeerEntry] = {}
        self.registry = folder / "peers.toml"
        self.server: TlsFiles | None = None
        self._config = config
        self.log = logging.getLogger("validator_channel")
        self.lines: list[str] = []
        self.gateway: Gateway | None = None

    def add_peer(self, name: str, *paras: int, **table: Any) -> PeerEntry:
        """Add a peer to the registry, with its own channel."""
        channel = secrets.randbits(64)
        peer, gateway = (channel << 64 | secrets.randbits(64) for _ in range(2))
        entry = PeerEntry(name, peer, gateway, self.pki.leaf(name, [peer]))
        entry.table = {
            "peer": format_id(peer),
            "gateway": format_id(gateway),
            "lanes": {LANE: list(paras)},
            "submit": list(SUBMIT),
            "watch": list(WATCH),
            **table,
        }
        self.peers[name] = entry
        return entry

    def write_registry(self) -> None:
        """Write `peers.toml`, and a certificate of the gateway for all channels."""
        lines = []
        for entry in self.peers.values():
            lines.append(f"[peers.{entry.name}]")
            lines += [f"{key} = {_toml(value)}" for key, value in entry.table.items()]
        replacement = self.folder / "peers.new"
        replacement.write_text("\n".join(lines) + "\n")
        replacement.replace(self.registry)
        if self.server is None:
            self.server = self.pki.leaf("gateway", [entry.gateway for entry in self.peers.values()])

    def config(self, **changes: Any) -> dict[str, Any]:
        """Return the table `[transports.channel]`."""
        if self.server is None:
            self.write_registry()
        assert self.server is not None
        return {
            "listen": "127.0.0.1:0",
            "certificate": str(self.server.certificate),
            "key": str(self.server.key),
            "ca": str(self.pki.ca),
            "crl": str(self.pki.crl),
            "registry": str(self.registry),
            **self._config,
            **changes,
        }

    # --- the gateway ---

    @asynccontextmanager
    async def serving(self, memory: MemoryTransport | None = None) -> AsyncIterator[MemoryTransport]:
        """Run the gateway in this event loop, and stop it as SIGTERM does."""
        memory = memory or MemoryTransport(plugin, self.config())
        with memory.open(live=True) as context:
            self.gateway = Gateway(context, context.config)
            ready = asyncio.Event()
            running = asyncio.create_task(self.gateway.run(ready.set))
            waiting = asyncio.create_task(ready.wait())
            await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
            self.running = running
            try:
                yield memory
            finally:
                memory.stop()
                await running

    @property
    def counted(self) -> dict[str, int]:
        assert self.gateway is not None
        return self.gateway.counters.snapshot()

    # --- peers ---

    def client_config(self, name: str, *ports: int, **fields: Any) -> ClientConfig:
        entry = self.peers[name]
        assert self.gateway is not None or ports
        gateways = tuple(("127.0.0.1", port) for port in ports or (self.gateway.port,))  # type: ignore[union-attr]
        return ClientConfig(gateways=gateways, peer=entry.peer, gateway=entry.gateway, tls=entry.files, **fields)

    def client(self, name: str, *ports: int, limits: ClientLimits | None = None, **options: Any) -> ChannelClient:
        """Return a client that connects again quickly."""
        limits = limits or ClientLimits(pause_s_min=0.01, pause_s_max=0.1)
        options.setdefault("settings", PATIENT)
        fields = {"psk": options.pop("psk")} if "psk" in options else {}
        return ChannelClient(self.client_config(name, *ports, **fields), limits=limits, **options)

    @asynccontextmanager
    async def peer(
        self, name: str, *topics: int, settings: Settings = PATIENT, port: int | None = None, **options: Any
    ) -> AsyncIterator[BarePeer]:
        """Connect as a peer that does what the test says, with some topics open."""
        entry = self.peers[name]
        bare = BarePeer(**options)
        if port is None:
            assert self.gateway is not None
            port = self.gateway.port
        gateway = Peer(peering=Peering(entry.peer, entry.gateway))
        bare.connection = await connect(
            "127.0.0.1", port, entry.files, gateway, secrets.randbelow(1024), bare.handle, settings
        )
        try:
            for topic in topics:
                bare.connection.register_topic(topic)
            await until(lambda: bare.open_topics >= set(topics))
            yield bare
        finally:
            bare.connection.drop("LEFT")
            await bare.connection.wait_closed()


@dataclass
class BarePeer:
    """A session of a peer without any intelligence: it keeps what happens. ``acknowledges`` is False for one that never reads."""

    acknowledges: bool = True
    connection: Connection = field(init=False)
    events: list[Event] = field(default_factory=list)
    open_topics: set[int] = field(default_factory=set)
    main: list[MainMessage] = field(default_factory=list)
    watched: dict[int, list[Watched]] = field(default_factory=dict)

    def handle(self, connection: Connection, event: Event) -> None:
        self.events.append(event)
        match event:
            case TopicOpen(topic):
                self.open_topics.add(topic)
            case MessageReceived(topic, index, payload):
                if topic == 0:
                    self.main.append(read_main(payload))
                else:
                    self.watched.setdefault(topic, []).append(read_watched(payload))
                if self.acknowledges or topic == 0:
                    connection.consumed()
                    connection.ack(topic, index)
            case _:
                pass

    def send(self, topic: int, record: Any) -> int:
        """Send a record, or bytes, and return the message's index."""
        payload = record if isinstance(record, bytes) else json.dumps(record).encode()
        return unpack_message_id(self.connection.send(topic, payload)).index

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def delivered(self, topic: int) -> list[int]:
        """Return the indices that were acknowledged."""
        return [event.index for event in self.of(MessageDelivered) if event.topic == topic]

    def rejected(self, topic: int) -> dict[int, str]:
        """Return the codes of refused messages by index."""
        return {event.index: event.code for event in self.of(MessageRejected) if event.topic == topic}

    @property
    def closed(self) -> SessionClosed | None:
        return next(iter(self.of(SessionClosed)), None)


def refusals(peer: BarePeer) -> dict[tuple[int, int], str]:
    return {(each.topic, each.index): each.error for each in peer.main if isinstance(each, RefusedMessage)}


async def limited(events: Any, count: int) -> Any:
    """Yield a number of events, and end the watch."""
    async for event in events:
        yield event
        count -= 1
        if not count:
            await events.aclose()
            return


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + " }"
    return json.dumps(value)
