# SPDX-License-Identifier: Apache-2.0
"""The stage with the state, of the lanes' job and of plugins' jobs: it writes everything, and returns no rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from streaming.shared_folder import SharedFolder, attempt_with
from streaming.stages import with_own_workers
from streaming.workers import tune_garbage_collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class Operator(StatefulProcessor):
    """Executes what one lane, or one key of a job, gets in a batch. ``shared`` is the job's folder on a cluster."""

    def __init__(self, shared: SharedFolder | None = None) -> None:
        self._shared = shared

    def execute(self, key: str, rows: Iterator[pd.DataFrame]) -> None:
        """Execute a batch. What it emits is in Kafka when this returns."""
        raise NotImplementedError

    def handleInputRows(  # type: ignore[override]  # noqa: N802 - the pandas form; the base class allows two
        self,
        key: tuple[str],
        rows: Iterator[pd.DataFrame],
        timerValues: object,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        with attempt_with(self._shared):
            tune_garbage_collector()
            self.execute(key[0], rows)
        return iter(())

    def close(self) -> None:
        """Keep the live state, since the worker stays alive."""


def started(
    spark: SparkSession,
    rows: DataFrame,
    stage: str,
    operator: Operator,
    name: str,
    checkpoint: Path | str,
    trigger_interval_ms: int,
) -> StreamingQuery:
    """Start a query whose last stage is an operator."""
    executed = with_own_workers(
        spark,
        stage,
        lambda: rows.groupBy("lane").transformWithStateInPandas(
            operator, "lane string", outputMode="append", timeMode="None"
        ),
    )
    return (
        executed.writeStream.queryName(name)
        .format("noop")
        .outputMode("append")
        # without a scheme, a path is one of `fs.defaultFS`, say of HDFS, and not of this machine
        .option("checkpointLocation", f"file://{Path(checkpoint).absolute()}")
        .trigger(processingTime=f"{trigger_interval_ms} milliseconds")
        .start()
    )
