# SPDX-License-Identifier: Apache-2.0
"""Reads the tables of ARCHITECTURE.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path

SUFFIXES = (".py", ".md", ".toml", ".avsc", ".xml", ".json", ".sha256")


def table_rows(text: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table under a heading, without its header."""
    lines = text[text.index(f"\n## {heading}") + 1 :].splitlines()[1:]
    start = next(at for at, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip().strip("|").split(" | ")])
    return rows


def quoted(cell: str) -> list[str]:
    """Return the text between each pair of backticks."""
    return re.findall(r"`([^`]+)`", cell)


def is_path(token: str) -> bool:
    """Return whether a quoted token is meant as a path."""
    return " " not in token and ("/" in token or token.endswith(SUFFIXES))


def missing_paths(root: Path, cells: Iterable[str]) -> Iterator[str]:
    """Yield the paths of a row that do not exist.

    They are relative to the root, to `validator/`, or to the folder of the previous path. ``{a,b}`` is both, ``<name>`` is anything.
    """
    folder = root
    for token in (token for cell in cells for token in quoted(cell) if is_path(token)):
        for path in expanded(re.sub(r"<[^>]*>", "*", token)):
            found = next((found for base in (root, root / "validator", folder) if (found := _first(base, path))), None)
            if found is None:
                yield path
            else:
                folder = found if found.is_dir() else found.parent


def expanded(path: str) -> list[str]:
    """Return a path for each choice of its braces."""
    parts = [part.split(",") if at % 2 else [part] for at, part in enumerate(re.split(r"\{([^}]*)\}", path))]
    return ["".join(choice) for choice in product(*parts)]


def _first(base: Path, path: str) -> Path | None:
    return next(iter(sorted(base.glob(path.rstrip("/")))), None)
