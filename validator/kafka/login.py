# SPDX-License-Identifier: Apache-2.0
"""Logins of the embedded broker: no other user of the machine can read or write.

Clients prove with SCRAM that they know the secret of the broker's folder, and so does the broker to them: a process that takes its port
while it is down learns nothing, and is not believed. Kafka keeps what verifies the secret in its own log, where it is set after each start,
through the login of the broker itself. That one is for a single start and for connections within the process, so that PLAIN is enough.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from validator.errors import UserError
from validator.private import write_private

if TYPE_CHECKING:
    from pathlib import Path

USER: Final = "validator"
"""User of every client."""

FILE: Final = "secret"
"""File of the clients' password in the broker's folder."""

_OWN_USER: Final = "broker"

_ITERATIONS: Final = 4096
"""Kafka's minimum: the secret has 256 random bits, so that guessing is hopeless at any cost per guess."""

_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


def server_login(own: str) -> dict[str, str]:
    """Return the broker's properties that admit its clients, and itself with the password ``own``."""
    itself = f'{_PLAIN} required username="{_OWN_USER}" password="{own}" user_{_OWN_USER}="{own}";'
    return {
        "listener.security.protocol.map": "BROKER:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.broker.plain.sasl.jaas.config": itself,
        "listener.name.broker.scram-sha-256.sasl.jaas.config": f"{_SCRAM} required;",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": itself,
    }


def client_login(secret: str) -> dict[str, str]:
    """Return the keys of a `[kafka]` table with which a client is admitted."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": USER,
        "sasl.password": secret,
    }


def kept_secret(directory: Path) -> str:
    """Return the secret of a broker's folder; make one if there is none."""
    if not (directory / FILE).exists():
        write_private(directory / FILE, secrets.token_hex(32) + "\n")
    return read_secret(directory)


def read_secret(directory: Path) -> str:
    """Return the secret of a broker's folder. Raises `UserError`."""
    path = directory / FILE
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(
            f"{path}: the embedded broker's secret cannot be read ({reason}): stop the broker with `validator broker stop` and start it "
            "again"
        ) from error


def admit_clients(bootstrap_servers: str, own: str, secret: str) -> None:
    """Make a broker that has just started admit clients with this secret. Raises `UserError`."""
    from confluent_kafka import KafkaException  # a command without a broker does not wait for librdkafka
    from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    from validator.kafka.client import admin_config
    from validator.kafka.retry import answer

    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": _OWN_USER,
        "sasl.password": own,
    }
    admin = AdminClient(admin_config({"bootstrap.servers": bootstrap_servers, **login}))
    kind = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, _ITERATIONS)
    wanted = UserScramCredentialUpsertion(USER, kind, secret.encode())

    def set_it(left_s: float) -> None:
        for future in admin.alter_user_scram_credentials([wanted], request_timeout=left_s).values():
            future.result()

    try:
        answer(set_it)
    except KafkaException as error:
        raise UserError(
            f"the broker at {bootstrap_servers} does not take its clients' secret: {error.args[0].str()}"
        ) from error
