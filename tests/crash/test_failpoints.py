# SPDX-License-Identifier: Apache-2.0
"""The suite itself: every step names a function of the product, the comparisons find each kind of fault, and episodes have their work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from validator_xcmp_bodies import records
from validator_xcmp_bodies.job import open_job

from tests.bodies.history import LANE, body, event, receipt
from tests.crash.bodies import FOLLOWED, hostile_history
from tests.crash.bodies_judge import Ends, Plan, compare, sequence
from tests.crash.brokers import ROLES
from tests.crash.clusters import CLUSTER_EPISODES
from tests.crash.comparison import Reader, Tally
from tests.crash.gateways import CODEC, divided, more_than_once, paras_of
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
from tests.crash.traffic import Sent, Traffic, chains_of
from validator.codec.encode import encode_dead_letter
from validator.codec.json_form import encode_input, to_json
from validator.core.inputs import DeadLetter, DeadReason, RecordKind, Source
from validator.plugin.job_api import Job, JobContext

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


PEER_CHAINS = chains_of(4, 3, 30)
WORLD: Any = SimpleNamespace(chains=PEER_CHAINS)


def test_peer_submits_every_candidate_once_with_the_same_bytes() -> None:
    traffic = Traffic(PEER_CHAINS, Random(1), 3)
    records = [sent for _ in range(4) for sent in traffic.segment()]
    through, direct = divided(records, paras_of(WORLD))
    assert sorted(through + direct) == sorted(records)
    assert len({sent.value for sent in through}) == len(through) > 50
    good = {each.value for chain in PEER_CHAINS for each in chain.records if each.topic == "candidates"}
    assert {sent.value for sent in through} == {sent.value for sent in records} & good
    for sent in through:
        again = encode_input(CODEC, RecordKind.CANDIDATE, to_json("candidates", sent.value, CODEC), "router")
        assert again == sent.value


def test_record_that_is_there_again_is_counted_each_time() -> None:
    written = [Sent("candidates", b"a", value) for value in (b"1", b"2", b"1", b"3", b"1")]
    assert more_than_once(written) == [written[2], written[4]]
    assert more_than_once([]) == []


ROWS = [(b"k", b"1"), (b"k", b"2"), (b"l", b"1"), (b"k", b"1")]


@pytest.mark.parametrize(
    ("found", "faults"),
    [
        (ROWS, {}),
        (ROWS[:-1], {"lost": 1}),
        ([], {"lost": 3}),
        ([*ROWS, ROWS[1]], {"duplicated": 1}),
        ([*ROWS, (b"k", b"3")], {"differing": 1}),
        ([ROWS[1], ROWS[0], *ROWS[2:]], {"out_of_order": 1}),
        ([*ROWS[:3], (b"k", b"3")], {"lost": 1, "differing": 1}),
    ],
)
def test_every_kind_of_fault_is_counted(found: list[tuple[bytes, bytes]], faults: dict[str, int]) -> None:
    tally = Tally()
    compare(ROWS, found, "somewhere", tally)
    kinds = ("lost", "duplicated", "out_of_order", "differing")
    assert {kind: getattr(tally, kind) for kind in kinds if getattr(tally, kind)} == faults
    assert len(tally.faults) == sum(faults.values())


def job() -> Job:
    return open_job(JobContext("xcmp-bodies", {"buckets": 2}, {LANE: {"protocol": "xcmp-network", "limits": {}}}))


def log(folder: Path, number: int, ends: Ends, *, committed: bool = True) -> None:
    """Write a batch as Spark does: a version, the query's metadata, a line for each source."""
    sources = ({records.BODIES}, {records.INGRESS, records.RECEIPTS})
    lines = [
        json.dumps({f"p.{topic}": {"0": end} for topic, end in ends.items() if topic in source}) for source in sources
    ]
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "offsets" / str(number)).write_text("\n".join(["v1", '{"batchWatermarkMs":0}', *lines]))
    if committed:
        (folder / "commits" / str(number)).write_text("v1\n{}")


def test_a_plan_says_what_its_batches_emit(tmp_path: Path) -> None:
    name, payloads = (1, 2, 5), [b"one"]
    history = [event("queued", 5, name, payloads), receipt(5), *body(name, payloads), receipt(6)]
    plan = Plan(job(), "p.")
    assert not plan.covers({})
    log(tmp_path, 0, {records.BODIES: 0, records.INGRESS: 1, records.RECEIPTS: 1})
    log(tmp_path, 1, {records.BODIES: 1, records.INGRESS: 1, records.RECEIPTS: 2}, committed=False)
    plan.look(tmp_path)
    produced = {records.BODIES: 1, records.INGRESS: 1, records.RECEIPTS: 2}
    assert not plan.covers(produced)
    assert {topic for topic, _ in plan.expected(history)} == {records.FLOW, records.QUEUES}
    log(tmp_path, 1, plan.ends[1])
    plan.look(tmp_path)
    assert plan.covers(produced)
    bucket = "polkadot/xcmp-bodies/0-2"
    found = plan.expected(history)
    assert [(place, len(rows)) for place, rows in found.items()] == [
        ((records.FLOW, bucket), 1),
        ((records.QUEUES, bucket), 2),
        ((records.HELD, bucket), 1),
    ]
    other = Plan(plan.job, "p.", {0: {**produced}}, {0})
    assert other.expected(history).keys() == found.keys()
    assert other.expected(history) != found, "other batches have other output"


def test_a_batch_that_has_left_the_log_unseen_is_no_success(tmp_path: Path) -> None:
    log(tmp_path, 3, {records.BODIES: 0, records.INGRESS: 1, records.RECEIPTS: 1})
    plan = Plan(job(), "p.")
    plan.look(tmp_path)
    with pytest.raises(AssertionError, match=r"batches \[0, 1, 2\] have left the offset log unseen"):
        plan.covers({})


def test_a_history_has_work_for_everybody() -> None:
    history = hostile_history(Random(1))
    assert len(sequence(history, FOLLOWED)) > 10
    assert {topic for topic, _ in history} == {records.INGRESS, records.RECEIPTS, records.BODIES}
    assert sequence(history, FOLLOWED) == sorted(
        sequence(history, FOLLOWED), key=lambda each: tuple(map(int, each.split("/")))
    )
