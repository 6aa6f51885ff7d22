# SPDX-License-Identifier: Apache-2.0
"""docs/trace-format.md lists what the reader of traces accepts, no more and no less, and its example passes."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest
from validator_early_hrmp import traces as early_hrmp
from validator_xcmp import traces as xcmp
from validator_xcmp_network import traces as xcmp_network

from tests.tidy.tree import ROOT
from validator.core.types import Para
from validator.plugin.rule_choice import KEYS as RULES_KEYS
from validator.plugin.runtime import installed_protocol
from validator.protocols.router.records import REQUESTS
from validator.protocols.router.traces import CANDIDATE_KEYS
from validator.replay.scenario import EXPECT_KEYS, SCENARIO_KEYS, SESSION_CHANGE_KEYS, STEP_KEYS

PAGE = (ROOT / "docs" / "trace-format.md").read_text(encoding="utf-8")
RESULT_KEYS = ("ok", "error", "error_any_of")


def section(heading: str) -> str:
    """Return a section's own text, without those below it."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1]


def names(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def first_cells(text: str) -> list[str]:
    """Return the names in the first column of a section's tables."""
    rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    return [name for row in rows for name in names(row)]


def rows(heading: str, title: str) -> dict[str, list[str]]:
    """Return, of the table whose first title is given, the names in the second column by those in the first."""
    table = section(heading).partition(f"| {title} |")[2].partition("\n\n")[0]
    found = re.findall(r"^\| (.+?) \| (.*?) \|", table, re.MULTILINE)
    return {name: names(second) for first, second in found for name in names(first)}


@pytest.mark.parametrize(
    ("heading", "keys"),
    [
        ("Scenario", SCENARIO_KEYS),
        ("Needs and rules", RULES_KEYS),
        ("Step", STEP_KEYS),
        ("Candidate", CANDIDATE_KEYS),
        ("Downward message", ("para_id", "msg")),
        ("Session change", SESSION_CHANGE_KEYS),
        ("Para", tuple(field.name for field in fields(Para))),
        ("Expectation", EXPECT_KEYS),
        ("Result", RESULT_KEYS),
    ],
)
def test_table_has_the_keys_of_the_reader(heading: str, keys: tuple[str, ...]) -> None:
    assert sorted(first_cells(section(heading))) == sorted(keys)


def test_requests_have_their_arguments() -> None:
    assert rows("Request", "`kind`") == {kind: list(made._fields) for kind, made in REQUESTS.items()}


@pytest.mark.parametrize(
    ("protocol", "heading"),
    [("router", "State keys"), ("early-hrmp", "early-hrmp"), ("xcmp", "xcmp"), ("xcmp-network", "xcmp-network")],
)
def test_state_keys_are_those_of_the_protocol(protocol: str, heading: str) -> None:
    definition = installed_protocol(protocol)
    assert definition is not None
    assert sorted(rows(heading, f"key of `{protocol}`")) == sorted(definition.traces.state_keys)


@pytest.mark.parametrize("module", [early_hrmp, xcmp, xcmp_network], ids=["early-hrmp", "xcmp", "xcmp-network"])
def test_candidates_of_other_protocols_have_their_keys(module: Any) -> None:
    heading = module.__name__.removeprefix("validator_").removesuffix(".traces").replace("_", "-")
    sentence = section(heading).partition("A candidate has")[2].partition(".\n")[0].partition(". A session")[0]
    named = {name for name in names(sentence) if re.fullmatch(r"\w+", name)}
    assert named == set(module.CANDIDATE_KEYS)
