# SPDX-License-Identifier: Apache-2.0
"""Certificates, keys and CRLs with contents that `cryptography` refuses or reads late, from a peer and from an operator."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from channel_odd import (
    BAD_UTF8,
    DOUBLED,
    GOOD_URI,
    LOCALHOST,
    UNKNOWN_KEY,
    WRONG_CRL_VERSION,
    WRONG_VERSION,
    X400_ADDRESS,
    Patch,
    keep,
    patch_crl,
    patch_key,
    sequence,
    signed_leaf,
)
from channel_tls import SERVER, Pki, World, client_context, serving, until
from validator_channel.net.tls import Tls, TlsError
from validator_channel.wire import Role


@pytest.mark.parametrize(
    ("names", "patch"),
    [
        (sequence(GOOD_URI, X400_ADDRESS), keep),
        (sequence(GOOD_URI), DOUBLED),
        (sequence(GOOD_URI), WRONG_VERSION),
    ],
    ids=["a name of a kind that is not supported", "an extension twice", "a version that does not exist"],
)
async def test_odd_certificate_is_a_failed_handshake(pki: Pki, names: bytes, patch: Patch) -> None:
    odd = signed_leaf(pki, "odd", names, patch)

    async with serving(World(pki)) as world:
        assert await world.attempt(client_context(pki, odd)) == b""
        await until(lambda: world.failed == {"CERTIFICATE": 1})
        await world.connect()


async def test_certificate_that_ssl_cannot_decode_is_a_failed_handshake(pki: Pki) -> None:
    """asyncio reports what ``ssl`` raises, and gives it to whoever connects or accepts."""
    odd, good = signed_leaf(pki, "odd", sequence(GOOD_URI, BAD_UTF8, LOCALHOST)), pki.server
    reported: list[dict[str, Any]] = []

    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    async with serving(World(pki)) as world:
        assert await world.attempt(client_context(pki, odd)) == b""
        await until(lambda: world.failed == {"CERTIFICATE": 1})
    pki.server = odd
    async with serving(World(pki)) as world:
        assert (await world.refusal(server_hostname="localhost")).code == "CERTIFICATE"
    pki.server = good
    assert {context["message"] for context in reported} == {"SSL handshake failed"}


def put(target: Path, source: Path) -> None:
    target.write_bytes(source.read_bytes())


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (
            lambda pki: put(pki.server.certificate, signed_leaf(pki, "odd", GOOD_URI, WRONG_VERSION).certificate),
            "server.crt: expected a PEM certificate",
        ),
        (
            lambda pki: put(pki.server.certificate, signed_leaf(pki, "odd", GOOD_URI, UNKNOWN_KEY).certificate),
            "server.crt: malformed: Unknown key type",
        ),
        (lambda pki: patch_key(pki.server.key), "server.key: expected a PEM private key without a password"),
    ],
)
async def test_listener_survives_odd_files(pki: Pki, spoil: Callable[[Pki], None], why: str) -> None:
    async with serving(World(pki)) as world:
        spoil(pki)
        await world.connect()
        assert world.listener.counters.alarms == len(world.lines) == 1
        assert "the old certificate stays in use" in world.lines[0]
        assert why in world.lines[0]


def odd_authority(pki: Pki) -> None:
    put(pki.ca, signed_leaf(pki, "odd", GOOD_URI, UNKNOWN_KEY).certificate)


@pytest.mark.parametrize("spoil", [lambda pki: patch_crl(pki, WRONG_CRL_VERSION), odd_authority])
def test_odd_crl_or_authority_refuses_everybody_until_it_is_good_again(pki: Pki, spoil: Callable[[Pki], None]) -> None:
    alarms: list[str] = []
    tls = Tls(pki.server, Role.LISTENER, alarms.append)
    authority = pki.ca.read_bytes()
    spoil(pki)
    for _ in range(2):
        with pytest.raises(TlsError, match=r"CRL: .*(malformed: Unknown key type|expected a PEM CRL)"):
            tls.current()
    assert len(alarms) == 1
    pki.ca.write_bytes(authority)
    pki.revoke()
    tls.current()


def test_certificate_in_the_file_of_the_crl_is_not_trusted(pki: Pki) -> None:
    """A CRL is signed, so it may come from anywhere; OpenSSL trusts each certificate of such a file as a CA."""
    other = Pki(pki.folder / "other", "another CA")
    pki.crl.write_bytes(pki.crl.read_bytes() + other.ca.read_bytes())
    material = Tls(pki.server, Role.LISTENER, lambda _: None).current()
    assert material.context.cert_store_stats() == {"x509": 1, "crl": 1, "x509_ca": 1}


def test_lack_of_descriptors_delays_a_reload(pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files have not changed since, so that nothing but time brings the next attempt."""
    alarms: list[str] = []
    tls = Tls(pki.server, Role.LISTENER, alarms.append)
    before = tls.current().pin
    renewed = pki.leaf("renewed", [SERVER])
    renewed.key.replace(pki.server.key)
    renewed.certificate.replace(pki.server.certificate)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free_descriptor(), hard))
    try:
        with pytest.raises(TlsError, match=r"CRL: .*: Too many open files"):
            tls.current()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with pytest.raises(TlsError):
        tls.current()
    assert len(alarms) == 2
    monkeypatch.setattr("validator_channel.net.tls.RELOAD_SECONDS", 0.0)
    assert tls.current().pin != before
    assert len(alarms) == 2


@pytest.mark.parametrize("name", ["certificate", "key", "ca", "crl"])
def test_named_pipe_does_not_block_the_loop(pki: Pki, name: str) -> None:
    path: Path = getattr(pki.server, name)
    alarms: list[str] = []
    tls = Tls(pki.server, Role.LISTENER, alarms.append)
    path.unlink()
    os.mkfifo(path)
    tls.refresh()
    assert len(alarms) == 1
    assert alarms[0].endswith(f"{path}: expected a regular file")


def lowest_free_descriptor() -> int:
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    return free


async def test_failure_before_a_handshake_ends_one_connection(pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(World(pki)) as world:
        with monkeypatch.context() as patched:
            patched.setattr(Tls, "current", lambda _: 1 // 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
            assert await reader.read() == b""
            writer.close()
        await world.connect()
        assert world.lines == ["a connection could not begin"]
        assert world.listener.counters.alarms == 1
