# SPDX-License-Identifier: Apache-2.0
"""What a listener turns away and survives, what a connector reports, and session IDs in turn."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from channel_tls import CLIENT, SERVER, Pki, World, serving, until
from channel_world import CHANNEL
from validator_channel.hello import Peering
from validator_channel.limits import ListenerLimits, Settings
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
