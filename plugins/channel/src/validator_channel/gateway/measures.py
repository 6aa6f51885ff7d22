# SPDX-License-Identifier: Apache-2.0
"""What the gateway counts, and the metrics that show it; no name or label has anything that a peer has written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Final

from validator_channel.net.outcomes import Counters as NetCounters


@dataclass(slots=True)
class Counters:
    """Totals since the start; ``sessions``, ``feeds``, ``feeds_catching_up``, ``in_kafka`` and ``registry_broken`` are present values."""

    sessions: int = 0
    """Sessions that are online."""
    sessions_total: int = 0
    received: int = 0
    """Records that peers have submitted; a retransmission is not counted again."""
    received_bytes: int = 0
    enqueued: int = 0
    """Records that were passed to Kafka."""
    in_kafka: int = 0
    """Records that were passed to Kafka and are not confirmed."""
    confirmed: int = 0
    """Records that Kafka has."""
    failed: int = 0
    """Records that Kafka will never have."""
    duplicates: int = 0
    """Records that were submitted again and not written again."""
    acknowledged: int = 0
    """Submitted records that were acknowledged to their peers, except refused ones."""
    ack_latency_us_total: int = 0
    """Microseconds from receiving to acknowledging these records, summed."""
    ack_latency_us_max: int = 0
    refused_malformed: int = 0
    """Records that are not strict JSON or not a record of their topic."""
    refused_unauthorised: int = 0
    """Records for a lane or para, or of a kind, that the peer may not submit."""
    refused_watches: int = 0
    """Messages on `main` that were refused."""
    refused_topics: int = 0
    """Messages on topics that only the gateway may publish on."""
    kafka_full: int = 0
    """Times that Kafka's queue had no room."""
    rate_waits: int = 0
    """Times that a peer's records had to wait for its rate."""
    reading_paused: int = 0
    """Times that nothing more was read from a peer because its records waited."""
    feeds: int = 0
    feeds_catching_up: int = 0
    sent: int = 0
    """Records that were sent to peers that watch."""
    delivered: int = 0
    """Records that these peers have acknowledged."""
    overflows: int = 0
    """Times that a live feed's queue was full, so that it had to catch up."""
    registry_reloads: int = 0
    registry_broken: int = 0
    """1 while the registry file cannot be used and the one before it holds."""
    alarms: int = 0
    """Lines in the log that a person has to read."""

    def snapshot(self) -> dict[str, int]:
        """Return every number by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def line(self) -> str:
        """Return the numbers that are not 0, in one line."""
        return " ".join(f"{name}={number}" for name, number in self.snapshot().items() if number) or "nothing yet"

    def note_latency(self, seconds: float) -> None:
        """Count the time that a record took from its receipt to its acknowledgement."""
        microseconds = round(seconds * 1e6)
        self.ack_latency_us_total += microseconds
        self.ack_latency_us_max = max(self.ack_latency_us_max, microseconds)


_Read = Callable[[Counters, NetCounters], float | Mapping[str, int]]

METRICS: Final[dict[str, tuple[str, str | None, _Read]]] = {
    "sessions": ("Sessions of peers that are online.", None, lambda gateway, _: gateway.sessions),
    "sessions_begun_total": ("Sessions that came online.", None, lambda gateway, _: gateway.sessions_total),
    "session_ends_total": ("Sessions that ended, by how.", "end", lambda _, net: net.ended),
    "connections_total": ("Connections that the listener accepted.", None, lambda _, net: net.accepted),
    "connections_refused_total": ("Connections closed before TLS, by reason.", "reason", lambda _, net: net.turned_away),
    "handshakes_total": ("Handshakes that led to a session.", None, lambda _, net: net.handshakes_ok),
    "handshakes_failed_total": ("Handshakes that failed, by reason.", "reason", lambda _, net: net.handshakes_failed),
    "handshake_seconds_total": (
        "Time from the connection to the session, of handshakes that led to one.", None,
        lambda _, net: net.handshake_us_total / 1e6,
    ),
    "received_records_total": (
        "Records that peers submitted; a retransmission is not counted again.", None, lambda gateway, _: gateway.received,
    ),
    "received_bytes_total": ("Bytes of those records.", None, lambda gateway, _: gateway.received_bytes),
    "refused_total": (
        "Records and requests of peers that were refused, by reason.", "reason",
        lambda gateway, _: {
            "malformed": gateway.refused_malformed, "unauthorised": gateway.refused_unauthorised,
            "watch": gateway.refused_watches, "topic": gateway.refused_topics,
        },
    ),
    "duplicate_records_total": (
        "Records that were submitted again, and not written again.", None, lambda gateway, _: gateway.duplicates,
    ),
    "unconfirmed_records": (
        "Records that were passed to Kafka and are not confirmed.", None, lambda gateway, _: gateway.in_kafka,
    ),
    "failed_records_total": ("Records that Kafka will never have.", None, lambda gateway, _: gateway.failed),
    "acknowledged_records_total": (
        "Submitted records that were acknowledged to their peers.", None, lambda gateway, _: gateway.acknowledged,
    ),
    "acknowledgement_seconds_total": (
        "Time from receiving those records to acknowledging them.", None,
        lambda gateway, _: gateway.ack_latency_us_total / 1e6,
    ),
    "waits_total": (
        "Times that a peer had to wait, by reason: rate, reading or kafka.", "reason",
        lambda gateway, _: {"rate": gateway.rate_waits, "reading": gateway.reading_paused, "kafka": gateway.kafka_full},
    ),
    "feeds": ("Topics that peers watch.", None, lambda gateway, _: gateway.feeds),
    "feeds_catching_up": ("Those of them that are behind.", None, lambda gateway, _: gateway.feeds_catching_up),
    "sent_records_total": ("Records that were sent to peers that watch.", None, lambda gateway, _: gateway.sent),
    "delivered_records_total": (
        "Those of them that the peers have acknowledged.", None, lambda gateway, _: gateway.delivered,
    ),
    "registry_broken": (
        "1 while the registry cannot be used and the one before it holds.", None,
        lambda gateway, _: gateway.registry_broken,
    ),
    "alarms_total": (
        "Lines in the gateway's log that a person has to read.", None, lambda gateway, net: gateway.alarms + net.alarms,
    ),
}  # fmt: skip
"""By name, what a metric says, its label if it has one, and its value or values by label. No label has anything that a peer has written."""


def values(gateway: Counters, net: NetCounters) -> Iterator[tuple[str, float, tuple[str, ...]]]:
    """Yield name, value and labels of every metric; another thread than the gateway's may call it."""
    for name, (_, _, read) in METRICS.items():
        found = read(gateway, net)
        if isinstance(found, Mapping):
            for label, count in sorted(found.items()):  # copied at once: the gateway's thread may add a label meanwhile
                yield name, count, (label,)
        else:
            yield name, found, ()
