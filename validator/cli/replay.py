# SPDX-License-Identifier: Apache-2.0
"""`validator replay`: conformance traces through the pure rules."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from validator import exit_codes
from validator.errors import UserError
from validator.replay.document import printable, read_document
from validator.replay.run import judge_scenario, run_scenario
from validator.replay.scenario import Scenario, read_scenarios
from validator.replay.suites import suite_files


def replay(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Trace files: one scenario each, or a list of them.")
    ] = None,
    suite: Annotated[list[str] | None, typer.Option(help="A conformance suite that comes with the program.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what came out; never look at 'expect'.")] = False,
) -> None:
    """Run conformance traces and say for each whether what came out is what it expects.

    Exit 1 if any failed, 2 if a file is malformed.
    """
    paths = [*(files or ()), *(path for name in suite or () for path in suite_files(name))]
    if not paths:
        raise UserError("name a trace file, or a suite with --suite")
    scenarios = [
        scenario for path in paths for scenario in read_scenarios(read_document(path), expectations=not as_json)
    ]
    if as_json:
        typer.echo(json.dumps({"scenarios": [run_scenario(scenario) for scenario in scenarios]}))
        return
    outcomes = Counter(_report(scenario) for scenario in scenarios)
    skipped = f", {outcomes['SKIP']} skipped" if outcomes["SKIP"] else ""
    typer.echo(f"{outcomes['PASS']} passed, {outcomes['FAIL']} failed{skipped}")
    if outcomes["FAIL"]:
        raise typer.Exit(exit_codes.DISAGREEMENT)


def _report(scenario: Scenario) -> str:
    output = run_scenario(scenario)
    difference = None if scenario.skipped else judge_scenario(scenario, output)
    outcome = "SKIP" if scenario.skipped else "FAIL" if difference else "PASS"
    why = scenario.skipped or difference
    typer.echo(f"{outcome} {printable(scenario.id)} {printable(scenario.name)}{f': {why}' if why else ''}")
    return outcome
