# SPDX-License-Identifier: Apache-2.0
"""PEM files: read with one clear line for what is wrong, written at once or not at all. Source: channel_rules 3.4."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from validator_channel.net.limits import FILE_BYTES_MAX
from validator_channel.printing import printable

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
