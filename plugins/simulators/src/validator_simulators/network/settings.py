# SPDX-License-Identifier: Apache-2.0
"""The settings of a simulated network: paras, traffic, links, recipients, and every limit with its unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from validator.errors import UserError

BLOCK_MS: Final = 6_000
"""Milliseconds between relay blocks."""
BLOCK_BYTES_MAX: Final = 1_000_000
"""Bytes of all messages that a sender may send in one block."""

PARAS_MAX: Final = 10_000
"""Paras of one simulation."""
BLOCKS_MAX: Final = 1_000_000
"""Relay blocks of one simulation."""
MESSAGES_MAX: Final = 500_000_000
"""Messages that a simulation may expect to offer: about an hour of one core."""
UNREAD_MAX: Final = 5_000_000
"""Messages that may be unread at the same time, about 300 bytes each: channels times the bound of a channel."""
CAPACITY_MESSAGES_MAX: Final = 65_536
"""Unread messages of one channel."""
INGEST_BYTES_MAX: Final = 2**40
"""Bytes that a recipient may take in per relay block."""
BUILD_EVERY_BLOCKS_MAX: Final = 14_400
"""Relay blocks between two blocks of a recipient: one day."""

DELAY_MS_MAX: Final = 600_000
"""Milliseconds of a link's delay, its jitter, or the mean delay of a late body."""
LOSS_SHARE_MAX: Final = 0.9
"""Share of transfers that may be lost."""
REQUESTS_MAX: Final = 100
"""Re-requests of one body; the transfer that answers the last one is not lost."""
REQUEST_WAIT_BLOCKS_MAX: Final = 64
"""Relay blocks between two re-requests of a body, however often the wait has doubled."""

SAMPLES_MAX: Final = 200
"""Points of a report's time series."""

MESH_NODES_MAX: Final = 1_000_000
"""Nodes of the mesh in the cost of flooding."""
KAFKA_COPIES_MAX: Final = 100
"""Replicas, and consumer groups, in the cost of Kafka."""


TRAFFIC: Final = ("spread", "skewed", "one")
SIZES: Final = ("fixed", "uniform", "exponential", "lognormal")
POLICIES: Final = ("free", "prefix", "round-robin", "rotating", "arrival", "favour")


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """One simulated network; the same settings give the same report.

    Shares are 0 to 1. Exactly one of `load` and `size_bytes_mean` is given. Raises `UserError` for a value out of range.
    """

    seed: int = 1
    paras: int = 100
    blocks: int = 1_000
    traffic: str = (
        "spread"  # spread: even fan-in; skewed: para n is chosen in proportion to 1/(n + 1); one: all send to para 0
    )
    fan_out: int = 8  # channels of each sender; traffic "one" has one
    messages_per_block: float = 2.0  # of each sender, mean; at most one for each channel
    load: float | None = 0.7  # bytes offered to the mean recipient in a block, as a share of `ingest_bytes`
    size_bytes_mean: int | None = None
    sizes: str = "exponential"  # distribution around the mean, cut at what a sender may send in a block
    capacity_messages: int = 8  # K: unread messages of a channel
    ingest_bytes: int = 500_000  # I: what a recipient can take in per relay block
    build_every_blocks: int = 1  # a recipient builds on every k-th relay block, with a budget of k times `ingest_bytes`
    policy: str = "free"  # of honest recipients
    greedy_share: float = 0.0  # share of recipients with the policy "favour", whatever the others do
    favoured_share: float = 0.7  # share of its senders that such a recipient favours
    delay_ms: int = 100
    jitter_ms: int = 100  # mean of an exponential time on top of `delay_ms`
    late_share: float = 0.0  # share of transfers that are late, by an exponential time with the mean `late_ms`
    late_ms: int = 2_600
    lost_share: float = 0.0  # share of transfers that never arrive
    request_after_blocks: int = 1  # a missing body is requested again after this time; 0: never
    request_backoff: float = 2.0  # the wait for the next re-request, as a multiple of the last one
    mesh_nodes: int = 100  # flooding: nodes and neighbours of each
    mesh_degree: int = 6
    replication_factor: int = 3  # Kafka: replicas, and consumer groups that read the topic
    consumer_groups: int = 1

    def __post_init__(self) -> None:
        self._check_choices()
        self._check_ranges()
        self._check_traffic()

    @property
    def senders(self) -> int:
        """Number of paras that send."""
        return self.paras - 1 if self.traffic == "one" else self.paras

    @property
    def recipients(self) -> int:
        """Number of paras that may receive."""
        return 1 if self.traffic == "one" else self.paras

    @property
    def channels_per_sender(self) -> int:
        """Number of channels that each sender has."""
        return 1 if self.traffic == "one" else self.fan_out

    @property
    def mean_bytes(self) -> float:
        """Mean size of a message, as given or as the load requires."""
        if self.load is None:
            return float(self.size_bytes_mean or 0)
        return self.load * self.ingest_bytes * self.recipients / (self.senders * self.messages_per_block)

    def _check_choices(self) -> None:
        for name, choices in (("traffic", TRAFFIC), ("sizes", SIZES), ("policy", POLICIES)):
            if getattr(self, name) not in choices:
                raise UserError(f"{name}: expected one of {', '.join(choices)}, found {getattr(self, name)!r}")
        if (self.load is None) == (self.size_bytes_mean is None):
            found = "neither" if self.load is None else "both"
            raise UserError(f"load: expected either load or size_bytes_mean, found {found}")

    def _check_ranges(self) -> None:
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise UserError(f"{name}: expected {least:,} to {most:,}, found {value}")

    def _check_traffic(self) -> None:
        most = self.paras - 1 if self.traffic == "spread" else self.paras // 4
        if self.traffic != "one" and self.fan_out > most:
            raise UserError(
                f"fan_out: expected at most {most} with {self.paras} paras and {self.traffic} traffic, found {self.fan_out}"
            )
        if self.messages_per_block > self.channels_per_sender:
            expected = f"at most one message for each of the {self.channels_per_sender} channels"
            raise UserError(f"messages_per_block: expected {expected}, found {self.messages_per_block}")
        if not 1 <= self.mean_bytes <= BLOCK_BYTES_MAX:
            raise UserError(
                f"load: expected messages of 1 to {BLOCK_BYTES_MAX:,} bytes, found a mean of {self.mean_bytes:,.0f}: "
                "change load, messages_per_block or ingest_bytes"
            )
        if self.lost_share and not self.request_after_blocks:
            raise UserError("request_after_blocks: expected 1 or more, because bodies are lost, found 0")
        if self.mesh_degree >= self.mesh_nodes:
            raise UserError(f"mesh_degree: expected less than the {self.mesh_nodes} nodes, found {self.mesh_degree}")
        offered = self.senders * self.messages_per_block * self.blocks
        if offered > MESSAGES_MAX:
            raise UserError(f"blocks: expected up to {MESSAGES_MAX:,} messages in all, found {offered:,.0f}")
        unread = self.senders * self.channels_per_sender * self.capacity_messages
        if unread > UNREAD_MAX:
            raise UserError(
                f"capacity_messages: expected up to {UNREAD_MAX:,} unread messages in all, found {unread:,}"
            )


_RANGES: Final[dict[str, tuple[float, float]]] = {
    "seed": (0, 2**64 - 1),
    "paras": (2, PARAS_MAX),
    "blocks": (1, BLOCKS_MAX),
    "fan_out": (1, PARAS_MAX),
    "messages_per_block": (0.001, PARAS_MAX),
    "load": (0.001, 1_000),
    "size_bytes_mean": (1, BLOCK_BYTES_MAX),
    "capacity_messages": (1, CAPACITY_MESSAGES_MAX),
    "ingest_bytes": (1, INGEST_BYTES_MAX),
    "build_every_blocks": (1, BUILD_EVERY_BLOCKS_MAX),
    "greedy_share": (0, 1),
    "favoured_share": (0, 1),
    "delay_ms": (0, DELAY_MS_MAX),
    "jitter_ms": (0, DELAY_MS_MAX),
    "late_share": (0, 1),
    "late_ms": (1, DELAY_MS_MAX),
    "lost_share": (0, LOSS_SHARE_MAX),
    "request_after_blocks": (0, REQUEST_WAIT_BLOCKS_MAX),
    "request_backoff": (1, 10),
    "mesh_nodes": (2, MESH_NODES_MAX),
    "mesh_degree": (2, MESH_NODES_MAX),
    "replication_factor": (1, KAFKA_COPIES_MAX),
    "consumer_groups": (1, KAFKA_COPIES_MAX),
}
"""Least and greatest value of each number."""
