# SPDX-License-Identifier: Apache-2.0
"""The workers that start with the session are those that the stages of a query use."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pandas as pd
import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from streaming.stages import CONDENSE, DECODE, KEYED, LANES, start_workers, with_own_workers

IMPORTED = {
    CONDENSE: "streaming.keyed_job",
    DECODE: "streaming.reading_process",
    KEYED: "streaming.keyed_job",
    LANES: "streaming.lane_operator",
}


class Looks(StatefulProcessor):
    """Says whether its worker had a module before."""

    def __init__(self, module: str) -> None:
        self._module = module

    def init(self, handle: StatefulProcessorHandle) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # type: ignore[override]  # noqa: N802, N803
        yield pd.DataFrame({"found": [self._module in sys.modules]})

    def close(self) -> None:
        pass


def stateless(rows: DataFrame, module: str) -> DataFrame:
    def look(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield type(batch).from_pydict({"found": [module in sys.modules] * batch.num_rows})

    return rows.mapInArrow(look, "found boolean")


def stateful(rows: DataFrame, module: str) -> DataFrame:
    return rows.groupBy("id").transformWithStateInPandas(
        Looks(module), "found boolean", outputMode="append", timeMode="None"
    )


@pytest.mark.parametrize(
    ("stage", "form"), [(DECODE, stateless), (CONDENSE, stateless), (LANES, stateful), (KEYED, stateful)]
)
def test_stage_gets_workers_that_have_imported_it(
    spark: SparkSession, stage: str, form: Callable[[DataFrame, str], DataFrame]
) -> None:
    _ = spark.streams.active  # starts what the stateful operator needs outside of a query
    rows = spark.range(0, 2, 1, 2)

    def found(own: str) -> set[bool]:
        looked = with_own_workers(spark, own, lambda: form(rows, IMPORTED[stage]))
        return {each.found for each in looked.collect()}

    assert found(f"another {stage}") == {False}
    before = set(threading.enumerate())
    start_workers(spark, "local[2]", (stage, stage), 2)
    for thread in set(threading.enumerate()) - before:
        thread.join()
    assert found(stage) == {True}


def test_jvm_that_ends_meanwhile_is_left_to_the_query() -> None:
    class Gone:
        @property
        def sparkContext(self) -> SparkContext:  # noqa: N802 - Spark's name
            raise ConnectionRefusedError(111, "Connection refused")

    start_workers(cast("SparkSession", Gone()), "local[2]", (DECODE, LANES), 1)


@pytest.mark.parametrize("master", ["spark://there:7077", "k8s://there:1", "local-cluster[2,1,1024]", "yarn"])
def test_nothing_starts_early_on_a_cluster(spark: SparkSession, master: str) -> None:
    before = set(threading.enumerate())
    start_workers(spark, master, (DECODE, LANES), 1)
    assert set(threading.enumerate()) == before
