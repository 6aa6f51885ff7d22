# SPDX-License-Identifier: Apache-2.0
"""Processes of `validator transport run` with a plugin of the test, each with its own configuration file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any

from tests.distributions import IMPORTS, install
from validator.config.toml import to_toml
from validator.kafka.topics import create_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

WAIT_S = 60.0


@dataclass
class Transport:
    """A running process; ``lines`` is what it has written on standard error."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    changed: Condition = field(default_factory=Condition)

    def __post_init__(self) -> None:
        self.thread = Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self.changed:
                self.lines.append(line.rstrip("\n"))
                self.changed.notify_all()
        with self.changed:
            self.changed.notify_all()

    def wait_for(self, text: str) -> str:
        """Return the first line that has the text."""

        def found() -> list[str]:
            return [line for line in self.lines if text in line]

        with self.changed:
            assert self.changed.wait_for(lambda: found() or not self.thread.is_alive(), WAIT_S), self.lines
            assert found(), self.lines
            return found()[0]

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> int:
        """Return the exit code, once the process has ended and its lines are read."""
        code = self.process.wait(WAIT_S)
        self.thread.join(WAIT_S)
        return code


class Transports:
    """A plugin ``echo`` with one transport, topics with a prefix, and processes that are killed at the end."""

    def __init__(self, folder: Path, kafka: Mapping[str, Any], prefix: str, source: str) -> None:
        self.folder, self.kafka, self.prefix = folder, kafka, prefix
        self.plugins = folder / "plugins"
        install(self.plugins, "echo", IMPORTS + source, group="validator.transports")
        create_topics(kafka, prefix=prefix)
        self.started: list[Transport] = []

    def start(self, *, kafka: Mapping[str, Any] | None = None, **settings: Any) -> Transport:
        path = self.folder / f"{len(self.started)}.toml"
        tables = {"kafka": {**self.kafka, **(kafka or {})}, "topics": {"prefix": self.prefix}}
        path.write_text(to_toml({**tables, "transports": {"echo": settings}}))
        process = subprocess.Popen(
            [sys.executable, "-m", "validator", "transport", "run", "echo", f"--config={path}"],
            env={**os.environ, "PYTHONPATH": str(self.plugins)},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(Transport(process))
        return self.started[-1]

    def close(self) -> None:
        for each in self.started:
            each.process.kill()
            each.process.wait()
            each.thread.join()
            assert each.process.stderr is not None
            each.process.stderr.close()


def until(condition: Callable[[], Any], running: Transport) -> None:
    """Wait until a condition holds that the process brings about, in a file or a topic."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert running.process.poll() is None, running.lines
        assert time.monotonic() < deadline, running.lines
        time.sleep(0.02)
