# SPDX-License-Identifier: Apache-2.0
"""`validator replay` says what a trace says in vain, and with --no-skip fails then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.router.generate import scenarios_of
from validator.cli.main import app

CHECKED = {"id": "x", "steps": [{"block": 1, "expect": {"dispatched": []}}]}


def replay(folder: Path, document: Any, *options: str) -> Result:
    file = folder / "trace.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    return CliRunner().invoke(app, ["replay", *options, str(file)])


def warnings(result: Result) -> list[str]:
    lines = result.stderr.splitlines()
    assert all(line.startswith("validator: warning: ") for line in lines)
    return [line.removeprefix("validator: warning: ") for line in lines]


STEP: dict[str, Any] = {"block": 1}
VAIN: dict[str, tuple[Any, str]] = {
    "no scenario": ([], "trace.json: holds no scenario"),
    "no step": ({"id": "idle", "steps": []}, "passes whatever comes out: idle"),
    "no expectation": ([CHECKED, {"id": "idle", "steps": [STEP]}], "passes whatever comes out: idle"),
    "an empty expectation": (
        {"id": "idle", "steps": [{**STEP, "expect": {"state": {"channels": {}}, "requests": []}}]},
        ": idle",
    ),
    "an unknown state key": (
        {"id": "x", "steps": [{**STEP, "expect": {"state": {"nonsense": None}}}]},
        "steps[0].expect.state: protocol router has no state key 'nonsense': null, 0 and [] always match",
    ),
    "an unknown final state key": (
        {**CHECKED, "final_state": {"nonsense": {}}},
        "final_state: protocol router has no state key 'nonsense'",
    ),
    "an unknown key": (
        {"id": "x", "steps": [{**STEP, "expect": {"dispatched": [], "note": "for people", "outcome": 1}}]},
        "steps[0].expect: nothing is compared with 'outcome'",
    ),
    "an unknown limit": (
        {**CHECKED, "config": {"preset": "polkadot-2023"}},
        "trace.json.config: protocol router has no limit 'preset'",
    ),
    "an unknown limit that changes": (
        {"id": "x", "steps": [{**STEP, "session_change": {"new_config": {"bogus": 1}}, "expect": {"dispatched": []}}]},
        "new_config: protocol router has no limit 'bogus': it is ignored",
    ),
}


@pytest.mark.parametrize("name", VAIN)
def test_what_is_said_in_vain_is_a_warning_and_fails_only_on_request(name: str, tmp_path: Path) -> None:
    document, words = VAIN[name]
    result = replay(tmp_path, document)
    assert result.exit_code == 0
    assert any(words in line for line in warnings(result)), result.stderr
    assert "FAIL" not in result.stdout
    assert replay(tmp_path, document, "--no-skip").exit_code == 1


def test_nothing_checked_is_said(tmp_path: Path) -> None:
    for document in ([], {"id": "x", "protocol": "absent", "steps": []}):
        assert "nothing was checked" in warnings(replay(tmp_path, document))


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_scenario_that_is_skipped_fails_only_on_request(options: tuple[str, ...], tmp_path: Path) -> None:
    document = [CHECKED, {"id": "y", "needs": ["teleportation"], "steps": []}]
    assert replay(tmp_path, document, *options).exit_code == 0
    failed = replay(tmp_path, document, "--no-skip", *options)
    assert (failed.exit_code, failed.stdout) == (1, replay(tmp_path, document, *options).stdout)


def test_protocol_that_is_not_installed_is_suggested(tmp_path: Path) -> None:
    result = replay(tmp_path, {"id": "x", "protocol": "ruter", "steps": []})
    assert result.stdout.splitlines()[0] == "SKIP x : protocol 'ruter' is not installed; did you mean 'router'?"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (
            {"channels": {"2000-2004": None}},
            "state.channels: expected a channel as the key, such as \"2000->2004\", found '2000-2004'",
        ),
        ({"channels": {"2000->2004->1": None}}, "state.channels: expected a channel"),
        ({"contents": {"2000": []}}, "state.contents: expected a channel"),
        ({"balances": {"x": None}}, "state.balances: expected a para as the key, such as \"2000\", found 'x'"),
        ({"dmq": {"abc": None}}, "state.dmq: expected a para"),
        ({"watermarks": {"02000": None}}, "state.watermarks: expected a para"),
        ({"watermarks": {str(2**32): None}}, "state.watermarks: expected a para"),
        ({"watermarks": {"9" * 5_000: None}}, "state.watermarks: expected a para"),
        ({"watermarks": {"\u0662": None}}, "state.watermarks: expected a para"),
    ],
)
def test_key_that_no_state_has_is_refused(state: Any, words: str, tmp_path: Path) -> None:
    final = replay(tmp_path, {"id": "x", "steps": [STEP], "final_state": state})
    assert final.exit_code == 2
    assert f"trace.json.final_{words}" in final.stderr
    document = {"id": "x", "steps": [{**STEP, "expect": {"state": state}}]}
    result = replay(tmp_path, document)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert f"trace.json.steps[0].expect.{words}" in line
    assert replay(tmp_path, document, "--json").exit_code == 0, "--json does not look at expect"


@pytest.mark.parametrize(
    ("protocol", "key"),
    [("early-hrmp", "channels"), ("early-hrmp", "dmq"), ("xcmp", "cst"), ("xcmp-network", "ingress")],
)
def test_keys_of_other_protocols_are_known(protocol: str, key: str, tmp_path: Path) -> None:
    document = {"id": "x", "protocol": protocol, "steps": [{**STEP, "expect": {"state": {key: {"a": None}}}}]}
    assert replay(tmp_path, document).exit_code == 2


def test_file_that_is_named_twice_is_played_twice(tmp_path: Path) -> None:
    replay(tmp_path, CHECKED)
    file = str(tmp_path / "trace.json")
    assert CliRunner().invoke(app, ["replay", file, file]).stdout.splitlines()[-1] == "2 passed, 0 failed"


def test_suite_says_nothing_in_vain(tmp_path: Path) -> None:
    result = replay(tmp_path, scenarios_of("order"), "--no-skip")
    assert (result.exit_code, result.stderr) == (0, "")
    for suite in ("router", "early-hrmp", "xcmp", "xcmp-network"):
        result = CliRunner().invoke(app, ["replay", "--no-skip", "--suite", suite])
        assert (result.exit_code, result.stderr) == (0, "")
