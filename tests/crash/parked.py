# SPDX-License-Identifier: Apache-2.0
"""A lane that is parked because its worker was killed three times at one point, and kills while it is parked and while it resumes."""

from __future__ import annotations

import signal

from tests.crash.processes import jvm_of, of_session, send, workers_of
from tests.crash.world import Failure, World

KILLS_MAX = 12
"""Kills of the lane's worker after which it must be parked; three would do if nothing else delayed the driver's count."""

WHILE_PARKED = ("worker", "broker", "machine", "jvm")
WHILE_RESUMING = ("begin-after", "commit-during", "head-after")
"""Steps at which the lane's worker or the broker is killed once it has its order."""


class ParkedEpisode:
    """One lane is parked and resumes; all the time each lane's output is compared as it arrives."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._name = world, name
        self._lane = world.random.choice([chain.lane for chain in world.chains])
        self._kills = 0

    def run(self) -> tuple[str, int]:
        """Return a note and the number of killed processes."""
        self._park()
        for victim in WHILE_PARKED:
            self._others_go_on(victim)
        self._resume()
        return (
            f"{self._lane} parked, {len(WHILE_PARKED)} kills meanwhile, resumed through {len(WHILE_RESUMING)}",
            self._kills,
        )

    def _park(self) -> None:
        """Let a batch have this lane alone, and kill its worker each time that it executes the lane."""
        world, reader = self._world, self._world.reader
        segment = world.traffic.segment()
        own = [sent for sent in segment if sent.key == self._lane.encode()]
        for number in range(KILLS_MAX):
            identity = f"{self._name}-{number}"
            before, parking = world.logged["restarting"], world.logged["parking"]
            world.arm("head-before", ("worker",), identity)
            if not number:
                world.feed(own)
            world.wait(lambda at=identity: world.fired(at), "the lane's worker is killed")
            self._kills += 1
            world.wait(lambda before=before: world.logged["restarting"] > before, "the job begins the batch again")
            if world.logged["parking"] > parking:
                break
        world.wait(self._is_parked, f"lane {self._lane} is parked")
        if reader.parked[self._lane]["fault"] != "worker":
            raise Failure(f"lane {self._lane} is parked for another reason: {reader.parked[self._lane]}")
        world.feed([sent for sent in segment if sent not in own])
        self._await_others()

    def _is_parked(self) -> bool:
        return self._world.reader.parked.get(self._lane, {}).get("state") == "parked"

    def _others_go_on(self, victim: str) -> None:
        world = self._world
        segment = world.traffic.segment()
        half = len(segment) // 2
        world.feed(segment[:half])
        self._strike(victim)
        world.feed(segment[half:])
        self._await_others()
        if not self._is_parked():
            raise Failure(f"lane {self._lane} continued without an order after the death of the {victim}")

    def _await_others(self) -> None:
        reader = self._world.reader
        self._world.wait(lambda: reader.complete_but(self._lane), "all output of the other lanes has arrived")

    def _strike(self, victim: str) -> None:
        world, job = self._world, self._world.job
        assert job is not None
        assert job.pid is not None
        match victim:
            case "worker":
                self._kills += send(signal.SIGKILL, *workers_of(job.pid, "lanes")[:1])
            case "broker":
                self._kills += send(signal.SIGKILL, world.brokers.playing().status().pid)
            case "jvm":
                self._kills += send(signal.SIGKILL, jvm_of(job.pid))
            case _:
                self._kills += send(signal.SIGKILL, *(each.pid for each in of_session(job.pid)))

    def _resume(self) -> None:
        world = self._world
        for number, step in enumerate(WHILE_RESUMING):
            world.arm(step, ("broker" if step == "commit-during" else "worker",), f"{self._name}-resuming-{number}")
            if not number:
                world.feed_order(self._lane)
            world.wait(
                lambda at=number: world.fired(f"{self._name}-resuming-{at}") or self._runs(), f"step {step} is reached"
            )
            world.disarm()
            self._kills += world.fired(f"{self._name}-resuming-{number}")
        world.wait(self._runs, f"lane {self._lane} runs again")
        world.settle()

    def _runs(self) -> bool:
        return self._world.reader.parked.get(self._lane, {}).get("state") == "running"
