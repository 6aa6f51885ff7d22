# SPDX-License-Identifier: Apache-2.0
"""Takes back what a failed message has done, in the reverse order, at the cost of what it has touched."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from copy import copy
from typing import Any, Final, TypeVar

K = TypeVar("K")

_ABSENT: Final = object()


class UndoLog:
    """Remembers how things were before each change; the caller says what it is about to change."""

    __slots__ = ("_steps",)

    def __init__(self) -> None:
        self._steps: list[Callable[[], None]] = []

    def item(self, mapping: dict[K, Any], key: K) -> None:
        """Remember an item of a mapping: whether it is there, and a shallow copy of its value."""
        before = mapping.get(key, _ABSENT)
        if before is _ABSENT:
            self._steps.append(lambda: mapping.pop(key, None) and None)
        else:
            kept = copy(before)
            self._steps.append(lambda: mapping.__setitem__(key, kept))

    def length(self, sequence: list[Any] | deque[Any]) -> None:
        """Remember how long a sequence is that will only be appended to."""
        before = len(sequence)

        def cut() -> None:
            while len(sequence) > before:
                sequence.pop()

        self._steps.append(cut)

    def call(self, step: Callable[[], None]) -> None:
        """Remember what to call."""
        self._steps.append(step)

    def roll_back(self) -> None:
        """Take everything back, and forget it."""
        for step in reversed(self._steps):
            step()
        self._steps.clear()

    def forget(self) -> None:
        """Let everything stand."""
        self._steps.clear()
