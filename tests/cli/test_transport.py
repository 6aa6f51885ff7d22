# SPDX-License-Identifier: Apache-2.0
"""`validator transport run`: a plugin in a separate process, between the topics and another system."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.follower import invoke
from tests.distributions import IMPORTS, MANIFEST, install, on_path
from tests.sending import send
from validator import exit_codes
from validator.config.toml import to_toml
from validator.kafka.reader import TopicReader
from validator.kafka.topics import create_topics
from validator.metrics.report import TRANSPORT, Report

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP = "validator.transports"

# Writes received records to a file, and submits every verdict as a block record.
SOURCE = """
from dataclasses import dataclass
from pathlib import Path

@dataclass(frozen=True)
class Settings:
    file: str
    ends: bool = False
    fails: bool = False
    topic: str = "verdicts"

def run(context):
    if context.config.fails:
        raise RuntimeError("the peer is gone")
    while not context.stopping:
        record = context.receive(timeout_s=60)
        if record is None:
            continue
        topic, key, value = record
        context.submit("blocks", key, value)
        with Path(context.config.file).open("ab") as file:
            file.write(topic.encode() + b" " + key + b" " + value + b"\\n")
        if value != b"again":
            context.acknowledge()
        if context.config.ends:
            return

@hookimpl
def validator_manifest():
    return Manifest("echo", "1.2.0", (2, 0), Settings)

@hookimpl
def validator_transports(config):
    yield Transport("echo", run, (config.topic,))
"""
SEVERAL = """
@hookimpl
def validator_transports(config):
    for name in ("one", "two"):
        yield Transport(name, lambda context, name=name: print(name))
"""


@pytest.fixture
def plugins(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "plugins"
    install(folder, "echo", IMPORTS + SOURCE, group=GROUP)
    install(folder, "several", IMPORTS + MANIFEST.format(name="several", version="1.0.0") + SEVERAL, group=GROUP)
    with on_path(folder):
        yield folder


class World:
    """A configuration, its topics, and the program."""

    def __init__(self, folder: Path, kafka: dict[str, Any], prefix: str, plugins: Path) -> None:
        self.folder, self.kafka, self.prefix, self.plugins = folder, kafka, prefix, plugins
        self.file = folder / "received"
        create_topics(kafka, prefix=prefix)

    def configure(self, **settings: Any) -> str:
        path = self.folder / "validator.toml"
        tables = {"kafka": self.kafka, "topics": {"prefix": self.prefix}}
        settings = {"file": str(self.file)} | settings
        path.write_text(to_toml({**tables, "transports": {"echo": settings}}))
        return f"--config={path}"

    def send(self, *values: bytes, topic: str = "verdicts") -> None:
        send(self.kafka, self.prefix, [(topic, b"polkadot", value) for value in values])

    def start(self, option: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "validator", "transport", "run", "echo", option]
        environment = {**os.environ, "PYTHONPATH": str(self.plugins)}
        return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)

    def received(self, count: int, process: subprocess.Popen[str]) -> list[bytes]:
        while not self.file.exists() or len(self.file.read_bytes().splitlines()) < count:
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.05)
        return self.file.read_bytes().splitlines()

    def submitted(self) -> list[bytes]:
        with TopicReader(self.kafka, self.prefix, ["blocks"]) as reader:
            return [record.value for record in reader.read_to_end()]


@pytest.fixture
def world(tmp_path: Path, kafka: dict[str, Any], plugins: Path) -> World:
    return World(tmp_path, kafka, f"transport-{tmp_path.name}.", plugins)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_transport_stops_on_signal_and_resumes_after_last_acknowledgement(world: World, number: int) -> None:
    option = world.configure()
    world.send(b"1", b"2", b"again")
    process = world.start(option)
    assert world.received(3, process) == [b"verdicts polkadot 1", b"verdicts polkadot 2", b"verdicts polkadot again"]
    world.send(b"elsewhere", topic="dispatches")
    process.send_signal(number)
    _, stderr = process.communicate()
    assert (process.returncode, stderr.count("\n")) == (0, 1)
    assert stderr.startswith("transport echo: active; echo@1.2.0 (dist-echo 1.0.0, ")
    assert world.submitted() == [b"1", b"2", b"again"]

    world.file.unlink()
    world.send(b"3")
    process = world.start(option)
    assert world.received(2, process) == [b"verdicts polkadot again", b"verdicts polkadot 3"]
    process.terminate()
    assert process.wait() == 0
    process.stderr.close()  # type: ignore[union-attr]
    assert world.submitted() == [b"1", b"2", b"again", b"again", b"3"]


def test_transport_can_end_by_itself(world: World) -> None:
    world.send(b"1", b"2")
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    assert invoke("transport", "run", "echo", world.configure(ends=True)).exit_code == 0
    assert world.file.read_bytes() == b"verdicts polkadot 1\n"
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


def test_active_transport_reports_what_it_has_done(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VALIDATOR_METRICS__LISTEN", "127.0.0.1:1")  # the job's
    monkeypatch.setenv("VALIDATOR_METRICS__TRANSPORTS__ECHO", "127.0.0.1:0")
    world.send(b"1", b"2")
    result = invoke("transport", "run", "echo", world.configure(ends=True))
    assert result.exit_code == 0
    assert re.search(r"^transport echo: metrics at http://127\.0\.0\.1:\d+/metrics$", result.stderr, re.MULTILINE)
    with TopicReader(world.kafka, world.prefix, ["metrics"]) as reader:
        *_, last = reader.read_to_end()
    report = Report.decode(last.value)
    assert (report.of, report.reporter, report.add) == (TRANSPORT, "echo", {})
    figures = {name.removeprefix("validator_transport_"): rows for name, rows in report.set.items()}
    assert figures.pop("start_timestamp_seconds")[()] > 0
    assert figures == {
        "active": {(): 1},
        "written_records_total": {("blocks",): 1},
        "written_bytes_total": {("blocks",): 1},
        "received_records_total": {("verdicts",): 1},
        "refused_records_total": {(): 0},
        "unconfirmed_records": {(): 0},
        "unacknowledged_records": {(): 0},
    }


def test_busy_port_of_a_transport_is_one_error_line(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("VALIDATOR_METRICS__TRANSPORTS__ECHO", address)
        line = refused("echo", world.configure())
    assert line == f"[metrics.transports] echo {address}: metrics cannot be served there: Address already in use"


def refused(*arguments: str) -> str:
    result = invoke("transport", "run", *arguments)
    assert result.exit_code == 2, result.output
    line = [each for each in result.stderr.splitlines() if each.startswith("validator: ")]
    assert len(line) == 1
    return line[0].removeprefix("validator: ")


def test_exception_of_transport_is_one_error_line(world: World) -> None:
    line = refused("echo", world.configure(fails=True))
    assert line.startswith("transport echo: echo@1.2.0 (dist-echo 1.0.0, ")
    assert line.endswith(") raised RuntimeError: the peer is gone")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"topic": "blocks"}, "transport echo: 'blocks' is not one of the output topics verdicts, dispatches, "),
        ({"file": 5}, "config.file: "),
        ({"fiel": "x"}, "config.fiel: no such key"),
    ],
)
def test_wrong_configuration_is_one_error_line(world: World, settings: dict[str, Any], text: str) -> None:
    assert text in refused("echo", world.configure(**settings))


def test_missing_topics_are_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    option = world.configure()
    monkeypatch.setenv("VALIDATOR_TOPICS__PREFIX", "nowhere.")
    assert refused("echo", option).startswith("topic nowhere.verdicts does not exist at ")


def test_unreachable_broker_is_waited_for_as_long_as_configured(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    option = world.configure()
    monkeypatch.setenv("VALIDATOR_KAFKA__BOOTSTRAP__SERVERS", "localhost:1")
    monkeypatch.setenv("VALIDATOR_JOB__GIVE_UP_AFTER", "1")
    monkeypatch.setattr("validator.kafka.retry.ANSWER_S_MAX", 0.5)
    result = invoke("transport", "run", "echo", option)
    assert result.exit_code == exit_codes.STOPPED
    *waits, last = result.stderr.splitlines()
    assert waits
    for line in waits:
        assert re.match(
            r"transport echo: no Kafka answers at localhost:1 \(.*; tries again in [01] s, gives up after 1 s$", line
        )
    assert last.startswith("validator: no Kafka answers at localhost:1 (")
    assert last.endswith("[job] give_up_after is 1")


def test_unknown_name_lists_installed_transports(
    plugins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    known = "install it; installed are: channel, dry-run, echo, relay-chain, several, webhook, xcmp-bodies"
    assert refused("sms") == f"sms: no installed plugin of group {GROUP} has this name: {known}"
    for name in ("several", "several.three"):
        line = refused(name)
        assert line.startswith("several@1.0.0 (")
        assert line.endswith(
            f"no transport {name!r} under [transports.several], expected one of several.one, several.two"
        )
    assert "config.file: " in refused("echo")


def test_one_of_several_transports_runs(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    result = invoke("transport", "run", "several.two", world.configure())
    assert (result.exit_code, result.stdout) == (0, "two\n")
