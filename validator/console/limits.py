# SPDX-License-Identifier: Apache-2.0
"""Every limit of the console: what it keeps, what it reads, what it answers and to how many."""

from __future__ import annotations

from typing import Final

# --- kept in memory ---

LANES_MAX: Final = 64
"""Lanes; records of further ones are counted, but not kept."""
VERDICTS_MAX: Final = 100_000
"""Verdicts of all lanes together, half a KiB each; beyond it, the lane with the most loses its oldest."""
BLOCKS_MAX: Final = 1_000
"""Receipts of one lane."""
BLOCK_TIMES_MAX: Final = 2_000
"""Times of block records whose receipt has not been read."""
PARAS_MAX: Final = 4_000
"""Paras of one lane."""
CHANNELS_MAX: Final = 20_000
"""Channels of one lane."""
REQUESTS_MAX: Final = 10_000
"""Open requests for channels of one lane."""
HISTORY_MAX: Final = 32
"""Headroom records of one para or channel."""
EVENTS_MAX: Final = 2_000
"""Channel events of one lane."""
HANDLED_MAX: Final = 500
"""Combinations of a handler, a kind of message and an outcome, of one lane."""
FAILURES_MAX: Final = 50
"""Dispatches of one lane that failed."""
DIGESTS_MAX: Final = 200
"""Spans of blocks of one lane under one runtime digest."""
LETTERS_MAX: Final = 1_000
"""Dead letters, without their bytes."""
REPLAYS_MAX: Final = 10_000
"""Ledger entries of dead letters that were put back."""
WAITING_MAX: Final = 50_000
"""Messages of one lane that wait, half a KiB each; further ones are counted."""
ENDED_MAX: Final = 10_000
"""Messages of one lane that ended."""
QUEUES_MAX: Final = 20_000
"""Channels and paras of one lane whose messages' waits are counted."""
WAITS_MAX: Final = 500
"""Waits of each, of which the median is shown."""
RATE_SECONDS: Final = 900
"""Seconds of which the console knows how many verdicts there were."""
TEXT_MAX: Final = 2_000
"""Characters of one text of a record, such as the failure of a dispatch."""

# --- read from Kafka ---

RECORDS_TAIL: Final = 5_000
"""Offsets before the end of a partition of receipts, dispatches and channel events at which reading begins."""
LARGE_RECORDS_TAIL: Final = 500
"""The same for topics whose records may have megabytes: blocks and dead letters."""
JOURNEYS_AGAIN_S: Final = 30.0
"""Seconds after which the topic of messages, if there was none, is looked for again."""
LAG_INTERVAL_S: Final = 5.0
"""Seconds between two counts of what lanes have not consumed."""
LAG_SHARE_MAX: Final = 0.1
"""Share of the time that counting may take: after a long count, the next one waits longer."""
STATE_AGE_S: Final = 10.0
"""Seconds in which the checkpoint is not read again for the same lane."""

# --- answered ---

ROWS_MAX: Final = 100
"""Verdicts of one page."""
LIST_MAX: Final = 500
"""Rows of any other list."""
VERDICTS_SEARCHED_MAX: Final = 20_000
"""Last verdicts of a lane among which the last candidates of paras with waiting messages are looked for."""
STRIP_BLOCKS: Final = 60
"""Blocks of the strip of accepted and rejected."""
MAP_PARAS_MAX: Final = 60
MAP_CHANNELS_MAX: Final = 300
"""Paras and channels that the map draws; the table has all."""
ATTENTION_MAX: Final = 8
"""Causes that the overview lists."""
FACETS_MAX: Final = 12
"""Values of one facet that the page of verdicts lists."""
RAW_SHOWN_MAX: Final = 4_096
"""Bytes of a dead letter that its page dumps."""
RECORD_SHOWN_MAX: Final = 64 << 10
"""Characters of a dead letter's record that its form shows; longer ones are put back by the command."""
FRAME_S: Final = 1.0
"""Seconds between two updates of a page."""
