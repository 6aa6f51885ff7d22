# SPDX-License-Identifier: Apache-2.0
"""Of several processes of one transport one delivers; a standby takes over when it ends, is killed or is frozen."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.cli.transport_processes import Transport, Transports, until
from tests.sending import send
from validator import exit_codes
from validator.kafka.settings import COMMITS, consumer_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SESSION_MS = 4_000

# Appends each value to a file and acknowledges it; at the value "hold" it waits for another file in between.
SOURCE = """
import time
from dataclasses import dataclass
from pathlib import Path

@dataclass(frozen=True)
class Settings:
    file: str
    gate: str

def run(context):
    while not context.stopping:
        record = context.receive(timeout_s=60)
        if record is None:
            continue
        with Path(context.config.file).open("ab") as file:
            file.write(record[2] + b"\\n")
        while record[2] == b"hold" and not Path(context.config.gate).exists():
            time.sleep(0.02)
        context.acknowledge()

@hookimpl
def validator_manifest():
    return Manifest("echo", "1.0.0", (2, 0), Settings)

@hookimpl
def validator_transports(config):
    yield Transport("echo", run, ("verdicts",))
"""


class World(Transports):
    """Two processes, `one` and `other`, with a file of received values each."""

    def begin(self, name: str) -> Transport:
        settings = {"file": str(self.folder / name), "gate": str(self.folder / f"{name}.gate")}
        return self.start(kafka={"session.timeout.ms": SESSION_MS}, **settings)

    def received(self, name: str) -> list[bytes]:
        path = self.folder / name
        return path.read_bytes().splitlines() if path.exists() else []

    def open(self, name: str) -> None:
        (self.folder / f"{name}.gate").touch()

    def send(self, *values: bytes) -> None:
        send(self.kafka, self.prefix, [("verdicts", b"polkadot", value) for value in values])

    def both(self) -> tuple[Transport, Transport]:
        """Start the active process, and then a standby."""
        one = self.begin("one")
        one.wait_for("transport echo: active; echo@1.0.0 (")
        other = self.begin("other")
        line = other.wait_for("transport echo: standby; active is validator@")
        assert f":{one.process.pid} (127.0.0.1)" in line
        assert line.endswith(f"; this one takes over when it ends, or {SESSION_MS / 1000:g} s after it is killed")
        return one, other

    def committed(self) -> int:
        """Return the group's offset."""
        consumer = Consumer(consumer_config(self.kafka, COMMITS, group_id=f"{self.prefix}transport.echo"))
        (place,) = consumer.committed([TopicPartition(f"{self.prefix}verdicts", 0)], timeout=30)
        consumer.close()
        return int(place.offset)


@pytest.fixture
def world(tmp_path: Path, kafka: dict[str, Any]) -> Iterator[World]:
    made = World(tmp_path, kafka, f"standby-{tmp_path.name}.", SOURCE)
    yield made
    made.close()


def test_standby_takes_over_at_once_from_a_process_that_ends(world: World) -> None:
    one, other = world.both()
    world.send(b"1", b"2")
    until(lambda: len(world.received("one")) == 2, one)
    third = world.begin("third")
    third.wait_for("standby")
    third.send(signal.SIGTERM)
    assert (third.end(), len(third.lines)) == (exit_codes.OK, 1)
    one.send(signal.SIGTERM)
    assert (one.end(), len(one.lines)) == (exit_codes.OK, 1)
    other.wait_for("transport echo: active; echo@1.0.0 (")
    world.send(b"3")
    until(lambda: world.received("other") == [b"3"], other)
    assert world.received("one") == [b"1", b"2"]
    other.send(signal.SIGTERM)
    assert other.end() == exit_codes.OK
    assert world.committed() == 3


def test_standby_takes_over_from_a_killed_process(world: World) -> None:
    one, other = world.both()
    world.send(b"1", b"hold", b"2")
    until(lambda: len(world.received("one")) == 2, one)
    one.send(signal.SIGKILL)
    world.open("other")
    other.wait_for("transport echo: active; echo@1.0.0 (")
    until(lambda: len(world.received("other")) == 2, other)
    assert (world.received("one"), world.received("other")) == ([b"1", b"hold"], [b"hold", b"2"])


def test_frozen_process_delivers_nothing_more_when_it_continues(world: World) -> None:
    one, other = world.both()
    world.send(b"1", b"hold", b"2", b"3")
    until(lambda: len(world.received("one")) == 2, one)
    one.send(signal.SIGSTOP)
    world.open("one")
    world.open("other")
    other.wait_for("transport echo: active; echo@1.0.0 (")
    until(lambda: len(world.received("other")) == 3, other)
    one.send(signal.SIGCONT)
    line = one.wait_for("validator: transport echo: this process is not the active one any more: Kafka ")
    assert line.endswith("; it begins again as standby")
    one.wait_for("transport echo: standby; active is validator@")
    assert one.lines[1:2] == [line]
    world.send(b"4")
    until(lambda: len(world.received("other")) == 4, other)
    assert world.received("one") == [b"1", b"hold"]
    assert world.received("other") == [b"hold", b"2", b"3", b"4"]
    other.send(signal.SIGTERM)
    assert other.end() == exit_codes.OK
    world.send(b"5")
    until(lambda: world.received("one") == [b"1", b"hold", b"5"], one)  # without anybody's help
    one.send(signal.SIGTERM)
    assert one.end() == exit_codes.OK
    assert world.committed() == 6


def test_group_with_plain_offsets_is_continued(world: World) -> None:
    world.send(b"1", b"2", b"3")
    consumer = Consumer(consumer_config(world.kafka, COMMITS, group_id=f"{world.prefix}transport.echo"))
    consumer.commit(offsets=[TopicPartition(f"{world.prefix}verdicts", 0, 2)], asynchronous=False)
    consumer.close()
    one = world.begin("one")
    until(lambda: world.received("one"), one)
    assert world.received("one") == [b"3"]
    one.send(signal.SIGTERM)
    assert one.end() == exit_codes.OK
    assert world.committed() == 3


PROGRAM = """
import os, sys, threading, types
import validator.cli.transport as command
if "BEGUN" in os.environ:
    sys.exit(f"begun again as {os.getpid()}: {sys.argv}")
os.environ["BEGUN"] = ""
print(os.getpid(), flush=True)
command.ENDING_S_MAX = 0.1
lease = types.SimpleNamespace(lost=threading.Event(), reason="transport echo: not active")
threading.Thread(target=command._end_if_lost, args=(lease, threading.Event()), daemon=True).start()
lease.lost.set()
threading.Event().wait()
"""


def test_transport_that_does_not_end_after_losing_its_lease_is_replaced() -> None:
    command = [sys.executable, "-c", PROGRAM, "an argument"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr.splitlines() == [
        "validator: transport echo: not active; it begins again as standby",
        f"begun again as {done.stdout.strip()}: ['-c', 'an argument']",
    ]


def test_process_that_cannot_begin_again_ends() -> None:
    program = "import sys; sys.executable = '/nowhere/python'; import validator.cli.transport as command; command._begin_again('why')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr.splitlines()) == (
        exit_codes.STOPPED,
        ["validator: why; it begins again as standby", "validator: /nowhere/python: No such file or directory"],
    )
