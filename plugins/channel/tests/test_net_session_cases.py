# SPDX-License-Identifier: Apache-2.0
"""Cases SM01 to SM09 of the samples: session IDs, limits, and two peers that connect to each other at once."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from channel_tls import CLIENT, SERVER, Pki, RawPeer, Recorded, World, client_context, client_hello, serving, until
from channel_world import CHANNEL, SAMPLES
from validator_channel.events import MessageReceived, PeerError, SessionClosed, SessionError, SessionOnline
from validator_channel.hello import Peering
from validator_channel.limits import ListenerLimits
from validator_channel.net.connection import Connection
from validator_channel.net.listener import Listener
from validator_channel.net.peers import HandshakeFailed, Peer, SessionTable
from validator_channel.wire import Role

TESTS = Path(__file__).resolve().parent


@pytest.mark.skipif(not SAMPLES.exists(), reason="the checkout has no sibling ../shared/traces")
def test_every_case_of_the_samples_has_a_test() -> None:
    document = json.loads(SAMPLES.read_text(encoding="utf-8"))
    wanted = [case["id"].lower() for group in ("tls_cases", "session_manager_cases") for case in document[group]]
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(TESTS.glob("test_net_*_cases.py")))
    assert set(re.findall(r"(?:def test_|\")((?:tls|sm)\d\d)[_ ]", text)) == set(wanted)


def payloads(recorded: Recorded, connection: Connection | None = None) -> list[bytes]:
    return [
        event.payload
        for origin, event in recorded.events
        if isinstance(event, MessageReceived) and connection in (None, origin)
    ]


async def exchange(connection: Connection, world: World, text: bytes) -> None:
    """Send a message and wait until the other side has it."""
    connection.send(0, text)
    await until(lambda: text in payloads(world.events))


async def test_sm01_session_id_in_use_is_refused(pki: Pki) -> None:
    async with serving(World(pki)) as world:
        first = await world.connect(5)
        assert (await world.refusal(5)).code == "SESSION_IN_USE"
        raw = await RawPeer.join(world, 5)
        await raw.pump(lambda: raw.session.is_closed)
        assert raw.events[0] == PeerError("SESSION_IN_USE", is_fatal=True, detail=None)
        raw.close()
        await exchange(first, world, b"untouched")
        assert len(world.events.online) == 1


async def test_sm02_session_id_is_free_again_at_once(pki: Pki) -> None:
    async with serving(World(pki)) as world:
        ids, instances = [], set()
        for text in (b"one", b"two", b"three"):
            connection = await world.connect(5)
            ids.append(connection.send(0, text))
            instances.add(connection.instance_id)
            connection.leave()
            assert (await connection.wait_closed()).is_clean
        assert len(set(ids)) == 1
        assert len(instances) == 3
        assert payloads(world.events) == [b"one", b"two", b"three"]
        raws = [await RawPeer.join(world, 6), await RawPeer.join(world, 7)]
        assert raws[0].sent[0] != raws[1].sent[0]
        for raw in raws:
            raw.close()


@dataclass
class Held:
    """A session ID that is taken, without a connection."""

    session_id: int
    role: Role = Role.LISTENER
    local_peer: int = SERVER
    remote_peer: int = CLIENT
    is_online: bool = True

    def drop(self, code: str) -> None:
        raise AssertionError(code)


async def test_sm03_no_session_id_is_left(pki: Pki) -> None:
    """All session IDs but one are entered by hand; the last one and those after it are real."""

    async with serving(World(pki, sessions_max=2000)) as world:
        table = world.listener.sessions
        held = [Held(session_id) for session_id in range(1024) if session_id != 700]
        assert all(table.claim(each) for each in held)
        assert table.choose(CHANNEL) == 700
        last = await world.connect(700)
        assert table.choose(CHANNEL) is None
        for session_id in (0, 700, 1023):
            assert (await world.refusal(session_id)).code == "SESSION_IN_USE"
        with pytest.raises(ValueError, match="session_id: expected 0 to 1023, found 1024"):
            await world.connect(1024)
        await exchange(last, world, b"untouched")
        for each in held:
            table.release(each)


async def test_sm04_ninth_session_of_a_peer_is_refused(pki: Pki) -> None:
    async with serving(World(pki)) as world:
        live = [await world.connect(session_id) for session_id in range(8)]
        assert (await world.refusal(8)).code == "SESSION_LIMIT"
        live[3].leave()
        await live[3].wait_closed()
        await until(lambda: len(world.listener.sessions) == 7)
        await world.connect(8)
    async with serving(World(pki, limits=ListenerLimits(sessions_max=2))) as world:
        for session_id in range(2):
            await world.connect(session_id)
        assert (await world.refusal(2)).code == "SESSION_LIMIT"


async def test_sm05_channels_are_independent(pki: Pki) -> None:
    other = Peering(SERVER + (1 << 64), CLIENT + (1 << 64))
    files = pki.leaf("both", [CLIENT, other.remote_peer])
    pki.server = pki.leaf("servers", [SERVER, other.local_peer])

    async with serving(World(pki)) as world:
        world.peers[CHANNEL + 1] = Peer(peering=other)
        first = await world.connect(5, files)
        second = await world.connect(5, files, peering=Peering(other.remote_peer, other.local_peer))
        await exchange(first, world, b"first")
        await exchange(second, world, b"second")
        assert {connection.remote_peer for connection in world.events.online} == {CLIENT, other.remote_peer}
        first.leave()
        await first.wait_closed()
        await exchange(second, world, b"third")


async def test_sm06_recorded_frame_is_refused_in_another_session(pki: Pki) -> None:
    async with serving(World(pki)) as world:
        async with world.raw() as (recorder, _):
            recorder.session.send(0, b"recorded", asyncio.get_running_loop().time())
            recorder.flush()
            frame = recorder.sent[-1]
            await until(lambda: payloads(world.events) == [b"recorded"])
        await until(lambda: len(world.listener.sessions) == 0)
        for session_id, code in ((6, "WRONG_SESSION"), (5, "DECRYPT_FAILED")):
            async with world.raw(session_id) as (victim, _):
                victim.writer.write(frame)
                await victim.pump(lambda victim=victim: victim.session.is_closed)
                (error,) = [event for event in victim.events if isinstance(event, PeerError)]
                assert (error.code, error.is_fatal) == (code, True)
                assert world.events.of(SessionError)[-1].code == code
        assert payloads(world.events) == [b"recorded"]


async def test_sm07_third_peer_of_a_channel_is_refused(pki: Pki) -> None:
    third = CLIENT + 1

    async with serving(World(pki)) as world:
        files = pki.leaf("third", [third])
        assert await world.attempt(client_context(pki, files), client_hello(Peering(third, SERVER))) == b""
        await until(lambda: world.failed == {"NOT_AUTHORIZED": 1})


@pytest.mark.parametrize("client_is_first", [True, False])
async def test_sm08_both_peers_connect_at_once(pki: Pki, client_is_first: bool) -> None:
    """The session whose connector has the smaller peer ID goes ahead, whoever begins."""
    assert CLIENT < SERVER

    world = World(pki)
    tables = {CLIENT: SessionTable(), SERVER: world.listener.sessions}
    outgoing = {CLIENT: Recorded(), SERVER: Recorded()}
    incoming = Recorded()
    peers = {CHANNEL: Peer(peering=Peering(CLIENT, SERVER))}
    other = Listener(pki.client, lambda: peers, incoming, sessions=tables[CLIENT], log=world.log)
    await other.start("127.0.0.1", 0)
    async with serving(world):
        for round_ in range(5):
            attempts = [
                world.connect(5, handler=outgoing[CLIENT], sessions=tables[CLIENT]),
                world.connect(
                    5,
                    pki.server,
                    port=other.port,
                    peering=Peering(SERVER, CLIENT),
                    handler=outgoing[SERVER],
                    sessions=tables[SERVER],
                ),
            ]
            order = (0, 1) if client_is_first else (1, 0)
            results = await asyncio.gather(*(attempts[at] for at in order), return_exceptions=True)
            won, lost = results[order.index(0)], results[order.index(1)]
            assert isinstance(won, Connection)
            assert isinstance(lost, HandshakeFailed)
            assert lost.code == "SESSION_IN_USE"
            await exchange(won, world, b"%d" % round_)
            assert [len(table) for table in tables.values()] == [1, 1]
            won.leave()
            await won.wait_closed()
            await until(lambda: [len(table) for table in tables.values()] == [0, 0])
        assert payloads(world.events) == [b"%d" % each for each in range(5)]
        assert incoming.events == outgoing[SERVER].events == []
    await other.close()


class Process:
    """A listener that echoes, in its own process."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        command = [sys.executable, str(TESTS / "listener_process.py"), str(folder), str(port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


async def test_sm09_listener_restarts(pki: Pki) -> None:
    process = Process(pki.folder)
    try:
        world = World(pki)
        first = await world.connect(5, port=process.port)
        first.send(0, b"before")
        await until(lambda: payloads(world.client_events) == [b"before"])
        await asyncio.to_thread(process.kill)
        closed = await first.wait_closed()
        assert not closed.is_clean
        assert [event.code for event in world.client_events.of(SessionError)] == ["TRANSPORT_LOST"]
        process = await asyncio.to_thread(Process, pki.folder, process.port)
        second = await world.connect(5, port=process.port)
        second.send(0, b"after")
        await until(lambda: payloads(world.client_events, second) == [b"after"])
        assert second.instance_id != first.instance_id
        assert [type(event) for _, event in world.client_events.events].count(SessionOnline) == 2
        assert len(world.client_events.of(SessionClosed)) == 1
    finally:
        process.kill()
