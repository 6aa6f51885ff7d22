# SPDX-License-Identifier: Apache-2.0
"""An inbox gets each message once, wherever its process is killed and whenever files are taken away."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from validator_xcmp_bodies import folders
from validator_xcmp_bodies.folders import FolderError, Inbox
from validator_xcmp_bodies.follow import MessageName

MESSAGES: list[MessageName] = [(5, 1), (5, 3), (6, 1), (6, 2), (10**9, 4)]


class Killed(Exception):
    """The process is gone before its next call of the system."""


def open_inbox(folder: Path, files_max: int = 100) -> Inbox:
    return Inbox(folder, "polkadot", 2, files_max)


def deliver(folder: Path) -> None:
    """Deliver what has not been delivered, as a process does that begins again."""
    inbox = open_inbox(folder)
    try:
        for position in MESSAGES:
            if position > inbox.position:
                inbox.put(position, {"position": position})
    finally:
        inbox.close()


def take(folder: Path) -> list[MessageName]:
    """Take all files away, as a recipient does."""
    names = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
    found = [tuple(json.loads(each.read_text())["position"]) for each in names]
    for each in names:
        each.unlink()
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("seed", range(20))
def test_each_message_is_taken_once_wherever_the_process_is_killed(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    calls_left, kills = 0, 0

    def counted(name: str) -> None:
        real = getattr(folders, name)

        def call(*given: object) -> None:
            nonlocal calls_left, kills
            before = random.random() < 0.5
            calls_left -= 1
            if calls_left == 0 and before:
                kills += 1
                raise Killed
            real(*given)
            if calls_left == 0:
                kills += 1
                raise Killed

        monkeypatch.setattr(folders, name, call)

    counted("_write")
    counted("_rename")
    taken: list[MessageName] = []
    for _ in range(200):
        calls_left = random.randrange(1, 12)
        try:
            deliver(tmp_path)
            break
        except Killed:
            pass
        if random.random() < 0.7:
            taken += take(tmp_path)
    taken += take(tmp_path)
    assert taken == MESSAGES
    assert kills > 0


def test_a_half_written_file_is_never_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def torn(path: Path, content: bytes) -> None:
        path.write_bytes(content[: len(content) // 2])
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(folders, "_write", torn)
        with pytest.raises(Killed):
            deliver(tmp_path)
    assert take(tmp_path) == []
    deliver(tmp_path)
    assert take(tmp_path) == MESSAGES


def test_names_sort_as_messages_do(tmp_path: Path) -> None:
    deliver(tmp_path)
    names = [each.name for each in sorted(tmp_path.iterdir()) if not each.name.startswith(".")]
    assert names[0] == "0000000005-0000000001.json"
    assert take(tmp_path) == MESSAGES


def test_full_inbox_says_so_until_files_are_taken_away(tmp_path: Path) -> None:
    inbox = open_inbox(tmp_path, files_max=2)
    inbox.put((1, 1), {"position": (1, 1)})
    assert not inbox.is_full
    inbox.put((1, 2), {"position": (1, 2)})
    assert inbox.is_full
    take(tmp_path)
    assert not inbox.is_full
    inbox.close()


def test_a_folder_is_of_one_process_and_one_para(tmp_path: Path) -> None:
    first = open_inbox(tmp_path)
    first.put((1, 1), {})
    with pytest.raises(FolderError, match="another process has it"):
        open_inbox(tmp_path)
    first.close()
    with pytest.raises(FolderError, match=r"expected an inbox of .*'para': 3.*, found one of .*'para': 2"):
        Inbox(tmp_path, "polkadot", 3, 10)
    open_inbox(tmp_path).close()


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\xff", b'{"lane": "polkadot", "para": 2, "position": 5}'])
def test_a_damaged_position_is_one_line(damage: bytes, tmp_path: Path) -> None:
    (tmp_path / ".position").write_bytes(damage)
    with pytest.raises(FolderError, match=r"\.position: expected a position, found damage") as caught:
        open_inbox(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FolderError, match="cannot be used: "):
        open_inbox(tmp_path / "file" / "inbox")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
