# SPDX-License-Identifier: Apache-2.0
"""docs/write-a-handler.md works: the test writes every file, runs every command and compares the output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import DOCS, Ran, blocks, run

if TYPE_CHECKING:
    from pathlib import Path

PAGE = DOCS / "write-a-handler.md"
JOB = "## 7."
"""The first heading whose commands need Spark."""


def test_every_block_is_a_file_or_commands() -> None:
    text = PAGE.read_text(encoding="utf-8")
    found = blocks(text)
    assert text.count("\n```") == 2 * len(found)
    assert [(block.language, block.file) for block in found if block.language != "console"] == [
        ("python", "src/validator_poll/__init__.py"),
        ("python", "try_it.py"),
        ("python", "tests/test_contract.py"),
        ("toml", "validator.toml"),
        ("json", "blocks.jsonl"),
        ("json", "candidates.jsonl"),
    ]


@pytest.fixture(scope="module")
def before_job(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    text = PAGE.read_text(encoding="utf-8")
    return run(blocks(text[: text.index(JOB)]), tmp_path_factory.mktemp("page"), [])


def test_page_up_to_the_job_works(before_job: Ran) -> None:
    before_job.check()


@pytest.mark.long
@pytest.mark.spark
def test_page_from_the_job_on_works(before_job: Ran, tmp_path: Path) -> None:
    before_job.check()
    text = PAGE.read_text(encoding="utf-8")
    run(blocks(text[text.index(JOB) :]), tmp_path, before_job.shell()).check()
