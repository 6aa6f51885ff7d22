# SPDX-License-Identifier: Apache-2.0
"""Ends a handler that does not end: the one place where a clock bears on handlers, and it never makes a verdict."""

from __future__ import annotations

import faulthandler
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Final, TextIO

from validator.core.handlers.errors import HandlerInterrupted

HANDLER_SECONDS_MAX_DEFAULT: Final = 10.0
"""Seconds that one message's handler may take before the query stops."""

AGAIN_S: Final = 0.1
"""Seconds until a handler that caught the interruption is interrupted again."""

INSISTING_S: Final = 2e-4
"""Seconds between interruptions from the second on: one of so many comes where a loop of ``except:`` catches nothing. Much less would be
shorter than an interruption takes, and nothing but interruptions would happen."""

LAST_RESORT_S: Final = 5.0
"""Seconds of CPU beyond those of a call after which the process is ended (`end_what_hangs`)."""

_last_resort = False


def end_what_hangs(traceback: TextIO) -> None:
    """Have this process end, from now on, where a call does not end and cannot be interrupted; where it stood is written to a file.

    That is code in C that does not return to Python, or a handler that catches every interruption. The kernel ends the process, which
    needs nothing of Python, and costs 3 us a call.
    """
    global _last_resort
    faulthandler.register(signal.SIGPROF, file=traceback, all_threads=False, chain=True)
    _last_resort = True


class Watchdog:
    """Interrupts a plugin's call by a signal after ``seconds_max``; makes a context manager for each call, which may be itself.

    Whatever the call makes of the interruption, `HandlerInterrupted` is how it ends.
    Signals reach the main thread alone, in which Spark's Python workers run; in another thread nothing is watched. Code in C is not
    interrupted before it returns to Python; `end_what_hangs` ends a process for which that takes too long.
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
            if _last_resort:
                signal.setitimer(signal.ITIMER_PROF, self._seconds_max + LAST_RESORT_S)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watching:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGALRM, self._before)
        if self._fired and not isinstance(error, HandlerInterrupted):
            raise self._interruption() from None  # the handler made something else of it, or nothing at all

    def _interrupt(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self._fired and signal.getitimer(signal.ITIMER_REAL)[1] > INSISTING_S:
            signal.setitimer(signal.ITIMER_REAL, INSISTING_S, INSISTING_S)
        self._fired = True
        if frame is None or frame.f_code not in _OWN:  # raised in these, it would leave the timer running
            raise self._interruption()

    def _interruption(self) -> HandlerInterrupted:
        return HandlerInterrupted(f"it did not end within {self._seconds_max:g} seconds")


_OWN: Final = (Watchdog.__enter__.__code__, Watchdog.__exit__.__code__)
"""Where the interruption is only remembered."""
