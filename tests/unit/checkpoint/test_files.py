# SPDX-License-Identifier: Apache-2.0
"""The files of a checkpoint, read from outside Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from validator.checkpoint.files import (
    consumed_by_batch,
    follow_move,
    has_unfinished_batch,
    last_begun_batch,
    last_committed_batch,
    refuse_foreign,
    state_options,
)
from validator.errors import UserError

SOURCE = '{"t.blocks":{"0":12,"1":0},"t.candidates":{"0":40}}'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    for folder in ("commits", "offsets", "state/0/0"):
        (tmp_path / "checkpoint" / folder).mkdir(parents=True)
    made = tmp_path / "checkpoint"
    for batch in (8, 9, 10):
        (made / "commits" / str(batch)).write_text("v1\n{}")
        (made / "commits" / f".{batch}.crc").write_text("")
        (made / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{SOURCE}")
    (made / "offsets" / "11").write_text(f"v1\n{{}}\n{SOURCE}")
    (made / "state" / "0" / "0" / "11.changelog").write_text("changes")
    (made / "state" / "0" / "0" / ".12.changelog.1f2e.tmp").write_text("half of th")
    return made


def test_last_batch_has_greatest_number(checkpoint: Path) -> None:
    assert last_committed_batch(checkpoint) == 10


FOREIGN = ("._0", ".DS_Store", ".nfs000000000001f2c300000012", ".0.swp", "0~", "#0#", ".0.5d1c.tmp", "0.orig")
"""Files that a file system, another machine or an editor leaves; none of them is text of ours."""

FOREIGN_FOLDERS = ("lost+found", ".snapshot", ".Trash-0", "00000")


def litter(folder: Path, name: str) -> None:
    """Put into a folder what others may leave there, next to Spark's file of a name with the checksum that a cluster's driver writes."""
    (folder / f".{name}.crc").write_bytes(b"crc\0\0\0\x02\0\x9f\xfe\x80\xff")
    for foreign in FOREIGN:
        (folder / foreign).write_bytes(b"\xff\xfe\x00\x80")
    for foreign in FOREIGN_FOLDERS:
        (folder / foreign).mkdir()


def test_names_of_others_are_ignored(checkpoint: Path) -> None:
    operator = checkpoint / "state" / "0"
    metadata = operator / "_metadata" / "v2" / "0"
    metadata.parent.mkdir(parents=True)
    metadata.write_text('v2\n{"stateStoreInfo":[]}')
    litter(metadata.parent, "0")
    for folder in ("", "commits", "offsets", "state", "state/0", "state/0/0"):
        litter(checkpoint / folder, "10")
    assert not follow_move(checkpoint)
    assert metadata.read_text() == 'v2\n{"stateStoreInfo":[]}'
    assert (metadata.parent / ".0.crc").exists(), "the sum of a file that stays as it is"
    assert last_committed_batch(checkpoint) == 10
    assert last_begun_batch(checkpoint) == 11
    assert has_unfinished_batch(checkpoint)
    assert consumed_by_batch(checkpoint, 10)[("t.blocks", 0)] == 12


@pytest.mark.parametrize("name", ["._11.changelog", "._5.zip", "5 (copy).zip", "05.zip"])
def test_file_that_spark_would_take_for_its_own_is_named(checkpoint: Path, name: str) -> None:
    partition = checkpoint / "state" / "0" / "0"
    litter(partition, "11")
    (partition / "11.zip").write_bytes(b"")
    refuse_foreign(checkpoint)
    (partition / name).write_bytes(b"\x00\x05\x16\x07")
    with pytest.raises(UserError) as refused:
        refuse_foreign(checkpoint)
    assert str(refused.value).startswith(f"{partition / name}: expected only files that Spark has written")
    refuse_foreign(checkpoint / "none")


@pytest.mark.parametrize(
    "content", [b"", b"v2", b"v2\n", b"v2\n{half", b"v2\n[]", b"v2\n{\xff\xfe", b'v2\n{"stateStoreInfo":7}']
)
def test_damaged_metadata_is_named_in_one_line(checkpoint: Path, content: bytes) -> None:
    metadata = checkpoint / "state" / "0" / "_metadata" / "v2" / "0"
    metadata.parent.mkdir(parents=True)
    metadata.write_bytes(content)
    with pytest.raises(
        UserError, match="_metadata/v2/0: expected the metadata of a state as Spark writes it"
    ) as refused:
        follow_move(checkpoint)
    assert "\n" not in str(refused.value)


def test_moved_checkpoint_names_its_own_files(checkpoint: Path) -> None:
    operator = checkpoint / "state" / "0"
    schema, metadata = operator / "_stateSchema" / "default" / "0_7f", operator / "_metadata" / "v2" / "0"
    for path in (schema, metadata):
        path.parent.mkdir(parents=True)
    schema.write_text("schema")
    there = "file:/moved/from/checkpoint/state/0/_stateSchema/default"
    stores = [
        {
            "storeName": "default",
            "stateSchemaFilePaths": [f"{there}/0_7f", f"{there}/gone", "hdfs:/x/_stateSchema/default/0_7f"],
        }
    ]
    body = {"operatorInfo": {"operatorId": 0}, "stateStoreInfo": stores, "operatorPropertiesJson": '{"a":"b"}'}
    metadata.write_text(f"v2\n{json.dumps(body)}")
    metadata.with_name(".0.crc").write_text("sum of the earlier bytes")
    assert follow_move(checkpoint)
    version, _, written = metadata.read_text().partition("\n")
    stores[0]["stateSchemaFilePaths"][0] = f"file:{schema}"  # type: ignore[index]
    assert (version, json.loads(written)) == ("v2", body)
    assert sorted(path.name for path in metadata.parent.iterdir()) == ["0"]
    assert not follow_move(checkpoint)
    assert not follow_move(checkpoint / "none")


def test_checkpoint_without_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no checkpoint"):
        last_committed_batch(tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / "commits").mkdir(parents=True)
    (tmp_path / "checkpoint" / "commits" / ".0.crc").write_text("")
    with pytest.raises(UserError, match="not finished a batch"):
        last_committed_batch(tmp_path / "checkpoint")


def test_consumed_offsets_of_batch_are_read(checkpoint: Path) -> None:
    assert consumed_by_batch(checkpoint, 9) == {("t.blocks", 0): 12, ("t.blocks", 1): 0, ("t.candidates", 0): 40}


@pytest.mark.parametrize(
    "text", ["", "v1\n{}", f"v\n{{}}\n{SOURCE}", "v1\n{}\n[]", 'v1\n{}\n{"t":{"0":"x"}}', "v1\n{}\n{"]
)
def test_malformed_offsets_are_refused_in_one_line(checkpoint: Path, text: str) -> None:
    (checkpoint / "offsets" / "10").write_text(text)
    with pytest.raises(UserError, match="expected the offsets of a batch") as refused:
        consumed_by_batch(checkpoint, 10)
    assert "\n" not in str(refused.value)


def test_offsets_of_a_newer_version_are_not_called_damaged(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "10").write_text(f"v2\n{{}}\n{SOURCE}\nmore")
    with pytest.raises(
        UserError, match=r"offsets/10: expected version v1, found v2: a newer version of validator has written it: "
    ):
        consumed_by_batch(checkpoint, 10)


def test_missing_offsets_are_refused(checkpoint: Path) -> None:
    with pytest.raises(UserError, match=r"offsets/3: No such file"):
        consumed_by_batch(checkpoint, 3)


def test_options_of_the_state_are_read(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "10").write_text(f'v1\n{{"conf":{{"encoding":"rows"}}}}\n{SOURCE}')
    assert state_options(checkpoint, 10) == {"encoding": "rows"}
    with pytest.raises(UserError, match="expected the offsets of a batch"):
        state_options(checkpoint, 9)
