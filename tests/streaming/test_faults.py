# SPDX-License-Identifier: Apache-2.0
"""Lanes whose handlers hang, allocate or exit in Spark's workers, or that fail otherwise, are parked, and continue after a fix.

The plugin is a zip that Spark ships to its workers; it is not installed in the environment.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from streaming.reasons import may_pass, reason_of
from tests.distributions import files_of, on_path, packed, written
from tests.hostile import HOSTILE, block_records
from tests.streaming.harness import (
    PATIENCE_S,
    SAME_WHATEVER_ARRIVES,
    Outputs,
    Stream,
    decoded,
    first_difference,
    last_status,
    of_lane,
)
from tests.unit.lanes.chains import Record, inputs_of
from tests.unit.lanes.test_confine import can_forbid
from validator.codec.orders import encode_order
from validator.config import Config
from validator.lanes.configured import lane_definition
from validator.lanes.definition import LaneDefinition
from validator.lanes.processor import LaneProcessor

pytestmark = pytest.mark.spark

LANE = "faulty"
FAULTY = (
    HOSTILE
    + """
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

KINDS = [
    (bytes([at]), function.__name__.replace("_", "-"), function)
    for at, function in enumerate([
        catches_exceptions, catches_everything, allocates, exits, hangs_in_c, recurses, raises, returns, counts, deadlocks,
        blocks_signals, forks, leaves_a_thread, crashes,
    ])
]
"""
)
CATCHES_EXCEPTIONS, CATCHES_EVERYTHING, ALLOCATES, EXITS, HANGS_IN_C, RECURSES, RAISES, RETURNS, COUNTS = range(9)
DEADLOCKS, BLOCKS_SIGNALS, FORKS, LEAVES_A_THREAD, CRASHES = range(9, 14)
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
    with on_path(faulty, fixed):
        yield
    sys.path[:] = path  # Spark has put its own copies there


def definition(*uses: dict[str, Any], lane: str = LANE, seconds_max: int = 60, **job: Any) -> LaneDefinition:
    chain = {
        "host_configuration": {"preset": "polkadot-2023"},
        "genesis_paras": [{"para_id": 2000}, {"para_id": 2001}],
        "handlers": [{"name": "faulty", "version": "1.0.0"}, *uses],
    }
    table = {"directory": "nowhere", "handler_seconds_max": seconds_max, **job}
    return lane_definition(Config.model_validate({"chains": {lane: chain}, "job": table}), lane)


def records(fatal: int, lane: str = LANE) -> list[Record]:
    """Return ten blocks with a counted message, one that raises and one that returns nonsense; one block starts with a fatal message."""
    made = []
    for block in range(1, 11):
        kinds = [COUNTS, *([fatal] if block == FAULT_AT else []), RAISES, RETURNS, COUNTS]
        made += block_records(lane, block, [bytes([kind, block]) for kind in kinds])
    return made


def undisturbed(of: LaneDefinition, of_records: list[Record]) -> Outputs:
    outputs: Outputs = {topic: [] for topic in SAME_WHATEVER_ARRIVES}
    for _, output in LaneProcessor.create(of).process(inputs_of(of_records)):
        for each in output:
            outputs[each.topic].append((each.key, each.value))
    return outputs


FAULTS: dict[str, tuple[int, str, str]] = {
    "loop": (
        CATCHES_EXCEPTIONS,
        "handler",
        "handler faulty@1.0.0 (catches-exceptions): it did not end within 1 seconds",
    ),
    "bare": (
        CATCHES_EVERYTHING,
        "handler",
        "handler faulty@1.0.0 (catches-everything): it did not end within 1 seconds",
    ),
    "memory": (ALLOCATES, "handler", "handler faulty@1.0.0 (allocates): MemoryError is not a verdict"),
    "exit": (EXITS, "handler", "handler faulty@1.0.0 (exits): SystemExit raised"),
    "recursion": (RECURSES, "handler", "handler faulty@1.0.0 (recurses): RecursionError is not a verdict"),
    "native": (HANGS_IN_C, "handler", "handler faulty@1.0.0 (hangs-in-c): it did not return within 6 seconds"),
    "deadlock": (DEADLOCKS, "handler", "handler faulty@1.0.0 (deadlocks): it did not return within 6 seconds"),
    "signals": (BLOCKS_SIGNALS, "handler", "handler faulty@1.0.0 (blocks-signals): it did not return within 6 seconds"),
    "fork": (
        FORKS,
        "handler",
        "its process made a system call that no handler may make in handler faulty@1.0.0"
        if can_forbid()
        else "one of its handlers (faulty@1.0.0) left 1 process behind",
    ),
    "thread": (LEAVES_A_THREAD, "handler", "one of its handlers (faulty@1.0.0) left 1 thread behind"),
    "crash": (
        CRASHES,
        "worker",
        "3 times at the same point, its process died in handler faulty@1.0.0 (crashes) (SIGSEGV)",
    ),
    "waiting": (COUNTS, "waiting", "waiting records occupy more than 1 bytes (waiting_bytes_max)"),
    "past": (COUNTS, "configuration", "its handlers differ from block 2 on, but block 4 is already executed"),
    "genesis": (COUNTS, "bug", "DecodeError"),
}
"""By lane, its fatal message, and how it is parked."""
SHORT = ("loop", "bare", "native", "deadlock", "signals")
"""Lanes whose handlers hang."""
HEALTHY = "healthy"
EARLY = 2 * (FAULT_AT - 2)


def lane_definitions(*uses: dict[str, Any]) -> dict[str, LaneDefinition]:
    """Return the definitions of all lanes; with ``uses``, of a fixed handler."""
    return {
        lane: definition(*uses, lane=lane, seconds_max=1 if lane in SHORT and not uses else 60)
        for lane in (*FAULTS, HEALTHY)
    }


def parked_lanes(outputs: Outputs) -> dict[str, tuple[str, str, str]]:
    """Return how each lane is that has ever been parked: state, fault and reason."""
    found = (each for each in decoded(outputs, "lanes") if "fault" in each)
    return {each["lane"]: (each["state"], each["fault"], each["reason"]) for each in found}


@pytest.mark.long
def test_each_lane_fails_in_its_own_way_and_one_goes_on(stream: Callable[..., Stream]) -> None:
    given = {lane: records(FAULTS.get(lane, (COUNTS,))[0], lane) for lane in (*FAULTS, HEALTHY)}
    right = lane_definitions()
    running = stream({lane: of for lane, of in right.items() if lane != "genesis"})
    running.produce([each for lane in right if lane != "genesis" for each in given[lane][:EARLY]])
    running.start()
    running.settle()
    running.stop()

    past = definition({"name": "faulty", "version": "1.0.1", "from_block": 2}, lane="past")
    genesis = replace(right["genesis"], genesis=(b"damaged",), runtime_digest=bytes(32))
    waiting = definition(lane="waiting", waiting_bytes_max=1)
    running.definitions = {**right, "past": past, "genesis": genesis, "waiting": waiting}
    running.produce([*given["genesis"], *(each for lane in right if lane != "genesis" for each in given[lane][EARLY:])])
    running.start()
    running.settle()
    running.stop()
    outputs = running.outputs()
    parked = parked_lanes(outputs)
    assert parked.keys() == FAULTS.keys()
    for lane, (_, fault, reason) in FAULTS.items():
        state, found, why = parked[lane]
        assert (state, found) == ("parked", fault), why
        assert reason in why
        assert f"lane {lane}" in why
        receipts = [each["block"] for each in decoded(outputs, "receipts") if each["lane"] == lane]
        assert receipts[: FAULT_AT - 2] == ([] if lane == "genesis" else list(range(1, FAULT_AT - 1)))
        assert all(block < FAULT_AT for block in receipts)
    assert "faulty_1_0_0.py" in parked["native"][2], "the plugin's line"
    assert first_difference(of_lane(outputs, HEALTHY), undisturbed(right[HEALTHY], given[HEALTHY])) is None

    fixed = lane_definitions({"name": "faulty", "version": "1.0.1", "from_block": FAULT_AT}) | {HEALTHY: right[HEALTHY]}
    running.definitions = fixed
    running.produce([("blocks", lane.encode(), encode_order(lane, frozenset())) for lane in FAULTS])
    running.start()
    running.settle()
    running.stop()
    outputs = running.outputs()
    assert {lane: how for lane, how in parked_lanes(outputs).items() if how[0] != "running"} == {}
    assert decoded(outputs, "dead-letters") == []
    for lane, of in fixed.items():
        assert first_difference(of_lane(outputs, lane), undisturbed(of, given[lane])) is None, lane
        assert last_status(outputs, lane)["consumed"] == len(given[lane])


def test_worker_without_the_drivers_version_ends_query_in_one_line(
    stream: Callable[..., Stream], tmp_path: Path
) -> None:
    with on_path(written(tmp_path, files_of("faulty", "1.0.2", FIXED))):
        running = stream({LANE: definition({"name": "faulty", "version": "1.0.2", "from_block": FAULT_AT})})
        running.produce(records(COUNTS))
        query = running.start()
        with pytest.raises(StreamingQueryException) as failed:
            query.awaitTermination(int(PATIENCE_S))
    reason, foreseen = reason_of(failed.value)
    assert foreseen
    assert not may_pass(str(failed.value), reason)
    assert (
        "faulty@1.0.2, this worker does not: faulty@1.0.2: this version is not installed, found 1.0.0, 1.0.1" in reason
    )
    assert "\n" not in reason
    assert running.written() == 0
