# SPDX-License-Identifier: Apache-2.0
"""The other end: what the registry says of it, who it is after TLS, and which session IDs it has. Source: channel_rules R6, 1.2.6, 3.3."""

from __future__ import annotations

import random
import secrets
import ssl
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from cryptography import x509

from validator_channel.errors import ErrorCode, HelloError
from validator_channel.hello import ConnectorHello, Credentials, ListenerHello, Peering
from validator_channel.limits import KEY_BYTES, SESSION_IDS, SHOWN_PEERS_MAX, ListenerLimits
from validator_channel.net.certificates import ALPN, MALFORMED, Identity, read_identity
from validator_channel.net.outcomes import CLOSED_DURING_TLS, WORDS, os_reason, tls_reason
from validator_channel.net.tls import Material, Tls
from validator_channel.wire import Role, channel_of, format_id

if TYPE_CHECKING:
    from validator_channel.net.connection import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The remote peer of one channel, as the registry of this side has it.

    ``pins`` are SHA-256 digests of SubjectPublicKeyInfo, usually the current and the next key. ``needs_uri`` requires the URI of the peer
    in its certificate. If both are configured, both must hold. ``topics`` says whether the peer may register a topic. Raises
    ``ValueError`` if the certificate would not be checked at all, for a pin that has not 32 bytes, or for a limit below 1.
    """

    peering: Peering
    pins: frozenset[bytes] = frozenset()
    needs_uri: bool = True
    sessions_max: int = 8
    topics: Callable[[int], bool] = field(default=lambda _: True, repr=False)

    def __post_init__(self) -> None:
        if not self.pins and not self.needs_uri:
            raise ValueError("pins: expected at least one if the certificate need not name the peer")
        if any(len(pin) != 32 for pin in self.pins):
            raise ValueError("pins: expected SHA-256 digests of 32 bytes")
        if self.sessions_max < 1:
            raise ValueError(f"sessions_max: expected at least 1, found {self.sessions_max}")

    def accepts(self, identity: Identity) -> bool:
        """Return whether a certificate belongs to this peer. Source: channel_rules 1.2.6 step 1."""
        return self.objection(identity) is None

    def objection(self, identity: Identity) -> str | None:
        """Return why a certificate does not belong to this peer, or None."""
        expected = self.peering.remote_peer
        if self.needs_uri and expected not in identity.peers:
            found = ", ".join(sorted(map(format_id, identity.peers))[:SHOWN_PEERS_MAX]) or "none"
            return f"expected the peer {format_id(expected)} in it, found {found}"
        if self.pins and identity.pin not in self.pins:
            return f"its key {identity.pin.hex()} is none of the pins"
        return None


Registry = Callable[[], Mapping[int, Peer]]
"""Returns the peers of now, by channel ID."""


TLS_FAILED = "TLS"
"""The code of a handshake that TLS has refused."""
REVOKED = "REVOKED"
"""The code of a handshake with a certificate that the CRL names."""
MALFORMED_CERTIFICATE = "CERTIFICATE"
"""The code of a handshake with a certificate that cannot be read."""


class HandshakeFailed(Exception):
    """A connection that did not become a session.

    ``code`` is an error code of the protocol (for instance NOT_AUTHORIZED, HANDSHAKE_TIMEOUT, TRANSPORT_LOST, SESSION_IN_USE), or TLS,
    ALPN, CERTIFICATE, KEY_TYPE or REVOKED. ``reason`` is one line, by default what the code means. ``claimed`` is the peer ID that the
    other end's hello claims, if it has come that far.
    """

    def __init__(self, code: str, reason: str, claimed: int | None = None) -> None:
        reason = reason or WORDS.get(code, "")
        super().__init__(f"{code}: {reason}" if reason else code)
        self.code = str(code)
        self.reason = reason
        self.claimed = claimed


def peer_identity(connection: ssl.SSLObject) -> Identity:
    """Return what the certificate of the other end of a finished TLS handshake proves.

    Raises `HandshakeFailed`: ALPN if the selected protocol is not channel/1; CERTIFICATE for one that is missing or malformed; KEY_TYPE for
    a key that is not Ed25519. Source: 1.2.6 step 1.
    """
    selected = connection.selected_alpn_protocol()
    if selected != ALPN:
        raise HandshakeFailed("ALPN", f"ALPN: expected {ALPN}, found {selected or 'none'}")
    encoded = connection.getpeercert(binary_form=True)
    if encoded is None:
        raise HandshakeFailed(MALFORMED_CERTIFICATE, "the peer has no certificate")
    try:
        identity = read_identity(x509.load_der_x509_certificate(encoded))
    except MALFORMED as error:
        raise HandshakeFailed(MALFORMED_CERTIFICATE, f"malformed certificate: {error}") from None
    if identity is None:
        raise HandshakeFailed("KEY_TYPE", "the certificate's key is not Ed25519")
    return identity


def check_identity(connection: ssl.SSLObject, tls: Tls, material: Material) -> Identity:
    """Return the identity of the other end of a finished TLS handshake.

    Raises `HandshakeFailed`: ALPN, CERTIFICATE, KEY_TYPE; REVOKED; NOT_AUTHORIZED if the other end has our own key.
    """
    identity = peer_identity(connection)
    if tls.is_revoked(identity):
        names = ", ".join(sorted(map(format_id, identity.peers))[:SHOWN_PEERS_MAX])
        raise HandshakeFailed(REVOKED, f"the CRL names the peer's certificate, of {names or 'no peer'}")
    if identity.pin == material.pin:
        raise HandshakeFailed(ErrorCode.NOT_AUTHORIZED, "the peer has this side's own key")
    return identity


def begin_listener(registry: Registry, identity: Identity, material: Material) -> ListenerHello:
    """Return the listener's hello exchange; whom the certificate proves is decided by the registry when CLIENT_HELLO has arrived."""

    def peering_of(channel: int) -> Peering | None:
        peer = registry().get(channel)
        return None if peer is None else peer.peering

    return ListenerHello(peering_of, _credentials(registry, identity, material))


def begin_connector(
    peer: Peer, session: int, registry: Registry, identity: Identity, material: Material
) -> ConnectorHello:
    """Return the connector's hello exchange. Raises `HandshakeFailed` with NOT_AUTHORIZED if the certificate is another peer's."""
    objection = peer.objection(identity)
    if objection is not None:
        raise HandshakeFailed(
            ErrorCode.NOT_AUTHORIZED, f"the certificate does not belong to the expected peer: {objection}"
        )
    return ConnectorHello(peer.peering, session, _credentials(registry, identity, material))


def _credentials(registry: Registry, identity: Identity, material: Material) -> Credentials:
    def is_certified(peer_id: int) -> bool:
        peer = registry().get(channel_of(peer_id))
        return peer is not None and peer.peering.remote_peer == peer_id and peer.accepts(identity)

    return Credentials(material.key, identity.key, is_certified, secrets.token_bytes(KEY_BYTES))


def failure_of(error: Exception) -> HandshakeFailed:
    """Return what an exception of asyncio or ``ssl`` before the end of TLS means."""
    match error:
        case HandshakeFailed():
            return error
        case HelloError():
            return HandshakeFailed(error.code, error.detail, error.claimed)
        case ssl.SSLError():
            return HandshakeFailed(TLS_FAILED, tls_reason(error))
        case UnicodeDecodeError():  # asyncio asks for the fields of the certificate, and ``ssl`` decodes the names
            return HandshakeFailed(MALFORMED_CERTIFICATE, f"malformed certificate: {error}")
        case TimeoutError() | ConnectionAbortedError():  # asyncio aborts a TLS handshake that takes too long
            return HandshakeFailed(ErrorCode.HANDSHAKE_TIMEOUT, "the handshake took too long")
        case OSError():
            return HandshakeFailed(ErrorCode.TRANSPORT_LOST, os_reason(error) or CLOSED_DURING_TLS)
        case _:
            return HandshakeFailed(ErrorCode.TRANSPORT_LOST, f"{type(error).__name__}: {error}")


class SessionTable:
    """The live sessions of this process, by channel and session ID; give one table to its listener and to its connectors.

    Both peers of a channel may connect to each other at once and choose the same session ID. Then the session whose connector has the
    smaller peer ID goes ahead: each side refuses or gives up the other one, so at most one of them becomes ONLINE.

    A session that has ended counts toward the limits until its transport has ended, too; its ID is free at once.
    """

    def __init__(self, sessions_max: int | None = None) -> None:
        self._max = ListenerLimits().sessions_max if sessions_max is None else sessions_max
        self._live: dict[tuple[int, int], Connection] = {}
        self._closing: dict[int, Connection] = {}
        """Sessions that have ended and whose transports have not, by identity."""
        self._of_channel: Counter[int] = Counter()
        self._used: dict[int, dict[int, int]] = {}
        self._clock = count(1)

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[Connection]:
        return iter(tuple(self._live.values()))

    def admit(self, session: Connection, sessions_max: int) -> ErrorCode | None:
        """Enter a session whose JOIN_SESSION has arrived at the listener, or return why the peer is refused.

        SESSION_IN_USE comes before SESSION_LIMIT, which is ``sessions_max`` of the peer or the limit of the table.
        """
        key = _key(session)
        other = self._live.get(key)
        if other is session:
            return None
        if other is not None:
            if not _goes_ahead(session, other):
                return ErrorCode.SESSION_IN_USE
            self.release(other)
            other.drop(ErrorCode.SESSION_IN_USE)
        if self._of_channel[key[0]] >= sessions_max or len(self._live) + len(self._closing) >= self._max:
            return ErrorCode.SESSION_LIMIT
        self._enter(key, session)
        return None

    def claim(self, session: Connection) -> bool:
        """Enter a session that this side is about to connect. Return False if its ID is taken."""
        key = _key(session)
        if key in self._live:
            return False
        self._enter(key, session)
        return True

    def owns(self, session: Connection) -> bool:
        """Return whether a session is the one that holds its ID."""
        return self._live.get(_key(session)) is session

    def end(self, session: Connection) -> None:
        """Free the ID of a session that has ended; `release` follows when its transport has ended. One not in the table is ignored."""
        if self._free(session):
            self._closing[id(session)] = session

    def release(self, session: Connection) -> None:
        """Remove a session; one that is not in the table is ignored."""
        if self._free(session) or self._closing.pop(id(session), None) is not None:
            channel = channel_of(session.remote_peer)
            self._of_channel[channel] -= 1
            if not self._of_channel[channel]:
                del self._of_channel[channel]

    def choose(self, channel: int) -> int | None:
        """Return the free session ID of a channel that was used longest ago, or None if all are live. Source: R6.

        IDs that this process has not used come first, in an order that begins anywhere, since earlier processes are not remembered.
        """
        used = self._used.get(channel, {})
        start = random.SystemRandom().randrange(SESSION_IDS)
        order = ((start + step) % SESSION_IDS for step in range(SESSION_IDS))
        free = (each for each in order if (channel, each) not in self._live)
        return min(free, key=lambda each: used.get(each, 0), default=None)

    def _free(self, session: Connection) -> bool:
        """Free the ID of a session, and return whether it was taken."""
        key = _key(session)
        if self._live.get(key) is not session:
            return False
        del self._live[key]
        self._used[key[0]][key[1]] = next(self._clock)
        return True

    def _enter(self, key: tuple[int, int], session: Connection) -> None:
        self._live[key] = session
        self._of_channel[key[0]] += 1
        self._used.setdefault(key[0], {})[key[1]] = next(self._clock)


def _goes_ahead(incoming: Connection, other: Connection) -> bool:
    """Return whether an incoming session displaces our own attempt to connect with the same session ID."""
    is_own_attempt = other.role is Role.CONNECTOR and not other.is_online
    return is_own_attempt and incoming.remote_peer < incoming.local_peer


def _key(session: Connection) -> tuple[int, int]:
    return channel_of(session.remote_peer), session.session_id
