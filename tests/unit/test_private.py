# SPDX-License-Identifier: Apache-2.0
"""Folders that only their owner may use."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from validator.errors import UserError
from validator.private import UMASK, alone, make_private, write_private


def test_folder_is_made_or_closed(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o777)
    for name in ("new/below", "open"):
        make_private(tmp_path / name)
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o700


def test_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").mkdir()
    owner = (tmp_path / "theirs").stat().st_uid
    monkeypatch.setattr("validator.private.ADMINISTRATOR", -1)
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(
        UserError, match=f"theirs: it belongs to another user, with ID {owner}; expected a folder of user"
    ):
        make_private(tmp_path / "theirs")


def test_link_in_place_of_a_new_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    for name in ("file", ".file.new"):
        (tmp_path / name).symlink_to("kept")
    write_private(tmp_path / "file", "private")
    assert (tmp_path / "kept").read_text() == "kept"
    assert not (tmp_path / "file").is_symlink()
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_not_replaced(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "there")
    before = (tmp_path / "there").lstat()
    with pytest.raises(OSError, match="Not a regular file"):
        write_private(tmp_path / "there", "private")
    assert (tmp_path / "there").lstat().st_ino == before.st_ino


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_lock_has_its_mode_whatever_the_umask_is(tmp_path: Path, mode: int) -> None:
    before = os.umask(UMASK)
    try:
        with alone(tmp_path / "lock", mode):
            assert (tmp_path / "lock").stat().st_mode & 0o777 == mode
    finally:
        os.umask(before)
