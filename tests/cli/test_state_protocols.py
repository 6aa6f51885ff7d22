# SPDX-License-Identifier: Apache-2.0
"""`validator state show` of lanes whose protocol is a plugin, by its own view or by the state keys of its traces."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from validator_simulators.settings import SimulationSettings

from tests.cli.follower import invoke
from tests.cli.stored_job import BATCH, refused, write_store
from tests.protocol_from_outside import FILES, NAME
from tests.throwaway import importable, install
from tests.unit.lanes.backend import Store
from tests.unit.lanes.chains import chain, inputs_of
from validator.ask import state
from validator.config import load_config
from validator.config.toml import to_toml
from validator.lanes.configured import lane_definition
from validator.lanes.store import LaneCache, process_batch, restore_lane
from validator.plugin.runtime import installed_protocol

if TYPE_CHECKING:
    from pathlib import Path

    from validator.core.inputs import DeadLetter, Input
    from validator.core.rules import RuleSet

LANE = "rococo"
PARAS = [{"para_id": 2000, "balance": 5}, {"para_id": 2001, "balance": 1_000_000}]


@dataclass
class Stored:
    """A lane in a checkpoint that the command reads in this process."""

    config_path: Path
    rules: RuleSet

    def show(self, *arguments: str) -> Any:
        return invoke("state", "show", f"--lane={LANE}", *arguments, f"--config={self.config_path}")

    def shown(self, *arguments: str) -> dict[str, Any]:
        result = self.show(*arguments, "--json")
        assert result.exit_code == 0, result.output
        document: dict[str, Any] = json.loads(result.stdout)
        return document


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Stored]:
    """Make the checkpoint of a job that took one batch of one lane."""

    def make(table: dict[str, Any], items: list[Input | DeadLetter]) -> Stored:
        path = tmp_path / "validator.toml"
        job = {"directory": str(tmp_path / "job")}
        path.write_text(to_toml({"job": job, "chains": {LANE: table}}), encoding="utf-8")
        definition, store = lane_definition(load_config(path), LANE), Store()
        attempt = store.attempt()
        list(process_batch(definition, attempt, LaneCache(), [items]))
        store.commit(attempt)
        commits = tmp_path / "job" / "checkpoint" / "commits"
        commits.mkdir(parents=True)
        (commits / str(BATCH)).write_text("v1\n{}")
        monkeypatch.setattr(
            state, "read_checkpoint", lambda _, output, lanes: write_store(output, store, {}, lanes, LANE)
        )
        worker = restore_lane(definition, store.attempt())
        assert worker is not None
        return Stored(path, worker.lane.rules)

    return make


@pytest.mark.parametrize("protocol", ["early-hrmp", "xcmp"])
def test_protocol_without_a_view_is_shown_by_its_state_keys(protocol: str, stored: Callable[..., Stored]) -> None:
    of = chain(SimulationSettings(seed=31, blocks=40, lane=LANE), protocol)
    lane = stored(of.table, inputs_of(of.records, protocol))
    definition = installed_protocol(protocol)
    assert definition is not None
    view = json.loads(json.dumps(definition.traces.view(lane.rules)))
    document = lane.shown()
    assert document["state"] == view
    assert document["executed_block"] == 40
    assert "kept_by_plugins" not in document
    text = lane.show().stdout
    assert f"{LANE} · after block 40 · batch {BATCH}" in text
    for key, value in view.items():
        assert [key, f"{len(value):,}"] in [line.split() for line in text.splitlines()], text

    para = int(next(iter(view["watermarks"])))
    about = lane.shown(f"--para={para}")
    assert about["state"]["watermarks"] == {str(para): view["watermarks"][str(para)]}
    assert about["state"]["paras"] == [para]
    assert "watermarks (1)" in lane.show(f"--para={para}").stdout
    refused(lane.show("--para=99999"), "knows no para 99999 after block 40; valid paras: ")
    refused(lane.show("--channel=1,2"), "has no channel 1,2 and no request for it; channels of either para: none")
    refused(
        lane.show("--plugin=remark"), "--plugin: remark keeps nothing in lane rococo after block 40; these do: none"
    )


def test_protocol_with_a_view_shows_ingress_queues(stored: Callable[..., Stored]) -> None:
    of = chain(SimulationSettings(seed=31, blocks=41, lane=LANE), "xcmp-network")
    lane = stored(of.table, inputs_of(of.records, "xcmp-network"))
    definition = installed_protocol("xcmp-network")
    assert definition is not None
    view = json.loads(json.dumps(definition.traces.view(lane.rules)))
    document = lane.shown()
    assert document["state"] == view
    assert (document["channels"], document["intra_block"], document["require_bodies"]) == ("xcmp", "prefix", True)
    assert "ingress queues (" in lane.show().stdout

    recipient, unread = next(iter(view["ingress"].items()))
    about = lane.shown(f"--para={recipient}")["state"]
    assert [[each["sent_at"], each["sender"]] for each in about["ingress"]] == unread
    assert about["watermark"] == view["watermarks"].get(recipient, {"block": 0, "acked": []})
    assert f"ingress queue ({len(unread)})" in lane.show(f"--para={recipient}").stdout

    block, sender = unread[0]
    channel = lane.shown(f"--channel={sender},{recipient}")
    assert channel["state"]["unread"][0]["sent_at"] == block
    assert f"unread ({len(channel['state']['unread'])})" in lane.show(f"--channel={sender},{recipient}").stdout
    egress = lane.shown(f"--para={sender}")["state"]["egress"]
    assert [[each["sent_at"], each["recipient"]] for each in egress] == sorted(view["egress"][str(sender)])
    refused(lane.show("--para=99999"), "knows no para 99999")
    refused(lane.show(f"--channel={sender},99999"), f"has no channel {sender},99999")


def test_channel_is_shown_by_the_state_keys_that_name_it(stored: Callable[..., Stored]) -> None:
    of = chain(SimulationSettings(seed=31, blocks=40, lane=LANE), "early-hrmp")
    lane = stored(of.table, inputs_of(of.records, "early-hrmp"))
    channels = lane.shown()["state"]["channels"]
    name = next(iter(channels))
    sender, recipient = name.split("->")
    document = lane.shown(f"--channel={sender},{recipient}")
    assert document["channel"] == [int(sender), int(recipient)]
    assert document["state"]["channels"] == {name: channels[name]}
    assert document["state"]["watermarks"] == {}
    shown = lane.show(f"--channel={sender},{recipient}").stdout
    assert f"channel {sender} -> {recipient}" in shown
    assert "sender_deposit" in shown
    refused(lane.show(f"--channel={sender},9"), f"channels of either para: {sender},{recipient}")


def test_protocol_from_outside_is_shown_by_its_view(stored: Callable[..., Stored], tmp_path: Path) -> None:
    with importable(install(tmp_path / "plugins", FILES)):
        lane = stored({"protocol": NAME, "caps": {"preset": "large"}, "genesis_paras": PARAS}, [])
        document = lane.shown()
        assert (document["places"], document["state"]) == (500, {"paras": PARAS})
        text = lane.show().stdout
        assert "paras of outside" in text
        assert ["2001"] in [line.split() for line in text.splitlines()]
        assert lane.shown("--para=2001")["state"] == {"registered": True}
        assert "1,000,000 [units]" in lane.show("--para=2001").stdout
        refused(lane.show("--para=7"), "knows no para 7 after block 0; valid paras: 2000, 2001")
        refused(lane.show("--channel=2000,2001"), "has no channel 2000,2001")


def test_exported_state_of_a_protocol_from_outside_is_imported(stored: Callable[..., Stored], tmp_path: Path) -> None:
    with importable(install(tmp_path / "plugins", FILES)):
        exported = tmp_path / "STATE.json"
        exported.write_text(json.dumps(stored({"protocol": NAME, "genesis_paras": PARAS}, []).shown()))
        other = tmp_path / "other.toml"
        job = {"directory": str(tmp_path / "other")}
        other.write_text(to_toml({"job": job, "chains": {LANE: {"protocol": NAME, "caps": {"preset": "small"}}}}))
        result = invoke("lanes", "import", str(exported), f"--lane={LANE}", f"--config={other}")
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith(f"lane {LANE} starts with block 1: 2 paras; stored as ")
        rules: Any = lane_definition(load_config(other), LANE).create().rules
        assert sorted(rules.state.paras) == [2000, 2001]
        assert rules.state.configuration.hrmp_channel_max_places == 2
        refused_file = tmp_path / "refused.json"
        refused_file.write_text('{"paras": 3}')
        line = invoke("lanes", "import", str(refused_file), f"--lane={LANE}", f"--config={other}")
        refused(line, "refused.json.paras: expected an array, found 3")


def test_protocol_without_state_files_is_refused_in_one_line(tmp_path: Path) -> None:
    config_path, file = tmp_path / "validator.toml", tmp_path / "STATE.json"
    file.write_text("{}")
    job = {"directory": str(tmp_path / "job")}
    config_path.write_text(to_toml({"job": job, "chains": {LANE: {"protocol": "early-hrmp"}}}))
    result = invoke("lanes", "import", str(file), f"--lane={LANE}", f"--config={config_path}")
    refused(result, f"chains.{LANE}.state: protocol early-hrmp cannot start from a state file")
