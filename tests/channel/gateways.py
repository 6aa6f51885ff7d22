# SPDX-License-Identifier: Apache-2.0
"""Gateways as processes, `validator transport run channel`, and what they have written to Kafka."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gateway_world import GatewayWorld, until
from validator_channel.application import SUBMIT_TOPICS
from validator_channel.events import MessageDelivered

from validator.codec.json_form import to_json
from validator.config.toml import to_toml
from validator.kafka.reader import TopicReader, TopicRecord
from validator.kafka.topics import create_topics
from validator.plugin.runtime import RuntimePlan, codec_of

INJECT = Path(__file__).parent / "inject"
SESSION_MS = 6_000
"""Milliseconds after which Kafka gives up a process that was killed; the least that a broker allows."""


class GatewayProcess:
    """A running or ended `validator transport run channel`."""

    def __init__(self, configuration: Path, environment: Mapping[str, str]) -> None:
        command = [sys.executable, "-m", "validator", "transport", "run", "channel", f"--config={configuration}"]
        self.process = subprocess.Popen(
            command, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True, cwd=configuration.parent
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))

    @property
    def port(self) -> int | None:
        """Return the port once the gateway listens."""
        found = (re.search(r"listening on \S+ port ([0-9]+)", line) for line in tuple(self.lines))
        return next((int(each[1]) for each in found if each), None)

    def said(self, text: str) -> bool:
        """Return whether a line holds a text."""
        return any(text in line for line in tuple(self.lines))

    def counted(self) -> dict[str, int]:
        """Return the counters of the last report."""
        line = next(line for line in reversed(self.lines) if "counted: " in line)
        return {name: int(number) for name, number in re.findall(r"([\w.]+)=([0-9]+)", line)}

    async def wait_for(self, condition: Callable[[], Any]) -> None:
        """Wait for a condition; fail if the process ends first."""

        def met() -> bool:
            ended = self.process.poll()
            if condition():
                return True
            assert ended is None, f"the gateway ended with {ended}: {self.lines}"
            return False

        await until(met)

    async def listening(self) -> int:
        """Wait until the gateway listens, and return its port."""
        await self.wait_for(lambda: self.port is not None)
        assert self.port is not None
        return self.port

    async def ended(self) -> int:
        """Wait for the end of the process and return its exit code."""
        await until(lambda: self.process.poll() is not None)
        self._reader.join()
        assert self.process.returncode is not None
        return self.process.returncode

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)


class Gateways(GatewayWorld):
    """The topics of one prefix, and gateways that use them."""

    def __init__(self, folder: Path, kafka: Mapping[str, Any], prefix: str, **config: Any) -> None:
        super().__init__(folder, **config)
        self.kafka, self.prefix = dict(kafka), prefix
        create_topics(self.kafka, prefix=prefix)
        self.codec = codec_of([RuntimePlan("router")])

    @contextmanager
    def start(
        self,
        name: str = "one",
        *,
        inject: Mapping[str, Any] | None = None,
        session_ms: int = SESSION_MS,
        **changes: Any,
    ) -> Iterator[GatewayProcess]:
        """Start a gateway, and kill it on exit if it still runs."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        configuration = folder / "validator.toml"
        tables = {
            "kafka": {**self.kafka, "session.timeout.ms": session_ms},
            "topics": {"prefix": self.prefix},
            "transports": {"channel": self.config(**changes)},
        }
        configuration.write_text(to_toml(tables))
        environment = (
            {} if inject is None else {"PYTHONPATH": str(INJECT), **{key: str(each) for key, each in inject.items()}}
        )
        started = GatewayProcess(configuration, environment)
        try:
            yield started
        except BaseException:
            print(f"gateway {name}:", *started.lines, sep="\n  ")  # pytest shows it with the failure
            raise
        finally:
            if started.process.poll() is None:
                started.process.kill()
            started.process.wait()

    def records(self, topic: str = "candidates") -> list[TopicRecord]:
        """Return the records of a topic."""
        with TopicReader(self.kafka, self.prefix, [topic]) as reader:
            return list(reader.read_to_end())

    def decoded(self, topic: str = "candidates") -> list[dict[str, Any]]:
        """Return the records of a topic in JSON form."""
        return [to_json(topic, record.value, self.codec) for record in self.records(topic)]


class Delivered:
    """Counts the messages on submit topics that were acknowledged; give it to a client as ``on_event``."""

    count = 0

    def __call__(self, _: object, event: object) -> None:
        self.count += isinstance(event, MessageDelivered) and event.topic in SUBMIT_TOPICS.values()


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def as_text(records: list[dict[str, Any]]) -> list[str]:
    """Return records in a form that can be compared and counted."""
    return [json.dumps(record, sort_keys=True) for record in records]
