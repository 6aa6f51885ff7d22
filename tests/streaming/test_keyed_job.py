# SPDX-License-Identifier: Apache-2.0
"""A plugin's job on Spark and Kafka: the operator of bodies, whose workers are killed and whose query starts again."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from validator_xcmp_bodies import records
from validator_xcmp_bodies.job import open_job
from validator_xcmp_bodies.parts import measure, rejoin

from streaming.keyed_job import KeyedJobSettings, start_keyed_query
from streaming.run_keyed import check_written, recoveries, run_keyed_job
from streaming.transactions import TransactionalWriter
from tests.bodies.history import LANE, Named, honest
from tests.sending import send
from tests.streaming.harness import Outputs, consume, python_workers, wait_until
from validator.checkpoint.markers import LaneOnKafka
from validator.config import Config
from validator.errors import UserError
from validator.kafka.calls import ABANDONED_S_MAX
from validator.kafka.topics import create_topics
from validator.kafka.transaction import WriteFailed
from validator.lanes.marker import Marker
from validator.plugin.job_api import JobContext, OutputRecord

CHAINS = {LANE: {"protocol": "xcmp-network", "limits": {}}}
OUTPUTS = (records.HELD, records.REFUSED, records.WANTED, records.FLOW, records.QUEUES)


class Run:
    """One job with its own topics."""

    def __init__(self, spark: SparkSession, kafka: dict[str, Any], folder: Path, prefix: str) -> None:
        self.spark, self.kafka, self.prefix = spark, kafka, prefix
        self.folder = folder / prefix
        self.log = folder.parent / "logs" / "spark.log"
        job = open_job(JobContext("xcmp-bodies", {"buckets": 2}, CHAINS))
        create_topics(kafka, prefix=prefix)
        create_topics(kafka, prefix=prefix, topics=job.topics)
        self.settings = KeyedJobSettings(job, dict(kafka), prefix, folder / prefix / "checkpoint", 50)
        self.produced: Counter[str] = Counter()
        self.query: StreamingQuery | None = None

    def produce(self, history: list[Named]) -> None:
        send(self.kafka, self.prefix, [(topic, LANE.encode(), value) for topic, value in history])
        self.produced.update(topic for topic, _ in history)

    def start(self) -> None:
        self.query = start_keyed_query(self.spark, self.settings)

    def stop(self) -> None:
        assert self.query is not None
        self.query.stop()

    def settle(self) -> None:
        """Wait until the query has taken everything, and start it again if a worker was killed."""

        def done() -> bool:
            query = self.query
            assert query is not None
            if query.exception() is not None:
                self.start()
                return False
            return self.taken(query) == self.produced

        wait_until(done, f"{self.prefix}: everything produced is taken", self.log)

    def taken(self, query: StreamingQuery) -> Counter[str]:
        progress = query.lastProgress
        found: Counter[str] = Counter()
        for source in progress.sources if progress is not None else ():
            for topic, partitions in json.loads(source.endOffset or "{}").items():
                found[topic.removeprefix(self.prefix)] = sum(partitions.values())
        return Counter({topic: count for topic, count in found.items() if count})

    def outputs(self) -> Outputs:
        return consume(self.kafka, self.prefix, (*OUTPUTS, records.BODIES))


@pytest.fixture
def run(spark: SparkSession, kafka: dict[str, Any], spark_directory: Path, request: pytest.FixtureRequest) -> Any:
    made = Run(spark, kafka, spark_directory / "keyed", f"{request.node.name.replace('_', '-')[:40]}.")
    yield made
    if made.query is not None:
        made.query.stop()


def test_a_job_that_was_killed_in_a_transaction_starts_again_at_once(kafka: dict[str, Any], tmp_path: Path) -> None:
    """Its checkpoint says that the open transaction is its own; otherwise it would wait for minutes until the broker ends it."""
    job = open_job(JobContext("xcmp-bodies", {"buckets": 2}, CHAINS))
    prefix = f"{tmp_path.name}."
    create_topics(kafka, prefix=prefix)
    create_topics(kafka, prefix=prefix, topics=job.topics)
    killed = TransactionalWriter(LaneOnKafka(kafka, prefix, job.keys[0]), "the killed one")
    killed.marker([])
    killed.write([OutputRecord("markers", b"never committed", b"")])
    killed._writer.producer.flush(60)
    settings = KeyedJobSettings(job, kafka, prefix, tmp_path / "checkpoint", 50)
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    (tmp_path / "checkpoint" / "offsets" / "0").touch()
    started = time.monotonic()
    check_written(settings)
    assert time.monotonic() - started < ABANDONED_S_MAX / 2
    with pytest.raises(WriteFailed, match="has been taken over"):
        killed.commit(Marker(0, {}))


def listed(history: list[Named]) -> dict[tuple[int, int, int], dict[str, Any]]:
    events = [records.decode(topic, value) for topic, value in history if topic == "ingress-events"]
    return {(each["sender"], each["recipient"], each["sent_at"]): each for each in events if each["event"] == "queued"}


def check_bodies(outputs: Outputs, history: list[Named]) -> None:
    """Check that every listed body is held once and can be read, and that no record is refused twice."""
    held = [records.decode(records.HELD, value) for _, value in outputs[records.HELD]]
    expected = listed(history)
    assert sorted((each["sender"], each["recipient"], each["sent_at"]) for each in held) == sorted(expected)
    for each in held:
        parts = [records.decode_body(outputs[records.BODIES][place["offset"]][1])[2] for place in each["places"]]
        found = measure(rejoin(parts))
        entry = expected[each["sender"], each["recipient"], each["sent_at"]]
        assert (found.root, found.size, found.payloads) == (entry["root"], entry["size"], each["payloads"])
    refused = [records.decode(records.REFUSED, value) for _, value in outputs[records.REFUSED]]
    assert {each["kind"] for each in refused} <= {"Body/Duplicate"}, "another with the same root has answered"
    assert len({each["offset"] for each in refused}) == len(refused)
    last = {key: records.decode(records.QUEUES, value) for key, value in outputs[records.QUEUES]}
    assert sum(status["unread"] for status in last.values()) == len(expected)
    assert all(status["missing"] == 0 for status in last.values())


@pytest.mark.long
def test_bodies_are_held_once_in_everything_that_may_happen_to_a_job(run: Run, tmp_path: Path) -> None:
    """One job for all of it, since a query takes seconds to start: killed workers, a restart, a lost checkpoint, an earlier one."""
    assert recoveries(run.settings, tmp_path, rebuild=False) == {}
    history = honest(7, acknowledged=False)
    quarter = len(history) // 4
    run.produce(history[:quarter])
    run.start()
    run.settle()
    workers_are_killed(run, history[quarter : 2 * quarter])
    the_query_starts_again(run, history[2 * quarter : 3 * quarter])
    the_checkpoint_is_lost(run, history[3 * quarter :], tmp_path)
    check_bodies(run.outputs(), history)
    run.stop()
    another_checkpoint_is_used(run)


def workers_are_killed(run: Run, more: list[Named]) -> None:
    assert run.query is not None
    run.produce(more)
    for worker in python_workers(run.spark):
        os.kill(worker, signal.SIGKILL)
    run.settle()
    progress = run.query.lastProgress
    assert progress is not None
    first = progress.sources[0].endOffset
    assert first is not None
    assert records.BODIES in first, "Spark reads the ends of its sources in this order: effects first"


def the_query_starts_again(run: Run, more: list[Named]) -> None:
    run.stop()
    with_more_buckets = Config.model_validate({
        "topics": {"prefix": run.prefix}, "kafka": run.kafka, "chains": {LANE: {"protocol": "xcmp-network"}},
        "jobs": {"xcmp-bodies": {"buckets": 3}}, "job": {"directory": str(run.folder / "more-buckets")},
    })  # fmt: skip
    with pytest.raises(UserError, match=r"\[jobs.xcmp-bodies\] buckets: expected 2, .* found 3"):
        run_keyed_job(with_more_buckets, "xcmp-bodies")
    run.produce(more)
    run.start()
    run.settle()
    outputs = run.outputs()
    wanted = [records.decode(records.WANTED, value) for _, value in outputs[records.WANTED]]
    requests = Counter((each["sender"], each["recipient"], each["sent_at"], each["attempt"]) for each in wanted)
    assert set(requests.values()) <= {1}
    run.stop()


def the_checkpoint_is_lost(run: Run, more: list[Named], folder: Path) -> None:
    """It starts only to rebuild, and repeats nothing."""
    run.produce(more)
    run.settings = replace(run.settings, checkpoint=Path(run.settings.checkpoint).with_name("lost"))
    with pytest.raises(UserError, match="Kafka holds output of job xcmp-bodies up to step"):
        recoveries(run.settings, folder, rebuild=False)
    found = recoveries(run.settings, folder, rebuild=True)
    run.settings = replace(run.settings, recoveries=found)
    run.start()
    run.settle()
    assert recoveries(run.settings, folder, rebuild=False) == found, (
        "killed in its first batch, it begins with the same"
    )


def another_checkpoint_is_used(run: Run) -> None:
    """It does not know what was emitted, so the marker stops the job."""
    run.settings = replace(run.settings, checkpoint=Path(run.settings.checkpoint).with_name("other"), recoveries={})
    run.start()
    assert run.query is not None
    with pytest.raises(StreamingQueryException, match="does not follow step"):
        run.query.awaitTermination()
