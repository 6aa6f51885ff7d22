# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.simulation --seeds 0-100000`: play many schedules; `--seed N --trace`: one, step by step."""

from __future__ import annotations

import time
from collections import Counter
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.simulation.world import SimulationFailed, World


def simulate(
    seeds: Annotated[str, typer.Option(help="First and last seed.")] = "0-9999",
    seed: Annotated[int | None, typer.Option(help="One seed alone.")] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Print each step of that seed's schedule.")] = False,
    stages: Annotated[bool, typer.Option("--stages", help="Include the job's stages: decode, lanes, sink.")] = False,
) -> None:
    """Play schedules of crashes, retries and zombies; stop at the first one that fails."""
    try:
        first, last = (seed, seed) if seed is not None else map(int, seeds.split("-"))
    except ValueError:
        raise typer.BadParameter(f"--seeds: expected FIRST-LAST, found {seeds!r}") from None
    console, faults, began = Console(), Counter[str](), time.monotonic()
    columns = (TextColumn("schedules"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        for number in progress.track(range(first, last + 1), description="schedules"):
            world = World(number, stages=stages)
            try:
                faults += world.run()
            except SimulationFailed as failure:
                console.print("\n".join(failure.trace if trace else failure.trace[-25:]), markup=False, highlight=False)
                console.print(str(failure), markup=False, highlight=False)
                raise typer.Exit(1) from None
            if trace:
                console.print("\n".join(world.schedule.trace), markup=False, highlight=False)
    minutes = (time.monotonic() - began) / 60
    table = Table(title=f"{last - first + 1:,} schedules, {(last - first + 1) / minutes:,.0f} a minute: all correct")
    table.add_column("what happened")
    table.add_column("times", justify="right")
    for fault, times in sorted(faults.items()):
        table.add_row(fault, f"{times:,}")
    console.print(table)


if __name__ == "__main__":
    typer.run(simulate)
