# SPDX-License-Identifier: Apache-2.0
"""`python -m streaming.state_reader CHECKPOINT OUTPUT [LANE ...]`: export the lanes of a checkpoint to a file for other programs.

It can run while the job runs and does not touch the job's files: Spark's state reader gets links to them. All state variables are read as
of one committed batch. OUTPUT has the format of `validator.lanes.stored`: the head of every lane, and the slots and journals of the named
lanes, or of all lanes if none is named. OUTPUT's folder also holds the links and Spark's log. An error is the last line on standard error
and begins with ``validator: ``. Exit codes: `validator.exit_codes`.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from streaming.session import spark_session
from validator import exit_codes
from validator.errors import UserError
from validator.lanes.stored import Part, write_end, write_entry, write_header
from validator.service.checkpoint import consumed_by_batch, last_committed_batch, link_checkpoint

DRIVER_MEMORY = "1g"

ATTEMPTS_MAX = 5
"""Attempts, each at a newer batch because the job has removed files that the previous one needs."""

_WRITTEN = "entries long"


def main(arguments: Sequence[str]) -> int:
    """Read a checkpoint and return the exit code."""
    if len(arguments) < 2:
        sys.stderr.write("usage: python -m streaming.state_reader CHECKPOINT OUTPUT [LANE ...]\n")
        return exit_codes.USER_ERROR
    checkpoint, output = Path(arguments[0]), Path(arguments[1])
    try:
        last_committed_batch(checkpoint)  # fails before Spark starts if there is no checkpoint
        with spark_session("local[1]", output.parent, driver_memory=DRIVER_MEMORY, state_partitions=1) as spark:
            # loading a store reports to a coordinator that exists only in a session with its own query
            spark.conf.set("spark.sql.streaming.stateStore.coordinatorReportSnapshotUploadLag", "false")
            read_lanes(spark, checkpoint, output, arguments[2:])
    except UserError as error:
        sys.stderr.write(f"\nvalidator: {error}\n")
        return exit_codes.USER_ERROR
    return exit_codes.OK


def read_lanes(spark: SparkSession, checkpoint: Path, output: Path, lanes: Sequence[str]) -> int:
    """Write the file as of the last committed batch and return that batch. Raises `UserError`."""
    links = output.with_name(f"{output.name}.links")
    for _ in range(ATTEMPTS_MAX):
        batch = last_committed_batch(checkpoint)
        try:
            link_checkpoint(checkpoint, links)
            _read_batch(spark, links, batch, output, lanes)
        except (PySparkException, Py4JError, UserError) as error:
            failure = error
        else:
            return batch
        finally:
            shutil.rmtree(links, ignore_errors=True)
        if last_committed_batch(checkpoint) == batch:
            break
    raise UserError(f"{checkpoint}: the state after batch {batch} cannot be read: {_reason(failure)}") from failure


def _read_batch(spark: SparkSession, checkpoint: Path, batch: int, output: Path, lanes: Sequence[str]) -> None:
    with output.open("wb") as file:
        write_header(file, batch, consumed_by_batch(checkpoint, batch))
    rows = _variables(spark, checkpoint, batch, lanes)
    entries = sum(row["entries"] for row in rows.mapInArrow(_appends_to(str(output)), _WRITTEN).collect())
    with output.open("ab") as file:
        write_end(file, entries)


def _variables(spark: SparkSession, checkpoint: Path, batch: int, lanes: Sequence[str]) -> DataFrame:
    """Return the variables of `streaming.lane_operator.SparkState` at one version, one row per entry."""

    def variable(part: Part, name: str, number: str, data: str) -> DataFrame:
        reader = spark.read.format("statestore").option("path", str(checkpoint))
        rows = reader.option("batchId", batch).option("stateVarName", name).load()
        if lanes and part is not Part.HEAD:
            rows = rows.where(F.col("key.lane").isin(*lanes))
        return rows.selectExpr(f"{int(part)} as part", "key.lane as lane", f"{number} as number", f"{data} as data")

    return reduce(
        DataFrame.union,
        (
            variable(Part.HEAD, "head", "0", "value.head"),
            variable(Part.SLOT, "slots", "user_map_key.slot", "user_map_value.pages"),
            variable(Part.JOURNAL, "journal", "0", "list_element.entry"),
        ),
    )


def _appends_to(output: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a stage that appends its rows to a file. In a session on one core, tasks run one after the other."""

    def append(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        entries = 0
        journals: dict[str, int] = {}
        with Path(output).open("ab") as file:
            for batch in batches:
                for row in batch.to_pylist():
                    part, lane, number = Part(row["part"]), row["lane"], row["number"]
                    if part is Part.JOURNAL:  # a list has no indexes; its rows come in order and in one task
                        number = journals[lane] = journals.get(lane, -1) + 1
                    write_entry(file, part, lane, number, row["data"])
                    entries += 1
        yield pa.RecordBatch.from_pydict({"entries": [entries]}, pa.schema([("entries", pa.int64())]))

    return append


def _reason(error: Exception) -> str:
    """Return one line about the root cause of a failure."""
    message = str(error)
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        message = cause.toString()
    return next((line.strip() for line in message.splitlines() if line.strip()), type(error).__name__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
