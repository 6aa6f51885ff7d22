# SPDX-License-Identifier: Apache-2.0
"""The random draws of a simulated chain, from one seed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")


class Draws(Random):
    """A seeded source of draws; results depend on the order of the calls."""

    def percent(self, chance: int) -> bool:
        """Return True with a probability of ``chance`` percent."""
        return self.randrange(100) < chance

    def one_of(self, items: Sequence[T]) -> T | None:
        """Return one of the items, or None if there are none."""
        return self.choice(items) if items else None

    def count(self, per_100: int) -> int:
        """Return a random count with a mean of a hundredth of ``per_100``."""
        if per_100 > 400:
            return per_100 // 100
        return sum(self.random() * 400 < per_100 for _ in range(4))

    def hex(self, size: int) -> str:
        """Return ``size`` random bytes in hex."""
        return self.randbytes(size).hex()


class LeastMet:
    """Chooses which rule to break next: the error kinds met least come first."""

    def __init__(self, draws: Draws, kinds: Iterable[str]) -> None:
        self.draws = draws
        self.met = dict.fromkeys(kinds, 0)

    def order(self) -> list[str]:
        """Return every kind in the order in which to try them."""
        return sorted(self.draws.sample(list(self.met), len(self.met)), key=self.met.__getitem__)

    def note(self, result: dict[str, Any]) -> None:
        """Count the error of a result, if it has one."""
        if not result["ok"]:
            self.met[result["error"]["kind"]] += 1
