# SPDX-License-Identifier: Apache-2.0
"""docs/client.md works: its programs are run, and their output is compared with the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.docs.pages import AS_ON_A_TERMINAL, DOCS, blocks, run

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "client.md"


def test_page_works(tmp_path: Path) -> None:
    found = blocks((DOCS / PAGE).read_text(encoding="utf-8"))
    assert [block.file for block in found if block.language == "python"] == [
        "send.py",
        "continue.py",
        "ask.py",
        "resume.py",
        "watch.py",
        "test_alarm.py",
    ]
    run(found, tmp_path, AS_ON_A_TERMINAL).check()
