# SPDX-License-Identifier: Apache-2.0
"""The tests that a protocol with a conformance suite inherits.

>>> from validator.protocols.kit import InclusionCandidateNotPending, TimeoutCandidateNotPending
>>> from validator.testing import ProtocolContract
>>> class TestMine(ProtocolContract):
...     protocol = "mine"
...     violations = (InclusionCandidateNotPending, TimeoutCandidateNotPending)
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from importlib.resources.abc import Traversable
from inspect import cleandoc
from typing import Any, ClassVar

from validator.core.errors import Violation
from validator.core.rules import LaneRules, pages
from validator.document import Node, read_document
from validator.errors import PluginFailed
from validator.plugin.protocol_api import ChainSettings, ProtocolDefinition
from validator.plugin.registry import discover
from validator.plugin.rule_pages import FieldTypes, RulesPage, Sort, parse_page
from validator.plugin.runtime import installed_protocol
from validator.replay.run import judge_scenario, run_scenario
from validator.replay.scenario import Scenario, read_scenarios, suite_files
from validator.testing.lane_suite import Json, SuitePlayer, fits_into_blocks


class NeedsProtocol:
    """Base class of contracts for an installed protocol: one test fails in one line if it is missing, the others are skipped."""

    protocol: ClassVar[str]
    """The protocol's name; its plugin must be installed."""

    def setup_method(self, method: Any) -> None:
        """Skip a test of a protocol that is not installed (a hook of pytest)."""
        if method.__name__ != self.test_protocol_is_installed.__name__ and not self._is_installed():
            import pytest

            pytest.skip(f"protocol {self.protocol!r} is not installed")

    def test_protocol_is_installed(self) -> None:
        """A plugin with the protocol's name is installed."""
        if not self._is_installed():
            import pytest

            pytest.fail(
                f"protocol {self.protocol!r} is not installed: run `pip install --editable .` in the plugin's folder first, "
                "since a protocol is found by the entry point of its distribution, not by PYTHONPATH",
                pytrace=False,
            )

    def _is_installed(self) -> bool:
        return any(found.name == self.protocol for found in discover("validator.protocols"))


HASH_SEEDS = ("0", "1", "2")


def differences(scenarios: Iterable[Scenario]) -> dict[str, str]:
    """Play scenarios and return the first difference of each failing one, or what the protocol raised, by id."""
    judged = ((scenario.id, _difference(scenario)) for scenario in scenarios)
    return {name: difference for name, difference in judged if difference is not None}


def _difference(scenario: Scenario) -> str | None:
    try:
        return judge_scenario(scenario, run_scenario(scenario))
    except PluginFailed as error:
        return str(error)


def unexplained(page: RulesPage, violations: Iterable[type[Violation]]) -> list[str]:
    """Return descriptions of the errors that a rules page lacks or gets wrong, and of its errors with a clause that do not exist.

    The entry of a kind is what `error_entry` writes from its classes. Its rules must be on the page, and one of them must have the clause.
    """
    entries = {entry.name: entry for entry in page.entries}
    kinds: dict[str, list[type[Violation]]] = {}
    for violation in violations:
        kinds.setdefault(violation.kind, []).append(violation)
    lacking = []
    for kind, classes in kinds.items():
        entry = entries.get(kind)
        if entry is None or entry.sort is not Sort.ERROR:
            lacking.append(f"{kind}: no entry")
            continue
        (written,) = parse_page(page.protocol, f"# Page\n- Page: `page`\n## Errors\n{error_entry(classes)}").entries
        lacking += [
            f"{kind}: {name} {getattr(written, name)!r}, the page has {getattr(entry, name)!r}"
            for name in ("clauses", "fields", "rules", "text", "says", "then", "numbers")
            if getattr(written, name) != getattr(entry, name)
        ]
        rules = [entries[rule] for rule in entry.rules if rule in entries]
        for violation in classes:
            if len(rules) != len(entry.rules) or not any(violation.clause in rule.clauses for rule in rules):
                lacking.append(f"{kind}: no rule of {entry.rules} gives clause {violation.clause!r}")
    stale = [
        name for name, entry in entries.items() if entry.sort is Sort.ERROR and entry.clauses and name not in kinds
    ]
    return [*lacking, *(f"{name}: no such error" for name in stale)]


def error_entry(classes: Sequence[type[Violation]]) -> str:
    """Return the entry of a kind of error on a page of rules: its classes' clauses, fields, rules, sentences and docstrings."""
    clauses = dict.fromkeys(each.clause for each in classes)
    forms = dict.fromkeys(
        ", ".join(f"`{name}: {kind}`" for name, kind in declared_fields(each)) or "none" for each in classes
    )
    rules = dict.fromkeys(rule for each in classes for rule in each.rule.split(", ") if rule)
    attributes = [
        f"- Clause: {', '.join(f'`{clause}`' for clause in clauses)}",
        *(f"- Fields: {form}" for form in forms),
        *([f"- Rule: {', '.join(rules)}"] if rules else []),
        *(f"- Says: {each.says}" for each in classes if each.says),
        *(f"- Then: {each.then}" for each in classes if each.then),
        *(f"- Numbers: `{each.numbers[0]}`, `{each.numbers[1]}`" for each in classes if each.numbers),
    ]
    text = "\n\n".join(cleandoc(each.__doc__ or "").replace("``", "`") for each in classes)
    return "\n".join([f"### error {classes[0].kind}", "", *attributes, "", text, ""])


def declared_fields(violation: type[Violation]) -> FieldTypes:
    """Return the names and types of an error's fields as its class declares them."""
    return tuple(
        (each.name, each.type if isinstance(each.type, str) else each.type.__name__) for each in fields(violation)
    )


class ProtocolContract(NeedsProtocol):
    """Base class for a protocol's tests: inherit from it in a class named ``Test...`` that names the protocol and its errors.

    The tests play the scenarios of the protocol's suite and check its state in between.
    """

    violations: ClassVar[Sequence[type[Violation]]] = ()
    """Every error that a request, a downward message or a candidate may be rejected with."""
    files: ClassVar[Sequence[Traversable]] = ()
    """Trace files in addition to the suite."""

    def check(self, rules: LaneRules[Any]) -> None:
        """Check a state after each input and step: override it with the protocol's invariants."""

    def as_record(self, item: Json) -> Json:
        """Return an entry of a step in the JSON form of its record: override it if the record has other field names."""
        return item

    def test_scenarios_pass(self) -> None:
        """Every scenario gives the expected results."""
        found = differences(self._scenarios())
        assert found == {}, "\n".join(f"{name}: {difference}" for name, difference in found.items())

    def test_scenario_ids_are_unique(self) -> None:
        """No two scenarios share an id."""
        names = Counter(scenario.id for scenario in self._scenarios())
        assert names, "the suite has no scenario"
        twice = [name for name, count in names.items() if count > 1]
        assert twice == [], f"several scenarios have the id {twice}"

    def test_violations_names_every_error_of_the_package(self) -> None:
        """The modules of the protocol's package define no error that `violations` does not name."""
        lacking = [each for each in _errors_of(self._package()) if each not in self.violations]
        assert lacking == [], "\n".join(f"{each.kind} ({each.__module__}): not in violations" for each in lacking)

    def test_suite_covers_every_error_with_all_fields(self) -> None:
        """The suite covers each of `violations` and no other."""
        declared = {(each.kind, *(field.name for field in fields(each) if each.normative)) for each in self.violations}
        met = {
            (error["kind"], *(name for name in error if name != "kind"))
            for scenario in self._scenarios()
            for error in _errors(scenario)
        }
        lacking = [*(f"{each}: no scenario" for each in sorted(declared - met)), *sorted(map(str, met - declared))]
        assert met == declared, "\n".join(lacking)

    def test_rules_page_has_every_error(self) -> None:
        """If the protocol has a rules page, it lists each of `violations` and no other."""
        page = self._definition().rules_page
        if page is not None:
            lacking = unexplained(parse_page(self.protocol, page.read_text(encoding="utf-8")), self.violations)
            assert lacking == [], "\n".join(lacking)

    def test_restored_state_equals_saved_state(self) -> None:
        """At every step, the state restored from the pages has the same pages, view and root, and nothing to save."""
        definition = self._definition()

        def look(rules: LaneRules[Any], violation: Violation | None) -> None:
            if violation is not None:
                return
            saved = pages(rules)
            restored = definition.rule_set.from_pages(saved, ChainSettings(rules=definition.rules))
            assert list(restored.changed()) == []
            assert pages(restored) == saved
            assert definition.traces.view(restored.state) == definition.traces.view(rules.state)
            assert restored.state_root() == rules.state_root()
            self.check(rules)
            self.check(restored)

        for scenario in self._scenarios():
            run_scenario(scenario, look)

    def test_rejected_input_changes_nothing(self) -> None:
        """A rejected input leaves all pages unchanged."""
        for scenario in self._scenarios():
            before: list[bytes] = []

            def look(rules: LaneRules[Any], violation: Violation | None, before: list[bytes] = before) -> None:
                now = pages(rules)
                assert violation is None or before in ([], now), f"{violation} has changed something"
                before[:] = now

            run_scenario(scenario, look)

    def test_lane_gives_expected_results(self) -> None:
        """A lane that gets scenarios as encoded records, restored after every block, agrees; only scenarios that fit into blocks."""
        fitting = [scenario for scenario in self._as_written() if fits_into_blocks(scenario)]
        assert fitting, "no scenario fits into the blocks of a lane"
        for scenario in fitting:
            SuitePlayer(scenario, self.as_record).play()

    def test_hash_seeds_do_not_matter(self) -> None:
        """Processes under other seeds of Python's string hashes give the same output."""
        command = [sys.executable, "-m", "validator", "replay", "--json", "--suite", self.protocol]
        runs = [
            subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=False)
            for seed in HASH_SEEDS
        ]
        assert not any(run.returncode for run in runs), runs[0].stderr.decode(errors="replace").strip()
        outputs = {run.stdout for run in runs}
        assert len(outputs) == 1, "the output depends on the hash seed"

    def _definition(self) -> ProtocolDefinition:
        definition = installed_protocol(self.protocol)
        assert definition is not None, f"protocol {self.protocol} is not installed"
        return definition

    def _package(self) -> str:
        self._definition()  # imports its modules
        found = next(found for found in discover("validator.protocols") if found.name == self.protocol)
        module = found.value.partition(":")[0]
        return module if hasattr(sys.modules[module], "__path__") else module.rpartition(".")[0] or module

    def _documents(self) -> Iterator[Node]:
        """Read the scenario files and skip vector files, which name a format."""
        for file in (*suite_files(self.protocol), *self.files):
            document = read_document(file)
            if not (isinstance(document.value, dict) and document.has("format")):
                yield document

    def _scenarios(self) -> Iterator[Scenario]:
        for document in self._documents():
            yield from (scenario for scenario in read_scenarios(document) if scenario.skipped is None)

    def _as_written(self) -> Iterator[Json]:
        for document in self._documents():
            yield from document.value if isinstance(document.value, list) else [document.value]


def _errors_of(package: str) -> list[type[Violation]]:
    """Return the errors of verdicts that the imported modules of a package define, by kind."""
    modules = [module for name, module in list(sys.modules.items()) if f"{name}.".startswith(f"{package}.")]
    defined = {
        each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Violation) and each.kind and each.__module__ == module.__name__
    }
    return sorted(defined, key=lambda each: (each.kind, each.__qualname__))


def _errors(scenario: Scenario) -> Iterator[dict[str, Any]]:
    for step in scenario.steps:
        for key in ("requests", "downward", "candidates"):
            yield from (result["error"] for result in step.expect.get(key, ()) if not result["ok"])
