# SPDX-License-Identifier: Apache-2.0
"""The tables of ARCHITECTURE.md name paths and commands that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import product

import pytest

from tests.tidy.tree import ROOT
from validator.cli.main import COMMANDS

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
