# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.tidy.audit`: asks pip-audit for known vulnerabilities of the versions in constraints.txt.

Exit code 0 if none is known, 1 if any is. If pip-audit is not installed or does not reach its database, a line says that the audit was not
run; the exit code is 0, or 3 with --strict. So `make audit` passes without network, and a pipeline that relies on it uses --strict.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from validator import exit_codes

CONSTRAINTS = Path(__file__).resolve().parents[2] / "constraints.txt"
AUDIT_SECONDS_MAX = 600
SERVICES: tuple[tuple[str, ...], ...] = ((), ("--vulnerability-service", "osv"))
"""The index's own list, which a mirror of it may not have, then that of osv.dev."""
NOT_RUN = 3
"""Exit code with --strict if the audit was not run."""


class NotRun(Exception):
    """The audit could not be made; the text says why."""


def vulnerabilities(command: list[str]) -> list[str]:
    """Return a line for each vulnerability that pip-audit reports. Raises `NotRun`."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=AUDIT_SECONDS_MAX, check=False)
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except subprocess.TimeoutExpired:
        raise NotRun(f"pip-audit gave no answer within {AUDIT_SECONDS_MAX} s") from None
    except (ValueError, KeyError, TypeError):
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise NotRun(f"pip-audit gave no report: {lines[-1] if lines else 'no reason given'}") from None
    skipped = [str(each["skip_reason"]) for each in found if "skip_reason" in each]
    if skipped:
        raise NotRun(f"pip-audit skipped {len(skipped)} of {len(found)} packages, the first one for: {skipped[0]}")
    return [
        f"{each['name']} {each['version']}: {known['id']}, fixed in {', '.join(known['fix_versions']) or 'no version'}"
        for each in found
        for known in each["vulns"]
    ]


def first_answer(commands: list[list[str]]) -> list[str]:
    """Return what the first command reports that can be run. Raises `NotRun` with the reasons of all."""
    reasons = []
    for command in commands:
        try:
            return vulnerabilities(command)
        except NotRun as error:
            reasons.append(str(error))
    raise NotRun("; ".join(reasons))


def main(
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 3 if the audit was not run.")] = False,
) -> None:
    """Print known vulnerabilities."""
    try:
        if find_spec("pip_audit") is None:
            raise NotRun("pip-audit is not installed (pip install pip-audit)")
        options = [
            "--requirement",
            str(CONSTRAINTS),
            "--no-deps",
            "--disable-pip",
            "--format",
            "json",
            "--progress-spinner",
            "off",
        ]
        found = first_answer([[sys.executable, "-m", "pip_audit", *options, *service] for service in SERVICES])
    except NotRun as error:
        typer.echo(f"audit: NOT RUN: {error}")
        raise typer.Exit(NOT_RUN if strict else 0) from None
    typer.echo("\n".join(found) or "audit: no known vulnerability")
    if found:
        raise typer.Exit(exit_codes.DISAGREEMENT)


if __name__ == "__main__":
    typer.run(main)
