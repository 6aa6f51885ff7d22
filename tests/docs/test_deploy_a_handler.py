# SPDX-License-Identifier: Apache-2.0
"""docs/deploy-a-handler.md works: the test deploys a handler to a running job, and no verdict is lost, repeated or different."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import AS_ON_A_TERMINAL, DOCS, blocks, run

if TYPE_CHECKING:
    from pathlib import Path

PAGE = DOCS / "deploy-a-handler.md"


def test_every_block_is_a_file_or_commands() -> None:
    text = PAGE.read_text(encoding="utf-8")
    found = blocks(text)
    assert text.count("\n```") == 2 * len(found)
    assert [(block.language, block.file) for block in found if block.language != "console"] == [
        ("toml", "validator.toml"),
        ("toml", "handler.toml"),
        ("toml", "upgrade.toml"),
    ]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.broker
def test_page_works(tmp_path: Path) -> None:
    run(blocks(PAGE.read_text(encoding="utf-8")), tmp_path, AS_ON_A_TERMINAL).check()
