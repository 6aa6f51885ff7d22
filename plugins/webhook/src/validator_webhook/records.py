# SPDX-License-Identifier: Apache-2.0
"""What is kept on Kafka: a record about each subscription on the transport's own topic, and its position as a cursor."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

from validator.plugin.job_api import FOREVER, OwnTopic, RecordFormat, SchemaSet, Topic, TopicForm
from validator_webhook.limits import STATE_BYTES_MAX

SUBSCRIPTIONS: Final = "webhook.subscriptions"
TOPIC: Final = Topic(SUBSCRIPTIONS, None, "compact", FOREVER, "subscriptions to webhooks, and which of them are parked")
COLUMNS: Final = ("id", "state", "lane", "at", "reason")

ACTIVE: Final = "active"
PARKED: Final = "parked"
REMOVED: Final = "removed"

CURSOR_VERSION: Final = 1

Partition = tuple[str, int]
"""Topic without its prefix, and partition."""


@cache
def record_format() -> RecordFormat:
    """Return the format of the topic's records."""
    return RecordFormat(SchemaSet.read(files("validator_webhook") / "schemas"), "validator.webhook.Subscription")


def decode(value: bytes) -> dict[str, Any]:
    """Return a record of the topic. Raises `validator.plugin.job_api.RecordUnreadable`."""
    return record_format().decode(value)


@cache
def own_topics() -> tuple[OwnTopic, ...]:
    """Return the topics that exist for this transport."""
    return (OwnTopic(TOPIC, TopicForm(record_format(), _key, STATE_BYTES_MAX, COLUMNS), _line),)


def _key(value: bytes) -> bytes:
    return str(decode(value)["id"]).encode()


def _line(value: bytes) -> tuple[str, str]:
    found = decode(value)
    if found["state"] != PARKED:
        return found["lane"], f"webhook {found['id']}: {found['state']}"
    return found[
        "lane"
    ], f"PARKED: webhook {found['id']} since {time_of(found['since_ms'])} at {found['at']}: {found['reason']}"


def time_of(milliseconds: int) -> str:
    """Return a time as people read it."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Position(NamedTuple):
    """Where a subscription continues, and since when its attempts have failed."""

    next: dict[Partition, int]
    """By partition, the offset of the first record that may not have been delivered; a partition that is missing begins with its first."""
    failing_since_ms: int | None = None

    def encode(self) -> bytes:
        """Return the cursor."""
        places = [[*place, offset] for place, offset in sorted(self.next.items())]
        return json.dumps(
            {"version": CURSOR_VERSION, "next": places, "failing_since_ms": self.failing_since_ms}
        ).encode()


def decode_position(name: str, cursor: bytes) -> Position:
    """Return a position that was kept. Raises ``ValueError`` for one of a later version."""
    found: Mapping[str, Any] = json.loads(cursor)
    if found["version"] != CURSOR_VERSION:
        raise ValueError(
            f"cursor of {name}: expected version {CURSOR_VERSION}, found {found['version']}: a later version wrote it"
        )
    places = {(topic, partition): offset for topic, partition, offset in found["next"]}
    return Position(places, found["failing_since_ms"])
