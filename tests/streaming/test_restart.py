# SPDX-License-Identifier: Apache-2.0
"""A job that stops, or whose workers die, continues where it was: nothing is lost and nothing is emitted twice."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException

from streaming.reasons import INPUTS_GONE, may_pass, reason_of
from streaming.run import _stop_between_batches
from tests.streaming.harness import (
    PATIENCE_S,
    Stream,
    consume,
    first_difference,
    last_status,
    of_lane,
    python_workers,
    wait_until,
)
from tests.streaming.reference import IMMEDIATE, ON_INCLUSION, chains, definition, reference
from tests.streaming.spied import noted, spied
from tests.unit.lanes.chains import Record
from validator.codec.json_form import shown_json
from validator.kafka.settings import admin_config
from validator.kafka.topics import create_topics
from validator.lanes.meter import MeterSettings
from validator.lanes.slots import load_lane
from validator.lanes.store import Head, decode_entry
from validator.metrics.report import Report
from validator.metrics.store import MetricStore
from validator.topics import METRICS, METRICS_TOPIC

LANE = ON_INCLUSION.lane


def pieces(records: tuple[Record, ...], count: int) -> list[list[Record]]:
    """Split records into pieces whose boundaries fall inside blocks."""
    borders = [len(records) * at // count for at in range(count + 1)]
    return [list(records[start:end]) for start, end in pairwise(borders)]


def kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_clean_stop_and_dead_workers_between_batches_change_no_byte(
    stream: Callable[..., Stream], tmp_path: Path
) -> None:
    chain = chains()[1]
    log = tmp_path / "spied"
    running = stream({LANE: spied(definition(ON_INCLUSION), log)}, meter=MeterSettings((), 100, 100))
    create_topics(running.kafka, prefix=running.prefix, topics=[METRICS_TOPIC])
    first, second, third, fourth = pieces(chain.records, 4)
    running.produce(first)
    running.start()
    running.settle()
    running.stop()
    running.produce(second)  # while nothing runs
    running.start()
    running.settle()
    assert noted(log) == [f"created {LANE}"], "the previous worker still runs and holds the lane"
    assert last_status(running.outputs(), LANE)["waiting"] > 0, "the boundary was meant to fall inside a block"

    workers = python_workers(running.spark)
    assert workers
    kill(workers)
    wait_until(lambda: not set(workers) & set(python_workers(running.spark)), "workers are gone", running.log)
    running.produce(third)
    running.settle()
    assert noted(log) == [f"created {LANE}", f"rebuilt {LANE}"]
    running.produce(fourth)
    running.settle()
    assert len(noted(log)) == 2
    running.stop()

    assert first_difference(of_lane(running.outputs(), LANE), reference(ON_INCLUSION)) is None
    status = last_status(running.outputs(), LANE)
    assert (status["consumed"], status["waiting"]) == (len(chain.records), 0)
    check_state(running, len(chain.records))
    check_reports(running, status)


def check_reports(running: Stream, status: dict[str, Any]) -> None:
    """What workers reported agrees with what they emitted, although some of them were killed."""
    reports = [Report.decode(value) for _, value in consume(running.kafka, running.prefix, [METRICS])[METRICS]]
    store = MetricStore([LANE])
    for report in reports:
        store.take(report)
    found = {
        (sample.name, *sample.labels.values()): sample.value for family in store.collect() for sample in family.samples
    }
    assert found["validator_lane_executed_block", LANE] == status["executed_block"]
    assert found["validator_lane_records_total", LANE, "rejected"] == status["rejected"]
    kinds = Counter(
        verdict["error"]["kind"]
        for _, value in running.outputs()["verdicts"]
        if "error" in (verdict := shown_json("verdicts", value))
    )
    assert {name[2]: found[name] for name in found if name[0] == "validator_lane_rejections_total"} == kinds
    assert found["validator_lane_recoveries_total", LANE, "rebuilt"] == 1
    assert found["validator_lane_transactions_total", LANE] == len(reports)
    assert found["validator_lane_batch_part_seconds_total", LANE, "commit"] > 0
    assert any(name[0] == "validator_channel_messages_used_ratio" for name in found)


def check_state(running: Stream, records: int) -> None:
    """The store, read by Spark's reader, agrees with the project's encodings."""
    (head,) = [bytes(row["value"]["head"]) for row in running.state("head")]
    journal = [bytes(row["list_element"]["entry"]) for row in running.state("journal")]
    slots = {row["user_map_key"]["slot"]: bytes(row["user_map_value"]["pages"]) for row in running.state("slots")}
    saved, known = load_lane(running.definitions[LANE], slots, Head.decode(head).para_slots)
    assert {head[0], *(page[0] for page in saved.snapshot()[:2]), *(entry[0] for entry in journal)} == {1}
    assert sum(len(decode_entry(running.definitions[LANE].codec, entry)[0]) for entry in journal) == records
    kept = Head.decode(head)
    assert (kept.journal_entries, kept.journal_bytes) == (len(journal), sum(map(len, journal)))
    assert (kept.slots_hash, kept.slots_bytes) == (known.hash(), known.total_bytes)
    assert kept.runtime_digest == running.definitions[LANE].runtime_digest


def test_stop_in_mid_batch_and_dying_workers_emit_everything_once(
    stream: Callable[..., Stream],
) -> None:
    chain = chains()[0]
    lane = IMMEDIATE.lane
    running = stream({lane: definition(IMMEDIATE)}, records_per_trigger=150)
    running.produce(list(chain.records))
    running.start()
    running.wait_for(lambda: running.batches() >= 1, "a batch is done")
    running.stop()  # more records are available: a batch is running
    assert running.taken() != running.produced

    running.start()
    before = running.written()
    running.wait_for(lambda: running.written() > before, "it writes more")
    wait_until(lambda: dies_with_its_workers(running), "a batch fails", running.log)
    assert running.query is not None
    failure = running.query.exception()
    assert failure is not None
    assert may_pass(str(failure), reason_of(failure)[0]), str(failure)  # the job would restart the query
    running.start()
    running.settle()
    running.stop()

    outputs = of_lane(running.outputs(), lane)
    assert first_difference(outputs, reference(IMMEDIATE)) is None
    status = last_status(running.outputs(), lane)
    assert (status["consumed"], status["waiting"], status["duplicate"]) == (len(chain.records), 0, 0)


def test_stop_on_a_backlog_waits_for_one_batch(stream: Callable[..., Stream]) -> None:
    running = stream({IMMEDIATE.lane: definition(IMMEDIATE)}, records_per_trigger=100)
    running.produce(list(chains()[0].records))
    running.start()
    running.wait_for(lambda: running.batches() >= 1, "a batch is done")
    assert running.query is not None
    _stop_between_batches(running.query)
    assert not running.query.isActive
    # a prefix of the lane's output
    outputs = of_lane(running.outputs(), IMMEDIATE.lane)
    for topic, expected in reference(IMMEDIATE).items():
        assert outputs[topic] == expected[: len(outputs[topic])], topic
    assert len(outputs["receipts"]) < len(chains()[0].blocks)


def dies_with_its_workers(running: Stream) -> bool:
    """Kill every worker; return whether the query failed as a result."""
    assert running.query is not None
    kill(python_workers(running.spark))
    return running.query.exception() is not None


def test_inputs_removed_by_retention_stop_the_job_in_one_line(stream: Callable[..., Stream]) -> None:
    records = chains()[0].records
    running = stream({IMMEDIATE.lane: definition(IMMEDIATE)})
    first, second, third = pieces(records, 3)
    running.produce(first)
    running.start()
    running.settle()
    running.stop()
    running.produce(second)
    topic = f"{running.prefix}candidates"
    end = running.produced["candidates"]
    admin = AdminClient(admin_config(running.kafka))
    for future in admin.delete_records([TopicPartition(topic, 0, end)]).values():
        future.result()
    running.produce(third)
    query = running.start()
    with pytest.raises(StreamingQueryException) as failed:
        query.awaitTermination(int(PATIENCE_S))
    reason, foreseen = reason_of(failed.value)
    assert foreseen
    assert "\n" not in reason
    what = f"{topic}[0] from offset "
    assert reason.startswith(f"{INPUTS_GONE} ({what}")


def test_checkpoint_is_on_this_machine_whatever_hadoop_uses_by_default(stream: Callable[..., Stream]) -> None:
    """As on YARN, or where `HADOOP_CONF_DIR` is set: the job itself reads and locks files next to the checkpoint."""
    running = stream({LANE: definition(ON_INCLUSION)})
    running.produce(chains()[1].records)
    running.spark.conf.set("fs.defaultFS", "hdfs://127.0.0.1:9")
    try:
        running.start()
        running.settle()
        running.stop()
    finally:
        running.spark.conf.unset("fs.defaultFS")
    assert (running.checkpoint / "commits" / "0").is_file()
    assert first_difference(of_lane(running.outputs(), LANE), reference(ON_INCLUSION)) is None
