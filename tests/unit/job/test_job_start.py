# SPDX-License-Identifier: Apache-2.0
"""A job that cannot start because its disk is full waits, as one does that runs."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from validator import waiting
from validator.config import Config
from validator.errors import GivenUp, UserError
from validator.job.process import JobProcess


def process(directory: Path, events: list[dict[str, Any]], give_up_after: int = 60) -> JobProcess:
    table = {"directory": str(directory), "give_up_after": give_up_after}
    return JobProcess(Config.model_validate({"chains": {"a": {}}, "job": table}), events.append)


def failing(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    left = list(numbers)

    def begin(_: JobProcess) -> None:
        if left:
            number = left.pop(0)
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(JobProcess, "_begin", begin)
    monkeypatch.setattr(waiting, "OUTAGE", waiting.Pauses(0.01, 60.0))


def test_full_disk_is_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    failing(monkeypatch, errno.ENOSPC, errno.EDQUOT)
    process(tmp_path, events).start()
    assert [each["event"] for each in events] == ["waiting", "waiting"]
    assert events[0]["reason"] == f"[job] directory {tmp_path}: the job cannot write there: No space left on device"


def test_full_disk_is_not_waited_for_longer_than_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    failing(monkeypatch, errno.ENOSPC)
    with pytest.raises(GivenUp, match=r"No space left on device; gave up after 0 s, \[job\] give_up_after is 0"):
        process(tmp_path, [], give_up_after=0).start()


def test_folder_without_rights_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    failing(monkeypatch, errno.EACCES)
    with pytest.raises(UserError, match=r"the job cannot write there: Permission denied$"):
        process(tmp_path, []).start()
