# SPDX-License-Identifier: Apache-2.0
"""Whether a lane's process gets on, by what its worker sees: what the process shows of its calls may be anything.

Looks are counted, and not the time between them: what stops both processes is nobody's fault.
"""

from __future__ import annotations

from typing import Final

from validator.lanes.apart.wire import Say, Wire
from validator.plugin.watchdog import BLOCK_CALLS_MAX, BYTES_PER_S, LOOK_S, RECOVERY_CALLS_MAX

_RECOVERS: Final = (Say.LOAD_SLOTS, Say.LOAD_JOURNAL)
"""What a process asks for to bring its lane back into memory."""


class Pace:
    """What a process has completed in time, in one batch after the other."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._call_s = float("inf")
        self._last_resort_s = 0.0
        self._what = ""
        """What takes the time of a recovery, empty if nothing does."""
        self._may_recover = False
        """Whether it can begin to bring its lane back: once in a batch."""
        self._bytes = 0
        """Bytes that were said and heard in this batch."""
        self._looks = 0
        """How often it was looked at since it got on."""
        self._frame, self._frame_looks = 0, 0
        """A frame that had begun when it was looked at, and how often that was so."""

    def begin(self, call_s: float, last_resort_s: float, *, imports: bool, may_recover: bool) -> None:
        """Begin a batch, in which a call may take some seconds."""
        self._call_s, self._last_resort_s = call_s, last_resort_s
        self._what, self._may_recover = "the import of its plugins" if imports else "", may_recover
        self._bytes = self._looks = 0

    def said(self, size: int) -> None:
        """Note bytes that it gets."""
        self._bytes += size

    def heard(self, say: Say, size: int) -> None:
        """Note a frame of it."""
        self._bytes += size
        if say in _RECOVERS and self._may_recover:
            self.got_on()
            self._what, self._may_recover = "its recovery", False
        elif say is Say.LOADED or (say is Say.RECOVERED and self._what):
            self.got_on()

    def got_on(self) -> None:
        """Note that it has completed something: from now on it has the time of a block."""
        self._what, self._looks = "", 0

    def overdue(self) -> str:
        """Return in words what it has not completed in time, empty if there is nothing. Called about every `LOOK_S` seconds of waiting."""
        self._looks += 1
        most = (RECOVERY_CALLS_MAX if self._what else BLOCK_CALLS_MAX) * self._call_s + self._last_resort_s
        most += self._bytes / BYTES_PER_S
        if self._looks * LOOK_S >= most:
            return f"its process did not complete {self._what or 'a block or its batch'} within {most:.0f} seconds"
        begun = self._wire.begun if self._wire.begun != self._wire.arrived else 0
        self._frame_looks = self._frame_looks + 1 if begun and begun == self._frame else 0
        self._frame = begun
        if self._frame_looks * LOOK_S >= self._call_s + self._last_resort_s:
            return "its process did not end what it began to send"
        return ""
