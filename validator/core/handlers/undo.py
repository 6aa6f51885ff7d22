# SPDX-License-Identifier: Apache-2.0
"""Undoes the effects of a failed message in reverse order, at the cost of what it touched."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from copy import copy
from typing import Any, Final, TypeVar

K = TypeVar("K")

_ABSENT: Final = object()


class UndoLog:
    """Records the state before each change; the caller names what it is about to change."""

    __slots__ = ("_steps",)

    def __init__(self) -> None:
        self._steps: list[Callable[[], None]] = []

    def item(self, mapping: dict[K, Any], key: K) -> None:
        """Record an item of a mapping: whether it exists, and a shallow copy of its value."""
        before = mapping.get(key, _ABSENT)
        if before is _ABSENT:
            self._steps.append(lambda: mapping.pop(key, None) and None)
        else:
            kept = copy(before)
            self._steps.append(lambda: mapping.__setitem__(key, kept))

    def length(self, sequence: list[Any] | deque[Any]) -> None:
        """Record the length of a sequence that will only be appended to."""
        before = len(sequence)

        def cut() -> None:
            while len(sequence) > before:
                sequence.pop()

        self._steps.append(cut)

    def call(self, step: Callable[[], None]) -> None:
        """Record a function to call on rollback."""
        self._steps.append(step)

    def roll_back(self) -> None:
        """Undo everything, and clear the log."""
        for step in reversed(self._steps):
            step()
        self._steps.clear()

    def forget(self) -> None:
        """Keep every change, and clear the log."""
        self._steps.clear()
