# SPDX-License-Identifier: Apache-2.0
"""One job through several outages: it waits, says so, continues, and emits what an undisturbed one emits."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.crash.processes import workers_of
from tests.streaming.harness import consume, decoded, first_difference, of_lane, produce
from tests.streaming.processes import JobProcess, job, write_configuration
from tests.streaming.reference import IMMEDIATE, ON_INCLUSION, chains, reference
from validator import exit_codes
from validator.kafka.broker import EmbeddedBroker
from validator.kafka.topics import create_topics, list_topics

PREFIX = "outages."


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.broker
def test_job_waits_out_a_missing_broker_a_stopped_worker_and_a_broker_that_goes(tmp_path: Path) -> None:
    records = [record for chain in chains() for record in chain.records]
    early, later, last = (
        [each for each in records if each.block <= 10],
        [each for each in records if 10 < each.block <= 20],
        [each for each in records if each.block > 20],
    )
    broker = EmbeddedBroker(tmp_path / "broker")
    try:
        broker.start()
        kafka = broker.kafka
        create_topics(kafka, prefix=PREFIX)
        broker.stop()

        def blocks() -> int:
            return next(
                each.records or 0 for each in list_topics(kafka, prefix=PREFIX) if each.name == f"{PREFIX}receipts"
            )

        def executed(running: JobProcess, upto: int) -> None:
            wanted = sum(record.topic == "blocks" and record.block <= upto for record in records)
            # one offset for each receipt, and at least one for the end of a transaction
            running.wait_for(lambda: blocks() > wanted, f"the blocks up to {upto} have their receipts")

        def waits(running: JobProcess, times: int) -> str:
            running.wait_for(lambda: len(running.named("waiting")) > times, "the job says that it waits")
            return str(running.named("waiting")[times]["reason"])

        configuration = write_configuration(
            tmp_path, chains(), kafka, PREFIX, master="local[2]", stalled_after=40, give_up_after=900
        )
        with job(configuration) as running:
            assert waits(running, 0).startswith(f"no Kafka answers at {kafka['bootstrap.servers']}")
            broker.start()
            assert broker.moved_from is None
            produce(kafka, PREFIX, early)
            executed(running, 10)

            count = len(running.named("waiting"))
            for pid in workers_of(running.process.pid):
                os.kill(pid, signal.SIGSTOP)
            produce(kafka, PREFIX, later)
            assert "the batch has made no progress for " in waits(running, count)
            executed(running, 20)

            count = len(running.named("waiting"))
            broker.stop()
            assert waits(running, count)
            broker.start()
            produce(kafka, PREFIX, last)
            executed(running, 99)
            assert running.terminate() == exit_codes.OK
        outputs = consume(kafka, PREFIX, ("verdicts", "receipts", "dead-letters"))
        assert decoded(outputs, "dead-letters") == []
        for settings, chain in zip((IMMEDIATE, ON_INCLUSION), chains(), strict=True):
            expected = {topic: reference(settings)[topic] for topic in ("verdicts", "receipts")}
            assert first_difference(of_lane(outputs, chain.lane, ("verdicts", "receipts")), expected) is None
    finally:
        broker.stop()


STOPPED_S = 400.0
"""Seconds for which the broker is stopped: longer than a transaction, and than any call may take."""


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.broker
def test_coordinator_that_is_stopped_is_named_and_verdicts_come_once_afterwards(tmp_path: Path) -> None:
    """`tests/contract/test_stopped_coordinator.py` is the short form. A broker that is stopped keeps its connections, and says nothing."""
    chain = chains()[0]
    early, late = ([each for each in chain.records if (each.block > 20) == is_late] for is_late in (False, True))
    with EmbeddedBroker(tmp_path / "broker") as broker:
        kafka = broker.kafka
        create_topics(kafka, prefix=PREFIX)
        configuration = write_configuration(tmp_path, (chain,), kafka, PREFIX, give_up_after=900)
        with job(configuration) as running:
            produce(kafka, PREFIX, early)
            running.wait_for_records(kafka, PREFIX, "receipts", 5)
            produce(kafka, PREFIX, late)  # so that a batch is likely to be at work
            pid = broker.status().pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            stopped_s = time.monotonic()
            try:
                running.wait_for(lambda: bool(running.named("waiting")), "the job says that Kafka does not answer")
                assert "Kafka" in running.named("waiting")[0]["reason"]
                time.sleep(max(0.0, STOPPED_S - (time.monotonic() - stopped_s)))
            finally:
                os.kill(pid, signal.SIGCONT)
            blocks = sum(record.topic == "blocks" for record in chain.records)
            running.wait_for_records(kafka, PREFIX, "receipts", blocks)
            assert running.terminate() == exit_codes.OK
        outputs = consume(kafka, PREFIX, ("verdicts", "receipts"))
        expected = {topic: reference(IMMEDIATE)[topic] for topic in ("verdicts", "receipts")}
        assert first_difference(of_lane(outputs, chain.lane, ("verdicts", "receipts")), expected) is None
