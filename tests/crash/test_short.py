# SPDX-License-Identifier: Apache-2.0
"""The short form: a few kills at the critical steps. `make crash` makes all of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.crash.run import every_step_seen, run
from tests.crash.schedule import short_schedule

SEED = int(os.environ.get("CRASH_SEED", "1"))


@pytest.mark.spark
def test_every_verdict_is_emitted_exactly_once_after_kills(tmp_path: Path) -> None:
    command = f"python -m tests.crash --seed {SEED} --short"
    report = run(SEED, short_schedule(SEED), command=command, build=Path("build/crash"), lanes=2)
    assert report.wrong == "", f"repeat it with: {command}\nevidence: {report.evidence}"
    assert report.tally.clean
    assert report.tally.verdicts > 0
    assert len(report.done) == len(short_schedule(SEED))
    assert every_step_seen(report) == []
