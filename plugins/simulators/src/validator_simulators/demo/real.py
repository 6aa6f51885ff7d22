# SPDX-License-Identifier: Apache-2.0
"""`validator demo --real`: a recorded run of a real chain through node, transport, Kafka and Spark, with the chain as the judge."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from validator.cli.command_api import TopicReader, UserError, exit_codes, in_one_line, to_toml, write_private
from validator_simulators import settings_of_profile
from validator_simulators.demo.command import OUTPUT_TOPICS, Demo, DemoFeed, run_demo, summary_of
from validator_simulators.demo.comparison import Comparison
from validator_simulators.demo.screen import DemoProgress

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.console import Console

    from validator.cli.command_api import Config, Service, TopicRecord
    from validator_simulators.relay_chain.run import RecordedRun

END_S_MAX: Final = 30.0
"""Seconds that a transport may take to end before it is killed."""
LOOK_S: Final = 0.1


def demo_real(recorded: Path | None, directory: Path | None, *, as_json: bool) -> None:
    """Run the demo. Raises `UserError`, and ``typer.Exit`` with 1 if a verdict is missing or the chain disagrees."""

    def play(folder: Path, console: Console) -> dict[str, Any]:
        with _run(recorded, folder) as run:
            progress = _progress(run)
            demo = RealDemo(run, folder, progress, console)
            demo.run()
            return {**summary_of(progress, folder), "chain": demo.said}

    run_demo(play, directory, as_json=as_json)


def _run(recorded: Path | None, folder: Path) -> AbstractContextManager[RecordedRun]:
    try:
        from validator_simulators.relay_chain.run import recorded_run
    except ModuleNotFoundError as error:
        raise UserError(f"--real: expected validator-relay-chain, found none: {in_one_line(error)}") from error
    return recorded_run(recorded, folder)


def _progress(run: RecordedRun) -> DemoProgress:
    settings = settings_of_profile("demo", seed=0, blocks=len(run.expected), lane=run.lane, first_block=run.first_block)
    return DemoProgress(settings, ChainComparison.of(run), title=run.title, partner="the chain")


class ChainComparison(Comparison):
    """Compares verdicts with what the chain accepted, and adds what the judge says. Dispatches are not compared: no event has them."""

    judged: int | None = None
    last: int = 0

    @classmethod
    def of(cls, run: RecordedRun) -> ChainComparison:
        """Return the comparison with a run."""
        made = cls(records_sent=run.records)
        for block, verdicts in run.expected.items():
            # no event of the chain says which messages a para has received
            expected = [{**each, "received": None} for each in verdicts]
            made.expect_block(run.lane, block, expected, [], frozenset())
        made.last = max(run.expected)
        return made

    def observe(self, topic: str, record: dict[str, Any]) -> bool:
        """Take a record; return whether it is new."""
        return topic != "dispatches" and super().observe(topic, record)

    def take_status(self, block: int, ours: int, line: str) -> None:
        """Take what the judge says."""
        if ours and not any(line in each for each in self.differences):
            self._differ(line)
        self.judged = block

    def complete(self) -> bool:
        """Return whether every verdict has arrived and every block was compared."""
        return super().complete() and self.judged is not None and self.judged >= self.last

    def problems(self) -> list[str]:
        """Describe everything that is not as expected."""
        found = super().problems()
        if self.judged is None or self.judged < self.last:
            found.append(f"the chain was compared up to block {self.judged}, not up to {self.last}")
        return found


class TransportFeed:
    """Runs the transports of a run as processes; it is done when the first one has ended by itself."""

    def __init__(self, run: RecordedRun, config: Path, logs: Path) -> None:
        self.go = threading.Event()
        self.done = threading.Event()
        self.failure: BaseException | None = None
        self.sent_at: dict[int, float] = {}
        self._run, self._config, self._logs = run, config, logs
        self._processes: list[subprocess.Popen[bytes]] = []
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._halt = threading.Event()

    def start(self) -> None:
        """Start them."""
        for name in self._run.transports:
            with (self._logs / f"{name}.log").open("wb") as log:
                command = [sys.executable, "-m", "validator", "transport", "run", name, f"--config={self._config}"]
                self._processes.append(
                    subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
                )
        self._watcher.start()

    def stop(self) -> None:
        """End them, and wait for them."""
        self._halt.set()
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(END_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._processes:
            self._watcher.join()

    def _watch(self) -> None:
        has_gone = False
        while not self._halt.is_set():
            if self.go.is_set() and not has_gone:
                has_gone = True
                self._run.proceed()
            for name, process in zip(self._run.transports, self._processes, strict=True):
                code = process.poll()
                if code == exit_codes.OK and name == self._run.transports[0]:
                    self.done.set()
                elif code is not None and not self.done.is_set():
                    log = self._logs / f"{name}.log"
                    self.failure = UserError(f"transport {name} ended with code {code}: see {log}")
                    self.done.set()
                    return
            time.sleep(LOOK_S)


class RealDemo(Demo):
    """One run of the demo."""

    def __init__(self, run: RecordedRun, directory: Path, progress: DemoProgress, console: Console) -> None:
        self._run = run
        self.said = ""
        """The last line of the judge."""
        self._place = directory
        super().__init__(None, directory, progress, console, rate=1.0)  # type: ignore[arg-type]

    def _tables(self) -> dict[str, Any]:
        job = {"directory": str(self._place / "job"), "headroom_interval_blocks": 1}
        return {**self._run.tables, "job": job}

    def _stream(self, service: Service) -> None:
        feed = TransportFeed(self._run, self._written(service.config), self._place)
        topics = (*OUTPUT_TOPICS, self._run.status_topic)
        feed.start()
        try:
            with self._reader(service, topics) as reader:
                self._follow(service, feed, reader)
        finally:
            feed.stop()

    def _reader(self, service: Service, topics: tuple[str, ...]) -> TopicReader:
        """Return a reader, as soon as the transports have created their topics. Raises `UserError`."""
        deadline = time.monotonic() + END_S_MAX
        while True:
            try:
                return TopicReader(service.config.kafka, service.config.topics.prefix, topics)
            except UserError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(LOOK_S)

    def _written(self, config: Config) -> Path:
        """Write the configuration with the broker's address and login, for the transports."""
        path = self._place / "transports.toml"
        write_private(path, to_toml({**self._tables(), "kafka": dict(config.kafka)}))
        return path

    def _observe(self, record: TopicRecord, feed: DemoFeed) -> int:
        comparison = self._progress.comparison
        assert isinstance(comparison, ChainComparison)
        if record.topic == self._run.status_topic:
            block, ours, self.said = self._run.status(record.value)
            comparison.take_status(block, ours, self.said)
            return 0
        taken = super()._observe(record, feed)
        executed = self._progress.status().get("executed_block")
        if executed is not None:
            self._on_block(executed)
        return taken
