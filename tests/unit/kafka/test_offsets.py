# SPDX-License-Identifier: Apache-2.0
"""Offsets are found also where a leader's epoch has changed, and what is no offset is none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from validator.errors import Unavailable
from validator.kafka import retry, topics
from validator.kafka.retry import committed_of, offsets_of, partitions_of, spans_of, user_error
from validator.topics import TOPICS

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


NO_OFFSETS = [OFFSET_INVALID, OFFSET_BEGINNING, OFFSET_END, OFFSET_STORED]


class Answers:
    """An admin client and a consumer: each question about an offset takes the next answer, and the last one stays."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.calls: list[str] = []

    def _next(self) -> int:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def list_topics(self, topic: str = "", *, timeout: float) -> Any:
        self.calls.append("list_topics")
        known = [topic] if topic else [f"t.{each.name}" for each in TOPICS]
        return SimpleNamespace(topics={each: SimpleNamespace(error=None, partitions={0: None}) for each in known})

    def list_offsets(self, asked: dict[TopicPartition, object], **_: object) -> dict[TopicPartition, Any]:
        self.calls.append("list_offsets")
        return {place: SimpleNamespace(result=lambda: SimpleNamespace(offset=self._next())) for place in asked}

    def offsets_for_times(self, places: list[TopicPartition], *, timeout: float) -> list[Any]:
        self.calls.append("offsets_for_times")
        return [TopicPartition(each.topic, each.partition, self._next()) for each in places]

    def committed(self, places: list[TopicPartition], *, timeout: float) -> list[Any]:
        self.calls.append("committed")
        return [TopicPartition(each.topic, each.partition, self._next()) for each in places]


@pytest.mark.parametrize("wrong", NO_OFFSETS)
def test_answer_that_is_no_offset_is_asked_again_with_new_metadata(wrong: int) -> None:
    admin: Any = Answers(wrong, wrong, 7)
    assert offsets_of(admin, {PLACE: OffsetSpec.latest()}) == {PLACE: 7}
    assert admin.calls == ["list_offsets", *["list_topics", "list_offsets"] * 2]
    consumer: Any = Answers(wrong, 2, wrong, 2, 7)
    assert spans_of(consumer, [("t.blocks", 0)]) == {("t.blocks", 0): (2, 7)}
    assert consumer.calls.count("list_topics") == 2


@pytest.mark.parametrize("wrong", NO_OFFSETS)
def test_answer_that_stays_none_is_unavailable_and_names_its_place(monkeypatch: pytest.MonkeyPatch, wrong: int) -> None:
    monkeypatch.setattr(retry, "RETRY_S", 0.01)
    for ask in (offsets_of, spans_of):
        client: Any = Answers(wrong)
        asked: Any = {PLACE: OffsetSpec.latest()} if ask is offsets_of else [("t.blocks", 0)]
        with pytest.raises(KafkaException) as caught:
            ask(client, asked, patience_s=0.05)
        error = caught.value.args[0]
        assert isinstance(user_error(error, error.str()), Unavailable)
        assert error.str().startswith(f"no offset of t.blocks[0] is known yet, found {wrong}; ")


def test_group_that_has_committed_nothing_is_told_from_an_answer_that_is_none() -> None:
    consumer: Any = Answers(OFFSET_INVALID)
    assert [each.offset for each in committed_of(consumer, [PLACE])] == [OFFSET_INVALID]
    consumer = Answers(OFFSET_END, OFFSET_BEGINNING, 0)
    assert [each.offset for each in committed_of(consumer, [PLACE])] == [0]
    assert consumer.calls == ["committed"] * 3


def test_topics_are_not_listed_with_less_than_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Answers(OFFSET_INVALID, 9, OFFSET_INVALID, 4)
    monkeypatch.setattr(topics, "AdminClient", lambda _: client)
    assert [
        each.records for each in topics.list_topics({"bootstrap.servers": "x:1"}, prefix="t.", topics=TOPICS[:1])
    ] == [5]


def test_topic_whose_partitions_are_not_known_yet_is_asked_about_again() -> None:
    class Late(Answers):
        def list_topics(self, topic: str = "", *, timeout: float) -> Any:
            found = super().list_topics(topic, timeout=timeout)
            if len(self.calls) < 3:
                found.topics[topic].partitions.clear()
            return found

    client = Late(0)
    assert partitions_of(client, "t.blocks") == [0]
    assert len(client.calls) == 3
