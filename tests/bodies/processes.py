# SPDX-License-Identifier: Apache-2.0
"""Running commands of `validator`, and what they and the topics say, awaited."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Condition, Thread
from typing import IO, Any

from validator.kafka.reader import TopicReader, TopicRecord

PATIENCE_S = 300.0
"""What takes longer never comes; this is many times what a busy machine needs."""


class Running:
    """A process of `validator`; ``out`` and ``err`` are the lines that it has written. ``job`` is the folder of the job that it runs."""

    def __init__(self, *arguments: str, job: Path | None = None) -> None:
        self.name = " ".join(arguments)
        self._job = job
        self.process = subprocess.Popen(
            [sys.executable, "-m", "validator", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.out: list[str] = []
        self.err: list[str] = []
        self._changed = Condition()
        streams = ((self.process.stdout, self.out), (self.process.stderr, self.err))
        self._threads = [Thread(target=self._read, args=each, daemon=True) for each in streams]
        for thread in self._threads:
            thread.start()

    def _read(self, stream: IO[str], lines: list[str]) -> None:
        for line in stream:
            with self._changed:
                lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, found: Callable[[], Any]) -> Any:
        """Return what ``found`` finds in the lines, once that is true."""
        with self._changed:
            ended = self._changed.wait_for(lambda: found() or self.process.poll() is not None, PATIENCE_S)
            assert found(), (self.name, "ended" if ended else "is late", self.out[-5:], self.err[-20:])
            return found()

    def wait_for_event(self, event: str) -> dict[str, Any]:
        """Return the first line of a job's log with an event."""
        return next(iter(self.wait_for(lambda: self.events(event))))

    def events(self, event: str) -> list[dict[str, Any]]:
        """Return the lines of a job's log with an event."""
        parsed = (json.loads(line) for line in self.err if line.startswith("{"))
        return [each for each in parsed if each["event"] == event]

    def rows(self, count: int) -> list[dict[str, Any]]:
        """Return the first rows of the output."""
        self.wait_for(lambda: len(self.out) >= count)
        return [json.loads(line) for line in self.out[:count]]

    def stop(self) -> int:
        """Ask the process to end; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.end()

    def end(self) -> int:
        """Return the exit code, once the process has ended and its lines are read."""
        code = self.process.wait(PATIENCE_S)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        return code

    def kill(self) -> None:
        """Kill the process, and the Spark process of its job if it runs one."""
        if self.process.poll() is None:
            if self._job is not None:
                record = json.loads((self._job / "job.json").read_text(encoding="utf-8"))
                os.kill(record["pid"], signal.SIGKILL)
            self.process.kill()
        self.end()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


class Topics:
    """Everything that is committed on some topics, decoded, as it arrives."""

    def __init__(
        self, kafka: Mapping[str, Any], prefix: str, decoders: Mapping[str, Callable[[str, bytes], dict[str, Any]]]
    ) -> None:
        self._reader = TopicReader(kafka, prefix, list(decoders))
        self._decoders = decoders
        self.records: dict[str, list[dict[str, Any]]] = {topic: [] for topic in decoders}

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()

    def wait_for(self, topic: str, count: int) -> list[dict[str, Any]]:
        """Return a topic's records, once there are as many."""
        deadline = time.monotonic() + PATIENCE_S
        while len(self.records[topic]) < count:
            assert time.monotonic() < deadline, (topic, self.records)
            for record in self._reader.poll(1.0):
                self._take(record)
        return self.records[topic]

    def _take(self, record: TopicRecord) -> None:
        self.records[record.topic].append(self._decoders[record.topic](record.topic, record.value))
