# SPDX-License-Identifier: Apache-2.0
"""Pages of rules: they explain a verdict's clause, an error kind or a code such as R-12 in the words of each protocol.

A protocol names its page with `ProtocolDefinition.rules_page`; the lane has its own page. A page is Markdown in UTF-8:

    # Title                                 once, first; then `- Page: `ADDRESS``, the path or address where people read the page
    ## Group                                e.g. a phase; contains the entries that follow
    ### CODE Title                          rule R-12, invariant R-V03, reading H-I04 or PR-05: the letters before the number say which
    ### error KIND                          an error of verdicts, or an error of proofs, which has no clause
    ### reason NAME, ### outcome NAME       a reason of dead letters, an outcome of dispatches

An entry's heading is followed by its attributes, then by its text. Each attribute occurs at most once, except `Fields`:

    - Clause: `TEXT`, `TEXT`                for a rule, the clauses that verdicts cite for it; for an error, one for each of its classes
    - Source: `TEXT`, `TEXT`                sections of source documents
    - Fields: `name: type`, ... or none     required for an error; once for each of its forms
    - Rule: CODE, CODE                      for an error: the rules that it violates
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final, TypeAlias

from validator.errors import UserError
from validator.plugin.registry import PluginError, discover, load_all, protocols_of

LANE: Final = "lane"
"""Stands in for a protocol's name on the page of rules that all protocols share."""

PROTOCOLS: Final = "validator.protocols"

FieldTypes: TypeAlias = tuple[tuple[str, str], ...]
"""Names and types, in order."""


class Sort(StrEnum):
    """The sort of an entry. Pages have no entries of features and profiles; `rule_features` makes them."""

    RULE = "rule"
    READING = "reading"
    INVARIANT = "invariant"
    ERROR = "error"
    REASON = "reason"
    OUTCOME = "outcome"
    FEATURE = "feature"
    PROFILE = "profile"


CODE: Final = re.compile(r"[A-Z-]*?(PR|[A-Z])-?[0-9]{2,}[a-z]?")
"""Codes of rules, of readings (``I`` or ``PR`` before the number) and of invariants (``V``)."""

_LETTERS: Final = {"I": Sort.READING, "PR": Sort.READING, "V": Sort.INVARIANT}
_NAMED: Final = (Sort.ERROR, Sort.REASON, Sort.OUTCOME)
_ATTRIBUTE: Final = re.compile(r"- (Page|Clause|Source|Fields|Rule|Says|Then|Numbers): (.+)")
_QUOTED: Final = re.compile(r"`([^`]+)`(?:, |$)")


@dataclass(frozen=True, slots=True)
class RuleEntry:
    """One entry of a page. ``name`` is its code, kind or name; ``rules`` are the codes of the rules that an error violates."""

    protocol: str
    sort: Sort
    name: str
    title: str
    group: str
    reference: str
    """The page's address, then ``#`` and the anchor of the entry's heading."""
    clauses: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    fields: tuple[FieldTypes, ...] = ()
    rules: tuple[str, ...] = ()
    text: str = ""
    says: str = ""
    """A sentence for a person, what to do then, and the fields with the two numbers that disagree (`core.errors.Violation`)."""
    then: str = ""
    numbers: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the entry as JSON values."""
        return {
            "protocol": self.protocol,
            "sort": str(self.sort),
            "name": self.name,
            "title": self.title,
            "group": self.group,
            "clauses": list(self.clauses),
            "sources": list(self.sources),
            "fields": [dict(form) for form in self.fields],
            "rules": list(self.rules),
            "text": self.text,
            "says": self.says or None,
            "then": self.then or None,
            "rule": self.reference,
        }


@dataclass(frozen=True, slots=True)
class RulesPage:
    """A parsed page of rules."""

    protocol: str
    title: str
    address: str
    entries: tuple[RuleEntry, ...]


def anchor(heading: str, taken: dict[str, int] | None = None) -> str:
    """Return GitHub's anchor for a heading. ``taken`` counts the anchors of the page, because repeated ones get a number."""
    letters = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
    if taken is None:
        return letters
    again = taken.get(letters, 0)
    taken[letters] = again + 1
    return f"{letters}-{again}" if again else letters


def parse_page(protocol: str, text: str) -> RulesPage:
    """Parse a page. Raises `UserError` with the first line that violates the grammar."""
    return _Parser(protocol).parse(text)


def lane_page() -> RulesPage:
    """Return the page of rules that all protocols share."""
    return parse_page(LANE, files("validator.protocols.kit").joinpath("rules.md").read_text(encoding="utf-8"))


def installed_pages(names: Iterable[str] | None = None) -> tuple[list[RulesPage], list[str]]:
    """Return the lane's page and the pages of installed protocols, along with the problems of those that cannot be read.

    ``names`` restricts the protocols. A protocol without a page is left out. If several versions of a plugin are installed, the last one's
    page is returned.
    """
    wanted = None if names is None else set(names)
    found = [each for each in discover(PROTOCOLS) if wanted is None or each.name in wanted]
    plugins, problems = load_all(found)
    pages, wrong = {LANE: lane_page()}, [str(problem) for problem in problems]
    for plugin in plugins:
        try:
            for definition in protocols_of(plugin):
                if definition.rules_page is not None:
                    pages[definition.name] = parse_page(definition.name, _read(definition.name, definition.rules_page))
        except PluginError as error:
            wrong += [str(problem) for problem in error.problems]
        except UserError as error:
            wrong.append(str(error))
    return list(pages.values()), wrong


def find_entries(pages: Iterable[RulesPage], wanted: str) -> list[RuleEntry]:
    """Return the entries that ``wanted`` names, ignoring case.

    The first of these interpretations with a match counts: a code, kind or name; a clause or source; the beginning of a clause or source;
    the last part of a kind; a document and a code, such as ``xcmp_rules X-I06``.
    """
    entries = [entry for page in pages for entry in page.entries]
    key = _fold(wanted)
    document, _, code = key.rpartition(" ")
    documents = {_fold(text).partition(" ")[0] for entry in entries for text in (*entry.clauses, *entry.sources)}
    tests: tuple[Callable[[RuleEntry], bool], ...] = (
        lambda entry: _fold(entry.name) == key,
        lambda entry: any(_fold(text) == key for text in (*entry.clauses, *entry.sources)),
        lambda entry: any(_fold(text).startswith((f"{key} ", f"{key}.")) for text in (*entry.clauses, *entry.sources)),
        lambda entry: _fold(entry.name).rpartition("/")[2] == key,
        lambda entry: document in documents and _fold(entry.name) == code,
    )
    return next((named for test in tests if (named := [entry for entry in entries if test(entry)])), [])


def close_names(pages: Iterable[RulesPage], wanted: str) -> list[str]:
    """Return at most three names or clauses similar to ``wanted``, the closest first."""
    known = {
        _fold(text): text
        for page in pages
        for entry in page.entries
        for text in (*entry.sources, *entry.clauses, entry.name)
    }
    return [known[each] for each in get_close_matches(_fold(wanted), known, 3)]


def series_of(pages: Iterable[RulesPage], wanted: str) -> tuple[str, str] | None:
    """Return the first and last of the codes with the letters of ``wanted``, in the order of their page; None if there are none."""
    letters = _letters(wanted.upper())
    if letters is None:
        return None
    codes = [entry.name for page in pages for entry in page.entries if _letters(entry.name) == letters]
    return (codes[0], codes[-1]) if codes else None


def _letters(code: str) -> str | None:
    return re.sub(r"[0-9]+[a-z]?$", "", code) if CODE.fullmatch(code) else None


class RuleReferences:
    """Finds the entry of a verdict's error."""

    def __init__(self, pages: Iterable[RulesPage]) -> None:
        self._by_protocol: dict[tuple[str, str, str], str] = {}
        self._by_clause: dict[tuple[str, str], str] = {}
        for page in pages:
            for entry in page.entries:
                if entry.sort is Sort.ERROR:
                    for clause in entry.clauses:
                        self._by_protocol.setdefault((page.protocol, entry.name, clause), entry.reference)
                        self._by_clause.setdefault((entry.name, clause), entry.reference)

    def of(self, kind: str, clause: str, protocol: str | None = None) -> str | None:
        """Return the page and anchor of an error by kind and clause, preferring ``protocol``'s own page; None if no page has it."""
        own = None if protocol is None else self._by_protocol.get((protocol, kind, clause))
        return own or self._by_clause.get((kind, clause))


class _Parser:
    """Reads a page line by line."""

    def __init__(self, protocol: str) -> None:
        self._protocol = protocol
        self._number = 0
        self._title = self._group = self._address = ""
        self._taken: dict[str, int] = {}
        self._entries: list[RuleEntry] = []
        self._heading: tuple[Sort, str, str, str] | None = None
        self._attributes: dict[str, list[str]] = {}
        self._text: list[str] = []

    def parse(self, text: str) -> RulesPage:
        fenced = False
        for self._number, line in enumerate(text.splitlines(), 1):
            fenced ^= line.startswith("```")
            if line.startswith("#") and not fenced:
                self._close()
                self._open(line)
            elif (found := _ATTRIBUTE.fullmatch(line)) and not self._text:
                self._attribute(found[1], found[2])
            elif self._heading is not None and (line or self._text):
                self._text.append(line)
        self._close()
        if not self._title:
            raise self._fail("'# Title' in the first line", text[:40])
        return RulesPage(self._protocol, self._title, self._address, tuple(self._entries))

    def _open(self, line: str) -> None:
        level, _, heading = line.partition(" ")
        fragment = anchor(heading, self._taken)
        if level == "#" and not self._title and self._number == 1:
            self._title = heading
        elif level == "##" and self._address:
            self._group = heading
        elif level == "###" and self._group:
            self._heading = (*self._entry_heading(heading), fragment)
            self._attributes = {}
        else:
            raise self._fail(
                "'# Title' in the first line, then '- Page: `ADDRESS`', '## Group' and '### CODE Title'", line
            )

    def _entry_heading(self, heading: str) -> tuple[Sort, str, str]:
        name, _, title = heading.partition(" ")
        if name in _NAMED:
            sort, name, title = Sort(name), title, ""
            if not name or " " in name:
                raise self._fail(f"'### {sort} NAME'", heading)
        elif (code := CODE.fullmatch(name)) and title:
            sort = _LETTERS.get(code[1], Sort.RULE)
        else:
            raise self._fail("'### CODE Title', or error, reason or outcome and a name", heading)
        if any(entry.name == name for entry in self._entries):
            raise self._fail("an entry that the page does not have yet", heading)
        return sort, name, title

    def _attribute(self, name: str, value: str) -> None:
        if name == "Page":
            if self._heading is not None or self._address:
                raise self._fail("'- Page:' once, under the title", value)
            quoted = self._quoted(value)
            if len(quoted) != 1:
                raise self._fail("one address", value)
            (self._address,) = quoted
            return
        if self._heading is None or (name in self._attributes and name != "Fields"):
            raise self._fail(f"'- {name}:' once, under the heading of an entry", value)
        if name in ("Fields", "Rule", "Says", "Then", "Numbers") and self._heading[0] is not Sort.ERROR:
            raise self._fail(f"'- {name}:' under an error", value)
        self._attributes.setdefault(name, []).append(value)

    def _close(self) -> None:
        if self._heading is None:
            return
        sort, name, title, fragment = self._heading
        given = self._attributes
        if sort is Sort.ERROR and "Fields" not in given:
            raise self._fail(f"'- Fields:' for error {name}", "none")
        rules = given.get("Rule", [""])[0]
        entry = RuleEntry(
            self._protocol,
            sort,
            name,
            title,
            self._group,
            f"{self._address}#{fragment}",
            self._quoted(*given.get("Clause", [])),
            self._quoted(*given.get("Source", [])),
            tuple(self._fields(form) for form in given.get("Fields", [])),
            tuple(rules.split(", ")) if rules else (),
            "\n".join(self._text).strip(),
            given.get("Says", [""])[0],
            given.get("Then", [""])[0],
            self._quoted(*given.get("Numbers", [])),
        )
        self._entries.append(entry)
        self._heading, self._text = None, []

    def _fields(self, form: str) -> FieldTypes:
        if form == "none":
            return ()
        fields = tuple(tuple(each.split(": ", 1)) for each in self._quoted(form))
        if any(len(each) != 2 for each in fields):
            raise self._fail("'- Fields: `name: type`, ...' or none", form)
        return fields  # type: ignore[return-value]  # the lengths are checked

    def _quoted(self, *values: str) -> tuple[str, ...]:
        for value in values:
            if _QUOTED.sub("", value):
                raise self._fail("`TEXT`, `TEXT`", value)
        return tuple(text for value in values for text in _QUOTED.findall(value))

    def _fail(self, expected: str, found: str) -> UserError:
        return UserError(f"rules page of {self._protocol}, line {self._number}: expected {expected}, found {found!r}")


def _read(protocol: str, page: Traversable) -> str:
    try:
        return page.read_text(encoding="utf-8")
    except (AttributeError, OSError, UnicodeDecodeError) as error:
        raise UserError(f"rules page of {protocol}: {error}") from error


@cache
def _fold(text: str) -> str:
    return " ".join(text.split()).casefold()
