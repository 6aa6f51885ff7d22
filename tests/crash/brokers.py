# SPDX-License-Identifier: Apache-2.0
"""The brokers of a world: the embedded one, or three of them, of which a kill names one by what it does at the moment."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Protocol

from confluent_kafka import KafkaException

from streaming.run import job_group
from tests.brokers import OFFSETS, TRANSACTIONS, Cluster
from validator.checkpoint.markers import group_of
from validator.kafka.broker import EmbeddedBroker
from validator.topics import TOPICS

CONTROLLER = "controller"
TRANSACTION_COORDINATOR = "transaction coordinator"
GROUP_COORDINATOR = "group coordinator"
LEADER = "leader of "

ROLES = (
    CONTROLLER,
    TRANSACTION_COORDINATOR,
    GROUP_COORDINATOR,
    *(LEADER + name for name in (TRANSACTIONS, OFFSETS)),
    *(LEADER + topic.name for topic in TOPICS),
)
"""What a broker of several is killed as. A coordinator is the one of a random lane, or of the job's group; of an internal topic with
several partitions, a random one counts."""

LED_S_MAX = 120.0
"""Seconds after which some broker must have a role."""


class Brokers(Protocol):
    """What a world needs of its brokers."""

    def start(self) -> None: ...
    def stop(self) -> None: ...

    @property
    def kafka(self) -> dict[str, Any]: ...

    @property
    def logs(self) -> list[Path]: ...

    def restart_dead(self, pause_s: float) -> None:
        """Start what does not run, ``pause_s`` after its death."""

    def playing(self, role: str = "") -> EmbeddedBroker:
        """Return the broker that has a role, or a random one of `ROLES`."""

    def whole(self) -> bool:
        """Return whether all brokers run and every replica is in sync."""


class OneBroker:
    """The embedded broker, which has every role."""

    def __init__(self, folder: Path) -> None:
        self._broker = EmbeddedBroker(folder / "broker")

    def start(self) -> None:
        self._broker.start()
        self.kafka: dict[str, Any] = self._broker.kafka

    def stop(self) -> None:
        self._broker.stop()

    @property
    def logs(self) -> list[Path]:
        return [self._broker.log]

    def restart_dead(self, pause_s: float) -> None:
        if not self._broker.status().running:
            time.sleep(pause_s)
            before = self.kafka["bootstrap.servers"]
            if self._broker.start() != before:
                raise RuntimeError(f"the broker did not get its port back: {before}")

    def playing(self, role: str = "") -> EmbeddedBroker:
        del role
        return self._broker

    def whole(self) -> bool:
        return self._broker.status().running


class ThreeBrokers:
    """Three nodes of a cluster; a dead one is started again while the others continue."""

    def __init__(self, folder: Path, prefix: str, lanes: Sequence[str], random: Random) -> None:
        self.cluster = Cluster(folder / "brokers")
        self._prefix = prefix
        self._lanes = lanes
        self._random = random
        self._dead_since: dict[int, float] = {}

    def start(self) -> None:
        self.cluster.__enter__()

    def stop(self) -> None:
        self.cluster.__exit__()

    @property
    def kafka(self) -> dict[str, Any]:
        return self.cluster.kafka

    @property
    def logs(self) -> list[Path]:
        return [node.log for node in self.cluster.nodes.values()]

    def restart_dead(self, pause_s: float) -> None:
        now, running = time.monotonic(), self.cluster.running
        for number, node in self.cluster.nodes.items():
            if number in running:
                self._dead_since.pop(number, None)
            elif now - self._dead_since.setdefault(number, now) >= pause_s:
                node.launch()

    def playing(self, role: str = "") -> EmbeddedBroker:
        return self.cluster.nodes[self.number(role)]

    def number(self, role: str = "") -> int:
        """Return the node that has a role; waits for an election."""
        role = role or self._random.choice(ROLES)
        deadline = time.monotonic() + LED_S_MAX
        while (number := self._number(role)) not in self.cluster.nodes:
            if time.monotonic() > deadline:
                raise TimeoutError(f"after {LED_S_MAX:.0f} s no broker is {role}")
            self.restart_dead(0.0)
            time.sleep(0.1)
        return number

    def _number(self, role: str) -> int:
        cluster, prefix = self.cluster, self._prefix
        groups = [group_of(prefix, lane) for lane in self._lanes]  # transactional ids, too
        if role == CONTROLLER:
            return cluster.controller()
        if role == TRANSACTION_COORDINATOR:
            return cluster.transaction_coordinator(self._random.choice(groups))
        if role == GROUP_COORDINATOR:
            return cluster.group_coordinator(self._random.choice([*groups, job_group(prefix)]))
        topic = role.removeprefix(LEADER)
        leaders = cluster.leaders(topic if topic in (TRANSACTIONS, OFFSETS) else prefix + topic)
        return self._random.choice(sorted(leaders.values())) if leaders else -1

    def whole(self) -> bool:
        if len(self.cluster.running) < len(self.cluster.nodes):
            return False
        try:
            return not self.cluster.out_of_sync()
        except KafkaException:
            return False
