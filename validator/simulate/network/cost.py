# SPDX-License-Identifier: Apache-2.0
"""What it costs in bytes to bring a body to its recipient, by means of transport.

The optimum is one transfer for each body and recipient.
"""

from __future__ import annotations

from dataclasses import dataclass

from validator.simulate.network.settings import NetworkSettings


@dataclass(frozen=True, slots=True)
class Cost:
    """The bytes that a transport moves for the bodies of a run, and that number divided by the optimum."""

    transport: str
    bytes: int
    amplification: float


def flooding_copies(nodes: int, degree: int) -> int:
    """Return how often a body is sent on a connected mesh in which every node has ``degree`` neighbours.

    The source sends it to all of them, every other node to all but the one that it came from: N D - (N - 1).
    """
    return nodes * degree - (nodes - 1)


def kafka_copies(replication_factor: int, consumer_groups: int) -> int:
    """Return how often a body crosses the network: to each replica, the first one included, and to each group."""
    return replication_factor + consumer_groups


def costs(settings: NetworkSettings, optimum_bytes: int, transferred_bytes: int) -> tuple[Cost, ...]:
    """Return the cost of each transport for bodies of ``optimum_bytes``; ``transferred_bytes`` were sent directly, re-requests included."""
    moved = {
        "optimum": optimum_bytes,
        "direct": transferred_bytes,
        "kafka": optimum_bytes * kafka_copies(settings.replication_factor, settings.consumer_groups),
        "tree": optimum_bytes * (settings.mesh_nodes - 1),
        "flooding": optimum_bytes * flooding_copies(settings.mesh_nodes, settings.mesh_degree),
    }
    return tuple(Cost(name, sent, sent / optimum_bytes if optimum_bytes else 1.0) for name, sent in moved.items())
