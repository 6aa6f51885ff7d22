# SPDX-License-Identifier: Apache-2.0
"""What a listener turns away and survives, what a connector reports, and session IDs in turn."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from channel_tls import CLIENT, SERVER, Pki, RawPeer, World, serving, until
from channel_world import CHANNEL
from validator_channel.events import SessionClosed
from validator_channel.hello import Peering
from validator_channel.limits import ConnectionLimits, ListenerLimits, Settings
from validator_channel.net.peers import Peer, SessionTable
from validator_channel.net.tls import TlsError, TlsFiles

# --- what a listener refuses before TLS, and survives ---


async def test_address_that_connects_too_often_is_turned_away(pki: Pki) -> None:
    limits = ListenerLimits(connects_per_s=1e-9, connects_burst=3)

    async with serving(World(pki, limits=limits)) as world:
        for session_id in range(3):
            await world.connect(session_id)
        assert (await world.refusal(3)).code == "TRANSPORT_LOST"
        assert world.listener.counters.turned_away == {"rate": 1}
        # Another address has its own rate, but the peer's is exhausted.
        assert (await world.refusal(4, local_address="127.0.0.2")).code == "TRANSPORT_LOST"
        assert world.failed == {"SESSION_LIMIT": 1}


async def test_accept_loop_survives_a_lack_of_descriptors(pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    original, failures = loop.sock_accept, [OSError(24, "Too many open files"), ConnectionAbortedError()]

    async def failing(listening: socket.socket) -> Any:
        if failures:
            raise failures.pop(0)
        return await original(listening)

    monkeypatch.setattr(loop, "sock_accept", failing)
    async with serving(World(pki, limits=ListenerLimits(accept_pause=0.01))) as world:
        await world.connect()
        assert world.lines == ["accepting pauses: Too many open files"]
        assert world.listener.counters.alarms == 1


async def test_checks_survive_a_failing_registry(pki: Pki) -> None:
    async with serving(World(pki, limits=ListenerLimits(poll_interval=0.02))) as world:
        connection = await world.connect()
        world.listener._registry = lambda: 1 // 0  # type: ignore[assignment,return-value]
        await until(lambda: world.listener.counters.alarms >= 2)
        assert connection.state == "ONLINE"
        world.listener._registry = dict
        assert not (await connection.wait_closed()).is_clean


# --- a registry, or a peer's ``topics``, that raises: one session ends, with one line, and the next peer is served ---


class FailingWorld(World):
    """A world whose registry raises in its n-th call."""

    calls_left = 0

    @property
    def peers(self) -> dict[int, Peer]:  # type: ignore[override]
        self.calls_left -= 1
        if not self.calls_left:
            raise RuntimeError("the registry failed")
        return self._peers

    @peers.setter
    def peers(self, peers: dict[int, Peer]) -> None:
        self._peers = peers


def failures(world: World) -> int:
    return sum(line.startswith("the application failed; its session ends: ") for line in world.lines)


@pytest.mark.parametrize("call", [1, 2, 3])
async def test_registry_that_fails_ends_one_handshake(pki: Pki, call: int) -> None:
    """The calls: for the peering, for what the certificate proves, for the limit of sessions."""

    async with serving(FailingWorld(pki)) as world:
        world.calls_left = call
        await world.refusal()
        await until(lambda: world.failed == {"INTERNAL": 1})
        await world.connect(6)
        assert failures(world) == 1


async def test_topics_that_fail_end_one_session(pki: Pki) -> None:
    def topics(topic: int) -> bool:
        raise RuntimeError(f"no policy for topic {topic}")

    async with serving(World(pki, topics=topics)) as world:
        connection, other = await world.connect(5), await world.connect(6)
        connection.register_topic(7)
        assert not (await connection.wait_closed()).is_clean
        assert other.state == "ONLINE"
        await until(lambda: world.listener.counters.ended == {"INTERNAL": 1})
        assert len(world.events.of(SessionClosed)) == 1
        assert failures(world) == 1


# --- a connection counts toward the limits until its transport has ended (channel_rules 3.3) ---

SLOW = ListenerLimits(connection=ConnectionLimits(shutdown_timeout=600.0))
BAD_FRAME = b"\0\0\0\0"


@pytest.mark.parametrize("limits", ["peer", "table"])
async def test_peer_that_does_not_close_has_its_sessions_still(pki: Pki, limits: str) -> None:
    few = replace(SLOW, sessions_max=1)
    world = World(pki, limits=SLOW, sessions_max=1) if limits == "peer" else World(pki, limits=few)

    async with serving(world):
        async with world.raw() as (raw, _):
            raw.writer.write(BAD_FRAME)
            await until(lambda: world.listener.counters.ended == {"BAD_FRAME": 1})
            assert len(world.listener.sessions) == 0
            assert (await world.refusal(5)).code == "SESSION_LIMIT"
        await until(lambda: not world.listener.sessions._closing)
        connection = await world.connect(5)
        assert connection.state == "ONLINE"


async def test_peer_that_was_refused_and_does_not_close_holds_a_half_open_place(pki: Pki) -> None:
    async with serving(World(pki, limits=SLOW, sessions_max=1)) as world:
        await world.connect(1)
        await until(lambda: world.listener.half_open == 0)
        refused = [await RawPeer.join(world, at) for at in (2, 3)]
        for raw in refused:
            await raw.pump(lambda raw=raw: raw.session.is_closed)
        assert world.listener.half_open == 2
        for raw in refused:
            raw.close()
        await until(lambda: world.listener.half_open == 0)


async def test_peer_that_leaves_may_come_back_at_once(pki: Pki) -> None:
    async with serving(World(pki, limits=SLOW, sessions_max=1)) as world:
        for _ in range(10):
            connection = await world.connect(5)
            connection.leave()
            assert (await connection.wait_closed()).is_clean


# --- what a connector reports ---


async def test_connector_reports_why_it_failed(pki: Pki, tmp_path: Path) -> None:
    world = World(pki)
    silent = socket.create_server(("127.0.0.1", 0))
    port = silent.getsockname()[1]
    failure = await world.refusal(port=port, settings=Settings(handshake_timeout=0.1))
    assert failure.code == "HANDSHAKE_TIMEOUT"
    silent.close()
    failure = await world.refusal(port=port)
    assert failure.code == "TRANSPORT_LOST"
    missing = TlsFiles(tmp_path / "none.crt", pki.client.key, pki.ca)
    with pytest.raises(TlsError, match=r"none\.crt: No such file or directory"):
        await world.connect(port=port, files=missing)


async def test_connector_gives_its_session_id_back(pki: Pki) -> None:
    async with serving(World(pki)) as world:
        table = SessionTable()
        assert (await world.refusal(5, port=1, sessions=table)).code == "TRANSPORT_LOST"
        assert len(table) == 0
        connection = await world.connect(5, sessions=table)
        assert (await world.refusal(5, sessions=table)).reason == "session 5 of the channel is live"
        assert len(table) == 1
        connection.leave()
        await connection.wait_closed()
        assert len(table) == 0
        with socket.create_server(("127.0.0.1", 0)) as silent:
            waiting = asyncio.ensure_future(world.connect(6, port=silent.getsockname()[1], sessions=table))
            await until(lambda: len(table) == 1)
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting
        assert len(table) == 0


def test_session_ids_are_used_in_turn() -> None:
    from test_net_session_cases import Held

    table = SessionTable()
    order = []
    for _ in range(1024):
        session_id = table.choose(CHANNEL)
        assert session_id is not None
        order.append(session_id)
        held = Held(session_id)
        assert table.claim(held)
        table.release(held)
    assert sorted(order) == list(range(1024))
    assert [table.choose(CHANNEL)] == order[:1]


def test_peer_must_be_checked_somehow() -> None:
    peering = Peering(SERVER, CLIENT)
    with pytest.raises(ValueError, match="pins: expected at least one"):
        Peer(peering=peering, needs_uri=False)
    with pytest.raises(ValueError, match="pins: expected SHA-256 digests of 32 bytes"):
        Peer(peering=peering, pins=frozenset({b"short"}))
    with pytest.raises(ValueError, match="sessions_max: expected at least 1, found 0"):
        Peer(peering=peering, sessions_max=0)
