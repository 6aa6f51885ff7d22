# SPDX-License-Identifier: Apache-2.0
"""A broker that is killed and restarted while a transport enqueues and reads: nothing is lost, and nothing is there twice."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.transport_processes import Transport, Transports, until
from tests.sending import send
from validator import exit_codes
from validator.kafka.broker import EmbeddedBroker
from validator.kafka.process import start_time
from validator.kafka.reader import TopicReader
from validator.kafka.retry import ANSWER_S_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Enqueues numbered records, and appends what it reads and receives to files, until the file `enough` exists.
SOURCE = """
import json
from dataclasses import dataclass
from pathlib import Path

@dataclass(frozen=True)
class Settings:
    folder: str

def run(context):
    folder = Path(context.config.folder)
    results, enqueued = [], 0
    reader = context.reader(["verdicts"])
    with (folder / "read").open("a") as read, (folder / "enqueued").open("a") as written:
        while not context.stopping:
            if not (folder / "enough").exists():
                value = f"{enqueued}:".encode() + bytes(500)
                if context.enqueue("blocks", b"polkadot", value, results.append, {"number": b"%d" % enqueued}):
                    enqueued += 1
                    written.write("x")
                    written.flush()
            elif len(results) == enqueued and reader.positions() == reader.ends():
                (folder / "results").write_text(json.dumps(results))
                return
            record = reader.receive(0.002)
            if record is not None:
                read.write(json.dumps([record.offset, record.value.decode()]) + "\\n")
                read.flush()
            received = context.receive(0)
            if received is not None:
                context.acknowledge()
                with (folder / "received").open("ab") as file:
                    file.write(received[2] + b"\\n")

@hookimpl
def validator_manifest():
    return Manifest("echo", "1.0.0", (2, 0), Settings)

@hookimpl
def validator_transports(config):
    yield Transport("echo", run, ("dispatches",))
"""


class World(Transports):
    """A broker for the test alone, and a transport that enqueues and reads."""

    broker: EmbeddedBroker

    def begin(self, **kafka: Any) -> Transport:
        running = self.start(kafka=kafka, folder=str(self.folder))
        running.wait_for("transport echo: active; echo@1.0.0 (")
        return running

    def read(self) -> list[tuple[int, str]]:
        path = self.folder / "read"
        return [tuple(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []

    def received(self) -> list[str]:
        path = self.folder / "received"
        return path.read_text().splitlines() if path.exists() else []

    def enqueued(self) -> int:
        return (self.folder / "enqueued").stat().st_size if (self.folder / "enqueued").exists() else 0

    def kill_broker(self) -> None:
        pid = self.broker.status().pid
        assert pid is not None
        started = start_time(pid)
        os.kill(pid, signal.SIGKILL)
        while start_time(pid) == started:
            time.sleep(0.01)

    def send(self, *values: str, topic: str = "verdicts") -> None:
        send(self.kafka, self.prefix, [(topic, b"polkadot", value.encode()) for value in values])


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        made = World(tmp_path, broker.kafka, "outage.", SOURCE)
        made.broker = broker
        yield made
        made.close()


@pytest.mark.broker
def test_killed_broker_loses_and_doubles_nothing(world: World) -> None:
    running = world.begin()
    sent = [f"verdict {at}" for at in range(300)]
    world.send(*sent[:200])
    world.send(*sent[:100], topic="dispatches")
    until(lambda: len(world.read()) >= 50 and world.enqueued() >= 200 and len(world.received()) == 100, running)
    world.kill_broker()
    before = world.enqueued()
    until(lambda: world.enqueued() >= before + 200, running)
    assert world.broker.start() == world.kafka["bootstrap.servers"]
    world.send(*sent[200:])
    world.send(*sent[100:], topic="dispatches")
    until(lambda: len(world.read()) == 300 == len(world.received()), running)
    (world.folder / "enough").touch()
    assert (running.end(), running.lines[1:]) == (exit_codes.OK, [])

    count = world.enqueued()
    assert json.loads((world.folder / "results").read_text()) == [None] * count
    with TopicReader(world.kafka, world.prefix, ["blocks"]) as reader:
        found = [(each.value, each.headers) for each in reader.read_to_end()]
    assert found == [(b"%d:" % at + bytes(500), (("number", b"%d" % at),)) for at in range(count)]
    assert world.read() == list(enumerate(sent))
    assert world.received() == sent


@pytest.mark.long
@pytest.mark.broker
def test_after_an_outage_longer_than_the_session_the_process_continues_by_itself(world: World) -> None:
    running = world.begin(**{"session.timeout.ms": 6_000})
    world.send("before")
    until(lambda: world.enqueued() >= 10 and world.read(), running)
    world.kill_broker()
    line = running.wait_for("this process is not the active one any more")
    assert line.endswith("; it begins again as standby")
    before = world.enqueued()
    assert world.broker.start() == world.kafka["bootstrap.servers"]
    world.send("after")
    until(lambda: world.enqueued() > before and "after" in dict(world.read()).values(), running)
    (world.folder / "enough").touch()
    assert running.end() == exit_codes.OK
    assert [each for each in running.lines if "not the active one" in each] == [line]
    assert sum("transport echo: active; echo@1.0.0 (" in each for each in running.lines) == 2


@pytest.mark.long
@pytest.mark.broker
def test_active_and_standby_live_through_an_outage_longer_than_a_request(world: World) -> None:
    running = world.begin()
    standby = world.start(folder=str(world.folder))
    standby.wait_for("standby; active is")
    until(lambda: world.enqueued() >= 10, running)
    world.kill_broker()
    ends_s = time.monotonic() + ANSWER_S_MAX + 2
    until(lambda: time.monotonic() > ends_s, standby)
    before = world.enqueued()
    assert world.broker.start() == world.kafka["bootstrap.servers"]
    until(lambda: world.enqueued() > before, standby)
    (world.folder / "enough").touch()
    assert (running.end(), standby.end()) == (exit_codes.OK, exit_codes.OK), standby.lines
