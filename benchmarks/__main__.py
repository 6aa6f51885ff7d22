# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks [NAME ...]`: run benchmarks, print their figures and write them as JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.figures import Figure, show, write

BENCHMARKS = (
    "core",
    "profiles",
    "protocols",
    "ingress",
    "handlers",
    "catch_up",
    "chains",
    "lanes",
    "exactly_once",
    "recovery",
    "latency",
    "start",
    "channel",
    "bodies",
    "journeys",
)


def bench(
    names: Annotated[list[str] | None, typer.Argument(help=f"Any of {', '.join(BENCHMARKS)}; all by default.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each figure.")] = 3,
    out: Annotated[Path, typer.Option(help="JSON file for the figures.")] = Path("build/figures.json"),
) -> None:
    """Measure; every ratio is between two figures of one run."""
    unknown = [name for name in names or () if name not in BENCHMARKS]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r}: expected one of {', '.join(BENCHMARKS)}")
    figures: list[Figure] = []
    out.parent.mkdir(parents=True, exist_ok=True)
    for name in names or BENCHMARKS:
        run: Callable[[Callable[[str], None], int], list[Figure]] = import_module(f"benchmarks.{name}").run
        measured = run(lambda text: print(text, file=sys.stderr, flush=True), repeats)
        figures += measured
        show(measured)
        write(figures, out)  # after each benchmark, so that a late failure does not lose an hour's figures
    typer.echo(f"written to {out}", err=True)


if __name__ == "__main__":
    typer.run(bench)
