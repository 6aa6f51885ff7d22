# SPDX-License-Identifier: Apache-2.0
"""The short form: a few kills at the critical steps. `make crash` makes all of them.

Three brokers and a cluster of Spark are left to `make test-all`: the writers of tests/contract meet faults of three brokers without Spark,
and tests/streaming/test_artefacts.py has executors in separate processes.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.crash.report import Report
from tests.crash.run import every_step_seen, run
from tests.crash.schedule import short_schedule

SEED = int(os.environ.get("CRASH_SEED", "1"))


@pytest.mark.spark
def test_every_verdict_is_emitted_exactly_once_after_kills() -> None:
    report = run_short(1, Path("build/crash"))
    assert every_step_seen(report) == []


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.broker
def test_every_verdict_is_emitted_exactly_once_after_kills_of_three_brokers() -> None:
    run_short(3, Path("build/crash/brokers"))


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.broker
def test_every_verdict_is_emitted_exactly_once_on_a_cluster_of_spark() -> None:
    run_short(1, Path("build/crash/cluster"), on_cluster=True)


def run_short(brokers: int, build: Path, *, on_cluster: bool = False) -> Report:
    """Run the short schedule, and return its report if nothing is wrong."""
    command = f"python -m tests.crash --seed {SEED} --short" + (f" --brokers {brokers}" if brokers > 1 else "")
    command += " --cluster" * on_cluster
    schedule = short_schedule(SEED, brokers, on_cluster=on_cluster)
    report = run(SEED, schedule, command=command, build=build, lanes=2, brokers=brokers, on_cluster=on_cluster)
    assert report.wrong == "", f"repeat it with: {command}\nevidence: {report.evidence}"
    assert report.tally.clean
    assert report.tally.verdicts > 0
    assert len(report.done) == len(schedule)
    return report
