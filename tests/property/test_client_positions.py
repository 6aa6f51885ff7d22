# SPDX-License-Identifier: Apache-2.0
"""However a program reads, keeps its positions and begins again, a stream gives it each record once, or an error."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from tests.added_partitions import add_partitions
from tests.hypothesis_profile import examples
from tests.sending import TRANSACTION_S_MAX
from validator import client
from validator.kafka.settings import admin_config, producer_config
from validator.kafka.topics import create_topics
from validator.topics import TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterator

RECEIPTS = next(topic for topic in TOPICS if topic.name == "receipts")
CHAIN: dict[str, Any] = {"job": {"directory": "nowhere"}, "chains": {"polkadot": {}}}
BLOCKS_MAX = 120


class World(Protocol):
    """A topic of receipts, whose blocks are numbered through, also over topics that are made again."""

    read_s: float
    """Seconds that a read waits for what was sent."""
    made_again: bool
    """Whether the topic is another one since the program began with its first record."""
    blocks: list[int]
    """Of the committed records in the present topic."""

    def open(self, start: Any, *, follow: bool) -> client.Stream[client.Receipt]: ...

    def send(self, count: int, *, committed: bool) -> None: ...

    def make_again(self) -> None: ...

    def add_partition(self) -> None: ...

    def close(self) -> None: ...


class InMemory:
    """Lanes of this process; the topic is made again by another client."""

    read_s = 0.0

    def __init__(self) -> None:
        self.made_again = False
        self._next = 0
        self._begin()

    def _begin(self) -> None:
        self._client = client.in_memory({**CHAIN, "chains": {"polkadot": {"first_block": self._next + 1}}})
        self._producer = self._client.producer("polkadot")
        self.blocks: list[int] = []

    def open(self, start: Any, *, follow: bool) -> client.Stream[client.Receipt]:
        return self._client.receipts(start=start, follow=follow)

    def send(self, count: int, *, committed: bool) -> None:
        for _ in range(count if committed else 0):
            self._next += 1
            with self._producer.block(self._next):
                pass
            self.blocks.append(self._next)

    def make_again(self) -> None:
        self.made_again = True
        self._begin()

    def add_partition(self) -> None:
        """A topic in memory has one."""

    def close(self) -> None:
        self._client.close()


class OnKafka:
    """A topic of a broker, with transactions that are committed or aborted."""

    read_s = 0.3

    def __init__(self, kafka: dict[str, object], prefix: str, values: list[bytes]) -> None:
        self._kafka, self._prefix, self._values = kafka, prefix, values
        self.made_again = False
        self._next = 0
        self._partitions = 1
        self._client = client.connect({**CHAIN, "kafka": kafka, "topics": {"prefix": prefix}})
        self._begin()

    def _begin(self) -> None:
        create_topics(self._kafka, prefix=self._prefix, topics=[RECEIPTS], partitions=self._partitions)
        self._producer = Producer(producer_config(self._kafka, transactional_id=self._prefix))
        self._producer.init_transactions(TRANSACTION_S_MAX)
        self.blocks: list[int] = []

    def open(self, start: Any, *, follow: bool) -> client.Stream[client.Receipt]:
        return self._client.receipts(start=start, follow=follow)

    def send(self, count: int, *, committed: bool) -> None:
        self._producer.begin_transaction()
        for _ in range(min(count, BLOCKS_MAX - self._next)):
            key = str(self._next).encode()
            self._producer.produce(f"{self._prefix}receipts", self._values[self._next], key)
            self._next += 1
            if committed:
                self.blocks.append(self._next)
        if committed:
            self._producer.commit_transaction(TRANSACTION_S_MAX)
        else:
            self._producer.flush(TRANSACTION_S_MAX)
            self._producer.abort_transaction(TRANSACTION_S_MAX)

    def make_again(self) -> None:
        self.made_again = True
        admin = AdminClient(admin_config(self._kafka))
        for future in admin.delete_topics([f"{self._prefix}receipts"]).values():
            future.result()
        self._begin()

    def add_partition(self) -> None:
        self._partitions += 1
        add_partitions(self._kafka, f"{self._prefix}receipts", self._partitions)

    def close(self) -> None:
        self._client.close()


class Program:
    """Reads, keeps positions as JSON, and after an error begins with the first record again."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._kept: str | None = None
        self._stream: client.Stream[client.Receipt] | None = None
        self.taken: list[int] = []

    def read(self, way: str, count: int) -> None:
        try:
            if self._stream is None:
                start = "beginning" if self._kept is None else json.loads(self._kept)
                self._stream = self._world.open(start, follow=False)  # which would let an iteration wait forever
            for receipt in self._records(self._stream, way, count):
                self.taken.append(receipt.block)
        except TimeoutError:
            pass  # too few to take: none is taken
        except client.UserError:
            assert self._world.made_again, "an error needs a reason"
            self._world.made_again = False
            self.stop()
            self._kept, self.taken = None, []

    def _records(self, stream: client.Stream[client.Receipt], way: str, count: int) -> Iterator[client.Receipt]:
        if way == "iterate":
            for receipt in stream:
                yield receipt
                count -= 1
                if count <= 0:
                    return
        elif way == "take":
            yield from stream.take(count, self._world.read_s)
        elif way == "poll":
            yield from stream.poll(self._world.read_s)
        elif way == "look":
            stream.look(self._world.read_s, count)

    def save(self) -> None:
        if self._stream is not None:
            self._kept = json.dumps(self._stream.positions)

    def stop(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


counts = st.integers(1, 6)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), counts, st.booleans()),
        st.tuples(st.sampled_from(["iterate", "take", "poll", "look"]), counts, st.just(value=True)),
        st.tuples(st.sampled_from(["restart", "restart", "make again", "add partition"]), counts, st.just(value=True)),
    ),
    min_size=3,
    max_size=14,
)


def each_record_is_there_once(world: World, script: list[tuple[str, int, bool]]) -> None:
    program = Program(world)
    try:
        for step, count, committed in script:
            match step:
                case "send":
                    world.send(count, committed=committed)
                case "restart":
                    program.save()
                    program.stop()
                case "make again":
                    world.make_again()
                    world.send(2 * count, committed=True)
                case "add partition":
                    world.add_partition()
                case _:
                    program.read(step, count)
        for _ in range(3):  # the first may find that the topic was made again, and the second begins again
            program.save()
            program.stop()
            program.read("iterate", 2 * BLOCKS_MAX)
        assert sorted(program.taken) == world.blocks
    finally:
        program.stop()
        world.close()


@given(script=steps)
@examples(40)
def test_in_memory(script: list[tuple[str, int, bool]]) -> None:
    each_record_is_there_once(InMemory(), script)


@pytest.fixture(scope="module")
def values() -> list[bytes]:
    with client.in_memory(CHAIN) as lanes:
        producer = lanes.producer("polkadot")
        for number in range(1, BLOCKS_MAX + 1):
            with producer.block(number):
                pass
        reading = lanes._backend.read("receipts", client.streams.BEGINNING)
        return [record.value for record in reading.poll(0)]


numbers = iter(range(1_000_000))


@pytest.fixture(scope="module")
def on_kafka_of(kafka: dict[str, object], values: list[bytes]) -> Any:
    return lambda: OnKafka(kafka, f"positions-{next(numbers)}.", values)


@given(script=steps)
@examples(24)
def test_on_kafka(on_kafka_of: Any, script: list[tuple[str, int, bool]]) -> None:
    each_record_is_there_once(on_kafka_of(), script)


@pytest.mark.parametrize("count", [0, 20])
def test_open_stream_of_a_topic_that_was_made_again(on_kafka_of: Any, count: int) -> None:
    """With more records than the old topic, Kafka itself would continue in the middle; in a shorter one the next offset does not exist."""
    world = on_kafka_of()
    world.send(3, committed=True)
    stream = world.open("beginning", follow=True)
    assert len(stream.take(3)) == 3
    world.make_again()
    if count:
        world.send(count, committed=True)
    with pytest.raises(
        client.UserError, match=r"receipts was deleted and made again while it was read: its id was \S+, and is \S+;"
    ):
        stream.take(1, timeout_s=30)
    kept = stream.positions
    stream.close()
    with pytest.raises(
        client.UserError, match=r"^start: expected positions of positions-\d+\.receipts, whose id is \S+, found id"
    ):
        world.open(kept, follow=True)
    world.close()


@pytest.mark.parametrize("start", ["now", "beginning"])
def test_positions_begin_as_the_start(on_kafka_of: Any, start: str) -> None:
    world = on_kafka_of()
    world.send(4, committed=True)
    with world.open(start, follow=True) as stream:
        assert list(stream.positions["offsets"].values()) == [
            0 if start == "beginning" else 5
        ]  # the commit has an offset, too
        kept = stream.positions
    world.send(2, committed=True)
    with world.open(kept, follow=False) as stream:
        assert [receipt.block for receipt in stream] == ([1, 2, 3, 4, 5, 6] if start == "beginning" else [5, 6])
    world.close()
