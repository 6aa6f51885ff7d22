# SPDX-License-Identifier: Apache-2.0
"""Every limit of the transport, with its unit. Source: channel_rules 1.2.12, 3.3, 3.4."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Final

from validator_channel.limits import SESSION_MAX

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
class ListenerLimits:
    """Limits of a listener. An address is an IPv4 address or an IPv6 /64 network. Raises ``ValueError`` for one that is not positive."""

    connection: ConnectionLimits = field(default_factory=ConnectionLimits)
    half_open: int = 256
    """Connections that are not ONLINE yet, or failed and are not closed; above it, the oldest of the address with most is closed."""
    half_open_per_address: int = 64
    """Share of one address; above it, further connections are closed at once."""
    sessions: int = 4_096
    """Sessions of all peers that are live, or whose transports are not closed yet."""
    connects_per_second: float = 50.0
    """Connections of one address, and handshakes of one peer, per second in the long run."""
    connects_burst: int = 100
    """Connections of one address, and handshakes of one peer, that may come at once."""
    addresses: int = 4_096
    """Addresses, and peers, whose rate is remembered; the one seen longest ago is forgotten first."""
    backlog: int = 128
    """Connections that the system holds until they are accepted."""
    poll_interval: float = 5.0
    """Seconds between two checks of live sessions against registry, CRL and clock."""
    accept_pause: float = 0.5
    """Seconds without accepting after the system had no resources for a connection."""

    def __post_init__(self) -> None:
        _check_positive(self)


SESSION_IDS: Final = SESSION_MAX + 1
"""Session IDs of a channel."""


def _check_positive(limits: ConnectionLimits | ListenerLimits) -> None:
    for each in fields(limits):
        value = getattr(limits, each.name)
        if isinstance(value, int | float) and not value > 0:
            raise ValueError(f"{each.name}: expected a number above 0, found {value!r}")
