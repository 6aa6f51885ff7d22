# SPDX-License-Identifier: Apache-2.0
"""How far a lane is: a bar on a terminal, a line from time to time in a log."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from typing import ClassVar, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

LOG: Final = logging.getLogger("validator_relay_chain")

LINE_S: Final = 10.0
"""Seconds between two lines of a log while a lane catches up."""
LIVE_LINE_S: Final = 300.0
"""Seconds between two lines once it follows the head."""
RATE_S: Final = 15.0
"""Seconds over which the rate is taken."""
BEHIND_BLOCKS: Final = 3
"""Blocks behind the finalised head from which on a lane catches up."""


class LogLines:
    """Writes the lines of `LOG` to standard error, in ``with``. Several transports of one process may use it at once; a line comes once."""

    _lock: ClassVar = threading.Lock()
    _users: ClassVar = 0
    _level: ClassVar = logging.NOTSET
    _handler: ClassVar[logging.Handler | None] = None

    def __enter__(self) -> None:
        kind = type(self)
        with kind._lock:
            kind._users += 1
            if kind._handler is None:
                kind._handler = logging.StreamHandler(sys.stderr)
                kind._handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s relay-chain: %(message)s"))
                kind._level = LOG.level
                LOG.addHandler(kind._handler)
                LOG.setLevel(logging.INFO)

    def __exit__(self, *_: object) -> None:
        kind = type(self)
        with kind._lock:
            kind._users -= 1
            if not kind._users and kind._handler is not None:
                LOG.removeHandler(kind._handler)
                LOG.setLevel(kind._level)
                kind._handler = None


class Rate:
    """Blocks a second, over the last seconds."""

    def __init__(self, now_s: float) -> None:
        self._seen: deque[tuple[float, int]] = deque([(now_s, 0)])
        self._count = 0

    def add(self, now_s: float) -> None:
        """Count a block."""
        self._count += 1
        self._seen.append((now_s, self._count))
        while len(self._seen) > 2 and now_s - self._seen[0][0] > RATE_S:
            self._seen.popleft()

    def per_s(self) -> float:
        """Return the rate, 0 before two blocks."""
        (began, first), (ended, last) = self._seen[0], self._seen[-1]
        return (last - first) / (ended - began) if ended > began else 0.0

    def left_s(self, blocks: int) -> float | None:
        """Return the seconds that some blocks take, or None if nobody knows."""
        rate = self.per_s()
        return blocks / rate if rate else None


def duration(seconds: float) -> str:
    """Return a time that is left, in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5_400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h"


class Display:
    """Shows the progress of the lanes of one process. Use it in ``with``."""

    def __init__(self, console: Console) -> None:
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._is_live = console.is_terminal

    def __enter__(self) -> Display:  # noqa: PYI034 - no subclass
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def lane(self, lane: str, number: int) -> LaneDisplay:
        """Return the display of one lane, which is at a block."""
        return LaneDisplay(lane, number, self._bar if self._is_live else None)


class LaneDisplay:
    """Shows the progress of one lane."""

    def __init__(self, lane: str, number: int, bar: Progress | None) -> None:
        self._lane, self._first, self._bar = lane, number, bar
        self._task: TaskID | None = None if bar is None else bar.add_task(lane, total=None, rate="")
        now = time.monotonic()
        self._rate = Rate(now)
        self._line_s = now

    def show(self, number: int, target: int) -> None:
        """Show that a block is followed, and which one is the last finalised."""
        now = time.monotonic()
        self._rate.add(now)
        behind = target - number
        text = self._text(number, target)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=number - self._first, total=target - self._first, rate=text)
        elif now - self._line_s >= (LINE_S if behind >= BEHIND_BLOCKS else LIVE_LINE_S):
            self._line_s = now
            LOG.info("lane %s: %s", self._lane, text)

    def _text(self, number: int, target: int) -> str:
        if target - number < BEHIND_BLOCKS:
            return f"block {number}, at the finalised head"
        left = self._rate.left_s(target - number)
        ends = "" if left is None else f", {duration(left)} left"
        return f"block {number} of {target}, {self._rate.per_s():.1f} blocks/s{ends}"
