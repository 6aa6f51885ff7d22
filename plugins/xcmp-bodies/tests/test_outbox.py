# SPDX-License-Identifier: Apache-2.0
"""An outbox knows the bodies of its files, says why other files are none, and holds no payloads in memory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from validator_xcmp_bodies import folders
from validator_xcmp_bodies.folders import FolderError, Outbox
from validator_xcmp_bodies.parts import measure
from validator_xcmp_bodies.sender import Content

ONE, TWO = [b"one", b"two"], [b"", b"\xff" * 70]


def content(payloads: list[bytes]) -> Content:
    found = measure(payloads)
    return found.root, found.size


def put(folder: Path, name: str, payloads: list[bytes], prefix: str = "") -> None:
    """Add a file by renaming it, as its owner should."""
    (folder / ".new").write_text(json.dumps([prefix + each.hex() for each in payloads]))
    (folder / ".new").replace(folder / name)


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    made = Outbox(tmp_path, 10)
    yield made
    made.close()


def test_files_come_change_and_go(outbox: Outbox, tmp_path: Path) -> None:
    outbox.look()
    assert dict(outbox) == {}
    put(tmp_path, "a.json", ONE)
    put(tmp_path, "b.json", TWO, prefix="0x")
    (tmp_path / "note.txt").write_text("not a body")
    outbox.look()
    assert dict(outbox) == {content(ONE): ONE, content(TWO): TWO}
    assert (outbox.name_of(content(ONE)), outbox.name_of((bytes(32), 0))) == ("a.json", None)
    put(tmp_path, "a.json", [b"changed"])
    (tmp_path / "b.json").unlink()
    assert outbox.get(content(ONE)) is None, "the file has another body now"
    assert outbox.get(content(TWO)) is None
    outbox.look()
    assert dict(outbox) == {content([b"changed"]): [b"changed"]}


def test_a_body_in_two_files_is_one(outbox: Outbox, tmp_path: Path) -> None:
    put(tmp_path, "b.json", ONE)
    put(tmp_path, "a.json", ONE)
    outbox.look()
    assert (len(outbox), outbox.name_of(content(ONE))) == (1, "a.json")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"{}", "expected a list of payloads in hex, found {} (not a list)"),
        (b"[1]", "expected a list of payloads in hex, found [1] ("),
        (b'["0g"]', 'expected a list of payloads in hex, found ["0g"] ('),
        (b"\xff", "expected UTF-8, found another encoding"),
        (b"[" * 100_000, "expected a list of payloads in hex, found [[["),
        (b"9" * 10_000, "expected a list of payloads in hex, found 999"),
        (b'["' + b"0" * 5_000 + b'"]', "expected at most 4096 bytes, found more"),
        (b"[" + b'"",' * 1_300 + b'""]', "payloads: expected at most 1000, found 1301"),
    ],
)
def test_another_file_says_why_it_is_no_body(
    text: bytes, why: str, outbox: Outbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "OUTBOX_FILE_BYTES_MAX", 4_096 if len(text) < 6_000 else 200_000)
    monkeypatch.setattr("validator_xcmp_bodies.parts.PAYLOADS_MAX", 1_000)
    (tmp_path / "x.json").write_bytes(text)
    put(tmp_path, "y.json", ONE)
    outbox.look()
    assert list(outbox) == [content(ONE)]
    assert outbox.refusals["x.json"].startswith(why)


def test_a_file_is_read_once_until_it_changes(outbox: Outbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "a.json", ONE)
    outbox.look()
    with monkeypatch.context() as patch:
        patch.setattr(folders, "parse_body", None)
        outbox.look()
    assert list(outbox) == [content(ONE)]


def test_no_more_files_count_than_allowed(outbox: Outbox, tmp_path: Path) -> None:
    for number in range(12):
        put(tmp_path, f"{number:02}.json", [bytes([number])])
    outbox.look()
    assert len(outbox) == 10
    assert outbox.name_of(content([b"\x0b"])) is None


def test_state_is_written_when_it_changes_and_is_no_body(outbox: Outbox, tmp_path: Path) -> None:
    outbox.show({"messages": []})
    stamp = (tmp_path / "state.json").stat().st_ino
    outbox.show({"messages": []})
    assert (tmp_path / "state.json").stat().st_ino == stamp
    outbox.show({"messages": [1]})
    assert json.loads((tmp_path / "state.json").read_text()) == {"messages": [1]}
    outbox.look()
    assert (dict(outbox), outbox.refusals) == ({}, {})


def test_only_regular_files_are_opened(
    outbox: Outbox, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    secret = tmp_path_factory.mktemp("elsewhere") / "secret"
    secret.write_text("root:hash")
    (tmp_path / "link.json").symlink_to(secret)
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    outbox.look()
    expected = "expected a regular file, found a link, a pipe or a folder"
    assert outbox.refusals == dict.fromkeys(("folder.json", "link.json", "pipe.json"), expected)


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_body_that_becomes_another_kind_of_file_is_missing(outbox: Outbox, tmp_path: Path, kind: str) -> None:
    put(tmp_path, "a.json", ONE)
    outbox.look()
    (tmp_path / "a.json").replace(tmp_path / "elsewhere")
    if kind == "link":
        (tmp_path / "a.json").symlink_to("elsewhere")
    else:
        os.mkfifo(tmp_path / "a.json")
    assert outbox.get(content(ONE)) is None


def test_links_that_wait_in_a_folder_are_not_written_through(
    outbox: Outbox, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    kept = elsewhere / "kept"
    kept.write_text("kept")
    (tmp_path / ".state.json.new").symlink_to(kept)
    outbox.show({"messages": []})
    assert kept.read_text() == "kept"
    assert json.loads((tmp_path / "state.json").read_text()) == {"messages": []}
    (elsewhere / ".lock").symlink_to(elsewhere / "made")
    with pytest.raises(FolderError, match="cannot be used"):
        Outbox(elsewhere, 10)
    assert not (elsewhere / "made").exists()
