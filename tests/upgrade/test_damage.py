# SPDX-License-Identifier: Apache-2.0
"""A bit that a disk changes in Spark's state ends the job in one line with a remedy, and what the storage leaves there does not matter."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.checkpoint.test_files import litter
from tests.upgrade.record import HERE, START_S_MAX, UP_LOG, consumed, has_consumed, submit, up, wait_until
from validator import exit_codes

RECORDED = HERE / "v0.1.0.tar.xz"
CHECKPOINT = Path(".validator", "job", "checkpoint")
PARTITION = CHECKPOINT / "state" / "0" / "0"

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.broker]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tarfile.open(RECORDED) as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("how", [flip_a_bit, Path.unlink], ids=["a flipped bit", "a file that is gone"])
def test_damaged_tables_end_the_job_with_a_remedy(folder: Path, how: Callable[[Path], None]) -> None:
    for table in (folder / PARTITION / "SSTs").iterdir():
        how(table)
    with up(folder) as process:
        submit(folder, folder / "later")
        assert process.wait(START_S_MAX) == exit_codes.USER_ERROR
    last = (folder / UP_LOG).read_text(encoding="utf-8").rstrip().splitlines()[-1]
    assert last.startswith("validator: Spark cannot read ")
    assert last.endswith("or remove it and start with --rebuild (docs/upgrade.md)")
    assert "Traceback" not in (folder / UP_LOG).read_text(encoding="utf-8")


def test_what_a_storage_leaves_in_the_checkpoint_does_not_matter(folder: Path) -> None:
    checkpoint = folder / CHECKPOINT
    with_files = [each for each in [checkpoint, *checkpoint.rglob("*")] if each.is_dir()]
    assert len(with_files) > 10
    for each in with_files:
        litter(each, "4711")
    with up(folder):
        before = consumed(folder)
        added = submit(folder, folder / "later")
        wait_until(lambda: has_consumed(folder, before + added))
    with up(folder):
        assert has_consumed(folder, before + added)
