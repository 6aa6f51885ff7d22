# SPDX-License-Identifier: Apache-2.0
"""Logins of the embedded broker: no other user of the machine can read or write.

Clients prove with SCRAM that they know the secret of the broker's folder, and so does the broker to them: a process that takes its port
while it is down learns nothing, and is not believed. Kafka keeps what verifies the secret in its own log, where it is set after each start,
through the login of the broker itself. That one is for a single start and for connections within the process, so that PLAIN is enough.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from typing import TYPE_CHECKING, Final

from validator.errors import UserError
from validator.private import UMASK, write_private

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

USER: Final = "validator"
"""User of every client."""

FILE: Final = "secret"
"""File of the clients' password in the broker's folder."""

_BYTES: Final = 32
_FORM: Final = re.compile(rb"[0-9a-f]{64}\n?")
"""A file that was cut short would be a password that anybody may guess."""

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
    """Return the secret of a broker's folder; make one if there is none, or none that only we can know."""
    path = directory / FILE
    try:
        found = path.lstat()
        own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & UMASK
        if own and _FORM.fullmatch(path.read_bytes()):
            return read_secret(directory)
    except OSError:
        pass
    write_private(path, secrets.token_hex(_BYTES) + "\n")
    return read_secret(directory)


def read_secret(directory: Path) -> str:
    """Return the secret of a broker's folder. Raises `UserError`."""
    path = directory / FILE
    try:
        found = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, f"cannot be read ({error.strerror})") from error
    if not _FORM.fullmatch(found):
        raise _unreadable(path, "is damaged")
    return found.decode().strip()


def _unreadable(path: Path, why: str) -> UserError:
    return UserError(
        f"{path}: the embedded broker's secret {why}: stop the broker with `validator broker stop` and start it again"
    )


def admit_clients(bootstrap_servers: str, own: str, secret: str) -> None:
    """Make a broker that has just started admit clients with this secret. Raises `UserError`."""
    from confluent_kafka import KafkaException  # a command without a broker does not wait for librdkafka
    from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    from validator.kafka.retry import answer
    from validator.kafka.settings import admin_config

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


def java_properties(kafka: Mapping[str, object]) -> dict[str, str]:
    """Return the broker's `[kafka]` table in the names of Kafka's Java client."""
    found = {key: str(value) for key, value in kafka.items()}
    user, password = found.pop("sasl.username"), found.pop("sasl.password")
    return found | {"sasl.jaas.config": f'{_SCRAM} required username="{user}" password="{password}";'}
