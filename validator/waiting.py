# SPDX-License-Identifier: Apache-2.0
"""Waits while something outside is away, such as Kafka or space on a disk: with growing pauses, each of them reported, and not forever."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from validator.errors import GivenUp, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

PAUSE_S_MIN: Final = 1.0
"""Seconds of the first pause; each further one is twice as long."""

PAUSE_S_MAX: Final = 60.0
"""Seconds of the longest pause: so long after its return, at most, something that was away is in use again."""

SLICE_S: Final = 0.2
"""Seconds after which a pause notices a request to stop."""


class Pause(NamedTuple):
    """One pause: why, how long, how long the outage has lasted by now, and how long it may; all times in seconds."""

    reason: str
    seconds: float
    waited_s: float
    give_up_after_s: float

    def event(self) -> dict[str, Any]:
        """Return the pause as fields of the job's log."""
        return {
            "reason": self.reason,
            "seconds": round(self.seconds, 1),
            "waited": round(self.waited_s, 1),
            "give_up_after": self.give_up_after_s,
        }


class Patience:
    """How long outages may last, each of them by itself. An outage begins with its first failure, and ends with `ended`."""

    def __init__(
        self,
        give_up_after_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._give_up_after_s = give_up_after_s
        self._clock, self._sleep = clock, sleep
        self._began: float | None = None
        self._next_s = PAUSE_S_MIN

    def ended(self) -> None:
        """Let the next failure begin another outage."""
        self._began, self._next_s = None, PAUSE_S_MIN

    def pause(self, reason: str) -> Pause:
        """Return the pause after a failure. Raises `GivenUp` if the outage has lasted too long."""
        now = self._clock()
        self._began = now if self._began is None else self._began
        waited_s = now - self._began
        left_s = self._give_up_after_s - waited_s
        if left_s <= 0:
            raise GivenUp(f"{reason}; gave up after {waited_s:.0f} s, [job] give_up_after is {self._give_up_after_s:g}")
        seconds = min(self._next_s, left_s)
        self._next_s = min(2 * self._next_s, PAUSE_S_MAX)
        return Pause(reason, seconds, waited_s, self._give_up_after_s)

    def sleep(self, seconds: float, stopping: Callable[[], bool] = lambda: False) -> None:
        """Wait, or until ``stopping`` returns true."""
        end = self._clock() + seconds
        while (left_s := end - self._clock()) > 0 and not stopping():
            self._sleep(min(left_s, SLICE_S))


def wait_out(
    attempt: Callable[[], T],
    patience: Patience,
    on_pause: Callable[[Pause], None],
    stopping: Callable[[], bool] = lambda: False,
) -> T:
    """Return what ``attempt`` returns; repeat it after a pause while it raises `Unavailable`.

    Raises `GivenUp`, `Unavailable` after a request to stop, and everything else that ``attempt`` raises.
    """
    while True:
        try:
            result = attempt()
        except Unavailable as error:
            pause = patience.pause(str(error))
            on_pause(pause)
            patience.sleep(pause.seconds, stopping)
            if stopping():
                raise
        else:
            patience.ended()
            return result
