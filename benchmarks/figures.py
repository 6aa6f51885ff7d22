# SPDX-License-Identifier: Apache-2.0
"""The results of benchmarks, as a table for people and JSON for machines."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: the median of its runs, and its goal (``at_least`` or ``at_most``)."""

    benchmark: str
    name: str
    unit: str
    runs: tuple[float, ...]
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""

    @property
    def median(self) -> float:
        """The median of the runs."""
        return statistics.median(self.runs)

    @property
    def reached(self) -> bool | None:
        """Whether the goal is reached; None if there is no goal."""
        if self.at_least is not None:
            return self.median >= self.at_least
        if self.at_most is not None:
            return self.median <= self.at_most
        return None


def show(figures: Sequence[Figure]) -> None:
    """Print the figures."""
    table = Table(title="Figures", title_justify="left")
    for column, justify in (
        ("benchmark", "left"),
        ("figure", "left"),
        ("median", "right"),
        ("runs", "right"),
        ("goal", "right"),
        ("", "left"),
    ):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for figure in figures:
        goal = f">= {_number(figure.at_least)}" if figure.at_least is not None else ""
        goal = f"<= {_number(figure.at_most)}" if figure.at_most is not None else goal
        mark = {True: "[green]reached[/]", False: "[red]missed[/]", None: ""}[figure.reached]
        name = f"{figure.name}\n[dim]{figure.note}[/]" if figure.note else figure.name
        runs = " ".join(map(_number, figure.runs)) if len(figure.runs) > 1 else ""
        table.add_row(figure.benchmark, name, f"{_number(figure.median)} {figure.unit}", runs, goal, mark)
    Console(width=max(120, Console().width)).print(table)


def write(figures: Sequence[Figure], path: Path) -> None:
    """Write the figures as JSON, with a description of the machine."""
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
    rows = [asdict(figure) | {"median": figure.median, "reached": figure.reached} for figure in figures]
    path.write_text(json.dumps({"machine": machine, "figures": rows}, indent=2) + "\n", encoding="utf-8")


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
