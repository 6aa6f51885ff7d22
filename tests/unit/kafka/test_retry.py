# SPDX-License-Identifier: Apache-2.0
"""Kafka calls are retried after transient errors, up to a deadline."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, TopicPartition

from streaming import taking_over, transactions
from tests.clock import Clock
from validator.checkpoint import markers
from validator.config import Config
from validator.errors import Unavailable, UserError
from validator.history import engine
from validator.kafka import reader, retry, sender, topics, transaction
from validator.kafka.calls import CALL_S_MAX
from validator.kafka.retry import answer, await_broker, missing_topics, partitions_of
from validator.letters import replayer
from validator.plugin.limits import COMMIT_S_MAX
from validator.transports import lease, output_reader, runner

KAFKA: dict[str, object] = {"bootstrap.servers": "127.0.0.1:1"}
TRANSIENT = tuple(retry._PASSING)
UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock(100.0)
    monkeypatch.setattr(retry, "time", made)
    return made


class Failing:
    """Fails a number of times with an error, then answers; each call takes ``call_s``."""

    def __init__(self, clock: Clock, code: int, times: float, result: object = 7, call_s: float = 0.0) -> None:
        self.clock, self.code, self.times, self.result, self.call_s = clock, code, times, result, call_s
        self.asked: list[float] = []

    def __call__(self, left_s: float) -> Any:
        self.asked.append(left_s)
        self.clock.sleep(self.call_s)
        if len(self.asked) <= self.times:
            raise KafkaException(KafkaError(self.code))
        return self.result


@pytest.mark.parametrize("code", [*TRANSIENT, *UNKNOWN])
def test_transient_error_is_retried(clock: Clock, code: int) -> None:
    kafka_call = Failing(clock, code, times=5)
    assert answer(kafka_call) == 7
    assert len(kafka_call.asked) == 6


def test_attempt_blocks_for_seconds_at_most_and_never_beyond_the_deadline(clock: Clock) -> None:
    kafka_call = Failing(clock, TRANSIENT[0], times=float("inf"))
    with pytest.raises(KafkaException):
        answer(kafka_call)
    assert max(kafka_call.asked) == retry.ATTEMPT_S_MAX < retry.ANSWER_S_MAX
    assert clock.now_s == pytest.approx(100 + retry.ANSWER_S_MAX, abs=2 * retry.RETRY_S)
    assert kafka_call.asked[-5:] == pytest.approx([0.5, 0.4, 0.3, 0.2, 0.1], abs=retry.RETRY_S)


@pytest.mark.parametrize("code", TRANSIENT)
def test_lasting_error_is_raised_at_deadline(clock: Clock, code: int) -> None:
    kafka_call = Failing(clock, code, times=float("inf"))
    with pytest.raises(KafkaException) as caught:
        answer(kafka_call, patience_s=3.0)
    error = caught.value.args[0]
    assert error.code() == code
    assert error.str() == f"{KafkaError(code).str()}; {len(kafka_call.asked)} attempts in 3 s"
    assert 102.8 < clock.now_s <= 103.0
    assert all(left > 0 for left in kafka_call.asked)


@pytest.mark.parametrize("code", UNKNOWN)
def test_unknown_topic_is_retried_only_briefly(clock: Clock, code: int) -> None:
    with pytest.raises(KafkaException):
        answer(Failing(clock, code, times=float("inf")))
    assert clock.now_s - 100 <= retry.APPEAR_S_MAX


def test_topic_that_is_unknown_after_other_errors_has_its_time_to_appear(clock: Clock) -> None:
    codes = [KafkaError._TRANSPORT] * 50 + [KafkaError.UNKNOWN_TOPIC_OR_PART] * 10

    def question(_: float) -> int:
        if codes:
            raise KafkaException(KafkaError(codes.pop(0)))
        return 7

    assert answer(question) == 7
    assert clock.now_s - 100 > retry.APPEAR_S_MAX


@pytest.mark.parametrize(
    "code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._AUTHENTICATION, KafkaError.GROUP_AUTHORIZATION_FAILED]
)
def test_permanent_error_is_raised_at_once(clock: Clock, code: int) -> None:
    kafka_call = Failing(clock, code, times=1)
    with pytest.raises(KafkaException) as caught:
        answer(kafka_call)
    assert (len(kafka_call.asked), caught.value.args[0].str()) == (1, KafkaError(code).str())


def test_error_of_single_slow_call_keeps_its_text(clock: Clock) -> None:
    kafka_call = Failing(clock, KafkaError._TRANSPORT, times=1, call_s=retry.ANSWER_S_MAX)
    with pytest.raises(KafkaException) as caught:
        answer(kafka_call)
    assert caught.value.args[0].str() == KafkaError(KafkaError._TRANSPORT).str()


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_users_error_says_whether_it_passes(code: int) -> None:
    assert isinstance(retry.user_error(KafkaError(code), "text"), Unavailable) is (code in retry._PASSING)


def test_fatal_error_is_not_transient() -> None:
    error = KafkaError(KafkaError._TIMED_OUT, "fenced", fatal=True)
    assert not retry.passes(error)


# --- callers ---

NOT_LEADER = KafkaError.NOT_LEADER_FOR_PARTITION


class Broker:
    """Stands in for librdkafka's clients, with topics of one partition; the first answers to each call are errors."""

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

    def committed(self, places: list[TopicPartition], timeout: float) -> list[Any]:
        error = self.fail("committed")  # a partition's error is part of the answer
        return [
            SimpleNamespace(topic=each.topic, partition=each.partition, offset=4, metadata="job", error=error)
            for each in places
        ]

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

    def list_groups(self, group: str, timeout: float) -> list[Any]:
        self.ask("list_groups")
        member = SimpleNamespace(id="member", client_id="validator@host:1", client_host="/10.0.0.1")
        return [SimpleNamespace(id=group, error=None, state="Stable", members=[member])]

    def offsets_for_times(self, places: list[TopicPartition], timeout: float) -> list[Any]:
        error = self.fail("offsets_for_times")
        spans = {OFFSET_BEGINNING: 2, OFFSET_END: 9}
        return [
            SimpleNamespace(topic=each.topic, partition=each.partition, offset=spans[each.offset], error=error)
            for each in places
        ]

    def memberid(self) -> str:
        return "member"

    def assign(self, places: object) -> None:
        self.assigned = places

    def poll(self, _: float) -> Any:
        return self.messages.pop() if self.messages else None

    def consume(self, *_: object) -> list[Any]:
        return []

    def init_transactions(self, timeout: float) -> None:
        self.ask("init_transactions")

    def close(self) -> None: ...


def spans(broker: Broker) -> object:
    with reader.TopicReader(KAFKA, "t.", ["verdicts"]) as made:
        return made.spans()


def tail(broker: Broker) -> object:
    with reader.TopicReader(KAFKA, "t.", ["verdicts"], tail=3) as made:
        made.poll(0.0)
    return [place.offset for place in broker.assigned]  # type: ignore[attr-defined]


def ends(broker: Broker) -> object:
    with reader.TopicReader(KAFKA, "t.", ["markers"]) as made:
        return made.ends()


def transport_places(broker: Broker) -> object:
    group = runner.TransportGroup(KAFKA, "t.", "echo")
    held = group.lease(("verdicts",))
    held._id, held._alive_s = "member", float("inf")
    forms = runner.record_forms(Config())
    context = runner.KafkaTransportContext(group, ("verdicts",), None, Event(), forms, held)
    context._acknowledged["verdicts", 0] = 5
    context.acknowledge()
    return [place.offset for place in broker.assigned], context._acknowledged  # type: ignore[attr-defined]


def members(broker: Broker) -> object:
    return lease.Lease(KAFKA, "t.transport.echo", "echo", "t.verdicts")._members()


def output_reader_ends(broker: Broker) -> object:
    return output_reader.KafkaOutputReader(KAFKA, "t.", ["verdicts"], lambda: None, lambda: False).ends()


def partition(broker: Broker) -> object:
    return engine.InputPartition(KAFKA, ("t.blocks", 0), 9).offsets


def create(broker: Broker) -> object:
    with topics._admin(KAFKA) as admin:
        wanted: Any = {"t.new": SimpleNamespace(topic="t.new"), "t.other": SimpleNamespace(topic="t.other")}
        return topics._create(admin, KAFKA, wanted)


CALLERS: dict[str, tuple[Callable[[Broker], object], object]] = {
    "spans": (spans, {("verdicts", 0): (2, 9)}),
    "tail": (tail, [6]),
    "transport": (transport_places, ([4], {("verdicts", 0): 4})),
    "members": (members, {"member": "validator@host:1 (10.0.0.1)"}),
    "output reader": (output_reader_ends, {("verdicts", 0): 9}),
    "lane inputs": (partition, 7),
    "check": (lambda _: sender.RecordSender(KAFKA, "t.").check("blocks"), None),
    "replayer": (lambda _: replayer.Replayer(KAFKA, "t.")._prefix, "t."),
    "topics": (lambda _: {state.records for state in topics.list_topics(KAFKA, prefix="t.")}, {0}),
    "create": (create, None),
    "take over": (lambda _: taking_over.end_open_transactions(KAFKA, "t.", ["lane"]), None),
    "writer": (
        lambda _: transactions.TransactionalWriter(markers.LaneOnKafka(KAFKA, "t.", "lane"), "job")._prefix,
        "t.",
    ),
    "group": (lambda _: markers.LaneOnKafka(KAFKA, "t.", "lane").group_block(), 3),
    "ends": (ends, {("t.markers", 0): 5}),
}


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, float], Broker]]:
    def make(code: int, times: float) -> Broker:
        broker = Broker(code, times)
        for module in (
            reader,
            runner,
            lease,
            output_reader,
            engine,
            sender,
            topics,
            markers,
            transaction,
        ):
            for client in ("Consumer", "Producer", "AdminClient"):
                if hasattr(module, client):
                    monkeypatch.setattr(module, client, lambda _: broker)
        return broker

    return make


@pytest.mark.parametrize("caller", CALLERS)
def test_caller_continues_after_transient_errors(stub: Callable[..., Broker], caller: str) -> None:
    broker = stub(KafkaError._TRANSPORT, 3)  # `answer` is tested with each of the errors
    ask, expected = CALLERS[caller]
    assert ask(broker) == expected
    assert broker.calls
    assert all(count >= 4 for count in broker.calls.values()), broker.calls


def test_topics_are_created_once_their_leaders_answer(
    stub: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = stub(0, 0)
    monkeypatch.setattr(topics, "_wait_until_known", lambda *_: broker.__dict__.update(code=NOT_LEADER, times=3))
    fresh = replace(topics.TOPICS[0], name="fresh")
    assert topics.create_topics(KAFKA, prefix="t.", topics=[fresh]) == {"t.fresh": True}
    assert broker.calls["list_offsets"] == 4


@pytest.mark.parametrize("caller", [name for name in CALLERS if name not in ("members", "group")])
def test_caller_gets_one_line_after_deadline(stub: Callable[..., Broker], caller: str, clock: Clock) -> None:
    broker = stub(KafkaError.NOT_LEADER_FOR_PARTITION, float("inf"))
    with pytest.raises((Unavailable, KafkaException, transaction.KafkaGone)) as caught:
        CALLERS[caller][0](broker)
    text = str(caught.value)
    assert re.search(r"Not leader for partition; \d+ attempts in \d+ s", text)
    assert "\n" not in text
    assert clock.now_s - 100 <= max(CALL_S_MAX, COMMIT_S_MAX)


def test_standby_waits_while_kafka_does_not_answer_and_ends_when_it_refuses(stub: Callable[..., Broker]) -> None:
    assert members(stub(KafkaError.COORDINATOR_NOT_AVAILABLE, float("inf"))) is None
    with pytest.raises(UserError, match=r"^transport echo: error from 127\.0\.0\.1:1: .*GROUP_AUTHORIZATION_FAILED"):
        members(stub(KafkaError.GROUP_AUTHORIZATION_FAILED, float("inf")))


def test_existing_topics_are_not_missing(stub: Callable[..., Broker], clock: Clock) -> None:
    broker = stub(0, 0)
    assert missing_topics(broker, ["t.blocks"]) == []
    assert clock.now_s == 100.0
    assert missing_topics(broker, iter(["t.blocks", "t.nowhere"])) == ["t.nowhere"]  # asked again, with all topics
    assert 1 < clock.now_s - 100 <= retry.APPEAR_S_MAX
    assert partitions_of(broker, "t.blocks") == [0]


def test_topic_that_appears_late_is_found(stub: Callable[..., Broker]) -> None:
    broker = stub(KafkaError.UNKNOWN_TOPIC_OR_PART, 4)
    assert spans(broker) == {("verdicts", 0): (2, 9)}
    broker = stub(KafkaError.UNKNOWN_TOPIC_OR_PART, float("inf"))
    with pytest.raises(UserError, match=r"topic t\.verdicts does not exist at 127\.0\.0\.1:1 \("):
        spans(broker)


def test_reader_without_brokers_waits_for_one(stub: Callable[..., Broker], clock: Clock) -> None:
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
