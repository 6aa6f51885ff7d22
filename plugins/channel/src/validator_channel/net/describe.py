# SPDX-License-Identifier: Apache-2.0
"""Certificates, keys and CRLs as fields for people and programs; a private key never appears."""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from validator_channel.ids import format_id
from validator_channel.net.files import MALFORMED, FileError, load_certificates, load_crls, load_key, read_file
from validator_channel.net.identity import peers_of, pin_of
from validator_channel.printing import printable

_USAGES = {ExtendedKeyUsageOID.CLIENT_AUTH: "client", ExtendedKeyUsageOID.SERVER_AUTH: "server"}


def describe_file(path: Path) -> list[dict[str, Any]]:
    """Return the fields of each object in a PEM file. Raises `FileError` for a file that holds none that this knows."""
    data = read_file(path)
    try:
        if b"-----BEGIN CERTIFICATE-----" in data:
            return [_certificate(each) for each in load_certificates(path)]
        if b"-----BEGIN X509 CRL-----" in data:
            return [_crl(each) for each in load_crls(path)]
    except MALFORMED as error:
        raise FileError(f"{printable(str(path))}: {printable(str(error))}") from None
    if b"PRIVATE KEY-----" in data:
        return [{"what": "private key", "key": "Ed25519", "pin": pin_of(load_key(path).public_key()).hex()}]
    raise FileError(f"{printable(str(path))}: expected a PEM certificate, private key or CRL")


def _certificate(certificate: x509.Certificate) -> dict[str, Any]:
    names = _extension(certificate, x509.SubjectAlternativeName)
    usages = _extension(certificate, x509.ExtendedKeyUsage)
    constraints = _extension(certificate, x509.BasicConstraints)
    key = certificate.public_key()
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return {
        "what": "CA certificate" if constraints is not None and constraints.ca else "certificate",
        "subject": certificate.subject.rfc4514_string(),
        "issuer": certificate.issuer.rfc4514_string(),
        "serial": f"{certificate.serial_number:x}",
        "begins": _time(certificate.not_valid_before_utc),
        "ends": _time(certificate.not_valid_after_utc),
        "key": "Ed25519" if isinstance(key, Ed25519PublicKey) else type(key).__name__.strip("_"),
        "pin": sha256(spki).hexdigest(),
        "peers": sorted(format_id(peer) for peer in peers_of(certificate)),
        "dns": names.get_values_for_type(x509.DNSName) if names is not None else [],
        "ip": [str(each) for each in names.get_values_for_type(x509.IPAddress)] if names is not None else [],
        "usage": [_USAGES.get(each, each.dotted_string) for each in usages] if usages is not None else [],
    }


def _crl(crl: x509.CertificateRevocationList) -> dict[str, Any]:
    number = _extension(crl, x509.CRLNumber)
    return {
        "what": "CRL",
        "issuer": crl.issuer.rfc4514_string(),
        "number": number.crl_number if number is not None else None,
        "begins": _time(crl.last_update_utc),
        "next_update": _time(crl.next_update_utc) if crl.next_update_utc is not None else None,
        "revoked": [f"{entry.serial_number:x} at {_time(entry.revocation_date_utc)}" for entry in crl],
    }


def _extension(source: x509.Certificate | x509.CertificateRevocationList, kind: type[Any]) -> Any:
    try:
        return source.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _time(value: datetime) -> str:
    return f"{value:%Y-%m-%dT%H:%M:%SZ}"
