# SPDX-License-Identifier: Apache-2.0
"""Certificates are verified for the name in the URL, whatever address it has; connections to this very machine are refused."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpcore
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from validator_webhook.addresses import networks
from validator_webhook.sending import CheckedNetwork, Names, Refused
from webhook_world import memory_of, receiving, running, until, verdict


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Return a certificate for a name, which signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / f"{name}.crt", folder / f"{name}.key"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files


def test_certificates_are_verified_for_the_name(tmp_path: Path) -> None:
    ca_file, key = certificate(tmp_path, "hooks.example")
    with receiving() as receiver:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(ca_file, key)
        receiver._server.socket = tls.wrap_socket(receiver._server.socket, server_side=True)
        port = receiver.url.rpartition(":")[2].partition("/")[0]
        names = Names(lambda *_: ["127.0.0.1"])
        table: dict[str, Any] = {"allow_http": False}
        wanted = {
            "right": {"url": f"https://hooks.example:{port}/"},
            "other-name": {"url": f"https://other.example:{port}/"},
        }
        trusting = memory_of(tmp_path, wanted, ca_file=str(ca_file), **table)
        trusting.emit("verdicts", verdict(1))
        with running(trusting, names=names) as run:
            until(lambda: len(receiver.accepted) == 1)
            until(lambda: run.state("other-name")["failures"] >= 2)
            assert run.state("other-name")["last_failure"].startswith("tls: ")
            assert trusting.measured()["failed_attempts_total", "other-name", "tls"] >= 2
        strict = memory_of(tmp_path, wanted, **table)
        strict.emit("verdicts", verdict(1))
        with running(strict, names=names) as run:
            until(lambda: run.state("right")["failures"] >= 2)
            assert run.state("right")["last_failure"].startswith("tls: ")
        assert len(receiver.requests) == 1


class _Connected(httpcore.AsyncNetworkStream):
    """A connection between two addresses."""

    def __init__(self, own: str, peer: str) -> None:
        self._addresses = {"client_addr": (own, 40_000), "server_addr": (peer, 443)}
        self.is_closed = False

    async def aclose(self) -> None:
        self.is_closed = True

    def get_extra_info(self, info: str) -> Any:
        return self._addresses.get(info)


class _Backend(httpcore.AsyncNetworkBackend):
    def __init__(self, own: str) -> None:
        self._own = own
        self.connections: list[_Connected] = []

    async def connect_tcp(self, host: str, *_: Any) -> httpcore.AsyncNetworkStream:  # type: ignore[override]
        self.connections.append(_Connected(self._own, host))
        return self.connections[-1]


@pytest.mark.parametrize(("allowed", "refused"), [((), True), (("1.2.3.4",), False)])
def test_a_public_address_of_this_machine_is_refused(allowed: tuple[str, ...], refused: bool) -> None:
    async def resolve(_: str, __: int) -> list[str]:
        return ["1.2.3.4"]

    network = CheckedNetwork(resolve, networks(allowed))
    backend = _Backend("1.2.3.4")
    network._backend = backend  # type: ignore[assignment]
    if refused:
        with pytest.raises(
            Refused, match=r"^1\.2\.3\.4 is an address of this machine; allow_networks does not allow it$"
        ):
            asyncio.run(network.connect_tcp("self.example", 443))
    else:
        asyncio.run(network.connect_tcp("self.example", 443))
    assert [each.is_closed for each in backend.connections] == [refused]


def test_another_public_address_is_used() -> None:
    async def resolve(_: str, __: int) -> list[str]:
        return ["10.0.0.1", "1.2.3.4"]

    network = CheckedNetwork(resolve, ())
    backend = network._backend = _Backend("5.6.7.8")  # type: ignore[assignment]
    asyncio.run(network.connect_tcp("other.example", 443))
    assert [each._addresses["server_addr"][0] for each in backend.connections] == ["1.2.3.4"]
