# SPDX-License-Identifier: Apache-2.0
"""examples/first-channel and `validator init`: the configuration loads, and the sample records have the verdicts that the page promises."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.codecs import decoded, encoded
from validator.cli.init import FILES
from validator.cli.main import app
from validator.codec.json_form import to_json
from validator.config import load_config
from validator.core.inputs import DeadLetter, Source
from validator.lanes.configured import check_chains, lane_definition
from validator.lanes.processor import LaneProcessor
from validator.resources import first_channel_directory
from validator.topics import INPUT_TOPICS

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "first-channel"


def invoke(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["init", *arguments])
    return result.exit_code, result.stdout, result.stderr


def outputs(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Execute a folder's sample records, and return what comes out by topic."""
    definition = lane_definition(load_config(folder / "validator.toml"), "polkadot")
    found: dict[str, list[dict[str, Any]]] = {}
    items = []
    for kind in INPUT_TOPICS:
        file = folder / f"{kind}.jsonl"
        for offset, line in enumerate(file.read_text().splitlines() if file.exists() else ()):
            item = decoded(kind, encoded(kind, json.loads(line)), Source(kind, 0, offset))
            assert not isinstance(item, DeadLetter), line
            items.append(item[1])
    for _, records in LaneProcessor.create(definition).process(items):
        for topic, _, value, *_ in records:
            found.setdefault(topic, []).append(to_json(topic, value))
    return found


def test_one_message_is_accepted_and_one_refused() -> None:
    found = outputs(EXAMPLE)
    assert [(each["block"], each["kind"], each["index"], each["ok"]) for each in found["verdicts"]] == [
        (1, "request", 0, True),
        (1, "request", 1, True),
        (2, "candidate", 0, True),
        (2, "candidate", 1, False),
    ]
    *_, accepted, refused = found["verdicts"]
    assert [each["recipient"] for each in accepted["messages"]] == [2004]
    assert refused["error"]["kind"] == "OutboundHrmp/NoSuchChannel"
    assert [each["event"] for each in found["channel-events"]][-1] == "opened"
    assert "dead-letters" not in found


def test_init_writes_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, printed, hint = invoke("mine/chain")
    assert code == 0
    assert printed.splitlines() == [f"mine/chain/{name}" for name in FILES]
    rules, after = hint.splitlines()[:2]
    assert rules.startswith("rules: those of 2020; validator rules list shows later ones")
    assert after.startswith("next: cd mine/chain, then validator up")
    for name in FILES:
        assert (tmp_path / "mine/chain" / name).read_bytes() == (EXAMPLE / name).read_bytes()
    config = load_config(tmp_path / "mine/chain/validator.toml")
    check_chains(config)
    assert [para.para_id for para in config.chains["polkadot"].genesis_paras] == [2000, 2004]
    assert sorted(FILES) == sorted(path.name for path in first_channel_directory().iterdir())


@pytest.mark.parametrize("there", FILES)
def test_init_overwrites_nothing(there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / there).write_text("mine")
    code, printed, error = invoke()
    assert (code, printed) == (2, "")
    assert error == f"validator: {there}: expected no such file, found one; nothing was written\n"
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "mine"


def test_init_into_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, _, error = invoke(str(tmp_path / "file"))
    assert code == 2
    assert error.splitlines() == [f"validator: {tmp_path / 'file'}: cannot be written: File exists"]
