# SPDX-License-Identifier: Apache-2.0
"""The query plan as given to Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from streaming import job
from streaming.job import start_query
from streaming.lane_operator import JobSettings
from streaming.stages import STAGE_VARIABLE


class Recorder:
    """Stands in for Spark's builders; records options, and the environment at each step of the plan."""

    def __init__(self) -> None:
        self.writer: dict[str, str] = {}
        self.stages: list[tuple[str, str | None]] = []
        self.environment: dict[str, str] = {}

    def session(self) -> Any:
        spark = MagicMock()
        spark.sparkContext.environment = self.environment
        reader, writer, rows = MagicMock(), MagicMock(), MagicMock()
        spark.readStream.format.return_value = reader
        reader.load.side_effect = lambda: self.step("inputs", rows)
        rows.observe.return_value = rows
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


def planned(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(job, "observed", lambda rows: rows)
    settings = JobSettings({}, {"bootstrap.servers": "a:1"}, "p.", Path("there"), 77, 250)
    start_query(recorder.session(), settings)
    return recorder


def test_writer_has_checkpoint_and_trigger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned(monkeypatch).writer == {
        "checkpointLocation": f"file://{tmp_path}/there",
        "processingTime": "250 milliseconds",
    }


def test_every_stage_has_own_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = planned(monkeypatch)
    assert recorder.stages == [("inputs", "decode"), ("state", "lanes")]
    assert recorder.environment == {}
