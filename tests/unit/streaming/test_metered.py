# SPDX-License-Identifier: Apache-2.0
"""What the endpoint of a job knows of its lanes before their first batch; without Kafka and Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streaming.metered import JobMetrics
from validator.checkpoint.files import COMMITS
from validator.config import Config
from validator.metrics.store import MetricStore

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("committed", [False, True])
def test_only_a_lane_of_a_job_without_a_batch_has_executed_nothing(tmp_path: Path, *, committed: bool) -> None:
    if committed:
        commits = tmp_path / "checkpoint" / COMMITS
        commits.mkdir(parents=True)
        (commits / "4").write_text("v1", encoding="utf-8")
    store = MetricStore(["polkadot"])
    config = Config.model_validate({"job": {"directory": str(tmp_path)}, "metrics": {"listen": "127.0.0.1:0"}})
    metrics = JobMetrics(config, {"polkadot": 7}, store)
    metrics.address = "http://127.0.0.1:1/metrics"
    metrics.following()
    metrics._feed.has_read()
    behind = [sample.value for family in store.collect() for sample in family.samples if "blocks_behind" in sample.name]
    assert behind == ([] if committed else [0])
