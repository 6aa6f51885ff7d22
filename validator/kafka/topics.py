# SPDX-License-Identifier: Apache-2.0
"""Creates and lists topics: those of `validator.topics`, or of a plugin's job."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from validator.errors import UserError
from validator.kafka.refusals import is_lacking, line_of, why
from validator.kafka.retry import ANSWER_S_MAX, answer, offsets_of, partition_numbers, passes, user_error
from validator.kafka.settings import DEAD_LETTER_BYTES_MAX, MESSAGE_BYTES_MAX, admin_config
from validator.tables import dotted
from validator.topics import DEAD_LETTERS, TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from confluent_kafka.admin import TopicDescription, TopicMetadata

    from validator.kafka.settings import KafkaTable
    from validator.topics import Topic

PREFIX: Final = "validator."

NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id that librdkafka has for a topic of a Kafka older than 2.8: zeros, in base64."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic's state in the cluster; `partitions` and `records` are None if it is missing.

    `records` counts offsets, including those of transaction markers and of records that compaction removed. A `hidden` topic may exist:
    the user lacks the right to see it.
    """

    name: str
    direction: str
    cleanup: str
    purpose: str
    partitions: int | None
    records: int | None
    hidden: bool = False


def topic_config(topic: Topic, retention_ms: int) -> dict[str, str]:
    """Return the topic-level options; ``retention_ms`` has no effect on a topic that is only compacted."""
    limit = DEAD_LETTER_BYTES_MAX if topic.name == DEAD_LETTERS else MESSAGE_BYTES_MAX
    kept = {
        "cleanup.policy": topic.cleanup,
        "max.message.bytes": str(limit),
        # a writer's clock matters neither to retention nor to whether the record is taken: from Kafka 4.0 on, the broker refuses records
        # from more than an hour ahead
        "message.timestamp.type": "LogAppendTime",
    }
    if "delete" in topic.cleanup:
        kept["retention.ms"] = str(retention_ms)
    if topic.cleanup == "delete":
        return kept
    return kept | {"min.cleanable.dirty.ratio": topic.dirty_ratio, "segment.ms": str(topic.segment_ms)}


def create_topics(
    kafka: KafkaTable,
    *,
    prefix: str = PREFIX,
    partitions: int = 1,
    output_partitions: int | None = None,
    replication_factor: int = -1,
    retention_ms: Mapping[str, int] | None = None,
    topics: Sequence[Topic] = TOPICS,
) -> dict[str, bool]:
    """Create the missing topics; return for each full name whether it was created now.

    One partition is enough for one relay chain, whose records all have one key; use as many as there are busy chains. By default, output
    topics have as many as input topics. A replication factor of -1 is the cluster's default. ``retention_ms``, by topic without the prefix,
    overrides the table's. Errors: `Unavailable` if no broker answers, `UserError` if it refuses.
    """
    with _admin(kafka) as admin:
        counts = {"in": partitions, "out": partitions if output_partitions is None else output_partitions}
        kept = retention_ms or {}
        wanted = [
            NewTopic(
                prefix + topic.name,
                counts[topic.direction],
                replication_factor,
                config=topic_config(topic, kept.get(topic.name, topic.retention_ms)),
            )
            for topic in topics
        ]
        existing = _existing(admin)
        missing = [topic for topic in wanted if topic.topic not in existing]
        created = {topic.topic: topic for topic in missing}
        if created:
            _create(admin, kafka, created)
            _wait_until_known(admin, created)
            _wait_until_led(admin, created.values())
        return {topic.topic: topic.topic in created for topic in wanted}


def _existing(admin: AdminClient) -> dict[str, TopicMetadata]:
    return answer(lambda left_s: admin.list_topics(timeout=left_s).topics)


def _create(admin: AdminClient, kafka: KafkaTable, topics: Mapping[str, NewTopic]) -> None:
    """Create topics. One that exists by now is fine: another client was faster, or an earlier attempt succeeded but its answer was lost."""
    left = dict(topics)

    def attempt(left_s: float) -> None:
        for name, future in admin.create_topics(list(left.values()), operation_timeout=left_s).items():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
            del left[name]

    try:
        answer(attempt)
    except KafkaException as error:
        name = next(iter(left))
        reason = why(error.args[0], kafka, f"Create on topic {name}")
        raise user_error(error.args[0], f"topic {name} could not be created: {reason}") from error


def _wait_until_known(admin: AdminClient, names: Iterable[str]) -> None:
    """Wait until the brokers know the topics that the controller has created, which takes a moment."""
    deadline = time.monotonic() + ANSWER_S_MAX
    waiting = set(names)
    while waiting:
        known = _existing(admin)
        waiting -= {name for name in waiting if name in known and _led(known[name])}
        if waiting and time.monotonic() >= deadline:
            raise UserError(
                f"topics were created, but the brokers do not know them after {ANSWER_S_MAX:.0f} s: {', '.join(sorted(waiting))}"
            )
        if waiting:
            time.sleep(0.05)


def _wait_until_led(admin: AdminClient, topics: Iterable[NewTopic]) -> None:
    """Wait until the leader of each partition answers for it: a broker is named as one before it takes records."""
    places = [TopicPartition(topic.topic, number) for topic in topics for number in range(topic.num_partitions)]
    offsets_of(admin, dict.fromkeys(places, OffsetSpec.latest()))


def _led(topic: TopicMetadata) -> bool:
    """Return whether every partition has a leader by name."""
    partitions = topic.partitions.values()
    return (
        topic.error is None and bool(partitions) and all(each.error is None and each.leader >= 0 for each in partitions)
    )


def list_topics(kafka: KafkaTable, *, prefix: str = PREFIX, topics: Sequence[Topic] = TOPICS) -> list[TopicState]:
    """Return the state of every topic, in their order."""
    with _admin(kafka) as admin:
        counts = answer(partial(_partitions, admin, prefix, topics))
        places = [
            (name, TopicPartition(prefix + name, number)) for name, numbers in counts.items() for number in numbers
        ]
        records = dict.fromkeys(counts, 0)
        latest, earliest = OffsetSpec.latest(), OffsetSpec.earliest()
        for spec, sign in ((latest, 1), (earliest, -1)):
            for place, offset in offsets_of(admin, {place: spec for _, place in places}).items():
                records[place.topic.removeprefix(prefix)] += sign * offset
        hidden = hidden_topics(kafka, [prefix + topic.name for topic in topics if topic.name not in counts])
    return [
        TopicState(
            name=prefix + topic.name,
            direction=topic.direction,
            cleanup=topic.cleanup,
            purpose=topic.purpose,
            partitions=len(counts[topic.name]) if topic.name in counts else None,
            records=records.get(topic.name),
            hidden=prefix + topic.name in hidden,
        )
        for topic in topics
    ]


def topic_settings(kafka: KafkaTable, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return, by full name, the settings that topics have in the cluster, without the topics whose settings the user may not see.

    Errors: `Unavailable` if no broker answers, `UserError` if it refuses.
    """
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]

    def ask(left_s: float) -> dict[str, dict[str, str]]:
        found = {}
        for resource, future in admin.describe_configs(resources, request_timeout=left_s).items():
            try:
                found[resource.name] = {entry.name: entry.value or "" for entry in future.result().values()}
            except KafkaException as error:
                if passes(error.args[0]):
                    raise
        return found

    with _admin(kafka) as admin:
        return answer(ask) if resources else {}


def _partitions(admin: AdminClient, prefix: str, topics: Sequence[Topic], left_s: float) -> dict[str, list[int]]:
    """Return the numbers of the partitions of those topics that exist."""
    existing = admin.list_topics(timeout=left_s).topics
    return {
        topic.name: partition_numbers(prefix + topic.name, existing[prefix + topic.name])
        for topic in topics
        if prefix + topic.name in existing
    }


def each_broker(kafka: KafkaTable) -> list[KafkaTable]:
    """Return, for each broker that the cluster has now, the table of a client that asks this one first.

    Raises `Unavailable` if no broker answers.
    """
    with _admin(kafka) as admin:
        found = answer(lambda left_s: admin.list_topics(timeout=left_s).brokers)
    places = [
        f"[{each.host}]:{each.port}" if ":" in each.host else f"{each.host}:{each.port}"
        for _, each in sorted(found.items())
    ]
    return [{**dotted(dict(kafka)), "bootstrap.servers": place} for place in places]


def topic_ids(kafka: KafkaTable, topics: Iterable[str]) -> dict[str, str]:
    """Return, by full name, the ids of topics, without those of which Kafka names none: it may be too old, refuse, or lack the topic.

    Raises `Unavailable` if no broker answers.
    """
    with _admin(kafka) as admin:
        return ids_of(admin, topics)


def ids_of(admin: AdminClient, topics: Iterable[str]) -> dict[str, str]:
    """Return what `topic_ids` does, by a client that is there. Raises `confluent_kafka.KafkaException`."""
    found = {name: id_of(topic) for name, topic in described(admin, topics).items()}
    return {name: topic_id for name, topic_id in found.items() if topic_id is not None}


def id_of(topic: TopicDescription) -> str | None:
    """Return a topic's id, None if Kafka names none."""
    found = str(topic.topic_id)
    return None if found == NO_ID else found


def described(
    admin: AdminClient, topics: Iterable[str], *, patience_s: float = ANSWER_S_MAX
) -> dict[str, TopicDescription]:
    """Return topics by full name, without those that Kafka does not describe. Raises `confluent_kafka.KafkaException`."""
    found = _described(admin, topics, patience_s)
    return {name: topic for name, topic in found.items() if not isinstance(topic, KafkaError)}


def hidden_topics(kafka: KafkaTable, topics: Iterable[str]) -> dict[str, KafkaError]:
    """Return, by full name, the topics that the user has no right to see, with Kafka's error: a list of all topics leaves them out.

    Raises `UserError`.
    """
    if not (names := list(topics)):
        return {}
    with _admin(kafka) as admin:
        found = _described(admin, names)
    return {name: error for name, error in found.items() if isinstance(error, KafkaError) and is_lacking(error)}


def _described(
    admin: AdminClient, topics: Iterable[str], patience_s: float = ANSWER_S_MAX
) -> dict[str, TopicDescription | KafkaError]:
    """Return how topics are described, or why one is not. Raises `confluent_kafka.KafkaException` for what passes."""
    names = list(topics)

    def ask(left_s: float) -> dict[str, TopicDescription | KafkaError]:
        futures = admin.describe_topics(TopicCollection(names), request_timeout=left_s)
        found: dict[str, TopicDescription | KafkaError] = {}
        for name, future in futures.items():
            try:
                found[name] = future.result()
            except KafkaException as error:
                if passes(error.args[0]):
                    raise
                found[name] = error.args[0]
        return found

    return answer(ask, patience_s=patience_s)


def wait_for_topics(
    kafka: KafkaTable, *, prefix: str = PREFIX, patience_s: float, topics: Sequence[Topic] = TOPICS
) -> None:
    """Return once every topic exists, so that a reader and a broker can be started together.

    Errors: `Unavailable` if no broker answers, `UserError` if a topic is still missing after ``patience_s``.
    """
    deadline = time.monotonic() + patience_s
    while True:
        states = [state for state in list_topics(kafka, prefix=prefix, topics=topics) if state.partitions is None]
        if not states:
            return
        if time.monotonic() >= deadline:
            hidden = [state.name for state in states if state.hidden]
            if hidden:
                error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
                raise UserError(why(error, kafka, f"Describe on topics {', '.join(hidden)}"))
            names = ", ".join(state.name for state in states)
            raise UserError(f"topics are missing ({names}): create them with `validator topics create`")
        time.sleep(0.2)


@contextmanager
def _admin(kafka: KafkaTable) -> Iterator[AdminClient]:
    """Translate librdkafka's exceptions, in one place."""
    config = admin_config(kafka)
    try:
        yield AdminClient(config)
    except KafkaException as error:
        reason = error.args[0]
        if reason.name() == "_INVALID_ARG":
            raise UserError(f"[kafka] is not accepted by the client: {line_of(reason)}") from error
        address, text = config["bootstrap.servers"], why(reason, kafka, "Describe on the topics")
        if is_lacking(reason):
            raise UserError(f"{address}: {text}") from error
        hint = "check bootstrap.servers, or start one with `validator broker start`"
        raise user_error(reason, f"no Kafka answers at {address} ({text}): {hint}") from error
