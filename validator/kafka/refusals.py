# SPDX-License-Identifier: Apache-2.0
"""Says why Kafka does not do what it was asked for: a right that a user lacks, a login that is refused, a connection that is not made.

librdkafka returns an error without the resource that it is about. Of a connection it only says that there is none: why, a client hears in
the background.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from validator.kafka.settings import admin_config

if TYPE_CHECKING:
    from validator.kafka.settings import KafkaTable

LISTEN_S_MAX: Final = 2.0
"""Seconds in which a client that cannot connect hears why."""

_LACKING: Final = frozenset({
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED,
})  # fmt: skip

_AWAY: Final = frozenset({
    KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._MSG_TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE,
    KafkaError._AUTHENTICATION, KafkaError._SSL,
})  # fmt: skip
"""What librdkafka returns if there is no connection, whatever the reason."""

_REFUSED_LOGIN: Final = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)
_TELLING: Final = (*_REFUSED_LOGIN, KafkaError._SSL, KafkaError._RESOLVE, KafkaError._TRANSPORT)
"""What names a reason, the most telling first."""

_WHERE: Final = re.compile(r"^\S+/(?:bootstrap|\d+): |\s*\(after \d+ms in state [^)]*\)$")
"""What librdkafka puts around a reason: the broker, and the state of the connection."""


def is_lacking(error: KafkaError) -> bool:
    """Return whether an error says that the user lacks a right."""
    return error.code() in _LACKING


def line_of(error: KafkaError) -> str:
    """Return librdkafka's text of an error in one line: that of a value out of range ends with a newline."""
    return " ".join(error.str().split())


def why(error: KafkaError, kafka: KafkaTable, right: str, *, group: str = "", transactional_id: str = "") -> str:
    """Return the reason of an error for people.

    ``right`` is what the request needs of topics, such as ``Read on topic validator.blocks``. An error about the ``group`` or the
    ``transactional_id`` names that. For an error that may come from a connection it takes up to `LISTEN_S_MAX` to find out more.
    """
    text = f"{line_of(error)} ({error.name()})"
    if is_lacking(error):
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            right = f"Read on group {group}"
        elif error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            right = f"Write on transactional id {transactional_id}"
        return f"{_user(kafka)} lacks the right {right} ({error.name()})"
    reason = _heard(kafka) if error.code() in _AWAY else None
    return text if reason is None else f"{reason}; {text}"


def _user(kafka: KafkaTable) -> str:
    name = admin_config(kafka).get("sasl.username")
    return "the client" if name is None else f"user {name}"


def _heard(kafka: KafkaTable) -> str | None:
    """Return why a new client does not connect; None if it hears of nothing."""
    heard: list[Any] = []
    try:
        client = AdminClient(admin_config(kafka) | {"error_cb": heard.append})
    except KafkaException:
        return None
    deadline = time.monotonic() + LISTEN_S_MAX
    while time.monotonic() < deadline and not any(each.code() in _TELLING for each in heard):
        client.poll(LISTEN_S_MAX / 20)
    told = sorted((each for each in heard if each.code() in _TELLING), key=lambda each: _TELLING.index(each.code()))
    if told:
        reason = _WHERE.sub("", told[0].str())
        return f"the login of {_user(kafka)} is refused: {reason}" if told[0].code() in _REFUSED_LOGIN else reason
    if heard:
        return "the connection is closed at once: is security.protocol that of the broker's listener?"
    return None
