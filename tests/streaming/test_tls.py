# SPDX-License-Identifier: Apache-2.0
"""A broker that speaks TLS: the job reads and writes through both of its clients, and one that does not trust the broker says so."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.cli.follower import invoke
from tests.streaming.harness import produce
from tests.streaming.processes import job, write_configuration
from tests.streaming.reference import IMMEDIATE, chains, reference
from validator import exit_codes
from validator.config.toml import to_toml
from validator.kafka import refusals, retry
from validator.kafka.broker import HOST, EmbeddedBroker, _free_ports, server_login
from validator.kafka.reader import TopicReader
from validator.kafka.topics import create_topics
from validator.topics import INPUT_TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PREFIX = "tls."
CLIENTS = "tls-clients."


class Authority:
    """A certificate authority, with its own key."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("an authority")
        self.pem = _pem(_certificate(self._name, self._name, self._key.public_key(), self._key, is_authority=True))

    def issue(self) -> tuple[str, str]:
        """Return the certificate of a server on this machine, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        issued = _certificate(_named("a broker"), self._name, key.public_key(), self._key, is_authority=False)
        return _pem(issued), key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    signs: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool,
) -> x509.Certificate:
    now, day = datetime.now(UTC), timedelta(days=1)
    builder = x509.CertificateBuilder(issuer, subject, public, x509.random_serial_number(), now - day, now + day)
    builder = builder.add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))])
    return builder.add_extension(address, critical=False).sign(signs, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


class TlsBroker(EmbeddedBroker):
    """An embedded broker with a second listener, which speaks TLS."""

    def __init__(self, directory: Path, authority: Authority) -> None:
        super().__init__(directory)
        (self._tls_port,) = _free_ports(None)
        self._chain, self._key = authority.issue()

    def kafka_by_tls(self, authority: Path) -> dict[str, Any]:
        """Return the `[kafka]` table of clients that trust an authority."""
        return {
            **self.with_login(f"{HOST}:{self._tls_port}"),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority),
        }

    def _properties(self, port: int, controller_port: int, own: str) -> str:
        tls = f",TLS://{HOST}:{self._tls_port}"
        lines = dict(
            line.split("=", 1) for line in super()._properties(port, controller_port, own).splitlines() if line
        )
        lines["listeners"] += tls
        lines["advertised.listeners"] += tls
        lines["listener.security.protocol.map"] += ",TLS:SASL_SSL"
        lines |= {
            name.replace(".broker.", ".tls."): value for name, value in server_login(own).items() if ".broker." in name
        }
        lines |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": self._chain.replace("\n", "\\n"),
            "ssl.keystore.key": self._key.replace("\n", "\\n"),
        }
        return "".join(f"{name}={value}\n" for name, value in lines.items())


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, dict[str, Path]]:
    """Return the broker's authority, and the files of it and of another one."""
    folder = tmp_path_factory.mktemp("authorities")
    known = {"its own": Authority(), "another": Authority()}
    files = {name: folder / f"{name}.pem" for name in known}
    for name, path in files.items():
        path.write_text(known[name].pem, encoding="ascii")
    return known["its own"], files


@pytest.fixture(scope="module")
def tls_broker(
    authorities: tuple[Authority, dict[str, Path]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TlsBroker]:
    with TlsBroker(tmp_path_factory.mktemp("broker"), authorities[0]) as broker:
        yield broker


@pytest.mark.broker
def test_clients_read_and_write_over_tls(tls_broker: TlsBroker, authorities: tuple[Authority, dict[str, Path]]) -> None:
    kafka, records = tls_broker.kafka_by_tls(authorities[1]["its own"]), chains()[0].records[:5]
    create_topics(kafka, prefix=CLIENTS)
    produce(kafka, CLIENTS, records)
    with TopicReader(kafka, CLIENTS, list(INPUT_TOPICS)) as reader:
        read = {(record.topic, record.value) for record in reader.read_to_end()}
    assert read == {(each.topic, each.value) for each in records}


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.broker
def test_job_reads_and_writes_over_tls(
    tls_broker: TlsBroker, authorities: tuple[Authority, dict[str, Path]], tmp_path: Path
) -> None:
    kafka, chain = tls_broker.kafka_by_tls(authorities[1]["its own"]), chains()[0]
    create_topics(kafka, prefix=PREFIX)
    produce(kafka, PREFIX, chain.records)
    expected = reference(IMMEDIATE)["verdicts"]
    with job(write_configuration(tmp_path, (chain,), kafka, PREFIX)) as running:
        running.wait_for_records(kafka, PREFIX, "verdicts", len(expected))
        assert running.terminate() == exit_codes.OK
    with TopicReader(kafka, PREFIX, ["verdicts"]) as reader:
        assert [(record.key, record.value) for record in reader.read_to_end()] == expected


@pytest.mark.broker
@pytest.mark.parametrize("command", [["topics", "create"], ["topics", "list"], ["watch", "verdicts"]])
def test_client_that_trusts_another_authority_says_so_in_a_line(
    tls_broker: TlsBroker,
    authorities: tuple[Authority, dict[str, Path]],
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retry, "ANSWER_S_MAX", 1.0)
    monkeypatch.setattr(refusals, "LISTEN_S_MAX", 20.0)
    tables = {
        "topics": {"prefix": PREFIX}, "kafka": tls_broker.kafka_by_tls(authorities[1]["another"]),
        "job": {"directory": str(tmp_path / "job")}, "chains": {"polkadot": {}},
    }  # fmt: skip
    config = tmp_path / "validator.toml"
    config.write_text(to_toml(tables), encoding="utf-8")
    result = invoke(*command, "--config", str(config))
    assert result.exit_code == exit_codes.USER_ERROR, (result.output, result.exception)
    assert result.stderr.splitlines()[-1].startswith("validator: ")
    assert "certificate verify failed" in result.stderr
