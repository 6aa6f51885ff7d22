# SPDX-License-Identifier: Apache-2.0
"""Every limit of the protocol and of this implementation, with its unit. Source: channel_rules 1.2."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

# --- identifiers (1.2.1) ---

CHANNEL_MAX: Final = 2**64 - 1
"""Greatest channel ID."""
PEER_MAX: Final = 2**128 - 1
"""Greatest peer ID."""
SESSION_MAX: Final = 2**10 - 1
"""Greatest session ID."""
TOPIC_MAX: Final = 2**22 - 1
"""Greatest topic ID."""
INDEX_MAX: Final = 2**32 - 1
"""Greatest value of the index field, which is NO_MESSAGE."""
MESSAGE_ID_MAX: Final = 2**128 - 1
"""Greatest message ID."""

# --- frames, JSON and sealing (1.2.3, 1.2.4) ---

LENGTH_BYTES: Final = 4
"""Bytes of a frame's length."""
FRAME_BYTES_MIN: Final = 1_024
"""Least value of the setting ``max_frame``, in bytes."""
FRAME_BYTES_MAX: Final = 2**32 - 1
"""Greatest value of the setting ``max_frame``, in bytes: what the length of a frame can express."""
HELLO_FRAME_BYTES_MAX: Final = 1_024
"""Maximum bytes of a frame in HANDSHAKE."""
INTEGER_MAX: Final = 2**53 - 1
"""Greatest integer member of a JSON object (RFC 7493, 2.2)."""
JSON_LEVELS_MAX: Final = 64
"""Maximum levels of objects and arrays in a JSON text: a number, so that no verdict depends on the stack of an interpreter."""
COUNTER_MAX: Final = 2**53 - 1
"""Greatest frame counter; the last one is reserved for the ERROR that ends the session."""
TAG_BYTES: Final = 16
"""Bytes of the tag at the end of a sealed payload."""
KEY_BYTES: Final = 32
"""Bytes of every key, of an ephemeral public key and of a pre-shared key."""
SIGNATURE_BYTES: Final = 64
"""Bytes of an Ed25519 signature."""
INSTANCE_ID_BYTES: Final = 16
"""Bytes of the session instance ID."""

# --- plaintexts (1.2.5) ---

WINDOW_MAX: Final = 1_024
"""Greatest window that a JOIN_SESSION may announce, in messages."""
TOPIC_NAME_CHARACTERS_MAX: Final = 64
"""Maximum characters of a topic's name."""
REASON_CHARACTERS_MAX: Final = 64
"""Maximum characters of the reason that a LEAVE_SESSION carries; a peer's longer text is cut."""
DETAIL_CHARACTERS_MAX: Final = 256
"""Maximum characters of the detail of an ERROR; a peer's longer text is cut."""
CODE_CHARACTERS_MAX: Final = 64
"""Maximum characters of a peer's error code in a report; a longer one is cut."""

# --- memory of a session (1.2.8) ---

REFUSALS_MAX: Final = 64
"""Refused messages of a topic whose error is repeated for a duplicate; the oldest is forgotten first."""

# --- ranges of settings ---

SECONDS_MAX: Final = 10**9
"""Greatest timeout or period, in seconds."""
COUNT_MAX: Final = 2**20
"""Greatest number of messages, topics or counters that a setting may name."""
_BYTES_MAX: Final = 2**40
_RANGES: Final[dict[str, tuple[float, float]]] = {
    "backoff": (1, 100),
    "max_retries": (0, 100),
    "max_frame": (FRAME_BYTES_MIN, FRAME_BYTES_MAX),
    "window": (1, WINDOW_MAX),
    "max_inflight": (1, COUNT_MAX),
    "outbox_limit": (0, COUNT_MAX),
    "inbox_limit": (0, COUNT_MAX),
    "inbox_bytes": (0, _BYTES_MAX),
    "held_bytes": (0, _BYTES_MAX),
    "max_topics": (1, TOPIC_MAX + 1),
    "stale_limit": (0, COUNT_MAX),
    "replay_window": (1, COUNT_MAX),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a session; both ends may differ. Source: 1.2.12.

    Raises ``TypeError`` for a setting of another type, then ``ValueError`` for one outside its range.
    """

    ack_timeout: float = 2.0
    """Seconds until the first retransmission."""
    backoff: float = 2.0
    """Factor between the intervals of two transmissions; 1 is a constant interval."""
    max_ack_timeout: float = 30.0
    """Seconds that an interval never exceeds."""
    max_retries: int = 5
    """Retransmissions of a message before the session ends."""
    handshake_timeout: float = 5.0
    """Seconds from accepting the connection to the end of the hello exchange."""
    setup_timeout: float = 10.0
    """Seconds in SETUP."""
    teardown_timeout: float = 10.0
    """Seconds in TEARDOWN."""
    frame_timeout: float = 10.0
    """Seconds from the first byte of a frame to its last."""
    max_frame: int = 1_048_576
    """Maximum bytes of a received frame, without its length."""
    window: int = 64
    """Messages of a topic, from the next expected one on, that are received; also the maximum that wait for a manual acknowledgement."""
    max_inflight: int = 32
    """Messages of a topic that wait for an acknowledgement."""
    outbox_limit: int = 1_024
    """Messages of a topic that wait to be transmitted."""
    inbox_limit: int = 1_024
    """APPLICATION messages of the session that were reported and not yet consumed."""
    inbox_bytes: int = 67_108_864
    """Bytes of their payloads, above which no further message is reported."""
    held_bytes: int = 16_777_216
    """Bytes of the messages of the session that are held until their turn; one that would exceed them is ignored, as if it were lost."""
    max_topics: int = 64
    """Topic records of the session; `main` is one of them."""
    stale_limit: int = 1_000
    """Duplicate or late frames that are tolerated within ``stale_period``."""
    stale_period: float = 10.0
    """Seconds over which such frames are counted."""
    replay_window: int = 1_024
    """Counters behind the highest one that are still distinguished."""
    manual_ack: bool = False
    """Whether an APPLICATION message is acknowledged only when the application says so."""

    def __post_init__(self) -> None:
        for field in fields(self):
            _check_setting(field.name, getattr(self, field.name), type(field.default))

    def interval(self, transmission: int) -> float:
        """Return the seconds after a message's k-th transmission, k = 1, 2, ... Source: 1.2.12."""
        return min(self.ack_timeout * self.backoff ** (transmission - 1), self.max_ack_timeout)


def _check_setting(name: str, value: Any, wanted: type) -> None:
    found = type(value)
    if found is not wanted and not (wanted is float and found is int):
        raise TypeError(f"{name}: expected {wanted.__name__}, found {value!r}")
    if name in _RANGES:
        low, high = _RANGES[name]
        if not low <= value <= high:
            raise ValueError(f"{name}: expected a number from {low} to {high}, found {value!r}")
    elif wanted is float and not 0 < value <= SECONDS_MAX:
        raise ValueError(f"{name}: expected a number above 0, at most {SECONDS_MAX}, found {value!r}")
