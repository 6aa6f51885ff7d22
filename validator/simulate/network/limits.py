# SPDX-License-Identifier: Apache-2.0
"""Every limit of the network simulation, with its unit."""

from __future__ import annotations

from typing import Final

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
