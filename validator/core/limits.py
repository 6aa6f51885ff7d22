# SPDX-License-Identifier: Apache-2.0
"""Every limit of the core, with its unit. Each protocol defines its own limits."""

from __future__ import annotations

U32_MAX = 2**32 - 1
"""Para ids, block numbers, counts and sizes."""
UNREACHED = U32_MAX // 2
"""Messages or bytes of a limit beyond which it is shown as none: chains set the greatest number for "no limit"."""
U64_MAX = 2**64 - 1
"""Weights."""
U128_MAX = 2**128 - 1
"""Balances."""

HEADROOM_WATERMARKS_MAX = 64
"""Number of blocks that a headroom record lists as valid watermarks."""

RECORDS_PER_BLOCK_MAX = 65_536
"""Records of one kind that a block record may announce."""
MESSAGES_PER_CANDIDATE_MAX = 4_096
"""Upward or horizontal messages that a candidate may carry, before the configured limit is checked."""
PAYLOAD_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of one message payload that decode accepts."""

RECORD_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of one record's Kafka value that decode accepts, the same as the topics' limit."""
DEAD_LETTER_END_BYTES = 4_096
"""Bytes that a dead letter has of either end of a value of more than `RECORD_BYTES_MAX`."""
DEAD_LETTER_DETAIL_CHARACTERS_MAX = 2_000
"""Characters of a dead letter's detail, which may quote the record."""
ORDER_SKIPS_MAX = 10_000
"""Records that an order to a parked lane may name."""
ORDER_SPANS_MAX = 10_000
"""Partitions that an order to start over may name."""
ORDER_CHECKPOINT_LENGTH_MAX = 64
"""Characters of the checkpoint's id in an order to start over."""
ORDER_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of a lane's orders that a decode task passes on whole; of further ones it passes on that the lane is to continue."""
PARKED_SKIPS_MAX = 50_000
"""Records of all orders together that a parked lane leaves out; if there are more, only those of the last order count."""
TOPIC_LENGTH_MAX = 249
"""Characters of a topic's name; Kafka's limit."""
PARK_REASON_CHARACTERS_MAX = 1_000
"""Characters of the reason why a lane is parked."""
LANE_NAME_LENGTH_MAX = 64
"""Characters of a lane's name."""
DRY_RUN_CORRELATION_BYTES_MAX = 64
"""Bytes by which the asker of a dry run recognises the answer."""
DRY_RUN_VERDICTS_MAX = 1_000
"""Violations that the answer to a dry run lists."""
DRY_RUN_HEADROOM_MAX = 1_000
"""Headroom records of the answer to a dry run, before and after the record each."""
DRY_RUN_ANSWER_BYTES_MAX = 1024 * 1024
"""Bytes of the answer to a dry run; of one that would be larger, only the reason is sent."""
DRY_RUN_REASON_CHARACTERS_MAX = 1_000
"""Characters of the reason why a dry run is refused, which may quote the record."""

AUDIT_STATE_BYTES_MAX = 128 * 1024 * 1024
"""Bytes of a lane's pages that the audit in the job executes a block on a second time; with more it checks invariants only."""

BLOCKS_AHEAD_MAX_DEFAULT = 100_000
"""How many blocks a record may be ahead of the last executed one; further ones wait apart, for as many executed blocks."""
FAR_RECORDS_MAX = 1_024
"""Records of one lane that may wait apart because they are too far ahead."""
WAITING_BYTES_MAX_DEFAULT = 1024 * 1024 * 1024
"""Bytes that the waiting records of one lane may occupy in memory."""
DUPLICATE_WINDOW_BYTES_MAX = 64 * 1024 * 1024
"""Bytes that the fingerprints of a lane's executed records may occupy in memory; the last block's always stay."""
DUPLICATE_WINDOW_BLOCKS_DEFAULT = 256
"""Executed blocks whose record fingerprints a lane keeps."""
HEADROOM_EACH_BLOCK_PARAS_MAX = 16
"""Genesis paras up to which a chain emits headroom with every block by default."""
HEADROOM_INTERVAL_BLOCKS_DEFAULT = 10
"""Blocks between two emissions of headroom, a minute on Polkadot; 1 emits it with every block and triples a busy chain's output."""
ROOT_INTERVAL_BLOCKS_DEFAULT = 600
"""Blocks between two state roots (a Kusama session)."""

HANDLER_PAYLOAD_BYTES_MAX = 65_536
"""Bytes of an upward message that a handler accepts by default."""
HANDLER_PREFIX_BYTES_MAX = 32
"""Maximum bytes of the prefix by which a handler owns messages."""
HANDLER_KEY_BYTES_MAX = 128
"""Bytes of a key of a handler's own state."""
HANDLER_VALUE_BYTES_MAX = 65_536
"""Bytes of a value of a handler's own state."""
HANDLER_STATE_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of keys and values that all handlers of one plugin may keep in one lane."""
HANDLER_EVENTS_MAX = 256
"""Events that one message may emit."""
HANDLER_EVENT_BYTES_MAX = 4_096
"""Bytes of an event's data."""
HANDLER_FAILURE_CHARACTERS_MAX = 500
"""Characters of an exception's text in a dispatch."""
