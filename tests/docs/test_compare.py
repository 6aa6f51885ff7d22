# SPDX-License-Identifier: Apache-2.0
"""docs/compare.md works: the test runs every command and compares the output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import AS_ON_A_TERMINAL, DOCS, Ran, blocks, run
from validator.history.expectation import Sort

if TYPE_CHECKING:
    from pathlib import Path

PAGE = DOCS / "compare.md"
JOB = "## 2."
"""The first heading whose commands need Spark."""


def test_every_block_holds_commands() -> None:
    text = PAGE.read_text(encoding="utf-8")
    found = blocks(text)
    assert text.count("\n```") == 2 * len(found)
    assert {block.language for block in found} == {"console"}


def test_every_difference_is_explained() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [sort for sort in Sort if f"| `{sort}` |" not in text] == []


@pytest.fixture(scope="module")
def before_job(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    text = PAGE.read_text(encoding="utf-8")
    return run(blocks(text[: text.index(JOB)]), tmp_path_factory.mktemp("page"), AS_ON_A_TERMINAL)


def test_page_up_to_the_job_works(before_job: Ran) -> None:
    before_job.check()


@pytest.mark.long
@pytest.mark.spark
def test_page_from_the_job_on_works(before_job: Ran, tmp_path: Path) -> None:
    before_job.check()
    text = PAGE.read_text(encoding="utf-8")
    run(blocks(text[text.index(JOB) :]), tmp_path, [*before_job.shell(), *AS_ON_A_TERMINAL]).check()
