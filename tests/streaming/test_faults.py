# SPDX-License-Identifier: Apache-2.0
"""Handlers that hang, allocate, exit or raise in Spark's workers: the query stops, names the plugin, and continues after a fix.

The plugin is a zip that Spark ships to its workers; it is not installed in the environment.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from streaming.run import _may_pass, _reason
from tests.streaming.harness import (
    PATIENCE_S,
    SAME_WHATEVER_ARRIVES,
    Outputs,
    Stream,
    decoded,
    first_difference,
    of_lane,
)
from tests.throwaway import files_of, importable, install, packed
from tests.unit.lanes.chains import Record, inputs_of, record
from validator.config import Config
from validator.lanes.configured import lane_definition
from validator.lanes.definition import LaneDefinition
from validator.lanes.processor import LaneProcessor

pytestmark = pytest.mark.spark

LANE = "faulty"
FAULTY = """
def catches_exceptions(context, payload):
    while True:
        try:
            sum(range(100))
        except Exception:
            pass

def catches_everything(context, payload):
    while True:
        try:
            sum(range(100))
        except:
            pass

def allocates(context, payload):
    kept = []
    while True:
        kept.append(bytes(16 * 1024 * 1024))

def exits(context, payload):
    raise SystemExit(0)

def hangs_in_c(context, payload):
    sum(range(10**15))

def recurses(context, payload):
    recurses(context, payload)

def raises(context, payload):
    context.write(b"never kept", payload)
    raise KeyError(payload)

def returns(context, payload):
    return "nonsense"

def counts(context, payload):
    seen = int.from_bytes(context.read(b"seen") or b"", "little") + 1
    context.write(b"seen", seen.to_bytes(4, "little"))
    context.emit("seen", seen.to_bytes(4, "little"))

KINDS = [
    (bytes([at]), function.__name__.replace("_", "-"), function)
    for at, function in enumerate([
        catches_exceptions, catches_everything, allocates, exits, hangs_in_c, recurses, raises, returns, counts,
    ])
]
"""
CATCHES_EXCEPTIONS, CATCHES_EVERYTHING, ALLOCATES, EXITS, HANGS_IN_C, RECURSES, RAISES, RETURNS, COUNTS = range(9)
FIXED = """
def counts(context, payload):
    seen = int.from_bytes(context.read(b"seen") or b"", "little") + 1
    context.write(b"seen", seen.to_bytes(4, "little"))
    context.emit("seen", seen.to_bytes(4, "little"))

KINDS = [(b"", "counts", counts)]
"""
FAULT_AT = 6
"""The block with the fatal message; the messages of other blocks are harmless."""


@pytest.fixture(scope="module", autouse=True)
def artefacts(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("artefacts")
    faulty = packed(folder / "faulty.zip", files_of("faulty", "1.0.0", FAULTY))
    fixed = packed(folder / "fixed.zip", files_of("faulty", "1.0.1", FIXED))
    path = list(sys.path)
    for each in (faulty, fixed):
        spark.sparkContext.addPyFile(str(each))
    with importable(faulty, fixed):
        yield
    sys.path[:] = path  # Spark has added its copies


def definition(*uses: dict[str, Any], seconds_max: int = 60) -> LaneDefinition:
    chain = {
        "host_configuration": {"preset": "polkadot-2023"},
        "genesis_paras": [{"para_id": 2000}, {"para_id": 2001}],
        "handlers": [{"name": "faulty", "version": "1.0.0"}, *uses],
    }
    job = {"directory": "nowhere", "handler_seconds_max": seconds_max}
    return lane_definition(Config.model_validate({"chains": {LANE: chain}, "job": job}), LANE)


def records(fatal: int) -> list[Record]:
    """Return ten blocks with a counted message, one that raises and one that returns nonsense; one block starts with a fatal message."""
    made = []
    for block in range(1, 11):
        payloads = [bytes([kind, block]).hex() for kind in (COUNTS, RAISES, RETURNS, COUNTS)]
        if block == FAULT_AT:
            payloads.insert(1, bytes([fatal, block]).hex())
        candidate = {"lane": LANE, "block": block, "index": 0, "para_id": 2000, "relay_parent_number": block - 1}
        candidate |= {"hrmp_watermark": block - 1, "upward_messages": payloads, "processed_downward_messages": 0}
        candidate |= {"horizontal_messages": [], "candidate_hash": None}
        body = {"lane": LANE, "block": block, "parent_number": None, "block_hash": None, "candidates": 1, "requests": 0}
        body |= {"downward": 0, "included": [], "timed_out": [], "session_change": None}
        made += [record("candidates", candidate), record("blocks", body)]
    return made


def undisturbed(of: LaneDefinition, of_records: list[Record]) -> Outputs:
    outputs: Outputs = {topic: [] for topic in SAME_WHATEVER_ARRIVES}
    for _, output in LaneProcessor.create(of).process(inputs_of(of_records)):
        for each in output:
            outputs[each.topic].append((each.key, each.value))
    return outputs


@pytest.mark.parametrize(
    ("fatal", "expected"),
    [
        (CATCHES_EXCEPTIONS, "handler faulty@1.0.0 (catches-exceptions): it did not end within 3 seconds"),
        (CATCHES_EVERYTHING, "handler faulty@1.0.0 (catches-everything): it did not end within 3 seconds"),
        (ALLOCATES, "handler faulty@1.0.0 (allocates): MemoryError is not a verdict"),
        (EXITS, "handler faulty@1.0.0 (exits): SystemExit raised"),
        (RECURSES, "handler faulty@1.0.0 (recurses): RecursionError is not a verdict"),
        (HANGS_IN_C, 'faulty.zip/faulty_1_0_0.py", line'),
    ],
    ids=["loop", "bare except", "memory", "exit", "recursion", "C"],
)
def test_fault_stops_query_names_plugin_and_loses_nothing(
    fatal: int, expected: str, stream: Callable[..., Stream]
) -> None:
    given = records(fatal)
    hangs = fatal in (CATCHES_EXCEPTIONS, CATCHES_EVERYTHING, HANGS_IN_C)
    running = stream({LANE: definition(seconds_max=3 if hangs else 60)})
    running.produce(given[: 2 * (FAULT_AT - 2)])
    running.start()
    running.settle()
    running.produce(given[2 * (FAULT_AT - 2) :])
    assert running.query is not None
    with pytest.raises(StreamingQueryException) as failed:
        running.query.awaitTermination(int(PATIENCE_S))
    reason, foreseen = _reason(failed.value)
    assert expected in reason
    assert "\n" not in reason
    assert foreseen
    assert not _may_pass(str(failed.value), reason)
    running.stop()
    written = decoded(running.outputs(), "receipts")
    assert [each["block"] for each in written] == list(range(1, FAULT_AT - 1)), "the batch that faulted emits nothing"

    fixed = definition({"name": "faulty", "version": "1.0.1", "from_block": FAULT_AT})
    running.definitions = {LANE: fixed}
    running.start()
    running.settle()
    running.stop()
    outputs = running.outputs()
    assert first_difference(of_lane(outputs, LANE), undisturbed(fixed, given)) is None
    dispatches = decoded(outputs, "dispatches")
    assert {(each["kind"], each["outcome"], each["failure"]) for each in dispatches if each["block"] < FAULT_AT} == {
        ("counts", "ok", None),
        *(("raises", "failed", f"KeyError: {bytes([RAISES, block])!r}") for block in range(1, FAULT_AT)),
        ("returns", "failed", "TypeError: expected a handler that returns None, found str"),
    }
    events = [
        int.from_bytes(bytes.fromhex(each["events"][0]["data"]), "little") for each in dispatches if each["events"]
    ]
    assert events == list(range(1, len(events) + 1)), "the fixed version continues with the state of the previous one"


def test_worker_without_the_drivers_version_ends_query_in_one_line(
    stream: Callable[..., Stream], tmp_path: Path
) -> None:
    with importable(install(tmp_path, files_of("faulty", "1.0.2", FIXED))):
        running = stream({LANE: definition({"name": "faulty", "version": "1.0.2", "from_block": FAULT_AT})})
        running.produce(records(COUNTS))
        query = running.start()
        with pytest.raises(StreamingQueryException) as failed:
            query.awaitTermination(int(PATIENCE_S))
    reason, foreseen = _reason(failed.value)
    assert foreseen
    assert not _may_pass(str(failed.value), reason)
    assert (
        "faulty@1.0.2, this worker does not: faulty@1.0.2: this version is not installed, found 1.0.0, 1.0.1" in reason
    )
    assert "\n" not in reason
    assert running.written() == 0
