# SPDX-License-Identifier: Apache-2.0
"""The job `journeys`, its workers and its broker, killed while a lane's records flow.

The lane's outputs are written as the lane's job does: a transaction for each block. So a reader may see a receipt before a verdict of its
block. The topic must hold what an undisturbed process emits, each record once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TypeAlias

from confluent_kafka import KafkaException, Producer
from validator_journeys import records
from validator_journeys.job import JOB
from validator_simulators import SimulationSettings

from tests.crash.bodies_judge import Emitted, compare
from tests.crash.comparison import Tally
from tests.crash.jobs import KILLS, JobEpisode
from tests.crash.world import PATIENCE_S, Failure, World
from tests.unit.lanes.chains import chain, definition_of, inputs_of
from validator.config import Config
from validator.errors import UserError
from validator.job.installed import configured_job
from validator.kafka.reader import TopicReader
from validator.kafka.settings import producer_config
from validator.kafka.topics import create_topics
from validator.lanes.keyed import ordered
from validator.lanes.processor import LaneProcessor
from validator.plugin.job_api import JobItem, JobRecord

SETTINGS = SimulationSettings(
    seed=33,
    blocks=78,
    preset="tight",
    paras=8,
    candidates_per_block=5,
    session_length_blocks=5,
    requests_per_100_blocks=400,
)
OUTPUTS = (records.VERDICTS, records.DISPATCHES, records.EVENTS, records.RECEIPTS)

RETRY_S = 0.5
"""Seconds between two attempts to write a transaction while the broker is away."""

READ_S_MAX = 300.0
"""Seconds without progress in which the open transaction of a dead writer must have ended."""

Block: TypeAlias = tuple[list[tuple[str, bytes]], list[tuple[str, bytes]]]
"""What a lane reads, and what it writes."""


class JourneysEpisode(JobEpisode[Block]):
    """One run of the job on the world's broker, with its own topics."""

    job_name = JOB

    def __init__(self, world: World, name: str) -> None:
        self._chain = chain(SETTINGS)
        super().__init__(world, name)
        self._job = configured_job(self.config, JOB)
        create_topics(world.kafka, prefix=self.prefix)
        create_topics(world.kafka, prefix=self.prefix, topics=self._job.topics)
        settings = producer_config(world.kafka) | {"reconnect.backoff.max.ms": 500}
        self._inputs = Producer(settings)
        self._outputs = Producer({**settings, "transactional.id": f"{name}-lane"})
        self._retried(lambda: self._outputs.init_transactions(10.0))
        self._fed: list[Block] = []
        self._expected: list[Emitted] = []

    def run(self) -> tuple[str, int]:
        """Kill everything in turn; return a note and how many processes were killed."""
        kills = list(KILLS)
        self._random.shuffle(kills)
        signals = self._survive(kills, self._history())
        self._stop()
        self._compare()
        return f"{len(kills)} kills, {len(self._fed)} blocks, {len(self._expected)} records", signals

    def _configuration(self) -> Config:
        return Config.model_validate(
            {
                "kafka": self._world.kafka,
                "topics": {"prefix": self.prefix},
                "chains": {self._chain.lane: self._chain.table},
                "jobs": {JOB: {}},
                "job": {
                    "directory": str(self.folder / "job"),
                    "master": "local[2]",
                    "driver_memory": "768m",
                    "max_records_per_trigger": 4,
                },
            }
        )

    def _history(self) -> list[Block]:
        """Return a chain's blocks."""
        processor = LaneProcessor.create(definition_of(self._chain))
        emitted = {
            each.block: [(record.topic, record.value) for record in each.records if record.topic in OUTPUTS]
            for each in processor.process(inputs_of(self._chain.records))
        }
        read = groupby(self._chain.records, lambda each: each.block)
        return [([(each.topic, each.value) for each in given], emitted[block]) for block, given in read]

    # --- feeding ---

    def _feed(self, part: Sequence[Block]) -> None:
        lane = self._chain.lane.encode()
        for inputs, outputs in part:
            for topic, value in inputs:
                self._inputs.produce(self.prefix + topic, value, lane)
            self._wait(lambda: self._inputs.flush(0.2) == 0, "the broker takes the inputs")
            self._write(outputs)
            self._fed.append((inputs, outputs))
        self._expected = self._whole()

    def _write(self, outputs: list[tuple[str, bytes]]) -> None:
        """Write a block in one transaction; one that must be aborted begins again."""
        while True:
            try:
                self._outputs.begin_transaction()
                for topic, value in outputs:
                    self._outputs.produce(self.prefix + topic, value, self._chain.lane.encode())
                self._retried(lambda: self._outputs.commit_transaction(10.0))
                return
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                self._retried(lambda: self._outputs.abort_transaction(10.0))

    def _retried(self, call: Callable[[], object]) -> None:
        """Call until the broker answers."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                call()
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_S)
            self._supervise()

    # --- comparing ---

    def _has_taken(self) -> bool:
        try:
            return len(self._emitted()) >= len(self._expected)
        except UserError:  # the broker starts again
            return False

    def _settle(self) -> None:
        self._wait(self._has_taken, "the job takes everything")
        self._compare()

    def _compare(self) -> None:
        tally = Tally()
        compare(self._expected, self._emitted(), records.JOURNEYS, tally)
        if not tally.clean:
            raise Failure("; ".join(tally.faults[:3]))

    def _emitted(self) -> list[Emitted]:
        with TopicReader(self._world.kafka, self.prefix, [records.JOURNEYS]) as reader:
            return [(record.key or b"", record.value) for record in reader.read_past_transactions(READ_S_MAX)]

    def _whole(self) -> list[Emitted]:
        """Return what an undisturbed process emits: batches do not matter."""
        items, offsets = [], dict.fromkeys((*self._job.causes, *self._job.effects), 0)
        for inputs, outputs in self._fed:
            for topic, value in (*inputs, *outputs):
                if topic in offsets:
                    record = JobRecord(topic, 0, offsets[topic], None, value)
                    offsets[topic] += 1
                    items += [JobItem(*record[:3], content) for _, content in self._job.condense(record)]
        state = self._job.restore(self._job.keys[0], {})
        return [(record.key, record.value) for record in state.process(ordered(self._job, items))]
