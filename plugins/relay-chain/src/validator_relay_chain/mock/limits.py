# SPDX-License-Identifier: Apache-2.0
"""All limits of the mock node, with their units."""

from __future__ import annotations

from typing import Final

REQUEST_BYTES_MAX: Final = 15 * 1024 * 1024
"""Bytes of a request; a longer one closes the connection, as a node does."""

KEYS_PER_PAGE_MAX: Final = 1_000
"""Keys that one `state_getKeysPaged` returns at most, as a node has it."""

KEYS_PER_QUERY_MAX: Final = 10_000
"""Keys of one `state_queryStorageAt` or `state_getReadProof`."""

FINALISED_MAX: Final = 32
"""Last finalised blocks that `chainHead_v1_follow` begins with."""

PINNED_MAX: Final = 512
"""Blocks that a client of `chainHead_v1` may keep, as a node has it; with more the subscription stops."""

ITEMS_PER_EVENT: Final = 16
"""Keys of one event of `chainHead_v1_storage`, after which the client must continue."""

BATCH_REQUESTS_MAX: Final = 100
"""Requests of one batch."""

OVERSIZED_BYTES: Final = 20 * 1024 * 1024
"""Bytes of an oversized answer, unless the fault says otherwise: over the 15 MiB that public nodes cut off at."""

HELD_S_MAX: Final = 0.2
"""Seconds that a reordered answer is held for an answer that overtakes it."""

CLOSE_S_MAX: Final = 5.0
"""Seconds that connections have to close when the node stops."""
