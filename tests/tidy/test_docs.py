# SPDX-License-Identifier: Apache-2.0
"""What the papers say is what the program does."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.tidy import error_page

ROOT = Path(__file__).resolve().parents[2]
PAPERS = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


def test_the_page_of_errors_is_that_of_the_violations() -> None:
    assert error_page.PAGE.read_text(encoding="utf-8") == error_page.render(), "run python -m tests.tidy.error_page"


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: path.name)
def test_links_lead_somewhere(paper: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", paper.read_text(encoding="utf-8")):
        assert (paper.parent / target).exists(), f"{paper.name} links to {target}"


def test_the_code_map_names_folders_that_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    code_map = text[text.index("## Code map") : text.index("## Where do I change")]
    for folder in re.findall(r"^\| `([a-z/]+)`", code_map, re.MULTILINE):
        assert (ROOT / folder).is_dir(), folder


def test_the_errors_of_the_comparison_are_those_of_the_protocols() -> None:
    text = (ROOT / "docs" / "protocols.md").read_text(encoding="utf-8")
    modules = ("validator.protocols.router.errors", "validator_early_hrmp.errors", "validator_xcmp.errors")
    known = [{getattr(each, "kind", None) for each in vars(import_module(name)).values()} for name in modules]
    rows = [line.split("|")[2:5] for line in text.splitlines() if re.search(r"\| [RC] `", line)]
    assert len(rows) > 10
    for row in rows:
        for cell, kinds in zip(row, known, strict=True):
            assert set(re.findall(r"`([^`]+)`", cell)) <= kinds
