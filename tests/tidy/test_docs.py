# SPDX-License-Identifier: Apache-2.0
"""The documents agree with the program: links, rules, error kinds and terms resolve."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT
from validator.plugin.rule_pages import anchor

DOCUMENTS = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "plugins").glob("*/README.md"),
    *(ROOT / "examples").glob("*/README.md"),
]


@cache
def anchors(document: Path) -> frozenset[str]:
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    taken: dict[str, int] = {}
    return frozenset(anchor(heading, taken) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_resolve_to_files_and_headings(document: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", document.read_text(encoding="utf-8")):
        name, _, fragment = target.partition("#")
        found = document.parent / name if name else document
        assert found.exists(), f"{document.name} links to {target}"
        assert not fragment or fragment in anchors(found), f"{document.name} links to {target}"


def test_sample_verdicts_name_existing_rules() -> None:
    named = [
        rule
        for document in DOCUMENTS
        for rule in re.findall(r'"rule": "([^"]+)"', document.read_text(encoding="utf-8"))
    ]
    assert len(named) > 1
    for rule in named:
        name, _, fragment = rule.partition("#")
        assert fragment in anchors(ROOT / name), rule


def test_comparison_names_only_errors_of_its_protocols() -> None:
    text = (ROOT / "docs" / "protocols.md").read_text(encoding="utf-8")
    modules = (
        *("validator.protocols.router.errors", "validator_early_hrmp.errors", "validator_xcmp.errors"),
        "validator_xcmp_network.errors",
    )
    known = [{getattr(each, "kind", None) for each in vars(import_module(name)).values()} for name in modules]
    rows = [line.split("|")[2:6] for line in text.splitlines() if re.search(r"\| [RC] `", line)]
    assert len(rows) > 10
    for row in rows:
        for cell, kinds in zip(row, known, strict=True):
            assert set(re.findall(r"`([^`]+)`", cell)) <= kinds


def test_glossary_names_what_exists() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    found = re.findall(r"\| \[`([^`]+)`\]\([^)]+\) `(\w+)` \|$", text, re.MULTILINE)
    assert found
    for path, name in found:
        assert re.search(rf"\b{name}\b", (ROOT / path).read_text(encoding="utf-8")), (path, name)
