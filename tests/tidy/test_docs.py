# SPDX-License-Identifier: Apache-2.0
"""The documents agree with the program: links, paths, commands, rules, error kinds and terms resolve."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT
from validator.cli.main import COMMANDS
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


SUFFIXES = (".py", ".md", ".toml", ".avsc", ".xml", ".json", ".sha256")


def rows(heading: str) -> list[str]:
    """Return the rows of the table under a heading, without its header."""
    section = (
        (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition(f"\n## {heading}")[2].partition("\n## ")[0]
    )
    return [line for line in section.splitlines() if line.startswith("|")][2:]


def missing_paths(row: str) -> Iterator[str]:
    """Yield the paths of a row that do not exist.

    They are relative to the root, to `validator/`, or to the folder of the previous path. ``{a,b}`` is both, ``<name>`` is anything.
    """
    folder = ROOT
    for token in re.findall(r"`([^`]+)`", row):
        if " " in token or not ("/" in token or token.endswith(SUFFIXES)):
            continue
        parts = re.split(r"\{([^}]*)\}", re.sub(r"<[^>]*>", "*", token).rstrip("/"))
        for choice in product(*(part.split(",") if at % 2 else [part] for at, part in enumerate(parts))):
            path = "".join(choice)
            found = next((each for base in (ROOT, ROOT / "validator", folder) for each in base.glob(path)), None)
            if found is None:
                yield path
            else:
                folder = found if found.is_dir() else found.parent


@pytest.mark.parametrize("row", [*rows("Code map"), *rows("Where do I change")], ids=lambda row: row[:40])
def test_every_path_and_command_exists(row: str) -> None:
    assert list(missing_paths(row)) == []
    for words in map(str.split, re.findall(r"`([^`]+)`", row)):
        if words[:2] == ["python", "-m"]:
            assert find_spec(words[2]) is not None, words
        elif words[0] == "validator" and len(words) > 1:
            assert words[1] in COMMANDS, words


def test_every_package_has_a_row() -> None:
    table = "\n".join(rows("Code map"))
    packages = [f"validator/{path.parent.name}/" for path in (ROOT / "validator").glob("*/__init__.py")]
    assert [each for each in (*packages, "streaming/", "plugins/", "tests/") if f"`{each}`" not in table] == []
