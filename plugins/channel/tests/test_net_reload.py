# SPDX-License-Identifier: Apache-2.0
"""Certificates, CA and CRL that change while a listener runs."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from channel_tls import CLIENT, SERVER, Pki, World, certificate_of, pin, serving, until
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from validator_channel.net.certificates import load_key, read_identity
from validator_channel.net.peers import HandshakeFailed, check_identity
from validator_channel.net.tls import Tls, TlsError, TlsFiles, new_context
from validator_channel.wire import Role


def replace(files: TlsFiles, by: TlsFiles) -> None:
    """Put other files in place, as a program that renews certificates does."""
    os.replace(by.key, files.key)  # noqa: PTH105
    os.replace(by.certificate, files.certificate)  # noqa: PTH105


async def test_new_certificate_is_used_without_a_restart(pki: Pki) -> None:
    async with serving(World(pki)) as world:
        before = await world.connect(1)
        new = pki.leaf("renewed", [SERVER])
        new_pin = pin(new)
        replace(pki.server, new)
        after = await world.connect(2)
        assert before.identity.pin != new_pin
        assert after.identity.pin == new_pin
        assert before.state == "ONLINE"
        assert world.listener.counters.alarms == 0


@pytest.mark.parametrize("broken", ["certificate", "key", "ca"])
@pytest.mark.parametrize("content", [b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", None])
async def test_broken_new_file_keeps_the_old_certificate(pki: Pki, broken: str, content: bytes | None) -> None:
    path: Path = getattr(pki.server, broken)
    good = path.read_bytes()

    async with serving(World(pki)) as world:
        client = TlsFiles(pki.client.certificate, pki.client.key, pki.folder / "copy.crt", pki.crl)
        client.ca.write_bytes(pki.ca.read_bytes())
        first = await world.connect(1, client)
        path.unlink() if content is None else path.write_bytes(content)
        for session_id in (2, 3):
            assert (await world.connect(session_id, client)).identity.pin == first.identity.pin
        assert [line for line in world.lines if "the old certificate stays in use" in line] == world.lines
        assert len(world.lines) == world.listener.counters.alarms == 1
        assert str(path) in world.lines[0]
        path.write_bytes(good)
        await world.connect(4, client)
        assert world.listener.counters.alarms == 1


async def test_revocation_works_while_the_certificate_is_broken(pki: Pki) -> None:
    """The old certificate stays in use, with the new CRL."""

    async with serving(World(pki)) as world:
        good = pki.leaf("good", [CLIENT])
        first = await world.connect(1, good)
        pki.server.key.write_bytes(b"broken")
        pki.revoke(pki.client)
        await world.refusal(2)
        await until(lambda: world.failed in ({"TLS": 1}, {"REVOKED": 1}))
        assert (await world.connect(3, good)).identity.pin == first.identity.pin


def test_revoked_certificate_is_refused_after_tls_too(pki: Pki) -> None:
    """The file may change between a connection's TLS context and the end of its handshake."""
    alarms: list[str] = []
    tls = Tls(pki.server, Role.LISTENER, alarms.append)
    identity = read_identity(certificate_of(pki.client))
    assert not tls.is_revoked(identity)
    pki.revoke(pki.client)
    tls.refresh()
    assert tls.is_revoked(identity)
    assert not tls.is_revoked(read_identity(certificate_of(pki.server)))
    certificate = certificate_of(pki.client).public_bytes(Encoding.DER)
    finished = SimpleNamespace(selected_alpn_protocol=lambda: "channel/1", getpeercert=lambda binary_form: certificate)
    with pytest.raises(HandshakeFailed, match="REVOKED"):
        check_identity(finished, tls, tls.current())
    pki.crl.unlink()
    tls.refresh()
    assert tls.is_revoked(identity)
    assert alarms == [f"every connection is refused: CRL: {pki.crl}: No such file or directory"]


def test_crl_that_becomes_stale_raises_one_alarm(pki: Pki) -> None:
    alarms: list[str] = []
    tls = Tls(pki.server, Role.LISTENER, alarms.append)
    pki.revoke(lifetime=timedelta(seconds=-60))
    for _ in range(3):
        with pytest.raises(TlsError, match="its next update was due at"):
            tls.current()
    assert len(alarms) == 1
    pki.revoke()
    tls.current()
    pki.revoke(lifetime=timedelta(seconds=-60))
    with pytest.raises(TlsError):
        tls.current()
    assert len(alarms) == 2


def other_ca(pki: Pki) -> None:
    other = Pki(pki.folder / "other", "another CA")
    other.crl.replace(pki.crl)


def future(pki: Pki) -> None:
    pki.number += 86_400
    pki.revoke()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (other_ca, "expected a CRL of the CA, found one of 'CN=another CA'"),
        (future, "the CRL begins in the future, at "),
        (lambda pki: pki.crl.write_bytes(b"x"), "expected a PEM CRL"),
        (lambda pki: pki.crl.unlink(), "No such file or directory"),
    ],
)
def test_unusable_crl_is_named(pki: Pki, spoil: Callable[[Pki], object], why: str) -> None:
    spoil(pki)
    alarms: list[str] = []
    tls = Tls(pki.server, Role.LISTENER, alarms.append)
    with pytest.raises(TlsError, match=why):
        tls.current()
    assert len(alarms) == 1
    assert "\n" not in alarms[0]


def encrypted(pki: Pki) -> None:
    key = load_key(pki.server.key)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    pki.server.key.write_bytes(pem)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda pki: pki.server.certificate.unlink(), r"server\.crt: No such file or directory"),
        (lambda pki: pki.server.certificate.write_bytes(b"x"), r"server\.crt: expected a PEM certificate"),
        (lambda pki: pki.server.key.write_bytes(b"x"), r"server\.key: expected a PEM private key without a password"),
        (encrypted, r"server\.key: expected a PEM private key without a password"),
        (lambda pki: pki.client.key.replace(pki.server.key), r"server\.key: expected the key of .*server\.crt, found"),
        (lambda pki: pki.ca.write_bytes(b"x"), r"ca\.crt: expected a PEM certificate"),
        (
            lambda pki: pki.odd_leaf("server", ec.generate_private_key(ec.SECP256R1()), []),
            r"server\.key: expected an Ed25519 key, found ECPrivateKey",
        ),
        (lambda pki: pki.leaf("server", not_after=pki.now - timedelta(hours=1)), "the certificate has expired at "),
    ],
)
def test_broken_files_at_the_start_are_one_clear_line(pki: Pki, spoil: Callable[[Pki], object], why: str) -> None:
    spoil(pki)
    with pytest.raises(TlsError, match=why) as raised:
        Tls(pki.server, Role.LISTENER, lambda _: None)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("role", Role)
def test_contexts_are_strict(role: Role) -> None:
    context = new_context(role, checks_crl=True)
    assert context.minimum_version == context.maximum_version == ssl.TLSVersion.TLSv1_3
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.verify_flags & ssl.VERIFY_X509_STRICT
    assert context.verify_flags & ssl.VERIFY_CRL_CHECK_LEAF
    assert not new_context(role, checks_crl=False).verify_flags & ssl.VERIFY_CRL_CHECK_LEAF
    assert context.options & ssl.OP_NO_TICKET
    assert context.keylog_filename is None
    if role is Role.LISTENER:
        assert context.num_tickets == 0
    else:
        assert context.check_hostname
        assert not context.hostname_checks_common_name
