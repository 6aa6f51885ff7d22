# SPDX-License-Identifier: Apache-2.0
"""TLS contexts and their live reload. Source: channel_rules 1.2.6 step 1, 3.2, 3.4.

Contexts are built directly: ``ssl.create_default_context`` would honour SSLKEYLOGFILE.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from validator_channel.errors import printable
from validator_channel.limits import LOAD_ATTEMPTS_MAX, RELOAD_SECONDS
from validator_channel.net.certificates import (
    ALPN,
    MALFORMED,
    FileError,
    Identity,
    Revocations,
    load_certificates,
    load_crls,
    load_key,
    pin_of,
    read_revocations,
)
from validator_channel.wire import Role


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where the PEM files of one side are; ``certificate`` begins with its leaf. Without ``crl`` no certificate is revoked."""

    certificate: Path
    key: Path
    ca: Path
    crl: Path | None = None


class TlsError(Exception):
    """Files that no connection can be made with: one line that names the file, what was expected and what was found."""


@dataclass(frozen=True, slots=True)
class Material:
    """What a handshake needs: the context, and the private key of its certificate with the key's pin."""

    context: ssl.SSLContext
    key: Ed25519PrivateKey = field(repr=False)
    pin: bytes
    authorities: tuple[x509.Certificate, ...] = field(repr=False)


Stamp = tuple[tuple[int, ...] | None, ...]


class Tls:
    """The present certificate, key, CA and CRL of one side; changed files take effect for new connections.

    A broken certificate, key or CA leaves the old ones in use; a broken, stale or missing CRL refuses everything. ``alarm`` is called with
    one line when either begins. What could not be used is read again after `RELOAD_SECONDS`, since the clock or a lack of descriptors may
    have been the reason. Raises `TlsError` if certificate, key or CA are broken at the start.
    """

    def __init__(self, files: TlsFiles, role: Role, alarm: Callable[[str], None]) -> None:
        self._files = files
        self._role = role
        self._alarm = alarm
        self._stamp = _stamp(files)
        self._material = _load(files, role)
        self._revocations: Revocations | None = None
        self._alarmed = self._kept = self._broken = ""
        self._read_at = time.monotonic()
        self._load_crl(self._material)
        self._watch_crl()

    def current(self) -> Material:
        """Return what a new connection uses. Raises `TlsError` while the CRL is broken, stale or missing."""
        self.refresh()
        problem = self._crl_problem()
        if problem:
            raise TlsError(problem)
        return self._material

    def refresh(self) -> None:
        """Load the files again if they have changed, and raise an alarm if the CRL has become stale."""
        stamp, now = _stamp(self._files), time.monotonic()
        is_due = (self._kept or self._broken) and now - self._read_at >= RELOAD_SECONDS
        if stamp != self._stamp or is_due:
            self._stamp, self._read_at = stamp, now
            self._load_certificate()
            self._load_crl(self._material)
        self._watch_crl()

    def is_revoked(self, identity: Identity) -> bool:
        """Return whether the CRL names a certificate; a stale CRL still does."""
        return self._revocations is not None and self._revocations.names(identity)

    def _load_certificate(self) -> None:
        before, self._kept = self._kept, ""
        try:
            self._material = _load(self._files, self._role)
        except TlsError as error:
            self._kept = str(error)
            if self._kept != before:
                self._alarm(f"the old certificate stays in use: {self._kept}")

    def _load_crl(self, material: Material) -> None:
        """Give the CRL to a context, which prefers the newest one it has of an issuer."""
        path = self._files.crl
        if path is None:
            return
        self._broken = f"CRL: {printable(str(path))}: not read"  # also if reading it fails in a way that nobody foresaw
        try:
            _check_regular(path)
            crls = load_crls(path)
            self._revocations = read_revocations(path, crls, material.authorities)
            _trust_crls(material.context, crls)
            self._broken = ""
        except (FileError, OSError) as error:
            self._broken = f"CRL: {error}"
        except MALFORMED as error:
            self._broken = f"CRL: {printable(str(path))}: malformed: {printable(str(error))}"

    def _crl_problem(self) -> str:
        if self._broken or self._revocations is None:
            return self._broken
        is_stale = datetime.now(UTC) >= self._revocations.next_update
        return (
            f"CRL: {self._files.crl}: its next update was due at {self._revocations.next_update:%FT%TZ}"
            if is_stale
            else ""
        )

    def _watch_crl(self) -> None:
        problem = self._crl_problem()
        if problem and problem != self._alarmed:
            self._alarm(f"every connection is refused: {problem}")
        self._alarmed = problem


def new_context(role: Role, *, checks_crl: bool) -> ssl.SSLContext:
    """Return a context without certificates: TLS 1.3 alone, both sides authenticated, no resumption. Source: 3.2."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if role is Role.LISTENER else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    if checks_crl:
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    context.options |= ssl.OP_NO_TICKET
    if role is Role.LISTENER:
        context.num_tickets = 0
    else:
        context.hostname_checks_common_name = False
    context.set_alpn_protocols([ALPN])
    return context


def _trust_crls(context: ssl.SSLContext, crls: list[x509.CertificateRevocationList]) -> None:
    """Give a context exactly these CRLs.

    ``ssl`` reads CRLs from files only, and trusts every certificate in such a file as a CA. The CRL's own file may come from a place that
    nobody trusts, and may have changed since its CRLs were verified.
    """
    with NamedTemporaryFile(prefix="channel-", suffix=".crl") as file:
        file.write(b"".join(crl.public_bytes(Encoding.PEM) for crl in crls))
        file.flush()
        context.load_verify_locations(cafile=file.name)


def _load(files: TlsFiles, role: Role) -> Material:
    for _ in range(LOAD_ATTEMPTS_MAX):
        before = _stamp(files)
        material = _load_once(files, role)
        if _stamp(files) == before:
            return material
    raise TlsError(f"{files.certificate}: the files change while they are read")


def _check_regular(*paths: Path) -> None:
    """To open anything else, such as a named pipe, could block the event loop."""
    for path in paths:
        if path.exists() and not path.is_file():
            raise FileError(f"{printable(str(path))}: expected a regular file")


def _load_once(files: TlsFiles, role: Role) -> Material:
    try:
        _check_regular(files.certificate, files.key, files.ca)
        leaf = load_certificates(files.certificate)[0]
        key = load_key(files.key)
        _check_pair(files, leaf, key)
        authorities = tuple(load_certificates(files.ca))
        context = new_context(role, checks_crl=files.crl is not None)
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
        context.load_verify_locations(cafile=files.ca)
    except FileError as error:
        raise TlsError(str(error)) from None
    except OSError as error:  # also ssl.SSLError
        raise TlsError(f"{files.certificate}: {error.strerror or error}") from None
    except MALFORMED as error:
        raise TlsError(f"{files.certificate}: malformed: {printable(str(error))}") from None
    return Material(context, key, pin_of(key.public_key()), authorities)


def _check_pair(files: TlsFiles, leaf: x509.Certificate, key: Ed25519PrivateKey) -> None:
    if leaf.public_key() != key.public_key():
        raise TlsError(f"{files.key}: expected the key of {files.certificate}, found another one")
    if leaf.not_valid_after_utc <= datetime.now(UTC):
        raise TlsError(f"{files.certificate}: the certificate has expired at {leaf.not_valid_after_utc:%FT%TZ}")


def _no_password() -> str:
    """Keep OpenSSL from asking the terminal for the password of an encrypted key."""
    return ""


def _stamp(files: TlsFiles) -> Stamp:
    """Return what changes with the files; None for a file that cannot be seen."""
    return tuple(_file_stamp(path) for path in (files.certificate, files.key, files.ca, files.crl) if path is not None)


def _file_stamp(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
