# SPDX-License-Identifier: Apache-2.0
"""What the gateway counts: numbers under fixed names, without anything that a peer has written."""

from __future__ import annotations

from dataclasses import dataclass, fields


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
