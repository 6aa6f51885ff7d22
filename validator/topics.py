# SPDX-License-Identifier: Apache-2.0
"""The Kafka topics of the product, in one table.

The schemas say which records a topic carries: each has an attribute ``topic`` (`codec.schemas`). Candidates and channel requests are
records of protocols, which name the topic themselves (`codec.record_types.RecordType`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from validator.core.inputs import RecordKind

MINUTE_MS: Final = 60 * 1000
DAY_MS: Final = 24 * 60 * MINUTE_MS
FOREVER: Final = -1


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic; ``name`` is without the prefix.

    ``kind`` is the kind of its records if it is an input, None if it is an output. Keys are the lane's name; on compacted topics they name
    the subject of the record: `lane/para`, `lane/sender/recipient`, `lane`. A topic whose cleanup has ``delete`` keeps its records for
    ``retention_ms``. ``segment_ms`` and ``dirty_ratio`` are for compacted topics: a reader wants the latest record of each key, so the
    fewer old ones before it the better.
    """

    name: str
    kind: RecordKind | None
    cleanup: Literal["delete", "compact", "compact,delete"]
    retention_ms: int
    purpose: str
    segment_ms: int = DAY_MS
    dirty_ratio: str = "0.1"

    @property
    def direction(self) -> Literal["in", "out"]:
        """Whether the job reads the topic or writes it."""
        return "out" if self.kind is None else "in"


# Inputs and per-candidate outputs are kept for a week, Kafka's default; what people look up later, for a month; receipts
# forever, since they are small and two deployments compare them.
# The job reads all its markers at every start, and writes one per lane and batch, so they are compacted quickly.
TOPICS: Final[tuple[Topic, ...]] = (
    Topic("blocks", RecordKind.BLOCK, "delete", 7 * DAY_MS, "what belongs to each block"),
    Topic("candidates", RecordKind.CANDIDATE, "delete", 7 * DAY_MS, "backed candidates with their messages"),
    Topic("channel-requests", RecordKind.REQUEST, "delete", 7 * DAY_MS, "calls that open, accept and close channels"),
    Topic("downward-messages", RecordKind.DOWNWARD, "delete", 7 * DAY_MS, "messages of the relay chain to paras"),
    Topic("verdicts", None, "delete", 7 * DAY_MS, "accepted or rejected, and why"),
    Topic("dispatches", None, "delete", 7 * DAY_MS, "results of upward messages"),
    Topic("channel-events", None, "delete", 30 * DAY_MS, "channels opened, closed, expired, dropped; deposits"),
    Topic("ingress-events", None, "delete", 30 * DAY_MS, "logical messages queued, acknowledged, removed"),
    Topic("headroom", None, "compact", FOREVER, "places and bytes left for each para and channel"),
    Topic("receipts", None, "delete", FOREVER, "one for each executed block"),
    Topic("dead-letters", None, "delete", 30 * DAY_MS, "raw records that no block can take, and why"),
    Topic("lanes", None, "compact", FOREVER, "status of each lane and what it waits for"),
    Topic(
        "markers", None, "compact", FOREVER, "how far each lane's output is committed; for the job only",
        segment_ms=10 * MINUTE_MS, dirty_ratio="0.01",
    ),
    Topic("dead-letter-replays", None, "compact", FOREVER, "which dead letters were put back, and where"),
)  # fmt: skip

LANES: Final = "lanes"

INPUT_TOPICS: Final[dict[str, RecordKind]] = {
    topic.name: topic.kind
    for topic in sorted(TOPICS, key=lambda topic: -1 if topic.kind is None else topic.kind)
    if topic.kind is not None
}
"""The record kind of each input topic, in the order in which a block applies the kinds."""

TOPIC_OF_KIND: Final[dict[RecordKind, str]] = {kind: topic for topic, kind in INPUT_TOPICS.items()}

CURSORS: Final = "cursors"
CURSORS_TOPIC: Final = Topic(
    CURSORS, None, "compact", FOREVER, "how far each transport has written its records; for transports only",
    segment_ms=10 * MINUTE_MS, dirty_ratio="0.01",
)  # fmt: skip
"""Made when the first transport starts that has cursors: the lanes know nothing of it."""

METRICS: Final = "metrics"
METRICS_TOPIC: Final = Topic(
    METRICS, None, "compact", FOREVER, "reports of lanes and transports; for endpoints of metrics only",
    segment_ms=10 * MINUTE_MS, dirty_ratio="0.01",
)  # fmt: skip
"""Made when the first process starts that has `[metrics]`, with one partition whatever the configuration says."""

DRY_RUN_REQUESTS: Final = "dry-run-requests"
DRY_RUN_ANSWERS: Final = "dry-run-answers"
DRY_RUN_TOPICS: Final = (
    Topic(DRY_RUN_REQUESTS, None, "delete", DAY_MS, "what a lane would say to a record now: questions"),
    Topic(
        DRY_RUN_ANSWERS, None, "delete", DAY_MS, "what a lane would say to a record now: one answer for each question"
    ),
)
"""Made when the transport `dry-run` first starts. Keys are the lane of a question, the correlation of an answer."""

OUTPUT_TOPICS: Final[tuple[str, ...]] = tuple(topic.name for topic in TOPICS if topic.kind is None)

MARKERS: Final = "markers"
RECEIPTS: Final = "receipts"
DEAD_LETTERS: Final = "dead-letters"
DEAD_LETTER_REPLAYS: Final = "dead-letter-replays"
