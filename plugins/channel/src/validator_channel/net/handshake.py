# SPDX-License-Identifier: Apache-2.0
"""From finished TLS to the hello exchange: who the other end is, before a byte is read or sent. Source: channel_rules 1.2.6."""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Mapping

from validator_channel.errors import ErrorCode, HelloError
from validator_channel.hello import ConnectorHello, Credentials, ListenerHello
from validator_channel.ids import format_id
from validator_channel.limits import KEY_BYTES
from validator_channel.net.identity import Identity, IdentityError, peer_identity
from validator_channel.net.limits import SHOWN_PEERS_MAX
from validator_channel.net.peers import CertifiedBy, Peer, PeeringsOf, Registry
from validator_channel.net.reasons import WORDS, os_reason, tls_reason
from validator_channel.net.tls import Material, Tls

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


def check_identity(connection: ssl.SSLObject, tls: Tls, material: Material) -> Identity:
    """Return the identity of the other end of a finished TLS handshake.

    Raises `HandshakeFailed`: ALPN, CERTIFICATE, KEY_TYPE; REVOKED; NOT_AUTHORIZED if the other end has our own key.
    """
    try:
        identity = peer_identity(connection)
    except IdentityError as error:
        raise HandshakeFailed(error.reason, str(error)) from None
    if tls.is_revoked(identity):
        names = ", ".join(sorted(map(format_id, identity.peers))[:SHOWN_PEERS_MAX])
        raise HandshakeFailed(REVOKED, f"the CRL names the peer's certificate, of {names or 'no peer'}")
    if identity.pin == material.pin:
        raise HandshakeFailed(ErrorCode.NOT_AUTHORIZED, "the peer has this side's own key")
    return identity


def begin_listener(registry: Registry, identity: Identity, material: Material) -> ListenerHello:
    """Return the listener's hello exchange; whom the certificate proves is decided by the registry when CLIENT_HELLO has arrived."""
    return ListenerHello(PeeringsOf(registry), _credentials(CertifiedBy(registry, identity), identity, material))


def begin_connector(peer: Peer, session: int, identity: Identity, material: Material) -> ConnectorHello:
    """Return the connector's hello exchange. Raises `HandshakeFailed` with NOT_AUTHORIZED if the certificate is another peer's."""
    objection = peer.objection(identity)
    if objection is not None:
        raise HandshakeFailed(
            ErrorCode.NOT_AUTHORIZED, f"the certificate does not belong to the expected peer: {objection}"
        )
    peers: Mapping[int, Peer] = {peer.channel: peer}
    return ConnectorHello(peer.peering, session, _credentials(CertifiedBy(lambda: peers, identity), identity, material))


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
            return HandshakeFailed(ErrorCode.TRANSPORT_LOST, os_reason(error))
        case _:
            return HandshakeFailed(ErrorCode.TRANSPORT_LOST, f"{type(error).__name__}: {error}")


def _credentials(certified: CertifiedBy, identity: Identity, material: Material) -> Credentials:
    return Credentials(material.key, identity.key, certified, secrets.token_bytes(KEY_BYTES))
