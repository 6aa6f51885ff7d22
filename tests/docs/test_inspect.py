# SPDX-License-Identifier: Apache-2.0
"""docs/inspect.md works: its commands are run, and their output is compared with the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.docs.pages import AS_ON_A_TERMINAL, DOCS, blocks, run

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "inspect.md"


def test_page_works(tmp_path: Path) -> None:
    found = blocks((DOCS / PAGE).read_text(encoding="utf-8"))
    assert len(found) > 0
    run([block for block in found if block.language == "console"], tmp_path, AS_ON_A_TERMINAL).check()
