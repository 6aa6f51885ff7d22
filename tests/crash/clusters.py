# SPDX-License-Identifier: Apache-2.0
"""Faults of a cluster of three brokers: two at once, each in turn, a hanging or slow one, one that is cut off."""

from __future__ import annotations

import signal
from contextlib import AbstractContextManager
from typing import Final

from tests.brokers import NODES, TRANSACTIONS
from tests.crash.brokers import CONTROLLER, GROUP_COORDINATOR, LEADER, TRANSACTION_COORDINATOR, ThreeBrokers
from tests.crash.world import World

MIN_ISR_LOST_S: Final = 60.0
"""Seconds for which two of three brokers hang: no partition takes a record, and no node may choose a leader."""

FAULT_S: Final = (8.0, 20.0)
"""Bounds of the seconds for which one broker hangs, is slow or is cut off: shorter and longer than its session with the controller."""

IMPORTANT: Final = (
    CONTROLLER, TRANSACTION_COORDINATOR, GROUP_COORDINATOR, LEADER + TRANSACTIONS, LEADER + "markers", LEADER + "verdicts",
    LEADER + "blocks",
)  # fmt: skip
"""Roles of which one is drawn for a fault that takes a while."""

CLUSTER_EPISODES: Final = (
    "two-brokers-at-once",
    "rolling-restart",
    "min-isr-lost",
    "broker-hangs",
    "broker-with-a-slow-disk",
    "broker-cut-off",
    "broker-cut-off-from-peers",
    "broker-cut-off-from-clients",
)


class ClusterEpisodes:
    """Each returns a note and the number of killed processes; traffic flows meanwhile, and the caller compares the output."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def _brokers(self) -> ThreeBrokers:
        assert isinstance(self._world.brokers, ThreeBrokers)
        return self._world.brokers

    # --- processes that end ---

    def two_brokers_at_once(self) -> tuple[str, int]:
        """Kill a broker and another one: the last replica in sync cannot take anything until one of them is back."""
        world, role = self._world, self._role()
        first = self._brokers.number(role)
        second = world.random.choice(sorted(set(NODES) - {first}))
        world.offer(world.traffic.segment())
        world.watch(world.random.uniform(0, 1.5))
        killed = sum(self._brokers.cluster.nodes[number].send(signal.SIGKILL) for number in (first, second))
        world.await_delivery()
        return f"{role} and another", killed

    def rolling_restart(self) -> tuple[str, int]:
        """Stop each broker as its operator would, the controller last, and start it again before the next."""
        world, cluster = self._world, self._brokers.cluster
        controller = self._brokers.number(CONTROLLER)
        for number in [*sorted(set(NODES) - {controller}), controller]:
            node = cluster.nodes[number]
            pid = node.pid
            node.send(signal.SIGTERM)
            world.feed(world.traffic.segment())
            world.wait(lambda node=node, pid=pid: node.pid not in (pid, None), "the broker runs again")  # type: ignore[misc]
            world.wait(self._brokers.whole, "every replica is in sync before the next broker is stopped")
        return "each of three", 0

    # --- processes that stay ---

    def min_isr_lost(self) -> tuple[str, int]:
        role = self._role()
        number = self._brokers.number(role)
        other = self._world.random.choice(sorted(set(NODES) - {number}))
        return self._during(self._brokers.cluster.stopped(number, other), f"{role} and another", MIN_ISR_LOST_S)

    def broker_hangs(self) -> tuple[str, int]:
        role = self._role()
        return self._during(self._brokers.cluster.stopped(self._brokers.number(role)), role)

    def broker_with_a_slow_disk(self) -> tuple[str, int]:
        role = self._role()
        return self._during(self._brokers.cluster.slow_disk(self._brokers.number(role)), role)

    def broker_cut_off(self) -> tuple[str, int]:
        return self._cut_off(peers=True, clients=True)

    def broker_cut_off_from_peers(self) -> tuple[str, int]:
        return self._cut_off(peers=True, clients=False)

    def broker_cut_off_from_clients(self) -> tuple[str, int]:
        return self._cut_off(peers=False, clients=True)

    def _cut_off(self, *, peers: bool, clients: bool) -> tuple[str, int]:
        role = self._role()
        return self._during(
            self._brokers.cluster.cut_off(self._brokers.number(role), peers=peers, clients=clients), role
        )

    def _during(self, fault: AbstractContextManager[None], role: str, seconds: float | None = None) -> tuple[str, int]:
        """Let traffic flow during a fault; whatever runs may wait, and must continue by itself."""
        world = self._world
        seconds = world.random.uniform(*FAULT_S) if seconds is None else seconds
        world.offer(world.traffic.segment())
        world.watch(world.random.uniform(0, 1.0))
        with fault:
            world.offer(world.traffic.segment())
            world.watch(seconds)
        world.await_delivery()
        return f"{role}, {seconds:.0f} s", 0

    def _role(self) -> str:
        return self._world.random.choice(IMPORTANT)
