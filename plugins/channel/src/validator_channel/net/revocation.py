# SPDX-License-Identifier: Apache-2.0
"""CRLs as this side checks them itself, in addition to TLS. Source: channel_rules 3.2 "revocation"."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from validator_channel.net.files import FileError
from validator_channel.net.identity import Identity


@dataclass(frozen=True, slots=True)
class Revocations:
    """The revoked certificates as (issuer, serial number), and when the first of the CRLs becomes stale."""

    revoked: frozenset[tuple[bytes, int]]
    next_update: datetime

    def names(self, identity: Identity) -> bool:
        """Return whether a certificate is revoked."""
        return (identity.issuer, identity.serial) in self.revoked


def read_revocations(
    path: Path, crls: Iterable[x509.CertificateRevocationList], authorities: Sequence[x509.Certificate]
) -> Revocations:
    """Return the revocations of a file's CRLs.

    Raises `FileError` for a CRL that no authority has signed, begins in the future, or names no next update. A stale CRL is returned.
    """
    revoked: set[tuple[bytes, int]] = set()
    updates = []
    for crl in crls:
        if not any(_is_signed_by(crl, authority) for authority in authorities):
            raise FileError(f"{path}: expected a CRL of the CA, found one of {crl.issuer.rfc4514_string()!r}")
        if crl.last_update_utc > datetime.now(UTC):
            raise FileError(f"{path}: the CRL begins in the future, at {crl.last_update_utc:%FT%TZ}")
        if crl.next_update_utc is None:
            raise FileError(f"{path}: the CRL has no next update")
        updates.append(crl.next_update_utc)
        issuer = crl.issuer.public_bytes()
        revoked.update((issuer, entry.serial_number) for entry in crl)
    return Revocations(frozenset(revoked), min(updates))


def _is_signed_by(crl: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    key = authority.public_key()
    return crl.issuer == authority.subject and isinstance(key, Ed25519PublicKey) and crl.is_signature_valid(key)
