# SPDX-License-Identifier: Apache-2.0
"""What a simulated chain leaves to chance, from one seed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")


class Draws(Random):
    """Seeded draws, in the order in which they are asked for."""

    def percent(self, chance: int) -> bool:
        """Return True in so many of a hundred cases."""
        return self.randrange(100) < chance

    def one_of(self, items: Sequence[T]) -> T | None:
        """Return one of the items, None where there are none."""
        return self.choice(items) if items else None

    def count(self, per_100: int) -> int:
        """Return a count whose mean is a hundredth of the number."""
        if per_100 > 400:
            return per_100 // 100
        return sum(self.random() * 400 < per_100 for _ in range(4))

    def hex(self, size: int) -> str:
        """Return that many bytes in hex."""
        return self.randbytes(size).hex()


class LeastMet:
    """Chooses which rule to break next: of several kinds of error, first what has been met least."""

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
