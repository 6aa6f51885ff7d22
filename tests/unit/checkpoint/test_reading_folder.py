# SPDX-License-Identifier: Apache-2.0
"""Folders in which a checkpoint is read: those of killed processes are removed, those of others stay."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from validator.ask import state
from validator.ask.state import PREFIX, reading_folder, stored_lanes
from validator.lanes.stored import write_export

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

READS = """
import sys, time
from pathlib import Path
from validator.ask.state import reading_folder
with reading_folder(Path(sys.argv[1])) as folder:
    (folder / "store").mkdir()
    (folder / "store" / "1.sst").write_bytes(bytes(1000))
    print(folder, flush=True)
    time.sleep(600)
"""


def reading(job: Path) -> tuple[subprocess.Popen[str], str]:
    """Start a process that reads a checkpoint, and return it with its folder."""
    process = subprocess.Popen([sys.executable, "-c", READS, str(job)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_folder_of_a_killed_reader_is_removed_by_the_next_one_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checkpoint" / "commits").mkdir(parents=True)
    (tmp_path / "checkpoint" / "commits" / "3").write_text("v1\n{}")
    (tmp_path / f"{PREFIX}notes").write_text("no folder")
    killed, left = reading(tmp_path)
    lives, held = reading(tmp_path)
    folders = set()

    def read(_checkpoint: Path, output: Path, _lanes: Sequence[str]) -> None:
        folders.update(str(path) for path in tmp_path.iterdir() if path.is_dir() and path.name.startswith(PREFIX))
        folders.remove(str(output.parent))
        write_export(output, 3, {}, [])

    monkeypatch.setattr(state, "read_checkpoint", read)
    try:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        with stored_lanes(tmp_path) as stored:
            assert stored.batch == 3
        assert folders == {held}
        assert left != held
    finally:
        for process in (killed, lives):
            process.kill()
            process.communicate()
    with reading_folder(tmp_path) as folder:
        pass
    assert not folder.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", f"{PREFIX}notes"]


def test_folder_is_made_where_files_cannot_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with reading_folder(tmp_path) as one, reading_folder(tmp_path) as other:
        assert one != other
        assert one.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_folder_is_elsewhere_if_that_of_the_job_is_gone(tmp_path: Path) -> None:
    with reading_folder(tmp_path / "gone") as folder:
        assert folder.is_dir()
    assert not folder.exists()
