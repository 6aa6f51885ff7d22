# SPDX-License-Identifier: Apache-2.0
"""`validator demo`, with simulated and with recorded blocks: once with broker and job, and its screen without them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from validator_simulators import SimulationSettings
from validator_simulators.demo.comparison import Comparison
from validator_simulators.demo.messages import Messages
from validator_simulators.demo.screen import PHASES, DemoProgress, DemoScreen, print_summary
from validator_simulators.relay_chain.recording import SHIPPED

from tests.cli.follower import invoke
from tests.crash.processes import processes

if TYPE_CHECKING:
    from typing import Any


@pytest.mark.spark
def test_every_verdict_of_the_demo_matches_the_model(tmp_path: Path) -> None:
    arguments = [sys.executable, "-m", "validator", "demo", "--json", "--blocks=40", "--seed=11"]
    # the demo must not send simulated traffic to a user's own Kafka
    environment = os.environ | {"VALIDATOR_HOME": str(tmp_path), "VALIDATOR_KAFKA__BOOTSTRAP__SERVERS": "127.0.0.1:1"}
    if "VALIDATOR_HOME" not in os.environ and "XDG_CACHE_HOME" not in os.environ:
        (tmp_path / "cache").symlink_to(Path.home() / ".cache" / "validator")
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["ok"] is True
    assert summary["problems"] == []
    assert summary["verdicts"] == summary["agreed"] > 500
    assert summary["dispatches_agreed"] == summary["dispatches_expected"] > 50
    assert len(summary["rejected"]) > 15
    assert summary["channels_opened"] > 0
    messages = summary["messages"]
    assert messages["queued"] == messages["received"] + messages["dropped"] + messages["waiting"] > 100
    assert "queued by candidate" in messages["example"]
    account = summary["accounting"]
    assert account["consumed"] == summary["records"] == account["accepted"] + account["rejected"]
    assert summary["seconds"]["first_verdict"] is not None
    assert summary["latency_ms"]["p50"] is not None
    assert "\x1b" not in done.stderr
    assert "first verdict after" in done.stderr
    assert list((tmp_path / "demo").iterdir()) == []
    assert [each for each in processes() if str(tmp_path) in each.command] == []


def test_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    result = invoke("demo", f"--directory={tmp_path}")
    assert result.exit_code == 2
    assert result.stderr == f"validator: --directory: expected a folder that is new or empty, found {tmp_path}\n"


def test_unknown_profile_is_reported() -> None:
    result = invoke("demo", "--profile=dmeo")
    assert result.exit_code == 2
    assert result.stderr.startswith(
        "validator: profile: expected one of demo, real, full, ceiling, history, found 'dmeo'"
    )


# --- the screen ---


def verdict(index: int) -> dict[str, Any]:
    error: dict[str, Any] = {"error": {"kind": f"OutboundHrmp/Kind{index % 30}", "idx": 1, "limit": 2, "clause": "x"}}
    ok = bool(index % 3)
    record = {
        "lane": "polkadot",
        "block": index // 20,
        "kind": "candidate",
        "index": index % 20,
        "para_id": 2000,
        "ok": ok,
    }
    results = {"messages": [{"recipient": 1, "sequence_number": 2}], "effective_session": None, "enacted": ok}
    return {**record, **results, **({} if ok else error)}


def progress(verdicts: int) -> DemoProgress:
    made = DemoProgress(SimulationSettings(blocks=10), Comparison())
    for index in range(verdicts):
        record = verdict(index)
        made.comparison.expected_verdicts["polkadot", record["block"], "candidate", record["index"]] = record
        made.comparison.observe("verdicts", record)
        made.take_verdict(record)
        made.events.append({
            "block": 1, "sender": 1, "recipient": 2, "event": "opened", "session": 1, "sender_reserved": 5, "sender_returned": 0,
            "recipient_reserved": 5, "recipient_returned": 0, "dropped": [],
        })  # fmt: skip
    return made


@pytest.mark.parametrize("verdicts", [0, 1, 300])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (140, 40), (200, 60), (40, 10)])
def test_screen_fits_the_terminal(width: int, height: int, verdicts: int) -> None:
    made = progress(verdicts)
    for phase in PHASES[: 4 if verdicts else 2]:
        made.reach(phase)
    console = Console(file=StringIO(), width=width, height=height, force_terminal=True)
    shown = console.render_lines(DemoScreen(made), pad=False)
    text = "\n".join("".join(segment.text for segment in line) for line in shown)
    if width >= 80:
        assert len(shown) < height
        assert f"{verdicts} of {verdicts} verdicts agree with the model" in text
        assert ("latest verdicts" in text) == bool(verdicts)


@pytest.mark.parametrize("ok", [True, False])
def test_summary_reports_success_or_problems(ok: bool) -> None:
    summary: dict[str, Any] = {
        "ok": ok, "blocks": 10, "records": 5, "verdicts": 5, "agreed": 4, "disagreed": 1, "missing": 0, "dispatches_agreed": 3,
        "dispatches_expected": 3, "rejected": {"OutboundHrmp/NotSorted": 2}, "channels_opened": 1, "channels_closed": 0,
        "messages": Messages().summary(),
        "accounting": dict.fromkeys(("consumed", "accepted", "rejected", "duplicate", "dead", "waiting"), 1),
        "seconds": {"first_verdict": None, "total": 61.0}, "latency_ms": {"p50": None, "p99": None},
        "partner": "the model", "problems": ["verdicts/x/1/candidate/0: expected this, found that"], "directory": "somewhere",
    }  # fmt: skip
    console = Console(file=StringIO(), width=120)
    print_summary(console, summary)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert ("every verdict and dispatch agrees with the model" in text) == ok
    assert ("expected this, found that" in text) == (not ok)
    assert "OutboundHrmp/NotSorted" in text


@pytest.mark.long
@pytest.mark.spark
def test_every_verdict_of_the_recorded_run_agrees_with_the_chain(tmp_path: Path) -> None:
    environment = os.environ | {"VALIDATOR_HOME": str(tmp_path), "VALIDATOR_KAFKA__BOOTSTRAP__SERVERS": "127.0.0.1:1"}
    if "VALIDATOR_HOME" not in os.environ and "XDG_CACHE_HOME" not in os.environ:
        (tmp_path / "cache").symlink_to(Path.home() / ".cache" / "validator")
    arguments = [sys.executable, "-m", "validator", "demo", "--real", "--json"]
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["ok"], summary["problems"], summary["partner"]) == (True, [], "the chain")
    assert summary["verdicts"] == summary["agreed"] == 158
    assert summary["accounting"]["consumed"] == summary["records"] == 91
    assert summary["chain"].startswith("compared with the chain up to block 17844556: 86 candidates, 72 inclusions, ")
    assert summary["chain"].endswith("; disagreements: none")
    assert list((tmp_path / "demo").iterdir()) == []
    assert [each for each in processes() if str(tmp_path) in each.command] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--recorded=x"], "--recorded: expected only with --real"),
        (["--real", "--recorded=/no/such/folder"], "--recorded: /no/such/folder: expected files"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path: Path, arguments: list[str], said: str) -> None:
    result = invoke("demo", f"--directory={tmp_path / 'new'}", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_shipped_folder_is_a_recording() -> None:
    assert (SHIPPED / "README.md").exists()
