# SPDX-License-Identifier: Apache-2.0
"""The embedded broker's secret is kept, unless others could know it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from validator.errors import UserError
from validator.kafka.broker import kept_secret, read_secret


def test_secret_is_made_once(tmp_path: Path) -> None:
    secret = kept_secret(tmp_path)
    assert re.fullmatch("[0-9a-f]{64}", secret)
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert [kept_secret(tmp_path), read_secret(tmp_path)] == [secret, secret]


@pytest.mark.parametrize("damage", [b"", b"\n", b"abc\n", b"\xff" * 64, b"0" * 63, b"0" * 65, b"G" * 64])
def test_damaged_secret_is_replaced_at_a_start_and_refused_by_clients(tmp_path: Path, damage: bytes) -> None:
    before = kept_secret(tmp_path)
    (tmp_path / "secret").write_bytes(damage)
    with pytest.raises(UserError, match=r"secret is damaged: stop the broker .* and start it again"):
        read_secret(tmp_path)
    after = kept_secret(tmp_path)
    assert after != before
    assert read_secret(tmp_path) == after


def test_secret_that_others_can_read_is_replaced(tmp_path: Path) -> None:
    before = kept_secret(tmp_path)
    (tmp_path / "secret").chmod(0o644)
    assert kept_secret(tmp_path) != before
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_link_to_a_secret_is_replaced(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("0" * 64 + "\n")
    elsewhere.chmod(0o600)
    (tmp_path / "secret").symlink_to(elsewhere)
    assert kept_secret(tmp_path) != "0" * 64
    assert not (tmp_path / "secret").is_symlink()
    assert elsewhere.read_text() == "0" * 64 + "\n"


def test_missing_secret_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"secret cannot be read \(No such file or directory\)"):
        read_secret(tmp_path)
