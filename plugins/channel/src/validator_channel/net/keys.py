# SPDX-License-Identifier: Apache-2.0
"""The files of a private CA: `ca.crt`, `ca.key` and `ca.crl` in one folder, and what it issues. Source: channel_rules 3.4."""

from __future__ import annotations

import fcntl
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from validator_channel.net.authority import Authority, Leaf, Usage, issue, new_authority, new_crl, revoked_entry
from validator_channel.net.files import (
    MALFORMED,
    PRIVATE_MODE,
    PUBLIC_MODE,
    FileError,
    load_certificates,
    load_crls,
    load_key,
    read_file,
    write_files,
)
from validator_channel.net.limits import CLOCK_SKEW_SECONDS

CERTIFICATE: Final = "ca.crt"
KEY: Final = "ca.key"
CRL: Final = "ca.crl"


@dataclass(frozen=True, slots=True)
class NewChannel:
    """A random channel ID, and two random peer IDs in it."""

    channel: int
    peers: tuple[int, int]


def new_channel() -> NewChannel:
    """Return the IDs of a new channel. Source: 1.2.1."""
    channel = secrets.randbits(64)
    return NewChannel(channel, (channel << 64 | secrets.randbits(64), channel << 64 | secrets.randbits(64)))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be issued; see `Leaf`. With a ``request``, the key is in that PEM file and no private key is written."""

    name: str
    peers: Sequence[int]
    dns: Sequence[str] = ()
    addresses: Sequence[str] = ()
    usages: Sequence[Usage]
    days: int
    request: Path | None = None


def issue_files(folder: Path, order: Order, target: Path, *, overwrite: bool = False) -> list[Path]:
    """Issue a certificate as ``target``.crt, with a new private key as ``target``.key, and return the files.

    Raises `FileError`: for files of the CA, for the request, if the CA ends before the certificate, for names that X.509 does not allow,
    if a file exists and ``overwrite`` is not set.
    """
    authority = load_authority(folder)
    now = _now()
    ends = now + timedelta(days=order.days)
    if ends > authority.certificate.not_valid_after_utc:
        raise FileError(
            f"{folder / CERTIFICATE}: the CA ends before the certificate, at {_time(authority.certificate.not_valid_after_utc)}"
        )
    key = None if order.request is not None else Ed25519PrivateKey.generate()
    public = key.public_key() if key is not None else _requested_key(order.request)
    try:
        leaf = Leaf(
            name=order.name,
            peers=order.peers,
            dns=order.dns,
            addresses=order.addresses,
            usages=order.usages,
            not_before=max(now - timedelta(seconds=CLOCK_SKEW_SECONDS), authority.certificate.not_valid_before_utc),
            not_after=ends,
        )
        certificate = issue(authority, public, leaf)
    except ValueError as error:
        raise FileError(f"{order.name}: {error}") from None
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


def _time(value: datetime) -> str:
    return f"{value:%Y-%m-%dT%H:%M:%SZ}"
