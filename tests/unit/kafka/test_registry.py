# SPDX-License-Identifier: Apache-2.0
"""What readers ask a schema registry, and what they say if it does not answer."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from tests.clock import Clock
from tests.registry_stand_in import FIRST_ID, StandIn, stand_in
from validator.codec.framing import id_header
from validator.codec.schemas import schemas
from validator.config import Config
from validator.errors import Unavailable, UserError
from validator.kafka import registry as module
from validator.kafka.registry import AskedIds, Registry, known_ids, plain_values, with_known_ids
from validator.kafka.settings import COMMITS, consumer_config

SCHEMA = schemas()["validator.Verdict"]
BODY = b"the same bytes"


@pytest.fixture
def registry() -> Iterator[StandIn]:
    with stand_in() as held:
        yield held


def table(held: StandIn, **more: str) -> dict[str, Any]:
    return Config(kafka={"bootstrap.servers": "k:1"}, schema_registry={"url": held.url, **more}).kafka


def test_value_gets_its_plain_header_and_the_registry_is_asked_once(registry: StandIn) -> None:
    value = id_header(registry.add("anything", SCHEMA.source)) + BODY
    plain = plain_values(table(registry))
    assert [plain(value), plain(value), plain_values(table(registry))(value)] == [SCHEMA.header + BODY] * 3
    assert len(registry.asked) == 1


def test_other_values_ask_nobody(registry: StandIn) -> None:
    plain = plain_values(table(registry))
    values = [SCHEMA.header + BODY, b"", b"\0", b"\0\0\0\1", b"text"]
    assert [plain(value) for value in values] == values
    assert registry.asked == []


def test_unknown_id_stays_as_it_is_and_is_asked_for_once(registry: StandIn) -> None:
    registry.add("other", "this is no schema")
    plain = plain_values(table(registry))
    for schema_id in (7, next(iter(registry.ids.values()))):
        value = id_header(schema_id) + BODY
        assert plain(value) == plain(value) == value
    assert len(registry.asked) == 2


@pytest.mark.parametrize("status", [400, 403, 404, 422])
def test_refusal_of_one_id_is_an_unknown_id(registry: StandIn, status: int) -> None:
    """Some registries check ids, or show a schema to its owners only: a record that names such an id must stop no reader."""
    value = id_header(2**32 - 1) + BODY
    registry.broken = status
    assert plain_values(table(registry))(value) == value
    registry.plain_text = True
    assert AskedIds(lambda: Registry(table(registry))).plain(value) == value
    with pytest.raises(UserError, match=f"HTTP {status}"):
        Registry(table(registry)).subjects()


def test_login_that_is_not_accepted_is_no_unknown_id() -> None:
    with stand_in(login="me:secret") as held, pytest.raises(UserError, match="HTTP 401"):
        plain_values(table(held))(id_header(1) + BODY)


def test_answer_that_is_nested_too_deeply_is_no_crash(registry: StandIn) -> None:
    registry.raw = b"[" * 200_000
    expected = (
        rf"^schema registry {registry.url}: expected its REST interface, found another answer: maximum recursion depth"
    )
    with pytest.raises(UserError, match=expected):
        Registry(table(registry)).schema(7)
    with pytest.raises(UserError, match=expected):
        Registry(table(registry)).subjects()


def test_made_up_ids_end_the_questions(registry: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNKNOWN_IDS_MAX", 3)
    good = id_header(registry.add("anything", SCHEMA.source)) + BODY
    asked = AskedIds(lambda: Registry(table(registry)))
    assert asked.plain(good) == SCHEMA.header + BODY
    for schema_id in range(10):
        asked.plain(id_header(schema_id) + BODY)
    assert len(registry.asked) == 1 + 3
    assert asked.plain(good) == SCHEMA.header + BODY


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(1_000.0)
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_unknown_id_is_asked_for_again_after_a_while(registry: StandIn, clock: Clock) -> None:
    """A record may come before its schema is registered, or before the registry's replica has it."""
    asked = AskedIds(lambda: Registry(table(registry)))
    value = id_header(FIRST_ID) + BODY
    assert asked.plain(value) == value
    registry.add("anything", SCHEMA.source)
    clock.now_s += module.UNKNOWN_S - 1
    assert asked.plain(value) == value
    assert len(registry.asked) == 1
    clock.now_s += 1
    assert asked.plain(value) == SCHEMA.header + BODY
    assert len(registry.asked) == 2


def test_made_up_ids_end_the_questions_for_a_while_only(
    registry: StandIn, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNKNOWN_IDS_MAX", 3)
    good = id_header(registry.add("anything", SCHEMA.source)) + BODY
    asked = AskedIds(lambda: Registry(table(registry)))
    for schema_id in range(10):
        asked.plain(id_header(schema_id) + BODY)
        clock.now_s += 1
    assert len(registry.asked) == 3
    assert asked.plain(good) == good
    clock.now_s += module.UNKNOWN_S - 10
    assert asked.plain(good) == SCHEMA.header + BODY, "the first of the made-up ids is forgotten"
    for schema_id in range(100, 110):
        asked.plain(id_header(schema_id) + BODY)
    assert len(registry.asked) == 3 + 1 + 1


def test_reader_waits_for_a_registry_that_does_not_answer(registry: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    def back(_: float) -> None:
        registry.broken = None

    value = id_header(registry.add("anything", SCHEMA.source)) + BODY
    registry.broken = 503
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=back, monotonic=time.monotonic))
    assert AskedIds(lambda: Registry(table(registry))).plain(value) == SCHEMA.header + BODY


def test_registry_that_stays_away_is_named(registry: StandIn) -> None:
    registry.broken = 503
    with pytest.raises(
        Unavailable, match=r"^schema registry http://127\.0\.0\.1:\d+: Error in the backend.*\(HTTP 503\)$"
    ):
        AskedIds(lambda: Registry(table(registry)), patience_s=0).plain(id_header(1) + BODY)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    gone = Config(schema_registry={"url": url}).kafka
    with pytest.raises(
        Unavailable, match=rf"^no schema registry answers at {url} \(.+\): check \[schema_registry\] url$"
    ):
        AskedIds(lambda: Registry(gone), patience_s=0).plain(id_header(1) + BODY)


def test_login_is_sent_and_refusal_is_no_outage() -> None:
    with stand_in(login="me:se:cret") as held:
        assert Registry(table(held, user="me", password="se:cret")).subjects() == []
        with pytest.raises(UserError, match=r"HTTP 401") as raised:
            Registry(table(held, user="me", password="wrong")).subjects()
        assert not isinstance(raised.value, Unavailable)


@pytest.mark.parametrize("schema_id", [-1, 2**32, 2**40, 7.9, True, "7", None])
def test_id_that_no_record_can_name_is_refused(registry: StandIn, schema_id: Any) -> None:
    registry.raw = json.dumps({"subject": "s", "version": 1, "id": schema_id, "schema": "{}"}).encode()
    expected = f"subject s: expected its REST interface, found another answer: expected an id of 0 to 4294967295, found {schema_id!r}"
    with pytest.raises(UserError, match=expected):
        Registry(table(registry)).version("s", 1)
    with pytest.raises(UserError, match=expected):
        Registry(table(registry)).register("s", "{}")


@pytest.mark.parametrize("numbers", [{"a": 1}, "12", [1, "2"], [True], 5])
def test_version_numbers_are_integers(registry: StandIn, numbers: Any) -> None:
    registry.raw = json.dumps(numbers).encode()
    with pytest.raises(UserError, match=r"expected its REST interface, found another answer"):
        Registry(table(registry)).numbers("s")


@pytest.mark.parametrize("part", ["header", "body"])
def test_answer_that_drips_is_ended(registry: StandIn, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """Each byte comes within the time-out of one wait."""
    monkeypatch.setattr(module, "WHOLE_ANSWER_S", 0.2)
    asked = Registry(table(registry))
    registry.drip, registry.raw = part, b"[" + b" " * 200 + b"]"
    with pytest.raises(Unavailable, match=r"expected a whole answer within 0\.2 s, found a part$"):
        asked.subjects()
    monkeypatch.setattr(module, "WHOLE_ANSWER_S", 600)
    registry.drip = ""
    assert Registry(table(registry)).subjects() == []


def test_answer_that_is_too_long_is_not_read(registry: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_BYTES_MAX", 1_000)
    registry.raw = b'["' + b"s" * 996 + b'"]'
    assert len(Registry(table(registry)).subjects()) == 1
    registry.raw = b'["' + b"s" * 997 + b'"]'
    expected = f"^schema registry {registry.url}: expected an answer of at most 1000 bytes, found a longer one$"
    with pytest.raises(UserError, match=expected):
        Registry(table(registry)).subjects()
    value = id_header(7) + BODY
    assert plain_values(table(registry))(value) == value, "a schema of that length is none of ours"


def test_compressed_answers_are_neither_asked_for_nor_read(registry: StandIn) -> None:
    """A few bytes could become gigabytes."""
    registry.raw = gzip.compress(b"[]")
    registry.headers = {"Content-Encoding": "gzip"}
    expected = (
        f"^schema registry {registry.url}: expected an answer that is not compressed, found Content-Encoding gzip$"
    )
    with pytest.raises(UserError, match=expected):
        Registry(table(registry)).subjects()
    assert registry.accepted == {"identity"}


def test_words_of_a_registry_are_cut(registry: StandIn) -> None:
    registry.broken, registry.raw = 422, json.dumps({"error_code": 1, "message": "x" * 100_000}).encode()
    with pytest.raises(UserError, match=r"x \(HTTP 422\)$") as raised:
        Registry(table(registry)).subjects()
    assert len(str(raised.value)) < 500


def _certificate(folder: Path, name: str, *usages: ObjectIdentifier) -> Path:
    """Write a key and a certificate that signs itself, for 127.0.0.1, into one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    named = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(named)
        .issuer_name(named)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{name}.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(private + certificate.public_bytes(Encoding.PEM))
    return path


def test_both_sides_show_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = _certificate(tmp_path, "server", ExtendedKeyUsageOID.SERVER_AUTH)
    client = _certificate(tmp_path, "client", ExtendedKeyUsageOID.CLIENT_AUTH)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(client))
    tls.load_cert_chain(server)
    tls.verify_mode = ssl.CERT_REQUIRED
    with stand_in(tls=tls) as held:
        known = {"ca_file": str(server), "certificate_file": str(client)}
        assert Registry(table(held, **known)).subjects() == []
        held.drip, held.raw = "body", b"[" + b" " * 200 + b"]"
        with monkeypatch.context() as patched:
            patched.setattr(module, "WHOLE_ANSWER_S", 0.2)
            with pytest.raises(Unavailable, match="expected a whole answer within"):
                Registry(table(held, **known)).subjects()
        held.drip, held.raw = "", None
        for wrong in ({}, {"ca_file": str(server)}, {**known, "ca_file": str(client)}):
            with pytest.raises(Unavailable, match=r"^no schema registry answers at https://127\.0\.0\.1:\d+ \(.+\)"):
                Registry(table(held, **wrong)).subjects()


def test_certificate_file_that_is_missing_is_named() -> None:
    config = Config(schema_registry={"url": "https://127.0.0.1:1", "ca_file": "/no/such/file.pem"})
    with pytest.raises(
        UserError, match=r"^\[schema_registry\] ca_file /no/such/file\.pem: the client does not accept it: "
    ):
        Registry(config.kafka)


def test_workers_know_ids_and_no_secret(registry: StandIn) -> None:
    kafka = table(registry, user="me", password="secret")
    headers = {id_header(5): SCHEMA.header}
    worker = with_known_ids(kafka, headers)
    assert worker["bootstrap.servers"] == "k:1"
    assert "secret" not in repr(worker)
    assert registry.url not in repr(worker)
    assert known_ids(worker) == headers
    assert known_ids(kafka) is None
    plain = plain_values(worker)
    assert plain(id_header(5) + BODY) == SCHEMA.header + BODY
    assert plain(id_header(6) + BODY) == id_header(6) + BODY
    assert registry.asked == []
    assert hash(tuple(sorted(worker.items())))


def test_settings_of_the_registry_reach_no_client_of_kafka(registry: StandIn) -> None:
    for kafka in (table(registry), with_known_ids(table(registry), {id_header(5): SCHEMA.header})):
        assert not [name for name in consumer_config(kafka, COMMITS, group_id="g") if "registry" in name]
