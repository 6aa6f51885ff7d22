# SPDX-License-Identifier: Apache-2.0
"""Spark's sockets get a folder whose path suits them, and those of a killed session are removed."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from streaming import session
from streaming.session import (
    PARENT_BYTES_MAX,
    PARENTS,
    SCRATCH,
    make_sockets_folder,
    note_sockets_folder,
    scratch_folder,
)
from validator.errors import UserError


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)


@pytest.mark.parametrize("name", ["T", "a" * PARENT_BYTES_MAX, "gone"])
def test_folder_for_temporary_files_is_used_only_if_its_path_suits(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """With a capital letter in its path, a worker would not find the state; on macOS there is always one."""
    parent = Path(tempfile.mkdtemp(prefix="s-", dir=PARENTS[0]))
    monkeypatch.setattr(tempfile, "tempdir", str(parent))
    used = make_sockets_folder()
    assert used.parent == parent
    assert used.stat().st_mode & 0o777 == 0o700
    odd = parent / name
    if name != "gone":
        odd.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(odd))
    other = make_sockets_folder()
    assert other.parent == Path(PARENTS[0])
    monkeypatch.setattr(session, "PARENTS", ("/proc/none",))
    with pytest.raises(UserError, match=r"^TMPDIR: expected a folder that can be written, with at most 40 bytes"):
        make_sockets_folder()
    for each in (other, used, *([odd] if odd.exists() else []), parent):
        each.rmdir()


def test_sockets_of_a_killed_session_are_removed_at_the_next_start(tmp_path: Path) -> None:
    scratch = scratch_folder(tmp_path)
    left = make_sockets_folder()
    (left / ".a.sock").touch()
    note_sockets_folder(left, scratch)
    assert scratch_folder(tmp_path) == scratch == tmp_path / SCRATCH
    assert not left.exists()
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("noted", ["", "relative/validator-x", "{tmp}/mine", "{tmp}/validator-link"])
def test_nothing_else_is_removed(tmp_path: Path, noted: str) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "file").touch()
    (tmp_path / "validator-link").symlink_to(mine)
    scratch = scratch_folder(tmp_path / "job")
    (scratch / "sockets").write_text(noted.format(tmp=tmp_path))
    scratch_folder(tmp_path / "job")
    assert (mine / "file").exists()
