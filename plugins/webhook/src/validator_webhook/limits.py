# SPDX-License-Identifier: Apache-2.0
"""Every limit of the transport `webhook`, with its unit."""

from __future__ import annotations

from typing import Final

# --- subscriptions ---

SUBSCRIPTIONS_MAX: Final = 100
"""Subscriptions that are active or parked."""
TOPICS_MAX: Final = 16
"""Topics of one subscription."""
URL_CHARACTERS_MAX: Final = 2_000
TEXT_CHARACTERS_MAX: Final = 200
"""Characters of a filter's value or a description."""
REASON_CHARACTERS_MAX: Final = 200
"""Characters of the reason why a delivery failed."""
STATE_BYTES_MAX: Final = 32 * 1024
"""Bytes of a record about a subscription."""
SECRET_BYTES: Final = (24, 64)
"""Least and most bytes of a signing secret, as Standard Webhooks recommends."""
SECRETS_MAX: Final = 4
"""Secrets that sign at once, while one is replaced by another."""
SECRET_FILE_BYTES_MAX: Final = 4 * 1024
TOKEN_CHARACTERS_MIN: Final = 16
"""Characters of the listener's token."""

# --- reading ---

BATCH_RECORDS_MAX: Final = 100
"""Records that one subscription holds in memory."""
BATCH_BYTES_MAX: Final = 1024 * 1024
"""Bytes of their bodies beyond which it takes no further one; a single body may be larger."""
RECENT_RECORDS_MAX: Final = 2_000
"""Records that all subscriptions share in memory; one that falls behind them reads Kafka again."""
RECENT_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of their bodies."""
SCAN_RECORDS_MAX: Final = 5_000
"""Records that are read again for one subscription before it is the next one's turn."""
SCAN_S_MAX: Final = 2.0
"""Seconds of such a turn."""
BEHIND_READERS_MAX: Final = 8
"""Sets of topics for which a reader stays open to read again; the context has `READERS_MAX` in all."""
POLL_S: Final = 0.2
"""Seconds after which a thread that waits for records notices that it should end."""

# --- sending ---

ATTEMPT_S: Final = 15.0
"""Seconds that one attempt may take, from the name's resolution to the answer's head, unless `timeout_seconds` says otherwise."""
ATTEMPT_S_MAX: Final = 60.0
"""The greatest `timeout_seconds`."""
ANSWER_BYTES_MAX: Final = 64 * 1024
"""Bytes of an answer's body that are read; the status alone decides."""
ANSWER_S_MAX: Final = 2.0
"""Seconds in which the rest of an answer is read, so that the connection can be used again."""
IDLE_S: Final = 5.0
"""Seconds after which an unused connection is closed."""
ADDRESSES_MAX: Final = 4
"""Addresses of a name that an attempt tries."""

RESOLUTIONS_MAX: Final = 200
"""Names that are resolved at once, two for each subscription: each has a thread, which a resolver may hold for long."""

# --- trying again ---

RETRY_FIRST_S: Final = 1.0
"""Seconds before the second attempt; twice as many before each further one."""
RETRY_LONGEST_S: Final = 600.0
"""Seconds of the longest pause that the transport itself chooses."""
JITTER: Final = 0.5
"""Share of a pause that is taken off at random, at most."""
RETRY_AFTER_S_MAX: Final = 3_600.0
"""Seconds that a receiver may ask for with `Retry-After`; a longer time counts as this one."""
PARK_AFTER_S: Final = 86_400.0
"""Seconds of failed attempts in a row after which a subscription is parked, unless `park_after_seconds` says otherwise."""
PARK_AFTER_S_MAX: Final = 30 * 86_400.0
"""The greatest `park_after_seconds`."""

# --- keeping ---

COMMIT_S: Final = 1.0
"""Seconds between two commits of positions: what was delivered since is delivered again after a crash."""
DRAIN_S: Final = 4.0
"""Seconds that attempts under way have when the transport ends."""

# --- the listener ---

REQUEST_BYTES_MAX: Final = 16 * 1024
"""Bytes of a request's body, and of its head."""
CONNECTIONS_MAX: Final = 32
"""Connections at once."""
CONNECTION_S_MAX: Final = 30.0
"""Seconds that a connection may last."""
