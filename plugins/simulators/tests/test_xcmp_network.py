# SPDX-License-Identifier: Apache-2.0
"""Simulated chains are deterministic, busy and break every rule; a lane gives the same verdicts as the naive model."""

from __future__ import annotations

from collections import Counter

from validator_simulators import SimulationSettings
from validator_simulators.contract import SimulationContract, records_of
from validator_simulators.xcmp_network.traffic import TOPOLOGY, FixedNetworkSimulation, NetworkSimulation
from validator_xcmp import errors as xcmp_errors
from validator_xcmp_network import errors

from validator.plugin.protocol_api import Violation

KINDS = frozenset(
    each.kind
    for module in (errors, xcmp_errors)
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, Violation) and each.kind
)


class TestSimulation(SimulationContract):
    """The contract for this protocol; its chain opens and closes channels, so no request lacks a rule."""

    protocol = "xcmp-network"
    kinds = KINDS - {errors.RequestNotInForce.kind}


class TestFixedChannels(SimulationContract):
    """The contract for a chain whose channels are fixed: nothing that concerns opening, closing or bitfields can be wrong."""

    protocol = "xcmp-network"
    topology = TOPOLOGY
    kinds = frozenset(
        {each for each in KINDS if each.startswith(("Candidate/", "Outbox/", "Ack/", "Body/"))}
        - {"Outbox/BitfieldMismatch"}
        | {errors.RequestNotInForce.kind}
    )


def test_fixed_channels_carry_messages_to_the_end() -> None:
    simulation = FixedNetworkSimulation(SimulationSettings(seed=9, blocks=300, topology=TOPOLOGY))
    events: Counter[str] = Counter()
    last = 0
    for block in simulation.blocks():
        queued = sum(event[0] == "queued" for event in simulation.model.ingress_events)
        last = block.block if queued else last
        events.update(event[0] for event in simulation.model.ingress_events)
    assert events["queued"] > 500
    assert events["removed"] > 3
    assert events["queued"] == events["acknowledged"] + events["removed"] + len(simulation.model.messages)
    assert last > 290


def test_messages_are_queued_acknowledged_and_removed() -> None:
    simulation = NetworkSimulation(SimulationSettings(seed=9, blocks=300))
    events: Counter[str] = Counter()
    blocks = []
    for block in simulation.blocks():
        blocks.append(block)
        events.update(event[0] for event in simulation.model.ingress_events)
    assert events["queued"] > 500
    assert events["acknowledged"] > 400
    assert events["removed"] > 3
    assert events["queued"] == events["acknowledged"] + events["removed"] + len(simulation.model.messages)
    reports = [each for each in records_of(blocks, "channel-requests") if each["kind"] == "report_body"]
    assert len(reports) > 500
    acks = [candidate["acks"] for candidate in records_of(blocks, "candidates")]
    assert any(each != sorted(each) for each in acks)
