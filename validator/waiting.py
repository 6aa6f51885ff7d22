# SPDX-License-Identifier: Apache-2.0
"""How long the product waits before it tries again: the pauses that grow, and the patience with what is away outside.

How long one question to Kafka is repeated stands in `validator.kafka.retry`, and the bound of each call that a lane waits for in
`validator.kafka.calls`. docs/limits.md names every other bound.

An outage, of Kafka or of space on a disk, is waited for with growing pauses, each of them reported, and not forever. It may begin in one
call and last through many others, of several places in the program, until one of them succeeds, and a request to stop ends a pause.
Libraries of retries (tenacity, stamina) bound one call at a time, and bring their clock.
"""

from __future__ import annotations

import time
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from validator.errors import GivenUp, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

DOUBLINGS_MAX: Final = 32


class Pauses(NamedTuple):
    """Seconds before another attempt: ``first_s`` after the first failure in a row, twice as long after each further one, with a bound."""

    first_s: float
    longest_s: float

    def after(self, failures: int) -> float:
        """Return the seconds after this many failures in a row."""
        return min(self.first_s * 2.0 ** min(failures - 1, DOUBLINGS_MAX), self.longest_s)


OUTAGE: Final = Pauses(1.0, 60.0)
"""Something outside is away: so long after its return, at most, it is in use again."""
RESTART: Final = Pauses(1.0, inf)
"""The job or its query has failed by itself; whoever starts it again bounds the attempts."""
FOLLOWER: Final = Pauses(1.0, 5.0)
"""What a person looks at cannot be read."""
UNFORESEEN_S: Final = 5.0
"""Seconds that a thread which only reports waits after an error that nobody has foreseen, and while it has nothing more to say."""

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
        self._failures = 0

    def ended(self) -> None:
        """Let the next failure begin another outage."""
        self._began, self._failures = None, 0

    def pause(self, reason: str) -> Pause:
        """Return the pause after a failure. Raises `GivenUp` if the outage has lasted too long."""
        now = self._clock()
        self._began = now if self._began is None else self._began
        waited_s = now - self._began
        left_s = self._give_up_after_s - waited_s
        if left_s <= 0:
            raise GivenUp(f"{reason}; gave up after {waited_s:.0f} s, [job] give_up_after is {self._give_up_after_s:g}")
        self._failures += 1
        return Pause(reason, min(OUTAGE.after(self._failures), left_s), waited_s, self._give_up_after_s)

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
