# SPDX-License-Identifier: Apache-2.0
"""Every setting of every Kafka client of the product: by purpose, each with its reason.

A user's `[kafka]` table uses librdkafka's names and is passed to the producers, consumers and admin clients. It may change what is about
speed, and cannot change what the guarantees depend on.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from validator.errors import UserError
from validator.kafka.calls import TRANSACTION_MS_MAX
from validator.registry_keys import REGISTRY_PREFIX
from validator.tables import dotted

if TYPE_CHECKING:
    from collections.abc import Mapping

    KafkaTable = Mapping[str, object]
    """A `[kafka]` table with `bootstrap.servers` among its keys; nested tables are dotted names."""

_TRUE: Final = ("true", "t", "1")
"""What librdkafka reads as true; everything else counts as false."""

_SPARK_PREFIX: Final = "spark."
"""Prefix of the table's keys that earlier versions passed to Spark's Java client."""

_BY_PASSWORD: Final = ("PLAIN", "SCRAM-")
"""What the names of mechanisms with a name and a password begin with."""

MESSAGE_BYTES_MAX: Final = 8 << 20
"""A candidate carries its messages: at most the 5 MiB of a proof of validity, plus room; Kafka's default is 1 MiB."""

DEAD_LETTER_BYTES_MAX: Final = MESSAGE_BYTES_MAX + (1 << 20)
"""A dead letter contains a whole record, which may be of maximum size."""

# librdkafka's log, silent unless a program configures logging: if a broker is gone, the call that needs it raises.
_LOGGER: Final = logging.getLogger("validator.librdkafka")
_LOGGER.addHandler(logging.NullHandler())

_PRODUCER: Final[dict[str, object]] = {
    # A retried send neither duplicates nor reorders a record.
    "enable.idempotence": True,
    # Idempotence alone may lose one: a broker that knows nothing of a producer takes any first batch of it. If it refused an earlier one (a
    # leader that is not ready) and took the next, which was sent meanwhile, it calls the repeated one a duplicate, and it counts as sent.
    "max.in.flight.requests.per.connection": 1,
    # A record counts as sent once all in-sync replicas have it.
    "acks": "all",
    # Keys go to the partition that Java clients choose, so that every producer agrees (librdkafka's default is CRC32). A table may choose
    # another: the job reads all partitions, and a lane's own records may move.
    "partitioner": "murmur2_random",
    # Clients of every language read this; kafkajs knows no codec but gzip by itself, which costs a writer 5 us a record and a reader 3. A
    # table may choose another: lz4 leaves two fifths of the bytes for no more processor time.
    "compression.type": "none",
    "message.max.bytes": DEAD_LETTER_BYTES_MAX,
}

UNPACKED_BYTES_MAX: Final = 1024 * 1024 * 1024
"""Bytes to which librdkafka unpacks a producer's batch that is compressed with zstd (default: 100 MB); it does not bound other codecs."""

_CONSUMER: Final[dict[str, object]] = {
    # Records of uncommitted batches do not count.
    "isolation.level": "read_committed",
    # Whoever processes the records stores the offsets, in the same transaction.
    "enable.auto.commit": False,
    # A reader begins where it says. Where that is gone is an error: it must not continue elsewhere as if nothing lay between.
    "auto.offset.reset": "error",
    # Whoever reads a topic takes what the job takes. librdkafka bounds what it unpacks by the size of an answer.
    "receive.message.max.bytes": UNPACKED_BYTES_MAX,
}

_EOF: Final[dict[str, object]] = {
    # How a reader learns that a partition has no more records, since what lies before its end may be markers of transactions.
    "enable.partition.eof": True
}

_TO_THE_END: Final[dict[str, object]] = {
    # An empty fetch reports the end, and a broker delays empty fetches by this time (default: 500 ms).
    "fetch.wait.max.ms": 50,
}

_LASTING: Final[dict[str, object]] = {
    # Brokers restart while the client lives: it finds them again within a second (default: 10 s).
    "reconnect.backoff.max.ms": 1_000,
}

READER_FETCH_KIB: Final = 16 * 1024
"""KiB of records that an open reader of a transport may hold in advance; a larger record is fetched all the same."""


class Reading(NamedTuple):
    """What a consumer is for: settings that a user's table may change, others that it may not, and how `TopicReader` reads with it.

    A reader that ``follows`` continues where others raise: it waits in silence while all brokers are gone, and continues with what
    retention has left. One that ``begins_again`` reads a topic from its first record if it ends before what comes next: it was replaced.
    """

    tuning: Mapping[str, object]
    own: Mapping[str, object]
    records_per_poll: int = 1_000
    follows: bool = False
    begins_again: bool = False


WHOLE: Final = Reading(_TO_THE_END, _EOF)
"""Whoever reads to the end."""
_ONE_BATCH: Final[dict[str, object]] = {
    # A fetch has one batch of a producer.
    "fetch.message.max.bytes": 1,
    # librdkafka doubles that, and never takes it back, after each fetch that has only aborted records. Further batches within this bound
    # unpack to 128 MiB at most. It may not be less than the largest message to be sent, and a reader sends none.
    "fetch.max.bytes": 4_096,
    "message.max.bytes": 4_096,
}

SPARING: Final = Reading(
    _TO_THE_END,
    # Fetches are begun while less than 16 MiB of values are left.
    _EOF | _ONE_BATCH | {"queued.max.messages.kbytes": 16 * 1024},
    16,
)
"""Whoever has little memory: a fetch is bounded in compressed bytes only, and may otherwise become gigabytes."""
SERVED_FETCH_KIB: Final = 1024
"""KiB of records that a reader for one request or stream over HTTP holds in advance; a larger record is fetched all the same."""
SERVED: Final = Reading(_TO_THE_END, _EOF | {"queued.max.messages.kbytes": SERVED_FETCH_KIB}, 500)
"""Whoever reads for somebody else, of whom there may be many."""
ONE_BY_ONE: Final = Reading(
    _TO_THE_END | _LASTING, _EOF | {"queued.max.messages.kbytes": READER_FETCH_KIB}, 1, follows=True
)
"""A transport's reader of outputs, of which it may open several."""
OF_GROUP: Final = Reading(_LASTING, {}, 1, follows=True, begins_again=True)
"""What a transport receives, from the offsets of its group on; one that was away for longer than retention continues with what is left."""
UNCOMMITTED: Final = Reading(_TO_THE_END, _EOF | {"isolation.level": "read_uncommitted"})
"""Who looks for what an open transaction holds, or must not wait for one."""
COMMITS: Final = Reading({}, {})
"""Who commits offsets, or is a member of a group, and reads nothing."""
LASTING_COMMITS: Final = Reading(_LASTING, {})
"""The same as long as the process lives."""
INPUTS: Final = Reading(
    _LASTING,
    _EOF
    | {
        # The end of a partition is reported with an empty fetch. A batch whose last record is a transaction's marker waits for that; an
        # idle job asks this often.
        "fetch.wait.max.ms": 20,
        # What is fetched beyond the ranges is fetched for nothing (default: 100,000 records, 64 MiB).
        "queued.min.messages": 10_000,
        "queued.max.messages.kbytes": 32 * 1024,
        # A fetch must hold the largest record.
        "fetch.message.max.bytes": 2 * MESSAGE_BYTES_MAX,
    },
)
"""The job's workers, which read ranges of the inputs."""
INPUTS_SPARING: Final = Reading(
    _LASTING,
    {
        **INPUTS.own,
        **_ONE_BATCH,
        # The next batch is fetched once the records of this one have been taken,
        "queued.min.messages": 1,
        # for which it looks again after this time (default: 1 s).
        "fetch.queue.backoff.ms": 50,
        # How it learns that the client passes aborted records. They pile up in a client that is not polled, so this is for a single task.
        "statistics.interval.ms": 1_000,
    },
)
"""A process that reads one producer's batch at a time, since one of them may not fit in memory."""

QUEUED_KIB_MAX: Final = 64 * 1024
"""KiB of records of one lane that wait in the worker to be sent, unless `[kafka]` says otherwise; librdkafka's default is 1 GiB.

It ends the process if it gets no memory, so `streaming.workers.WRITER_BYTES` has room for them.
"""


class Writing(NamedTuple):
    """What a producer is for: settings that a user's table may change, and others that it may not."""

    tuning: Mapping[str, object]
    own: Mapping[str, object]


SENDER: Final = Writing({}, {})
"""Whoever waits until Kafka has what it sends."""
ENDLESS: Final = Writing(
    _LASTING,
    # A record waits as long as Kafka is down (default: 5 minutes). Idempotence already retries without a limit.
    {"message.timeout.ms": 0},
)
"""A transport's records in the background."""
OF_LANE: Final = Writing(
    {"queue.buffering.max.kbytes": QUEUED_KIB_MAX},
    {
        # How long readers of committed records wait for a dead writer whose lane nobody takes over.
        "transaction.timeout.ms": TRANSACTION_MS_MAX,
        # Only a record that was not delivered calls back: a call for each of them took a fifth of the sink's time.
        "delivery.report.only.error": True,
    },
)
"""The writer of a lane, or of a key of a job."""
OF_CURSORS: Final = Writing(
    {},
    # The same for a transport that is killed, if no other process of its name ends the transaction before.
    {"transaction.timeout.ms": 120_000},
)
"""The writer of a transport's cursors."""

OF_REPLAYS: Final = Writing(
    {},
    # Long enough for a person's largest replay, and readers wait no longer for one that was killed (librdkafka's default).
    {"transaction.timeout.ms": 60_000},
)
"""The writer that puts dead letters back."""

_ADMIN: Final[dict[str, object]] = {
    # An answer within 10 s or an error: a person is waiting (default: 60 s).
    "socket.timeout.ms": 10_000,
}

# The guarantees depend on these: a table cannot change them.
_FIXED: Final = (
    "enable.idempotence", "max.in.flight", "max.in.flight.requests.per.connection", "acks", "request.required.acks",
    "isolation.level", "enable.auto.commit", "auto.commit.enable", "auto.offset.reset", "transactional.id", "group.id",
    "group.instance.id", "group.protocol",
)  # fmt: skip
"""In any case."""


def flatten(table: KafkaTable) -> dict[str, str]:
    """Return the table as Kafka writes it: dotted names, every value a string.

    TOML reads `security.protocol = "SSL"` as a nested table; both spellings mean the same here. Keys of the schema registry are left out.
    Errors, in order: a value that is neither text, number nor boolean; a key that the guarantees depend on, or that was for Spark's own
    client; certificates that are not to be verified; keys of TLS or of a login that `security.protocol` would leave unused.
    """
    own = {name: value for name, value in dotted(table).items() if not name.startswith(REGISTRY_PREFIX)}
    flat = {name: _text(name, value) for name, value in own.items()}
    for key in flat:
        if key.strip().lower() in _FIXED:
            raise UserError(f"[kafka] {key} cannot be set: exactly-once delivery depends on the product's own value")
        if key.startswith(_SPARK_PREFIX):
            raise UserError(f"[kafka] {key}: Spark does not read Kafka any more: remove the key")
    verified = flat.get("enable.ssl.certificate.verification", "true")
    if verified.strip().lower() not in _TRUE:
        raise UserError(f"[kafka] enable.ssl.certificate.verification = {verified}: certificates are always verified")
    _check_protection(flat)
    return flat


def _check_protection(flat: Mapping[str, str]) -> None:
    """Raise `UserError` for keys of TLS or of a login without a protocol that uses them: the connection would be plain, silently."""
    used = flat.get("security.protocol", "")
    for prefix, part in (("ssl.", "SSL"), ("sasl.", "SASL")):
        given = next((key for key in flat if key.startswith(prefix)), None)
        if given is not None and part not in used.upper().split("_"):
            found = used or "no security.protocol"
            raise UserError(
                f"[kafka] {given}: expected security.protocol = SASL_SSL or another with {part}, found {found}"
            )


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    found = "an array" if isinstance(value, list) else type(value).__name__  # not the value, which may be a secret
    raise UserError(f"[kafka] {name}: expected text, a number or a boolean, found {found}")


def producer_config(
    kafka: KafkaTable, writing: Writing = SENDER, *, transactional_id: str | None = None
) -> dict[str, Any]:
    """Return the configuration of a `confluent_kafka.Producer`, which is transactional if it is given an id."""
    transactional = {"transactional.id": transactional_id} if transactional_id is not None else {}
    return {**_PRODUCER, **writing.tuning, **_common(kafka), **transactional, **writing.own}


def consumer_config(kafka: KafkaTable, reading: Reading, *, group_id: str) -> dict[str, Any]:
    return {
        **_CONSUMER,
        **reading.tuning,
        **_common(kafka),
        "enable.partition.eof": False,
        **reading.own,
        "group.id": group_id,
    }


def member_config(kafka: KafkaTable, group_id: str, session_ms: int, heartbeat_ms_max: int) -> dict[str, Any]:
    """Return the configuration of the member of a group that has a transport's lease; by its client.id people find the process.

    A session lasts ``session_ms`` unless the table says otherwise. Four heartbeats have to be lost before it ends. Raises `UserError`.
    """
    config = consumer_config(kafka, LASTING_COMMITS, group_id=group_id)
    found = str(config.get("session.timeout.ms", session_ms))
    if not found.isdecimal():
        raise UserError(f"[kafka] session.timeout.ms: expected milliseconds, found {found!r}")
    config["session.timeout.ms"] = int(found)
    config["heartbeat.interval.ms"] = max(1, min(heartbeat_ms_max, int(found) // 4))
    return config | {"client.id": f"{config['client.id']}@{socket.gethostname()}:{os.getpid()}"}


def admin_config(kafka: KafkaTable) -> dict[str, Any]:
    return _ADMIN | _common(kafka)


def _check_login(flat: Mapping[str, str]) -> None:
    """Raise `UserError` for a login by password without its name or password; librdkafka would not say where they come from."""
    mechanism = flat.get("sasl.mechanism", flat.get("sasl.mechanisms", "")).upper()
    if "SASL" not in flat.get("security.protocol", "").upper() or not mechanism.startswith(_BY_PASSWORD):
        return
    for part in ("username", "password"):
        if f"sasl.{part}" not in flat:
            raise UserError(
                f"[kafka] sasl.{part} is missing, which {mechanism} needs: "
                f"set it, or the environment variable VALIDATOR_KAFKA__SASL__{part.upper()}"
            )


def _common(kafka: KafkaTable) -> dict[str, Any]:
    flat = flatten(kafka)
    if not flat.get("bootstrap.servers"):
        raise UserError("[kafka] bootstrap.servers is missing: expected host:port, or several with commas")
    _check_login(flat)
    return {"client.id": "validator", "logger": _LOGGER} | flat
