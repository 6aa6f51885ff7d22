# SPDX-License-Identifier: Apache-2.0
"""`validator simulate network`: tables, JSON with its schema, plots, and errors in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from typer.testing import CliRunner
from validator_simulators.network import CASES
from validator_simulators.network.tables import Line, json_schema

from validator.cli.main import app

SMALL = ("--paras", "10", "--blocks", "40", "--fan-out", "3")
PAGE = Path(__file__).resolve().parents[3] / "docs" / "xcmp-networking.md"


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["simulate", "network", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_tables_show_figures_laws_and_transports() -> None:
    code, text, error = run(*SMALL, "--greedy-share", "0.3")
    assert (code, error) == (0, "")
    assert "10 paras, 40 blocks, traffic spread, policy free, seed 1" in text
    for name in (
        "greedy recipients",
        "acknowledgement lag, mean [blocks]",
        "Jain's index of bytes",
        "law",
        "flooding a mesh of 100 nodes",
    ):
        assert name in text


def test_json_is_the_same_bytes_and_keeps_its_schema() -> None:
    code, text, error = run(*SMALL, "--json", "--late-share", "0.2", "--sizes", "lognormal")
    assert (code, error) == (0, "")
    assert run(*SMALL, "--json", "--late-share", "0.2", "--sizes", "lognormal") == (0, text, "")
    (line,) = text.splitlines()
    read = TypeAdapter(Line).validate_json(line)
    assert read.settings.late_share == 0.2
    assert read.total.recipients == 10
    members = set(json_schema()["properties"])
    assert set(json.loads(line)) == members - {"published", "differs"}


def test_every_option_reaches_the_settings() -> None:
    given = {
        "seed": 9, "paras": 12, "blocks": 3, "traffic": "skewed", "fan_out": 2, "messages_per_block": 1.5, "size_bytes_mean": 5_000,
        "sizes": "fixed", "capacity_messages": 3, "ingest_bytes": 70_000, "build_every_blocks": 2, "policy": "prefix",
        "greedy_share": 0.5, "favoured_share": 0.4, "delay_ms": 7, "jitter_ms": 8, "late_share": 0.1, "late_ms": 9, "lost_share": 0.2,
        "request_after_blocks": 2, "request_backoff": 1.5, "mesh_nodes": 50, "mesh_degree": 4, "replication_factor": 2,
        "consumer_groups": 5,
    }  # fmt: skip
    options = [part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    code, text, error = run("--json", *options)
    assert code == 0, error
    assert json.loads(text)["settings"] == {**given, "load": None}


def test_schema_is_printed_and_closed() -> None:
    code, text, _ = run("--schema")
    assert code == 0
    schema = json.loads(text)
    assert schema == json_schema()
    assert schema["additionalProperties"] is False
    assert {"Group", "Law", "Cost", "Sample", "Distribution", "NetworkSettings"} <= set(schema["$defs"])


def test_page_explains_every_member_of_the_json() -> None:
    schema, text = json_schema(), PAGE.read_text(encoding="utf-8")
    groups = [schema, *(schema["$defs"][name] for name in ("Group", "Law", "Cost", "Sample", "Distribution"))]
    missing = [name for group in groups for name in group["properties"] if f"`{name}`" not in text]
    assert missing == []
    settings = [f"`--{name.replace('_', '-')}`" for name in schema["$defs"]["NetworkSettings"]["properties"]]
    assert [name for name in settings if name not in text] == []


def test_reference_runs_every_row_with_another_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("validator_simulators.network.command.CASES", CASES[:2])
    code, text, _ = run("--reference", "--seed", "5", "--json")
    rows = [json.loads(line) for line in text.splitlines()]
    assert code == 0
    assert [row["case"] for row in rows] == ["load 0.5", "load 0.9"]
    assert {row["settings"]["seed"] for row in rows} == {5}
    assert rows[0]["published"]["mean"] == "1.0"
    assert rows[0]["differs"] == []
    code, text, _ = run("--reference")
    assert code == 0
    assert "1.00 (1.0)" in text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--policy", "x"], "policy: expected one of free, prefix, round-robin, rotating, arrival, favour, found 'x'"),
        (["--paras", "1"], "paras: expected 2 to 10,000, found 1"),
        (["--load", "2", "--size-bytes-mean", "5"], "load: expected either load or size_bytes_mean, found both"),
        (["--reference", "--fan-out", "3"], "--reference: expected no other setting than --seed, found --fan-out"),
        (["--image", "png"], "--image: expected --plots FOLDER with it, found none"),
        (["--plots", "x", "--image", "gif"], "--image: expected svg, png or both, found 'gif'"),
    ],
)
def test_mistake_gives_one_line_and_exit_code_2(arguments: list[str], expected: str) -> None:
    assert run(*arguments) == (2, "", f"validator: {expected}\n")


def test_options_before_the_sub_command_are_refused() -> None:
    result = CliRunner().invoke(app, ["simulate", "--seed", "3", "--lane", "kusama", "network"])
    assert result.exit_code == 2
    assert result.stderr == (
        "validator: simulate network: expected every option after it, found --seed, --lane before it\n"
    )


def test_plots_without_matplotlib_are_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for module in ("validator.cli.plots", "validator_simulators.network.plots"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    how = "pip install 'relay-validator[plots]', or `make setup EXTRAS=plots` in a checkout"
    expected = f"validator: --plots needs matplotlib, which is not installed: {how}\n"
    assert run(*SMALL, "--plots", str(tmp_path / "new")) == (2, "", expected)
    assert not (tmp_path / "new").exists()


def test_matplotlib_is_imported_only_for_plots() -> None:
    program = (
        "import sys; from validator.cli.main import app\n"
        f"app(['simulate', 'network', '--json', *{SMALL!r}], standalone_mode=False)\n"
        "print('matplotlib' in sys.modules, 'pydantic' in sys.modules and 'validator_simulators.network.tables' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False False"


def test_plots_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib comes with the extra plots")
    for name in ("a", "b"):
        code, _, error = run(
            *SMALL, "--lost-share", "0.1", "--load", "1.2", "--plots", str(tmp_path / name), "--image", "both"
        )
        assert code == 0, error
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == sorted(
        f"message-network-{plot}.{form}"
        for plot in ("lag", "late", "queue", "refused", "transports")
        for form in ("png", "svg")
    )
    assert error.splitlines() == [f"{tmp_path / 'b' / name}: written" for name in sorted(names, key=error.index)]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_plots_that_cannot_be_written_give_one_line(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib comes with the extra plots")
    (tmp_path / "file").write_text("")
    code, _, error = run(*SMALL, "--plots", str(tmp_path / "file"))
    assert code == 2
    assert error == f"validator: {tmp_path / 'file' / 'message-network-refused.svg'}: cannot be written: File exists\n"
