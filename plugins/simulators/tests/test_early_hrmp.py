# SPDX-License-Identifier: Apache-2.0
"""Simulated chains are deterministic, busy and break every rule; a lane gives the same verdicts as the naive model."""

from __future__ import annotations

import inspect
from collections import Counter

from validator_early_hrmp import errors
from validator_simulators import SimulationSettings
from validator_simulators.contract import SimulationContract, records_of
from validator_simulators.early_hrmp.traffic import EarlyHrmpSimulation

from validator.plugin.protocol_api import Violation


class TestSimulation(SimulationContract):
    """The contract for this protocol."""

    protocol = "early-hrmp"
    kinds = frozenset(
        kind.kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, Violation) and kind is not Violation
    )


def test_chain_has_every_event_and_kind_of_request() -> None:
    simulation = EarlyHrmpSimulation(SimulationSettings(seed=9, blocks=300))
    events: Counter[tuple[str, str | None]] = Counter()
    blocks = []
    for block in simulation.blocks():
        blocks.append(block)
        events.update((event[0], event[6]) for event in simulation.model.events)
    assert {
        ("requested", None),
        ("confirmed", None),
        ("opened", None),
        ("sealed", "requested"),
        ("closed", "requested"),
        ("closed", "drained"),
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
    }
    assert len(records_of(blocks, "downward-messages")) > 200
    assert sum(len(each["hrmp_messages"]) for each in records_of(blocks, "candidates")) > 500
