# SPDX-License-Identifier: Apache-2.0
"""A checkpoint belongs to topics of certain ids: what is compared, what is kept, and what a Kafka without ids changes; without Kafka."""

from __future__ import annotations

import json
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from validator.checkpoint import kafka as module
from validator.checkpoint.kafka import FILE, SecondLook, checked_ids, keep_ids
from validator.errors import Unavailable, UserError
from validator.kafka import retry, topics
from validator.kafka.topics import NO_ID, topic_ids

KAFKA: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1"}
SURE = SecondLook(KAFKA, 0, brokers=lambda _: [])


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    (tmp_path / "checkpoint" / "offsets" / "0").touch()
    return tmp_path / "checkpoint"


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the ids that Kafka names, to be changed by the test."""
    named: dict[str, str] = {}
    monkeypatch.setattr(module, "topic_ids", lambda _, topics: {each: named[each] for each in topics if each in named})
    return named


def test_other_id_is_refused_and_what_is_unknown_is_not_compared(found: dict[str, str], checkpoint: Path) -> None:
    def check(*names: str) -> dict[str, str]:
        return checked_ids(KAFKA, "p.", names, checkpoint, SURE)

    found |= {"p.a": "1", "p.b": "2"}
    keep_ids(checkpoint, check("a"))
    assert check("a", "b") == {"p.a": "1", "p.b": "2"}, "a later version reads more topics"
    keep_ids(checkpoint, check("a", "b"))
    del found["p.a"]
    assert check("a", "b") == {"p.a": "1", "p.b": "2"}, "what Kafka does not say at present stays known"
    found["p.a"] = "3"
    with pytest.raises(
        UserError,
        match=r"^p\.a has id 3, but .*/checkpoint has read the one with id 1 \(seen twice, 0 s apart\): it is another topic",
    ):
        check("a", "b")
    assert check("b") == {"p.a": "1", "p.b": "2"}
    (checkpoint / "offsets" / "0").unlink()
    assert check("a", "b") == {"p.a": "3", "p.b": "2"}, "without a checkpoint any topics are right"


def test_file_is_written_privately_and_only_if_there_is_something_to_say(checkpoint: Path) -> None:
    path = checkpoint.with_name(FILE)
    keep_ids(checkpoint, {})
    assert not path.exists()
    keep_ids(checkpoint, {"p.a": "1"})
    assert path.stat().st_mode & 0o777 == 0o600
    keep_ids(checkpoint, {})
    assert json.loads(path.read_text())["ids"] == {}, "no ids of another checkpoint"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "expected ids of topics: "),
        ("[]", "expected ids of topics: "),
        ('{"version": 1, "ids": []}', "expected ids of topics: "),
        (
            '{"version": 2}',
            "expected version 1, found 2: a newer version of validator has written it: continue with that one, or ",
        ),
    ],
)
def test_damaged_or_newer_file_is_refused(found: dict[str, str], checkpoint: Path, text: str, words: str) -> None:
    path = checkpoint.with_name(FILE)
    path.write_text(text)
    with pytest.raises(UserError) as refused:
        checked_ids(KAFKA, "p.", ["a"], checkpoint, SURE)
    assert str(refused.value).startswith(f"{path}: {words}")
    assert found == {}


def described(*answers: object) -> Any:
    """Return a class of admin clients whose topics a, b and so on are described so; an error is raised."""

    def describe_topics(asked: Any, request_timeout: float) -> dict[str, Future[Any]]:
        futures: dict[str, Future[Any]] = {}
        for name, found in zip("abc", answers, strict=False):
            future = futures[name] = Future()
            if isinstance(found, int):
                future.set_exception(KafkaException(KafkaError(found)))
            else:
                future.set_result(SimpleNamespace(topic_id=found))
        return futures

    return lambda _: SimpleNamespace(describe_topics=describe_topics)


def test_topics_without_an_id_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a Kafka older than 2.8, or one that refuses to describe a topic or does not have it."""
    monkeypatch.setattr(topics, "AdminClient", described("id of a", NO_ID, KafkaError.TOPIC_AUTHORIZATION_FAILED))
    assert topic_ids(KAFKA, ["a", "b", "c"]) == {"a": "id of a"}
    monkeypatch.setattr(
        topics, "AdminClient", described(KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNSUPPORTED_FEATURE)
    )
    assert topic_ids(KAFKA, ["a", "b"]) == {}


def test_kafka_that_is_away_is_no_kafka_without_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "AdminClient", described(KafkaError._ALL_BROKERS_DOWN))
    monkeypatch.setattr(retry, "ANSWER_S_MAX", 0.0)
    with pytest.raises(Unavailable):
        topic_ids(KAFKA, ["a"])
