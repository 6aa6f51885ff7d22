# SPDX-License-Identifier: Apache-2.0
"""`validator run` and `validator up` up to the start of Spark, with a small program in place of the job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cli.follower import Follower, follower, invoke, lines
from validator.cli import run
from validator.job import process as job_module
from validator.kafka.process import start_time
from validator.topics import INPUT_TOPICS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def chain(tmp_path: Path, kafka: dict[str, object]) -> Follower:
    return follower(tmp_path, kafka, f"run-{tmp_path.name}.", blocks=1)


@pytest.mark.parametrize("command", ["run", "up"])
def test_job_without_a_chain_is_refused(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke(command)
    assert result.exit_code == 2
    assert result.stderr == (
        "validator: no chain is configured: expected a table [chains.<lane>], found no ./validator.toml\n"
    )


@pytest.mark.parametrize("command", ["run", "up"])
def test_wrong_configuration_is_reported_with_its_key(command: str, tmp_path: Path) -> None:
    path = tmp_path / "validator.toml"
    path.write_text("[chains.polkadot]\nenactement = 'immediate'\n")
    result = invoke(command, f"--config={path}")
    assert result.exit_code == 2
    assert result.stderr == f"validator: {path}: chains.polkadot.enactement: no such key; did you mean 'enactment'?\n"


BAD_CHAINS = {
    "[[chains.polkadot.rules]]\nfrom_block = 1\nprofile = 'router/2021-9'\n": (
        "chains.polkadot.rules[0].profile: unknown 'router/2021-9'; did you mean 'router/2021-09'?"
    ),
    "[[chains.polkadot.rules]]\nfrom_block = 1\nfeatures = ['no_tll']\n": (
        "chains.polkadot.rules[0].features[0]: unknown 'no_tll'; did you mean 'no_ttl'?"
    ),
    "[[chains.polkadot.handlers]]\nname = 'nothing'\n": "chain polkadot: nothing: no installed plugin of group",
}


@pytest.mark.parametrize("command", ["run", "up"])
@pytest.mark.parametrize("table", BAD_CHAINS)
def test_bad_chain_is_refused_before_anything_starts(
    command: str, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VALIDATOR_HOME", str(tmp_path / "home"))
    path = tmp_path / "validator.toml"
    path.write_text(f"[chains.polkadot]\n{table}")
    result = invoke(command, f"--config={path}")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"validator: {BAD_CHAINS[table]}")
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "home").exists()


BAD_JOBS = {
    "a state that is none": ("[chains.polkadot]\nstate = 'state.json'\n", "state.json:1:2: not JSON"),
    "another prefix": ("[topics]\nprefix = 'b.'\n[chains.polkadot]\n", "[topics] prefix: "),
    "a job in the folder": ("[chains.polkadot]\n", "another job is using "),
    "changed offsets": ("[chains.polkadot]\n", "offsets/0 does not have the sum that .0.crc next to it says: "),
    "a newer start": (
        "[chains.polkadot]\n",
        "polkadot.start: expected version 1, found 2: a newer version of validator",
    ),
    "newer ids": ("[chains.polkadot]\n", "topics.json: expected version 1, found 2: a newer version of validator"),
    "a newer checkpoint": (
        "[chains.polkadot]\n",
        "offsets/0: expected version v1, found v2: a newer version of validator",
    ),
}


@pytest.mark.parametrize("command", ["run", "up"])
@pytest.mark.parametrize("what", BAD_JOBS)
def test_job_that_would_be_refused_starts_nothing(
    command: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No broker is started, no topic created, no file written."""
    home = tmp_path / "home"
    monkeypatch.setenv("VALIDATOR_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    offsets = home / "job" / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    sources = {f"a.{topic}" if "prefix" in what else f"validator.{topic}": {"0": 1} for topic in INPUT_TOPICS}
    (offsets / "0").write_text(f"v1\n{{}}\n{json.dumps(sources)}")
    (tmp_path / "state.json").write_text("{")
    if what == "a newer start":
        (home / "job" / "lanes").mkdir()
        (home / "job" / "lanes" / "polkadot.start").write_text('{"format": 2}')
    if what == "changed offsets":
        (offsets / ".0.crc").write_bytes(b"crc\0\0\0\2\0abcd")
    if what == "newer ids":
        (home / "job" / "topics.json").write_text('{"version": 2}')
    if what == "a newer checkpoint":
        (offsets / "0").write_text("v2\n{}")
    if "folder" in what:
        pid = os.getpid()
        started = start_time(pid, reap=False)
        (home / "job" / "job.json").write_text(
            json.dumps({"pid": pid, "started": started, "starter": pid, "starter_started": started})
        )
    table, words = BAD_JOBS[what]
    (tmp_path / "validator.toml").write_text(table)
    before = sorted(home.rglob("*"))
    result = invoke(command)
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert sorted(home.rglob("*")) == before


@pytest.mark.parametrize("command", ["run", "up"])
def test_accepted_changes_reach_the_job(chain: Follower, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    stand_in(monkeypatch, "import sys; sys.stderr.write(f'validator: {sys.argv[1:]}\\n'); sys.exit(2)")
    options = ("--accept-change=polkadot:genesis", "--accept-change=polkadot:17")
    result = invoke(command, chain.option(), *options)
    assert result.exit_code == 2
    assert result.stderr.endswith("validator: ['polkadot:genesis', 'polkadot:17']\n")


@pytest.mark.parametrize("command", ["run", "up"])
def test_accepted_change_is_read_first(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke(command, "--accept-change=polkadot")
    assert result.exit_code == 2
    assert result.stderr.startswith("validator: --accept-change: expected LANE:genesis, LANE:removed or LANE:BLOCK")


def test_run_refuses_missing_topics(chain: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VALIDATOR_TOPICS__PREFIX", "nowhere.")
    result = invoke("run", chain.option())
    assert result.exit_code == 2
    assert result.stderr.startswith("validator: topics are missing (nowhere.blocks, ")
    assert result.stderr.endswith("create them with `validator topics create`\n")


def stand_in(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(job_module, "job_command", lambda: [sys.executable, "-c", program])


FAILS = """
import sys
print('{"event": "started", "lanes": ["polkadot"], "spark_log": "spark.log", "timestamp": "2026-01-02T03:04:05.6Z"}', file=sys.stderr)
print('{"event": "failed", "reason": "validator.core.lane.WaitingOverflow: lane polkadot: too much"}', file=sys.stderr)
sys.exit(70)
"""


@pytest.mark.parametrize("command", ["run", "up"])
def test_failed_job_reports_reason_and_log(chain: Follower, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    stand_in(monkeypatch, FAILS)
    result = invoke(command, chain.option())
    assert result.exit_code == 70, result.stderr
    printed = result.stderr.splitlines()
    assert any(
        line.split()
        == ["03:04:05", "started", *["starting", "Spark", "for", "polkadot;", "its", "log", "is", "spark.log"]]
        for line in printed
    )
    assert any(
        "failed    validator.core.lane.WaitingOverflow: lane polkadot: too much; Spark's log is spark.log" in line
        for line in printed
    )


@pytest.mark.parametrize("command", ["run", "up"])
def test_killed_job_is_reported_in_one_line(chain: Follower, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    shot = FAILS.splitlines()[2] + "\nimport os; os.kill(os.getpid(), 9)"
    stand_in(monkeypatch, f"import sys\n{shot}")
    result = invoke(command, chain.option())
    assert result.exit_code == 3, result.stderr
    assert result.stderr.splitlines()[-1].split()[1:] == [
        *[
            "killed",
            "by",
            "signal",
            "9",
            "(SIGKILL),",
            "exit",
            "code",
            "137;",
            "its",
            "last",
            "line:",
            "started",
            "starting",
            "Spark",
        ],
        *["for", "polkadot;", "its", "log", "is", "spark.log;", "Spark's", "log", "is", "spark.log"],
    ]


def test_port_of_the_broker_excludes_another_kafka(chain: Follower) -> None:
    result = invoke("up", chain.option(), "--port=9092")
    assert result.exit_code == 2
    assert result.stderr.startswith("validator: --port: expected only without [kafka] bootstrap.servers, found ")


def test_json_option_prints_the_jobs_log(chain: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, FAILS)
    result = invoke("run", "--json", chain.option())
    assert [event["event"] for event in lines(result.stderr)] == ["started", "failed"]


@pytest.mark.parametrize("command", ["run", "up"])
def test_user_error_of_the_job_is_passed_on(chain: Follower, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    stand_in(monkeypatch, "import sys; sys.stderr.write('validator: no Java here\\n'); sys.exit(2)")
    result = invoke(command, chain.option())
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == "validator: no Java here"
    assert "Ctrl-C" not in result.stderr, "nothing is running"


def test_up_says_how_to_reach_what_is_ready(chain: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = """import sys; print('{"event": "ready"}', file=sys.stderr)"""
    stand_in(monkeypatch, f"{ready}; {ready}")
    result = invoke("up", chain.option())
    assert result.stderr.count(f"Kafka at {chain.config.kafka['bootstrap.servers']}; lanes ") == 1
    assert result.stderr.index("the query is running") < result.stderr.index("Press Ctrl-C to stop.")


WAITS = """
import sys, signal, time
def stop(*_):
    print('{"event": "stopped", "last_batch": 3}', file=sys.stderr, flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print('{"event": "ready"}', file=sys.stderr, flush=True)
time.sleep(600)
"""

PROGRAM = """
import sys
from validator.job import process as job
program = sys.argv.pop()
job.job_command = lambda: [sys.executable, "-c", program]
from validator.cli.main import main
main()
"""


def test_second_signal_is_explained_for_both_signals(capsys: pytest.CaptureFixture[str]) -> None:
    class Stopped:
        broker = None

        def start(self) -> None:
            raise KeyboardInterrupt

        def stop(self, *, keep_broker: bool) -> None:
            pass

    assert run._serve(Stopped(), restarts_max=0, keep_broker=False, as_json=False) == 0  # type: ignore[arg-type]
    line = "stopping after the current batch; another Ctrl-C or SIGTERM stops it at once\n"
    assert capsys.readouterr().err == line


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", ["run", "up"])
def test_signal_stops_the_job_normally(chain: Follower, command: str, how: signal.Signals) -> None:
    arguments = [sys.executable, "-c", PROGRAM, command, "--json", chain.option(), WAITS]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = ""
        while '"ready"' not in line:
            line = process.stderr.readline()
            assert line, "it ended before it was ready"
        process.send_signal(how)
        rest = process.stderr.read()
    assert process.returncode == 0
    (stopped,) = lines(rest)
    assert (stopped["event"], stopped["last_batch"]) == ("stopped", 3)
