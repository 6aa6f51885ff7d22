# SPDX-License-Identifier: Apache-2.0
"""The schema registry: who reads records asks it for the schemas that Confluent's framing names (`validator.codec.framing`).

Its settings travel with those of Kafka, as keys of the same table with the prefix `REGISTRY_PREFIX`, so that every reader has them. Workers
get `IDS` instead: what the driver has looked up. They ask nobody, so every attempt at a batch reads the same.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from validator.codec.framing import ID_HEADER_SIZE, ID_MAX, MAGIC, framed_id, plain_form, plain_header
from validator.errors import Unavailable, UserError, not_installed
from validator.kafka.retry import ANSWER_S_MAX
from validator.registry_keys import REGISTRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from validator.kafka.settings import KafkaTable


URL: Final = f"{REGISTRY_PREFIX}url"
IDS: Final = f"{REGISTRY_PREFIX}ids"
"""Key of what a worker knows of the registry: pairs of headers, Confluent's and the plain one."""

ANSWER_S: Final = 10
"""Seconds that the registry has to begin an answer, and to continue one."""
WHOLE_ANSWER_S: Final = 30
"""Seconds that it has for a whole answer."""
ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of an answer; names of all subjects may be a hundred thousand."""
ERROR_CHARACTERS_MAX: Final = 300
"""Characters of a registry's words that an error repeats."""
RETRY_S: Final = 0.5
"""Seconds between two attempts of a reader."""
UNKNOWN_S: Final = 60
"""Seconds for which an id that the registry does not know stays unknown: somebody may register its schema, or the registry lag behind."""
UNKNOWN_IDS_MAX: Final = 1_000
"""Ids without a schema about which a process asks in `UNKNOWN_S`: anyone who may write records may make up ids."""
CLIENTS_MAX: Final = 16
"""Registries that a process remembers."""

_PASSING: Final = (408, 425, 429)
_REFUSES: Final = range(400, 500)
_NO_LOGIN: Final = 401
_NOT_FOUND: Final = 404


class RegisteredSchema(NamedTuple):
    """One version of a subject, with the schema's text."""

    version: int
    schema_id: int
    text: str


class Registry:
    """A client of a schema registry. Every method raises `UserError`, and `Unavailable` if the registry does not answer now."""

    def __init__(self, kafka: KafkaTable) -> None:
        """Raises `UserError` if the client is not installed, or does not accept the settings."""
        settings = {
            name.removeprefix(REGISTRY_PREFIX): value
            for name, value in kafka.items()
            if name.startswith(REGISTRY_PREFIX)
        }
        self.url = str(settings["url"])
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient

            from validator.kafka.bounded_answers import BoundedAnswers
        except ImportError as error:
            raise not_installed(str(error.name), "registry", for_="[schema_registry]") from error
        try:
            self._client: Any = SchemaRegistryClient({**settings, "timeout": ANSWER_S, "max.retries": 0})
            self._answers = BoundedAnswers(
                self._client._rest_client.session, whole_s=WHOLE_ANSWER_S, bytes_max=ANSWER_BYTES_MAX
            )
        except (ValueError, TypeError, OSError) as error:
            raise UserError(
                f"[schema_registry]{_unreadable_file(settings)}: the client does not accept it: {error}"
            ) from error

    def schema(self, schema_id: int) -> str | None:
        """Return the text of a schema, None if the registry has no Avro schema of this id or refuses it.

        Whoever may write a record chooses the id. So an answer about one id must not look like a wrong configuration, except that the
        login is not accepted.
        """
        from validator.kafka.bounded_answers import AnswerTooLong

        with self._answering():
            try:
                found = self._unless_refused(lambda: self._client.get_schema(schema_id))
            except AnswerTooLong:
                return None
            return str(found.schema_str) if found is not None and _is_avro(found) else None

    def subjects(self) -> list[str]:
        with self._answering():
            return [str(each) for each in self._client.get_subjects()]

    def numbers(self, subject: str) -> list[int]:
        """Return the numbers of a subject's versions, ascending; none if it does not exist."""
        with self._answering(subject):
            numbers = self._found(lambda: self._client.get_versions(subject)) or []
            if not isinstance(numbers, list) or not all(type(each) is int for each in numbers):
                raise TypeError("version numbers are no list of integers")
            return sorted(set(numbers))

    def version(self, subject: str, number: int) -> RegisteredSchema | None:
        """Return a version of a subject; None if it is gone, or has no Avro schema."""
        with self._answering(subject):
            self._client.clear_caches()  # they have an answer by the subject and number that it names, which may be others
            found = self._found(lambda: self._client.get_version(subject, number))
            if found is None or not _is_avro(found.schema):
                return None
            return RegisteredSchema(number, _checked_id(found.schema_id), found.schema.schema_str)

    def register(self, subject: str, text: str) -> int:
        """Add a version to a subject unless it has it already, and return the schema's id."""
        from confluent_kafka.schema_registry import Schema

        with self._answering(subject):
            return _checked_id(self._client.register_schema(subject, Schema(text, "AVRO")))

    def set_compatibility(self, subject: str, level: str) -> bool:
        """Say which new versions of a subject the registry accepts; return False if it must know the subject first, and does not."""
        with self._answering(subject):
            return self._found(lambda: self._client.set_compatibility(subject, level)) is not None

    def compatibility(self, subject: str) -> str | None:
        """Return the compatibility of a subject, or else that of all subjects; None if the registry does not say it."""
        with self._answering(subject):
            own = self._unless_refused(lambda: self._client.get_compatibility(subject))
            level = self._unless_refused(self._client.get_compatibility) if own is None else own
            return None if level is None else str(level)

    @staticmethod
    def _found(ask: Callable[[], Any]) -> Any:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return ask()
        except SchemaRegistryError as error:
            if error.http_status_code == _NOT_FOUND and error.error_code != SchemaRegistryError.UNKNOWN:
                return None
            raise

    @staticmethod
    def _unless_refused(ask: Callable[[], Any]) -> Any:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return ask()
        except SchemaRegistryError as error:
            status = error.http_status_code
            if status in _REFUSES and status != _NO_LOGIN and status not in _PASSING:
                return None
            raise

    @contextmanager
    def _answering(self, subject: str = "") -> Iterator[None]:
        from confluent_kafka.schema_registry.error import SchemaRegistryError
        from httpx import HTTPError

        of_subject = f"subject {subject}: " if subject else ""
        try:
            yield
        except UserError as error:  # of `BoundedAnswers`
            raise UserError(f"schema registry {self.url}: {of_subject}{error}") from error
        except SchemaRegistryError as error:
            status = error.http_status_code
            text = f"schema registry {self.url}: {of_subject}{str(error.error_message)[:ERROR_CHARACTERS_MAX]} (HTTP {status})"
            raise (Unavailable if status >= 500 or status in _PASSING else UserError)(text) from error
        except HTTPError as error:
            if self._answers.is_late:
                raise Unavailable(
                    f"schema registry {self.url}: expected a whole answer within {WHOLE_ANSWER_S} s, found a part"
                ) from error
            raise Unavailable(
                f"no schema registry answers at {self.url} ({str(error) or type(error).__name__}): check [schema_registry] url"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(
                f"schema registry {self.url}: {of_subject}expected its REST interface, found another answer: "
                f"{str(error)[:ERROR_CHARACTERS_MAX]}"
            ) from error
        finally:
            self._answers.end()


def _is_avro(schema: Any) -> bool:
    return isinstance(schema.schema_str, str) and schema.schema_type in (None, "AVRO")


def _checked_id(found: Any) -> int:
    if type(found) is not int or not 0 <= found <= ID_MAX:
        raise ValueError(f"expected an id of 0 to {ID_MAX}, found {found!r}")
    return found


class AskedIds:
    """Ids that are looked up when a record names them: each once in a process, an unknown one again after `UNKNOWN_S`."""

    def __init__(self, registry: Callable[[], Registry], patience_s: float = ANSWER_S_MAX) -> None:
        self._registry = registry
        self._patience_s = patience_s
        self._lock = Lock()
        self._headers: dict[bytes, bytes] = {}
        self._unknown: dict[bytes, float] = {}
        """Unknown ids and until when they are, in this order."""
        self._client: Registry | None = None

    def plain(self, value: bytes) -> bytes:
        """Return a value in its plain form; as it is if the registry does not know its id. Raises `UserError`, `Unavailable`."""
        header = value[:ID_HEADER_SIZE]
        schema_id = framed_id(value)
        if schema_id is not None and header not in self._headers:
            with self._lock:
                self._ask(header, schema_id)
        return plain_form(value, self._headers)

    def _ask(self, header: bytes, schema_id: int) -> None:
        self._forget(time.monotonic())
        if header in self._headers or header in self._unknown or len(self._unknown) >= UNKNOWN_IDS_MAX:
            return
        text = self._answer(schema_id)
        plain = None if text is None else plain_header(text)
        if plain is None:
            self._unknown[header] = time.monotonic() + UNKNOWN_S
        else:
            self._headers[header] = plain

    def _forget(self, now: float) -> None:
        while self._unknown:
            oldest = next(iter(self._unknown))
            if now < self._unknown[oldest]:
                return
            del self._unknown[oldest]

    def _answer(self, schema_id: int) -> str | None:
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                self._client = self._client or self._registry()
                return self._client.schema(schema_id)
            except Unavailable:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(RETRY_S)


def plain_values(kafka: KafkaTable) -> Callable[[bytes], bytes]:
    """Return what brings values into their plain form: by what a worker knows, else by the registry, if there is one."""
    known = known_ids(kafka)
    if known is not None:
        return lambda value: plain_form(value, known) if value.startswith(MAGIC) else value
    if URL not in kafka:
        return _unchanged
    asked = _asked(tuple(sorted((name, value) for name, value in kafka.items() if name.startswith(REGISTRY_PREFIX))))
    return lambda value: asked.plain(value) if value.startswith(MAGIC) else value


def _unreadable_file(settings: Mapping[str, Any]) -> str:
    """Return which key names a file that cannot be read, since the client does not say; empty if none does."""
    keys = {
        "ca_file": "ssl.ca.location",
        "certificate_file": "ssl.certificate.location",
        "key_file": "ssl.key.location",
    }
    named = ((key, settings.get(name)) for key, name in keys.items())
    return next((f" {key} {path}" for key, path in named if path is not None and not os.access(path, os.R_OK)), "")


def known_ids(kafka: KafkaTable) -> dict[bytes, bytes] | None:
    """Return what a worker knows: the plain headers by Confluent's; None in a process that may ask the registry."""
    pairs: Any = kafka.get(IDS)
    return None if pairs is None else dict(pairs)


def with_known_ids(kafka: KafkaTable, headers: Mapping[bytes, bytes]) -> dict[str, Any]:
    """Return the table for workers: they know these ids and neither address nor password of the registry."""
    own = {name: value for name, value in kafka.items() if not name.startswith(REGISTRY_PREFIX)}
    return {**own, IDS: tuple(sorted(headers.items()))}


def _unchanged(value: bytes) -> bytes:
    return value


@lru_cache(maxsize=CLIENTS_MAX)
def _asked(settings: tuple[tuple[str, Any], ...]) -> AskedIds:
    return AskedIds(lambda: Registry(dict(settings)))
