# SPDX-License-Identifier: Apache-2.0
"""What the job says of the executors that it gains and loses, and how long it waits without one."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.batch_watch import LOOK_S
from streaming.cluster import NONE_S_MAX, NONE_SAID_S, ExecutorWatch
from tests.unit.streaming.queries import Log
from validator.errors import GivenUp

STANDALONE = "spark://there:7077"
GIVE_UP_S = 3600.0
SINCE = "2026-11-27 15:00:00 UTC"


class Cluster:
    """A cluster whose executors and clocks a test changes."""

    def __init__(self, master: str = STANDALONE, *, may_have_none: bool = False) -> None:
        self.now, self.day = 50.0, 1795791600.0  # 15:00
        self.executors: dict[str, str] = {}
        self.log = Log()
        self.watch = ExecutorWatch(
            master,
            lambda: self.executors,
            GIVE_UP_S,
            self.log,
            lambda: self.now,
            lambda: self.day,
            may_have_none=may_have_none,
        )

    def look_for(self, seconds: float, step_s: float = 0.5) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += step_s
            self.day += step_s
            self.watch.look()

    def said(self, event: str) -> list[dict[str, Any]]:
        return [values for name, values in self.log.events if name == event]


def test_each_change_of_executors_is_one_line() -> None:
    cluster = Cluster()
    cluster.executors = {"0": "a", "1": "b"}
    cluster.look_for(LOOK_S)
    assert sorted(values["host"] for values in cluster.said("executor added")) == ["a", "b"]
    cluster.executors = {"1": "b"}
    cluster.look_for(4 * LOOK_S)
    assert cluster.said("executor lost") == [{"host": "a", "executors": 1}]
    cluster.executors = {"1": "b", "2": "c"}
    cluster.look_for(GIVE_UP_S)
    assert cluster.said("executor added")[2:] == [{"host": "c", "executors": 2}]
    assert cluster.said("waiting") == []
    assert not cluster.watch.lacks_executors


def test_job_that_a_standalone_master_has_forgotten_says_so_and_ends() -> None:
    cluster = Cluster()
    cluster.executors = {"0": "a"}
    cluster.look_for(LOOK_S)
    cluster.executors, cluster.day = {}, 1795791600.0 - LOOK_S
    cluster.look_for(NONE_SAID_S - LOOK_S)
    assert cluster.said("waiting") == []
    with pytest.raises(
        GivenUp, match=f"^Spark's master at {STANDALONE} gives the job no executor since {SINCE}: "
    ) as end:
        cluster.look_for(GIVE_UP_S)
    assert "the next start registers the job" in str(end.value)
    assert NONE_S_MAX < cluster.now - 50.0 < NONE_S_MAX + 3 * LOOK_S
    reason = f"Spark's master at {STANDALONE} gives the job no executor since {SINCE}"
    assert [(values["reason"], values["waited"]) for values in cluster.said("waiting")] == [
        (reason, NONE_SAID_S),
        (reason, 2 * NONE_SAID_S),
    ]


@pytest.mark.parametrize(("master", "had_one"), [(STANDALONE, False), ("k8s://there", True), ("k8s://there", False)])
def test_executors_that_may_still_come_are_waited_for_as_other_outages(master: str, had_one: bool) -> None:
    cluster = Cluster(master)
    cluster.executors = {"0": "a"} if had_one else {}
    cluster.look_for(LOOK_S)
    cluster.executors = {}
    cluster.look_for(GIVE_UP_S - 2 * LOOK_S)
    waited = [values["waited"] for values in cluster.said("waiting")]
    assert waited == [NONE_SAID_S * 2**at for at in range(7)]
    with pytest.raises(GivenUp, match=r"gave up after 3600 s, \[job\] give_up_after is 3600$"):
        cluster.look_for(3 * LOOK_S)


def test_executors_that_come_back_end_the_outage() -> None:
    cluster = Cluster()
    for _ in range(4):
        cluster.executors = {"0": "a"}
        cluster.look_for(LOOK_S)
        cluster.executors = {}
        cluster.look_for(NONE_S_MAX - 2 * LOOK_S)
    assert len(cluster.said("waiting")) == 8


def test_time_in_which_this_process_was_stopped_does_not_count() -> None:
    cluster = Cluster()
    cluster.executors = {"0": "a"}
    cluster.look_for(LOOK_S)
    cluster.executors = {}
    cluster.look_for(LOOK_S)
    cluster.now += 10 * NONE_S_MAX
    cluster.look_for(LOOK_S)
    assert cluster.said("waiting") == []


def test_executors_that_spark_gives_back_are_not_missed() -> None:
    cluster = Cluster(may_have_none=True)
    cluster.executors = {"0": "a"}
    cluster.look_for(LOOK_S)
    cluster.executors = {}
    cluster.look_for(2 * GIVE_UP_S)
    assert [event for event, _ in cluster.log.events] == ["executor added", "executor lost"]
    assert not cluster.watch.lacks_executors
