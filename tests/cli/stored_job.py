# SPDX-License-Identifier: Apache-2.0
"""A job's checkpoint and topics, made in this process, which also plays Spark's part: for tests of `validator state`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from tests.cli.follower import LANE, Follower, follower, invoke
from tests.codecs import decoded, encoded
from tests.sending import send
from tests.unit.lanes.backend import Store, rows_of
from validator.ask import state
from validator.config import load_config
from validator.config.toml import to_toml
from validator.core.inputs import DeadLetter, Input, Source
from validator.kafka.settings import producer_config
from validator.lanes.configured import lane_definition
from validator.lanes.store import LaneCache, Skipped, process_batch, restore_lane
from validator.lanes.stored import Part, write_export
from validator.topics import INPUT_TOPICS

if TYPE_CHECKING:
    from pathlib import Path

    from validator.codec.encode import OutputRecord
    from validator.lanes.processor import LaneProcessor
    from validator.protocols.router.state import RouterState

BATCH = 17

Records = list[tuple[str, dict[str, Any]]]


@dataclass
class Job:
    """The files and topics of a job: inputs, outputs and a store; this process plays Spark's part."""

    chain: Follower
    store: Store = field(default_factory=Store)
    consumed: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.prefix = self.chain.config.topics.prefix
        self.checkpoint = self.chain.config_path.parent / "job" / "checkpoint"
        assert str(self.checkpoint.parent) == self.chain.config.job.directory
        (self.checkpoint / "commits").mkdir(parents=True)
        (self.checkpoint / "commits" / str(BATCH)).write_text("v1\n{}")
        self.consumed = {(self.prefix + topic, 0): 0 for topic in INPUT_TOPICS}

    def follow(
        self, records: Records, *, batches: int = 3, judged: Records | None = None, skips: Sequence[int] = ()
    ) -> None:
        """Send records, take them in several batches, and send the output.

        ``judged`` are taken instead of the records sent. The lane skips those at the indices ``skips``, as an operator has ordered.
        """
        kafka = self.chain.config.kafka
        send(kafka, self.prefix, [(kind, LANE.encode(), encoded(kind, record)) for kind, record in records])
        definition = lane_definition(self.chain.config, LANE)
        items = [self.item(kind, record) for kind, record in (records if judged is None else judged)]
        skipped = Skipped(frozenset(items[at].source for at in skips))
        cache = LaneCache()
        for at in range(batches):
            attempt = self.store.attempt()
            batch = items[len(items) * at // batches : len(items) * (at + 1) // batches]
            for _, output in process_batch(definition, attempt, cache, [batch], skipped):
                self.emit(output)
            self.store.commit(attempt)

    def emit(self, records: list[OutputRecord]) -> None:
        """Send what a lane emits, dead letters with their headers."""
        kafka = self.chain.config.kafka
        send(kafka, self.prefix, [(topic, key, value) for topic, key, value, headers in records if not headers])
        if letters := [each for each in records if each.headers]:
            producer = Producer(producer_config(kafka))
            for topic, key, value, headers in letters:
                producer.produce(self.prefix + topic, value, key, headers=list(headers))
            assert producer.flush(60.0) == 0

    def item(self, kind: str, record: dict[str, Any]) -> Input | DeadLetter:
        place = (self.prefix + kind, 0)
        source = Source(*place, self.consumed[place])
        self.consumed[place] += 1
        item = decoded(kind, encoded(kind, record), source, LANE.encode())
        return item if isinstance(item, DeadLetter) else item[1]

    def read(self, checkpoint: Path, output: Path, lanes: Sequence[str]) -> None:
        """Do the work of `streaming.state_reader`."""
        assert checkpoint == self.checkpoint
        write_store(output, self.store, self.consumed, lanes)

    def worker(self) -> LaneProcessor:
        restored = restore_lane(lane_definition(self.chain.config, LANE), self.store.attempt())
        assert restored is not None
        return restored

    def state(self) -> RouterState:
        found: RouterState = self.worker().lane.rules.state  # type: ignore[attr-defined]
        return found

    def show(self, *arguments: str) -> Any:
        return invoke("state", "show", f"--lane={LANE}", *arguments, self.chain.option())

    def shown(self, *arguments: str) -> dict[str, Any]:
        result = self.show(*arguments, "--json")
        assert result.exit_code == 0, result.output
        (line,) = result.stdout.splitlines()
        document: dict[str, Any] = json.loads(line)
        return document

    def verify(self, *arguments: str) -> Any:
        return invoke("state", "verify", *arguments, self.chain.option())


def write_store(output: Path, store: Store, consumed: dict[tuple[str, int], int], lanes: Sequence[str]) -> None:
    """Write the same file as the reader of a job's checkpoint with one lane."""
    rows = rows_of(LANE, store.committed)
    write_export(output, BATCH, consumed, [row for row in rows if row[1] is Part.HEAD or not lanes or LANE in lanes])


class KeptLane:
    """A lane in the checkpoint of a job without topics, which took one batch; commands read the lane in this process."""

    def __init__(
        self, folder: Path, patch: pytest.MonkeyPatch, table: dict[str, Any], items: list[Input | DeadLetter]
    ) -> None:
        self.config_path = folder / "validator.toml"
        job = {"directory": str(folder / "job")}
        self.config_path.write_text(to_toml({"job": job, "chains": {LANE: table}}), encoding="utf-8")
        self.definition, self.store = lane_definition(load_config(self.config_path), LANE), Store()
        attempt = self.store.attempt()
        list(process_batch(self.definition, attempt, LaneCache(), [items]))
        self.store.commit(attempt)
        commits = folder / "job" / "checkpoint" / "commits"
        commits.mkdir(parents=True)
        (commits / str(BATCH)).write_text("v1\n{}")
        patch.setattr(state, "read_checkpoint", lambda _, output, lanes: write_store(output, self.store, {}, lanes))

    def processor(self) -> LaneProcessor:
        restored = restore_lane(self.definition, self.store.attempt())
        assert restored is not None
        return restored


def maker(directory: Path, kafka: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Job]:
    """Return a function that makes a job whose checkpoint the command reads in this process."""

    def make(blocks: int = 30, seed: int = 5) -> Job:
        made = Job(follower(directory, kafka, f"state-{directory.name}.", blocks=blocks, seed=seed))
        monkeypatch.setattr(state, "read_checkpoint", made.read)
        return made

    return make


def refused(result: Any, words: str) -> None:
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    assert result.stderr.startswith("validator: ")
    assert result.stderr.count("\n") == 1
