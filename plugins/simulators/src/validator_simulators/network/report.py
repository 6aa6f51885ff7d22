# SPDX-License-Identifier: Apache-2.0
"""The report of a run: figures of all recipients, of honest and greedy ones, and the bytes of each means of transport.

The optimum is one transfer for each body and recipient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from validator_simulators.network.metrics import Distribution, Tally, distribution, jain, mean
from validator_simulators.network.settings import NetworkSettings
from validator_simulators.network.world import Recipient, Sample, World


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


FORMAT: Final = "validator/network-simulation/1"
DIGITS: Final = 6
"""Decimal places of numbers in JSON."""


@dataclass(frozen=True, slots=True)
class Group:
    """What was measured at recipients of one kind. Shares are 0 to 1; fairness compares the senders of each recipient."""

    recipients: int
    offered_messages: int
    offered_bytes: int
    load: float  # offered bytes divided by what the recipients can take in
    refused_share: float  # of the offered messages, for either reason
    refused_full_messages: int
    refused_size_messages: int
    acknowledged_messages: int
    acknowledged_bytes: int
    lag_blocks: Distribution
    delivery_ms: Distribution
    jain_bytes: float  # mean over recipients
    jain_lag: float
    oldest_unread_blocks: int  # at the end
    starved_channels: int  # with unread messages, none of which was acknowledged
    queue_messages_mean: float  # of a recipient
    queue_messages_max: int
    builds: int
    stalled_blocks: int
    re_requests: int


@dataclass(frozen=True, slots=True)
class Law:
    """What theory expects of a run: the bound of the lag, and the share that overload makes the channels refuse.

    In overload all channels are full, so a message waits for the K messages of every channel: K times the sum of their mean sizes,
    divided by I. A recipient under a load above 1 refuses 1 - 1 / load of what is offered. Both hold for recipients that serve their
    senders fairly, with bodies that arrive in time, up to the rest of a block's budget that is too small for the next message.
    """

    lag_blocks_max: float
    refused_share: float


@dataclass(frozen=True, slots=True)
class Report:
    """A run's figures. `greedy` is None if no recipient is greedy, `honest` if all are."""

    format: str
    settings: NetworkSettings
    total: Group
    honest: Group | None
    greedy: Group | None
    law: Law
    costs: tuple[Cost, ...]
    samples: tuple[Sample, ...]


def simulate(settings: NetworkSettings, progress: Callable[[int], None] = lambda _: None) -> Report:
    """Play a network and return its report; ``progress`` is called with the number of each block that is complete."""
    world = World(settings)
    world.run(progress)
    return report_of(world)


def report_of(world: World) -> Report:
    """Return the report of a world that has run."""
    recipients = list(world.recipients.values())
    kinds = {greedy: [each for each in recipients if each.greedy == greedy] for greedy in (False, True)}
    total = world.tallies[False] + world.tallies[True]
    return Report(
        FORMAT,
        world.settings,
        _group(world, recipients, total),
        _group(world, kinds[False], world.tallies[False]) if kinds[False] else None,
        _group(world, kinds[True], world.tallies[True]) if kinds[True] else None,
        _law(world, total),
        costs(world.settings, total.queued_bytes, total.transferred_bytes),
        tuple(world.samples),
    )


def to_json(report: Report) -> dict[str, Any]:
    """Return the report as JSON values, numbers rounded to `DIGITS` places."""
    rounded: dict[str, Any] = _rounded(asdict(report))
    return rounded


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return round(value, DIGITS)
        case dict():
            return {name: _rounded(each) for name, each in value.items()}
        case list() | tuple():
            return [_rounded(each) for each in value]
        case _:
            return value


def _group(world: World, recipients: list[Recipient], tally: Tally) -> Group:
    blocks = world.settings.blocks
    refused = tally.refused_full + tally.refused_size
    inbound = [each.channels for each in recipients if each.channels]
    return Group(
        recipients=len(recipients),
        offered_messages=tally.offered,
        offered_bytes=tally.offered_bytes,
        load=tally.offered_bytes / (world.settings.ingest_bytes * blocks * len(recipients)),
        refused_share=refused / tally.offered if tally.offered else 0.0,
        refused_full_messages=tally.refused_full,
        refused_size_messages=tally.refused_size,
        acknowledged_messages=tally.acknowledged,
        acknowledged_bytes=tally.acknowledged_bytes,
        lag_blocks=distribution(tally.lags),
        delivery_ms=distribution(tally.deliveries),
        jain_bytes=mean(
            (jain([world.acknowledged_bytes[each] for each in channels]) for channels in inbound), default=1.0
        ),
        jain_lag=mean((jain(_mean_lags(world, channels)) for channels in inbound), default=1.0),
        oldest_unread_blocks=world.oldest_unread_blocks(blocks, recipients),
        starved_channels=sum(
            bool(world.unread[each]) and not world.acknowledged[each] for channels in inbound for each in channels
        ),
        queue_messages_mean=tally.unread_blocks / (blocks * len(recipients)),
        queue_messages_max=tally.unread_most,
        builds=tally.builds,
        stalled_blocks=tally.stalled,
        re_requests=tally.requests,
    )


def _mean_lags(world: World, channels: Iterable[int]) -> list[float]:
    """Return the mean lag of each channel of which something was acknowledged."""
    return [world.lag_blocks[each] / world.acknowledged[each] for each in channels if world.acknowledged[each]]


def _law(world: World, tally: Tally) -> Law:
    """Derive the law from the sizes that were really offered, and from each recipient's number of channels."""
    settings, channels = world.settings, [len(each.channels) for each in world.recipients.values()]
    size = tally.offered_bytes / tally.offered if tally.offered else 0.0
    per_channel = size * settings.messages_per_block / settings.channels_per_sender / settings.ingest_bytes
    loads = [count * per_channel for count in channels]
    wait = settings.capacity_messages * max(channels) * size / settings.ingest_bytes
    excess = sum(max(0.0, load - 1) for load in loads)
    return Law(max(wait, float(settings.build_every_blocks)), excess / sum(loads) if sum(loads) else 0.0)
