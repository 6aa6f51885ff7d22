# SPDX-License-Identifier: Apache-2.0
"""The judge of the episode of bodies: it knows what batches emit, and finds every kind of fault."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from validator_xcmp_bodies import records
from validator_xcmp_bodies.job import open_job

from tests.bodies.history import LANE, body, event, receipt
from tests.crash.bodies import FOLLOWED, hostile_history
from tests.crash.bodies_judge import Ends, Plan, compare, sequence
from tests.crash.comparison import Tally
from validator.plugin.job_api import Job, JobContext

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
