# SPDX-License-Identifier: Apache-2.0
"""What a query's progress says of its batches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import Row

from streaming.range_source import OBSERVED, RECORDS
from streaming.run import log_batches, records_in
from tests.unit.streaming.queries import Log


def progress(observed: dict[str, Any], rows: int = 7, batch: int = 0) -> Any:
    source = SimpleNamespace(endOffset=f'{{"a": {{"0": {batch}}}}}', latestOffset='{"a": {"0": 9}}')
    return SimpleNamespace(
        batchId=batch,
        timestamp="2026-01-01T00:00:00.000Z",
        numInputRows=rows,
        observedMetrics=observed,
        durationMs={"addBatch": 3},
        sources=[source],
    )


def observed(records: int | None) -> dict[str, Any]:
    return {OBSERVED: Row(**{RECORDS: records})}


@pytest.mark.parametrize(
    ("metrics", "records"),
    [({}, 7), ({"another": Row(records=3)}, 7), (observed(1_000), 1_000), (observed(None), 0), (observed(0), 0)],
)
def test_records_of_a_batch_are_observed_or_its_rows(metrics: dict[str, Any], records: int) -> None:
    assert records_in(progress(metrics)) == records


def test_batches_are_logged_with_their_records() -> None:
    log, ends = Log(), list[str]()
    batches = [progress(observed(500), 2, 0), progress(observed(None), 0, 1), progress(observed(3), 1, 2)]
    query: Any = SimpleNamespace(lastProgress=batches[-1], recentProgress=batches)
    assert log_batches(query, -1, log, ends.append) == 2
    found = [(values["batch"], values["records"], values["unread"]) for _, values in log.events]
    assert found == [(0, 500, 9), (2, 3, 7)]
    assert ends == ['{"a": {"0": 2}}']
    assert log_batches(query, 2, log, ends.append) == 2
    assert len(log.events) == 2
