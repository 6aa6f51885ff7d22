# SPDX-License-Identifier: Apache-2.0
"""Reads the tables of ARCHITECTURE.md and the import contracts of pyproject.toml.

A cell of the column "may import" is one of: `nothing of ours`; `nothing`, or empty; a list of areas (`codec, core`) or modules
(`validator.plugin.api`); `all of validator`, `all of validator but cli`, `all but cli` (within the row's top folder); `everything`. An area
is a folder of the table, by its path or its last name. Every area except `nothing of ours` may import single modules of `validator/`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True, slots=True)
class Allowed:
    """What an area may import in addition to itself: areas, single modules, and the single modules of `validator/`."""

    areas: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()
    helpers: bool = True
    listed: bool = False
    """Whether the cell is a list, so that every item in it must be used."""


class CodeMap:
    """The column "may import" of the code map, by area; an area is the dotted name of a folder."""

    def __init__(self, rows: Iterable[list[str]]) -> None:
        cells = {_dotted(path): row[2] if len(row) > 2 else "" for row in rows for path in quoted(row[0])}
        self.areas = frozenset(cells)
        self.allowed = {area: self._read(area, cell) for area, cell in cells.items()}

    def area_of(self, module: str) -> str | None:
        """Return the area of a module: the longest one if several match."""
        inside = [area for area in self.areas if module == area or module.startswith(f"{area}.")]
        return max(inside, key=len, default=None)

    def _read(self, area: str, cell: str) -> Allowed:
        text = cell.replace("`", "").strip()
        if text == "nothing of ours":
            return Allowed(helpers=False)
        if text in ("", "nothing"):
            return Allowed()
        if text == "everything":
            return Allowed(self.areas)
        if match := re.fullmatch(r"all(?: of (\S+))?(?: but (.+))?", text):
            top = match[1] or area.partition(".")[0]
            excluded = {self._named(name) for name in match[2].split(", ")} if match[2] else set()
            inside = {other for other in self.areas if other == top or other.startswith(f"{top}.")}
            assert inside, f"{cell}: the table has no such folder"
            return Allowed(frozenset(inside - excluded))
        names = text.split(", ")
        modules = frozenset(name for name in names if "." in name)
        return Allowed(frozenset(self._named(name) for name in names if name not in modules), modules, listed=True)

    def _named(self, name: str) -> str:
        found = [area for area in self.areas if area == _dotted(name) or area.rpartition(".")[2] == name]
        assert len(found) == 1, f"{name!r}: expected one folder of the table, found {found}"
        return found[0]


def _dotted(path: str) -> str:
    return path.strip("/").replace("/", ".")


def imports_beyond(code_map: CodeMap, imports: Iterable[tuple[str, str]], helpers: frozenset[str]) -> list[str]:
    """Return the imports, given as (importer, imported) pairs, that the table does not allow."""
    return sorted(
        f"{importer} imports {imported}"
        for importer, imported in imports
        if (area := code_map.area_of(importer)) is not None and not _permits(code_map, area, imported, helpers)
    )


def _permits(code_map: CodeMap, area: str, imported: str, helpers: frozenset[str]) -> bool:
    allowed, other = code_map.allowed[area], code_map.area_of(imported)
    if imported in helpers:
        return allowed.helpers
    return other == area or other in allowed.areas or imported in allowed.modules


def unused_permissions(code_map: CodeMap, imports: Iterable[tuple[str, str]]) -> list[str]:
    """Return listed permissions that no module of the area uses."""
    used = {
        (code_map.area_of(importer), each)
        for importer, imported in imports
        for each in (imported, code_map.area_of(imported))
    }
    return sorted(
        f"{area} does not import {each}"
        for area, allowed in code_map.allowed.items()
        if allowed.listed
        for each in allowed.areas | allowed.modules
        if (area, each) not in used
    )


def contradictions(code_map: CodeMap, contracts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what the table allows but an import contract forbids."""
    return [
        f"{area} may import {other}, against {contract['name']!r}"
        for contract in contracts
        for area, allowed in code_map.allowed.items()
        for other in sorted(allowed.areas | allowed.modules)
        if other != area and _forbids(contract, area, other)
    ]


def _forbids(contract: Mapping[str, Any], area: str, other: str) -> bool:
    if contract["type"] == "layers":
        return any(_breaks_layers(container, contract["layers"], area, other) for container in contract["containers"])
    assert contract["type"] == "forbidden", f"contracts of type {contract['type']} are not supported"
    ignored = [each.partition(" -> ")[2] for each in contract.get("ignore_imports", ())]
    return (
        any(_inside(area, source) for source in contract["source_modules"])
        and any(_inside(other, forbidden) for forbidden in contract["forbidden_modules"])
        and other not in ignored
    )


def _breaks_layers(container: str, layers: list[str], area: str, other: str) -> bool:
    """Layers are listed from the highest. Layers on one level, separated by ``|``, are independent."""
    level = {
        f"{container}.{name.strip(' ()')}": at for at, names in enumerate(layers) for name in re.split(r"[|:]", names)
    }
    mine = next((at for name, at in level.items() if _inside(area, name)), None)
    theirs = next((at for name, at in level.items() if _inside(other, name)), None)
    return mine is not None and theirs is not None and theirs <= mine


def _inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")
