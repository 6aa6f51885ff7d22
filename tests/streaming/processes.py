# SPDX-License-Identifier: Apache-2.0
"""The job as a process, `python -m streaming`: its events and its exit."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streaming.session import SPARK_LOG
from tests.streaming.harness import wait_until
from tests.unit.lanes.chains import Chain
from validator.kafka.reader import POLL_S, TopicReader

Event = dict[str, Any]


def write_configuration(
    directory: Path, chains: tuple[Chain, ...], kafka: Mapping[str, Any], prefix: str, **job: Any
) -> Path:
    """Write the configuration that `validator run` hands to the job."""
    settings = {
        "topics": {"prefix": prefix},
        "kafka": dict(kafka),
        "job": {"directory": str(directory / "job"), "driver_memory": "1g", **job},
        "chains": {chain.lane: chain.table for chain in chains},
    }
    path = directory / "configuration.json"
    path.write_text(json.dumps(settings), encoding="utf-8")
    return path


@dataclass
class JobProcess:
    """A job process, running or ended."""

    process: subprocess.Popen[str]
    log: Path
    lines: list[str] = field(default_factory=list)

    def events(self) -> list[Event]:
        """Return the logged events."""
        return [json.loads(line) for line in list(self.lines)]

    def named(self, event: str) -> list[Event]:
        """Return the events of one name."""
        return [each for each in self.events() if each["event"] == event]

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition; fail if the process ends first."""

        def met() -> bool:
            ended = self.process.poll() is not None  # asked first: what the process did at its end still counts
            if condition():
                return True
            assert not ended, f"the job ended with {self.process.returncode} before: {what}; it said {self.lines}"
            return False

        wait_until(met, what, self.log)

    def wait_for_records(self, kafka: Mapping[str, Any], prefix: str, topic: str, count: int) -> None:
        """Wait until a topic has that many committed records; fail if the process ends first."""
        arrived = 0
        with TopicReader(kafka, prefix, [topic]) as reader:

            def met() -> bool:
                nonlocal arrived
                arrived += len(reader.poll(POLL_S))
                return arrived >= count

            self.wait_for(met, f"{topic} has {count} records")

    def end(self) -> int:
        """Wait for the end of the process and return its exit code."""
        wait_until(lambda: self.process.poll() is not None, "the job ends", self.log)
        self.reader.join()
        return self.process.returncode

    def terminate(self) -> int:
        """Send SIGTERM, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.end()

    def __post_init__(self) -> None:
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if line.strip():
                self.lines.append(line.rstrip("\n"))


@contextmanager
def job(configuration: Path, *accepted: str) -> Iterator[JobProcess]:
    """Start the job, with values of `--accept-change`, and kill it on exit if it still runs."""
    with configuration.open() as settings:
        process = subprocess.Popen(
            [sys.executable, "-m", "streaming", *accepted],
            stdin=settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # its descendants are known by it (`tests.crash.processes`)
        )
    started = JobProcess(process, configuration.parent / "job" / "logs" / SPARK_LOG)
    try:
        yield started
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
