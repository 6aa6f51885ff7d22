# SPDX-License-Identifier: Apache-2.0
"""Offsets are found also where a leader's epoch has changed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from validator.kafka.retry import offsets_of

PLACE = TopicPartition("t.blocks", 0)


class StaleAdmin:
    """As librdkafka 2.12 does, keeps the epoch that it knows until metadata are read again."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def list_topics(self, *, timeout: float) -> None:
        assert timeout > 0
        self.calls.append("list_topics")

    def list_offsets(self, asked: dict[TopicPartition, object], **_: object) -> dict[TopicPartition, Any]:
        self.calls.append("list_offsets")

        def outcome() -> Any:
            if "list_topics" not in self.calls:
                raise KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH))
            return SimpleNamespace(offset=5)

        return {place: SimpleNamespace(result=outcome) for place in asked}


def test_metadata_are_read_again_after_an_error() -> None:
    admin: Any = StaleAdmin()
    assert offsets_of(admin, {PLACE: OffsetSpec.latest()}) == {PLACE: 5}
    assert admin.calls == ["list_offsets", "list_topics", "list_offsets"]
    assert offsets_of(admin, {PLACE: OffsetSpec.latest()}) == {PLACE: 5}
    assert admin.calls[3:] == ["list_offsets"]


def test_nothing_is_asked_about_no_partitions() -> None:
    admin: Any = StaleAdmin()
    assert offsets_of(admin, {}) == {}
    assert admin.calls == []
