# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.mutants`: change the program in small ways, and see whether its quick tests notice."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tests.mutants.modules import GROUPS
from tests.mutants.operators import Mutant
from tests.mutants.run import Outcome, Results, TestsFail, run, sample

OUTCOMES: tuple[Outcome, ...] = ("killed", "timed out", "explained", "survived")


def main(
    module: Annotated[str, typer.Option(help="Only files whose path contains this text.")] = "",
    seconds: Annotated[float, typer.Option(min=1, help="End after this time; the next run continues.")] = 3_600.0,
    seed: Annotated[int, typer.Option(help="Determines which mutants come first.")] = 1,
    only: Annotated[int | None, typer.Option(min=1, help="Number of mutants of the sample.")] = None,
    output: Annotated[Path, typer.Option(help="JSON file with the results, which a later run completes.")] = Path(
        "build/mutants.json"
    ),
) -> None:
    """Test a sample of mutants, list the survivors; exit code 1 if there are any that nobody has explained."""
    console = Console()
    files = [file for group in GROUPS for file in group.files() if module in file]
    if not files:
        raise typer.BadParameter(f"--module: no changed file has {module!r} in its path")
    chosen = sample(seed, files)[:only]
    results = Results.read(output)
    try:
        run(chosen, results, seconds=seconds, log=partial(print, flush=True))
    except TestsFail as error:
        console.print(f"FAILED: {error}", markup=False)
        raise typer.Exit(1) from None
    show(console, results, files, sample(seed, files))
    if survivors := [each for each in results.survivors() if each.file in files]:
        for each in survivors:
            console.print(f"survived {each.place} {each.operator}: {each.old!r} -> {each.new!r}", markup=False)
        raise typer.Exit(1)


def show(console: Console, results: Results, files: list[str], everything: list[Mutant]) -> None:
    """Print the counts by file."""
    table = Table("file", "mutants", "tested", *OUTCOMES, title="mutants")
    for file in files:
        counts = results.counts([file])
        if counts:
            there = sum(each.file == file for each in everything)
            cells = (counts[outcome] for outcome in OUTCOMES)
            table.add_row(file, *map(str, (there, counts.total(), *cells)))
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
