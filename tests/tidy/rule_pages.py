# SPDX-License-Identifier: Apache-2.0
"""Makes the errors of the pages that protocols ship, and `docs/rules/`: copies of these pages, and their index."""

from __future__ import annotations

import re
from collections.abc import Iterable
from inspect import getsourcelines
from pathlib import Path

from validator.core.errors import Violation
from validator.plugin.rule_pages import RuleEntry, RulesPage, Sort, installed_pages, parse_page
from validator.testing.protocol import error_entry

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "rules"
SOURCES = (
    *sorted(ROOT.glob("validator/protocols/*/rules.md")),
    *sorted(ROOT.glob("plugins/*/src/*/rules.md")),
)

_INDEX = """\
# Rules, readings, invariants and errors

A verdict's `error.kind` and `clause`, and every code such as R-12 or I-06 in code, tests and documents, is explained here.
`validator explain CODE` prints the same, `validator explain` lists it. A rejection that `validator watch verdicts --json` prints names its
entry as `rule`.

| page | what it has |
|---|---|
{pages}

The files of this folder are copies of what each protocol ships; `make generate` writes them. A protocol from elsewhere
brings its own page ([write-a-protocol.md](../write-a-protocol.md)).

## Readings

What the specifications leave open, and what we do. Each has its reason on its page.

| code | reading |
|---|---|
{readings}

## Errors

The first check that fails decides, and pages list errors in the order of their checks. An error of the Router also has a
sentence (*Says*) and what to do (*Then*): `validator explain` prints both, and the table of `validator dry-run` and the
console fill in the numbers. The rows of `validator watch` name the kind alone: give it to `explain`.

| kind | fields | page |
|---|---|---|
{errors}
"""


def with_errors(text: str, violations: Iterable[type[Violation]]) -> str:
    """Return a page with the entries of errors as their classes say (`error_entry`); other entries stay as they are."""
    kinds: dict[str, list[type[Violation]]] = {}
    for each in violations:
        kinds.setdefault(each.kind, []).append(each)
    for kind, classes in kinds.items():
        before, heading, after = text.partition(f"\n### error {kind}\n")
        assert heading, f"{kind}: add '### error {kind}' to the page, where its check has its place"
        following = re.search(r"^##", after, re.MULTILINE)
        text = f"{before}\n{error_entry(classes)}\n{after[following.start() :] if following else ''}"
    return text.rstrip("\n") + "\n"


def declared(package: str) -> list[type[Violation]]:
    """Return the errors that the modules of a package declare."""
    found, parents = [], [Violation]
    while parents:
        children = parents.pop().__subclasses__()
        parents += children
        found += [each for each in children if each.kind and f"{each.__module__}.".startswith(f"{package}.")]
    return sorted(found, key=lambda each: (each.__module__, getsourcelines(each)[1]))


def sources() -> dict[Path, str]:
    """Return the text of every shipped page, with the errors that its protocol declares."""
    installed_pages()  # imports the protocols
    packages = {"kit": "validator.core", "router": "validator.protocols.router"}
    return {
        path: with_errors(path.read_text(encoding="utf-8"), declared(packages.get(path.parent.name, path.parent.name)))
        for path in SOURCES
    }


def pages() -> dict[Path, tuple[str, RulesPage]]:
    """Return text and content of every page, by the path of its copy."""
    found = {}
    for source, text in sources().items():
        page = parse_page(source.parent.name, text)
        found[ROOT / page.address] = (text, page)
    return found


def made() -> dict[Path, str]:
    """Return the text of every shipped page and of every file in the folder."""
    return sources() | render()


def render() -> dict[Path, str]:
    """Return the text of every file in the folder."""
    found = pages()
    contents = [page for _, page in found.values()]
    index = _INDEX.format(
        pages="\n".join(_page_row(path, page) for path, (_, page) in found.items()),
        readings="\n".join(
            f"| {_link(entry.name, entry)} | {entry.title} |" for entry in _entries(contents, Sort.READING)
        ),
        errors="\n".join(_error_row(entry) for entry in _entries(contents, Sort.ERROR)),
    )
    return {FOLDER / "README.md": index, **{path: text for path, (text, _) in found.items()}}


def _entries(contents: list[RulesPage], sort: Sort) -> list[RuleEntry]:
    return [entry for page in contents for entry in page.entries if entry.sort is sort]


def _page_row(path: Path, page: RulesPage) -> str:
    counts = {sort: sum(entry.sort is sort for entry in page.entries) for sort in Sort}
    what = ", ".join(f"{count} {sort}{'s' if count > 1 else ''}" for sort, count in counts.items() if count)
    return f"| [{page.title}]({path.name}) | {what} |"


def _link(text: str, entry: RuleEntry) -> str:
    return f"[{text}]({entry.reference.removeprefix('docs/rules/')})"


def _error_row(entry: RuleEntry) -> str:
    forms = "; or ".join(", ".join(name for name, _ in form) for form in entry.fields)
    page = entry.reference.partition("#")[0].removeprefix("docs/rules/").removesuffix(".md")
    return f"| `{entry.name}` | {forms} | {_link(page, entry)} |"
