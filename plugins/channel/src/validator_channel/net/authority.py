# SPDX-License-Identifier: Apache-2.0
"""A private CA: what it signs, its files, and how they are shown to people. Source: RFC 5280; channel_rules 1.2.1, 3.2, 3.4."""

from __future__ import annotations

import fcntl
import ipaddress
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from validator_channel.errors import printable
from validator_channel.limits import CLOCK_SKEW_SECONDS
from validator_channel.net.certificates import (
    MALFORMED,
    PRIVATE_MODE,
    PUBLIC_MODE,
    FileError,
    load_certificates,
    load_crls,
    load_key,
    peer_uri,
    peers_of,
    pin_of,
    read_file,
    write_files,
)
from validator_channel.wire import format_id

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


CERTIFICATE: Final = "ca.crt"
KEY: Final = "ca.key"
CRL: Final = "ca.crl"


def new_channel() -> tuple[int, tuple[int, int]]:
    """Return a random channel ID, and two random peer IDs in it. Source: 1.2.1."""
    channel = secrets.randbits(64)
    return channel, (channel << 64 | secrets.randbits(64), channel << 64 | secrets.randbits(64))


def create_authority(folder: Path, name: str, days: int, crl_days: int) -> list[Path]:
    """Create a CA with an empty CRL in a folder, which is made if it is missing, and return the files. Raises `FileError`."""
    now = _now()
    authority = new_authority(name, now, timedelta(days=days))
    crl = new_crl(authority, (), 1, now, timedelta(days=crl_days))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: {error.strerror}") from None
    files = [
        (folder / KEY, _key_pem(authority.key), PRIVATE_MODE),
        (folder / CERTIFICATE, _pem(authority.certificate), PUBLIC_MODE),
        (folder / CRL, _pem(crl), PUBLIC_MODE),
    ]
    write_files(*files)
    return [path for path, _, _ in files]


def issue_files(
    folder: Path,
    target: Path,
    *,
    name: str,
    peers: Sequence[int],
    dns: Sequence[str] = (),
    addresses: Sequence[str] = (),
    usages: Sequence[Usage],
    days: int,
    request: Path | None = None,
    overwrite: bool = False,
) -> list[Path]:
    """Issue a certificate (`Leaf`) as ``target``.crt, with a new private key as ``target``.key, and return the files.

    With a ``request``, the key is in that PEM file and no private key is written. Raises `FileError`: for files of the CA, for the request,
    if the CA ends before the certificate, for names that X.509 does not allow, if a file exists and ``overwrite`` is not set.
    """
    authority = load_authority(folder)
    now = _now()
    ends = now + timedelta(days=days)
    if ends > authority.certificate.not_valid_after_utc:
        raise FileError(
            f"{folder / CERTIFICATE}: the CA ends before the certificate, at {_time(authority.certificate.not_valid_after_utc)}"
        )
    key = None if request is not None else Ed25519PrivateKey.generate()
    public = key.public_key() if key is not None else _requested_key(request)
    try:
        leaf = Leaf(
            name=name,
            peers=peers,
            dns=dns,
            addresses=addresses,
            usages=usages,
            not_before=max(now - _SKEW, authority.certificate.not_valid_before_utc),
            not_after=ends,
        )
        certificate = issue(authority, public, leaf)
    except ValueError as error:
        raise FileError(f"{name}: {error}") from None
    files = [(Path(f"{target}.crt"), _pem(certificate), PUBLIC_MODE)]
    if key is not None:
        files.insert(0, (Path(f"{target}.key"), _key_pem(key), PRIVATE_MODE))
    write_files(*files, overwrite=overwrite)
    return [path for path, _, _ in files]


def revoke_files(folder: Path, certificates: Sequence[Path], crl_days: int) -> int:
    """Add certificates to the CA's CRL, renew it, and return how many certificates it names. Without any, the CRL is only renewed.

    Two calls at once do not lose an entry. Raises `FileError`, also for a certificate of another CA.
    """
    authority = load_authority(folder)
    path = folder / CRL
    with _locked(folder / KEY):
        old = load_crls(path)[0]
        entries = {entry.serial_number: entry for entry in old}
        now = _now()
        for each in certificates:
            serial = _serial_of(each, authority)
            entries.setdefault(serial, revoked_entry(serial, now))
        try:
            number = old.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number + 1
        except x509.ExtensionNotFound:
            raise FileError(f"{path}: expected a CRL with a number") from None
        crl = new_crl(authority, entries.values(), number, now, timedelta(days=crl_days))
        write_files((path, _pem(crl), PUBLIC_MODE), overwrite=True)
    return len(entries)


def load_authority(folder: Path) -> Authority:
    """Return the CA of a folder. Raises `FileError`, also if key and certificate do not belong together."""
    certificate, key = load_certificates(folder / CERTIFICATE)[0], load_key(folder / KEY)
    if not _has_key(certificate, key.public_key()):
        raise FileError(f"{folder / KEY}: expected the key of {CERTIFICATE}, found another one")
    return Authority(certificate, key)


def _has_key(certificate: x509.Certificate, key: Ed25519PublicKey) -> bool:
    try:
        return certificate.public_key() == key
    except MALFORMED:  # a key of a kind that is not supported
        return False


def _serial_of(path: Path, authority: Authority) -> int:
    certificate = load_certificates(path)[0]
    try:
        certificate.verify_directly_issued_by(authority.certificate)
    except Exception:  # noqa: BLE001 - several classes, all of which mean the same
        raise FileError(f"{path}: expected a certificate of this CA") from None
    return certificate.serial_number


def _requested_key(path: Path | None) -> Ed25519PublicKey:
    assert path is not None
    try:
        request = x509.load_pem_x509_csr(read_file(path))
        key = request.public_key()
        is_valid = request.is_signature_valid
    except MALFORMED:
        raise FileError(f"{path}: expected a PEM certificate signing request") from None
    if not isinstance(key, Ed25519PublicKey):
        raise FileError(f"{path}: expected an Ed25519 key")
    if not is_valid:
        raise FileError(f"{path}: the request is not signed with its key")
    return key


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _pem(value: x509.Certificate | x509.CertificateRevocationList) -> bytes:
    return value.public_bytes(Encoding.PEM)


def _key_pem(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


_USAGES = {purpose: str(usage) for usage, purpose in _PURPOSES.items()}


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
