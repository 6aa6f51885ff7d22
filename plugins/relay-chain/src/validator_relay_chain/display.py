# SPDX-License-Identifier: Apache-2.0
"""How far a lane is: a bar on a terminal, lines in a log, and a line at the end."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import ClassVar, Final, NamedTuple, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

LOG: Final = logging.getLogger("validator_relay_chain")

LINE_S: Final = 10.0
"""Seconds between two lines of a log while a lane catches up; once it follows the head, each block has a line."""
RATE_S: Final = 15.0
"""Seconds over which the rate is taken."""
BEHIND_BLOCKS: Final = 3
"""Blocks behind the finalised head from which on a lane catches up."""


class _Lines(logging.StreamHandler[TextIO]):
    """Writes to what standard error is now: while a bar is shown, to the lines above it."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


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
                kind._handler = _Lines(sys.stderr)
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


class Followed(NamedTuple):
    """A block that was followed; ``head`` is the number of the last finalised one that is known."""

    number: int
    candidates: int
    included: int
    target: int
    """The last block to follow by now: the head, or the last one wanted."""
    head: int


class Display:
    """Shows the progress of the lanes of one process. Use it in ``with``."""

    def __init__(self, console: Console) -> None:
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[said]}", markup=False),
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

    def lane(self, lane: str, number: int, judged: Callable[[], str]) -> LaneDisplay:
        """Return the display of one lane, which is at a block; ``judged`` returns what the judge says of it by now."""
        return LaneDisplay(lane, number, self._bar if self._is_live else None, judged)


class LaneDisplay:
    """Shows the progress of one lane."""

    def __init__(
        self,
        lane: str,
        number: int,
        bar: Progress | None,
        judged: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lane, self._first, self._bar, self._judged, self._clock = lane, number, bar, judged, clock
        self._task: TaskID | None = None if bar is None else bar.add_task(lane, total=None, said="")
        self._began_s = clock()
        self._rate = Rate(self._began_s)
        self._line_s: float | None = None
        self._last: Followed | None = None
        self._blocks = self._candidates = 0

    def show(self, block: Followed) -> None:
        """Show that a block is followed."""
        now = self._clock()
        self._rate.add(now)
        self._last = block
        self._blocks += 1
        self._candidates += block.candidates
        if self._bar is not None and self._task is not None:
            total = block.target - self._first
            self._bar.update(self._task, completed=block.number - self._first, total=total, said=self._text(block))
        elif self._line_s is None or self._is_live(block) or now - self._line_s >= LINE_S:
            self._line_s = now
            LOG.info("lane %s: %s", self._lane, self._text(block))

    def end(self) -> None:
        """Say what was followed."""
        if self._last is None:
            LOG.info("lane %s: no block was followed; %s", self._lane, self._judged())
            return
        took = duration(self._clock() - self._began_s)
        LOG.info(
            "lane %s: followed %s, %d to %d, with %s in %s; %s; %s",
            self._lane,
            _number(self._blocks, "block"),
            self._last.number - self._blocks + 1,
            self._last.number,
            _number(self._candidates, "candidate"),
            took,
            _lag(self._last),
            self._judged(),
        )

    def _is_live(self, block: Followed) -> bool:
        return block.head - block.number < BEHIND_BLOCKS

    def _text(self, block: Followed) -> str:
        counted = f"{_number(block.candidates, 'candidate')}, {block.included} included"
        if self._is_live(block):
            return f"block {block.number}, {_lag(block)}: {counted}; {self._judged()}"
        left = self._rate.left_s(block.target - block.number)
        ends = "" if left is None else f", {duration(left)} left"
        rate = f"{self._rate.per_s():.1f} blocks/s{ends}"
        return f"block {block.number} of {block.target}, {_lag(block)}: {counted}; {rate}; {self._judged()}"


def _lag(block: Followed) -> str:
    behind = block.head - block.number
    return "at the finalised head" if behind <= 0 else f"{behind} behind the finalised head"


def _number(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
