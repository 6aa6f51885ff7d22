# SPDX-License-Identifier: Apache-2.0
"""What runs at the same time as the job, step by step: another attempt at its task, or a job that was thought dead.

A strand is a thread, but only one strand runs at any moment: it continues when it is resumed, and hands back at one of its steps. The
schedule therefore determines the order of all steps, and the simulated code is unaware of it.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, Thread

from tests.simulation.schedule import Schedule

STRANDS_MAX = 3


class StrandEnded(BaseException):
    """Raised in a strand that must end; no `except Exception` catches it."""


class Strand:
    """One call that runs in parallel with the job."""

    def __init__(self, name: str, call: Callable[[], None]) -> None:
        self.name = name
        self.ended = False
        self._call = call
        self._dropped = False
        self._error: BaseException | None = None
        self._own_turn, self._jobs_turn = Lock(), Lock()
        self._own_turn.acquire()
        self._jobs_turn.acquire()
        Thread(target=self._run, daemon=True).start()

    def resume(self) -> None:
        """Let it run to its next pause, or to its end; raises what it raises."""
        self._own_turn.release()
        self._jobs_turn.acquire()
        if self._error is not None:
            raise self._error

    def pause(self) -> None:
        """Hand back to the job; called in the strand."""
        self._jobs_turn.release()
        self._own_turn.acquire()
        if self._dropped:
            raise StrandEnded

    def drop(self) -> None:
        """End the strand at its current step."""
        self._dropped = True
        self.resume()

    def _run(self) -> None:
        self._own_turn.acquire()
        try:
            if not self._dropped:
                self._call()
        except StrandEnded:
            pass
        except BaseException as error:  # noqa: BLE001 - the job raises it: `resume`
            self._error = error
        self.ended = True
        self._jobs_turn.release()


class Strands:
    """Everything that runs in parallel with the job of a schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._live: list[Strand] = []
        self._here: Strand | None = None
        self._pause_rate = schedule.choose((0.02, 0.1, 0.4))
        self._resume_rate = schedule.choose((0.02, 0.1, 0.4))

    def may_start(self) -> bool:
        """Return whether another strand may start here; only the job starts them."""
        return self._here is None and len(self._live) < STRANDS_MAX and not self._schedule.quiet

    def any_live(self) -> bool:
        """Return whether any strand is live."""
        return bool(self._live)

    def start(self, name: str, call: Callable[[], None]) -> Strand:
        """Start a strand, which runs from the next steps on."""
        strand = Strand(name, call)
        self._live.append(strand)
        return strand

    def step(self) -> None:
        """Pass a step, at which another strand may run."""
        if self._here is not None:
            if self._schedule.chance(self._pause_rate):
                self._here.pause()
        elif self._live:
            for strand in list(self._live):
                if self._schedule.chance(self._resume_rate):
                    self._switch_to(strand, strand.resume)

    def finish(self, strand: Strand) -> None:
        """Wait until a strand has ended."""
        while not strand.ended:
            self._switch_to(strand, strand.resume)

    def drop(self, strand: Strand) -> None:
        """End a strand at its current step."""
        if not strand.ended:
            self._switch_to(strand, strand.drop)

    def drop_all(self) -> None:
        """End all strands."""
        for strand in list(self._live):
            self.drop(strand)

    def _switch_to(self, strand: Strand, how: Callable[[], None]) -> None:
        self._here, self._schedule.who = strand, strand.name
        try:
            how()
        finally:
            self._here, self._schedule.who = None, ""
            if strand.ended:
                self._live.remove(strand)
