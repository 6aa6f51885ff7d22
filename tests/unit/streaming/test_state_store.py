# SPDX-License-Identifier: Apache-2.0
"""The files of Spark's state store: stores written here in Spark's format, whole and damaged."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from zipfile import ZipFile

import pyarrow as pa
import pytest
from rocksdict import Options, Rdict

from streaming import state_reader
from streaming.state_reader import (
    StoreUnreadable,
    binary_of,
    lane_and_slot,
    lane_of_key,
    list_of,
    open_store,
    read_changes,
)

HEAD, SLOTS = 2, 3
VARIABLES = {"default": 1, "head": HEAD, "slots": SLOTS}
PUT, DELETE, MERGE = 0x01, 0x10, 0x11


def row(data: bytes) -> bytes:
    return bytes(8) + struct.pack("<II", len(data), 16) + data + bytes(-len(data) % 8)


def value(data: bytes) -> bytes:
    return b"\0" + row(data)


def head_key(lane: str) -> bytes:
    return struct.pack("<H", HEAD) + value(lane.encode())


def slot_key(lane: str, slot: int) -> bytes:
    prefix = value(row(lane.encode()))
    return struct.pack("<HI", SLOTS, len(prefix)) + prefix + value(bytes(8) + struct.pack("<q", slot))


def entries(*data: bytes, joint: bytes = b"") -> bytes:
    return joint.join(struct.pack("<i", len(value(each))) + value(each) for each in data)


def blocks(data: bytes, *, packed: bool = True) -> bytes:
    codec = pa.Codec("lz4_raw")
    body = codec.compress(data, asbytes=True) if packed else data
    method = 0x25 if packed else 0x15
    return (
        struct.pack("<8sBiiI", b"LZ4Block", method, len(body), len(data), 0)
        + body
        + struct.pack("<8sBiiI", b"LZ4Block", 0x15, 0, 0, 0)
    )


def changelog(*changes: tuple[int, bytes, bytes | None], version: bytes = b"\x00\x02v2") -> bytes:
    data = version
    for kind, key, new in changes:
        data += bytes([kind]) + struct.pack(">i", len(key)) + key
        data += struct.pack(">i", -1) if new is None else struct.pack(">i", len(new)) + new
    return data + b"\0"


def snapshot(partition: Path, version: int, stored: dict[bytes, bytes]) -> None:
    """Write a snapshot as Spark does: its tables under other names in a folder, the other files in an archive."""
    folder = partition / "open"
    database = Rdict(str(folder), Options(raw_mode=True))
    for key, data in stored.items():
        database[key] = data
    database.flush()
    database.close()
    (partition / state_reader.TABLES).mkdir(exist_ok=True)
    tables = []
    with ZipFile(partition / f"{version}.zip", "w") as archive:
        for path in sorted(folder.iterdir()):
            if path.suffix == ".sst":
                kept = f"{path.stem}-{version}.sst"
                tables.append({"localFileName": path.name, "dfsSstFileName": kept, "sizeBytes": path.stat().st_size})
                path.rename(partition / state_reader.TABLES / kept)
            elif path.name.startswith(("MANIFEST", "CURRENT", "OPTIONS")):
                archive.write(path, path.name)
        listed = {"sstFiles": tables, "columnFamilyMapping": VARIABLES}
        archive.writestr("metadata", f"v1\n{json.dumps(listed)}")
    shutil.rmtree(folder)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    made = tmp_path / "0"
    made.mkdir()
    snapshot(made, 1, {})
    snapshot(
        made,
        3,
        {
            head_key("a"): value(b"old head of a"),
            head_key("b"): value(b"head of b"),
            head_key("gone"): value(b"head"),
            slot_key("a", 7): value(b"pages"),
        },
    )
    (made / "4.changelog").write_bytes(
        blocks(changelog((PUT, head_key("a"), value(b"head of a")), (DELETE, head_key("gone"), None)))
    )
    (made / "5.changelog").write_bytes(
        blocks(
            changelog((PUT, slot_key("c", 1024), value(b"new")), (PUT, head_key("c"), value(b"head of c"))),
            packed=False,
        )
    )
    return made


def heads(partition: Path, version: int) -> dict[str, bytes]:
    with open_store(partition, version, partition.parent / "open") as store:
        return {lane_of_key(key): binary_of(data) for key, data in store.entries("head")}


@pytest.mark.parametrize("with_links", [True, False])
def test_version_is_snapshot_with_changes_since(
    partition: Path, monkeypatch: pytest.MonkeyPatch, with_links: bool
) -> None:
    if not with_links:
        monkeypatch.setattr("os.link", _refuse)
    assert heads(partition, 3) == {"a": b"old head of a", "b": b"head of b", "gone": b"head"}
    assert heads(partition, 4) == {"a": b"head of a", "b": b"head of b"}
    assert heads(partition, 5) == {"a": b"head of a", "b": b"head of b", "c": b"head of c"}
    with open_store(partition, 5, partition.parent / "open") as store:
        slots = {lane_and_slot(key): binary_of(data) for key, data in store.entries("slots")}
    assert slots == {("a", 7): b"pages", ("c", 1024): b"new"}
    assert not (partition.parent / "open").exists()


def _refuse(*_: object) -> None:
    raise OSError(18, "Invalid cross-device link")


def test_list_is_read_with_and_without_joints() -> None:
    data = [b"first", b"", bytes(1000)]
    assert list(list_of(entries(*data))) == data
    assert list(list_of(entries(*data, joint=b","))) == data
    with pytest.raises(StoreUnreadable, match="a list of"):
        list(list_of(entries(*data)[:-1]))
    with pytest.raises(StoreUnreadable, match="a list of"):
        list(list_of(entries(*data) + b"\x01"))


def test_merge_appends_to_what_is_stored(partition: Path) -> None:
    key = head_key("list")
    (partition / "6.changelog").write_bytes(
        blocks(changelog((MERGE, key, entries(b"one")), (MERGE, key, entries(b"two"))))
    )
    (partition / "7.changelog").write_bytes(blocks(changelog((DELETE, key, None), (MERGE, key, entries(b"three")))))

    def stored(version: int) -> list[bytes]:
        with open_store(partition, version, partition.parent / "open") as store:
            return list(list_of(dict(store.entries("head"))[key]))

    assert stored(6) == [b"one", b"two"]
    assert stored(7) == [b"three"]


def test_missing_files_are_errors(partition: Path) -> None:
    with pytest.raises(FileNotFoundError):
        heads(partition, 6)
    next((partition / state_reader.TABLES).iterdir()).unlink()
    with pytest.raises(FileNotFoundError):
        heads(partition, 5)
    with pytest.raises(StoreUnreadable, match="no snapshot up to version 0"):
        heads(partition, 0)


def test_damaged_snapshot_is_refused_in_one_line(partition: Path) -> None:
    table = next((partition / state_reader.TABLES).iterdir())
    table.write_bytes(bytes(table.stat().st_size))
    with pytest.raises(StoreUnreadable) as refused:
        heads(partition, 3)
    assert "\n" not in str(refused.value)
    (partition / "3.zip").write_bytes(b"not an archive")
    with pytest.raises(StoreUnreadable, match=r"3\.zip is not a snapshot"):
        heads(partition, 3)


@pytest.mark.parametrize(("where", "byte"), [(8, 99), (6, 0x20), (6, 1)], ids=["method", "patched", "encrypted"])
def test_damaged_directory_of_a_snapshot_is_refused(partition: Path, where: int, byte: int) -> None:
    """Damage one byte of each entry, in the directory at the end and at the entry itself."""
    path = partition / "3.zip"
    data = bytearray(path.read_bytes())
    for signature, shift in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
        at = data.find(signature)
        while at >= 0:
            data[at + where + shift] = byte
            at = data.find(signature, at + 1)
    path.write_bytes(data)
    with pytest.raises(StoreUnreadable, match=r"3\.zip is not a snapshot"):
        heads(partition, 3)


@pytest.mark.parametrize("number", ["x", -1, 1 << 16, None, 2.5])
def test_snapshot_without_a_variable_s_number_is_refused(
    partition: Path, monkeypatch: pytest.MonkeyPatch, number: object
) -> None:
    monkeypatch.setitem(VARIABLES, "head", number)  # type: ignore[arg-type]
    snapshot(partition, 9, {head_key("a"): value(b"head")})
    with pytest.raises(StoreUnreadable, match=r"9\.zip .* expected the numbers of state variables"):
        heads(partition, 9)


def test_damaged_name_of_a_lane_is_refused() -> None:
    key = head_key("laned").replace(b"laned", b"lane\xc5")
    with pytest.raises(StoreUnreadable, match="UTF-8, found byte 0xc5"):
        lane_of_key(key)
    with pytest.raises(StoreUnreadable, match="UTF-8, found byte 0xc5"):
        lane_and_slot(slot_key("laned", 3).replace(b"laned", b"lane\xc5"))


def test_truncated_changelog_is_refused_at_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "4.changelog"
    whole = changelog((PUT, head_key("a"), value(b"head")), (DELETE, head_key("b"), None))
    path.write_bytes(blocks(whole))
    assert [change.kind for change in read_changes(path)] == [PUT, DELETE]
    for end in range(len(whole)):
        path.write_bytes(blocks(whole[:end]))
        with pytest.raises(StoreUnreadable):
            list(read_changes(path))
    for end in range(len(blocks(whole))):
        path.write_bytes(blocks(whole)[:end])
        with pytest.raises(StoreUnreadable):
            list(read_changes(path))


def test_other_format_is_refused(tmp_path: Path, partition: Path) -> None:
    path = tmp_path / "4.changelog"
    path.write_bytes(blocks(changelog(version=b"\x00\x02v9")))
    with pytest.raises(StoreUnreadable, match="not a changelog of version v2"):
        list(read_changes(path))
    path.write_bytes(blocks(changelog((0x55, b"key", b""))))
    with pytest.raises(StoreUnreadable, match="damaged"):
        list(read_changes(path))
    with (
        pytest.raises(StoreUnreadable, match="expected a state variable 'journal', found default, head, slots"),
        open_store(partition, 3, partition.parent / "open") as store,
    ):
        list(store.entries("journal"))
    with pytest.raises(StoreUnreadable, match="expected a row of version 0"):
        binary_of(b"\1" + row(b"data"))
    with pytest.raises(StoreUnreadable, match="names bytes"):
        binary_of(value(b"some long data")[:-8])
