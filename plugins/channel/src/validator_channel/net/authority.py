# SPDX-License-Identifier: Apache-2.0
"""A private CA's certificates and CRLs: Ed25519, with every extension that VERIFY_X509_STRICT requires. Source: RFC 5280; 3.2, 3.4.

Nothing here reads or writes a file or a clock: `keys` does.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from validator_channel.net.identity import peer_uri
from validator_channel.net.limits import CLOCK_SKEW_SECONDS

_SKEW = timedelta(seconds=CLOCK_SKEW_SECONDS)


class Usage(StrEnum):
    """What a leaf certificate is for."""

    CLIENT = "client"
    SERVER = "server"


_PURPOSES = {Usage.CLIENT: ExtendedKeyUsageOID.CLIENT_AUTH, Usage.SERVER: ExtendedKeyUsageOID.SERVER_AUTH}


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA: its certificate and its private key."""

    certificate: x509.Certificate
    key: Ed25519PrivateKey = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """What a leaf certificate says: a name for people, peer IDs, DNS names and IP addresses, usages, and when it ends.

    Raises ``ValueError`` for a text in ``addresses`` that is not an IP address, or a name that is not ASCII.
    """

    name: str
    peers: Sequence[int] = ()
    dns: Sequence[str] = ()
    addresses: Sequence[str] = ()
    usages: Sequence[Usage] = (Usage.CLIENT,)
    not_before: datetime
    not_after: datetime

    def names(self) -> list[x509.GeneralName]:
        """Return the subject alternative names."""
        return [
            *(x509.UniformResourceIdentifier(peer_uri(peer)) for peer in self.peers),
            *(x509.DNSName(name) for name in self.dns),
            *(x509.IPAddress(ipaddress.ip_address(address)) for address in self.addresses),
        ]


def new_authority(name: str, now: datetime, lifetime: timedelta) -> Authority:
    """Return a new CA that signs leaf certificates only. Raises ``ValueError`` for a name that is empty or longer than 64 characters."""
    key = Ed25519PrivateKey.generate()
    subject = _name(name)
    public = key.public_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
    )
    return Authority(builder.sign(key, None), key)


def issue(authority: Authority, key: Ed25519PublicKey, leaf: Leaf) -> x509.Certificate:
    """Return a certificate for a key. Raises ``ValueError`` for what X.509 does not allow in it, such as an end before its begin."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(leaf.name))
        .issuer_name(authority.certificate.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(leaf.not_before)
        .not_valid_after(leaf.not_after)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([_PURPOSES[usage] for usage in leaf.usages]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(_authority_identifier(authority), critical=False)
    )
    if names := leaf.names():
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(authority.key, None)


def new_crl(
    authority: Authority,
    revoked: Iterable[x509.RevokedCertificate],
    number: int,
    now: datetime,
    lifetime: timedelta,
) -> x509.CertificateRevocationList:
    """Return a CRL with its number, whose next update is due after ``lifetime``."""
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.certificate.subject)
        .last_update(now - _SKEW)
        .next_update(now + lifetime)
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(_authority_identifier(authority), critical=False)
    )
    for entry in revoked:
        builder = builder.add_revoked_certificate(entry)
    return builder.sign(authority.key, None)


def revoked_entry(serial: int, now: datetime) -> x509.RevokedCertificate:
    """Return the entry of a CRL for a serial number."""
    return x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _authority_identifier(authority: Authority) -> x509.AuthorityKeyIdentifier:
    found = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(found.value)
