# SPDX-License-Identifier: Apache-2.0
"""Simulated chains: deterministic, lively, breaking every rule, and judged by a lane as the naive model judges them."""

from __future__ import annotations

import inspect
from collections import Counter

from validator_xcmp import errors
from validator_xcmp.simulation.traffic import XcmpSimulation

from validator.plugin.protocol_api import Violation
from validator.simulate import SimulationSettings
from validator.testing import SimulationContract
from validator.testing.simulation import records_of


class TestSimulation(SimulationContract):
    """The protocol's own."""

    protocol = "xcmp"
    kinds = frozenset(
        kind.kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, Violation) and kind is not Violation
    )


def test_the_chain_lives() -> None:
    simulation = XcmpSimulation(SimulationSettings(seed=9, blocks=300))
    events: Counter[tuple[str, str | None]] = Counter()
    blocks = []
    for block in simulation.blocks():
        blocks.append(block)
        events.update((event[0], event[5]) for event in simulation.model.events)
    assert {
        ("requested", None),
        ("confirmed", None),
        ("opened", None),
        ("close_requested", None),
        ("closed", "requested"),
        ("closed", "unread"),
        ("closed", "offboarded"),
        ("request_expired", "expired"),
        ("request_dropped", "offboarded"),
    } <= set(events)
    kinds = Counter(request["kind"] for request in records_of(blocks, "channel-requests"))
    assert set(kinds) == {
        "init_open_channel",
        "accept_open_channel",
        "accept_open_channel_from",
        "close_channel",
        "close_channel_to",
    }
    assert len(records_of(blocks, "downward-messages")) > 200
    candidates = records_of(blocks, "candidates")
    assert sum(each["bitfield"].count("1") for each in candidates) > 500
    assert any(each["bitfield"].endswith("0") for each in candidates)
    assert any(each["message_root"] and "1" not in each["bitfield"] for each in candidates)
