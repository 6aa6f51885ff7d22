# SPDX-License-Identifier: Apache-2.0
"""Certificates, keys and CRLs that are signed as they must be, but hold what the builders of `cryptography` refuse to write."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from channel_tls import CLIENT, Pki, certificate_of
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from validator_channel.net.tls import TlsFiles

Patch = Callable[[bytes], bytes]

SIGNATURE_BYTES: Final = 64
NAMES: Final = "2.5.29.17"
SPARE: Final = ("2.5.29.98", "2.5.29.99")
"""Extensions that nobody knows; a patch turns one into another."""
_SPARE_DER: Final = (bytes.fromhex("0603551d62"), bytes.fromhex("0603551d63"))
_VERSION_3: Final = bytes.fromhex("a003020102")
_CRL_VERSION_2: Final = bytes.fromhex("02010130")
_ED25519: Final = bytes.fromhex("06032b6570")
_UNKNOWN_KEY: Final = bytes.fromhex("06032b657e")


def sequence(*items: bytes) -> bytes:
    """A DER sequence, at most 127 bytes long."""
    body = b"".join(items)
    assert len(body) < 0x80
    return bytes([0x30, len(body)]) + body


def uri(text: bytes) -> bytes:
    """A general name that is a URI."""
    return bytes([0x86, len(text)]) + text


GOOD_URI: Final = uri(f"channel:peer:{CLIENT:032x}".encode())
LOCALHOST: Final = b"\x82\x09localhost"
X400_ADDRESS: Final = bytes.fromhex("a3020500")
BAD_UTF8: Final = uri(b"\xff\xfe")


def keep(data: bytes) -> bytes:
    return data


def swap(old: bytes, new: bytes) -> Patch:
    """Replace the first occurrence of bytes, which must be there."""

    def patch(data: bytes) -> bytes:
        assert old in data
        assert len(old) == len(new)
        return data.replace(old, new, 1)

    return patch


DOUBLED: Final = swap(_SPARE_DER[0], _SPARE_DER[1])
WRONG_VERSION: Final = swap(_VERSION_3, bytes.fromhex("a003020107"))
WRONG_CRL_VERSION: Final = swap(_CRL_VERSION_2, bytes.fromhex("02010530"))
UNKNOWN_KEY: Final = swap(b"\x30\x05" + _ED25519 + b"\x03\x21", b"\x30\x05" + _UNKNOWN_KEY + b"\x03\x21")


def signed_leaf(pki: Pki, name: str, names: bytes, patch: Patch = keep) -> TlsFiles:
    """A leaf of the CA with these bytes as its names, and two unknown extensions; ``patch`` is applied before it is signed."""
    key = Ed25519PrivateKey.generate()
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .issuer_name(pki.authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(certificate_of(pki.client).not_valid_before_utc)
        .not_valid_after(certificate_of(pki.client).not_valid_after_utc)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    for each in certificate_of(pki.client).extensions:
        if not isinstance(each.value, x509.SubjectAlternativeName | x509.SubjectKeyIdentifier):
            builder = builder.add_extension(each.value, critical=each.critical)
    for oid, value in ((NAMES, names), *((oid, b"\5\0") for oid in SPARE)):
        extension = x509.UnrecognizedExtension(x509.ObjectIdentifier(oid), value)
        builder = builder.add_extension(extension, critical=False)
    made = builder.sign(pki.authority.key, None)
    files = TlsFiles(pki.folder / f"{name}.crt", pki.folder / f"{name}.key", pki.ca, pki.crl)
    _write(files.certificate, "CERTIFICATE", _resigned(pki, made, made.tbs_certificate_bytes, patch))
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files


def patch_crl(pki: Pki, patch: Patch) -> None:
    """Apply a patch to the CA's CRL and sign it again."""
    pki.revoke(pki.client)
    crl = x509.load_pem_x509_crl(pki.crl.read_bytes())
    _write(pki.crl, "X509 CRL", _resigned(pki, crl, crl.tbs_certlist_bytes, patch))


def patch_key(path: Path) -> None:
    """Turn a private key into one of an unknown algorithm."""
    der = base64.b64decode(b"".join(path.read_bytes().splitlines()[1:-1]))
    _write(path, "PRIVATE KEY", swap(_ED25519, _UNKNOWN_KEY)(der))


def _resigned(pki: Pki, made: Any, signed: bytes, patch: Patch) -> bytes:
    der, patched = made.public_bytes(Encoding.DER), patch(signed)
    return bytes(der.replace(signed, patched)[:-SIGNATURE_BYTES] + pki.authority.key.sign(patched))


def _write(path: Path, label: str, der: bytes) -> None:
    path.write_text(f"-----BEGIN {label}-----\n{base64.encodebytes(der).decode()}-----END {label}-----\n")
