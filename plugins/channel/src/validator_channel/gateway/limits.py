# SPDX-License-Identifier: Apache-2.0
"""Every limit of the gateway, with its unit; those of `GatewayLimits` can be configured."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, Final

REGISTRY_BYTES_MAX: Final = 4 * 2**20
"""Bytes of the registry file."""
PEERS_MAX: Final = 4_096
"""Peers in the registry."""
PARAS_MAX: Final = 4_096
"""Paras of one peer in one lane."""
PARA_MAX: Final = 2**32 - 1
"""Greatest para ID."""
NAME_CHARACTERS_MAX: Final = 64
"""Characters of a peer's name and of a lane's name."""
RATE_MAX: Final = 1_000_000
"""Greatest rate and burst, in records."""
SESSIONS_MAX: Final = 1_024
"""Greatest number of live sessions of a peer."""

TURN_RECORDS_MAX: Final = 16
"""Records that one turn of the event loop reads and passes to Kafka, of all sessions together."""
TURN_BYTES_MAX: Final = 262_144
"""Bytes of records after which a turn of the event loop ends."""
THREAD_BYTES: Final = 16_384
"""Bytes of a record above which it is read in a thread: the worst one of half a MiB takes half a second."""
RETRY_S: Final = 0.05
"""Seconds after which a record is tried again that Kafka's queue had no room for; a confirmed record causes it earlier."""
STOP_POLL_S: Final = 0.1
"""Seconds between two looks at whether the gateway has to stop."""

WATCHES_PER_S: Final = 10.0
"""Requests on `main` that a session may make per second in the long run."""
WATCHES_BURST: Final = 50
"""Requests on `main` that a session may make at once."""

POLL_S: Final = 0.2
"""Seconds that a reader waits for a record."""
BATCH_RECORDS_MAX: Final = 256
"""Live records that a reader's thread hands over at once."""
BATCHES_MAX: Final = 4
"""Batches of live records that wait for the event loop; then the reader's thread waits."""
SLICE_RECORDS_MAX: Final = 2_000
"""Records that are read for one feed before the next one has its turn."""
SLICE_S_MAX: Final = 0.5
"""Seconds that are spent on one feed before the next one has its turn."""
RECENT_RECORDS_MAX: Final = 4_096
"""Live records of a topic that are kept, so that a feed that is nearly there can join."""
RECENT_BYTES_MAX: Final = 4 * 2**20
"""Bytes of these records, as Kafka has them."""
MARK_S: Final = 30.0
"""Seconds between two looks at how far feeds are behind what was read for them."""
MARK_RECORDS: Final = 1_000
"""Records of others after which a live feed sends its peer how far it is."""

STRICT: Final = {"extra": "forbid"}
"""Makes the product, which reads configurations with pydantic, refuse keys that a nested table does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLimits:
    """Limits of a gateway. Raises ``ValueError`` for one that is not positive."""

    __pydantic_config__: ClassVar = STRICT
    record_bytes_max: int = 524_288
    """Bytes of a submitted record in JSON form."""
    pending_bytes_max: int = 2 * 2**20
    """Bytes of a session's records that wait for Kafka's queue, above which nothing more is read from its peer."""
    feed_records_max: int = 256
    """Records of one feed that wait to be sent; a feed with more catches up later from Kafka."""
    feed_bytes_max: int = 1_048_576
    """Bytes of these records."""
    feed_unacknowledged_max: int = 64
    """Records of one feed that are sent and not acknowledged."""
    duplicates_max: int = 65_536
    """Records that are remembered, so that one that is submitted again is not written again."""
    duplicates_s_max: float = 600.0
    """Seconds for which they are remembered."""
    registry_poll_s: float = 1.0
    """Seconds between two looks at the registry file."""
    report_s: float = 60.0
    """Seconds between two lines with what was counted."""
    drain_s: float = 10.0
    """Seconds that sessions have to end in order when the gateway stops."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not value > 0:
                raise ValueError(f"{each.name}: expected a number above 0, found {value!r}")
