# SPDX-License-Identifier: Apache-2.0
"""Feeds under any interleaving of records, readers and acknowledgements: nothing lost, nothing doubled, memory bounded."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from validator_channel.application import Watched, read_main, read_watched
from validator_channel.errors import ErrorCode, LocalError
from validator_channel.gateway import feeds as feeds_module
from validator_channel.gateway.bridge import PeerSession
from validator_channel.gateway.feeds import Feed, FeedHub
from validator_channel.gateway.measures import Counters
from validator_channel.gateway.readers import Slice, SliceRequest
from validator_channel.gateway.records import FeedRecord, read_feed_record
from validator_channel.gateway.registry import PeerPolicy
from validator_channel.limits import GatewayLimits
from validator_channel.net.sockets import TokenBucket

PARTITIONS = 2
LIMITS = GatewayLimits(feed_records_max=4, feed_bytes_max=2_000, feed_unacknowledged_max=2)
CHANNEL = 5 << 64


def decode_nothing(topic: str, value: bytes) -> dict[str, Any]:
    """Stand for the decoder of records inside dead letters; these tests have no dead letters."""
    raise AssertionError((topic, value))


class FakeConnection:
    """Takes messages up to a number that are not acknowledged; one above a size is too large."""

    def __init__(self, in_flight_max: int = 3, bytes_max: int = 10_000) -> None:
        self.sent: list[tuple[int, Watched]] = []
        self.main: list[Any] = []
        self.in_flight: deque[tuple[int, int]] = deque()
        self.in_flight_max, self.bytes_max = in_flight_max, bytes_max
        self.index = 1

    def send(self, topic: int, payload: bytes) -> int:
        if len(payload) > self.bytes_max:
            raise LocalError(ErrorCode.PAYLOAD_TOO_LARGE)
        if topic and len(self.in_flight) >= self.in_flight_max:
            raise LocalError(ErrorCode.OUTBOX_FULL)
        self.index += 2
        if topic:
            self.sent.append((topic, read_watched(payload)))
            self.in_flight.append((topic, self.index))
        else:
            self.main.append(read_main(payload))
        return self.index


@dataclass
class Watcher:
    """A feed with its peer, and what the peer already had when it began."""

    feed: Feed
    connection: FakeConnection
    begins: dict[int, int]
    paras: frozenset[int] | None

    def acknowledge(self) -> bool:
        if not self.connection.in_flight:
            return False
        _, index = self.connection.in_flight.popleft()
        self.feed.settled(index)
        return True


@dataclass
class World:
    """A topic's log, a reader of live records that lags behind, and a reader of slices that answers when the test says so."""

    bytes_max: int = 10_000
    logs: list[list[FeedRecord]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    order: list[FeedRecord] = field(default_factory=list)
    dispatched: int = 0
    requests: deque[SliceRequest] = field(default_factory=deque)
    watchers: list[Watcher] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counters = Counters()

    def begin(self) -> None:
        """Let the gateway start at the present end."""
        ends = {("verdicts", partition): len(log) for partition, log in enumerate(self.logs)}
        self.dispatched = len(self.order)
        self.hub = FeedHub(ends, self.requests.append, LIMITS, self.counters)

    def append(self, partition: int, para: int, text: str = "") -> None:
        log = self.logs[partition]
        fields = {"lane": "polkadot", "para_id": para, "text": text}
        record = read_feed_record("verdicts", partition, len(log), fields, decode_nothing)
        log.append(record)
        self.order.append(record)

    def dispatch(self, count: int) -> None:
        batch = self.order[self.dispatched : self.dispatched + count]
        self.dispatched += len(batch)
        self.hub.take_live(batch)

    def answer(self, scanned_max: int) -> bool:
        if not self.requests:
            return False
        request = self.requests.popleft()
        positions = {partition: request.next.get(partition, 0) for partition in range(PARTITIONS)}
        found: list[FeedRecord] = []
        scanned = size = 0
        for partition, log in enumerate(self.logs):
            while (
                positions[partition] < len(log)
                and scanned < scanned_max
                and len(found) < request.records_max
                and size < request.bytes_max
            ):
                record = log[positions[partition]]
                positions[partition] += 1
                scanned += 1
                if record.is_for(request.keys):
                    found.append(record)
                    size += len(record.payload)
        self.hub.take_slice(Slice(tuple(found), positions))
        return True

    def watch(self, paras: frozenset[int] | None, after: Any) -> None:
        lanes = {"polkadot": paras}
        policy = PeerPolicy(name="p", peer=CHANNEL + 1, gateway=CHANNEL + 2, lanes=lanes, watch=("verdicts",))
        connection = FakeConnection(bytes_max=self.bytes_max)
        session = PeerSession(connection, policy, TokenBucket(1, 1, 0), TokenBucket(1, 1, 0))  # type: ignore[arg-type]
        feed = self.hub.watch(session, "verdicts", after, 0)
        begins = {partition: offset + 1 for partition, offset in feed.position().items()}
        self.watchers.append(Watcher(feed, connection, begins, paras))
        self.hub.start(feed)

    def settle(self) -> None:
        """Dispatch, answer and acknowledge until nothing is left to do."""
        self.dispatch(len(self.order))
        for _ in range(10_000):
            moved = [watcher.acknowledge() for watcher in self.watchers if not watcher.feed.is_closed]
            if not any([*moved, self.answer(50)]):
                return
        raise AssertionError("the feeds do not come to rest")

    def check_bounds(self) -> None:
        largest = max((len(record.payload) for record in self.order), default=0)
        for watcher in self.watchers:
            records, size = watcher.feed.room
            assert records >= 0
            assert size > -largest - 200
            assert len(watcher.connection.in_flight) <= 3

    def check(self) -> None:
        for watcher in self.watchers:
            if watcher.feed.is_closed:
                continue
            assert watcher.feed.is_live
            for partition, log in enumerate(self.logs):
                sent = [each for _, each in watcher.connection.sent if each.partition == partition]
                records = [each.offset for each in sent if each.record is not None]
                begin = watcher.begins.get(partition, 0)
                wanted = [
                    each.offset for each in log[begin:] if watcher.paras is None or each.keys[0][1] in watcher.paras
                ]
                assert records == wanted
                offsets = [each.offset for each in sent]
                assert offsets == sorted(set(offsets))


PARAS = st.sampled_from([frozenset({1}), frozenset({1, 2}), frozenset({7}), None])
AFTER = st.sampled_from([None, "end", {0: 0}, {0: 3, 1: 1}, {1: 2}])
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, PARTITIONS - 1), st.integers(1, 4)),
        st.tuples(st.just("append"), st.integers(0, PARTITIONS - 1), st.integers(1, 4)),
        st.tuples(st.just("dispatch"), st.integers(1, 6)),
        st.tuples(st.just("answer"), st.integers(1, 6)),
        st.tuples(st.just("acknowledge"), st.integers(0, 5)),
        st.tuples(st.just("watch"), PARAS, AFTER),
        st.tuples(st.just("close"), st.integers(0, 5)),
        st.tuples(st.just("again"), st.integers(0, 5)),
        st.tuples(st.just("mark")),
    ),
    max_size=80,
)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds_module, "RECENT_RECORDS_MAX", 5)
    monkeypatch.setattr(feeds_module, "MARK_RECORDS", 3)


@settings(deadline=None)
@given(st.integers(0, 12), OPERATIONS)
def test_feeds_lose_and_double_nothing(before: int, operations: list[Any]) -> None:
    world = World()
    for number in range(8 + before):
        world.append(number % PARTITIONS, 1 + number % 4)
    world.begin()
    for name, *arguments in operations:
        apply(world, name, arguments)
        world.check_bounds()
    world.settle()
    world.check()
    assert world.counters.feeds == sum(not each.feed.is_closed for each in world.watchers)
    assert world.counters.feeds_catching_up == 0


def apply(world: World, name: str, arguments: list[Any]) -> None:
    if name in ("acknowledge", "close", "again"):
        if not world.watchers:
            return
        watcher = world.watchers[arguments[0] % len(world.watchers)]
        if watcher.feed.is_closed:
            return
        if name == "acknowledge":
            watcher.acknowledge()
        elif name == "close":
            world.hub.close(watcher.feed)
        else:
            watcher.feed = world.hub.watch_again(watcher.feed)
            world.hub.start(watcher.feed)
    elif name == "mark":
        world.hub.mark()
    else:
        getattr(world, name)(*arguments)


def test_feed_can_begin_at_every_offset() -> None:
    """Below, at and above the oldest recent record, at the end, and beyond what was dispatched."""
    world = World()
    world.begin()
    for number in range(20):
        world.append(number % PARTITIONS, 1)
    world.dispatch(16)
    for offset in range(10):
        world.watch(None, {0: offset})
        world.watch(None, {1: offset, 0: 7})
    world.settle()
    world.check()


def test_record_about_two_paras_of_a_peer_comes_once() -> None:
    world = World()
    world.begin()
    world.watch(frozenset({1, 2}), None)
    record = read_feed_record("verdicts", 0, 0, {"lane": "polkadot", "para_id": 1}, decode_nothing)
    world.hub.take_live([replace(record, keys=(("polkadot", 1), ("polkadot", 2), ("polkadot", None)))])
    (watcher,) = world.watchers
    assert len(watcher.connection.sent) == 1


def test_ingress_event_goes_to_sender_and_recipient_alone() -> None:
    world = World()
    world.begin()
    for para in (1, 2, 3):
        world.watch(frozenset({para}), None)
    datum = {"lane": "polkadot", "event": "queued", "sender": 1, "recipient": 2, "sent_at": 5, "index": 3}
    record = read_feed_record("ingress-events", 0, 0, datum, decode_nothing)
    assert record.keys == (("polkadot", 1), ("polkadot", 2), ("polkadot", None))
    world.hub.take_live([replace(record, topic="verdicts")])  # the watchers of this world have asked for verdicts
    assert [len(each.connection.sent) for each in world.watchers] == [1, 1, 0]


def test_slow_feed_leaves_the_live_ones_and_comes_back() -> None:
    world = World()
    world.begin()
    world.watch(None, None)
    world.watch(frozenset({1}), None)
    slow, quick = world.watchers
    for number in range(40):
        world.append(0, 1 + number % 2)
        world.dispatch(1)
        while quick.acknowledge():
            pass
    assert not slow.feed.is_live
    assert quick.feed.is_live
    assert world.counters.overflows == 1
    assert len(slow.connection.sent) == 2
    world.settle()
    world.check()
    assert slow.feed.is_live


def test_feed_without_records_is_told_how_far_it_is() -> None:
    world = World()
    for _ in range(10):
        world.append(0, 1)
    world.begin()
    world.watch(frozenset({9}), None)
    world.settle()
    (watcher,) = world.watchers
    assert [(each.offset, each.record) for _, each in watcher.connection.sent] == [(9, None)]
    for _ in range(10):
        world.append(0, 1)
    world.dispatch(10)
    world.hub.mark()
    world.settle()
    assert [each.offset for _, each in watcher.connection.sent] == [9, 19]
    world.hub.mark()
    assert len(watcher.connection.sent) == 2


def test_record_that_does_not_fit_is_an_error_in_its_place() -> None:
    world = World(bytes_max=300)
    world.begin()
    world.watch(None, None)
    for text in ("a", "b" * 500, "c"):
        world.append(0, 1, text)
    world.settle()
    (watcher,) = world.watchers
    sent = [each for _, each in watcher.connection.sent]
    assert [each.offset for each in sent] == [0, 1, 2]
    assert sent[1].record is None
    assert sent[1].error is not None
    assert sent[1].error.endswith("bytes do not fit into a frame of this session")


def test_position_that_does_not_exist_ends_the_feed_alone() -> None:
    world = World()
    world.begin()
    world.watch(None, {0: 99})
    world.watch(None, None)
    lost, other = world.watchers
    world.requests.popleft()
    world.hub.take_slice(Slice(error="verdicts[0]: expected an offset up to 0, found 100"))
    assert lost.feed.is_closed
    (refused,) = lost.connection.main
    assert refused.error.startswith("watch: verdicts: verdicts[0]: expected an offset up to 0")
    world.append(0, 1)
    world.settle()
    assert [each.offset for _, each in other.connection.sent] == [0]
    assert world.counters.feeds == 1


def test_closed_feed_ignores_the_slice_that_was_read_for_it() -> None:
    world = World()
    for _ in range(20):
        world.append(0, 1)
    world.begin()
    world.watch(None, None)
    (watcher,) = world.watchers
    world.hub.close(watcher.feed)
    world.hub.close(watcher.feed)
    assert world.answer(10)
    assert watcher.connection.sent == []
    assert (world.counters.feeds, world.counters.feeds_catching_up) == (0, 0)


def test_readers_report_records_that_are_none(caplog: pytest.LogCaptureFixture) -> None:
    from validator_channel.gateway.readers import read_record

    lines: list[str] = []

    def decode(topic: str, value: bytes) -> dict[str, Any]:
        if value == b"bad":
            raise ValueError("verdicts: expected a record")
        return {"para_id": 1} if value == b"odd" else {"lane": "polkadot", "para_id": 1}

    kafka: Any = SimpleNamespace(decode=decode)
    for value in (b"bad", b"odd", b"good"):
        found = read_record(kafka, SimpleNamespace(topic="verdicts", partition=0, offset=7, value=value), lines.append)
        assert (found is None) is (value != b"good")
    assert len(lines) == 2
    assert lines[0] == "verdicts[0]@7 is not sent to anybody: verdicts: expected a record"
