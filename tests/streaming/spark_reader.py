# SPDX-License-Identifier: Apache-2.0
"""Reads the lanes of a checkpoint with Spark's own state reader: what `streaming.state_reader` is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.lanes.stored import MemoryState

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Row, SparkSession


def lanes_by_spark(spark: SparkSession, checkpoint: Path, batch: int) -> dict[str, MemoryState]:
    """Return every lane after a batch."""
    lanes = {
        row["lane"]: MemoryState(bytes(row["data"])) for row in _rows(spark, checkpoint, batch, "head", "value.head")
    }
    for row in _rows(spark, checkpoint, batch, "slots", "user_map_value.pages", "user_map_key.slot"):
        lanes[row["lane"]].slots[row["number"]] = bytes(row["data"])
    for row in _rows(spark, checkpoint, batch, "journal", "list_element.entry"):  # in the order of the list
        lanes[row["lane"]].journal.append(bytes(row["data"]))
    return lanes


def _rows(spark: SparkSession, checkpoint: Path, batch: int, variable: str, data: str, number: str = "0") -> list[Row]:
    reader = spark.read.format("statestore").option("path", str(checkpoint)).option("batchId", batch)
    loaded = reader.option("stateVarName", variable).load()
    return loaded.selectExpr("key.lane as lane", f"{data} as data", f"{number} as number").collect()
