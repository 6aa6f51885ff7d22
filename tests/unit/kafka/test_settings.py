# SPDX-License-Identifier: Apache-2.0
"""A `[kafka]` table becomes client configurations and Spark options."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from validator.errors import UserError
from validator.kafka.settings import COMMITS, ENDLESS, WHOLE, admin_config, consumer_config, flatten, producer_config

if TYPE_CHECKING:
    pass

KAFKA: dict[str, object] = {"bootstrap.servers": "127.0.0.1:1"}


def test_librdkafka_accepts_every_configuration() -> None:
    Producer(producer_config(KAFKA, transactional_id="lane"))
    Consumer(consumer_config(KAFKA, WHOLE, group_id="group")).close()
    AdminClient(admin_config(KAFKA))


def test_configurations_can_be_pickled() -> None:
    config = producer_config(KAFKA)
    assert pickle.loads(pickle.dumps(config)) == config


def test_table_overrides_tuning_defaults() -> None:
    table = KAFKA | {"compression.type": "zstd", "client.id": "mine"}
    config = producer_config(table)
    assert (config["compression.type"], config["client.id"]) == ("zstd", "mine")
    assert producer_config(KAFKA)["compression.type"] == "none"


@pytest.mark.parametrize("own", [{}, {"transactional_id": "lane"}, {"writing": ENDLESS}])
def test_producer_sends_nothing_before_the_last_is_acknowledged(own: dict[str, Any]) -> None:
    """A broker would take the second batch of an unknown producer, and call the first one, repeated, a duplicate."""
    assert producer_config(KAFKA, **own)["max.in.flight.requests.per.connection"] == 1


def test_dotted_keys_equal_nested_tables() -> None:
    nested = {"security": {"protocol": "SSL"}, "ssl": {"key": {"location": "k"}}, "socket.keepalive.enable": True}
    assert flatten(nested) == {"security.protocol": "SSL", "ssl.key.location": "k", "socket.keepalive.enable": "true"}


@pytest.mark.parametrize("key", ["acks", "enable.idempotence", "isolation.level", "enable.auto.commit", "group.id"])
def test_options_required_for_exactly_once_cannot_be_set(key: str) -> None:
    with pytest.raises(UserError, match=rf"\[kafka\] {key} cannot be set"):
        consumer_config(KAFKA | {key: "x"}, COMMITS, group_id="group")


def test_list_value_is_refused() -> None:
    with pytest.raises(UserError, match=r"\[kafka\] ssl\.ca: expected text, a number or a boolean, found an array"):
        flatten({"ssl": {"ca": [1]}})


def test_missing_bootstrap_servers_are_refused() -> None:
    with pytest.raises(UserError, match=r"bootstrap\.servers is missing"):
        admin_config({})


def test_reader_to_end_fetches_with_short_wait_unless_table_overrides_it() -> None:
    assert "fetch.wait.max.ms" not in consumer_config(KAFKA, COMMITS, group_id="group")
    assert consumer_config(KAFKA, WHOLE, group_id="group")["fetch.wait.max.ms"] == 50
    table = KAFKA | {"fetch.wait.max.ms": 200}
    assert consumer_config(table, WHOLE, group_id="group")["fetch.wait.max.ms"] == "200"


@pytest.mark.parametrize("table", [{"spark.fetch.max.wait.ms": "50"}, {"spark": {"isolation.level": "x"}}])
def test_key_for_a_client_that_spark_no_longer_has_is_refused(table: dict[str, object]) -> None:
    with pytest.raises(UserError, match=r"^\[kafka\] spark\.\S+: Spark does not read Kafka any more: remove the key$"):
        flatten(KAFKA | table)


def test_other_names_of_guarantees_cannot_be_set() -> None:
    for key in (
        "request.required.acks",
        "auto.commit.enable",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
    ):
        with pytest.raises(UserError, match=f"{key} cannot be set"):
            flatten({key: "0"})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"sasl.password": "p"}, r"sasl.password: expected .* with SASL, found no security.protocol"),
        ({"sasl": {"username": "u"}}, r"sasl.username: expected"),
        ({"ssl.ca.location": "/ca"}, r"ssl.ca.location: expected .* with SSL, found no security.protocol"),
        ({"ssl.ca.location": "/ca", "security.protocol": "plaintext"}, "with SSL, found plaintext"),
        ({"ssl.ca.location": "/ca", "security.protocol": "SASL_PLAINTEXT"}, "with SSL, found SASL_PLAINTEXT"),
        ({"sasl.username": "u", "security.protocol": "SSL"}, "with SASL, found SSL"),
    ],
)
def test_protection_that_no_protocol_uses_is_refused(table: dict[str, object], message: str) -> None:
    for configured in (producer_config, admin_config):
        with pytest.raises(UserError, match=message):
            configured({"bootstrap.servers": "a:1", **table})
    flatten({"security.protocol": "sasl_ssl", "ssl.ca.location": "/ca", "sasl.username": "u"})


@pytest.mark.parametrize(
    ("given", "missing"), [({"username": "me"}, "password"), ({"password": "x"}, "username"), ({}, "username")]
)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_missing_part_of_a_login_is_named(mechanism: str, given: dict[str, str], missing: str) -> None:
    kafka = {
        "bootstrap.servers": "broker:9093",
        "security": {"protocol": "sasl_ssl"},
        "sasl": {"mechanism": mechanism, **given},
    }
    with pytest.raises(UserError) as raised:
        producer_config(kafka)
    assert str(raised.value) == (
        f"[kafka] sasl.{missing} is missing, which {mechanism} needs: set it, or the environment variable "
        f"VALIDATOR_KAFKA__SASL__{missing.upper()}"
    )


def test_login_without_a_password_needs_none() -> None:
    kafka = {"bootstrap.servers": "broker:9093", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    assert producer_config(kafka)["sasl.mechanism"] == "OAUTHBEARER"


@pytest.mark.parametrize("spelling", [False, 0, "false", "False", "FALSE", "f", "F", "0", " false ", "no"])
def test_every_spelling_of_false_is_false(spelling: object) -> None:
    with pytest.raises(UserError, match="certificates are always verified"):
        flatten({"bootstrap.servers": "a:1", "enable.ssl.certificate.verification": spelling})
    for true in (True, 1, "true", "T"):
        flatten({"bootstrap.servers": "a:1", "enable.ssl.certificate.verification": true})


@pytest.mark.parametrize(
    "key",
    [
        *("isolation.level", "Isolation.Level", "ISOLATION.LEVEL", " isolation.level"),
        *("Transactional.ID", "group.id", "group.instance.id", "Group.Protocol", "enable.auto.commit"),
    ],
)
def test_no_spelling_of_a_guarantee_passes(key: str) -> None:
    for configured in (producer_config, admin_config):
        with pytest.raises(UserError, match=r"cannot be set: exactly-once delivery"):
            configured(KAFKA | {key: "x"})
