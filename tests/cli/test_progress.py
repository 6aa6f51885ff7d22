# SPDX-License-Identifier: Apache-2.0
"""What takes a while is shown with its seconds on a terminal, and leaves nothing in a pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.cli.progress import working

if TYPE_CHECKING:
    import pytest


def test_terminal_shows_what_is_done_with_its_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")
    with working("counting sheep"):
        pass
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "counting sheep" in printed.err
    assert "0:00:00" in printed.err


def test_pipe_gets_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with working("counting sheep"):
        pass
    assert capsys.readouterr() == ("", "")
