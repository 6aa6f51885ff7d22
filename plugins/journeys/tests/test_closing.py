# SPDX-License-Identifier: Apache-2.0
"""Journeys of several messages: how each closes, whatever the order, the batches, the repetitions and the crashes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from validator_journeys import closed_records, closing, records
from validator_journeys.closed_job import Bucket, ClosedJob, open_job
from validator_journeys.identity import Identity, Kind

from tests.hypothesis_profile import examples
from tests.repetitions import repetitions
from tests.simulation.keyed import Inputs, World
from validator.plugin.job_api import JobContext, JobItem, JobRecord, OutputRecord, UserError

A, B, C = 2000, 2004, 2030
TIMEOUT = 20
TOPIC = bytes(31) + b"\1"


def job_of(**options: int) -> ClosedJob:
    job = open_job(JobContext("journeys-closed", {"timeout_blocks": TIMEOUT, **options}))
    assert isinstance(job, ClosedJob)
    return job


def record(
    path: tuple[int | None, int | None],
    number: int,
    queued_at: int | None,
    end: tuple[int, str, str | None] | None = None,
    *,
    lane: str = "polkadot",
    topic: bytes | None = TOPIC,
    forwards: bool = False,
) -> bytes:
    """Return a record of `journeys`; ``end`` has its block, the status and the detail."""
    sender, recipient = path
    kind = Kind.UPWARD if recipient is None else Kind.DOWNWARD if sender is None else Kind.HORIZONTAL
    identity = Identity(lane, kind, sender, recipient, 0, number)
    names = ["WithdrawAsset", *(["InitiateReserveWithdraw"] if forwards else []), *(["SetTopic"] if topic else [])]
    xcm = {"version": 5, "id": topic or bytes(32), "instructions": names, "calls": [], "assets": [], "reason": None}
    steps = [] if queued_at is None else [("queued", queued_at, None)]
    steps += [] if end is None else [(end[1], end[0], end[2])]
    others = {"by": None, "index": None, "candidate_hash": None}
    datum = {
        "id": str(identity),
        **identity._asdict(),
        "kind": str(kind),
        "opened_at": None,
        "status": "waiting" if end is None else end[1],
        "payload_hash": None,
        "size": None,
        "mqc_head": None,
        "payload": {"form": "xcm", "messages": [xcm], "blobs": 0, "signals": [], "reason": None},
        "legs": [{"step": step, "block": block, "detail": detail, **others} for step, block, detail in steps],
        "waits_blocks": None,
        "journey": topic and topic.hex(),
    }
    return records.formats()[records.JOURNEYS].encode(datum)


def items(job: ClosedJob, values: Iterable[bytes], first: int = 0) -> dict[str, list[JobItem]]:
    found: dict[str, list[JobItem]] = {key: [] for key in job.keys}
    for at, value in enumerate(values, first):
        for key, content in job.condense(JobRecord(records.JOURNEYS, 0, at, None, value)):
            found[key].append(JobItem(records.JOURNEYS, 0, at, content))
    return found


def play(*batches: Sequence[bytes]) -> list[list[tuple[str, str | None, int]]]:
    """Return status, reason and number of legs of the journeys that each batch closes."""
    job, first, said = job_of(), 0, []
    state = job.restore(job.keys[0], {})
    for batch in batches:
        output = state.process(items(job, batch, first)[job.keys[0]])
        first += len(batch)
        found = [closed_records.closed_format().decode(each.value) for each in output]
        assert [closed_records.key_of(each.value) for each in output] == [each.key for each in output]
        said.append([(each["status"], each["reason"], len(each["legs"])) for each in found])
    return said


UP = (A, None), 1, 5
RECEIVED, DISPATCHED = (6, "received", None), (6, "dispatched", "no_handler")


def test_message_that_forwards_nothing_is_a_complete_journey_when_it_ends() -> None:
    assert play([record((A, B), 1, 5)], [record((A, B), 1, 5, RECEIVED)]) == [[], [("complete", None, 1)]]


def test_messages_without_a_topic_have_no_journey() -> None:
    assert play([record((A, B), 1, 5, RECEIVED, topic=None)]) == [[]]


def test_journey_over_the_relay_chain_waits_for_the_message_that_follows() -> None:
    up, down = record(*UP, DISPATCHED, forwards=True), record((None, B), 7, 6)
    assert play([up], [down], [record((None, B), 7, 6, (9, "received", None))]) == [[], [], [("complete", None, 2)]]


def test_journey_over_two_lanes() -> None:
    first = record((A, B), 1, 500, (501, "received", None), forwards=True)
    second = record((B, C), 1, 7, (8, "received", None), lane="kusama")
    assert play([first], [second]) == [[], [("complete", None, 2)]]


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ((6, "dispatched", "failed"), "polkadot.upward.2000.relay.0.1 dispatched: failed"),
        ((6, "dropped", "oversized"), "polkadot.upward.2000.relay.0.1 dropped: oversized"),
    ],
)
def test_journey_fails_with_its_message(end: tuple[int, str, str], reason: str) -> None:
    assert play([record(*UP)], [record(*UP, end)]) == [[], [("failed", reason, 1)]]


def test_journey_times_out_by_the_blocks_of_other_messages() -> None:
    other = [record((B, C), number, block, topic=None) for number, block in enumerate((5 + TIMEOUT, 6 + TIMEOUT))]
    reason = "polkadot.upward.2000.relay.0.1 has not ended"
    assert play([record(*UP)], other[:1], other[1:], []) == [[], [], [("timed_out", reason, 1)], []]


def test_journey_times_out_if_nothing_follows() -> None:
    (_, said) = play([record(*UP, DISPATCHED, forwards=True)], [record((B, C), 1, 7 + TIMEOUT, topic=None)])
    assert said == [("timed_out", "polkadot.upward.2000.relay.0.1 took too long, or nothing followed it", 1)]


def test_late_leg_adds_itself_and_nothing_else() -> None:
    late = record((None, B), 7, 8 + TIMEOUT, (9 + TIMEOUT, "received", None))
    first = record(*UP, DISPATCHED, forwards=True)
    reason = "polkadot.upward.2000.relay.0.1 took too long, or nothing followed it"
    assert play([first], [record((B, C), 1, 7 + TIMEOUT, topic=None)], [late], [late, first]) == [
        [],
        [("timed_out", reason, 1)],
        [("timed_out", reason, 2)],
        [],
    ]


def test_repetition_of_an_earlier_record_does_not_open_a_message_again() -> None:
    queued, ended = record((A, B), 1, 5), record((A, B), 1, 5, RECEIVED)
    assert play([queued], [ended], [queued], [ended]) == [[], [("complete", None, 1)], [], []]


def test_legs_of_a_journey_are_limited() -> None:
    many = [record((A, B), number, 5, RECEIVED) for number in range(closing.LEGS_MAX + 10)]
    job = job_of()
    (output,) = job.restore(job.keys[0], {}).process(items(job, many)[job.keys[0]])
    found = closed_records.closed_format().decode(output.value)
    assert (len(found["legs"]), found["legs_left_out"]) == (closing.LEGS_MAX, 10)
    assert len(output.value) < closed_records.RECORD_BYTES_MAX


def test_journey_is_forgotten_when_nothing_can_follow() -> None:
    job = job_of()
    state = job.restore(job.keys[0], {})
    pages: dict[bytes, bytes] = {}
    state.process(items(job, [record((A, B), 1, 5, RECEIVED)])[job.keys[0]])
    store(state, pages)
    assert len(pages) == 2
    state.process(items(job, [record((B, C), 1, 7 + 2 * TIMEOUT, topic=None)], 1)[job.keys[0]])
    store(state, pages)
    assert list(pages) == [b"cpolkadot"]


# --- in any batches ---


@cache
def history(seed: int = 7) -> tuple[bytes, ...]:
    """Records of messages of few topics over two lanes, about in the order of blocks."""
    random = Random(seed)
    found: list[tuple[float, bytes]] = []
    for number in range(90):
        path = random.choice([(A, None), (None, B), (B, A), (A, B), (B, None), (None, C)])
        about: dict[str, Any] = {
            "lane": random.choice(["polkadot", "polkadot", "kusama"]),
            "topic": random.randrange(25).to_bytes(4) + bytes(28),
            "forwards": random.random() < 0.3,
        }
        queued_at = random.randrange(1, 200)
        found.append((queued_at + random.random() * 4, record(path, number, queued_at, **about)))
        if random.random() < 0.9:
            ended_at = queued_at + random.choice([1, 3, 9, 15, TIMEOUT + 1])
            well = ("dispatched", "ok") if path[1] is None else ("received", None)
            end = well if random.random() < 0.9 else ("dropped", "offboarded")
            found.append((ended_at + random.random() * 4, record(path, number, queued_at, (ended_at, *end), **about)))
    return tuple(value for _, value in sorted(found))


def long_job(**options: int) -> ClosedJob:
    """Return a job that forgets none of these journeys."""
    return job_of(timeout_blocks=100, **options)


def store(state: Any, pages: dict[bytes, bytes]) -> None:
    for name, page in state.changes():
        if page is None:
            pages.pop(name)
        else:
            pages[name] = page


def newest(output: Iterable[OutputRecord]) -> dict[bytes, bytes]:
    return {each.key: each.value for each in output}


@cache
def whole(buckets: int) -> dict[bytes, bytes]:
    job = long_job(buckets=buckets)
    by_key = items(job, history())
    return newest(each for key in job.keys for each in job.restore(key, {}).process(by_key[key]))


def test_history_has_every_close() -> None:
    statuses = [closed_records.closed_format().decode(value)["status"] for value in whole(1).values()]
    assert set(statuses) == {"complete", "failed", "timed_out"}
    assert whole(1) == whole(3), "buckets divide the work and change nothing"


@examples(20)
@given(seed=st.integers(0, 2**32))
def test_any_order_split_restore_and_repetition_closes_the_same(seed: int) -> None:
    random, job = Random(seed), long_job()
    values = list(history())
    for _ in range(30):
        values.insert(random.randrange(len(values)), random.choice(history()))
    random.shuffle(values)
    state, pages, output, at = job.restore(job.keys[0], {}), {}, [], 0
    while at < len(values):
        end = at + random.randrange(1, 30)
        output += state.process(items(job, values[at:end], at)[job.keys[0]])
        at = end
        store(state, pages)
        if random.randrange(2):
            state = job.restore(job.keys[0], pages)
    assert whole(1).items() <= newest(output).items()
    assert isinstance(state, Bucket)
    assert state.process([]) == []


# --- in schedules full of crashes ---

SCHEDULES = repetitions(10, 200)


@pytest.mark.parametrize("loses_its_checkpoint", [False, True])
def test_any_faults_close_the_same(*, loses_its_checkpoint: bool) -> None:
    job = long_job(buckets=2)
    inputs = Inputs(job, [(records.JOURNEYS, value) for value in history()], effects_per_batch=12)
    lost = 0
    for seed in range(SCHEDULES):
        world = World(seed, inputs)
        world.rebuilds = loses_its_checkpoint
        output = world.run()
        lost += world.lost
        for emitted in output.values():
            pairs = [(each.key, each.value) for each in emitted]
            again = [pair for at, pair in enumerate(pairs) if dict(pairs[:at]).get(pair[0]) == pair[1]]
            assert not again, f"seed {seed}: a record is said again"
        assert whole(1).items() <= newest(each for emitted in output.values() for each in emitted).items(), seed
    assert bool(lost) == loses_its_checkpoint


def test_number_of_buckets_cannot_change() -> None:
    job_of(buckets=2).check_written(["polkadot/journeys", "journeys-closed/0-2"])
    with pytest.raises(UserError, match=r"\[jobs.journeys-closed\] buckets: expected 2, .* found 3"):
        job_of(buckets=3).check_written(["journeys-closed/0-2"])


def test_wrong_options_are_refused() -> None:
    with pytest.raises(UserError, match=r"\[jobs.journeys-closed\] chains: no such key; there are buckets, "):
        open_job(JobContext("journeys-closed", {"chains": []}))


def test_record_that_is_none_is_left_out() -> None:
    assert list(job_of().condense(JobRecord(records.JOURNEYS, 0, 0, None, b"x"))) == []
