# SPDX-License-Identifier: Apache-2.0
"""Stops handlers that run too long. Only here does a clock affect handlers, and it never leads to a verdict.

A call is interrupted by a signal. What no signal interrupts, such as C code that waits for a lock, or a handler that blocks signals, ends
with its process: that shows the call that it is in to another process, which looks at its own clock (`CallsSeen`).
"""

from __future__ import annotations

import mmap
import signal
import sys
import threading
from traceback import walk_stack
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final

from validator.core.handlers.dispatch import frames_of, line_in_plugin
from validator.core.handlers.errors import HandlerInterrupted

if TYPE_CHECKING:
    from validator.core.handlers.handler import BoundHandler

HANDLER_SECONDS_MAX_DEFAULT: Final = 10.0
"""Seconds that a handler may spend on one message before the lane is parked."""

AGAIN_S: Final = 0.1
"""Seconds until a handler that caught the first interruption is interrupted again."""

INSISTING_S: Final = 2e-4
"""Seconds between interruptions from the second one on. Among this many, one hits a loop of bare ``except:`` at a point that does not catch
it. A much shorter interval would be less than the time an interruption takes, and the code could make no progress."""

LAST_RESORT_S: Final = 5.0
"""Seconds beyond the limit of a call after which its process is ended."""

BLOCK_CALLS_MAX: Final = 6
"""Times the limit of a call that the process of a lane may take for a block, or to end its batch: all calls of the block together."""

RECOVERY_CALLS_MAX: Final = 60
"""Times the limit of a call that it may take to import plugins, and to bring its lane back into memory."""

BYTES_PER_S: Final = 1024 * 1024
"""Bytes of inputs, state or output that such a process is given a second for, besides these limits."""

LOOK_S: Final = 1.0
"""Seconds between two looks at the call that a process is in, about."""

NAME_BYTES_MAX: Final = 512
"""Bytes of a handler's name that a process shows."""

_NAME_AT: Final = 64
_NO_PARA: Final = 2**64 - 1


class CallsShown:
    """The call that this process is in, on a page of memory that another process sees.

    The page has a number, odd during a call; the block and the para whose message it is; and a name.
    """

    def __init__(self, page: mmap.mmap) -> None:
        self._page = page
        self._number = memoryview(page).cast("Q")
        self._named: object = None

    def enter(self, bound: BoundHandler, block: int, para: int | None) -> None:
        """Show that a call of a handler begins."""
        self._number[1] = block
        self._number[2] = _NO_PARA if para is None else para
        if bound is not self._named:
            self._named = bound
            name = f"{bound.name} ({bound.handler.kind})".encode()[:NAME_BYTES_MAX]
            self._page[_NAME_AT : _NAME_AT + len(name) + 1] = name + b"\0"
        self._number[0] += 1

    @property
    def has_entered(self) -> bool:
        """Whether there was a call."""
        return self._named is not None

    def leave(self) -> None:
        """Show that it has ended."""
        self._number[0] += 1


class CallsSeen:
    """The call that another process is in. `look` is called about every `LOOK_S` seconds by one that is stopped with it, if at all."""

    def __init__(self, page: mmap.mmap) -> None:
        self._page = page
        self._last = 0
        self._looks = 0

    def look(self) -> float:
        """Return for how many seconds, about, the process has been in one and the same call."""
        number = int.from_bytes(self._page[:8], "little")
        self._looks = self._looks + 1 if number % 2 and number == self._last else 0
        self._last = number
        return self._looks * LOOK_S

    @property
    def inside(self) -> bool:
        """Whether the process is in a call, or has died in one."""
        return bool(self._page[0] % 2)

    def place(self) -> tuple[int, int | None] | None:
        """Return the block of the last call, and the para whose message it was, if that is known; None if there was no call."""
        number, block, para = (int.from_bytes(self._page[at : at + 8], "little") for at in (0, 8, 16))
        return (block, None if para == _NO_PARA else para) if number else None

    def name(self) -> str:
        """Return the name of the last handler that was called, empty if there was none."""
        shown = bytes(self._page[_NAME_AT : _NAME_AT + NAME_BYTES_MAX + 1])
        return shown.partition(b"\0")[0].decode("utf-8", "replace")


_shown: CallsShown | None = None


def show_calls(page: mmap.mmap) -> None:
    """From now on, show the calls of this process on a page."""
    global _shown
    _shown = CallsShown(page)


def handlers_were_called() -> bool:
    """Return whether this process shows its calls, and has shown one: whatever goes wrong in it then, a handler may have caused."""
    return _shown is not None and _shown.has_entered


class Watchdog:
    """Interrupts a plugin's call with a signal after ``seconds_max``; calling the watchdog returns the context manager for one call.

    An interrupted call always ends with `HandlerInterrupted`, even if the handler catches the interruption; so does one that changes the
    interpreter's recursion limit, since how deep it then gets depends on the process. Signals reach only the main
    thread; calls in other threads are not watched. C code is not interrupted before it returns to Python.
    """

    def __init__(self, seconds_max: float = HANDLER_SECONDS_MAX_DEFAULT) -> None:
        self._seconds_max = seconds_max
        self._before: Any = None
        self._watching = False
        self._fired = False
        self._line = ""
        self._depth_max = 0

    def __call__(self, bound: BoundHandler, block: int, para: int | None) -> Watchdog:
        """Return the context manager for a call of a handler with a message of a para, in a block."""
        if _shown is not None:
            _shown.enter(bound, block, para)
        return self

    def __enter__(self) -> None:
        self._fired = False
        self._depth_max = sys.getrecursionlimit()
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
        if _shown is not None:
            _shown.leave()
        if self._fired and not isinstance(error, HandlerInterrupted):
            raise self._interruption() from None  # the handler caught it, and maybe raised something else
        if sys.getrecursionlimit() != self._depth_max:
            sys.setrecursionlimit(self._depth_max)
            raise HandlerInterrupted("it changed the recursion limit") from None
        if _shown is not None and isinstance(error, KeyboardInterrupt):  # nobody's key reaches the process of a lane
            raise HandlerInterrupted(f"KeyboardInterrupt raised{line_in_plugin(frames_of(trace))}") from None

    def _interrupt(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if not self._fired:
            self._line = line_in_plugin(reversed(list(walk_stack(frame))))
        if self._fired and signal.getitimer(signal.ITIMER_REAL)[1] > INSISTING_S:
            signal.setitimer(signal.ITIMER_REAL, INSISTING_S, INSISTING_S)
        self._fired = True
        if frame is None or frame.f_code not in _OWN:  # raised in one of these, it would leave the timer running
            raise self._interruption()

    def _interruption(self) -> HandlerInterrupted:
        return HandlerInterrupted(f"it did not end within {self._seconds_max:g} seconds{self._line}")


_OWN: Final = (Watchdog.__enter__.__code__, Watchdog.__exit__.__code__, CallsShown.leave.__code__)
"""Code in which an interruption is only recorded."""
