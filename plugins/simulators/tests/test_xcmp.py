# SPDX-License-Identifier: Apache-2.0
"""Simulated chains are deterministic, busy and break every rule; a lane gives the same verdicts as the naive model."""

from __future__ import annotations

import inspect
from collections import Counter
from typing import Any

import pytest
from validator_simulators import SimulationSettings
from validator_simulators.contract import SimulationContract, records_of
from validator_simulators.xcmp.model import NaiveXcmp
from validator_simulators.xcmp.traffic import LIMITS, XcmpSimulation
from validator_xcmp import errors

from validator.plugin.protocol_api import Violation


class TestSimulation(SimulationContract):
    """The contract for this protocol."""

    protocol = "xcmp"
    kinds = frozenset(
        kind.kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, Violation) and kind is not Violation
    )


def test_chain_has_every_event_and_kind_of_request() -> None:
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


@pytest.mark.parametrize("para", [2000, 2001])
def test_model_drops_confirmed_request_of_para_offboarded_and_onboarded_together(para: int) -> None:
    paras = [{"para_id": each, "balance": 1000} for each in (2000, 2001)]
    model = NaiveXcmp(dict(LIMITS), paras, unlimited=False, on_inclusion=False)
    model.begin_block(1, [], [])
    assert model.init_open_channel(2000, 2001) == {"ok": True}
    assert model.accept_open_channel(2001, 0) == {"ok": True}
    model.session_change({"outgoing": [para], "onboarding": [{"para_id": para, "balance": 0}]})
    state = model.state()
    assert (state["cmt"], state["open_requests"], state["paras"]) == ({}, [], [2000, 2001])
    assert state["balances"] == {str(each): {"free": 1000, "reserved": 0} for each in (2000, 2001)}
    assert model.events[-1] == ("request_dropped", 2000, 2001, -100, -60, "offboarded", ())


def test_traffic_has_confirmed_requests_of_paras_offboarded_and_onboarded_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    met = []
    change_session = NaiveXcmp.session_change

    def watch(model: NaiveXcmp, change: dict[str, Any]) -> None:
        back = {para["para_id"] for para in change["onboarding"]} & set(change["outgoing"])
        met.extend(each for each in model.requests if each["confirmed"] and {each["sender"], each["recipient"]} & back)
        change_session(model, change)

    monkeypatch.setattr(NaiveXcmp, "session_change", watch)
    for _ in XcmpSimulation(SimulationSettings(seed=1, blocks=300)).blocks():
        pass
    assert met
