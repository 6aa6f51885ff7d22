# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.fuzz [TARGET ...] --inputs N`: gives every decoder mutated inputs, and stops at the first that breaks a promise."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from tests.fuzz.coverage import guided
from tests.fuzz.engine import Finding, keep, run
from tests.fuzz.targets import TARGETS


def fuzz(
    names: Annotated[list[str] | None, typer.Argument(metavar="[TARGET]...", help="All by default.")] = None,
    inputs: Annotated[int, typer.Option(min=0, help="Mutated inputs of each target.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="The same seed makes the same inputs.")] = 1,
    coverage: Annotated[
        Path | None, typer.Option(help="Guide one target by coverage; the folder keeps its inputs. Needs atheris.")
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Add a finding to the corpus.")] = False,
) -> None:
    """Fuzz decoders. Exit code 1 if one breaks a promise: it crashes, hangs, grows, or accepts what is not canonical."""
    unknown = [name for name in names or () if name not in TARGETS]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r}: expected one of {', '.join(TARGETS)}")
    if coverage is not None:
        if names is None or len(names) != 1:
            raise typer.BadParameter("--coverage: expected one target")
        if find_spec("atheris") is None:
            raise typer.BadParameter("--coverage: atheris is not installed (pip install atheris)")
        guided(TARGETS[names[0]], coverage, inputs)
        return
    failed = False
    for name in names or TARGETS:
        began = time.process_time()
        try:
            outcome = run(TARGETS[name], inputs, seed)
        except Finding as finding:
            failed = True
            typer.echo(f"{finding}", err=True)
            if write and finding.data:
                keep(name, finding.data)
            continue
        seconds = time.process_time() - began
        rate = round(inputs / seconds) if seconds else 0
        typer.echo(
            f"{name}: {inputs:,} inputs, {outcome.accepted:,} accepted, {seconds:.1f} s, {rate:,}/s, {outcome.grown_mib} MiB more"
        )
    if failed:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(fuzz)
