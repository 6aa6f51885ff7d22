# SPDX-License-Identifier: Apache-2.0
"""The lease of a transport, whose holder's commits alone Kafka takes; and what a measured context counts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from threading import Event
from typing import Any, NamedTuple
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.contract.transport_backends import LANE, Measured, acquire
from validator.config import Config
from validator.errors import LeaseLost, UserError
from validator.kafka.settings import COMMITS, consumer_config
from validator.kafka.topics import create_topics
from validator.transports import lease as module
from validator.transports.lease import Lease
from validator.transports.meter import measuring
from validator.transports.runner import TransportGroup

WAIT_S = 60.0


class Pool(NamedTuple):
    stop: Event
    threads: ThreadPoolExecutor


@pytest.fixture
def pool() -> Iterator[Pool]:
    """Yield a thread pool whose waiting threads are asked to stop at the end of the test."""
    made = Pool(Event(), ThreadPoolExecutor(1))
    yield made
    made.stop.set()
    made.threads.shutdown()


@pytest.fixture
def group(kafka: dict[str, Any], tmp_path: Any) -> TransportGroup:
    prefix = f"lease-{tmp_path.name}."
    create_topics(kafka, prefix=prefix, partitions=2)
    return TransportGroup(kafka, prefix, "t")


class Rivals:
    """Leases of one transport, acquired in threads."""

    def __init__(self, group: TransportGroup, count: int) -> None:
        self.group = group
        self.pool = ThreadPoolExecutor(count)
        self.stop = Event()
        self.standing_by: list[str] = []
        self.leases: dict[Future[bool], Lease] = {}
        for _ in range(count):
            lease = group.lease(())
            self.leases[self.pool.submit(lease.acquire, self.stop, self.standing_by.append)] = lease

    def next_holder(self, *, within_s: float = WAIT_S) -> Lease | None:
        done, _ = wait(self.leases, within_s, FIRST_COMPLETED)
        assert len(done) <= 1
        for future in done:
            assert future.result()
            return self.leases.pop(future)
        return None

    def close(self) -> None:
        self.stop.set()
        for future, lease in self.leases.items():
            assert not future.result(WAIT_S)
            lease.close()
        self.pool.shutdown()


@pytest.fixture
def rivals(group: TransportGroup) -> Iterator[Rivals]:
    made = Rivals(group, 3)
    yield made
    made.close()


def test_of_processes_that_start_at_once_one_is_active_after_the_other(rivals: Rivals) -> None:
    for at in range(3):
        holder = rivals.next_holder()
        assert holder is not None
        holder.commit([TopicPartition(f"{rivals.group.prefix}verdicts", 0, at)])
        assert rivals.next_holder(within_s=2 * module.WATCH_S) is None
        holder.check()
        holder.close()
    assert rivals.next_holder(within_s=0) is None
    assert committed(rivals.group) == 2


@pytest.mark.parametrize(("active", "late"), [("a", "b"), ("b", "a")], ids=["leaves", "stays"])
def test_process_that_joins_next_to_the_active_one_waits(
    group: TransportGroup, pool: Pool, monkeypatch: pytest.MonkeyPatch, active: str, late: str
) -> None:
    one = group._replace(kafka={**group.kafka, "client.id": active}).lease(())
    other = group._replace(kafka={**group.kafka, "client.id": late}).lease(())
    looked, standing_by, ask = Event(), list[str](), other._members

    def members() -> dict[str, str] | None:
        """Answer the first time what was true before the active process joined."""
        found = ask() if looked.is_set() else {}
        looked.set()
        return found

    with other, one:
        acquire(one)
        monkeypatch.setattr(other, "_members", members)
        waiting = pool.threads.submit(other.acquire, pool.stop, standing_by.append)
        done, _ = wait([waiting], 8 * module.WATCH_S)
        assert not done
        one.commit([TopicPartition(f"{group.prefix}verdicts", 0, 1)])
        one.close()
        assert waiting.result(WAIT_S)
        other.commit([TopicPartition(f"{group.prefix}verdicts", 0, 2)])
    assert committed(group) == 2


def test_standby_does_not_join_the_group_of_the_active_process(group: TransportGroup, pool: Pool) -> None:
    standing_by = Event()
    with group.lease(()) as other, group.lease(()) as one:
        acquire(one)
        waiting = pool.threads.submit(other.acquire, pool.stop, lambda _: standing_by.set())
        assert standing_by.wait(WAIT_S)
        assert not wait([waiting], 3 * module.WATCH_S).done
        assert set(one._members() or ()) == {one._id}
        pool.stop.set()
        assert not waiting.result(WAIT_S)


def committed(group: TransportGroup) -> int:
    consumer = Consumer(consumer_config(group.kafka, COMMITS, group_id=group.group_id))
    (place,) = consumer.committed([TopicPartition(f"{group.prefix}verdicts", 0)], timeout=30)
    consumer.close()
    return int(place.offset)


def test_commits_survive_members_that_join_and_leave(group: TransportGroup) -> None:
    with group.lease(("verdicts",)) as lease:
        acquire(lease)
        for at in range(2):
            stranger = Consumer(consumer_config(group.kafka, COMMITS, group_id=group.group_id))
            assigned = Event()
            stranger.subscribe([f"{group.prefix}verdicts"], on_assign=lambda *_, event=assigned: event.set())
            count = 0
            deadline = time.monotonic() + WAIT_S
            while not assigned.is_set():
                assert time.monotonic() < deadline
                stranger.poll(0.05)
                count += 1
                lease.commit([TopicPartition(f"{group.prefix}verdicts", 0, 1000 * at + count)])
            stranger.close()
            lease.commit([TopicPartition(f"{group.prefix}verdicts", 0, 1000 * at + count + 1)])
            assert committed(group) == 1000 * at + count + 1
        assert not lease.lost.is_set()


def test_kafka_refuses_commits_of_others(group: TransportGroup) -> None:
    with group.lease(("verdicts",)) as lease:
        acquire(lease)
        places = [TopicPartition(f"{group.prefix}verdicts", 0, 5)]
        lease.commit(places)
        stranger = Consumer(consumer_config(group.kafka, COMMITS, group_id=group.group_id))
        with pytest.raises(KafkaException, match="UNKNOWN_MEMBER_ID"):
            stranger.commit(offsets=[TopicPartition(f"{group.prefix}verdicts", 0, 3)], asynchronous=False)
        stranger.close()
        assert committed(group) == 5


def test_member_that_kafka_has_forgotten_loses_its_lease(group: TransportGroup) -> None:
    with group.lease(("verdicts",)) as lease, group.lease(("verdicts",)) as other:
        acquire(lease)
        lease._member.unsubscribe()  # Kafka forgets the member, as after the session's time
        acquire(other)
        assert lease.lost.wait(WAIT_S)
        for call in (lease.check, lambda: lease.commit([TopicPartition(f"{group.prefix}verdicts", 0, 9)])):
            with pytest.raises(LeaseLost, match="transport t: this process is not the active one any more: Kafka "):
                call()
        other.commit([TopicPartition(f"{group.prefix}verdicts", 0, 2)])
        assert committed(group) == 2


def test_process_asks_kafka_after_a_pause(group: TransportGroup) -> None:
    with group.lease(("verdicts",)) as lease:
        acquire(lease)
        lease._ending.set()  # the thread that sees this process run
        assert lease._thread is not None
        lease._thread.join(WAIT_S)
        lease._alive_s = float("-inf")
        lease.check()
        assert lease._alive_s > 0
        lease._member.unsubscribe()
        while lease._members():
            lease._poll()
        lease.check()  # it has asked a moment ago
        lease._alive_s = float("-inf")
        with pytest.raises(LeaseLost, match="Kafka does not know it as a member of the group any more"):
            lease.check()


@pytest.mark.parametrize("value", ["soon", "-1", 1.5])
def test_wrong_session_timeout_is_one_error_line(value: object) -> None:
    with pytest.raises(UserError, match=r"^\[kafka\] session\.timeout\.ms: expected milliseconds, found "):
        Lease({"bootstrap.servers": "127.0.0.1:1", "session.timeout.ms": value}, "g", "t", "topic")


def test_session_timeout_that_the_brokers_refuse_is_one_error_line(group: TransportGroup) -> None:
    refused = group._replace(kafka={**group.kafka, "session.timeout.ms": 999})
    with (
        refused.lease(()) as lease,
        pytest.raises(UserError, match=r"^transport t: error from .*INVALID_SESSION_TIMEOUT"),
    ):
        acquire(lease)


@pytest.fixture
def measured() -> Measured:
    return Measured()


def test_records_are_counted_once_kafka_has_them(measured: Measured) -> None:
    context = measured.start()
    context.submit("blocks", LANE.encode(), b"12345")
    answers: list[str | None] = []
    assert context.enqueue("candidates", LANE.encode(), b"123", answers.append)
    assert answers in ([], [None])
    context.receive(0)
    measured.close()
    assert answers == [None]
    assert measured.figure("written_records_total", "blocks") == 1
    assert measured.figure("written_bytes_total", "blocks") == 5
    assert measured.figure("written_records_total", "candidates") == 1
    assert measured.figure("unconfirmed_records") == 0


def test_refused_records_are_counted(measured: Measured) -> None:
    context = measured.start()
    with pytest.raises(ValueError, match="verdicts"):
        context.submit("verdicts", b"", b"")
    with pytest.raises(ValueError, match="verdicts"):
        context.enqueue("verdicts", b"", b"", lambda _: None)
    assert measured.figure("refused_records_total") == 2
    assert measured.figure("unconfirmed_records") == 0
    measured.close()


def test_received_records_are_counted_until_they_are_acknowledged(measured: Measured) -> None:
    measured.send(("verdicts", b"a", b"1"), ("verdicts", b"a", b"2"))
    context = measured.start()
    assert context.receive(0)
    assert context.receive(0)
    assert measured.figure("received_records_total", "verdicts") == 2
    assert measured.figure("unacknowledged_records") == 2
    context.acknowledge()
    assert measured.figure("unacknowledged_records") == 0
    reader = context.reader(["verdicts"])
    assert reader.receive(0)
    assert measured.figure("received_records_total", "verdicts") == 3
    measured.close()


def test_without_metrics_the_context_is_the_same(measured: Measured) -> None:
    context = measured.start()
    lines: list[str] = []
    with measuring(Config(), "t", lines.append, context) as given:
        assert given is context
    assert lines == []
    measured.close()


def test_transport_serves_its_figures_at_its_address(measured: Measured) -> None:
    config = Config.model_validate({"metrics": {"transports": {"t": "127.0.0.1:0"}}})
    lines: list[str] = []
    with measuring(config, "t", lines.append, measured.start()) as context:
        context.submit("blocks", LANE.encode(), b"12345")
        (line,) = lines
        with urlopen(line.rpartition(" ")[2]) as answer:
            text = answer.read().decode()
    assert 'validator_transport_written_bytes_total{topic="blocks",transport="t"} 5.0' in text
    measured.close()
