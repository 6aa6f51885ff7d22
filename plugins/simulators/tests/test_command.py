# SPDX-License-Identifier: Apache-2.0
"""`validator simulate` writes self-describing files, the same ones each time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner
from validator_simulators.installed import chain_table

from validator.cli.main import app
from validator.config import load_config
from validator.lanes.configured import check_chains


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["simulate", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_simulate_writes_same_files_twice(tmp_path: Path) -> None:
    for name in ("a", "b"):
        code, _, error = run("--out", str(tmp_path / name), "--blocks", "12", "--preset", "tight", "--lane", "kusama")
        assert code == 0, error
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == [
        "blocks.jsonl",
        "candidates.jsonl",
        "chain.json",
        "channel-requests.jsonl",
        "downward-messages.jsonl",
        "expected-dispatches.jsonl",
        "expected-verdicts.jsonl",
        "validator.toml",
    ]
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    blocks = [json.loads(line) for line in (tmp_path / "a" / "blocks.jsonl").read_text().splitlines()]
    candidates = (tmp_path / "a" / "candidates.jsonl").read_text().splitlines()
    assert [block["block"] for block in blocks] == list(range(1, 13))
    assert sum(block["candidates"] for block in blocks) == len(candidates)
    chain = json.loads((tmp_path / "a" / "chain.json").read_text())
    assert chain["lane"] == "kusama"
    assert chain["config"]["max_upward_queue_count"] == 4


@pytest.mark.parametrize(
    "arguments",
    [("--profile", "history"), *(("--protocol", name) for name in ("early-hrmp", "xcmp", "xcmp-network"))],
)
def test_written_configuration_is_the_simulated_chain(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code, _, error = run("--out", str(tmp_path), "--blocks", "14", "--lane", "kusama", *arguments)
    assert code == 0, error
    described = json.loads((tmp_path / "chain.json").read_text())
    config = load_config(tmp_path / "validator.toml")
    check_chains(config)
    (lane,) = config.chains
    chain = config.chains[lane].model_dump(exclude_none=True)
    table = chain_table(described)
    assert lane == "kusama"
    assert {name: chain[name] for name in table} == table


def test_dispatches_are_expected_with_their_outcome(tmp_path: Path) -> None:
    code, _, error = run("--out", str(tmp_path), "--blocks", "30")
    assert code == 0, error
    dispatches = [json.loads(line) for line in (tmp_path / "expected-dispatches.jsonl").read_text().splitlines()]
    failing = json.loads((tmp_path / "chain.json").read_text())["ump_failing_messages"]
    assert {each["outcome"] for each in dispatches} == {"ok", "failed"}
    assert all((each["payload"] in failing) == (each["outcome"] == "failed") for each in dispatches)
    places = [(each["block"], each["index"]) for each in dispatches]
    assert places == sorted(set(places))


@pytest.mark.parametrize("name", ["validator.toml", "chain.json", "candidates.jsonl", "expected-dispatches.jsonl"])
def test_nothing_is_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine\n")
    code, _, error = run("--out", str(tmp_path), "--blocks", "1")
    assert code == 2
    assert error == f"validator: {tmp_path / name}: expected no such file, found one; nothing was written\n"
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine\n"


def test_simulate_json_writes_chain_then_blocks() -> None:
    code, text, _ = run("--json", "--blocks", "3", "--first-block", "70")
    assert code == 0
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["kind"] for line in lines[:2]] == ["chain", "blocks"]
    assert [line["record"]["block"] for line in lines if line["kind"] == "blocks"] == [70, 71, 72]


def test_simulate_mistake_gives_one_line_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for arguments, expected in (
        (["--json", "--profile", "x"], "profile: expected one of demo, real, full, ceiling, history, found 'x'"),
        (["--json", "--preset", "x"], "preset: expected one of polkadot, tight, found 'x'"),
        ([], "expected either --out DIR or --json, found neither"),
        (
            ["--json", "--lane", "Polka dot"],
            "--lane: expected a name of lower-case letters, digits, '.', '_' and '-', found 'Polka",
        ),
        (["--json", "--lane", "x" * 65], "--lane: expected a name"),
        (
            ["--json", "--first-block", "4294967290"],
            "first_block: expected 100 blocks up to 4294967295, found 4294967290",
        ),
        (["--out", str(tmp_path / "file")], "cannot be written"),
    ):
        code, output, error = run(*arguments)
        assert code == 2
        assert output == ""
        assert expected in error
        assert error.count("\n") == 1
