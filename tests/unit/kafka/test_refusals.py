# SPDX-License-Identifier: Apache-2.0
"""Why Kafka does not do what it was asked for is one line, also where librdkafka's own text has several."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError

from tests.cli.follower import invoke
from validator import exit_codes
from validator.kafka.refusals import why

if TYPE_CHECKING:
    from pathlib import Path

KAFKA = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_PLAINTEXT", "sasl.username": "mail"}


@pytest.mark.parametrize(
    ("code", "lacking"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "Write on topic t"),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, "Write on topic t"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "Read on group g"),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Write on transactional id i"),
    ],
)
def test_missing_right_names_the_resource_that_the_error_is_about(code: int, lacking: str) -> None:
    error = KafkaError(code)
    text = why(error, KAFKA, "Write on topic t", group="g", transactional_id="i")
    assert text == f"user mail lacks the right {lacking} ({error.name()})"


def test_client_with_a_certificate_has_no_name_here() -> None:
    kafka = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SSL"}
    text = why(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), kafka, "Read on topic t")
    assert text.startswith("the client lacks the right Read on topic t")


@pytest.mark.parametrize("command", [["topics", "list"], ["watch", "verdicts"], ["submit", "blocks", "/dev/null"]])
def test_value_that_the_client_does_not_accept_is_one_line(tmp_path: Path, command: list[str]) -> None:
    path = tmp_path / "validator.toml"
    path.write_text("[kafka]\nbootstrap.servers = '127.0.0.1:1'\nsession.timeout.ms = 0\n", encoding="utf-8")
    result = invoke(*command, f"--config={path}")
    assert result.exit_code == exit_codes.USER_ERROR
    assert "session.timeout.ms" in result.stderr
    assert result.stderr.count("\n") == 1
