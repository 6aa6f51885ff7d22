# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.simulation.search`: play schedules until one fails, and print the finding as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import typer

from tests.simulation.log import Log
from tests.simulation.spark import StatesDiffer
from tests.simulation.world import SimulationFailed, World
from validator.errors import UserError


@dataclass(frozen=True, slots=True)
class Search:
    """Schedules played, and the failure of the last one, if any."""

    schedules: int
    failure: SimulationFailed | None

    @property
    def by_accident(self) -> bool:
        """Whether the program has only raised something, which says nothing about its output or state."""
        cause = None if self.failure is None else self.failure.__cause__
        ends = isinstance(cause, AssertionError) and "does not end" in str(cause)
        return not ends and not isinstance(cause, UserError | StatesDiffer | None)


def search(schedules_max: int, break_it: Callable[[Log], None] = lambda _: None, *, stages: bool = False) -> Search:
    """Play the schedules of seeds from 0 on until one fails; one that fails by accident counts only if no other does."""
    accident = None
    for seed in range(schedules_max):
        try:
            World(seed, break_it, stages=stages).run()
        except SimulationFailed as failure:
            found = Search(seed + 1, failure)
            if not found.by_accident:
                return found
            accident = accident or found
    return accident or Search(schedules_max, None)


def main(
    schedules: Annotated[int, typer.Option(min=1, help="Schedules to play at most.")] = 400,
    stages: Annotated[bool, typer.Option("--stages", help="Include the job's stages: decode, lanes, sink.")] = False,
) -> None:
    """Print `{"tries": ..., "found": ..., "by_accident": ...}`; ``found`` is empty if no schedule failed."""
    result = search(schedules, stages=stages)
    found = "" if result.failure is None else str(result.failure)
    json.dump({"tries": result.schedules, "found": found, "by_accident": result.by_accident}, sys.stdout)


if __name__ == "__main__":
    typer.run(main)
