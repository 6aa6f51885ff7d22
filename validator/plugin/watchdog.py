# SPDX-License-Identifier: Apache-2.0
"""Ends a handler that does not end: the one place where a clock bears on handlers, and it never makes a verdict."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Final

from validator.core.handlers.errors import HandlerInterrupted

HANDLER_SECONDS_MAX_DEFAULT: Final = 10.0
"""Seconds that one message's handler may take before the query stops."""

AGAIN_S: Final = 0.1
"""Seconds until a handler that caught the interruption is interrupted again."""


class Watchdog:
    """Interrupts a plugin's call by a signal after ``seconds_max``; makes a context manager for each call, which may be itself.

    Whatever the call makes of the interruption, `HandlerInterrupted` is how it ends.
    Signals reach the main thread alone, in which Spark's Python workers run; in another thread nothing is watched. Code in C is not
    interrupted before it returns to Python.
    """

    def __init__(self, seconds_max: float = HANDLER_SECONDS_MAX_DEFAULT) -> None:
        self._seconds_max = seconds_max
        self._before: Any = None
        self._watching = False
        self._fired = False

    def __call__(self) -> Watchdog:
        """Return the context manager."""
        return self

    def __enter__(self) -> None:
        self._fired = False
        self._watching = threading.current_thread() is threading.main_thread()
        if self._watching:
            self._before = signal.signal(signal.SIGALRM, self._interrupt)
            signal.setitimer(signal.ITIMER_REAL, self._seconds_max, AGAIN_S)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watching:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)
        if self._fired and not isinstance(error, HandlerInterrupted):
            raise self._interruption() from None  # the handler made something else of it, or nothing at all

    def _interrupt(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._fired = True
        if frame is None or frame.f_code not in _OWN:  # raised in these, it would leave the timer running
            raise self._interruption()

    def _interruption(self) -> HandlerInterrupted:
        return HandlerInterrupted(f"it did not end within {self._seconds_max:g} seconds")


_OWN: Final = (Watchdog.__enter__.__code__, Watchdog.__exit__.__code__)
"""Where the interruption is only remembered."""
