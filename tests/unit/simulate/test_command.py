# SPDX-License-Identifier: Apache-2.0
"""`validator simulate` writes self-describing files, the same ones each time."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from validator.cli.main import app


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
        "expected-verdicts.jsonl",
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
        (["--out", str(tmp_path / "file")], "cannot be written"),
    ):
        code, output, error = run(*arguments)
        assert code == 2
        assert output == ""
        assert expected in error
        assert error.count("\n") == 1
