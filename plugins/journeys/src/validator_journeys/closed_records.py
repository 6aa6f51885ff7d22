# SPDX-License-Identifier: Apache-2.0
"""The records of `journeys` as legs, and closed journeys as records of the topic `journeys-closed`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from validator.plugin.job_api import OutputRecord, RecordFormat, TopicForm
from validator_journeys.closing import FORWARDING, LEGS_MAX, Closed, Leg
from validator_journeys.content import sets_topic
from validator_journeys.parts import own_schemas

JOURNEYS_CLOSED: Final = "journeys-closed"

RECORD_BYTES_MAX: Final = 1024 * LEGS_MAX
"""Maximum bytes of a record of `journeys-closed`."""

_TOPIC: Final = re.compile(r"[0-9a-f]{64}")


@cache
def closed_format() -> RecordFormat:
    """Return the format of the topic's records."""
    return RecordFormat(own_schemas(), "validator.journeys.ClosedJourney")


def forms() -> dict[str, TopicForm]:
    """Return the forms of the job's topics."""
    columns = ("id", "status", "reason", "blocks")
    return {JOURNEYS_CLOSED: TopicForm(closed_format(), key_of, RECORD_BYTES_MAX, columns)}


def key_of(value: bytes) -> bytes:
    """Return the key of a record of `journeys-closed`. Raises ``ValueError``."""
    found: str = closed_format().decode(value)["id"]
    if not _TOPIC.fullmatch(found):
        raise ValueError(f"id: expected 64 lower-case hexadecimal digits, found {found[:80]!r}")
    return found.encode()


def legs_of(record: Mapping[str, Any]) -> list[tuple[str, Leg]]:
    """Return the journeys that a record of `journeys` is part of, by topic, each with the message as a leg."""
    payload = record["payload"]
    if payload is None:
        return []
    names = {}
    for xcm in payload["messages"]:
        if sets_topic(xcm["id"], xcm["instructions"]):
            names[xcm["id"].hex()] = not FORWARDING.isdisjoint(xcm["instructions"])
    blocks = {leg["step"] == "queued": leg["block"] for leg in record["legs"]}
    detail = record["legs"][-1]["detail"]
    ends = record["id"], record["lane"], record["sender"], record["recipient"]
    return [
        (topic, Leg(*ends, record["status"], detail, blocks.get(True), blocks.get(False), forwards))
        for topic, forwards in names.items()
    ]


def encode_closed(found: Closed) -> OutputRecord:
    """Return the record of a closed journey."""
    lanes = {leg.lane for leg in found.legs}
    datum = {
        "id": found.topic,
        "status": str(found.close),
        "reason": found.reason,
        "blocks": max(leg.last_at for leg in found.legs) - found.legs[0].began_at if len(lanes) == 1 else None,
        "legs": [{name: value for name, value in leg._asdict().items() if name != "forwards"} for leg in found.legs],
        "legs_left_out": found.legs_left_out,
    }
    return OutputRecord(JOURNEYS_CLOSED, found.topic.encode(), closed_format().encode(datum))
