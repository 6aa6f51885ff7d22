# SPDX-License-Identifier: Apache-2.0
"""Connections that are not ONLINE yet: a limit for all of them and a share for each address. Source: channel_rules 3.3 "half-open"."""

from __future__ import annotations

import asyncio
from typing import Final

SHARE: Final = "share"
"""Why a connection is turned away: its address has its share."""
FULL: Final = "full"
"""Why a connection is turned away or ended: no place is left, and its address has the most."""


class HalfOpen:
    """The tasks of half-open connections, by address and from the oldest on; at most ``total``, and ``share`` of one address.

    One address cannot keep another one out: when all places are taken, the oldest connection of the address with the most gives up its
    place, unless that is the address that asks.
    """

    def __init__(self, total: int, share: int) -> None:
        self._total = total
        self._share = share
        self._tasks: dict[str, dict[asyncio.Task[None], None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._tasks.values()))

    def tasks(self) -> list[asyncio.Task[None]]:
        """Return all tasks."""
        return [task for tasks in self._tasks.values() for task in tasks]

    def make_room(self, address: str) -> str | None:
        """Return why one more connection of an address is turned away, or None; that may cancel the task of another address."""
        mine = len(self._tasks.get(address, ()))
        if mine >= self._share:
            return SHARE
        if len(self) < self._total:
            return None
        most, tasks = max(self._tasks.items(), key=lambda each: len(each[1]))
        if len(tasks) <= mine:
            return FULL
        oldest = next(iter(tasks))
        self._remove(most, oldest)
        oldest.cancel()
        return None

    def add(self, address: str, task: asyncio.Task[None]) -> None:
        """Enter a task until it is done."""
        self._tasks.setdefault(address, {})[task] = None
        task.add_done_callback(lambda done: self._remove(address, done))

    def _remove(self, address: str, task: asyncio.Task[None]) -> None:
        tasks = self._tasks.get(address)
        if tasks is not None:
            tasks.pop(task, None)
            if not tasks:
                del self._tasks[address]
