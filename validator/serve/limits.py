# SPDX-License-Identifier: Apache-2.0
"""Every limit of `validator serve` besides those of connections (`validator.web.limits`)."""

from __future__ import annotations

from typing import Final

QUERY_MAX: Final = 8_000
"""Characters of a query; a cursor is part of it."""
CURSOR_MAX: Final = 6_000
"""Characters of a cursor: about 500 partitions."""
TEXT_MAX: Final = 200
"""Characters of a filter that is text."""
HASH_BYTES_MIN: Final = 8
HASH_BYTES_MAX: Final = 64
"""Bytes of a hash that is looked for."""
PAGE_DEFAULT: Final = 100
PAGE_MAX: Final = 1_000
"""Records of one page."""
PAGE_BYTES_MAX: Final = 4 << 20
"""Characters of JSON after which a page ends; the last record may exceed it."""
SCANNED_MAX: Final = 10_000
"""Records that are read for one page; a page that finds too few says where the next one continues."""
SCANNED_BYTES_MAX: Final = 32 << 20
"""Bytes of values that are read for one page; the last poll may exceed it."""
SEARCHED_MAX: Final = 200_000
"""Records that are read for one hash."""
SEARCHED_BYTES_MAX: Final = 128 << 20
"""Bytes of values that are read for one hash."""
SCAN_S: Final = 20.0
"""Seconds after which a page ends with what it has."""
FURTHER_OFFSETS: Final = 16
"""Offsets that are looked at first besides as many as records are wanted, from the newest on; each further look is eight times as long."""
UNREADABLE_MAX: Final = 20
"""Records of a page, or in a row in a stream, that cannot be read and are named; a page ends there."""
READERS_AT_ONCE_MAX: Final = 8
"""Pages that are read from Kafka at the same time; others wait."""
READERS_IDLE_MAX: Final = 8
"""Readers that wait for a request, connected; one that has waited for the longest time is closed."""
POLLED_MAX: Final = 500
POLLED_BYTES_MAX: Final = 1 << 20
"""Records, and bytes of their values, of one poll, which wait in memory for a slow reader; a last poll may exceed it."""
CHUNK_BYTES: Final = 32 << 10
"""Characters of events that are sent at once; one event may exceed it."""
KAFKA_S: Final = 10.0
"""Seconds that Kafka has to answer before a request fails."""
RETRY_S: Final = 2
"""Seconds after which a client should ask again if Kafka is away or too many streams are open."""
