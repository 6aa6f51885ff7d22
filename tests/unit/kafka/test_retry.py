# SPDX-License-Identifier: Apache-2.0
"""Questions to Kafka are repeated while their error is one that passes, and not for ever."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from streaming import markers
from validator.errors import UserError
from validator.kafka import reader, retry, topics
from validator.kafka.retry import answer, await_broker, missing_topics, partitions_of
from validator.service import replayer, sender, transport, verification

KAFKA: dict[str, object] = {"bootstrap.servers": "127.0.0.1:1"}
PASSING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TRANSPORT,
)
UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION)


class Clock:
    """Seconds that pass only while somebody sleeps or asks."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(retry, "time", made)
    return made


class Failing:
    """Fails so many times with an error, then answers; a call takes ``call_s``."""

    def __init__(self, clock: Clock, code: int, times: float, result: object = 7, call_s: float = 0.0) -> None:
        self.clock, self.code, self.times, self.result, self.call_s = clock, code, times, result, call_s
        self.asked: list[float] = []

    def __call__(self, left_s: float) -> Any:
        self.asked.append(left_s)
        self.clock.sleep(self.call_s)
        if len(self.asked) <= self.times:
            raise KafkaException(KafkaError(self.code))
        return self.result


@pytest.mark.parametrize("code", [*PASSING, *UNKNOWN])
def test_an_error_that_passes_is_asked_again(clock: Clock, code: int) -> None:
    question = Failing(clock, code, times=5)
    assert answer(question) == 7
    assert len(question.asked) == 6
    assert question.asked[0] == retry.ANSWER_S_MAX
    assert question.asked[-1] == pytest.approx(retry.ANSWER_S_MAX - 5 * retry.RETRY_S)


@pytest.mark.parametrize("code", PASSING)
def test_an_error_that_stays_is_raised_at_the_deadline(clock: Clock, code: int) -> None:
    question = Failing(clock, code, times=float("inf"))
    with pytest.raises(KafkaException) as caught:
        answer(question, patience_s=3.0)
    error = caught.value.args[0]
    assert error.code() == code
    assert error.str() == f"{KafkaError(code).str()}; {len(question.asked)} attempts in 3 s"
    assert 102.8 < clock.now <= 103.0
    assert all(left > 0 for left in question.asked)


@pytest.mark.parametrize("code", UNKNOWN)
def test_an_unknown_topic_has_little_time_to_appear(clock: Clock, code: int) -> None:
    with pytest.raises(KafkaException):
        answer(Failing(clock, code, times=float("inf")))
    assert clock.now - 100 <= retry.APPEAR_S_MAX


@pytest.mark.parametrize(
    "code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._AUTHENTICATION, KafkaError.GROUP_AUTHORIZATION_FAILED]
)
def test_an_error_that_does_not_pass_is_raised_at_once(clock: Clock, code: int) -> None:
    question = Failing(clock, code, times=1)
    with pytest.raises(KafkaException) as caught:
        answer(question)
    assert (len(question.asked), caught.value.args[0].str()) == (1, KafkaError(code).str())


def test_a_call_that_took_all_the_time_keeps_its_words(clock: Clock) -> None:
    question = Failing(clock, KafkaError._TRANSPORT, times=1, call_s=retry.ANSWER_S_MAX)
    with pytest.raises(KafkaException) as caught:
        answer(question)
    assert caught.value.args[0].str() == KafkaError(KafkaError._TRANSPORT).str()


def test_a_fatal_error_is_raised_at_once() -> None:
    error = KafkaError(KafkaError._TIMED_OUT, "fenced", fatal=True)
    assert not retry.passes(error)


# --- who asks ---


class Broker:
    """What the clients of librdkafka answer about a topic of one partition; the first answers to each call are an error."""

    def __init__(self, code: int, times: float) -> None:
        self.code = code
        self.times = times
        self.calls: dict[str, int] = {}
        self.messages: list[Any] = []

    def fail(self, call: str) -> KafkaError | None:
        self.calls[call] = self.calls.get(call, 0) + 1
        return KafkaError(self.code) if self.calls[call] <= self.times else None

    def ask(self, call: str) -> None:
        if (error := self.fail(call)) is not None:
            raise KafkaException(error)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        self.ask("list_topics")
        partition = SimpleNamespace(error=None, leader=1)
        known = ["t.verdicts", "t.markers", *(f"t.{each.name}" for each in topics.TOPICS)]
        wanted = known if topic is None else [topic]
        return SimpleNamespace(topics={name: SimpleNamespace(error=None, partitions={0: partition}) for name in wanted})

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        self.ask("get_watermark_offsets")
        return 2, 9

    def committed(self, places: list[TopicPartition], timeout: float) -> list[Any]:
        error = self.fail("committed")  # an error of a place stands in the answer
        return [SimpleNamespace(topic=each.topic, partition=each.partition, offset=4, error=error) for each in places]

    def commit(self, offsets: list[TopicPartition], *, asynchronous: bool) -> list[Any]:
        return [SimpleNamespace(error=self.fail("commit")) for _ in offsets]

    def future(self, call: str, result: object) -> Any:
        error = self.fail(call)

        def outcome() -> object:
            if error is not None:
                raise KafkaException(error)
            return result

        return SimpleNamespace(result=outcome)

    def list_offsets(self, asked: dict[TopicPartition, object], **_: object) -> dict[TopicPartition, Any]:
        return {place: self.future("list_offsets", SimpleNamespace(offset=5)) for place in asked}

    def create_topics(self, wanted: list[Any], **_: object) -> dict[str, Any]:
        return {each.topic: self.future("create_topics", None) for each in wanted}

    def list_consumer_group_offsets(self, asked: list[ConsumerGroupTopicPartitions], **_: object) -> dict[str, Any]:
        (place,) = asked[0].topic_partitions
        found = SimpleNamespace(topic_partitions=[SimpleNamespace(error=None, offset=8, metadata="job")])
        return {place.topic: self.future("list_consumer_group_offsets", found)}

    def assign(self, places: object) -> None:
        self.assigned = places

    def poll(self, _: float) -> Any:
        return self.messages.pop() if self.messages else None

    def consume(self, *_: object) -> list[Any]:
        return []

    def init_transactions(self, *_: object) -> None: ...

    def close(self) -> None: ...


def spans(broker: Broker) -> object:
    with reader.TopicReader(KAFKA, "t.", ["verdicts"]) as made:
        return made.spans()


def tail(broker: Broker) -> object:
    reader.TopicReader(KAFKA, "t.", ["verdicts"], tail=3).close()
    return [place.offset for place in broker.assigned]  # type: ignore[attr-defined]


def ends(broker: Broker) -> object:
    with reader.TopicReader(KAFKA, "t.", ["markers"]) as made:
        return made._ends_with_uncommitted()


def transport_places(broker: Broker) -> object:
    context = transport.KafkaTransportContext(KAFKA, "t.", "echo", ("verdicts",), None, None)  # type: ignore[arg-type]
    context._received["t.verdicts", 0] = 5
    context.acknowledge()
    return [place.offset for place in broker.assigned], context._received  # type: ignore[attr-defined]


def partition(broker: Broker) -> object:
    return verification._Partition(KAFKA, ("t.blocks", 0), 9).offsets


def create(broker: Broker) -> object:
    with topics._admin(KAFKA) as admin:
        wanted: Any = {"t.new": SimpleNamespace(topic="t.new"), "t.other": SimpleNamespace(topic="t.other")}
        return topics._create(admin, wanted)


ASKERS: dict[str, tuple[Callable[[Broker], object], object]] = {
    "spans": (spans, {("verdicts", 0): (2, 9)}),
    "tail": (tail, [6]),
    "transport": (transport_places, ([4], {})),
    "verification": (partition, 7),
    "check": (lambda _: sender.RecordSender(KAFKA, "t.").check("blocks"), None),
    "replayer": (lambda _: replayer.Replayer(KAFKA, "t.")._open, False),
    "topics": (lambda _: {state.records for state in topics.list_topics(KAFKA, prefix="t.")}, {0}),
    "create": (create, None),
    "last_write": (lambda broker: markers.last_write(broker, "t.", "lane"), (8, "job")),  # type: ignore[arg-type]
    "ends": (ends, {("t.markers", 0): 5}),
}


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, float], Broker]]:
    def make(code: int, times: float) -> Broker:
        broker = Broker(code, times)
        for module in (reader, transport, verification, sender, replayer, topics, markers):
            for client in ("Consumer", "Producer", "AdminClient"):
                if hasattr(module, client):
                    monkeypatch.setattr(module, client, lambda _: broker)
        return broker

    return make


@pytest.mark.parametrize("asker", ASKERS)
@pytest.mark.parametrize("code", PASSING)
def test_who_asks_goes_on_after_errors_that_pass(stub: Callable[..., Broker], code: int, asker: str) -> None:
    broker = stub(code, 3)
    ask, expected = ASKERS[asker]
    assert ask(broker) == expected
    assert broker.calls
    assert all(count >= 4 for count in broker.calls.values()), broker.calls


@pytest.mark.parametrize("asker", ASKERS)
def test_who_asks_in_vain_gets_one_clear_line(stub: Callable[..., Broker], asker: str, clock: Clock) -> None:
    broker = stub(KafkaError.NOT_LEADER_FOR_PARTITION, float("inf"))
    with pytest.raises((UserError, KafkaException)) as caught:
        ASKERS[asker][0](broker)
    text = str(caught.value)
    assert re.search(r"Not leader for partition; \d+ attempts in \d+ s", text)
    assert "\n" not in text
    assert clock.now - 100 <= markers.CALL_S_MAX


def test_topics_that_are_there_are_not_missing(stub: Callable[..., Broker], clock: Clock) -> None:
    broker = stub(0, 0)
    assert missing_topics(broker, ["t.blocks"]) == []
    assert clock.now == 100.0
    assert missing_topics(broker, ["t.blocks", "t.nowhere"]) == ["t.nowhere"]
    assert 1 < clock.now - 100 <= retry.APPEAR_S_MAX
    assert partitions_of(broker, "t.blocks") == [0]


def test_a_topic_that_appears_is_found(stub: Callable[..., Broker]) -> None:
    broker = stub(KafkaError.UNKNOWN_TOPIC_OR_PART, 4)
    assert spans(broker) == {("verdicts", 0): (2, 9)}
    broker = stub(KafkaError.UNKNOWN_TOPIC_OR_PART, float("inf"))
    with pytest.raises(UserError, match=r"topic t\.verdicts does not exist at 127\.0\.0\.1:1 \("):
        spans(broker)


def test_a_reader_that_lost_all_brokers_waits_for_one(stub: Callable[..., Broker], clock: Clock) -> None:
    broker = stub(KafkaError._TRANSPORT, 4)
    await_broker(broker)
    assert broker.calls["list_topics"] == 5
    down = SimpleNamespace(error=lambda: KafkaError(KafkaError._ALL_BROKERS_DOWN))
    broker = stub(KafkaError._TRANSPORT, 0)
    with reader.TopicReader(KAFKA, "t.", ["verdicts"]) as made:
        broker.messages = [down, down]
        assert made.poll(0.1) == []
        broker.times = float("inf")
        with pytest.raises(UserError, match=r"no records can be read at 127\.0\.0\.1:1: .*; \d+ attempts in 15 s"):
            made.poll(0.1)
