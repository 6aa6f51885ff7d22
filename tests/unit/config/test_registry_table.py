# SPDX-License-Identifier: Apache-2.0
"""The table `[schema_registry]`, and the errors for a wrong one, which show no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.config.test_config import errors_of, load
from validator.config import Config
from validator.kafka.settings import flatten

REGISTRY = '[schema_registry]\nurl = "https://registry.example:8081"\n'


def test_schema_registry_reaches_whoever_reads_kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(tmp_path, "").kafka == {}
    monkeypatch.setenv("VALIDATOR_SCHEMA_REGISTRY__PASSWORD", "123:4")
    monkeypatch.setenv("VALIDATOR_SCHEMA_REGISTRY__USER", "me")
    config = load(
        tmp_path, f'{REGISTRY}ca_file = "ca.pem"\ncertificate_file = "c.pem"\nkey_file = "k.pem"\nkey_password = "s"'
    )
    assert config.kafka == {
        "schema.registry.url": "https://registry.example:8081",
        "schema.registry.basic.auth.user.info": "me:123:4",
        "schema.registry.ssl.ca.location": "ca.pem",
        "schema.registry.ssl.certificate.location": "c.pem",
        "schema.registry.ssl.key.location": "k.pem",
        "schema.registry.ssl.key.password": "s",
    }
    assert flatten(config.kafka) == {}
    assert Config.model_validate(config.model_dump(mode="json")) == config, "as a job's process gets it"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[schema_registry]\nwrite = "confluent"', "schema_registry: write needs url"),
        (f'{REGISTRY}user = "me"', "schema_registry: expected user and password, found one of them"),
        (f'{REGISTRY}key_file = "k"', "schema_registry: key_file and key_password need certificate_file"),
        (f'{REGISTRY}subjects = "topic"', "schema_registry.subjects"),
        ('[schema_registry]\nurl = "https://me:secret@registry.example"', "schema_registry.url"),
        ('[schema_registry]\nurl = "registry.example:8081"', "schema_registry.url"),
        ('[schema_registry]\nurl = "http://a, b"', "commas, found 'http://a, b'"),
        ('[schema_registry]\nurl = "http://a,,http://b"', "schema_registry.url"),
        ('[schema_registry]\nurl = ""', "schema_registry.url"),
        ('[schema_registry]\nurl = "http://a:x"', "schema_registry.url: expected addresses that begin with"),
        ('[schema_registry]\nurl = "http://a:65536"', "schema_registry.url"),
        ('[schema_registry]\nurl = "http://a\\u0000:1"', "schema_registry.url"),
        (f'{REGISTRY}user = ""', "schema_registry.user: expected a name without a colon, found nothing"),
        ('[kafka]\n"schema.registry.url" = "https://r"', "schema_registry: [kafka] schema.registry.url cannot be set"),
    ],
)
def test_wrong_schema_registry_is_named(tmp_path: Path, text: str, words: str) -> None:
    (line,) = errors_of(tmp_path, text)
    assert words in line


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[schema_registry]\nurl = "http://me:12345@b"', "schema_registry.url: expected addresses that begin with"),
        ('[schema_registry]\nurl = "http://a,http://me:12345@b"', "found a user there: set user and password"),
        ('[schema_registry]\nurl = "me:12345@b"', "found a user there: set user and password"),
        ('[schema_registry]\nurl = "http://a?token=12345"', "found a query or a fragment there"),
        ('[schema_registry]\nurl = "http://a/b#12345"', "found a query or a fragment there"),
        (f'{REGISTRY}user = "me:12345"', "schema_registry.user: expected a name without a colon, found one with it"),
        (f'{REGISTRY}user = "me"\npassword = 12345', "schema_registry.password: expected text, found another type"),
        (f"{REGISTRY}user = 12345", "schema_registry.user: expected text, found another type"),
        (f'{REGISTRY}certificate_file = "c"\nkey_password = 12345', "schema_registry.key_password: expected text"),
    ],
)
def test_wrong_schema_registry_shows_no_secret(tmp_path: Path, text: str, words: str) -> None:
    (line,) = errors_of(tmp_path, text)
    assert words in line
    assert "12345" not in line


@pytest.mark.parametrize(
    "url", ["http://a", "https://a.b:1/c/d/", "http://a,https://b:2", "http://a, http://[::1]:8081"]
)
def test_addresses_of_a_schema_registry(tmp_path: Path, url: str) -> None:
    assert load(tmp_path, f'[schema_registry]\nurl = "{url}"').schema_registry.url == url
