# SPDX-License-Identifier: Apache-2.0
"""What a job knows of the schema registry: it asks when it starts, and workers get the answer as data.

Schemas are registered under subjects that name topic and record, or the record alone (`[schema_registry] subjects`): a topic may carry
several kinds of records, which no single subject could keep compatible. Ids are looked up under every name that common serializers use, so
a producer may register the same schema under its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from validator.codec.compatibility import policy
from validator.codec.framing import id_header, plain_header
from validator.errors import UserError
from validator.kafka.registry import RegisteredSchema, Registry
from validator.topics import DRY_RUN_TOPICS, INPUT_TOPICS

if TYPE_CHECKING:
    from validator.codec.codec import Codec
    from validator.codec.schemas import Schema, SchemaSet
    from validator.config import Config
    from validator.plugin.job_api import Job

VERSIONS_MAX: Final = 10_000
"""Versions of all subjects that a job looks at."""
PROGRESS_S: Final = 10
"""Seconds between two reports of progress; the registry is asked for each version by itself."""

INTERNAL_TOPICS: Final = frozenset({"cursors", "dead-letter-replays", "markers", "metrics"})
"""Topics that only the product reads: their records have the plain form and are not registered."""

PLAIN_TOPICS: Final = frozenset({*INPUT_TOPICS, *(topic.name for topic in DRY_RUN_TOPICS)})
"""Topics that no job writes: what producers and transports send of ours has the plain form."""


class RecordSchemas(NamedTuple):
    """A record of a topic, without the prefix: the versions of its schema, the current one last."""

    topic: str
    versions: tuple[Schema, ...]

    @property
    def current(self) -> Schema:
        """The schema that is written."""
        return self.versions[-1]


class SchemaIds(NamedTuple):
    """What a registry knows of some records.

    ``headers`` has the plain headers by Confluent's; ``frames`` has, by topic and plain header, Confluent's header of the records that are
    sent with it.
    """

    headers: Mapping[bytes, bytes]
    frames: Mapping[tuple[str, bytes], bytes]


NO_IDS: Final = SchemaIds({}, {})


def records_of(codec: Codec) -> list[RecordSchemas]:
    """Return the records of a codec's protocols, and those that all protocols share."""
    return _records(codec.by_header.values(), {name: codec.topic_of(each) for name, each in codec.schemas.items()})


def records_of_job(codec: Codec, job: Job) -> list[RecordSchemas]:
    """Return the records of lanes and those of a plugin's job."""
    forms = {topic: form.format for topic, form in job.forms.items()}
    own = [RecordSchemas(topic, each.schemas.versions[each.schema.name]) for topic, each in forms.items()]
    return [*records_of(codec), *own]


def records_in(known: SchemaSet, topics: Mapping[str, str]) -> list[RecordSchemas]:
    """Return the records of a set; ``topics`` has the topic of a record whose schema names none."""
    named = {name: each.topic or topics.get(name) for name, each in known.current.items()}
    return _records((each for versions in known.versions.values() for each in versions), named)


def _records(versions: Iterable[Schema], topics: Mapping[str, str | None]) -> list[RecordSchemas]:
    by_name: dict[str, list[Schema]] = {}
    for each in versions:
        by_name.setdefault(each.name, []).append(each)
    return [
        RecordSchemas(topic, tuple(sorted(by_name[name], key=lambda each: each.version)))
        for name, topic in topics.items()
        if topic is not None and topic not in INTERNAL_TOPICS
    ]


def subject_of(config: Config, record: RecordSchemas) -> str:
    name = record.current.name
    return name if config.schema_registry.subjects == "record" else f"{config.topics.prefix}{record.topic}-{name}"


def schema_ids(
    config: Config, records: Iterable[RecordSchemas], on_progress: Callable[[int, int], None] = lambda _, __: None
) -> SchemaIds:
    """Return what the configured registry knows of some records; nothing if none is configured.

    ``on_progress`` gets, every `PROGRESS_S` seconds, for how many versions the registry has been asked, and of how many. Raises
    `Unavailable` if it does not answer, and `UserError`: it refuses, it has more than `VERSIONS_MAX` versions, an id is of two schemas,
    or a schema is missing that is to be written.
    """
    if config.schema_registry.url is None:
        return NO_IDS
    records = list(records)
    registry = Registry(config.kafka)
    by_subject: dict[str, dict[bytes, bytes]] = {}
    """By subject, Confluent's headers by the plain ones; of equal schemas the last version counts."""
    found: dict[int, tuple[bytes | None, str]] = {}
    """By id, the plain header of its schema, None if it is not one, and where it was found first."""
    for subject, version in _versions(registry, _every_subject(config, records), on_progress):
        place = f"subject {subject}, version {version.version}"
        plain = plain_header(version.text)
        first, first_place = found.setdefault(version.schema_id, (plain, place))
        if first != plain:
            raise UserError(
                f"schema registry {registry.url}: expected one schema for each id, found two for id {version.schema_id}: "
                f"{first_place} and {place}"
            )
        if plain is not None:
            by_subject.setdefault(subject, {})[plain] = id_header(version.schema_id)
    headers = {id_header(schema_id): plain for schema_id, (plain, _) in found.items() if plain is not None}
    return SchemaIds(headers, _frames(config, records, by_subject))


def _versions(
    registry: Registry, subjects: set[str], on_progress: Callable[[int, int], None]
) -> Iterable[tuple[str, RegisteredSchema]]:
    """Yield every version of subjects. Raises `UserError` before it asks for any, if there are too many."""
    places: list[tuple[str, int]] = []
    for subject in sorted(subjects.intersection(registry.subjects())):
        places += [(subject, number) for number in registry.numbers(subject)]
        if len(places) > VERSIONS_MAX:
            raise UserError(
                f"schema registry {registry.url}: expected at most {VERSIONS_MAX} versions, found more, up to subject {subject}"
            )
    said = time.monotonic()
    for asked, (subject, number) in enumerate(places):
        if time.monotonic() >= said + PROGRESS_S:
            said = time.monotonic()
            on_progress(asked, len(places))
        version = registry.version(subject, number)
        if version is not None:
            yield subject, version


def _every_subject(config: Config, records: Iterable[RecordSchemas]) -> set[str]:
    prefix = config.topics.prefix
    names = ((prefix + record.topic, record.current.name) for record in records)
    return {subject for topic, name in names for subject in (f"{topic}-value", f"{topic}-{name}", name)}


def _frames(
    config: Config, records: Iterable[RecordSchemas], by_subject: Mapping[str, Mapping[bytes, bytes]]
) -> dict[tuple[str, bytes], bytes]:
    if config.schema_registry.write == "plain":
        return {}
    frames: dict[tuple[str, bytes], bytes] = {}
    for record in records:
        if record.topic in PLAIN_TOPICS:
            continue
        subject, header = subject_of(config, record), record.current.header
        frame = by_subject.get(subject, {}).get(header)
        if frame is None:
            raise UserError(
                f"schema registry {config.schema_registry.url}: subject {subject} has no version that equals our schema of "
                f"{record.current.name}: run `validator schemas register`"
            )
        frames[record.topic, header] = frame
    return frames


class Registered(NamedTuple):
    """A schema in the registry.

    ``version`` is our own; ``is_new`` if it was not there before; ``compatibility`` is what the registry says of the subject, None if it
    does not say.
    """

    subject: str
    version: int
    schema_id: int
    is_new: bool
    compatibility: str | None


def register(config: Config, records: Iterable[RecordSchemas]) -> Iterable[Registered]:
    """Register every version of some records in their order, and yield what the registry has then.

    A subject that is new gets the compatibility of its record's versions, before the first of them: if that fails, the subject is still new
    to the next attempt. Raises `UserError`, `Unavailable`.
    """
    registry = Registry(config.kafka)
    for record in records:
        subject, level = subject_of(config, record), policy(record.current)
        numbers = registry.numbers(subject)
        if len(numbers) > VERSIONS_MAX:
            raise UserError(
                f"schema registry {registry.url}: subject {subject}: expected at most {VERSIONS_MAX} versions, found {len(numbers)}"
            )
        found = [each for number in numbers if (each := registry.version(subject, number)) is not None]
        there = {plain_header(version.text): version.schema_id for version in found}
        has_level = bool(numbers) or registry.set_compatibility(subject, level)
        says = registry.compatibility(subject) if has_level else None
        for schema in record.versions:
            schema_id = there.get(schema.header)
            is_new = schema_id is None
            if schema_id is None:
                schema_id = registry.register(subject, json.dumps(schema.source))
            if not has_level:  # some registries set it for subjects that have a version only
                registry.set_compatibility(subject, level)
                has_level, says = True, registry.compatibility(subject)
            yield Registered(subject, schema.version, schema_id, is_new, says)
