# SPDX-License-Identifier: Apache-2.0
"""A changed bit in the log by which Spark continues is noticed before a job does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from validator.checkpoint.files import keep_sums, refuse_backwards, refuse_damaged
from validator.errors import UserError

HADOOP = [
    (b'v1\n{"nextBatchWatermarkMs":0}', "63726300 00000200 f32abfdd"),
    (bytes(range(256)) * 3, "63726300 00000200 1c613576 29058c73"),
]
"""Files, and what Hadoop 3.4 wrote next to them (`FsShell -copyFromLocal`)."""


def log(batch: int) -> str:
    options = json.dumps({"conf": {f"spark.option.{number}": "false" for number in range(20)}})
    offsets = {"t.blocks": {"0": 100 + batch, "1": 7}, "t.candidates": {"0": 1000 * batch}}
    return f"v1\n{options}\n{json.dumps(offsets)}"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    for batch in (8, 9, 10, 11):
        (tmp_path / "offsets" / str(batch)).write_text(log(batch))
    for batch in (8, 9, 10):
        (tmp_path / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return tmp_path


def refused(checkpoint: Path) -> str | None:
    try:
        refuse_damaged(checkpoint)
    except UserError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", ["offsets/10", "commits/10"])
def test_every_flipped_bit_is_noticed(checkpoint: Path, name: str) -> None:
    keep_sums(checkpoint)
    assert refused(checkpoint) is None
    path = checkpoint / name
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        found = refused(checkpoint)
        assert found is not None, f"bit {bit}"
        assert found.startswith(f"{path} does not have the sum that .10.crc next to it says: ")
        assert "docs/upgrade.md" in found


def test_only_complete_batches_have_sums_and_only_the_last_ones_are_needed(checkpoint: Path) -> None:
    keep_sums(checkpoint)
    sums = sorted(path.name for path in (checkpoint / "offsets").glob(".*"))
    assert sums == [".10.crc", ".8.crc", ".9.crc"]
    (checkpoint / "offsets" / "9").write_text(log(7))
    assert refused(checkpoint) is None, "Spark continues from batches 10 and 11"


@pytest.mark.parametrize(("data", "sums"), HADOOP)
def test_sums_are_those_that_hadoop_writes(tmp_path: Path, data: bytes, sums: str) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "commits").mkdir()
    (tmp_path / "offsets" / "3").write_bytes(data)
    (tmp_path / "commits" / "3").write_text("v1\n{}")
    keep_sums(tmp_path)
    assert (tmp_path / "offsets" / ".3.crc").read_bytes() == bytes.fromhex(sums)
    refuse_damaged(tmp_path)


def test_sums_of_spark_are_compared_and_left_alone(checkpoint: Path) -> None:
    theirs = checkpoint / "offsets" / ".11.crc"
    theirs.write_bytes(b"crc\0\0\0\2\0" + b"\1\2\3\4" * 2)
    found = refused(checkpoint)
    assert found is not None
    assert "offsets/11 does not have" in found
    keep_sums(checkpoint)
    assert theirs.read_bytes().endswith(b"\1\2\3\4")


@pytest.mark.parametrize("left", [b"", b"crc\0\0\0\2\0"])
def test_sums_that_a_crash_has_left_empty_are_none(checkpoint: Path, left: bytes) -> None:
    (checkpoint / "offsets" / ".10.crc").write_bytes(left)
    assert refused(checkpoint) is None


def test_a_batch_that_ends_before_the_one_before_it_is_refused(checkpoint: Path) -> None:
    refuse_backwards(checkpoint)
    (checkpoint / "offsets" / "11").write_text(log(6))
    with pytest.raises(
        UserError, match=r"offsets/11: batch 10 ends at offset 110 of t\.blocks\[0\], and batch 11 says 106: "
    ):
        refuse_backwards(checkpoint)
    (checkpoint / "offsets" / "11").write_text('v1\n{}\n{"t.blocks":{"0":110}}')
    with pytest.raises(UserError, match=r"of t\.blocks\[1\], and batch 11 has no such partition"):
        refuse_backwards(checkpoint)


def test_without_a_batch_nothing_is_refused(tmp_path: Path) -> None:
    refuse_damaged(tmp_path / "none")
    refuse_backwards(tmp_path / "none")
    keep_sums(tmp_path / "none")
    assert not (tmp_path / "none").exists()
