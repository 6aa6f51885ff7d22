# SPDX-License-Identifier: Apache-2.0
"""`validator replay` looks for protocols once, and compares exact sets of any state key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from validator.cli import replay as replay_module
from validator.cli.main import app
from validator.plugin.runtime import installed_protocol

SCENARIO = {"id": "x", "steps": [{"block": 1}]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


def write(file: Path, document: Any) -> Path:
    file.write_text(json.dumps(document), encoding="utf-8")
    return file


def replay(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["replay", *map(str, arguments)])


def test_each_protocol_is_looked_for_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_for: list[str] = []

    def find(name: str) -> Any:
        looked_for.append(name)
        return installed_protocol(name)

    monkeypatch.setattr(replay_module, "installed_protocol", find)
    other = write(file.with_name("other.json"), {"id": "x", "protocol": "xcmp", "steps": []})
    result = replay(write(file, [SCENARIO] * 3), other, write(file.with_name("again.json"), SCENARIO))
    assert result.stdout.splitlines()[-1] == "5 passed, 0 failed"
    assert looked_for == ["router", "xcmp"]


@pytest.mark.parametrize(
    ("key", "value"),
    [("valid_paras_set", [1]), ("ready_ring_set", ["1->2"]), ("mqc_heads_set", ["1->2"]), ("needs_dispatch_set", [])],
)
def test_exact_set_of_a_key_without_channels_is_compared(file: Path, key: str, value: list[Any]) -> None:
    scenario = {
        "id": "x",
        "steps": [{"block": 1, "expect": {"state": {key: value}}}],
        "genesis_paras": [{"para_id": 7}],
    }
    result = replay(write(file, scenario))
    assert result.exit_code == (1 if value else 0)
    assert result.stdout.splitlines()[-1] == ("0 passed, 1 failed" if value else "1 passed, 0 failed")
