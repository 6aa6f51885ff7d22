# SPDX-License-Identifier: Apache-2.0
"""The gateway cases GW07 and GW08 of channel_samples.json: bad records, and secrets in output."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from gateway_world import LANE, GatewayWorld, candidate, limited, refusals, until
from validator_channel.application import SUBMIT_TOPICS, WATCH_TOPICS
from validator_channel.client import Refused
from validator_channel.wire import MAIN

CANDIDATES, VERDICTS = SUBMIT_TOPICS["candidates"], WATCH_TOPICS["verdicts"]


@pytest.fixture
def world(tmp_path: Path) -> GatewayWorld:
    made = GatewayWorld(tmp_path)
    made.add_peer("alice", 2000, 2004)
    made.add_peer("bob", 3000)
    return made


BAD = [
    b"", b"x", b"{", b"{}{}", b"[]", b"null", b"1", b'"text"', b"\xff\xfe{\x00}\x00", b"\xef\xbb\xbf{}", b'{"lane": NaN}',
    b'{"a": 1, "a": 2}',
    b'{"lane": "\\ud800"}', b"1" * 100_000, b'{"block": ' + b"9" * 100_000 + b"}", b"[" * 100_000, b'{"a":' * 100_000, b"{}",
    json.dumps(candidate(5) | {"surplus": 1}).encode(), json.dumps(candidate(10**30)).encode(), json.dumps(candidate(-1)).encode(),
    json.dumps(candidate(5, upward_messages=["xyz"])).encode(), json.dumps(candidate(5, candidate_hash="00")).encode(),
    json.dumps(candidate(5, hrmp_watermark=1e3)).encode(), json.dumps([candidate(5)]).encode(), b" " * 600_000,
    json.dumps(candidate(5, horizontal_messages=[{"recipient": 1}] * 1_000)).encode(),
]  # fmt: skip


async def test_gw07_bad_records_are_refused_and_the_session_stays(world: GatewayWorld) -> None:
    async with world.serving() as memory, world.peer("alice", CANDIDATES) as alice:
        for payload in BAD:
            index = alice.send(CANDIDATES, payload)
            await until(lambda index=index: index in alice.delivered(CANDIDATES))  # type: ignore[misc]
            error = refusals(alice)[CANDIDATES, index]
            assert error.startswith("candidates: "), payload[:50]
            assert len(error) <= 256
            assert "\n" not in error
        assert memory.enqueued == []
        assert alice.closed is None
        alice.send(CANDIDATES, candidate(9))
        await until(lambda: memory.enqueued)


async def test_gw07_sessions_take_turns_whatever_one_of_them_sends(world: GatewayWorld) -> None:
    """A peer whose 60 records are large and bad does not hold up another one until they are all read."""

    async with (
        world.serving() as memory,
        world.peer("alice", CANDIDATES) as alice,
        world.peer("bob", CANDIDATES) as bob,
    ):
        seen: list[int] = []
        for _ in range(60):
            alice.send(CANDIDATES, b'{"a":' + b"[" * 300_000)
        await until(lambda: world.counted["refused_malformed"])
        for number in range(5):
            bob.send(CANDIDATES, candidate(2 + number, para=3000))
        await until(lambda: len(memory.enqueued) == 5 or len(refusals(alice)) == 60)
        seen.append(world.counted["refused_malformed"])
        assert len(memory.enqueued) == 5
        assert seen[0] < 60
        await until(lambda: len(refusals(alice)) == 60)


MARK = "5ec2e75ec2e75ec2e7"


async def test_gw08_log_and_metrics_hold_no_secret_and_no_payload(
    world: GatewayWorld, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    psk = "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0"
    (tmp_path / "alice.psk").write_text(psk)
    (tmp_path / "alice.psk").chmod(0o600)
    world.peers["alice"].table["psk_file"] = "alice.psk"
    caplog.set_level(logging.DEBUG)
    async with world.serving() as memory:
        client = world.client("alice", psk=bytes.fromhex(psk))
        async with client, world.peer("bob", CANDIDATES, VERDICTS) as bob:
            await client.submit("candidates", candidate(2, upward_messages=[MARK]))
            for record in (candidate(2, para=1, upward_messages=[MARK]), MARK.encode(), {"lane": LANE, MARK: MARK}):
                with pytest.raises(Refused):
                    await client.submit("candidates", record)
            memory.emit("dispatches", dispatch(MARK))
            (event,) = [event async for event in limited(client.watch("dispatches"), 1)]
            assert event.record["payload"] == f"0x{MARK}"
            memory.refuse = lambda record: f"no place for {record.value!r}"
            with pytest.raises(Refused, match="could not store"):
                await client.submit("candidates", candidate(3, upward_messages=[MARK]))
            memory.outputs.append(("verdicts", b"", MARK.encode()))
            bob.send(VERDICTS, MARK.encode())
            await until(lambda: bob.rejected(VERDICTS))
            bob.connection.send(MAIN, MARK.encode())
            world.registry.write_text(f'[peers.alice]\npsk = "{psk[:20]}"\n')
            await until(lambda: world.counted["registry_broken"])
            shown = [repr(client), repr(client._config), repr(world.gateway.registry.peers)]  # type: ignore[union-attr]
            shown += [repr(each) for each in world.gateway._bridge._sessions.values()]  # type: ignore[union-attr]
    text = "\n".join([*shown, json.dumps(world.counted), caplog.text])
    assert f"peer={format(world.peers['alice'].peer, '032x')}" in text
    key = world.peers["alice"].files.key.read_text().splitlines()[1]
    assert world.server is not None
    own = world.server.key.read_text().splitlines()[1]
    for secret in (
        MARK,
        MARK.encode().hex(),
        bytes.fromhex(MARK).decode("latin-1"),
        psk,
        psk[:20],
        repr(bytes.fromhex(psk))[2:-1],
        key,
        own,
    ):
        assert secret not in text, secret


def dispatch(payload: str) -> dict[str, Any]:
    return {
        "lane": LANE, "block": 5, "index": 0, "para_id": 2000, "payload": payload, "weight": 1, "outcome": "ok", "failure": None,
        "handler": None, "kind": None, "events": [], "runtime_digest": "00" * 32,
    }  # fmt: skip
