# SPDX-License-Identifier: Apache-2.0
"""Every clause, code, error kind and section that the tree cites has an entry on a page of rules, and each entry exists in the code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests.tidy.rule_pages import FOLDER, ROOT, SOURCES, declared, render
from tests.tidy.tree import tracked_or_skip
from validator.core.errors import Violation
from validator.core.inputs import DeadReason
from validator.core.outcomes import DispatchOutcome
from validator.plugin.registry import discover
from validator.plugin.rule_pages import LANE, PROTOCOLS, RulesPage, Sort, find_entries, installed_pages
from validator.protocols.kit import InclusionCandidateNotPending, TimeoutCandidateNotPending
from validator.replay.scenario import suite_files
from validator.testing.protocol import unexplained

OF_ALL = (InclusionCandidateNotPending, TimeoutCandidateNotPending)
"""Errors that every protocol shares."""

READ = (".py", ".md", ".in", ".json", ".toml", ".avsc")
CODE = re.compile(r"(?<![\w-])(?:[HLNRX]-[IV]|[HILNRX]-|PR-)[0-9]{2}[a-z]?(?![\w-])")
"""Codes of our pages. Tests use codes with three digits for entries that do not exist."""

SECTION = re.compile(
    r"\b((?:router_rules|xcmp_rules)(?:\.md)? (?:[0-9]\.[0-9]+|(?:[HNX]-)?I-?[0-9]{2}[a-z]?)"
    r"|router_profiles(?:\.md)? (?:[0-9](?:\.[0-9]+)?|PR-[0-9]{2})|chain_2026(?:\.md)? 3\.[0-9]+)"
)
ROUTINE = re.compile(r"\b((?:router|early_hrmp|xcmp_channels|xcmp_networking)\.txt) ``(\w+)``")
QUOTED = re.compile(
    r'\b((?:router|early_hrmp|xcmp_channels|xcmp_networking)\.txt) "(\w[\w ]+)"(?: ([0-9.]+[0-9]|[0-9]))?'
)


@cache
def pages() -> dict[str, RulesPage]:
    found, problems = installed_pages()
    assert problems == []
    return {page.protocol: page for page in found}


def sources() -> Iterator[tuple[str, str]]:
    for name in tracked_or_skip():
        if name.endswith(READ):
            yield name, (ROOT / name).read_text(encoding="utf-8")


def violations(protocol: str) -> list[type[Violation]]:
    """Return the errors that a protocol's package declares."""
    (found,) = [each for each in discover(PROTOCOLS) if each.name == protocol]
    return declared(found.value.rpartition(".")[0])


def unresolved(cited: re.Pattern[str]) -> dict[str, str]:
    """Return citations without an entry, each with a file that has it; the pattern's groups make the text to look up."""
    found: dict[str, str] = {}
    for name, text in sources():
        for match in cited.finditer(text):
            found[" ".join(filter(None, match.groups())).replace(".md ", " ") or match[0]] = name
    assert found
    return {cite: name for cite, name in found.items() if not find_entries(pages().values(), cite)}


# --- copies ---


def test_docs_have_no_other_copies() -> None:
    assert set(FOLDER.iterdir()) == set(render())


def test_every_shipped_protocol_has_a_page() -> None:
    assert set(pages()) == {LANE, *(found.name for found in discover(PROTOCOLS))}
    assert len(SOURCES) == len(pages())


# --- errors, both ways ---


@pytest.mark.parametrize("protocol", ["router", "early-hrmp", "xcmp", "xcmp-network"])
def test_errors_of_protocol_match_its_page(protocol: str) -> None:
    found = violations(protocol)
    assert len(found) > 20
    assert unexplained(pages()[protocol], found) == []


def test_shared_errors_match_lane_page() -> None:
    assert unexplained(pages()[LANE], OF_ALL) == []


def test_every_clause_names_a_rule_and_an_error() -> None:
    for page in pages().values():
        for clause in {clause for entry in page.entries for clause in entry.clauses}:
            sorts = {entry.sort for entry in find_entries([page], clause)}
            assert sorts == {Sort.RULE, Sort.ERROR}, (page.protocol, clause)


def test_reasons_and_outcomes_match_lane_page() -> None:
    named = {sort: [entry.name for entry in pages()[LANE].entries if entry.sort is sort] for sort in Sort}
    assert named[Sort.REASON] == [reason.name for reason in DeadReason]
    assert named[Sort.OUTCOME] == [str(outcome) for outcome in DispatchOutcome]


# --- citations ---


def test_every_code_has_an_entry() -> None:
    assert unresolved(CODE) == {}


def test_every_section_of_the_notes_has_an_entry() -> None:
    assert unresolved(SECTION) == {}


def test_every_routine_of_a_specification_has_an_entry() -> None:
    assert unresolved(ROUTINE) == {}
    assert unresolved(QUOTED) == {}


def suite_scenarios(protocol: str) -> Iterator[dict[str, Any]]:
    for file in suite_files(protocol):
        document = json.loads(file.read_text(encoding="utf-8"))
        yield from document if isinstance(document, list) else [document]


@pytest.mark.parametrize("protocol", ["router", "early-hrmp", "xcmp", "xcmp-network"])
def test_every_kind_in_a_suite_has_an_entry(protocol: str) -> None:
    kinds = {each for scenario in suite_scenarios(protocol) for each in _kinds(scenario)}
    assert len(kinds) > 20
    known = {entry.name for entry in pages()[protocol].entries if entry.sort is Sort.ERROR}
    assert kinds <= known


def _kinds(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("error"), dict):
            yield value["error"]["kind"]
        for each in value.values():
            yield from _kinds(each)
    elif isinstance(value, list):
        for each in value:
            yield from _kinds(each)


def test_every_section_in_a_scenario_has_an_entry() -> None:
    """Scenarios of the Router name routines of router.txt without the file. The trace format and READMEs are not rules."""
    found = []
    for protocol in ("router", "early-hrmp", "xcmp", "xcmp-network"):
        for scenario in suite_scenarios(protocol):
            source = scenario.get("source", "")
            if source.startswith(("traces FORMAT", "README")) or source in ("", "router.txt"):
                continue
            first = re.match(
                r"(?:[a-z_]+\.txt |[a-z]+_rules |router_profiles |chain_2026 )?"
                r"(?:[A-Z]-[A-Z]?\d+|[A-Za-z_]+(?: [A-Z][a-z]+)*|[0-9.]*[0-9])",
                source,
            )
            assert first is not None, source
            if not any(find_entries(pages().values(), f"{prefix}{first[0]}") for prefix in ("", "router.txt ")):
                found.append((scenario["id"], source, first[0]))
    assert found == []
