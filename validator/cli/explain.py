# SPDX-License-Identifier: Apache-2.0
"""`validator explain`: prints the meaning of a code, an error kind, a verdict's clause, a feature or a profile."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.markdown import Markdown
from rich.table import Column, Table
from rich.text import Text

from validator.cli.common import Json, say
from validator.cli.table import PlainTable, VisibleConsole, cells
from validator.errors import UserError
from validator.plugin.rule_features import close_features_and_profiles, find_feature_or_profile
from validator.plugin.rule_pages import Sort, close_names, find_entries, installed_pages, series_of
from validator.visible import printable_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from validator.plugin.rule_pages import Entry, RulesPage

_HEADINGS = ("protocol", "code", "type", "title")
_STYLES = {Sort.ERROR: "bold red", Sort.REASON: "bold red", Sort.READING: "bold yellow", Sort.INVARIANT: "bold cyan"}


def explain(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CODE]",
            help="A code (R-12, I-06), an error kind, a clause, which may be several words, or a feature or profile of rules by "
            "height. Case does not matter.",
        ),
    ] = None,
    protocol: Annotated[
        str | None, typer.Option(help="Only this protocol's page; lane: the page of what all protocols share.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the rule, reading, invariant or error behind a code, from the pages of all installed protocols.

    A feature prints its rules, a profile what it changes. Without CODE, list all entries.
    """
    pages = _pages(protocol)
    if not words:
        _list([entry for page in pages for entry in page.entries], as_json=as_json)
        return
    wanted = " ".join(words)
    entries = find_entries(pages, wanted) or find_feature_or_profile(pages, wanted)
    if not entries:
        close = " or ".join(map(repr, close_features_and_profiles(pages, wanted) or close_names(pages, wanted)))
        where = f"protocol {protocol}" if protocol else "any installed protocol"
        hint = f"; did you mean {close}?" if close else ""
        series = series_of(pages, wanted)
        hint += f"; these codes go from {series[0]} to {series[1]}" if series else ""
        raise UserError(
            f"CODE: expected a code, an error kind, a clause, a feature or a profile of {where}, found {wanted!r}{hint}"
        )
    _print(entries, as_json=as_json)


def _pages(protocol: str | None) -> Sequence[RulesPage]:
    pages, problems = installed_pages()
    for problem in problems:  # the other pages are still usable
        say(f"validator: {problem}")
    if protocol is None:
        return pages
    chosen = [page for page in pages if page.protocol == protocol]
    if not chosen:
        known = ", ".join(page.protocol for page in pages)
        raise UserError(f"--protocol: expected one with a page of rules ({known}), found {protocol!r}")
    return chosen


def _list(entries: Sequence[Entry], *, as_json: bool) -> None:
    if as_json:
        _write_json(entries)
        return
    rows = [(entry.protocol, entry.name, str(entry.sort), entry.title or _first_line(entry)) for entry in entries]
    console = VisibleConsole()
    if not console.is_terminal:
        sys.stdout.write(PlainTable(_HEADINGS).lines(rows))
        return
    columns = (Column(heading, no_wrap=heading == "code") for heading in _HEADINGS)
    table = Table(*columns, box=None, padding=(0, 1), header_style="bold")
    for row, entry in zip(rows, entries, strict=True):
        protocol, name, *rest = cells(row)
        name.stylize(_STYLES.get(entry.sort, "bold"))
        table.add_row(protocol, name, *rest)
    console.print(table)


def _print(entries: Sequence[Entry], *, as_json: bool) -> None:
    if as_json:
        _write_json(entries)
        return
    console = VisibleConsole()
    if console.is_terminal:
        for at, entry in enumerate(entries):
            console.print(Group(*([Text()] if at else []), *_rendered(entry)))
    else:
        sys.stdout.write("\n".join(printable_lines(_plain(entry)) for entry in entries))


def _facts(entry: Entry) -> list[tuple[str, str]]:
    facts = [("clause", clause) for clause in entry.clauses]
    facts += [("source", ", ".join(entry.sources))] if entry.sources else []
    facts += [("fields", ", ".join(f"{name}: {kind}" for name, kind in form) or "none") for form in entry.fields]
    facts += [("rule", ", ".join(entry.rules))] if entry.rules else []
    return [*facts, ("page", entry.reference)]


def _heading(entry: Entry) -> str:
    return f"{entry.name}  {entry.title}" if entry.title else entry.name


def _about(entry: Entry) -> str:
    return f"{entry.protocol}, {entry.sort}, {entry.group}"


def _rendered(entry: Entry) -> list[RenderableType]:
    facts = Table.grid(padding=(0, 2))
    for name, value in _facts(entry):
        facts.add_row(Text(name, style="dim"), *cells([value]))
    heading = Text.assemble((_heading(entry), _STYLES.get(entry.sort, "bold")), f"  ({_about(entry)})")
    text: list[RenderableType] = [Text(), Markdown(printable_lines(entry.text), hyperlinks=False)] if entry.text else []
    return [heading, facts, *text]


def _plain(entry: Entry) -> str:
    lines = [f"{_heading(entry)}  ({_about(entry)})", *(f"  {name}: {value}" for name, value in _facts(entry))]
    if entry.text:
        lines += ["", entry.text]
    return "\n".join(lines) + "\n"


def _first_line(entry: Entry) -> str:
    return entry.text.partition("\n")[0]


def _write_json(entries: Sequence[Entry]) -> None:
    sys.stdout.write("".join(json.dumps(entry.to_json()) + "\n" for entry in entries))
