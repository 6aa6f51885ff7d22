# SPDX-License-Identifier: Apache-2.0
"""docs/real-data.md works: the test writes every file of its example, runs every command with a job and compares the output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import AS_ON_A_TERMINAL, DOCS, blocks, run

if TYPE_CHECKING:
    from pathlib import Path

PAGE = DOCS / "real-data.md"
AFTER = "## What to seed"
"""The heading after the example."""


def test_every_block_is_a_file_or_commands() -> None:
    text = PAGE.read_text(encoding="utf-8")
    found = blocks(text[: text.index(AFTER)])
    assert [block.file for block in found if block.language != "console"] == [
        "validator.toml",
        "STATE.json",
        "candidates.jsonl",
        "blocks.jsonl",
    ]
    assert not blocks(text[text.index(AFTER) :])


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.broker
def test_example_works(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    run(blocks(text[: text.index(AFTER)]), tmp_path, AS_ON_A_TERMINAL).check()
