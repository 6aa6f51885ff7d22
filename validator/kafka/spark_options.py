# SPDX-License-Identifier: Apache-2.0
"""Translates a `[kafka]` table from librdkafka's names to those of the Java client that Spark reads with.

| librdkafka | Java client |
|---|---|
| names that both have (`_SAME`) | unchanged |
| names that differ (`_RENAMED`) | the Java client's name |
| `ssl.*` PEM files or texts, a PKCS#12 key store | trust store and key store of type PEM or PKCS12 |
| `sasl.username`, `sasl.password` | `sasl.jaas.config` |
| options that tune producers or librdkafka itself (`_NOT_FOR_SPARK`) | dropped: Spark only reads |
| `spark.*` | unchanged, without the prefix, last: for options without a translation |
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final

from validator.errors import UserError
from validator.kafka.settings import SPARK_PREFIX, flatten

if TYPE_CHECKING:
    from validator.kafka.settings import KafkaTable

_SAME: Final = frozenset({
    "bootstrap.servers", "client.dns.lookup", "client.id", "client.rack", "connections.max.idle.ms", "fetch.max.bytes",
    "fetch.min.bytes", "heartbeat.interval.ms", "max.partition.fetch.bytes", "max.poll.interval.ms", "metadata.max.age.ms",
    "reconnect.backoff.max.ms", "reconnect.backoff.ms", "request.timeout.ms", "retry.backoff.max.ms", "retry.backoff.ms",
    "sasl.kerberos.service.name", "security.protocol", "session.timeout.ms", "socket.connection.setup.timeout.ms",
})  # fmt: skip

_RENAMED: Final = {
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanism": "sasl.mechanism",
    "sasl.mechanisms": "sasl.mechanism",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.timeout.ms": "request.timeout.ms",
    "ssl.cipher.suites": "ssl.cipher.suites",
}

_NOT_FOR_SPARK: Final = frozenset({
    "batch.num.messages", "batch.size", "broker.address.family", "broker.address.ttl", "compression.codec",
    "compression.level", "compression.type", "debug", "delivery.timeout.ms", "enable.partition.eof", "linger.ms", "log_level",
    "max.in.flight", "max.in.flight.requests.per.connection", "message.max.bytes", "message.send.max.retries",
    "message.timeout.ms", "partitioner", "queue.buffering.max.kbytes", "queue.buffering.max.messages",
    "queue.buffering.max.ms", "queued.max.messages.kbytes", "queued.min.messages", "retries", "socket.keepalive.enable",
    "socket.nagle.disable", "statistics.interval.ms", "sticky.partitioning.linger.ms", "transaction.timeout.ms",
})  # fmt: skip

_SECRETS: Final = frozenset({
    "enable.ssl.certificate.verification", "sasl.password", "sasl.username", "ssl.ca.location", "ssl.ca.pem",
    "ssl.certificate.location", "ssl.certificate.pem", "ssl.endpoint.identification.algorithm", "ssl.key.location",
    "ssl.key.password", "ssl.key.pem", "ssl.keystore.location", "ssl.keystore.password",
})  # fmt: skip

_TRUE: Final = ("true", "t", "1")
"""What librdkafka reads as true; everything else counts as false."""

_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def spark_options(kafka: KafkaTable) -> dict[str, str]:
    """Return the options of Spark's Kafka source, each `kafka.<name of the Java client>`.

    Errors, in order: those of `flatten`, keys without a translation, TLS settings (unsupported, incomplete or in unreadable files), an
    unsupported SASL mechanism.
    """
    # records of uncommitted batches do not count
    return {"kafka.isolation.level": "read_committed"} | {
        f"kafka.{key}": value for key, value in java_properties(kafka).items()
    }


def java_properties(kafka: KafkaTable) -> dict[str, str]:
    """Return the table in the Java client's names. Raises as `spark_options` does."""
    flat = flatten(kafka)
    options: dict[str, str] = {}
    for key, value in flat.items():
        if key in _SAME:
            options[key] = value
        elif key in _RENAMED:
            options[_RENAMED[key]] = value
        elif key not in _NOT_FOR_SPARK and key not in _SECRETS and not key.startswith(SPARK_PREFIX):
            raise UserError(f"[kafka] {key} has no translation for Spark's Kafka client: {_suggestion(key)}")
    options |= _tls(flat) | _sasl(flat)
    return options | {
        key.removeprefix(SPARK_PREFIX): value for key, value in flat.items() if key.startswith(SPARK_PREFIX)
    }


def _suggestion(key: str) -> str:
    known = sorted(_SAME | _RENAMED.keys() | _NOT_FOR_SPARK | _SECRETS)
    close = get_close_matches(key, known, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"replace it with the Java client's own option, as {SPARK_PREFIX}<name>"


def _tls(flat: dict[str, str]) -> dict[str, str]:
    options: dict[str, str] = {}
    verification = flat.get("enable.ssl.certificate.verification", "true")
    if verification.strip().lower() not in _TRUE:
        raise UserError(
            f"[kafka] enable.ssl.certificate.verification = {verification}: the Java client always verifies certificates"
        )
    if "ssl.endpoint.identification.algorithm" in flat:
        named = flat["ssl.endpoint.identification.algorithm"]
        options["ssl.endpoint.identification.algorithm"] = "" if named.strip().lower() == "none" else named
    authorities = _pem(flat, "ssl.ca")
    if authorities is not None:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authorities}
    chain, key = _pem(flat, "ssl.certificate"), _pem(flat, "ssl.key")
    if (chain is None) != (key is None):
        raise UserError("[kafka] ssl.certificate and ssl.key: expected both (.location or .pem), found one")
    if chain is not None and key is not None:
        if "PRIVATE KEY" not in key or "RSA PRIVATE KEY" in key or "EC PRIVATE KEY" in key:
            raise UserError(
                "[kafka] ssl.key: the Java client reads PKCS#8 keys (BEGIN PRIVATE KEY or BEGIN ENCRYPTED PRIVATE KEY), "
                "found another form: convert it with `openssl pkcs8 -topk8`"
            )
        options |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
    if "ssl.keystore.location" in flat:
        options |= {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": flat["ssl.keystore.location"]}
    return options | {key: flat[key] for key in ("ssl.key.password", "ssl.keystore.password") if key in flat}


def _pem(flat: dict[str, str], name: str) -> str | None:
    """Return the text of a certificate or key, given as text or as a file; executors need not have the file."""
    if f"{name}.pem" in flat:
        return flat[f"{name}.pem"]
    if f"{name}.location" not in flat:
        return None
    path = Path(flat[f"{name}.location"])
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"[kafka] {name}.location: expected a readable PEM file, found {path}: {error}") from error


def _sasl(flat: dict[str, str]) -> dict[str, str]:
    if "sasl.username" not in flat and "sasl.password" not in flat:
        return {}
    mechanism = flat.get("sasl.mechanisms", flat.get("sasl.mechanism", ""))
    module = _LOGIN_MODULES.get(mechanism)
    if module is None:
        expected = ", ".join(_LOGIN_MODULES)
        raise UserError(f"[kafka] sasl.mechanism: expected one of {expected} with sasl.username, found {mechanism!r}")
    user, password = (_quoted(flat.get(key, "")) for key in ("sasl.username", "sasl.password"))
    return {"sasl.jaas.config": f"{module} required username={user} password={password};"}


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
