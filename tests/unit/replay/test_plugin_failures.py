# SPDX-License-Identifier: Apache-2.0
"""A bug of a protocol's plugin is one line of `validator replay`: scenario, step, plugin, exception and place."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.unit.testing.made_protocol import CHECK, RAISES, make_protocol
from validator.cli.main import app
from validator.document import Node
from validator.errors import PluginFailed
from validator.plugin.runtime import installed_protocol
from validator.replay.run import read_vectors
from validator.replay.scenario import failures_of

ID = "a-para-has-a-limited-number-of-candidates-in-a-session"


def replay(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["replay", *map(str, arguments)])


def installed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, *changes: tuple[str, str], file: str = "rules.py"
) -> str:
    project = make_protocol(folder, name, *changes, file=file)
    monkeypatch.syspath_prepend(project / "src")
    return name


def test_exception_in_a_rule_fails_its_scenario_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = installed(tmp_path, monkeypatch, "quotaa", RAISES)
    good = tmp_path / "good.json"
    good.write_text(json.dumps({"id": "x", "steps": [{"block": 1, "expect": {"dispatched": []}}]}))
    result = replay("--suite", name, good)
    assert result.exit_code == 1
    assert result.stderr == ""
    other, failed, total = sorted(result.stdout.splitlines(), reverse=True)
    assert (other, total) == ("PASS x ", "1 passed, 1 failed")
    line = (tmp_path / f"validator-{name}/src/validator_{name}/rules.py").read_text().split("assert state.block")[0]
    assert failed.endswith(
        f"step 0 (block 1): candidates[0]: plugin {name} of validator-{name} 0.1.0 raised AttributeError at "
        f"validator_{name}/rules.py:{line.count(chr(10)) + 1}: 'CountingState' object has no attribute 'block'"
    )
    assert failed.startswith(f"FAIL {name}/{ID} ")


def test_traceback_is_shown_only_if_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = installed(tmp_path, monkeypatch, "quotab", RAISES)
    result = CliRunner().invoke(app, ["-v", "replay", "--suite", name])
    assert result.exit_code == 1
    assert "Traceback (most recent call last)" in result.stderr
    assert result.stderr.endswith("AttributeError: 'CountingState' object has no attribute 'block'\n")


def test_output_ends_with_one_line_that_names_the_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = installed(tmp_path, monkeypatch, "quotac", RAISES)
    result = replay("--json", "--suite", name)
    assert (result.exit_code, result.stdout) == (70, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"validator: scenario {name}/{ID}: step 0 (block 1): candidates[0]: plugin {name} of ")


def test_exception_while_a_file_is_read_names_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change = (
        "def read_candidate(node: Node, block: BlockNumber) -> Candidate:",
        "def read_candidate(node: Node) -> Candidate:",
    )
    name = installed(tmp_path, monkeypatch, "quotad", change, file="records.py")
    result = replay("--suite", name)
    assert (result.exit_code, result.stdout) == (70, "")
    (line,) = result.stderr.splitlines()
    assert (
        f"counting.json[0].steps[0].candidates[0]: plugin {name} of validator-{name} 0.1.0 raised TypeError at " in line
    )


def test_place_is_in_the_plugin_even_if_it_called_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = installed(
        tmp_path,
        monkeypatch,
        "quotae",
        (CHECK, f"{CHECK}    state.touched.pages.update(5)\n    __import__('json').loads('')\n"),
    )
    protocol = installed_protocol(name)
    assert protocol is not None
    result = replay("--suite", name)
    assert f"at validator_{name}/rules.py:" in result.stdout


def test_exception_without_a_text_or_a_plugin_is_described() -> None:
    protocol = installed_protocol("router")
    assert protocol is not None
    with (
        pytest.raises(PluginFailed, match=r"^here: plugin router of validator \S+ raised KeyError at \S+\.py:\d+$"),
        failures_of(protocol, "here"),
    ):
        raise KeyError


def test_exception_for_a_vector_names_its_entry() -> None:
    protocol = installed_protocol("xcmp")
    assert protocol is not None
    broken = replace(protocol, traces=replace(protocol.traces, vectors=lambda _group, entry: {}[entry.path]))
    document = Node({"format": "xcmp-vectors/1", "msg_hash": [{"payload": "00"}]}, "file")
    with pytest.raises(
        PluginFailed, match=r"^file\.msg_hash\[0\]: plugin xcmp of validator-xcmp \S+ raised KeyError at "
    ):
        list(read_vectors(document, broken))
