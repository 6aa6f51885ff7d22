# SPDX-License-Identifier: Apache-2.0
"""Where a lane starts, and the digest of the settings that decide its verdicts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from validator_simulators import SimulationSettings

from tests.unit.lanes.chains import Chain, chain, config_of, definition_of
from validator.config import Config
from validator.core.rules import pages
from validator.core.types import Enactment
from validator.errors import UserError
from validator.lanes.configured import (
    chain_runtime,
    imported_state_path,
    job_directory,
    lane_definition,
    lane_definitions,
)
from validator.lanes.definition import LaneDefinition
from validator.plugin import runtime
from validator.plugin.registry import discover
from validator.protocols.router.rules import ROUTER
from validator.protocols.router.traces import view
from validator.resources import state_directory

CHAIN = chain(SimulationSettings(seed=5, blocks=1, first_block=1000))
STATE = {"valid_paras": [2000, 2001], "watermarks": {"2000": 8}, "balances": {"2000": {"free": 5}}}


def state_of(definition: LaneDefinition) -> dict[str, Any]:
    rules = definition.create().rules
    assert rules.rule_set is ROUTER
    return view(rules.state)


def table(**changed: Any) -> Chain:
    """Return the chain with changed keys and without genesis paras, which a state file excludes."""
    kept = {key: value for key, value in CHAIN.table.items() if key != "genesis_paras"}
    return Chain(CHAIN.lane, {**kept, **changed}, (), ())


def write(path: Path, document: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)


def test_chain_starts_with_genesis_paras() -> None:
    definition = definition_of(CHAIN)
    state = state_of(definition)
    assert state["valid_paras"] == [para["para_id"] for para in CHAIN.table["genesis_paras"]]
    assert state["balances"] == {
        str(para["para_id"]): {"free": para["balance"], "reserved": 0} for para in CHAIN.table["genesis_paras"]
    }
    assert definition.create().executed_block == 999
    assert pages(definition.create().rules) == list(definition.genesis)


def test_unknown_protocol_is_refused_in_one_line_with_installed_ones() -> None:
    known = ", ".join(sorted({found.name for found in discover("validator.protocols")}))
    with pytest.raises(UserError) as caught:
        definition_of(CHAIN, protocol="xcm")
    assert str(caught.value) == (
        f"chain {CHAIN.lane}: xcm: no installed plugin of group validator.protocols has this name: "
        f"install it; installed are: {known}"
    )


def test_lane_settings_come_from_configuration() -> None:
    job = {"blocks_ahead_max": 3, "waiting_bytes_max": 4, "duplicate_window_blocks": 5}
    job |= {"headroom_interval_blocks": 6, "root_interval_blocks": 7}
    weights = {"ump_weights": {"AB": 9}, "ump_default_weight": 8, "ump_failing_messages": ["cd"]}
    definition = definition_of(CHAIN, job, enactment="on-inclusion", **weights)
    settings = definition.settings
    assert (settings.blocks_ahead_max, settings.waiting_bytes_max, settings.duplicate_window_blocks) == (3, 4, 5)
    assert (settings.intervals.headroom, settings.intervals.root) == (6, 7)
    assert definition.enactment is Enactment.ON_INCLUSION
    assert definition.upward_weights == {b"\xab": 9}
    assert (definition.upward_default_weight, definition.upward_failing) == (8, frozenset({b"\xcd"}))


def test_small_chain_emits_headroom_with_every_block_by_default(tmp_path: Path) -> None:
    def interval(paras: int, **job: int) -> int:
        genesis = [{"para_id": 2000 + at} for at in range(paras)]
        return definition_of(table(genesis_paras=genesis), job).settings.intervals.headroom

    assert (interval(16), interval(17), interval(16, headroom_interval_blocks=5)) == (1, 10, 5)
    assert interval(16, headroom_interval_blocks=0) == 0, "at session changes only"
    of_state = definition_of(table(state=write(tmp_path / "state.json", STATE)))
    assert of_state.settings.intervals.headroom == 10


@pytest.mark.parametrize(("shape", "first_block"), [("whole", 5000), ("keys", 1000), ("keys and first_block", 7)])
def test_chain_may_start_from_state_file(shape: str, first_block: int, tmp_path: Path) -> None:
    documents = {
        "whole": {"first_block": 5000, "state": STATE},
        "keys": STATE,
        "keys and first_block": {**STATE, "first_block": 7},
    }
    definition = definition_of(table(state=write(tmp_path / "state.json", documents[shape])))
    assert definition.create().executed_block == first_block - 1
    assert {key: state_of(definition)[key] for key in ("valid_paras", "watermarks")} == {
        "valid_paras": [2000, 2001],
        "watermarks": {"2000": 8},
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "No such file"),
        ("{", "not JSON"),
        ("[1]", "expected an object"),
        ("{}", "expected the keys of a state, alone or under the key state, found {}"),
        ('{"first_block": 7}', "expected the keys of a state"),
        ('{"first_block": 0, "state": {}}', "first_block: expected a block from 1 on, found 0"),
        ('{"first_block": "x", "state": {}}', "first_block: expected an integer"),
        ('{"state": {"watermarks": 1}}', "state.watermarks: expected an object"),
        ('{"state": 4}', "state: expected an object, found 4"),
    ],
)
def test_unusable_state_file_is_refused_in_one_line(text: str | None, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as error:
        definition_of(table(state=str(path)))
    assert str(error.value).startswith(str(path))
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


def test_imported_state_is_used_unless_configuration_names_one(tmp_path: Path) -> None:
    config = config_of(table(), job={"directory": str(tmp_path)})
    before = lane_definition(config, CHAIN.lane)
    imported = imported_state_path(config, CHAIN.lane)
    assert imported.is_relative_to(tmp_path)
    write(imported, {"first_block": 20, "state": STATE})
    after = lane_definition(config, CHAIN.lane)
    assert (before.create().executed_block, after.create().executed_block) == (999, 19)
    assert state_of(after)["valid_paras"] == [2000, 2001]
    assert before.runtime_digest != after.runtime_digest

    write(imported, {"first_block": 21, "state": STATE})
    assert lane_definition(config, CHAIN.lane).runtime_digest not in (before.runtime_digest, after.runtime_digest)
    named = config_of(table(state=write(tmp_path / "named.json", STATE)), job={"directory": str(tmp_path)})
    assert lane_definition(named, CHAIN.lane).create().executed_block == 999, "the configuration takes precedence"


def test_every_chain_has_own_lane_and_import(tmp_path: Path) -> None:
    other = Chain("kusama", table().table, (), ())
    config = config_of(table(), other, job={"directory": str(tmp_path)})
    write(imported_state_path(config, "kusama"), {"first_block": 20, "state": STATE})
    definitions = lane_definitions(config)
    assert {lane: each.create().executed_block for lane, each in definitions.items()} == {"kusama": 19, "polkadot": 999}
    assert {lane: each.name for lane, each in definitions.items()} == {"kusama": "kusama", "polkadot": "polkadot"}


CHANGES: dict[str, Any] = {
    "enactment": "on-inclusion",
    "balances": "unlimited",
    "hrmp_notifications": True,
    "first_block": 1001,
    "host_configuration": {**CHAIN.table["host_configuration"], "hrmp_open_request_ttl": 99},
    "genesis_paras": CHAIN.table["genesis_paras"][1:],
    "ump_default_weight": 77,
    "ump_weights": {**CHAIN.table["ump_weights"], "00ff00": 1},
    "ump_message_weight_max": 1_000,
    "ump_failing_messages": [*CHAIN.table["ump_failing_messages"], "00ff00"],
}


@pytest.mark.parametrize("key", CHANGES)
def test_setting_that_decides_verdicts_changes_digest(key: str) -> None:
    assert CHANGES[key] != CHAIN.table.get(key)
    assert definition_of(CHAIN, **{key: CHANGES[key]}).runtime_digest != definition_of(CHAIN).runtime_digest


def test_every_chain_key_is_covered_by_digest_tests() -> None:
    fields = type(config_of(CHAIN).chains[CHAIN.lane]).model_fields
    assert {*fields, "host_configuration"} == {*CHANGES, "protocol", "limits", "state", "handlers", "rules", "names"}


def test_product_version_changes_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    one = config_of(CHAIN).chains[CHAIN.lane]
    before = chain_runtime(one, CHAIN.lane).digest
    monkeypatch.setattr(runtime, "__version__", "another")
    runtime.make_runtime.cache_clear()
    assert chain_runtime(one, CHAIN.lane).digest != before
    monkeypatch.undo()
    runtime.make_runtime.cache_clear()


def test_setting_without_effect_on_verdicts_keeps_digest() -> None:
    definition = definition_of(CHAIN)
    assert (
        definition_of(CHAIN, {"blocks_ahead_max": 3, "max_records_per_trigger": 9}).runtime_digest
        == definition.runtime_digest
    )
    backwards = definition_of(CHAIN, genesis_paras=CHAIN.table["genesis_paras"][::-1])
    assert backwards == definition
    assert replace(backwards, name="other").runtime_digest == definition.runtime_digest


def test_job_directory_comes_from_configuration_or_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert job_directory(config_of(job={"directory": str(tmp_path)})) == tmp_path
    monkeypatch.setenv("VALIDATOR_HOME", str(tmp_path / "home"))
    assert job_directory(Config()) == state_directory() / "job"


def test_job_directory_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert job_directory(config_of(job={"directory": "job-2"})) == tmp_path / "job-2"
