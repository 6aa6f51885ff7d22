# SPDX-License-Identifier: Apache-2.0
"""The commands as processes on a broker: the operator is killed in the middle, and a recipient gets each message once, in order."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.bodies.history import LANE, event, receipt
from tests.sending import send
from validator.kafka.topics import create_topics

pytestmark = pytest.mark.spark

PATIENCE_S = 300.0
CONFIG = """\
[topics]
prefix = "{prefix}"

[kafka]
"bootstrap.servers" = "{servers}"

[job]
directory = "{directory}"
master = "local[2]"
driver_memory = "1g"

[chains.{lane}]

[jobs.xcmp-bodies]
chains = ["{lane}"]
alarm_blocks = 3
"""
FIRST = {(1, 2, 5): [b"one", b"two"], (3, 2, 5): [bytes(600_000)], (1, 3, 5): []}
SECOND = {(3, 2, 6): [b"last"], (1, 2, 7): [b"one", b"two"], (3, 2, 7): [b"never sent"]}


class Commands:
    """Runs `validator messages` with a configuration."""

    def __init__(self, folder: Path, prefix: str, servers: str) -> None:
        self.folder = folder
        self.config = folder / "validator.toml"
        self.config.write_text(
            CONFIG.format(prefix=prefix, servers=servers, directory=folder / "job", lane=LANE), encoding="utf-8"
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        log = (self.folder / "job.log").open("a")
        return subprocess.Popen(self._line(*arguments), stdout=log, stderr=log, text=True)

    def run(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(self._line(*arguments), capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert done.returncode == code, done.stderr
        return done.stdout

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.run(*arguments, "--json").splitlines()]

    def _line(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "validator", "messages", *arguments, "--config", str(self.config)]


def follow(commands: Commands, *arguments: str) -> list[tuple[str, list[bytes]]]:
    rows = commands.rows("follow", "--chain", LANE, "--para", "2", "--once", *arguments)
    return [(row["position"], [bytes.fromhex(payload) for payload in row["payloads"]]) for row in rows]


def wait_for_status(commands: Commands, **wanted: Any) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        rows = {row["recipient"]: row for row in commands.rows("status")}
        if all(rows.get(2, {}).get(name) == value for name, value in wanted.items()):
            return rows[2]
        log = commands.folder / "job.log"
        assert time.monotonic() < deadline, f"{wanted} never came: {rows}; {log.read_text()[-3000:]}"
        time.sleep(0.2)


def write(kafka: Any, prefix: str, block: int, messages: dict[tuple[int, int, int], list[bytes]]) -> None:
    events = [event("queued", block, name, body, at) for at, (name, body) in enumerate(messages.items())]
    send(kafka, prefix, [(topic, LANE.encode(), value) for topic, value in [*events, receipt(block)]])


def listed(messages: dict[tuple[int, int, int], list[bytes]], block: int) -> dict[tuple[int, int, int], list[bytes]]:
    return {name: body for name, body in messages.items() if name[2] == block}


def test_operator_sender_and_recipient(tmp_path: Path, kafka: dict[str, object]) -> None:
    prefix = "messages."
    create_topics(kafka, prefix=prefix)
    commands = Commands(tmp_path, prefix, str(kafka["bootstrap.servers"]))
    for sender in (1, 3):
        bodies = [body for (by, _, _), body in (FIRST | SECOND).items() if by == sender and body != [b"never sent"]]
        lines = "".join(json.dumps([payload.hex() for payload in body]) + "\n" for body in bodies)
        (tmp_path / f"{sender}.jsonl").write_text(lines, encoding="utf-8")

    job = commands.start("run")
    try:
        write(kafka, prefix, 5, FIRST)
        wait_for_topics_of(commands)
        for sender in (1, 3):
            commands.run("send", "--chain", LANE, "--para", str(sender), "--once", str(tmp_path / f"{sender}.jsonl"))
        wait_for_status(commands, unread=2, missing=0)
        assert follow(commands) == [("5/1", FIRST[1, 2, 5]), ("5/3", FIRST[3, 2, 5])]
        job.send_signal(signal.SIGKILL)
        job.wait()
        kill_the_job(tmp_path)

        for block in (6, 7):
            write(kafka, prefix, block, listed(SECOND, block))
        for sender in (1, 3):
            commands.run("send", "--chain", LANE, "--para", str(sender), "--once", str(tmp_path / f"{sender}.jsonl"))
        job = commands.start("run")
        status = wait_for_status(commands, unread=5, missing=1)
        assert status["front"] == {"sent_at": 5, "sender": 1, "held": True}
        assert follow(commands, "--after", "5/3") == [("6/3", [b"last"]), ("7/1", [b"one", b"two"])]
        assert [position for position, _ in follow(commands)] == ["5/1", "5/3", "6/3", "7/1"]
        write(kafka, prefix, 8, {})
        wait_for_status(commands, alarm=True)
        commands.run("status", "--check", code=1)
        assert "ALARM" in commands.run("status")
    finally:
        job.send_signal(signal.SIGTERM)
        assert job.wait(PATIENCE_S) == 0, (tmp_path / "job.log").read_text()[-3000:]


def wait_for_topics_of(commands: Commands) -> None:
    """Wait until the operator has read the first block; by then its topics exist."""
    deadline = time.monotonic() + PATIENCE_S
    line = commands._line("status", "--json")
    while True:
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode == 0 and '"unread": 2' in done.stdout:
            return
        assert time.monotonic() < deadline, (done.stderr, (commands.folder / "job.log").read_text()[-3000:])
        time.sleep(0.2)


def kill_the_job(folder: Path) -> None:
    """Kill the process that runs Spark; the command that started it is dead already."""
    record = json.loads((folder / "job" / "jobs" / "xcmp-bodies" / "job.json").read_text(encoding="utf-8"))
    import os

    os.kill(record["pid"], signal.SIGKILL)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("follow", "--chain", LANE, "--para", "2", "--after", "5"), "--after: expected BLOCK/SENDER, found '5'"),
        (("send", "--chain", LANE, "--para", "2", "{bad}"), "line 2: expected a list of payloads in hex, found {}"),
        (("send", "--chain", LANE, "--para", "2", "{none}"), "cannot be read"),
    ],
)
def test_mistakes_are_one_line(
    arguments: tuple[str, ...], message: str, tmp_path: Path, kafka: dict[str, object]
) -> None:
    commands = Commands(tmp_path, "messages-mistakes.", str(kafka["bootstrap.servers"]))
    (tmp_path / "bad").write_text('["00"]\n{}\n', encoding="utf-8")
    names = {"{bad}": str(tmp_path / "bad"), "{none}": str(tmp_path / "none")}
    line = commands._line(*(names.get(each, each) for each in arguments))
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr
