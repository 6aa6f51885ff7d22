# SPDX-License-Identifier: Apache-2.0
"""Offsets are divided into ranges so that each record is read once, by tasks of about the same size."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming import range_source
from streaming.range_source import (
    RECORDS_PER_TASK_MIN,
    OffsetRange,
    Offsets,
    divided,
    limited,
    ranges_between,
    records_between,
)

PLACES = [("a", "0"), ("a", "1"), ("a", "10"), ("b", "0"), ("c", "2")]

backlogs = st.one_of(st.just(0), st.integers(1, 5), st.integers(0, 3 * RECORDS_PER_TASK_MIN), st.integers(0, 2_000_000))


@st.composite
def spans(draw: st.DrawFn) -> tuple[Offsets, Offsets]:
    """Offsets, and later ones, in which partitions and topics may be new."""
    start: Offsets = {}
    latest: Offsets = {}
    for topic, partition in draw(st.permutations(PLACES)):
        kind = draw(st.sampled_from(["known", "known", "new", "absent"]))
        first = draw(st.integers(0, 10**12)) if kind == "known" else 0
        if kind == "known":
            start.setdefault(topic, {})[partition] = first
        if kind != "absent":
            latest.setdefault(topic, {})[partition] = first + draw(backlogs)
    return start, latest


def firsts(start: Offsets, latest: Offsets) -> dict[tuple[str, str], int]:
    return {(topic, each): start.get(topic, {}).get(each, 0) for topic in latest for each in latest[topic]}


def joined(pieces: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Join ranges that follow each other directly."""
    whole: list[OffsetRange] = []
    for each in pieces:
        if whole and whole[-1][:2] == each[:2] and whole[-1].end == each.first:
            whole[-1] = whole[-1]._replace(end=each.end)
        else:
            whole.append(each)
    return whole


@given(spans())
def test_ranges_are_all_that_is_new(span: tuple[Offsets, Offsets]) -> None:
    start, latest = span
    begins = firsts(start, latest)
    expected = sorted(
        OffsetRange(topic, int(each), first, latest[topic][each])
        for (topic, each), first in begins.items()
        if first < latest[topic][each]
    )
    assert ranges_between(start, latest) == expected
    assert records_between(start, latest) == sum(latest[topic][each] - first for (topic, each), first in begins.items())


@given(spans(), st.integers(1, 9))
def test_tasks_cover_each_offset_once_and_in_order(span: tuple[Offsets, Offsets], tasks_max: int) -> None:
    start, end = span
    tasks = divided(start, end, tasks_max)
    assert joined(each for task in tasks for each in task) == ranges_between(start, end)
    assert all(each.first < each.end for task in tasks for each in task)
    assert all(len({each[:2] for each in task}) == len(task) for task in tasks), (
        "one range of a partition for each task"
    )
    sizes = [sum(each.end - each.first for each in task) for task in tasks]
    assert len(tasks) == min(tasks_max, -(-sum(sizes) // RECORDS_PER_TASK_MIN))
    assert not sizes or max(sizes) - min(sizes) <= 1


@given(spans(), st.one_of(st.integers(1, 50), st.integers(1, 3_000_000)))
def test_batch_is_limited_and_each_partition_makes_progress(span: tuple[Offsets, Offsets], records_max: int) -> None:
    start, latest = span
    end = limited(start, latest, records_max)
    assert {topic: set(partitions) for topic, partitions in end.items()} == {
        topic: set(partitions) for topic, partitions in latest.items()
    }
    backlog, taken = 0, 0
    for (topic, each), first in firsts(start, latest).items():
        assert first <= end[topic][each] <= latest[topic][each]
        assert (end[topic][each] > first) == (latest[topic][each] > first)
        backlog += latest[topic][each] - first
        taken += end[topic][each] - first
    assert abs(taken - min(backlog, records_max)) <= len(PLACES)
    if backlog <= records_max:
        assert end == latest


@given(spans(), st.integers(1, 40))
def test_batches_take_everything_in_the_end(span: tuple[Offsets, Offsets], share: int) -> None:
    start, latest = span
    batches = 0
    total = records_between(start, latest)
    records_max = 1 + total // share
    while records_between(start, latest):
        start = limited(start, latest, records_max)
        batches += 1
        assert batches <= 2 * len(PLACES) + 2 * total // records_max, "each batch takes about its share"


def test_shares_follow_the_backlog() -> None:
    """Records of one block arrive on all topics at about the same time."""
    start = {"a": {"0": 100}, "b": {"0": 0}}
    latest = {"a": {"0": 3_100}, "b": {"0": 1_000}}
    assert limited(start, latest, 400) == {"a": {"0": 400}, "b": {"0": 100}}
    assert start == {"a": {"0": 100}, "b": {"0": 0}}
    assert latest == {"a": {"0": 3_100}, "b": {"0": 1_000}}


def test_new_partitions_and_topics_begin_at_0() -> None:
    found = ranges_between({"a": {"0": 7}}, {"a": {"0": 7, "1": 2}, "b": {"0": 3}})
    assert found == [OffsetRange("a", 1, 0, 2), OffsetRange("b", 0, 0, 3)]


def test_partitions_are_in_numeric_order() -> None:
    found = ranges_between({}, {"a": {"10": 1, "9": 1}})
    assert [each.partition for each in found] == [9, 10]


@pytest.mark.parametrize("offsets", [{}, {"a": {}}, {"a": {"0": 5}, "b": {"0": 0}}])
def test_empty_batch_has_no_tasks(offsets: Offsets) -> None:
    assert divided(offsets, offsets, 4) == []
    assert limited(offsets, offsets, 1) == offsets


def test_small_batch_is_one_task() -> None:
    for records, count in ((1, 1), (RECORDS_PER_TASK_MIN, 1), (RECORDS_PER_TASK_MIN + 1, 2), (10**9, 4)):
        assert len(divided({}, {"a": {"0": records}}, 4)) == count
    assert len(divided({}, {"a": {"0": 10**9}}, 1)) == 1


def test_tasks_may_share_a_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_source, "RECORDS_PER_TASK_MIN", 4)
    first, second = divided({"a": {"0": 10}}, {"a": {"0": 16}, "b": {"3": 2}}, 2)
    assert first == (OffsetRange("a", 0, 10, 14),)
    assert second == (OffsetRange("a", 0, 14, 16), OffsetRange("b", 3, 0, 2))
