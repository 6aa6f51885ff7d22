# SPDX-License-Identifier: Apache-2.0
"""`validator broker settings` prints what other programs need to use the embedded broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.cli.follower import invoke
from validator import exit_codes
from validator.cli import broker as command
from validator.kafka.broker import EmbeddedBroker

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def running(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> EmbeddedBroker:
    monkeypatch.setattr(command, "embedded_broker", lambda: broker)
    return broker


def test_settings_are_those_of_a_client_that_is_admitted(running: EmbeddedBroker, tmp_path: Path) -> None:
    file = tmp_path / "broker.properties"
    assert invoke("broker", "settings", "--output", str(file)).exit_code == exit_codes.OK
    assert file.stat().st_mode & 0o777 == 0o600
    settings: dict[str, Any] = dict(line.split("=", 1) for line in file.read_text().splitlines())
    assert settings == json.loads(invoke("broker", "settings", "--json").stdout) == running.kafka
    assert AdminClient(settings).list_topics(timeout=30).brokers


def test_java_gets_its_own_names(running: EmbeddedBroker) -> None:
    found = json.loads(invoke("broker", "settings", "--java", "--json").stdout)
    login = found.pop("sasl.jaas.config")
    assert login.startswith("org.apache.kafka.common.security.scram.ScramLoginModule required username=")
    assert str(running.kafka["sasl.password"]) in login
    same = ("bootstrap.servers", "security.protocol", "sasl.mechanism")
    assert found == {name: running.kafka[name] for name in same}


def test_file_that_cannot_be_written_is_one_line(running: EmbeddedBroker, tmp_path: Path) -> None:
    assert running.status().running
    result = invoke("broker", "settings", "--output", str(tmp_path / "none" / "file"))
    assert result.exit_code == exit_codes.USER_ERROR
    assert (
        result.stderr == f"validator: --output {tmp_path}/none/file: it cannot be written: No such file or directory\n"
    )


def test_without_a_broker_it_says_how_to_start_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VALIDATOR_HOME", str(tmp_path))
    result = invoke("broker", "settings")
    assert result.exit_code == exit_codes.USER_ERROR
    assert (
        "start broker and job with `validator up`, or the broker alone with `validator broker start`" in result.stderr
    )


@pytest.mark.parametrize("arguments", [(), ("start",), ("stop",), ("status",), ("settings",)])
def test_help_says_where_the_broker_is_found(arguments: tuple[str, ...]) -> None:
    words = " ".join(invoke("broker", *arguments, "--help").output.split())
    assert "below `.validator` in the working directory, or below VALIDATOR_HOME if that is set" in words
    assert "It takes no configuration file" in words
