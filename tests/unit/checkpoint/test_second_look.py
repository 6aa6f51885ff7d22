# SPDX-License-Identifier: Apache-2.0
"""Messages that advise to remove something, against a Kafka that answers each wrong thing once, and one that has lost what it says."""

from __future__ import annotations

import json
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, KafkaError, TopicPartition
from validator_simulators import SimulationSettings

from streaming.lane_operator import read_held_inputs
from tests.clock import Clock
from tests.unit.lanes.chains import chain, config_of, definition_of
from validator.checkpoint.kafka import (
    JOB_S,
    Lack,
    NotSure,
    SecondLook,
    SeenTwice,
    checked_ids,
    cut_inputs,
    keep_ids,
    other_topics,
    refuse_lost_inputs,
    unread_inputs,
)
from validator.errors import GivenUp, Unavailable, UserError
from validator.kafka import reader, retry, topics
from validator.lanes.parked import Span
from validator.topics import INPUT_TOPICS
from validator.waiting import Patience, Pause, wait_out

if TYPE_CHECKING:
    from collections.abc import Callable

CHAIN: Final = chain(SimulationSettings(seed=3, blocks=2, candidates_per_block=1))
KAFKA: Final[dict[str, object]] = {"bootstrap.servers": "b1:9092,b2:9092"}
PREFIX: Final = "p."
NAMES: Final = [PREFIX + name for name in INPUT_TOPICS]
CONSUMED: Final = 5
ADVICE: Final = ("remove", "import", "rebuild")


class Kafka:
    """Two brokers and the input topics, of one partition each. ``lies`` are given once each, instead of an answer of their kind."""

    def __init__(self) -> None:
        self.spans = dict.fromkeys(NAMES, (0, 9))
        self.ids = {name: f"id of {name}" for name in NAMES}
        self.lies: dict[str, list[Any]] = {"first": [], "end": [], "id": [], "topic": []}
        self.broker: dict[str, dict[str, Any]] = {}
        """By address, what this broker answers instead."""
        self.asked: list[str] = []
        """The addresses of all clients."""

    def client(self, config: dict[str, Any]) -> Client:
        self.asked.append(config["bootstrap.servers"])
        return Client(self, config["bootstrap.servers"])

    def said(self, kind: str, truth: Any, address: str) -> Any:
        own = self.broker.get(address, {})
        return self.lies[kind].pop(0) if self.lies[kind] else own.get(kind, truth)


class Client:
    """A consumer and an admin client."""

    def __init__(self, kafka: Kafka, address: str) -> None:
        self._kafka, self._address = kafka, address
        self._ends: list[Any] = []

    def list_topics(self, topic: str = "", *, timeout: float) -> Any:
        unknown = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        found = {name: SimpleNamespace(error=None, partitions={0: None}) for name in self._kafka.spans}
        if topic:
            is_known = self._kafka.said("topic", topic in found, self._address)
            found = {topic: SimpleNamespace(error=None if is_known else unknown, partitions={0: None})}
        brokers = {number: SimpleNamespace(host=f"b{number}", port=9092) for number in (1, 2)}
        return SimpleNamespace(topics=found, brokers=brokers)

    def offsets_for_times(self, places: list[TopicPartition], *, timeout: float) -> list[TopicPartition]:
        kind, side = ("first", 0) if places[0].offset == OFFSET_BEGINNING else ("end", 1)
        truth = {each.topic: self._kafka.spans[each.topic][side] for each in places}
        lie = self._kafka.said(kind, None, self._address)
        return [TopicPartition(each.topic, 0, truth[each.topic] if lie is None else lie) for each in places]

    def describe_topics(self, asked: Any, *, request_timeout: float) -> dict[str, Future[Any]]:
        lie = self._kafka.said("id", None, self._address)
        futures: dict[str, Future[Any]] = {name: Future() for name in NAMES}
        for name, future in futures.items():
            future.set_result(SimpleNamespace(topic_id=self._kafka.ids[name] if lie is None else lie))
        return futures

    def assign(self, places: list[TopicPartition]) -> None:
        ended = KafkaError(KafkaError._PARTITION_EOF)
        self._ends = [
            SimpleNamespace(
                error=lambda: ended,
                topic=lambda each=each: each.topic,
                partition=lambda: 0,
                offset=lambda each=each: self._kafka.spans[each.topic][1],
            )
            for each in places
        ]

    def poll(self, _: float) -> Any:
        return self._ends.pop() if self._ends else None

    def consume(self, *_: object) -> list[Any]:
        return []

    def close(self) -> None: ...


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(retry, "time", made)
    return made


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Kafka:
    made = Kafka()
    for module in (reader, topics):
        for name in ("Consumer", "AdminClient"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, made.client)
    return made


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint that has consumed five records of each topic, and knows their ids."""
    path = tmp_path / "checkpoint"
    for folder in ("offsets", "commits"):
        (path / folder).mkdir(parents=True)
        consumed = json.dumps({name: {"0": CONSUMED} for name in NAMES})
        (path / folder / "0").write_text(f"v1\n{{}}\n{consumed}")
    keep_ids(path, {name: f"id of {name}" for name in NAMES})
    return path


Looks = dict[str, "Callable[[SecondLook], object]"]


@pytest.fixture
def looks(checkpoint: Path) -> Looks:
    """By name, each look of the job at Kafka after which it may say to remove something."""
    config = config_of(CHAIN, kafka=KAFKA, topics={"prefix": PREFIX})
    definitions = {CHAIN.lane: definition_of(CHAIN)}
    return {
        "unread": lambda second: refuse_lost_inputs(second, checkpoint),
        "ends": lambda second: second.refuse("ends", partial(other_topics, config, checkpoint)),
        "first": lambda second: second.refuse("first", partial(cut_inputs, config, definitions)),
        "ids": lambda second: checked_ids(KAFKA, PREFIX, INPUT_TOPICS, checkpoint, second),
    }


def waited(look: Callable[[SecondLook], object], clock: Clock) -> list[str]:
    """Look until it is over, as a job does, and return what it says while it waits."""
    second, said = SecondLook(KAFKA, clock=clock, sleep=clock.sleep), list[str]()

    def say(pause: Pause) -> None:
        said.append(pause.reason)

    wait_out(lambda: look(second), Patience(3_600, clock, clock.sleep), say)
    return said


LIES: Final[list[tuple[str, str, Any]]] = [
    *((name, kind, OFFSET_INVALID) for name in ("unread", "ends", "first") for kind in ("first", "end")),
    *((name, kind, OFFSET_END) for name in ("unread", "ends", "first") for kind in ("first", "end")),
    ("unread", "end", CONSUMED - 1),
    ("ends", "end", CONSUMED - 1),
    ("unread", "first", CONSUMED + 1),
    ("first", "first", CONSUMED + 1),
    ("ids", "id", "another"),
    *((name, "topic", False) for name in ("unread", "ends", "first")),
]


@pytest.mark.parametrize(("name", "kind", "lie"), LIES)
def test_wrong_answer_leads_to_no_advice(
    kafka: Kafka, looks: Looks, clock: Clock, name: str, kind: str, lie: Any
) -> None:
    kafka.lies[kind] = [lie]
    said = waited(looks[name], clock)
    assert kafka.lies[kind] == []
    assert not [line for line in said for word in ADVICE if word in line]
    assert len(said) <= 1
    assert all("this may pass, and is looked at again 120 s after it was first seen" in line for line in said)


def truth(kafka: Kafka, name: str) -> None:
    """Let Kafka have lost what a look is for."""
    if name == "ids":
        kafka.ids["p.candidates"] = "another"
    elif name == "ends":
        kafka.spans["p.candidates"] = (0, CONSUMED - 1)
    else:
        kafka.spans["p.blocks"] = (CONSUMED + 1, 9)


ADVISED: Final = {
    "unread": "retention removed them before the job read them, or their topic was created again: remove the checkpoint and import ",
    "ends": "if the topics were created again, remove the checkpoint",
    "first": "import the state after a later block",
    "ids": "if the topics were created again, remove the checkpoint; ",
}


@pytest.mark.parametrize("name", ADVISED)
def test_fact_that_is_seen_twice_and_by_all_brokers_is_said(
    kafka: Kafka, looks: Looks, clock: Clock, name: str
) -> None:
    truth(kafka, name)
    with pytest.raises((SeenTwice, GivenUp)) as refused:
        waited(looks[name], clock)
    line = str(refused.value)
    assert ADVISED[name] in line
    assert " (seen twice, 120 s apart): " in line
    assert "\n" not in line
    assert JOB_S <= clock.now_s < 2 * JOB_S
    assert {"b1:9092", "b2:9092"} <= set(kafka.asked)


@pytest.mark.parametrize(("name", "answer"), [("unread", {"first": 0}), ("ends", {"end": 9}), ("first", {"first": 0})])
def test_broker_that_sees_something_else_is_asked_again(
    kafka: Kafka, looks: Looks, clock: Clock, name: str, answer: dict[str, Any]
) -> None:
    truth(kafka, name)
    kafka.broker["b2:9092"] = answer
    second = SecondLook(KAFKA, 0, clock=clock)
    for _ in range(3):
        with pytest.raises(NotSure, match=r", but not for the broker b2:9092: they are asked again$"):
            looks[name](second)


def test_fact_that_was_not_seen_in_between_begins_anew(clock: Clock) -> None:
    second, lack = SecondLook(KAFKA, 60, clock=clock, brokers=lambda _: []), Lack("it is gone", "remove it")
    for found in (lack, None, lack):
        clock.now_s += 100
        if found is None:
            second.refuse("x", lambda _: None)
            continue
        with pytest.raises(NotSure):
            second.refuse("x", lambda _: lack)
    with pytest.raises(NotSure):
        second.refuse("y", lambda _: lack)
    clock.now_s += 60
    with pytest.raises(SeenTwice, match=r"^it is gone \(seen twice, 60 s apart\): remove it$"):
        second.refuse("x", lambda _: lack)


def test_kafka_that_is_away_is_no_sighting(clock: Clock) -> None:
    second = SecondLook(KAFKA, 60, clock=clock)

    def away(_: object) -> Lack | None:
        raise Unavailable("no Kafka answers")

    for _ in range(3):
        clock.now_s += 100
        with pytest.raises(Unavailable, match=r"^no Kafka answers$"):
            second.refuse("x", away)


def test_person_waits_between_the_looks(clock: Clock) -> None:
    second = SecondLook(KAFKA, 10, clock=clock, sleep=clock.sleep, brokers=lambda _: [])
    found = [Lack("it is gone", "remove it"), None]
    second.refuse_soon("x", lambda _: found.pop(0))
    assert clock.now_s == 10
    with pytest.raises(SeenTwice, match=r"^it is gone \(seen twice, 10 s apart\)$"):
        second.refuse_soon("x", lambda _: Lack("it is gone"))
    assert clock.now_s == 20


def test_time_between_looks_is_within_the_patience_of_the_job() -> None:
    for give_up_after, after_s in ((3_600, JOB_S), (40, 10), (0, 0)):
        config = config_of(CHAIN, kafka=KAFKA, job={"give_up_after": give_up_after})
        assert SecondLook.of_job(config)._after_s == after_s


def test_checkpoint_without_a_batch_has_nothing_to_lose(kafka: Kafka, checkpoint: Path) -> None:
    (checkpoint / "commits" / "0").unlink()
    kafka.spans = {}
    assert unread_inputs(checkpoint, KAFKA) is None
    assert kafka.asked == []


def test_lane_that_continues_looks_twice(kafka: Kafka, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.lane_operator.SecondLook", partial(SecondLook, clock=clock, sleep=clock.sleep))
    held_inputs = partial(read_held_inputs, KAFKA, PREFIX, {CHAIN.lane: definition_of(CHAIN)})
    for kind, lie in (("first", 3), ("end", 3), ("first", OFFSET_INVALID)):
        kafka.lies[kind] = [lie]
        assert held_inputs(CHAIN.lane, ("p.blocks", 0), Span(2, 9), 10**6) == ([], 9)
    assert held_inputs(CHAIN.lane, ("blocks", 0), Span(2, 9), 10**6) == ([], 9), "an order may leave the prefix out"
    kafka.spans["p.blocks"] = (5, 9)
    with pytest.raises(
        Exception, match=r"^retention removed the held inputs of p\.blocks\[0\] from 2 to 4 \(seen twice, 10 s apart\)$"
    ):
        held_inputs(CHAIN.lane, ("p.blocks", 0), Span(2, 9), 10**6)


def test_topic_that_is_gone_is_a_loss(kafka: Kafka, looks: Looks, clock: Clock) -> None:
    kafka.broker = {address: {"topic": False} for address in (str(KAFKA["bootstrap.servers"]), "b1:9092", "b2:9092")}
    with pytest.raises(UserError, match=r"does not exist at .*\(seen twice, 120 s apart\): .*: remove the checkpoint"):
        waited(looks["unread"], clock)
