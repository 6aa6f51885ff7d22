# SPDX-License-Identifier: Apache-2.0
"""All limits of the plugin, with their units."""

from __future__ import annotations

from typing import Final

PART_BYTES_MAX: Final = 256 * 1024
"""Maximum bytes of a part: its pieces, each with `PIECE_OVERHEAD_BYTES`. Kafka's clients and brokers refuse records of about 1,000,000
bytes by default, which is what a sender may send per block."""

PIECE_OVERHEAD_BYTES: Final = 4
"""Bytes that each piece counts in addition to its own: a part of empty payloads is bounded, too."""

BODY_RECORD_BYTES_MAX: Final = PART_BYTES_MAX + 1_024
"""Bytes of a record of `xcmp.bodies`: a part, and the claim that goes with it."""

RECORD_BYTES_MAX: Final = 1024 * 1024
"""Bytes of a record of any other topic; a held body of 4 GiB names 33,000 places."""

PAYLOADS_MAX: Final = 16_384
"""Maximum payloads of a body. The operator keeps 32 bytes for each while parts are missing, also for empty ones."""

PAYLOAD_BYTES_MAX: Final = 2**32 - 1
"""Maximum bytes of a payload and of a body: a declared size is a u32."""

WANTED_AFTER_BLOCKS: Final = 1
"""Blocks after which a listed body that is missing is requested (k), and between two requests of one at the front of its queue."""

WANTED_INTERVAL_BLOCKS_MAX: Final = 64
"""Maximum blocks between two requests of a body behind the front; until then each interval is twice the one before."""

WANTED_PER_BATCH_MAX: Final = 64
"""Maximum requests for one recipient in a batch; the front of the queue is first, and the rest stay due."""

SENDER_REQUESTS: Final = 2
"""Requests that only the sender of a body is asked to answer; later ones are for everybody who has a copy."""

UNLISTED_BYTES: Final = 0
"""Bytes of unlisted bodies that are kept for each sender (U)."""

UNLISTED_BLOCKS: Final = 2
"""Blocks after which an unlisted body that is kept is refused (T)."""

UNLISTED_TOTAL_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of unlisted bodies that one bucket keeps, whatever number of senders they claim to be from."""

UNLISTED_PART_OVERHEAD_BYTES: Final = 256
"""Bytes that a kept part counts in addition to its hashes and fragments."""

ALARM_BLOCKS: Final = 10
"""Age of a queue's front from which on it raises an alarm: the fallback of the later texts begins there."""

CAPACITY_MESSAGES: Final = 8
"""Unacknowledged messages that a channel holds, as senders see it in their credits."""

RETENTION_HOURS_MIN: Final = 25
"""Minimum hours that bodies stay on Kafka: the availability store keeps a day and an hour."""

BUCKETS_MAX: Final = 1_024
"""Maximum buckets of a chain; each is a transactional producer."""


OUTBOX_FILES_MAX: Final = 10_000
"""Files of an outbox that count, by name."""

OUTBOX_FILE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of a file with a body, which is in hex."""

INBOX_FILES: Final = 1_000
"""Files in an inbox beyond which nothing is delivered by default, until some are taken away."""

INBOX_FILES_MAX: Final = 100_000
"""The greatest number that may be set for it: each delivery counts them."""

REPORTS_PER_BLOCK: Final = 1_000
"""Reports of held bodies that a block gets by default; the rest waits for the next block."""

REPORTS_PER_BLOCK_MAX: Final = 65_536
"""Maximum channel requests, reports included, that a block's record may announce."""


def parts_max(size: int) -> int:
    """Return how many parts a body of ``size`` bytes may have: twice what full parts need, since a payload may not fill the rest of one."""
    return 2 * ((size + PAYLOADS_MAX * PIECE_OVERHEAD_BYTES) // PART_BYTES_MAX + 1)
