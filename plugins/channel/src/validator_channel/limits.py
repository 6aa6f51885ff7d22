# SPDX-License-Identifier: Apache-2.0
"""Every limit of the protocol, the transport, the gateway and the client, with its unit. Source: channel_rules 1.2, 3.3, 3.4."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final

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
GUESSES_MAX: Final = 128
"""Kinds on topics whose next frame is guessed; all are forgotten before there would be one more."""

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
        for each in fields(self):
            _check_setting(each.name, getattr(self, each.name), type(each.default))

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


LEAF_DAYS_MAX: Final = 30
"""Maximum and default lifetime of a leaf certificate, in days."""
CA_DAYS_MAX: Final = 7_300
"""Maximum lifetime of a CA certificate, in days."""
CA_DAYS: Final = 3_650
"""Default lifetime of a CA certificate, in days."""
CRL_DAYS_MAX: Final = 90
"""Maximum days until the next update of a CRL."""
CRL_DAYS: Final = 7
"""Default days until the next update of a CRL."""
CLOCK_SKEW_SECONDS: Final = 300
"""Seconds by which a certificate and a CRL begin in the past, so that a peer whose clock is behind accepts them."""
NAME_BYTES_MAX: Final = 64
"""Maximum bytes of the common name in a certificate, in UTF-8 (X.520, as `cryptography` counts it)."""
FILE_BYTES_MAX: Final = 16 * 2**20
"""Maximum bytes of a certificate, key or CRL file."""
SHOWN_CHARACTERS_MAX: Final = 128
"""Maximum characters of a peer's text in a log line."""
SHOWN_PEERS_MAX: Final = 3
"""Maximum peer IDs of a certificate in a log line."""
REFUSALS_PER_S: Final = 2.0
"""Log lines about refused connections per second in the long run."""
REFUSALS_BURST: Final = 20
"""Log lines about refused connections at once."""
REFUSALS_OF_ADDRESS_PER_S: Final = 0.1
"""Log lines about refused connections of one address per second in the long run."""
REFUSALS_OF_ADDRESS_BURST: Final = 5
"""Log lines about refused connections of one address at once."""
REFUSALS_ADDRESSES_MAX: Final = 1_024
"""Addresses whose lines are limited; the one seen longest ago is forgotten first."""
REFUSALS_FLUSH_S: Final = 60.0
"""Seconds after which the number of refusals without a line is written, if no line has had it."""
LOAD_ATTEMPTS_MAX: Final = 3
"""Attempts to read files that change while they are read."""
RELOAD_SECONDS: Final = 5.0
"""Seconds after which files that could not be used are read again, although they have not changed."""


TLS_RECORD_BYTES: Final = 16_384
"""Greatest plaintext of a TLS record, so the most that OpenSSL returns at once (RFC 8446 section 5.1)."""


STRICT: Final = {"extra": "forbid"}
"""Makes the product, which reads configurations with pydantic, refuse keys that a nested table does not have."""


def _check_positive(limits: Any) -> None:
    for each in fields(limits):
        value = getattr(limits, each.name)
        if isinstance(value, int | float) and not value > 0:
            raise ValueError(f"{each.name}: expected a number above 0, found {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of one connection, in addition to the `Settings` of its session. Raises ``ValueError`` for one that is not positive."""

    max_session_age: float = 86_400.0
    """Seconds until this side leaves a session; it also leaves before the peer's certificate ends."""
    write_timeout: float = 30.0
    """Seconds for which the transport may be blocked before a peer that does not read is disconnected."""
    shutdown_timeout: float = 3.0
    """Seconds from the end of a session to the end of its transport."""
    frames_per_turn: int = 128
    """Frames of one connection that are processed per turn of the event loop."""
    write_buffer_bytes: int = 262_144
    """Bytes in the transport's buffer above which it is blocked."""
    read_buffer_bytes: int = 262_144
    """Bytes that are read from a socket at once, into a buffer that the connections of an event loop share."""
    blocked_bytes: int = 1_048_576
    """Bytes that wait for a blocked transport, above which reading stops too."""
    keepalive_idle: int = 60
    """Seconds of silence before the first TCP keepalive probe."""
    keepalive_interval: int = 15
    """Seconds between two probes."""
    keepalive_count: int = 4
    """Unanswered probes that end the connection."""

    def __post_init__(self) -> None:
        _check_positive(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectLimits:
    """Limits on connections, before and after their peer is known. Raises ``ValueError`` for one that is not positive."""

    __pydantic_config__: ClassVar = STRICT
    sessions_max: int = 4_096
    """Sessions of all peers that are live, or whose transports are not closed yet; the registry has a limit for each peer."""
    half_open_max: int = 256
    """Connections that are not ONLINE yet, or failed and are not closed; above it, the oldest of the address with most is closed."""
    connects_per_s: float = 50.0
    """Connections of one address, and handshakes of one peer, per second in the long run."""
    connects_burst: int = 100
    """Connections of one address, and handshakes of one peer, at once."""

    def __post_init__(self) -> None:
        _check_positive(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits(ConnectLimits):
    """Limits of a listener. An address is an IPv4 address or an IPv6 /64 network."""

    connection: ConnectionLimits = field(default_factory=ConnectionLimits)
    half_open_per_address: int = 64
    """Share of one address; above it, further connections are closed at once."""
    addresses: int = 4_096
    """Addresses, and peers, whose rate is remembered; the one seen longest ago is forgotten first."""
    backlog: int = 128
    """Connections that the system holds until they are accepted."""
    poll_interval: float = 5.0
    """Seconds between two checks of live sessions against registry, CRL and clock."""
    accept_pause: float = 0.5
    """Seconds without accepting after the system had no resources for a connection."""


SESSION_IDS: Final = SESSION_MAX + 1
"""Session IDs of a channel."""


CONFIG_BYTES_MAX: Final = 65_536
"""Bytes of a client's configuration file."""
GATEWAYS_MAX: Final = 16
"""Gateways that a client may try in turn."""
LINE_BYTES_MAX: Final = 1_048_576
"""Bytes of one line that the command submits."""
LINES_SHOWN_MAX: Final = 10
"""Numbers of lines in the message about those that are not acknowledged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """Limits of a client."""

    pending_max: int = 1_024
    """Records that are submitted and not acknowledged; one more waits."""
    queue_max: int = 1_024
    """Records of one watched topic that are received and not taken; then the gateway waits."""
    pause_s_min: float = 0.2
    """Seconds before the second attempt to connect; each further pause is twice as long."""
    pause_s_max: float = 30.0
    """Seconds that a pause never exceeds."""
    keep_alive_s: float = 20.0
    """Seconds between two messages that find out whether the gateway still answers."""
    attempts_max: int | None = None
    """Attempts to connect in a row before the client gives up; None: it never does."""


REGISTRY_BYTES_MAX: Final = 4 * 2**20
"""Bytes of the registry file."""
PEERS_MAX: Final = 4_096
"""Peers in the registry."""
CHANGES_SHOWN_MAX: Final = 20
"""Log lines about the peers that one change of the registry touches."""
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
        _check_positive(self)
