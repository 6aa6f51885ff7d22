# SPDX-License-Identifier: Apache-2.0
"""The suite itself: every step names a function of the product, and the comparison finds each kind of fault."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.crash.brokers import ROLES
from tests.crash.clusters import CLUSTER_EPISODES
from tests.crash.comparison import Reader, Tally
from tests.crash.inject.crash_failpoints import STEPS, Armed
from tests.crash.injected import INJECT, ROOT
from tests.crash.schedule import (
    CLUSTER_ROLES,
    CLUSTER_STEPS,
    EPISODES,
    LOGGED,
    SPARK_EPISODES,
    SPARK_VICTIMS,
    full_schedule,
    short_schedule,
    spark_schedule,
)
from validator.codec.encode import encode_dead_letter
from validator.core.inputs import DeadLetter, DeadReason, Source

PROGRAM = """
import importlib, crash_failpoints
for step in crash_failpoints.STEPS.values():
    module = importlib.import_module(step.module)
    owner = getattr(module, step.owner) if step.owner else module
    assert hasattr(getattr(owner, step.name), "__wrapped__"), step
from validator.lanes.store import JOURNAL_BYTES_MIN
assert JOURNAL_BYTES_MIN == 7
from streaming.lane_operator import SparkState
SparkState.save_head(None, b"")
"""


def run_program(folder: Path, program: str, stage: str = "lanes") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"CRASH_POINTS": str(folder), "PYTHONPATH": f"{INJECT}{os.pathsep}{ROOT}"}
    environment["VALIDATOR_STAGE"] = stage
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)


def arm(folder: Path, countdown: int) -> None:
    armed = Armed(
        id="a", step="head-before", countdown=countdown, signal=9, victims=["worker"], broker_record="", delay_s=0.0
    )
    (folder / "constants").write_text(json.dumps({"validator.lanes.store": {"JOURNAL_BYTES_MIN": 7}}))
    (folder / "armed").write_text(json.dumps(armed))


def test_every_step_is_wrapped_and_an_armed_one_kills_once_only(tmp_path: Path) -> None:
    arm(tmp_path, countdown=1)
    assert run_program(tmp_path, PROGRAM, stage="decode").stderr.endswith("has no attribute '_head'\n")
    assert (tmp_path / "armed").exists(), "a step of another stage does not fire"
    assert run_program(tmp_path, PROGRAM).returncode == -9
    assert [path.name for path in tmp_path.glob("fired-*")] == ["fired-a"]
    assert {path.name for path in (tmp_path / "seen").iterdir()} == {"head-before"}
    assert run_program(tmp_path, PROGRAM).stderr.endswith("has no attribute '_head'\n"), "it has fired"


def test_armed_step_fires_at_its_countdown(tmp_path: Path) -> None:
    arm(tmp_path, countdown=2)
    assert run_program(tmp_path, PROGRAM).returncode == 1
    again = (
        PROGRAM.replace('save_head(None, b"")', "load_head")
        + "try:\n    SparkState.save_head(None, b'')\nexcept AttributeError:\n"
    )
    assert run_program(tmp_path, again + "    SparkState.save_head(None, b'')\n").returncode == -9


def test_full_schedule_has_every_step_with_every_victim() -> None:
    schedule = full_schedule(seed=5, kills=200)
    assert len(schedule) == 200
    assert schedule == full_schedule(seed=5, kills=200)
    assert schedule != full_schedule(seed=6, kills=200)
    for step in STEPS:
        assert {"worker", "broker", "driver"} <= {kill.victim for kill in schedule if kill.step == step}, step
    assert {kill.step for kill in schedule} == {*STEPS, *LOGGED, *EPISODES, "random"}
    assert sum(kill.victim in ("driver", "jvm", "machine") for kill in schedule) >= 40
    assert len({kill.victim for kill in short_schedule(1)}) >= 4


def test_schedule_of_three_brokers_has_every_role_and_every_fault() -> None:
    schedule = full_schedule(seed=5, kills=310, brokers=3)
    assert schedule == full_schedule(seed=5, kills=310, brokers=3)
    assert {*EPISODES, *CLUSTER_EPISODES} <= {kill.step for kill in schedule if kill.victim == "episode"}
    killed = Counter(kill.role for kill in schedule if kill.victim == "broker")
    assert set(ROLES) <= set(killed)
    for role in CLUSTER_ROLES:
        assert set(CLUSTER_STEPS) <= {kill.step for kill in schedule if kill.role == role}
    assert set(CLUSTER_STEPS) <= set(STEPS)
    assert {kill.victim for kill in short_schedule(1, brokers=3)} == {"broker", "episode"}


def test_schedule_on_a_cluster_has_every_victim_and_fault() -> None:
    schedule = spark_schedule(seed=5, kills=120, brokers=3)
    assert len(schedule) == 120
    assert schedule == spark_schedule(seed=5, kills=120, brokers=3)
    assert {*SPARK_VICTIMS, "worker", "broker", "episode"} == {kill.victim for kill in schedule}
    assert {kill.step for kill in schedule if kill.victim == "episode"} == set(SPARK_EPISODES)
    assert {kill.role for kill in schedule if kill.victim == "broker"} == set(ROLES)
    assert "broker" not in {kill.victim for kill in spark_schedule(seed=5, kills=120, brokers=1)}


class Expected:
    """An undisturbed run that emitted two receipts and one dead letter."""

    def __init__(self) -> None:
        self.output = {("a", "receipts"): [(b"a", b"1"), (b"a", b"2")]}
        self.dead = Counter({b"candidates/0/7": 1})


class BareReader(Reader):
    """A reader without Kafka."""

    def __init__(self) -> None:
        self.tally = Tally()
        self._undisturbed = Expected()  # type: ignore[assignment]
        self._read = Counter()
        self._dead = Counter()

    def see(self, *values: bytes) -> Tally:
        for value in values:
            self._output_record("receipts", b"a", value)
        return self.tally


LETTER = encode_dead_letter(DeadLetter("a", DeadReason.LATE, "late", Source("blocks", 0, 1), b"")).value


def test_comparison_finds_each_kind_of_fault(monkeypatch: object) -> None:
    assert BareReader().see(b"1", b"2").clean
    assert shape(BareReader().see(b"1", b"1")) == (0, 1, 0, 0)
    assert shape(BareReader().see(b"2")) == (0, 0, 1, 0)
    assert shape(BareReader().see(b"1", b"x")) == (0, 0, 0, 1)
    short = BareReader()
    short.see(b"1")
    assert "1 of a's receipts, the dead letter of candidates/0/7" in short.missing()
    short.check_lost()
    assert shape(short.tally) == (2, 0, 0, 0)
    twice = BareReader()
    twice._dead_letter(b"candidates/0/7", LETTER)
    assert twice.tally.clean
    twice._dead_letter(b"candidates/0/7", LETTER)
    twice._dead_letter(b"blocks/0/1", LETTER)
    assert shape(twice.tally) == (0, 1, 0, 1)


def shape(tally: Tally) -> tuple[int, int, int, int]:
    return tally.lost, tally.duplicated, tally.out_of_order, tally.differing
