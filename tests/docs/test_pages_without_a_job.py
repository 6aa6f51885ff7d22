# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/rules-by-height.md and docs/trace-format.md work: files are written, commands run, their output compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import AS_ON_A_TERMINAL, DOCS, blocks, run

if TYPE_CHECKING:
    from pathlib import Path

PAGES = {"rules-by-height.md": "The [conformance suite]", "trace-format.md": "A file holds one scenario"}
"""Pages, each with the words that follow its last command."""


@pytest.mark.parametrize("name", PAGES)
def test_page_works(name: str, tmp_path: Path) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    example, _, rest = text.partition(PAGES[name])
    assert "```console" in example
    assert "```console" not in rest
    run(blocks(example), tmp_path, AS_ON_A_TERMINAL).check()
