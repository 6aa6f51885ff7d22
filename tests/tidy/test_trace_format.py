# SPDX-License-Identifier: Apache-2.0
"""docs/trace-format.md lists what the reader of traces accepts, no more and no less, and its example passes."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from validator_early_hrmp import traces as early_hrmp
from validator_xcmp import traces as xcmp
from validator_xcmp.traces import GROUPS
from validator_xcmp_network import traces as xcmp_network

from tests.tidy.tree import ROOT
from validator.cli.main import app
from validator.core.types import Para
from validator.document import Node
from validator.plugin.rule_choice import KEYS as RULES_KEYS
from validator.plugin.runtime import installed_protocol
from validator.protocols.router.configuration import MAXIMA
from validator.protocols.router.records import REQUESTS
from validator.protocols.router.traces import CANDIDATE_KEYS
from validator.replay.run import run_scenario
from validator.replay.scenario import EXPECT_KEYS, SCENARIO_KEYS, SESSION_CHANGE_KEYS, STEP_KEYS, read_scenarios
from validator.replay.suites import suite_files
from validator.replay.vectors import read_vectors

PAGE = (ROOT / "docs" / "trace-format.md").read_text(encoding="utf-8")
RESULT_KEYS = ("ok", "error", "error_any_of")
PROOF_KEYS = frozenset(("old_watermark", "new_watermark", "senders"))
"""Members of a proof's context, which the README of its protocol describes."""


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


def test_features_are_those_of_the_later_rules() -> None:
    router = installed_protocol("router")
    assert router is not None
    assert "`delayed_enactment`" in section("Needs and rules")
    page = (ROOT / "docs" / "rules-by-height.md").read_text(encoding="utf-8")
    assert {feature for feature in router.traces.features if f"| `{feature}` |" not in page} == {"delayed_enactment"}


def test_groups_of_vectors_are_those_of_the_protocol() -> None:
    assert list(rows("Test vectors", "group of `xcmp-vectors/1`")) == list(GROUPS)


class Recorded:
    """Notes the keys that a reader asks for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keys: set[str] = set()
        has, item = Node.has, Node.__getitem__

        def noting_has(node: Node, key: str) -> bool:
            self.keys.add(key)
            return has(node, key)

        def noting_item(node: Node, key: str) -> Node:
            self.keys.add(key)
            return item(node, key)

        monkeypatch.setattr(Node, "has", noting_has)
        monkeypatch.setattr(Node, "__getitem__", noting_item)


@pytest.mark.parametrize("protocol", ["router", "early-hrmp", "xcmp", "xcmp-network"])
def test_reader_asks_for_no_other_key(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [Node(json.loads(file.read_text(encoding="utf-8")), file.name) for file in suite_files(protocol)]
    definition = installed_protocol(protocol)
    assert definition is not None
    recorded = Recorded(monkeypatch)
    for document in documents:
        if isinstance(document.value, dict) and document.has("format"):
            list(read_vectors(document, definition))
        else:
            read_scenarios(document)
    known = set(
        re.findall(r"[a-z_]+", " ".join(re.findall(r"`[^`]+`", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL))))
    )
    limits = {*MAXIMA, *definition.limits}
    assert len(recorded.keys) > 25
    assert recorded.keys - known - limits - PROOF_KEYS == set()


def test_example_of_the_page_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    (console,) = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    command, _, output = console.partition("\n")
    monkeypatch.chdir(tmp_path)
    Path("trace.json").write_text(example, encoding="utf-8")
    result = CliRunner().invoke(app, command.removeprefix("$ validator ").split())
    assert (result.exit_code, result.stdout) == (0, output)


def test_output_has_the_keys_of_the_page() -> None:
    (scenario,) = read_scenarios(Node({"id": "x", "steps": [{"block": 1}, {"block": 1}]}, "x"))
    output = run_scenario(scenario)
    assert all(f"`{key}`" in section("Output") for step in output["steps"] for key in step)
    assert [step["dispatched"] for step in output["steps"]] == [None, []]
