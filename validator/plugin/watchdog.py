# SPDX-License-Identifier: Apache-2.0
"""Stops handlers that run too long. Only here does a clock affect handlers, and it never leads to a verdict."""

from __future__ import annotations

import faulthandler
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Final, TextIO

from validator.core.handlers.errors import HandlerInterrupted

HANDLER_SECONDS_MAX_DEFAULT: Final = 10.0
"""Seconds that a handler may spend on one message before the query stops."""

AGAIN_S: Final = 0.1
"""Seconds until a handler that caught the first interruption is interrupted again."""

INSISTING_S: Final = 2e-4
"""Seconds between interruptions from the second one on. Among this many, one hits a loop of bare ``except:`` at a point that does not catch
it. A much shorter interval would be less than the time an interruption takes, and the code could make no progress."""

LAST_RESORT_S: Final = 5.0
"""CPU seconds beyond the limit of a call after which the kernel ends the process (`end_what_hangs`)."""

_last_resort = False


def end_what_hangs(traceback: TextIO) -> None:
    """From now on, end this process if a call hangs and cannot be interrupted; its stack is written to ``traceback``.

    This covers C code that does not return to Python, and handlers that catch every interruption. The kernel ends the process without any
    help from Python. The cost is 3 us per call.
    """
    global _last_resort
    faulthandler.register(signal.SIGPROF, file=traceback, all_threads=False, chain=True)
    _last_resort = True


class Watchdog:
    """Interrupts a plugin's call with a signal after ``seconds_max``; calling the watchdog returns the context manager for one call.

    An interrupted call always ends with `HandlerInterrupted`, even if the handler catches the interruption. Signals reach only the main
    thread, in which Spark's Python workers run; calls in other threads are not watched. C code is not interrupted before it returns to
    Python; `end_what_hangs` ends a process in which that takes too long.
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
            raise self._interruption() from None  # the handler caught it, and maybe raised something else

    def _interrupt(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self._fired and signal.getitimer(signal.ITIMER_REAL)[1] > INSISTING_S:
            signal.setitimer(signal.ITIMER_REAL, INSISTING_S, INSISTING_S)
        self._fired = True
        if frame is None or frame.f_code not in _OWN:  # raised in one of these, it would leave the timer running
            raise self._interruption()

    def _interruption(self) -> HandlerInterrupted:
        return HandlerInterrupted(f"it did not end within {self._seconds_max:g} seconds")


_OWN: Final = (Watchdog.__enter__.__code__, Watchdog.__exit__.__code__)
"""Code in which an interruption is only recorded."""
