# SPDX-License-Identifier: Apache-2.0
"""The query plan as given to Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from streaming.job import JobSettings, start_query
from streaming.options import source_options
from streaming.pace import QUICK, SINGLE, STEADY, Pace
from streaming.stages import STAGE_VARIABLE
from validator.config.model import Job
from validator.core.limits import RECORD_BYTES_MAX
from validator.kafka.settings import MESSAGE_BYTES_MAX
from validator.topics import INPUT_TOPICS


class Recorder:
    """Stands in for Spark's builders; records options, and the environment at each step of the plan."""

    def __init__(self) -> None:
        self.reader: dict[str, str] = {}
        self.writer: dict[str, str] = {}
        self.stages: list[tuple[str, str | None]] = []
        self.environment: dict[str, str] = {}

    def session(self) -> Any:
        spark = MagicMock()
        spark.sparkContext.environment = self.environment
        reader, writer, rows = MagicMock(), MagicMock(), MagicMock()
        spark.readStream.format.return_value = reader
        reader.option.side_effect = lambda name, value: (self.reader.update({name: value}), reader)[1]
        reader.load.return_value.selectExpr.return_value = rows
        rows.mapInArrow.side_effect = lambda *_: self.step("mapInArrow", rows)
        rows.groupBy.return_value.transformWithStateInPandas.side_effect = lambda *_, **__: self.step("state", rows)
        rows.writeStream.queryName.return_value.format.return_value.outputMode.return_value = writer
        writer.option.side_effect = lambda name, value: (self.writer.update({name: value}), writer)[1]
        writer.trigger.side_effect = lambda **given: (self.writer.update(given), writer)[1]
        return spark

    def step(self, name: str, then: Any) -> Any:
        self.stages.append((name, self.environment.get(STAGE_VARIABLE)))
        return then


@pytest.fixture(autouse=True)
def _in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def planned(pace: Pace = QUICK, **kafka: Any) -> Recorder:
    recorder = Recorder()
    settings = JobSettings({}, {"bootstrap.servers": "a:1", **kafka}, "p.", Path("there"), 77, 250, pace=pace)
    start_query(recorder.session(), settings)
    return recorder


def test_reader_has_all_options_and_kafka_address() -> None:
    reader = planned().reader
    topics = ["p." + topic for topic in INPUT_TOPICS]
    assert reader == {**source_options(topics, 77, poll_records=500), "kafka.bootstrap.servers": "a:1"}
    assert reader["subscribe"].split(",") == topics
    assert reader["maxOffsetsPerTrigger"] == "77"
    assert int(reader["kafka.max.partition.fetch.bytes"]) > MESSAGE_BYTES_MAX >= RECORD_BYTES_MAX


def test_user_table_overrides_reader_options_but_not_guarantees() -> None:
    reader = planned(**{"max.partition.fetch.bytes": 123, "spark.max.poll.records": 9}).reader
    assert reader["kafka.max.partition.fetch.bytes"] == "123"
    assert reader["kafka.max.poll.records"] == "9"
    assert planned(SINGLE, **{"spark.max.poll.records": 9}).reader["kafka.max.poll.records"] == "1"
    assert reader["kafka.isolation.level"] == "read_committed"


def test_writer_has_checkpoint_and_trigger(tmp_path: Path) -> None:
    assert planned().writer == {"checkpointLocation": f"file://{tmp_path}/there", "processingTime": "250 milliseconds"}


def test_every_stage_has_own_workers() -> None:
    recorder = planned()
    assert recorder.stages == [("mapInArrow", "decode"), ("state", "lanes")]
    assert recorder.environment == {}


def test_largest_records_of_a_partition_fit_in_half_of_the_default_heap_at_the_steady_pace() -> None:
    assert planned(STEADY).reader["kafka.max.poll.records"] == source_options(["a"], 1)["kafka.max.poll.records"]
    assert 2 * int(planned(STEADY).reader["kafka.max.poll.records"]) * RECORD_BYTES_MAX <= 1024**3
    assert Job().driver_memory == "2g"
