# SPDX-License-Identifier: Apache-2.0
"""PEM files, and what a certificate, a CRL or a pre-shared key in them proves. Source: channel_rules 1.2.6, 3.2, 3.4."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from validator_channel.errors import printable
from validator_channel.hello import spki
from validator_channel.limits import FILE_BYTES_MAX, KEY_BYTES
from validator_channel.wire import format_id

PRIVATE_MODE = 0o600
PUBLIC_MODE = 0o644
MALFORMED: Final = (
    ValueError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""What `cryptography` raises for a certificate, CRL, request or key that it cannot read; some only when a field is read."""

_CRL = re.compile(rb"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----", re.DOTALL)
_Parsed = TypeVar("_Parsed")


class FileError(Exception):
    """A file that cannot be used: one line that names the file, what was expected and what was found."""


def read_file(path: Path) -> bytes:
    """Return the bytes of a file. Raises `FileError` if it cannot be read or is longer than 16 MiB."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise FileError(f"{_name(path)}: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise FileError(f"{_name(path)}: expected at most {FILE_BYTES_MAX} bytes")
    return data


def load_certificates(path: Path) -> list[x509.Certificate]:
    """Return the certificates of a PEM file, at least one. Raises `FileError`."""
    return _parse(path, x509.load_pem_x509_certificates, "a PEM certificate")


def load_key(path: Path) -> Ed25519PrivateKey:
    """Return the private key of a PEM file without a password. Raises `FileError`, also for a key that is not Ed25519."""
    key = _parse(path, lambda data: load_pem_private_key(data, password=None), "a PEM private key without a password")
    if not isinstance(key, Ed25519PrivateKey):
        raise FileError(f"{_name(path)}: expected an Ed25519 key, found {type(key).__name__.lstrip('_')}")
    return key


def load_crls(path: Path) -> list[x509.CertificateRevocationList]:
    """Return the CRLs of a PEM file, at least one. Raises `FileError`."""

    def parse(data: bytes) -> list[x509.CertificateRevocationList]:
        found = [x509.load_pem_x509_crl(block) for block in _CRL.findall(data)]
        if not found:
            raise ValueError
        return found

    return _parse(path, parse, "a PEM CRL")


def write_files(*files: tuple[Path, bytes, int], overwrite: bool = False) -> None:
    """Write files, each with its mode, so that none is ever visible in part.

    Raises `FileError` if one exists, before any is written, unless ``overwrite``; then if one cannot be written.
    """
    for path, _, _ in files:
        if not overwrite and os.path.lexists(path):
            raise FileError(f"{_name(path)}: exists already")
    for path, data, mode in files:
        try:
            _write(path, data, mode, overwrite=overwrite)
        except FileExistsError:
            raise FileError(f"{_name(path)}: exists already") from None
        except OSError as error:
            raise FileError(f"{_name(path)}: {error.strerror}") from None


def _write(path: Path, data: bytes, mode: int, *, overwrite: bool) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        if overwrite:
            temporary.replace(path)
        else:
            path.hardlink_to(temporary)  # unlike a rename, this fails if the name exists
    finally:
        temporary.unlink(missing_ok=True)


def _parse(path: Path, parse: Callable[[bytes], _Parsed], expected: str) -> _Parsed:
    data = read_file(path)
    try:
        return parse(data)
    except (*MALFORMED, TypeError):  # TypeError: the key has a password
        raise FileError(f"{_name(path)}: expected {expected}") from None


def _name(path: Path) -> str:
    return printable(str(path))


ALPN: Final = "channel/1"
"""The application protocol that TLS must have selected."""

_PEER_URI: Final = re.compile(r"channel:peer:([0-9a-f]{32})")


@dataclass(frozen=True, slots=True)
class Identity:
    """The peer's leaf certificate: peer IDs of its URIs, Ed25519 key, SHA-256 of its SubjectPublicKeyInfo, and what a CRL names."""

    peers: frozenset[int]
    key: Ed25519PublicKey
    pin: bytes
    issuer: bytes
    serial: int
    not_after: datetime


def read_identity(certificate: x509.Certificate) -> Identity | None:
    """Return the identity in a certificate; None if its key is not Ed25519. Its subject is not consulted.

    Raises one of `MALFORMED` for a malformed certificate.
    """
    key = certificate.public_key()
    if not isinstance(key, Ed25519PublicKey):
        return None
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


_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def read_psk(path: Path) -> bytes:
    """Return a pre-shared key: 64 hex digits in a file that only its owner may read.

    Raises ``ValueError``, which never holds the key: for a file that cannot be read, then for its mode, then for what is in it.
    """
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(path.stat().st_mode)
            text = file.read(2 * KEY_BYTES + 2)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    if mode & _OTHERS:
        raise ValueError(f"{path}: expected a file that only its owner may read (mode 0600), found mode {mode:04o}")
    try:
        key = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ValueError(f"{path}: expected {2 * KEY_BYTES} hex digits")
    return key
