# SPDX-License-Identifier: Apache-2.0
"""The state that plugins keep in a lane: shown, exported, imported and verified."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.cli.follower import LANE, invoke
from tests.cli.stored_job import Job, refused
from tests.throwaway import files_of, importable, install
from tests.unit.lanes.test_upgrades import TALLY
from validator.config import load_config
from validator.config.toml import to_toml
from validator.core.handlers.state import HandlerStates
from validator.lanes.configured import lane_definition
from validator.protocols.router.rules import ROUTER

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _plugin(tmp_path: Path) -> Iterator[None]:
    with importable(install(tmp_path / "plugins", files_of("tally", "1.0.0", TALLY.format(event="counted")))):
        yield


@pytest.fixture
def followed(job: Callable[..., Job]) -> Job:
    """A job whose upward messages are counted by the plugin tally."""
    made = job()
    path = made.chain.config_path
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    chain = tables["chains"][LANE]
    for name in ("ump_weights", "ump_failing_messages"):
        chain.pop(name, None)
    chain["handlers"] = [{"name": "tally", "version": "1.0.0"}]
    path.write_text(to_toml(tables), encoding="utf-8")
    made.chain.config = load_config(path)
    made.follow(made.chain.records)
    assert kept(made), "an empty state would prove little"
    return made


def kept(followed: Job) -> list[tuple[bytes, bytes]]:
    states: HandlerStates = followed.state().handler_states
    return [(key, value) for _, key, value in states.entries("tally")]


def test_show_prints_active_plugins_and_their_bytes(followed: Job) -> None:
    document = followed.shown()
    router, tally = document["plugins"]
    assert (router.partition("@")[0], tally) == ("router", "tally@1.0.0")
    assert document["kept_by_plugins"] == [
        {"plugin": "tally", "keys": len(kept(followed)), "bytes": 8 * len(kept(followed))}
    ]
    printed = followed.show()
    assert printed.exit_code == 0, printed.output
    assert f"{router}, {tally}" in printed.stdout
    assert "kept by handlers" in printed.stdout


@pytest.mark.parametrize("limit", [2, 0])
def test_entries_of_a_plugin_are_listed_in_hex_up_to_a_limit(limit: int, followed: Job) -> None:
    entries = kept(followed)
    assert len(entries) > 2
    document = followed.shown("--plugin=tally", f"--limit={limit}")
    assert (document["plugin"], document["keys"], document["bytes"]) == ("tally", len(entries), 8 * len(entries))
    expected = entries[:limit] if limit else entries
    assert document["entries"] == [{"key": key.hex(), "value": value.hex()} for key, value in expected]
    table = followed.show("--plugin=tally", f"--limit={limit}").stdout
    assert [key.hex() in table for key, _ in entries] == [(key, value) in expected for key, value in entries]


def test_plugin_without_state_is_one_error_line(followed: Job) -> None:
    refused(
        followed.show("--plugin=remark"),
        "--plugin: remark keeps nothing in lane polkadot after block 30; these do: tally",
    )
    refused(followed.show("--plugin=tally", "--para=1000"), "found --para and --plugin")


def test_plugin_state_is_exported_and_imported(followed: Job, tmp_path: Path) -> None:
    exported = tmp_path / "STATE.json"
    exported.write_text(json.dumps(followed.shown()))
    other = tmp_path / "other.toml"
    text = followed.chain.config_path.read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    tables["job"]["directory"] = str(tmp_path / "elsewhere")
    tables["chains"][LANE].pop("genesis_paras", None)
    other.write_text(to_toml(tables), encoding="utf-8")
    result = invoke("lanes", "import", str(exported), f"--lane={LANE}", f"--config={other}")
    assert result.exit_code == 0, result.output
    rules = lane_definition(load_config(other), LANE).create().rules
    assert rules.rule_set is ROUTER
    assert [(key, value) for _, key, value in rules.state.handler_states.entries("tally")] == kept(followed)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({"Tally": {}}, "state.handler_states.Tally: expected a plugin's name as key, found 'Tally'"),
        ({"tally": {"0": ""}}, "expected bytes in hex, found"),
        ({"tally": {"": "00"}}, "expected a key of 1 to 128 bytes, found 0"),
        ({"tally": {"00" * 129: "00"}}, "expected a key of 1 to 128 bytes, found 129"),
        ({"tally": {"00": "00" * 65_537}}, "expected at most 65536 bytes, found 65537"),
        ({"tally": []}, "state.handler_states.tally: expected an object"),
    ],
)
def test_impossible_plugin_state_is_one_error_line(
    states: dict[str, object], expected: str, followed: Job, tmp_path: Path
) -> None:
    document = followed.shown()
    document["state"]["handler_states"] = states
    file = tmp_path / "STATE.json"
    file.write_text(json.dumps(document))
    refused(invoke("lanes", "import", str(file), f"--lane={LANE}", followed.chain.option()), expected)


def test_plugin_state_is_verified(followed: Job) -> None:
    printed = followed.verify()
    assert printed.exit_code == 0, printed.output
