# SPDX-License-Identifier: Apache-2.0
"""`validator replay`: runs conformance traces through the rules, without Kafka or Spark."""

from __future__ import annotations

import json
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources.abc import Traversable
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from validator import exit_codes
from validator.cli.common import print_json, say
from validator.cli.progress import working
from validator.document import Node, printable, read_document
from validator.errors import PluginFailed, UserError
from validator.plugin.runtime import installed_protocol
from validator.replay.run import judge_scenario, protocol_of, read_vectors, run_scenario
from validator.replay.scenario import Scenario, read_scenarios, suite_files

NOT_INSTALLED: Final = "its protocol is not installed"
SHOWN_MAX: Final = 5
"""How many scenarios a warning names."""


def replay(
    ctx: typer.Context,
    files: Annotated[
        list[Path] | None, typer.Argument(help="Trace files, each with a scenario or a list of scenarios.")
    ] = None,
    suite: Annotated[list[str] | None, typer.Option(help="The conformance suite of an installed protocol.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the output as JSON and ignore 'expect'.")] = False,
    no_skip: Annotated[
        bool, typer.Option("--no-skip", help="Fail also if a scenario is skipped, checks nothing, or has a warning.")
    ] = False,
) -> None:
    """Run conformance traces and compare each output with the expected one.

    Exit code 1 if a trace fails, 2 if a file is malformed. What a trace says in vain is a warning on standard error, and with --no-skip the
    exit code is 1 then, too: for checks in CI, where nobody reads warnings.
    """
    paths = [*(files or ()), *(path for name in suite or () for path in suite_files(name))]
    if not paths:
        raise UserError("expected a trace file or --suite, found neither")
    with working("running traces"):
        run = _Run(as_json=as_json, verbose=bool(ctx.find_root().params.get("verbose")))
        run.replay(paths)
    if run.failed or (no_skip and run.warned):
        raise typer.Exit(exit_codes.DISAGREEMENT)


class _Run:
    """A replay of files: what it prints, and whether something failed or was said or expected in vain."""

    def __init__(self, *, as_json: bool, verbose: bool) -> None:
        self.failed = False
        self.warned = False
        self._as_json = as_json
        self._verbose = verbose

    def replay(self, paths: Sequence[Path | Traversable]) -> None:
        documents = [read_document(path) for path in paths]
        vectors = [document for document in documents if isinstance(document.value, dict) and document.has("format")]
        installed = cache(installed_protocol)
        by_file = [
            (document.path, read_scenarios(document, expectations=not self._as_json, installed=installed))
            for document in documents
            if document not in vectors
        ]
        scenarios = [scenario for _, found in by_file for scenario in found]
        for warning in chain.from_iterable(scenario.warnings for scenario in scenarios):
            self._warn(warning)
        if self._as_json:
            output = _output(scenarios, vectors)
            self.warned = self.warned or any("skipped" in each for each in output.get("scenarios", ()))
            print_json(output)
            return
        outcomes = Counter(map(self._report, scenarios))
        for document in vectors:
            outcomes.update(_report_vectors(document))
        skipped = f", {outcomes['SKIP']} skipped" if outcomes["SKIP"] else ""
        typer.echo(f"{outcomes['PASS']} passed, {outcomes['FAIL']} failed{skipped}")
        self.failed = outcomes["FAIL"] > 0
        self.warned = self.warned or outcomes["SKIP"] > 0
        self._warn_of_nothing(by_file, outcomes)

    def _report(self, scenario: Scenario) -> str:
        difference = None
        if scenario.skipped is None:
            try:
                difference = judge_scenario(scenario, run_scenario(scenario))
            except PluginFailed as error:
                difference = printable(str(error))
                if self._verbose:
                    traceback.print_exception(error.__cause__)
        outcome = "SKIP" if scenario.skipped else "FAIL" if difference else "PASS"
        why = scenario.skipped or difference
        typer.echo(f"{outcome} {printable(scenario.id)} {printable(scenario.name)}{f': {why}' if why else ''}")
        return outcome

    def _warn_of_nothing(self, by_file: list[tuple[str, list[Scenario]]], outcomes: Counter[str]) -> None:
        """Say which files and scenarios would pass whatever the rules do."""
        idle = []
        for path, scenarios in by_file:
            if not scenarios:
                self._warn(f"{path}: holds no scenario")
            idle += [printable(each.id) for each in scenarios if each.skipped is None and not each.expects_anything]
        if idle:
            named = ", ".join(idle[:SHOWN_MAX]) + (", ..." if len(idle) > SHOWN_MAX else "")
            self._warn(f"without an expectation a scenario passes whatever comes out: {named}")
        if not outcomes["PASS"] + outcomes["FAIL"]:
            self._warn("nothing was checked")

    def _warn(self, text: str) -> None:
        self.warned = True
        say(f"validator: warning: {text}")


def _output(scenarios: list[Scenario], vectors: list[Node]) -> dict[str, Any]:
    output: dict[str, Any] = {}
    played = []
    for scenario in scenarios:
        try:
            played.append(run_scenario(scenario))
        except PluginFailed as error:
            raise PluginFailed(f"scenario {scenario.id}: {error}") from error.__cause__
    for document in vectors:
        protocol = protocol_of(document)
        if protocol is None:
            played.append({"id": document["format"].text(), "skipped": NOT_INSTALLED})
            continue
        groups: dict[str, list[dict[str, Any]]] = output.setdefault("vectors", {})
        for vector in read_vectors(document, protocol):
            groups.setdefault(vector.group, []).append(vector.result)
    return output if output and not played else {"scenarios": played, **output}


def _report_vectors(document: Node) -> Iterator[str]:
    protocol = protocol_of(document)
    if protocol is None:
        typer.echo(f"SKIP {printable(document['format'].text())} {document.path}: {NOT_INSTALLED}")
        yield "SKIP"
        return
    for group, name, expected, result in read_vectors(document, protocol):
        outcome = "PASS" if result == expected else "FAIL"
        why = "" if result == expected else f": expected {json.dumps(expected)}, got {json.dumps(result)}"
        typer.echo(f"{outcome} {printable(group)} {printable(name)}{why}")
        yield outcome
