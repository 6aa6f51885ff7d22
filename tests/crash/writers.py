# SPDX-License-Identifier: Apache-2.0
"""Real writer processes on a real broker, killed, stopped and replaced: what no fake log can see, in seconds and without Spark.

The processes run the job's sink (`writer_process`) with the failpoints of the crash suite. `python -m tests.crash.writers` reads
`{"kafka": ..., "prefix": ...}` from its standard input and prints its finding as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeAlias

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.crash.inject.crash_failpoints import Armed
from tests.crash.writer_process import BLOCKS_PER_BATCH, FENCED, LANE, Work, outputs
from validator.checkpoint.markers import LaneOnKafka
from validator.kafka.settings import WHOLE, consumer_config
from validator.kafka.topics import create_topics

INJECT = Path(__file__).parent / "inject"

PROCESS_S_MAX = 240.0
"""Seconds for which a process may run, on a busy machine."""

TRACEBACK = 1
"""Python's exit code after an exception that nothing has caught."""

KILLED_AT = ("produced", "commit-before")
"""Steps between the first record of a batch and its commit."""


@dataclass
class Found:
    """``tries`` counts the processes that were killed or stopped; ``found`` is empty or says what is wrong.

    A process that has ended with a traceback is wrong ``by_accident``: that says nothing about its output.
    """

    tries: int = 0
    found: str = ""
    by_accident: bool = False


class Wrong(Exception):
    """A process or its output is not as it must be."""

    by_accident = False


class Crashed(Wrong):
    """A process has ended with a traceback."""

    by_accident = True


class Scene:
    """One episode's topics and processes; leaving it ends the processes."""

    def __init__(self, kafka: Mapping[str, Any], prefix: str, folder: Path) -> None:
        self._kafka = dict(kafka)
        self._prefix = prefix
        self._points = folder
        self._processes: list[subprocess.Popen[str]] = []
        create_topics(self._kafka, prefix=prefix)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            assert process.stderr is not None
            process.stderr.close()

    def start(self, job: str, first: int, end: int, *, at: str = "", countdown: int = 1, stop: bool = False) -> Any:
        """Start a process; with a step to be killed at, or with ``stop`` to be stopped at."""
        work: Work = {"kafka": self._kafka, "prefix": self._prefix, "job": job, "first": first, "end": end}
        environment = {**os.environ, "VALIDATOR_STAGE": "lanes"}
        if at:
            environment["CRASH_POINTS"] = str(self._points)
            environment["PYTHONPATH"] = os.pathsep.join([str(INJECT), *filter(None, [os.environ.get("PYTHONPATH")])])
            armed = Armed(
                id=job, step=at, countdown=countdown, signal=signal.SIGSTOP if stop else signal.SIGKILL,
                victims=["worker"], broker_record="", delay_s=0.0,
            )  # fmt: skip
            (self._points / "armed").write_text(json.dumps(armed), encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.writer_process"],
            stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True,
        )  # fmt: skip
        self._processes.append(process)
        assert process.stdin is not None
        process.stdin.write(json.dumps(work))
        process.stdin.close()
        return process

    def end(self, process: Any, expected: int) -> None:
        """Wait for a process. Raises `Wrong` if its exit code is another one."""
        try:
            code = process.wait(PROCESS_S_MAX)
        except subprocess.TimeoutExpired:
            raise Wrong(f"a writer does not end within {PROCESS_S_MAX:.0f} s") from None
        if code != expected:
            last = (process.stderr.read().splitlines() or ["no message"])[-1]
            kind = Crashed if code == TRACEBACK else Wrong
            raise kind(f"a writer ended with code {code}, expected {expected}: {last}")

    def stopped(self, process: Any) -> None:
        """Wait until a process is stopped. Raises `Wrong` if it ends instead."""
        # WNOWAIT leaves the end of the process to `end`
        found = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if found is None or found.si_code != os.CLD_STOPPED:
            raise Wrong("a writer ended before the step at which it was to be stopped")

    def check_group(self, batches: int) -> None:
        """Check that the lane's group is not ahead of the last block committed. Raises `Wrong`."""
        last = LaneOnKafka(self._kafka, self._prefix, LANE).group_block()
        if last is not None and last > (expected := batches * BLOCKS_PER_BATCH):
            raise Wrong(f"the lane's group is at block {last}, its committed output at {expected}")

    def check(self, batches: int) -> None:
        """Compare what readers see with the output of these batches. Raises `Wrong`."""
        expected = [
            record for batch in range(batches) for each in outputs(self._prefix, batch) for record in each.records
        ]
        for topic in ("verdicts", "dead-letters"):
            wanted = [record.value for record in expected if record.topic == topic]
            found = self._committed(topic)
            if found != wanted:
                lost, twice = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
                raise Wrong(f"{topic}: {lost.total()} lost, {twice.total()} too many, {len(wanted)} expected")

    def _committed(self, topic: str) -> list[bytes]:
        consumer = Consumer(consumer_config(self._kafka, WHOLE, group_id="writers-reader"))
        consumer.assign([TopicPartition(self._prefix + topic, 0, 0)])
        values: list[bytes] = []
        try:
            while (message := consumer.poll(PROCESS_S_MAX)) is not None:
                if (error := message.error()) is None:
                    values.append(message.value() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:
                    return values
            raise Wrong(f"{topic} does not end")
        finally:
            consumer.close()


def killed_between_producing_and_commit(scene: Scene, step: str) -> None:
    """A process is killed in its second batch; its successor repeats the first one, which the marker covers, and continues."""
    # the blocks of a batch, its dead letters and its marker are written one after the other
    countdown = 2 * BLOCKS_PER_BATCH + 2 if step == "produced" else 2
    first = scene.start("job", 0, 3, at=step, countdown=countdown)
    scene.end(first, -signal.SIGKILL)
    scene.check_group(1)
    scene.end(scene.start("job", 0, 3), 0)
    scene.check(3)


def zombie_comes_back(scene: Scene, step: str) -> None:
    """A process is stopped with a marker that it has read; another job takes over, and emits more; the first one comes back."""
    zombie = scene.start("first", 0, 3, at=step, stop=True)
    scene.stopped(zombie)
    scene.end(scene.start("second", 0, 2), 0)
    zombie.send_signal(signal.SIGCONT)
    scene.end(zombie, FENCED)
    scene.check(2)
    scene.check_group(2)


Episode: TypeAlias = tuple[Callable[[Scene, str], None], str]
"""What happens, and the step at which it does."""

ZOMBIE: Episode = (zombie_comes_back, "marker-read")
EPISODES: tuple[Episode, ...] = (ZOMBIE, *((killed_between_producing_and_commit, step) for step in KILLED_AT))
SHORT: tuple[Episode, ...] = (ZOMBIE, (killed_between_producing_and_commit, "commit-before"))
"""The episodes of `make test`."""


def play(kafka: Mapping[str, Any], prefix: str, episodes: Sequence[Episode] = EPISODES) -> Found:
    """Play episodes until one is wrong, each below its own prefix."""
    result = Found()
    for at, (episode, step) in enumerate(episodes):
        result.tries += 1
        with _scene(kafka, f"{prefix}{at}.") as scene:
            try:
                episode(scene, step)
            except Wrong as wrong:
                result.found = f"{episode.__name__.replace('_', ' ')}, at {step}: {wrong}"
                result.by_accident = wrong.by_accident
                return result
    return result


@contextmanager
def _scene(kafka: Mapping[str, Any], prefix: str) -> Iterator[Scene]:
    with tempfile.TemporaryDirectory(prefix="writers-") as folder, Scene(kafka, prefix, Path(folder)) as scene:
        yield scene


if __name__ == "__main__":
    given = json.load(sys.stdin)
    played = play(given["kafka"], given["prefix"])
    json.dump({"tries": played.tries, "found": played.found, "by_accident": played.by_accident}, sys.stdout)
