# SPDX-License-Identifier: Apache-2.0
"""One seed, one schedule: every step that the fakes make asks it what goes wrong there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")

STEPS_MAX = 20_000
"""Steps after which a schedule that does not end has failed."""


class Schedule:
    """Chooses from a seed alone; ``trace`` says what happened, ``faults`` counts what went wrong."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.rate = self.random.choice((0.003, 0.01, 0.02, 0.05))
        self.quiet = False
        """Nothing goes wrong any more."""
        self.who = ""
        """Whose steps these are, where not the job's."""
        self.steps = 0
        self.trace: list[str] = []
        self.faults: Counter[str] = Counter()

    def step(self, name: str, *faults: str, often: int = 1) -> str | None:
        """Pass a step of the system, and return which of its possible faults happens there, if any.

        It happens ``often`` times as often as elsewhere.
        """
        self.steps += 1
        assert self.steps < STEPS_MAX, "the schedule does not end"
        if self.quiet or not faults or self.random.random() >= self.rate * often:
            return None
        fault = self.random.choice(faults)
        self.fault(f"{fault} at {name}", fault)
        return fault

    def fault(self, text: str, kind: str) -> None:
        """Note that something goes wrong."""
        self.faults[kind] += 1
        self.note(f"FAULT {text}")

    def note(self, text: str) -> None:
        """Note what happens."""
        self.trace.append(f"{self.steps:5} {self.who and f'[{self.who}] '}{text}")

    def chance(self, share: float) -> bool:
        """Say whether something happens that would be no fault."""
        return self.random.random() < share

    def choose(self, among: Sequence[T]) -> T:
        """Choose one."""
        return self.random.choice(among)
