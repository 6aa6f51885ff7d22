# SPDX-License-Identifier: Apache-2.0
"""Three embedded brokers as one cluster, each broker and controller: what one machine with one broker cannot show.

Every topic has three replicas and needs two in sync, internal topics included. Nodes are killed, stopped, continued and started again
one by one. Each finds the others, and clients find each, at its own loopback address (`tests.links`), so a node can be cut off from
its peers, from clients or from both: a node's names for its peers are in a hosts file
that only its JVM reads. Linux only, no rights needed.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, PartitionMetadata

from tests.links import HOST, Link, Links
from validator.kafka.broker import FILE as SECRET
from validator.kafka.broker import EmbeddedBroker, _free_ports, kept_secret, new_cluster_id, server_login
from validator.kafka.jars import ensure_jars
from validator.kafka.java import find_java
from validator.kafka.settings import admin_config
from validator.private import alone, make_private, write_private

NODES: Final = (1, 2, 3)

OFFSETS: Final = "__consumer_offsets"
TRANSACTIONS: Final = "__transaction_state"

WHOLE_S_MAX: Final = 180.0
"""Seconds until a cluster whose nodes all run must have every replica in sync."""

ASK_S: Final = 5.0
"""Seconds for one question to the cluster; another one follows."""

_PROPERTIES: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    # Three JVMs, Spark and the tests share two cores: a node that waits for one of them is not dead (one broker: 3 s).
    "broker.session.timeout.ms": "6000",
    # A follower that was stopped leaves the replicas in sync when its session ends, at the latest (default: 30 s).
    "replica.lag.time.max.ms": "6000",
    # The dead leave soon, and who comes back leads again soon (default: 300 s).
    "leader.imbalance.check.interval.seconds": "10",
    "controlled.shutdown.retry.backoff.ms": "500",
}


class Node(EmbeddedBroker):
    """One broker of the cluster, in its own folder."""

    def __init__(self, cluster: Cluster, number: int, ports: Sequence[int]) -> None:
        super().__init__(cluster.folder / f"node-{number}", ports[0])
        self.number = number
        self.client_port, self.peer_port, self.controller_port = ports
        self._cluster = cluster
        self._jvm = (*self._jvm, f"-Djdk.net.hosts.file={self.directory / 'hosts'}")

    @property
    def pid(self) -> int | None:
        """The process, if it runs."""
        return self.status().pid

    def prepare(self, secret: str) -> None:
        """Write what a start expects in the folder."""
        make_private(self.directory)
        write_private(self.directory / SECRET, secret)
        lines = [f"{HOST if each == self.number else _between(self.number, each)} {_name(each)}\n" for each in NODES]
        (self.directory / "hosts").write_text("".join([*lines, f"{HOST} localhost\n"]), encoding="ascii")

    def launch(self) -> None:
        """Start the process unless it runs, and return at once."""
        with alone(self.directory / "broker.lock"):
            if self._running() is None:
                self._spawn(find_java(), ensure_jars())

    def send(self, number: signal.Signals) -> bool:
        """Send a signal to the process; return whether it runs."""
        pid = self.pid
        if pid is None:
            return False
        os.kill(pid, number)
        return True

    def kill(self) -> bool:
        """Kill the process, as a machine that loses its power; return whether one ran."""
        killed = self.send(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
        return killed

    def quorum(self) -> tuple[int, int]:
        """Return epoch and node of the last active controller that this node knows of; -1 for a node that it does not know."""
        with suppress(OSError, ValueError, KeyError):
            found = json.loads((self.directory / "data" / "__cluster_metadata-0" / "quorum-state").read_text())
            return int(found["leaderEpoch"]), int(found["leaderId"])
        return -1, -1

    def _own_password(self) -> str:
        return self._cluster.own

    def _cluster_id(self) -> str:
        return self._cluster.identity

    def _properties(self, port: int, controller_port: int, own: str) -> str:
        del controller_port  # the others must know it before this node starts
        nodes = self._cluster.nodes
        listens = {"CLIENT": port, "BROKER": self.peer_port, "CONTROLLER": self.controller_port}
        known = {"CLIENT": _outside(self.number), "BROKER": _name(self.number), "CONTROLLER": _name(self.number)}
        changed = _PROPERTIES | {
            "node.id": str(self.number),
            "listeners": ",".join(f"{name}://{HOST}:{at}" for name, at in listens.items()),
            "advertised.listeners": ",".join(f"{name}://{known[name]}:{at}" for name, at in listens.items()),
            "controller.quorum.voters": ",".join(
                f"{each.number}@{_name(each.number)}:{each.controller_port}" for each in nodes.values()
            ),
            "listener.security.protocol.map": ",".join(f"{name}:SASL_PLAINTEXT" for name in listens),
            # clients come in as they do on the embedded broker's only listener
            **{
                name.replace(".broker.", ".client."): value
                for name, value in server_login(own).items()
                if ".broker." in name
            },
        }
        # the last value of a name counts
        return super()._properties(port, self.controller_port, own) + "".join(
            f"{name}={value}\n" for name, value in changed.items()
        )


class Cluster:
    """Three nodes below a folder; from entry to exit their links are served, and on exit no node runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.identity = new_cluster_id()
        self.own = os.urandom(32).hex()
        ports = _free_ports(*[None] * (3 * len(NODES)))
        self.nodes: dict[int, Node] = {}
        for number in NODES:
            self.nodes[number] = Node(self, number, ports[3 * (number - 1) : 3 * number])
        self._outside = {each.number: Link(_outside(each.number), each.client_port) for each in self.nodes.values()}
        self._inside = {
            (one, other.number): [
                Link(_between(one, other.number), port) for port in (other.peer_port, other.controller_port)
            ]
            for one in NODES
            for other in self.nodes.values()
            if other.number != one
        }
        self._links = Links([*self._outside.values(), *(link for links in self._inside.values() for link in links)])
        self._admin: AdminClient | None = None

    # --- start and end ---

    def __enter__(self) -> Self:
        make_private(self.folder)
        secret = kept_secret(self.folder)
        self._links.__enter__()
        try:
            for node in self.nodes.values():
                node.prepare(secret)
            with ThreadPoolExecutor(len(NODES)) as pool:  # none answers before a majority runs
                list(pool.map(Node.start, self.nodes.values()))
            self.wait_until_whole()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.kill()  # a clean stop of the last node would wait for a majority that is gone
        self._links.__exit__()

    @property
    def kafka(self) -> dict[str, object]:
        """Return the `[kafka]` table of clients."""
        return self.kafka_of(*self.nodes)

    def kafka_of(self, *numbers: int) -> dict[str, object]:
        """Return the `[kafka]` table of clients that at first know some nodes only."""
        return self.nodes[1].with_login(",".join(f"{_outside(n)}:{self.nodes[n].client_port}" for n in numbers))

    @property
    def running(self) -> set[int]:
        """The nodes whose process exists, stopped or not."""
        return {number for number, node in self.nodes.items() if node.pid is not None}

    def restart_dead(self) -> set[int]:
        """Start the nodes that do not run, and return them at once."""
        dead = set(self.nodes) - self.running
        for number in dead:
            self.nodes[number].launch()
        return dead

    def wait_until_whole(self) -> None:
        """Return once every replica of every partition is in sync on a node that runs, and all nodes know it.

        A node that was cut off names the leaders of that time for a while.
        """
        self.wait(lambda: self.out_of_sync() == [] and self._agree(), "every replica is in sync, and all nodes know it")

    def _agree(self) -> bool:
        seen = []
        for number in self.nodes:
            try:
                found = AdminClient(admin_config(self.kafka_of(number))).list_topics(
                    timeout=ASK_S
                )  # asks the node it knows
            except KafkaException:
                return False
            seen.append(
                {
                    name: [part.leader for _, part in sorted(topic.partitions.items())]
                    for name, topic in found.topics.items()
                }
            )
        return all(each == seen[0] for each in seen)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition."""
        deadline = time.monotonic() + WHOLE_S_MAX
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {WHOLE_S_MAX:.0f} s in vain: {what}; running: {sorted(self.running)}")
            time.sleep(0.1)

    # --- what is where ---

    def out_of_sync(self) -> list[str]:
        """Return the partitions with a replica that is not in sync."""
        found = self._ask()
        if set(found.brokers) != set(NODES):
            return [f"nodes {sorted(set(NODES) - set(found.brokers))} are not known"]
        return [
            f"{name}/{number}"
            for name, topic in sorted(found.topics.items())
            for number, partition in topic.partitions.items()
            if set(partition.isrs) != set(partition.replicas) or partition.leader < 0
        ]

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the node that leads a partition, or -1."""
        return self.partition(topic, partition).leader

    def partition(self, topic: str, partition: int = 0) -> PartitionMetadata:
        """Return leader and replicas of a partition."""
        return self._ask(topic).topics[topic].partitions[partition]

    def leaders(self, topic: str) -> Mapping[int, int]:
        """Return the leader of each partition of a topic."""
        found = self._ask(topic).topics[topic]
        return {number: partition.leader for number, partition in found.partitions.items()}

    def _ask(self, topic: str | None = None) -> ClusterMetadata:
        """Return what any node says; one that is cut off or stopped may be asked first. Raises `KafkaException` if none answers."""
        deadline = time.monotonic() + WHOLE_S_MAX
        while True:
            try:
                return self.admin.list_topics(topic, timeout=ASK_S)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise

    def group_coordinator(self, group: str) -> int:
        """Return the node that coordinates a consumer group, or -1."""
        return self._coordinator(OFFSETS, group)

    def transaction_coordinator(self, transactional_id: str) -> int:
        """Return the node that coordinates the transactions of an id, or -1."""
        return self._coordinator(TRANSACTIONS, transactional_id)

    def _coordinator(self, topic: str, name: str) -> int:
        leaders = self.leaders(topic)
        return leaders[partition_of(name, len(leaders))] if leaders else -1

    def controller(self) -> int:
        """Return the active controller, or -1: brokers do not report it to clients, so it is read from the nodes' own folders."""
        return max(node.quorum() for node in self.nodes.values())[1]

    @property
    def admin(self) -> AdminClient:
        """A client that asks the cluster."""
        if self._admin is None:
            self._admin = AdminClient(
                admin_config(self.kafka) | {"reconnect.backoff.max.ms": 500, "socket.timeout.ms": 3_000}
            )
        return self._admin

    # --- faults ---

    @contextmanager
    def cut_off(self, number: int, *, peers: bool = True, clients: bool = True) -> Iterator[None]:
        """Cut a node off from its peers, clients or both: nothing passes, and nothing is closed."""
        links = self._links_of(number, peers=peers, clients=clients)
        _set(links, held=True)
        try:
            yield
        finally:
            _set(links, held=False)

    @contextmanager
    def stopped(self, *numbers: int) -> Iterator[None]:
        """Stop processes and continue them: machines that hang, whose connections stay open."""
        for number in numbers:
            self.nodes[number].send(signal.SIGSTOP)
        try:
            yield
        finally:
            for number in numbers:
                self.nodes[number].send(signal.SIGCONT)

    @contextmanager
    def slow_disk(self, number: int, *, stopped_s: float = 0.9, running_s: float = 0.1) -> Iterator[None]:
        """Stop and continue a node all the time: it stays alive and leads, but each answer takes up to seconds.

        This imitates a disk, or a machine, that stands still again and again; a disk that is slow at a constant rate would let the node's
        memory answer at once.
        """
        ended = threading.Event()
        node = self.nodes[number]

        def pulse() -> None:
            while not ended.is_set() and node.send(signal.SIGSTOP):
                ended.wait(stopped_s)
                node.send(signal.SIGCONT)
                ended.wait(running_s)

        thread = threading.Thread(target=pulse, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _links_of(self, number: int, *, peers: bool, clients: bool) -> list[Link]:
        found = [self._outside[number]] if clients else []
        if peers:
            found += [link for ends, links in self._inside.items() if number in ends for link in links]
        return found


def partition_of(name: str, partitions: int) -> int:
    """Return the partition of an internal topic that has a group or a transactional id: Java's hash of the name, its sign bit cleared."""
    found = 0
    for unit in memoryview(name.encode("utf-16-le")).cast("H"):
        found = (31 * found + unit) & 0xFFFFFFFF
    return (found & 0x7FFFFFFF) % partitions


def _set(links: list[Link], *, held: bool) -> None:
    for link in links:
        link.held = held


def _name(number: int) -> str:
    return f"node-{number}"


def _outside(number: int) -> str:
    """Return the address at which clients find a node."""
    return f"127.0.10.{number}"


def _between(one: int, other: int) -> str:
    """Return the address at which a node finds another one."""
    return f"127.0.{20 + one}.{other}"
