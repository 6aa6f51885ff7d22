# SPDX-License-Identifier: Apache-2.0
"""What a certificate proves about a peer, checked after TLS because ``ssl`` cannot. Source: channel_rules 1.2.6 step 1, 3.2."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from validator_channel.hello import spki
from validator_channel.ids import format_id
from validator_channel.net.files import MALFORMED

if TYPE_CHECKING:
    import ssl  # the commands make certificates without it

ALPN: Final = "channel/1"
"""The application protocol that TLS must have selected."""

_PEER_URI: Final = re.compile(r"channel:peer:([0-9a-f]{32})")


class IdentityError(Exception):
    """A TLS peer that is refused before the hello exchange; ``reason`` is ALPN, CERTIFICATE or KEY_TYPE."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Identity:
    """The peer's leaf certificate: peer IDs of its URIs, Ed25519 key, SHA-256 of its SubjectPublicKeyInfo, and what a CRL names."""

    peers: frozenset[int]
    key: Ed25519PublicKey
    pin: bytes
    issuer: bytes
    serial: int
    not_after: datetime


def peer_identity(connection: ssl.SSLObject) -> Identity:
    """Return the identity of the other end of a finished TLS handshake.

    Raises `IdentityError`: ALPN if the selected protocol is not channel/1; CERTIFICATE for one that is missing or malformed; KEY_TYPE for a
    key that is not Ed25519. Source: 1.2.6 step 1.
    """
    selected = connection.selected_alpn_protocol()
    if selected != ALPN:
        raise IdentityError("ALPN", f"ALPN: expected {ALPN}, found {selected or 'none'}")
    encoded = connection.getpeercert(binary_form=True)
    if encoded is None:
        raise IdentityError("CERTIFICATE", "the peer has no certificate")
    try:
        return read_identity(x509.load_der_x509_certificate(encoded))
    except MALFORMED as error:
        raise IdentityError("CERTIFICATE", f"malformed certificate: {error}") from None


def read_identity(certificate: x509.Certificate) -> Identity:
    """Return the identity in a certificate; its subject is not consulted.

    Raises `IdentityError` with KEY_TYPE for a key that is not Ed25519, one of `MALFORMED` for a malformed certificate.
    """
    key = certificate.public_key()
    if not isinstance(key, Ed25519PublicKey):
        raise IdentityError("KEY_TYPE", "the certificate's key is not Ed25519")
    return Identity(
        peers=peers_of(certificate),
        key=key,
        pin=pin_of(key),
        issuer=certificate.issuer.public_bytes(),
        serial=certificate.serial_number,
        not_after=certificate.not_valid_after_utc,
    )


def peers_of(certificate: x509.Certificate) -> frozenset[int]:
    """Return the peer IDs of the URIs ``channel:peer:<32 lower-case hex digits>``; any other URI is ignored."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    return frozenset(int(found[1], 16) for uri in uris if (found := _PEER_URI.fullmatch(uri)) is not None)


def peer_uri(peer: int) -> str:
    """Return the URI that names a peer in a certificate."""
    return f"channel:peer:{format_id(peer)}"


def pin_of(key: Ed25519PublicKey) -> bytes:
    """Return the 32 bytes by which a registry pins a key: SHA-256 of its SubjectPublicKeyInfo."""
    return sha256(spki(key)).digest()
