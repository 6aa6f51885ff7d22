# SPDX-License-Identifier: Apache-2.0
"""The findings of a run: JSON for machines, a table for people."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.crash.comparison import Tally
from tests.crash.schedule import Kill


@dataclass
class Done:
    """One kill and its consequences."""

    number: int
    kill: Kill
    seconds: float
    signals: int
    """Number of killed processes, including those killed in support of the kill."""
    ends: list[str] = field(default_factory=list)
    """How jobs ended that nobody had asked to end."""
    note: str = ""


@dataclass
class Report:
    """A complete run; ``wrong`` is empty or says why it ended."""

    seed: int
    command: str
    planned: int
    done: list[Done] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    steps_seen: list[str] = field(default_factory=list)
    steps_fired: list[str] = field(default_factory=list)
    job_starts: int = 0
    inputs: int = 0
    seconds: float = 0.0
    wrong: str = ""
    evidence: str = ""

    @classmethod
    def read(cls, path: Path) -> Report:
        """Return a report from a file."""
        known = {each.name for each in fields(cls)}
        values = {name: value for name, value in json.loads(path.read_text(encoding="utf-8")).items() if name in known}
        values["done"] = [Done(**{**each, "kill": Kill(**each["kill"])}) for each in values["done"]]
        values["tally"] = Tally(**values["tally"])
        return cls(**values)

    def add(self, other: Report) -> None:
        """Add the report of another world of the same run."""
        self.planned += other.planned
        self.done += other.done
        for each in fields(Tally):
            setattr(self.tally, each.name, getattr(self.tally, each.name) + getattr(other.tally, each.name))
        self.steps_seen = sorted({*self.steps_seen, *other.steps_seen})
        self.steps_fired = sorted({*self.steps_fired, *other.steps_fired})
        self.job_starts += other.job_starts
        self.inputs += other.inputs
        self.seconds = max(self.seconds, other.seconds)
        self.wrong = "; ".join(filter(None, (self.wrong, other.wrong)))
        self.evidence = " ".join(filter(None, (self.evidence, other.evidence)))

    @property
    def kills(self) -> int:
        """Number of kills, without episodes."""
        return sum(each.kill.victim != "episode" for each in self.done)

    def write(self, path: Path) -> None:
        """Write the report as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        summary: dict[str, Any] = {
            "kills": self.kills,
            "processes_killed": sum(each.signals for each in self.done),
            "kills_by_victim": self._by(lambda kill: kill.victim),
            "kills_by_step": self._by(lambda kill: kill.step),
        }
        path.write_text(json.dumps(summary | asdict(self), indent=1) + "\n", encoding="utf-8")

    def _by(self, key: Any) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for each in self.done:
            counts[key(each.kill)] += 1
        return dict(sorted(counts.items()))

    def show(self, console: Console) -> None:
        """Print the table."""
        victims = sorted({each.kill.victim for each in self.done})
        table = Table("step", *victims, title=f"crash suite, seed {self.seed}")
        for step in sorted({each.kill.step for each in self.done}):
            counts = Counter(each.kill.victim for each in self.done if each.kill.step == step)
            table.add_row(step, *(str(counts[victim] or "") for victim in victims))
        console.print(table)
        tally = self.tally
        figures = {
            "schedule": f"{len(self.done)} of {self.planned}",
            "kills": self.kills,
            "processes killed": sum(each.signals for each in self.done),
            "job starts": self.job_starts,
            "inputs": self.inputs,
            "verdicts": tally.verdicts,
            "lost": tally.lost,
            "duplicated": tally.duplicated,
            "out of order": tally.out_of_order,
            "differing": tally.differing,
            "seconds": round(self.seconds),
        }
        totals = Table.grid(padding=(0, 2))
        for name, value in figures.items():
            totals.add_row(name, str(value))
        console.print(totals)
        if self.wrong:
            console.print(f"FAILED: {self.wrong}", style="bold red", markup=False)
            console.print(f"repeat it with: {self.command}", markup=False, soft_wrap=True)
            console.print(f"evidence: {self.evidence}", markup=False, soft_wrap=True)
