# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.crash`: the crash suite, with as many kills as one likes."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tests.crash.run import every_step_seen, run
from tests.crash.schedule import full_schedule, short_schedule


def crash(
    seed: Annotated[int, typer.Option(help="Decides the traffic, the kills and their order.")] = 1,
    kills: Annotated[
        int,
        typer.Option(
            min=1, help="How many, episodes among them; with 200 and more every step has every kind of victim."
        ),
    ] = 220,
    first: Annotated[int, typer.Option(min=0, help="Begin with this one of the schedule, counted from 0.")] = 0,
    only: Annotated[str, typer.Option(help="Those of the schedule alone whose name matches this expression.")] = "",
    short: Annotated[bool, typer.Option("--short", help="The schedule of `make test`.")] = False,
    build: Annotated[Path, typer.Option(help="Where report and evidence go.")] = Path("build/crash"),
) -> None:
    """Kill processes of a job and of its broker, and hold what readers see against an undisturbed run."""
    console = Console()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what was started is stopped first
    schedule = short_schedule(seed) if short else full_schedule(seed, kills)
    if only:
        schedule = [kill for kill in schedule if re.search(only, kill.name)]
    form = "--short" if short else f"--kills {kills}"
    command = f"python -m tests.crash --seed {seed} {form}" + (f" --first {first}" if first else "")
    command += f" --only '{only}'" if only else ""
    report = run(
        seed,
        schedule,
        command=command,
        build=build,
        first=first,
        tell=lambda text: console.print(text, markup=False, highlight=False, soft_wrap=True),
    )
    report.show(console)
    console.print(f"written to {build}/report-{seed}.json")
    if not report.wrong and not only and not first and (unseen := every_step_seen(report)):
        console.print(f"FAILED: no process has come by {', '.join(unseen)}", style="bold red")
        raise typer.Exit(1)
    if report.wrong:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(crash)
