# SPDX-License-Identifier: Apache-2.0
"""Every limit of a transport's context, with its unit."""

from __future__ import annotations

from typing import Final

ENQUEUED_RECORDS_MAX: Final = 10_000
"""Records of a transport that may wait for Kafka's answer."""
ENQUEUED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of keys, values and headers of these records; more than one record of maximum size."""
KEY_BYTES_MAX: Final = 64 * 1024
"""Bytes of the key of an enqueued record."""
HEADERS_MAX: Final = 32
"""Headers of an enqueued record."""
HEADERS_BYTES_MAX: Final = 16 * 1024
"""Bytes of the names and values of these headers; with a key and a value of maximum size, a producer still takes the record."""
READERS_MAX: Final = 16
"""Open readers of a transport: each has its own connections and buffers."""

CURSORS_MAX: Final = 1_024
"""Cursors of a commit."""
CURSOR_BYTES_MAX: Final = 1024 * 1024
"""Bytes of a cursor."""
COMMIT_RECORDS_MAX: Final = 262_144
"""Records of a commit."""
COMMIT_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of keys and values of these records: a transaction keeps readers of committed records waiting."""

CLOSE_S_MAX: Final = 10.0
"""Seconds that a transport which ends by itself waits for the records that it has enqueued."""
POLL_S_MAX: Final = 0.2
"""Seconds after which a transport that waits for a record notices a request to stop."""
COMMIT_S_MAX: Final = 60.0
"""Seconds that Kafka may take to commit an acknowledgement, or to return offsets."""

SESSION_MS: Final = 45_000
"""Milliseconds without a heartbeat after which Kafka forgets the active process of a name; `[kafka] session.timeout.ms` changes it."""
HEARTBEAT_MS_MAX: Final = 1_000
"""Milliseconds between two heartbeats, or a quarter of the session's time if that is less. Members learn of a change by heartbeats."""
WATCH_S: Final = 0.5
"""Seconds between two looks of a standby at the group."""
ENDING_S_MAX: Final = 5.0
"""Seconds that a transport has to end in order after it has lost its lease."""
