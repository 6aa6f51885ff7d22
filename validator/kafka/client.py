# SPDX-License-Identifier: Apache-2.0
"""Every client configuration of the product, and what each option is for.

A user's `[kafka]` table is librdkafka's names and passes through to the producers, consumers and admin clients; only what
exactly-once rests on cannot be changed. Spark reads through the Java client: `validator.kafka.spark_options` translates.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from validator.errors import UserError
from validator.tables import dotted

if TYPE_CHECKING:
    from collections.abc import Mapping

    KafkaTable = Mapping[str, object]
    """A `[kafka]` table, `bootstrap.servers` among its keys; nested tables are dotted names."""

SPARK_PREFIX: Final = "spark."
"""Keys of the table that are for Spark's Java client alone, in its own names."""

MESSAGE_BYTES_MAX: Final = 8 << 20
"""A candidate carries its messages: at most the 5 MiB of a proof of validity, with room; Kafka's default is 1 MiB."""

DEAD_LETTER_BYTES_MAX: Final = MESSAGE_BYTES_MAX + (1 << 20)
"""A dead letter holds the whole of a record that may have been as large as one can be."""

# librdkafka speaks through it; silent unless a program configures logging: that a broker went away is told by the call
# that needed it.
_LOGGER: Final = logging.getLogger("validator.librdkafka")
_LOGGER.addHandler(logging.NullHandler())

_PRODUCER: Final[dict[str, object]] = {
    # A retried send neither doubles nor reorders a record.
    "enable.idempotence": True,
    # All in-sync replicas have it before it counts as sent.
    "acks": "all",
    # The partition of a key is the one that Java clients choose, so that every producer agrees (librdkafka's own is CRC32).
    "partitioner": "murmur2_random",
    # Verdicts repeat field values: half the size for little of a core.
    "compression.type": "lz4",
    "message.max.bytes": DEAD_LETTER_BYTES_MAX,
}

_CONSUMER: Final[dict[str, object]] = {
    # A batch that was not committed was never said.
    "isolation.level": "read_committed",
    # Where a reader stands is kept by whoever acts on what it read, in the same transaction.
    "enable.auto.commit": False,
    # A reader without a position starts with the first record there is, not with the next one to come.
    "auto.offset.reset": "earliest",
}

_TO_THE_END: Final[dict[str, object]] = {
    # The end is reported by the fetch that finds nothing, and a broker keeps that one back for so long (default: 500 ms).
    "fetch.wait.max.ms": 50,
}

_ADMIN: Final[dict[str, object]] = {
    # An answer within 10 s or an error: a person waits for it (default: 60 s).
    "socket.timeout.ms": 10_000,
}

# What the guarantees rest on: not to be changed by a table.
_FIXED: Final = ("enable.idempotence", "acks", "isolation.level", "enable.auto.commit", "transactional.id", "group.id")


def flatten(table: KafkaTable) -> dict[str, str]:
    """Return the table as Kafka writes it: dotted names, every value a string.

    TOML reads `security.protocol = "SSL"` as a table in a table; both spellings mean the same here.
    Errors, in order: a value that is neither text, number nor boolean; a key that the guarantees rest on.
    """
    flat = {name: _text(name, value) for name, value in dotted(table).items()}
    for key in _FIXED:
        if key in flat:
            raise UserError(f"[kafka] {key} cannot be set: exactly-once delivery rests on the product's own value")
    return flat


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise UserError(f"[kafka] {name}: expected text, a number or a boolean, found {value!r}")


def producer_config(kafka: KafkaTable, *, transactional_id: str | None = None) -> dict[str, Any]:
    """Return the configuration of a `confluent_kafka.Producer`, transactional if it gets an identity."""
    transactional = {"transactional.id": transactional_id} if transactional_id is not None else {}
    return _PRODUCER | _common(kafka) | transactional


def consumer_config(kafka: KafkaTable, *, group_id: str, partition_eof: bool = False) -> dict[str, Any]:
    """Return the configuration of a `confluent_kafka.Consumer`; `partition_eof` has it tell where a partition ends."""
    tuning = _TO_THE_END if partition_eof else {}
    return _CONSUMER | tuning | _common(kafka) | {"group.id": group_id, "enable.partition.eof": partition_eof}


def admin_config(kafka: KafkaTable) -> dict[str, Any]:
    """Return the configuration of a `confluent_kafka.admin.AdminClient`."""
    return _ADMIN | _common(kafka)


def _common(kafka: KafkaTable) -> dict[str, Any]:
    flat = {key: value for key, value in flatten(kafka).items() if not key.startswith(SPARK_PREFIX)}
    if not flat.get("bootstrap.servers"):
        raise UserError("[kafka] bootstrap.servers is missing: expected host:port, or several with commas")
    return {"client.id": "validator", "logger": _LOGGER} | flat
