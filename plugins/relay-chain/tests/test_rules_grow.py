# SPDX-License-Identifier: Apache-2.0
"""Rules that grow with an upgrade while a lane follows: no block goes out before the configuration has its rules, and none twice."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from relay_world import FIRST, LANE, SPEC, empty_chain, load
from validator_relay_chain import command
from validator_relay_chain import transport as followed
from validator_relay_chain.archive import KeptChain
from validator_relay_chain.command import adopt_rules, wanted_rules
from validator_relay_chain.errors import FollowError, RulesWanted
from validator_relay_chain.rules import FILE, read_rules
from validator_relay_chain.source import Chain
from validator_simulators.relay_chain import MockNode
from validator_simulators.relay_chain.made import MadeCandidate, MadeChain

from validator.cli.command_api import UserError, lanes_to_restart, load_config
from validator.lanes.configured import lane_definition
from validator.lanes.kept_start import keep_start, start_of
from validator.testing.transport import MemoryTransport

LATER = 1_000_000
"""A runtime with rules that metadata does not show: `dmp_by_relay_parent` is among them."""
UPGRADE, CHANGE = FIRST + 5, FIRST + 10
"""Blocks after which other code runs: first a version with the same rules, then one with others."""
LAST = FIRST + 16


def upgraded_chain() -> MadeChain:
    chain = empty_chain()
    for number in range(FIRST, LAST + 1):
        pending = sorted(chain._pending)
        chain.add(
            included=pending, backed=[MadeCandidate(2000, chain.parent, number - 1)],
            upgrade_to={UPGRADE: SPEC + 1, CHANGE: LATER}.get(number),
        )  # fmt: skip
    for version in (SPEC + 1, LATER):
        chain.recording.put_metadata(str(version), chain.recording.metadata[str(SPEC)])
    return chain


@pytest.fixture(autouse=True)
def metadata_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode each metadata once for all tests: it takes half a second."""
    monkeypatch.setattr(command, "Chain", lambda pool, cache: Chain(pool, cache, load))
    monkeypatch.setattr(followed, "KeptChain", lambda pool, cache, **named: KeptChain(pool, cache, load, **named))


@pytest.fixture
def node() -> Iterator[MockNode]:
    with MockNode(upgraded_chain().recording, head=FIRST + 1) as node:
        yield node


@pytest.fixture
def config_path(node: MockNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Prepare a lane before the upgrades, in the working directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "validator.toml"
    prepared(path, node, LAST)
    node.finalise(LAST)
    path.write_text(f"# a comment of its owner\n{path.read_text()}\n[job]\ndirectory = 'job'\n")
    path.chmod(0o600)
    return path


def prepared(path: Path, node: MockNode, last: int) -> None:
    command._prepare(path, LANE, [node.url], None, last)


def transport(config_path: Path) -> MemoryTransport:
    return MemoryTransport("relay-chain", load_config(config_path).transports["relay-chain"], transport="relay-chain")


def blocks(memory: MemoryTransport) -> list[int]:
    return [memory.forms.decode(topic, value)["block"] for topic, _, value in memory.submitted if topic == "blocks"]


def test_no_block_goes_out_before_the_configuration_has_its_rules(
    config_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = transport(config_path)
    for _ in range(2):  # a start without the rules changes nothing
        with pytest.raises(RulesWanted, match=rf"block {CHANGE + 1} is the first one under runtime polkadot {LATER}, "):
            memory.run()
        assert blocks(memory) == list(range(FIRST + 1, CHANGE + 1))
    (before, after) = (read_rules(config_path.parent / LANE), load_config(config_path).chains[LANE])
    assert before.wanted is not None
    assert "dmp_by_relay_parent" in before.wanted.features
    assert [each.from_block for each in after.rules] == [0]

    adopt_rules(config_path)
    told = capsys.readouterr().err
    assert "+ force_open_channel" in told or "+ dmp_by_relay_parent" in told
    text = config_path.read_text()
    assert text.startswith("# a comment of its owner\n")
    assert config_path.stat().st_mode & 0o777 == 0o600
    config = load_config(config_path)
    assert [each.from_block for each in config.chains[LANE].rules] == [0, CHANGE + 1]
    assert wanted_rules(config) == {}
    definition = lane_definition(config, LANE)
    assert definition.digest_at(CHANGE) != definition.digest_at(CHANGE + 1)
    memory.run()
    assert blocks(memory) == list(range(FIRST + 1, LAST + 1))


def test_records_are_those_of_a_lane_that_knew_the_rules_from_the_beginning(
    config_path: Path, node: MockNode, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = transport(config_path)
    with pytest.raises(RulesWanted):
        memory.run()
    adopt_rules(config_path)
    memory.run()
    other = tmp_path_factory.mktemp("other")
    monkeypatch.chdir(other)
    command._prepare(other / "validator.toml", LANE, [node.url], FIRST + 2, LAST)
    knowing = transport(other / "validator.toml")
    knowing.run()
    assert memory.submitted == knowing.submitted
    assert memory.cursors == knowing.cursors
    rules = [load_config(path / "validator.toml").chains[LANE].rules for path in (config_path.parent, other)]
    assert rules[0] == rules[1]


def test_killed_while_rules_are_added_the_next_start_adds_them_once(
    config_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = transport(config_path)
    with pytest.raises(RulesWanted):
        memory.run()
    wanted = (config_path.parent / LANE / FILE).read_text()
    adopt_rules(config_path)
    (config_path.parent / LANE / FILE).write_text(wanted)  # the configuration was written, the folder was not
    text = config_path.read_text()
    adopt_rules(config_path)
    assert config_path.read_text() == text
    assert read_rules(config_path.parent / LANE).wanted is None
    memory.run()
    assert blocks(memory) == list(range(FIRST + 1, LAST + 1))


def test_job_of_before_is_noticed_until_it_has_started_again(config_path: Path) -> None:
    memory = transport(config_path)
    with pytest.raises(RulesWanted):
        memory.run()
    started(config_path)
    adopt_rules(config_path)
    behind = lanes_to_restart(load_config(config_path))
    assert behind() == [LANE]
    started(config_path)
    assert behind() == []


def started(config_path: Path) -> None:
    """Keep what a job keeps when it starts."""
    config = load_config(config_path)
    keep_start(Path("job") / "lanes", LANE, start_of(config, lane_definition(config, LANE)))


def test_command_adds_the_rules_waits_for_the_job_and_goes_on(
    config_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, waited = transport(config_path), list[str]()

    def run(name: str, path: Path, *_: object) -> bool:
        try:
            memory.run()
        except FollowError as error:
            raise UserError(str(error)) from error
        return True

    def start_again(_: float) -> None:
        waited.append("restarted")
        started(config_path)

    started(config_path)
    monkeypatch.setattr(command, "run_transport", run)
    monkeypatch.setattr(command, "connected", load_config)
    monkeypatch.setattr(command, "_agreement", lambda *_: None)
    monkeypatch.setattr(command, "time", SimpleNamespace(sleep=start_again, monotonic=time.monotonic))
    command.follow(lane=LANE, config_path=config_path, judge=False)
    assert waited == ["restarted"]
    measured = memory.measured()
    assert [measured[name, LANE] for name in ("followed_block", "blocks_behind")] == [LAST, 0]
    assert measured["node_requests_total", LANE] > LAST - FIRST
    assert blocks(memory) == list(range(FIRST + 1, LAST + 1))


def test_entry_that_the_job_would_refuse_leaves_the_configuration_as_it_is(config_path: Path) -> None:
    memory = transport(config_path)
    with pytest.raises(RulesWanted):
        memory.run()
    later = f"[[chains.{LANE}.rules]]\nfrom_block = {LAST}\nfeatures = []\n"
    config_path.write_text(text := config_path.read_text() + later)
    with pytest.raises(UserError, match=rf"cannot take the rules from block {CHANGE + 1} on: "):
        adopt_rules(config_path)
    assert config_path.read_text() == text
    assert [each.name for each in config_path.parent.glob("*.new")] == []


@pytest.mark.parametrize("content", ["", "[]", '{"version": 2}', '{"version": 1, "entries": [3], "wanted": null}'])
def test_file_that_has_no_rules_is_one_line(content: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(FollowError, match=r"rules.json: expected rules by height, version 1, found "):
        read_rules(tmp_path)


def test_lane_of_an_earlier_version_stops_before_a_new_runtime_and_keeps_its_rules(config_path: Path) -> None:
    (config_path.parent / LANE / FILE).unlink()
    memory = transport(config_path)
    with pytest.raises(RulesWanted, match=rf"block {UPGRADE + 1} is the first one"):
        memory.run()
    adopt_rules(config_path)
    rules: Any = load_config(config_path).chains[LANE].rules
    assert rules[0].features == rules[1].features
    assert json.loads((config_path.parent / LANE / FILE).read_text())["wanted"] is None
