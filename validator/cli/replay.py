# SPDX-License-Identifier: Apache-2.0
"""`validator replay`: runs conformance traces through the rules, without Kafka or Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from validator import exit_codes
from validator.cli.progress import working
from validator.document import Node, printable, read_document
from validator.errors import UserError
from validator.plugin.runtime import installed_protocol
from validator.replay.run import judge_scenario, run_scenario
from validator.replay.scenario import Scenario, read_scenarios
from validator.replay.suites import suite_files
from validator.replay.vectors import protocol_of, read_vectors

NOT_INSTALLED: Final = "its protocol is not installed"


def replay(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Trace files, each with a scenario or a list of scenarios.")
    ] = None,
    suite: Annotated[list[str] | None, typer.Option(help="The conformance suite of an installed protocol.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the output as JSON and ignore 'expect'.")] = False,
) -> None:
    """Run conformance traces and compare each output with the expected one.

    Exit code 1 if a trace fails, 2 if a file is malformed.
    """
    paths = [*(files or ()), *(path for name in suite or () for path in suite_files(name))]
    if not paths:
        raise UserError("expected a trace file or --suite, found neither")
    with working("running traces"):
        _replay(paths, as_json=as_json)


def _replay(paths: list[Path], *, as_json: bool) -> None:
    documents = [read_document(path) for path in paths]
    vectors = [document for document in documents if isinstance(document.value, dict) and document.has("format")]
    installed = cache(installed_protocol)
    scenarios = [
        scenario
        for document in documents
        if document not in vectors
        for scenario in read_scenarios(document, expectations=not as_json, installed=installed)
    ]
    if as_json:
        typer.echo(json.dumps(_output(scenarios, vectors)))
        return
    outcomes = Counter(_report(scenario) for scenario in scenarios)
    for document in vectors:
        outcomes.update(_report_vectors(document))
    skipped = f", {outcomes['SKIP']} skipped" if outcomes["SKIP"] else ""
    typer.echo(f"{outcomes['PASS']} passed, {outcomes['FAIL']} failed{skipped}")
    if outcomes["FAIL"]:
        raise typer.Exit(exit_codes.DISAGREEMENT)


def _output(scenarios: list[Scenario], vectors: list[Node]) -> dict[str, Any]:
    output: dict[str, Any] = {}
    played = [run_scenario(scenario) for scenario in scenarios]
    for document in vectors:
        protocol = protocol_of(document)
        if protocol is None:
            played.append({"id": document["format"].text(), "skipped": NOT_INSTALLED})
            continue
        groups: dict[str, list[dict[str, Any]]] = output.setdefault("vectors", {})
        for vector in read_vectors(document, protocol):
            groups.setdefault(vector.group, []).append(vector.result)
    return output if output and not played else {"scenarios": played, **output}


def _report(scenario: Scenario) -> str:
    output = run_scenario(scenario)
    difference = None if scenario.skipped else judge_scenario(scenario, output)
    outcome = "SKIP" if scenario.skipped else "FAIL" if difference else "PASS"
    why = scenario.skipped or difference
    typer.echo(f"{outcome} {printable(scenario.id)} {printable(scenario.name)}{f': {why}' if why else ''}")
    return outcome


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
