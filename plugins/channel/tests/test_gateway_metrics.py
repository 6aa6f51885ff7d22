# SPDX-License-Identifier: Apache-2.0
"""The gateway's metrics: each counter has one, and real sessions give their values."""

from __future__ import annotations

from dataclasses import fields
from itertools import starmap
from pathlib import Path

import pytest
from gateway_world import GatewayWorld, candidate, refusals, until
from validator_channel.application import SUBMIT_TOPICS
from validator_channel.gateway import measures, plugin
from validator_channel.gateway.measures import Counters
from validator_channel.net.outcomes import Counters as NetCounters

from validator.plugin.api import Measure
from validator.testing.transport import MemoryTransport

CANDIDATES = SUBMIT_TOPICS["candidates"]
NOT_SHOWN = {"enqueued", "confirmed", "ack_latency_us_max", "overflows", "registry_reloads"}
"""Counters of the log alone: transports count what they write, and a greatest value is no metric."""


async def test_sessions_records_and_refusals_are_measured(tmp_path: Path) -> None:
    world = GatewayWorld(tmp_path)
    world.add_peer("alice", 2000, 2004)
    right, wrong = candidate(5), candidate(5, para=3000)

    found: dict[tuple[str, ...], float] = {}

    async with world.serving() as memory, world.peer("alice", CANDIDATES) as alice:
        alice.send(CANDIDATES, right)
        alice.send(CANDIDATES, wrong)
        await until(lambda: alice.delivered(CANDIDATES) and refusals(alice))
        gateway = world.gateway
        assert gateway is not None
        memory.measures = lambda: starmap(Measure, measures.values(gateway.counters, gateway.net_counters))
        found.update(memory.measured())
    assert found["sessions",] == found["sessions_begun_total",] == found["handshakes_total",] == 1
    assert found["handshake_seconds_total",] > 0
    assert found["received_records_total",] == 2
    assert found["received_bytes_total",] > 0
    assert found["refused_total", "unauthorised"] == 1
    assert found["refused_total", "malformed"] == 0
    assert found["registry_broken",] == found["failed_records_total",] == 0


def test_every_counter_is_measured_or_has_a_reason() -> None:
    gateway, net = Counters(), NetCounters()
    before = values(gateway, net)
    for number, field in enumerate(fields(Counters)):
        setattr(gateway, field.name, number + 1)
        changed = values(gateway, net) != before
        assert changed == (field.name not in NOT_SHOWN), field.name
        before = values(gateway, net)
    net.turned_away["rate"] = net.handshakes_failed["TLS"] = net.ended["LEFT"] = 1
    assert {name for name, *_ in values(gateway, net)} == set(measures.METRICS)


def values(gateway: Counters, net: NetCounters) -> dict[tuple[str, ...], float]:
    return {(name, *labels): value for name, value, labels in measures.values(gateway, net)}


def test_plugin_measures_what_it_declares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = GatewayWorld(tmp_path)
    world.add_peer("alice", 2000)
    memory = MemoryTransport(plugin, world.config())
    monkeypatch.setattr("asyncio.run", lambda working: working.close())
    memory.run()
    assert {name for name, *_ in memory.measured()} <= set(measures.METRICS)
    assert memory.measured()["sessions",] == 0
