# SPDX-License-Identifier: Apache-2.0
"""A batch without progress is noticed, and only such a batch."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from streaming import batch_watch
from streaming.batch_watch import LOOK_S, BatchWatch, Beat, Stalled
from streaming.lane_operator import JobSettings, _seen
from validator.codec.encode import BlockOutput

LIMIT_S = 900.0


class Watched:
    """A watch on clocks that a test advances."""

    def __init__(self) -> None:
        self.now, self.day = 50.0, 1_000_000.0
        self.sign: object = "planning"
        self.watch = BatchWatch(LIMIT_S, lambda: self.sign, lambda: self.now, lambda: self.day)

    def look_for(self, seconds: float, step_s: float = 0.5, each: Callable[[], None] = lambda: None) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += step_s
            self.day += step_s
            each()
            self.watch.look()


def test_batch_without_progress_is_noticed_after_its_time() -> None:
    watched = Watched()
    watched.look_for(LIMIT_S)
    with pytest.raises(Stalled, match="no progress for 900 s"):
        watched.look_for(2 * LOOK_S)


def test_batch_that_shows_progress_may_take_any_time() -> None:
    watched = Watched()

    def step() -> None:
        watched.sign = int(watched.now // (LIMIT_S - 2 * LOOK_S))  # moves just in time

    watched.look_for(20 * LIMIT_S, each=step)


def test_pause_between_batches_may_take_any_time() -> None:
    watched = Watched()
    watched.sign = None
    watched.look_for(5 * LIMIT_S)


def test_time_in_which_this_process_was_stopped_does_not_count() -> None:
    watched = Watched()
    watched.look_for(LIMIT_S / 2)
    watched.look_for(86_400.0, step_s=86_400.0)
    watched.look_for(LIMIT_S / 3)
    with pytest.raises(Stalled):
        watched.look_for(LIMIT_S)


@pytest.mark.parametrize("by_s", [-86_400.0, 86_400.0])
def test_clock_that_is_set_is_no_stall_but_one_set_back_begins_the_query_again(by_s: float) -> None:
    watched = Watched()
    watched.look_for(60)
    watched.day += by_s
    watched.sign = "another"
    if by_s > 0:
        watched.look_for(LIMIT_S / 2)
        return
    with pytest.raises(Stalled, match="the clock was set back by 86400 s"):
        watched.look_for(LOOK_S)
    watched.look_for(60)


def test_lane_shows_each_block_at_most_every_few_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beat = JobSettings({}, {}, "p.", tmp_path / "checkpoint", 1, 0).beat
    assert beat.seen() is None
    beat.create()
    now = [1000.0]
    monkeypatch.setattr(batch_watch.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(batch_watch, "_beaten_s", float("-inf"))
    seen = []
    for _ in _seen(beat, iter([BlockOutput(None, [])] * 10)):
        seen.append(beat.seen())
        os.utime(beat.path, ns=(0, 0))
        now[0] += LOOK_S / 4
    assert [bool(each) for each in seen] == [True, False] * 5


def test_folder_that_cannot_be_written_does_not_disturb_a_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_watch, "_beaten_s", float("-inf"))
    beat = Beat("/nowhere/progress")
    beat.create()
    beat.beat()
    assert beat.seen() is None
