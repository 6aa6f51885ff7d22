# SPDX-License-Identifier: Apache-2.0
"""Replays from a block on: the lane's own side is the lane as it was replayed, the others differ in what their configurations change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from validator_simulators.settings import SimulationSettings

from tests.unit.lanes.chains import Chain, chain, config_of, definition_of, inputs_of
from validator.codec.encode import RUNTIME_DIGEST_BYTES, Encoder
from validator.core.inputs import Input
from validator.errors import UserError
from validator.history.engine import Engine
from validator.history.what_if import UNCHANGED, Changes, Comparison, Sweep, case_of, other_cases, replay
from validator.lanes.configured import continued
from validator.lanes.definition import LaneDefinition

if TYPE_CHECKING:
    from validator.config import Config
    from validator.core.lane import Lane
    from validator.core.outcomes import Executed

LANE = "polkadot"
BLOCKS = 60
FROM = 34
SETTINGS = SimulationSettings(seed=5, blocks=BLOCKS, session_length_blocks=10, lane=LANE)
PROTOCOLS = ("router", "early-hrmp", "xcmp", "xcmp-network")


def configured(of: Chain, **changes: Any) -> Config:
    """Return a configuration with keys of the chain changed."""
    return config_of(Chain(of.lane, {**of.table, **changes}, of.blocks, of.records), job={"directory": "nowhere"})


def uninterrupted(of: Chain, protocol: str, **changes: Any) -> list[Executed]:
    lane = definition_of(of, **changes).create()
    for item in inputs_of(of.records, protocol):
        assert isinstance(item, Input)
        lane.add(item)
    return [executed for executed, _ in lane.execute_ready()]


def encoded(executed: Executed) -> list[bytes]:
    """Return a block's verdicts as records."""
    return list(map(Encoder(LANE, bytes(RUNTIME_DIGEST_BYTES)).verdict, executed.verdicts))


class Compared:
    """What a replay compares."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.own: dict[int, list[bytes]] = {}
        self.other: dict[int, list[bytes]] = {}
        self.lanes: list[Lane] = []
        compare, run = Comparison.compare, Engine.run

        def noted(comparison: Comparison, block: int, before: Executed, after: Executed) -> None:
            self.own[block], self.other[block] = encoded(before), encoded(after)
            compare(comparison, block, before, after)

        def running(engine: Engine, *given: Any) -> None:
            self.lanes = [replica.lane for replica in engine.replicas]
            run(engine, *given)

        monkeypatch.setattr(Comparison, "compare", noted)
        monkeypatch.setattr(Engine, "run", running)


@pytest.mark.parametrize("enactment", ["immediate", "on-inclusion"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_both_sides_continue_the_lane_with_all_that_its_state_holds(
    protocol: str, enactment: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = chain(replace(SETTINGS, enactment=enactment), protocol)
    config = configured(of)
    compared = Compared(monkeypatch)
    own = case_of("own", config, LANE)
    (same,) = other_cases(config, config, "same", LANE, None)
    for begin in (2, FROM, FROM + 1):
        compared.own.clear()
        replayed = replay(inputs_of(of.records, protocol), own, [same], from_block=begin)
        expected = {
            executed.receipt.block: encoded(executed)
            for executed in uninterrupted(of, protocol)
            if executed.receipt.block >= begin
        }
        assert compared.own == expected
        assert compared.other == expected
        assert (replayed.first_block, replayed.last_block) == (begin, BLOCKS)
        assert replayed.levels.samples == replayed.comparisons[0].levels.samples
        assert {executed.block for executed in replayed.levels.samples} == set(expected)
        compared.other.clear()


def test_samples_from_a_block_on_match_those_of_the_whole_lane() -> None:
    of = chain(SETTINGS)
    config = configured(of)
    own = case_of("own", config, LANE)
    (same,) = other_cases(config, config, "same", LANE, None)
    whole, part = (replay(inputs_of(of.records), own, [same], from_block=begin) for begin in (None, FROM))
    assert part.levels.samples == [sample for sample in whole.levels.samples if sample.block >= FROM]


def in_force(of: Chain, before: int) -> Any:
    """Return the limits in force before a block."""
    lane = definition_of(of).create()
    for item in inputs_of([each for each in of.records if each.block < before]):
        assert isinstance(item, Input)
        lane.add(item)
    for _ in lane.execute_ready():
        pass
    return lane.rules.state.host_configuration


def test_other_side_has_the_limits_in_force_but_for_those_that_its_configuration_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of = chain(SETTINGS)
    given = definition_of(of).create().rules.state.host_configuration
    now = in_force(of, FROM)
    raised = next(
        name
        for name in given.__slots__
        if getattr(given, name) != getattr(now, name) and name != "hrmp_max_message_num_per_candidate"
    )
    limits = {**of.table["host_configuration"], "hrmp_max_message_num_per_candidate": 1}
    config = configured(of)
    compared = Compared(monkeypatch)
    own = case_of("own", config, LANE)

    def other_limits(other: Config | None, sweep: Sweep | None = None, changes: Changes = UNCHANGED) -> Any:
        (case,) = other_cases(config, other, "other", LANE, sweep, changes)
        replay(inputs_of(of.records), own, [case], from_block=FROM, to_block=FROM)
        lane, another = compared.lanes
        assert lane.rules.state.host_configuration == now
        return another.rules.state.host_configuration

    assert other_limits(configured(of, host_configuration=limits)) == replace(now, hrmp_max_message_num_per_candidate=1)
    changed = {**limits, raised: getattr(given, raised) + 1}
    assert other_limits(configured(of, host_configuration=changed)) == replace(
        now, hrmp_max_message_num_per_candidate=1, **{raised: getattr(given, raised) + 1}
    )
    # a sweep and `--set` say that they want the value, though the chain began with the same one
    lowered = replace(now, **{raised: getattr(given, raised)})
    assert other_limits(None, Sweep(raised, (getattr(given, raised),))) == lowered
    assert other_limits(None, changes=Changes(limits={raised: getattr(given, raised)})) == lowered


@pytest.mark.parametrize(
    ("protocol", "limit", "field"),
    [
        ("early-hrmp", "hrmp_channel_max_places", "configuration"),
        ("xcmp", "xcmp_max_outbound_channels", "configuration"),
        ("xcmp-network", "max_block_bytes", "network"),
        ("xcmp-network", "xcmp_channel_capacity", "configuration"),
    ],
)
def test_every_protocol_takes_another_limit_in_the_middle_of_a_chain(
    protocol: str, limit: str, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = chain(SETTINGS, protocol)
    config = configured(of)
    compared = Compared(monkeypatch)
    (case,) = other_cases(config, None, "own", LANE, Sweep(limit, (1,)))
    replay(inputs_of(of.records, protocol), case_of("own", config, LANE), [case], from_block=FROM, to_block=FROM)
    own, other = (getattr(lane.rules.state, field) for lane in compared.lanes)
    assert other == replace(own, **{limit: 1})
    assert other != own


def test_modes_are_those_of_the_other_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    of = chain(SETTINGS)
    config, other = configured(of), configured(of, balances="unlimited")
    compared = Compared(monkeypatch)
    (case,) = other_cases(config, other, "other", LANE, None)
    replay(inputs_of(of.records), case_of("own", config, LANE), [case], from_block=FROM, to_block=FROM)
    assert [lane.rules.state.balances_mode.value for lane in compared.lanes] == ["ledger", "unlimited"]


def test_what_cannot_change_in_the_middle_of_a_chain_is_refused() -> None:
    of = chain(SETTINGS, "xcmp-network")
    config = configured(of)
    with pytest.raises(UserError, match="lane polkadot: channels: expected the same"):
        continued(config, definition_of(of), definition_of(of).create(), {"channels"})


def test_protocol_that_cannot_change_limits_in_the_middle_of_a_chain_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    of = chain(SETTINGS)
    config, definition = configured(of), definition_of(of)
    lane = definition.create()
    without = replace(definition.protocol, reconfigure=None)
    monkeypatch.setattr(LaneDefinition, "protocol", without)
    assert continued(config, definition, lane, ()).rules.state_root() == lane.rules.state_root()
    with pytest.raises(UserError, match="protocol router cannot take other limits or modes"):
        continued(config, definition, lane, {"hrmp_channel_max_places"})
