# SPDX-License-Identifier: Apache-2.0
"""The printed log of a job and of the command that runs it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from validator.cli.job_log import log_printer

OF_THE_JOB = {"event": "ready", "level": "info", "timestamp": "2026-11-25T10:00:00.000000Z"}


@pytest.mark.parametrize(("name", "level"), [("killed", "error"), ("taking over", "warning"), ("broker", "info")])
def test_what_the_command_logs_itself_has_level_and_time(
    capsys: pytest.CaptureFixture[str], name: str, level: str
) -> None:
    before = datetime.now(UTC)
    log_printer(as_json=True)({"event": name, "pid": 7})
    printed = json.loads(capsys.readouterr().err)
    assert (printed["event"], printed["pid"], printed["level"]) == (name, 7, level)
    assert abs(datetime.fromisoformat(printed["timestamp"]) - before) < timedelta(hours=1)


def test_events_of_the_job_keep_their_time(capsys: pytest.CaptureFixture[str]) -> None:
    log_printer(as_json=True)(OF_THE_JOB)
    assert json.loads(capsys.readouterr().err) == OF_THE_JOB
    log_printer(as_json=False)(OF_THE_JOB)
    assert capsys.readouterr().err.startswith("10:00:00  ready")
