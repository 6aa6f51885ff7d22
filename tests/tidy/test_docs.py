# SPDX-License-Identifier: Apache-2.0
"""What the papers say is what the program does."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from validator.plugin.rule_pages import anchor

ROOT = Path(__file__).resolve().parents[2]
PAPERS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "plugins").glob("*/README.md")]


@cache
def anchors(paper: Path) -> frozenset[str]:
    text = re.sub(r"^```.*?^```", "", paper.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    taken: dict[str, int] = {}
    return frozenset(anchor(heading, taken) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE))


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_to_files_and_headings_that_exist(paper: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", paper.read_text(encoding="utf-8")):
        name, _, fragment = target.partition("#")
        found = paper.parent / name if name else paper
        assert found.exists(), f"{paper.name} links to {target}"
        assert not fragment or fragment in anchors(found), f"{paper.name} links to {target}"


def test_sample_verdicts_name_rules_that_exist() -> None:
    named = [rule for paper in PAPERS for rule in re.findall(r'"rule": "([^"]+)"', paper.read_text(encoding="utf-8"))]
    assert len(named) > 1
    for rule in named:
        name, _, fragment = rule.partition("#")
        assert fragment in anchors(ROOT / name), rule


def test_the_errors_of_the_comparison_are_those_of_the_protocols() -> None:
    text = (ROOT / "docs" / "protocols.md").read_text(encoding="utf-8")
    modules = ("validator.protocols.router.errors", "validator_early_hrmp.errors", "validator_xcmp.errors")
    known = [{getattr(each, "kind", None) for each in vars(import_module(name)).values()} for name in modules]
    rows = [line.split("|")[2:5] for line in text.splitlines() if re.search(r"\| [RC] `", line)]
    assert len(rows) > 10
    for row in rows:
        for cell, kinds in zip(row, known, strict=True):
            assert set(re.findall(r"`([^`]+)`", cell)) <= kinds
