# SPDX-License-Identifier: Apache-2.0
"""The figures of `benchmarks.quick` that are kept in the tree, and how new ones compare with them.

Times of day are shown and not judged, since whatever else runs changes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

COMMITTED: Final = Path(__file__).parent / "quick.json"

NOISE: Final = 0.10
"""Share by which a run may exceed the worst committed one."""


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of one figure: processor time in units of a fixed piece of work if ``judged``, otherwise a time of day in seconds."""

    values: tuple[float, ...]
    judged: bool

    def against(self, committed: Runs) -> str:
        """Return in a word how the figure is; nothing if it is not judged.

        It is worse if even its best run exceeds the worst committed one by more than `NOISE`, and better the other way round.
        """
        if not self.judged:
            return ""
        if min(self.values) > max(committed.values) * (1 + NOISE):
            return "worse"
        return "better" if max(self.values) < min(committed.values) / (1 + NOISE) else "same"


def read(path: Path) -> dict[str, Runs]:
    """Return the committed figures; none if there is no file."""
    if not path.exists():
        return {}
    return {name: Runs(tuple(each["values"]), each["judged"]) for name, each in json.loads(path.read_text()).items()}


def write(figures: Mapping[str, Runs], path: Path) -> None:
    """Write figures as `read` takes them."""
    document = {name: {"values": list(each.values), "judged": each.judged} for name, each in figures.items()}
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def worse(figures: Mapping[str, Runs], committed: Mapping[str, Runs]) -> list[str]:
    """Return the figures that are worse than the committed ones."""
    return [name for name, runs in figures.items() if name in committed and runs.against(committed[name]) == "worse"]


def show(figures: Mapping[str, Runs], committed: Mapping[str, Runs]) -> None:
    """Print the figures next to the committed ones."""
    table = Table(
        title="Figures: processor time in 1/1,000,000 of the fixed work, times of day in ms", title_justify="left"
    )
    for column, justify in (("figure", "left"), ("runs", "right"), ("committed", "right"), ("", "left")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for name, runs in figures.items():
        before = committed.get(name)
        table.add_row(name, _shown(runs), "" if before is None else _shown(before), before and runs.against(before))
    Console(width=max(120, Console().width)).print(table)


def _shown(runs: Runs) -> str:
    return " ".join(f"{value * (1e6 if runs.judged else 1e3):,.4g}" for value in runs.values)
