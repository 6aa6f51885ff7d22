# SPDX-License-Identifier: Apache-2.0
"""One seed is one schedule: every step of the fakes asks it which fault happens there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")

STEPS_MAX = 20_000
"""A schedule with more steps has failed, because it does not end."""


class Schedule:
    """Makes all choices from a seed; ``trace`` records what happened, ``faults`` counts the faults."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.rate = self.random.choice((0.003, 0.01, 0.02, 0.05))
        self.quiet = False
        """No more faults happen."""
        self.who = ""
        """The strand that makes the steps, or "" for the job."""
        self.steps = 0
        self.trace: list[str] = []
        self.faults: Counter[str] = Counter()

    def step(self, name: str, *faults: str, often: int = 1) -> str | None:
        """Pass a step of the system, and return which of its possible faults happens there, if any.

        A fault is ``often`` times as likely as elsewhere.
        """
        self.steps += 1
        assert self.steps < STEPS_MAX, "the schedule does not end"
        if self.quiet or not faults or self.random.random() >= self.rate * often:
            return None
        fault = self.random.choice(faults)
        self.fault(f"{fault} at {name}", fault)
        return fault

    def fault(self, text: str, kind: str) -> None:
        """Record a fault."""
        self.faults[kind] += 1
        self.note(f"FAULT {text}")

    def note(self, text: str) -> None:
        """Record an event."""
        self.trace.append(f"{self.steps:5} {self.who and f'[{self.who}] '}{text}")

    def chance(self, share: float) -> bool:
        """Return whether an event happens that is not a fault."""
        return self.random.random() < share

    def choose(self, among: Sequence[T]) -> T:
        """Choose one."""
        return self.random.choice(among)
