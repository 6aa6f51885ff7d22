# SPDX-License-Identifier: Apache-2.0
"""Chunks go by files where there is a folder and the disk takes them, and each batch's files are removed after it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from streaming import chunk_files
from streaming.chunk_files import (
    FILED_BYTES_MIN,
    ChunkFile,
    PassedOn,
    chunk_folder,
    chunk_of,
    remove_files_before,
    whole,
)

LARGE = bytes(range(256)) * (FILED_BYTES_MIN // 256)


def test_large_chunks_go_by_one_file(tmp_path: Path) -> None:
    file = ChunkFile(str(tmp_path), 3)
    chunks = [LARGE, b"small", b"x" + LARGE, LARGE[1:], LARGE]
    passed_on = [file.put(each) for each in chunks]
    file.close()
    assert [chunk_of(each) for each in passed_on] == chunks
    assert [bool(each.file) for each in passed_on] == [True, False, True, False, True]
    assert [each.chunk for each in passed_on] == [b"", b"small", b"", LARGE[1:], b""]
    (path,) = tmp_path.iterdir()
    assert path.stat().st_size == file.size == 3 * len(LARGE) + 1
    assert path.stat().st_mode & 0o777 == 0o600


def test_nothing_large_makes_no_file(tmp_path: Path) -> None:
    file = ChunkFile(str(tmp_path), 3)
    assert file.put(b"small") == whole(b"small")
    file.close()
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_chunks_go_through_spark() -> None:
    file = ChunkFile("", 1)
    assert file.put(LARGE) == PassedOn(LARGE, "", 0, len(LARGE))
    assert chunk_of(file.put(LARGE)) == LARGE
    assert file.size == 0
    file.close()
    remove_files_before("", 9)


def test_chunk_goes_through_spark_if_its_file_cannot_be_made(tmp_path: Path) -> None:
    file = ChunkFile(str(tmp_path / "removed"), 1)
    assert file.put(LARGE) == whole(LARGE)
    file.close()


def test_chunk_goes_through_spark_if_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written of it is overwritten."""
    write, room = os.pwrite, [1000]

    def limited(file: int, data: bytes, position: int) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "no space")
        written = write(file, data[: room[0]], position)
        room[0] -= written
        return written

    file = ChunkFile(str(tmp_path), 1)
    first = file.put(LARGE)
    with monkeypatch.context() as patched:
        patched.setattr(chunk_files.os, "pwrite", limited)
        second = file.put(LARGE[::-1])
        room[0] = 10**9
        third = file.put(LARGE[::-1])
    file.close()
    assert [bool(each.file) for each in (first, second, third)] == [True, False, True]
    assert [chunk_of(each) for each in (first, second, third)] == [LARGE, LARGE[::-1], LARGE[::-1]]


def test_missing_chunk_is_an_error(tmp_path: Path) -> None:
    file = ChunkFile(str(tmp_path), 1)
    passed_on = file.put(LARGE)
    file.close()
    os.truncate(passed_on.file, len(LARGE) - 1)
    with pytest.raises(OSError, match=rf"expected {len(LARGE)} bytes at 0, found {len(LARGE) - 1}"):
        chunk_of(passed_on)
    Path(passed_on.file).unlink()
    with pytest.raises(FileNotFoundError):
        chunk_of(passed_on)


def test_files_of_batches_that_are_over_are_removed(tmp_path: Path) -> None:
    files = [ChunkFile(str(tmp_path), batch) for batch in (1, 2, 2, 3, 10)]
    for each in files:
        each.put(LARGE)
        each.close()
    remove_files_before(str(tmp_path), 3)
    assert sorted(path.name.partition("-")[0] for path in tmp_path.iterdir()) == ["10", "3"]
    remove_files_before(str(tmp_path), 11)
    assert list(tmp_path.iterdir()) == []
    remove_files_before(str(tmp_path / "gone"), 11)


def test_what_somebody_else_put_there_stays(tmp_path: Path) -> None:
    for name in (".nfs0001", "mine", "0-folder"):
        (tmp_path / name).mkdir()
    file = ChunkFile(str(tmp_path), 1)
    file.put(LARGE)
    file.close()
    remove_files_before(str(tmp_path), 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".nfs0001", "0-folder", "mine"]


def test_folder_whose_name_is_not_text_is_not_used(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"\xff")
    try:
        odd.mkdir()
    except OSError:
        pytest.skip("this file system takes text only")
    assert chunk_folder(odd, "a") == ""


def test_each_start_has_its_own_folder_and_removes_earlier_ones(tmp_path: Path) -> None:
    first = chunk_folder(tmp_path, "a")
    file = ChunkFile(first, 1)
    file.put(LARGE)
    second = Path(chunk_folder(tmp_path, "b"))
    assert second.stat().st_mode & 0o777 == 0o700
    assert list(second.parent.iterdir()) == [second]
    assert file.put(LARGE).file, "a worker of the start before writes on, into nothing"
    file.close()
