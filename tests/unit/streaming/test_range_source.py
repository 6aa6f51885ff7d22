# SPDX-License-Identifier: Apache-2.0
"""How batches are planned, and what is announced of the next one; and what the source says if Kafka does not answer."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka.admin import OffsetSpec
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from streaming import range_source, reading_process
from streaming.range_source import (
    AHEAD_RECORDS_MIN,
    FIRST_RECORDS_MAX,
    GROWTH,
    InputsRemoved,
    OffsetRange,
    Offsets,
    RangePlanner,
    RangeStreamReader,
    SettledEnds,
    SourceSettings,
    TaskRanges,
    TopicReplaced,
    check_not_before,
    committed_ends,
    divided,
    records_between,
)
from streaming.reasons import INPUTS_GONE, may_pass, reason_of
from tests.repetitions import repetitions
from validator.errors import UserError
from validator.kafka import retry
from validator.kafka.settings import INPUTS, consumer_config
from validator.kafka.transaction import KafkaGone

SETTINGS = SourceSettings({"bootstrap.servers": "nowhere:1"}, ("p.a", "p.b"), 400_000, 2, b"decode", "run 1")


def kafka_error(code: int) -> KafkaException:
    return KafkaException(KafkaError(code, "as Kafka says"))


# --- the planner ---


def through_json(offsets: Offsets) -> Offsets:
    """Return offsets as Spark gives them back."""
    found: Offsets = json.loads(json.dumps(offsets))
    return found


def ranges_of(tasks: Any) -> list[tuple[OffsetRange, ...]]:
    return [each.ranges for each in tasks]


def test_batches_grow_up_to_the_limit() -> None:
    planner = RangePlanner(records_max=GROWTH**2 * FIRST_RECORDS_MAX + 1, tasks_max=2)
    at: Offsets = {"a": {"0": 0}}
    sizes = []
    for _ in range(6):
        end = planner.end(at, {"a": {"0": 10**9}})
        planner.tasks(at, end)
        sizes.append(records_between(at, end))
        at = through_json(end)
    limit = GROWTH**2 * FIRST_RECORDS_MAX + 1
    assert sizes == [FIRST_RECORDS_MAX, GROWTH * FIRST_RECORDS_MAX, GROWTH**2 * FIRST_RECORDS_MAX, limit, limit, limit]


def test_nothing_is_announced_where_any_worker_may_get_a_task() -> None:
    planner = RangePlanner(records_max=100_000, tasks_max=2, ahead=False)
    latest = {"a": {"0": 10**9}}
    at: Offsets = {"a": {"0": 0}}
    for _ in range(3):
        end = planner.end(at, latest)
        tasks = planner.tasks(at, end)
        assert len(tasks) == 2
        assert [each.ahead for each in tasks] == [(), ()]
        assert ranges_of(tasks) == divided(at, end, 2)
        at = through_json(end)


def test_limit_of_the_job_also_limits_the_first_batch() -> None:
    planner = RangePlanner(records_max=7, tasks_max=2)
    latest = {"a": {"0": 100}}
    end = planner.end({"a": {"0": 0}}, latest)
    (task,) = planner.tasks({"a": {"0": 0}}, end)
    assert end == {"a": {"0": 7}}
    assert task.ahead == ()


@pytest.mark.parametrize("seed", range(repetitions(40, 400)))
def test_what_is_announced_is_what_the_next_batch_reads(seed: int) -> None:
    """Spark asks for the end and then for the tasks, in JSON, again and again; meanwhile records arrive."""
    rng = random.Random(seed)
    tasks_max = rng.randint(1, 4)
    planner = RangePlanner(rng.choice([1, 20_000, 90_000, 400_000]), tasks_max)
    latest: Offsets = {"a": {"0": rng.randint(0, 400_000), "1": 0}, "b": {"0": rng.randint(0, 9)}}
    at: Offsets = {topic: dict.fromkeys(partitions, 0) for topic, partitions in latest.items()}
    announced: list[tuple[OffsetRange, ...]] | None = None
    found = batches = 0
    for batch in range(30):
        for topic, partitions in latest.items():
            for each in partitions:
                latest[topic][each] += rng.choice([0, 0, 1, 9_000, 60_000])
        if batch == 12:
            latest["c"] = {"0": 5}
        end = planner.end(through_json(at), through_json(latest))
        if rng.random() < 0.2:  # Spark plans no batch, or asks once more
            end = planner.end(through_json(at), through_json(latest))
        tasks = planner.tasks(through_json(at), through_json(end))
        batches += bool(tasks)
        assert {each.batch for each in tasks} <= {batches}
        assert ranges_of(tasks) == divided(at, end, tasks_max)
        if announced is not None:
            now = [*ranges_of(tasks), *[()] * len(announced)]
            assert announced == now[: len(announced)]
            found += 1
        again = planner.tasks(through_json(at), through_json(end))
        assert [(each.ranges, each.ahead) for each in again] == [(each.ranges, each.ahead) for each in tasks]
        if rng.random() < 0.2:  # as after a restart, for the batch that is done
            assert planner.tasks(through_json(end), through_json(end)) == []
        if tasks:
            announced = [each.ahead for each in tasks] if any(each.ahead for each in tasks) else None
        at = end
    assert found or planner._records_max == 1


def test_empty_batch_changes_nothing() -> None:
    planner = RangePlanner(records_max=10**6, tasks_max=2)
    latest = {"a": {"0": 10**6}}
    start: Offsets = {"a": {"0": 0}}
    assert planner.tasks(start, start) == []
    end = planner.end(start, latest)
    assert records_between(start, end) == FIRST_RECORDS_MAX
    tasks = planner.tasks(start, end)
    assert planner.tasks(end, end) == []
    then = planner.end(end, {"a": {"0": 2 * 10**6}})
    assert records_between(end, then) == GROWTH * FIRST_RECORDS_MAX
    assert ranges_of(planner.tasks(end, then)) == [each.ahead for each in tasks]


@pytest.mark.parametrize(("waiting", "is_announced"), [(AHEAD_RECORDS_MIN - 1, False), (AHEAD_RECORDS_MIN, True)])
def test_little_is_not_announced(waiting: int, is_announced: bool) -> None:
    planner = RangePlanner(records_max=10**6, tasks_max=1)
    start: Offsets = {"a": {"0": 5}}
    end = planner.end(start, {"a": {"0": 5 + FIRST_RECORDS_MAX + waiting}})
    (task,) = planner.tasks(start, end)
    assert bool(task.ahead) is is_announced
    # the next batch may then take what has arrived since
    more = {"a": {"0": 5 + FIRST_RECORDS_MAX + waiting + 3}}
    assert records_between(end, planner.end(end, more)) == waiting + (0 if is_announced else 3)


def test_restart_repeats_the_logged_batch_and_continues() -> None:
    """Spark asks for the tasks of a batch of its log before it asks for any end."""
    planner = RangePlanner(records_max=10**6, tasks_max=2)
    start, logged = {"a": {"0": 1_000}}, {"a": {"0": 91_000}}
    tasks = planner.tasks(start, logged)
    assert ranges_of(tasks) == divided(start, logged, 2)
    assert [each.ahead for each in tasks] == [()] * 2, "nothing is known of what follows"
    end = planner.end(logged, {"a": {"0": 10**6}})
    assert records_between(logged, end) == GROWTH * FIRST_RECORDS_MAX
    assert ranges_of(planner.tasks(logged, end)) == divided(logged, end, 2)


def test_batch_that_begins_elsewhere_is_planned_by_itself() -> None:
    planner = RangePlanner(records_max=10**6, tasks_max=1)
    latest = {"a": {"0": 10**6}}
    end = planner.end({"a": {"0": 0}}, latest)
    (task,) = planner.tasks({"a": {"0": 0}}, end)
    assert task.ahead
    elsewhere = {"a": {"0": end["a"]["0"] - 1}}
    assert planner.end(elsewhere, latest) != {"a": {"0": task.ahead[0].end}}
    assert records_between(elsewhere, planner.end(elsewhere, latest)) == GROWTH * FIRST_RECORDS_MAX


# --- offsets of Kafka ---


class Client:
    """An admin client that knows some topics, or raises."""

    def __init__(self, ends: Offsets, raises: KafkaException | None = None) -> None:
        self.ends, self.raises = ends, raises
        self.asked: list[Any] = []

    def list_topics(self, topic: str | None = None, timeout: float = 0) -> Any:
        if self.raises is not None:
            raise self.raises
        topics = {
            name: SimpleNamespace(error=None, partitions={int(each): None for each in partitions})
            for name, partitions in self.ends.items()
        }
        unknown = SimpleNamespace(error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), partitions={})
        return SimpleNamespace(topics=topics | ({topic: unknown} if topic is not None and topic not in topics else {}))

    def list_offsets(self, asked: Any, isolation_level: Any, request_timeout: float) -> Any:
        self.asked.append((set(asked.values()), isolation_level))
        return {
            each: SimpleNamespace(
                result=lambda each=each: SimpleNamespace(offset=self.ends[each.topic][str(each.partition)])
            )
            for each in asked
        }


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "ANSWER_S_MAX", 0.0)
    monkeypatch.setattr(retry, "APPEAR_S_MAX", 0.0)


def test_ends_are_those_of_committed_records() -> None:
    client: Any = Client({"p.b": {"0": 5, "1": 0}, "p.a": {"0": 7}, "other": {"0": 3}})
    which = OffsetSpec.latest()
    assert committed_ends(client, ("p.b", "p.a"), which) == {"p.a": {"0": 7}, "p.b": {"0": 5, "1": 0}}
    assert client.asked == [({which}, IsolationLevel.READ_COMMITTED)]


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (KafkaError._TRANSPORT, KafkaGone),
        (KafkaError._ALL_BROKERS_DOWN, KafkaGone),
        (KafkaError.LEADER_NOT_AVAILABLE, KafkaGone),
        (KafkaError._NOENT, KafkaGone),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, UserError),
        (KafkaError._AUTHENTICATION, UserError),
    ],
)
def test_only_errors_that_pass_are_waited_for(code: int, raised: type[Exception]) -> None:
    client: Any = Client({}, kafka_error(code))
    with pytest.raises(raised, match=r"Kafka does not give the inputs: .*as Kafka says") as found:
        committed_ends(client, ("p.a",), OffsetSpec.latest())
    assert type(found.value) is raised
    assert "\n" not in str(found.value)


def test_missing_topic_is_an_error() -> None:
    client: Any = Client({"p.a": {"0": 1}})
    with pytest.raises(UserError, match=r"Kafka does not give the inputs: .*UNKNOWN_TOPIC_OR_PART"):
        committed_ends(client, ("p.a", "p.b"), OffsetSpec.latest())


@pytest.mark.parametrize(
    ("latest", "found"),
    [
        ({"a": {"0": 4, "1": 9}}, "a[0] was read up to offset 5, and now ends at 4"),
        ({"a": {"1": 9}}, "a[0] was read up to offset 5, and now does not exist"),
        ({}, "a[0] was read up to offset 5, and now does not exist"),
    ],
)
def test_inputs_that_are_gone_are_named(latest: Offsets, found: str) -> None:
    start: Offsets = {"a": {"0": 5, "1": 2}}
    with pytest.raises(InputsRemoved) as gone:
        check_not_before(start, latest)
    line = str(gone.value)
    assert f"({found})" in line
    assert "\n" not in line
    assert line.startswith(INPUTS_GONE)
    raised = (
        f"Traceback (most recent call last):\n  File x\nstreaming.range_source.InputsRemoved: {line}\n\n\tat org.apache"
    )
    assert reason_of(StreamingQueryException(raised)) == (line, True)


def test_inputs_that_are_still_there_are_no_error() -> None:
    check_not_before({}, {"a": {"0": 1}})
    check_not_before({"a": {"0": 5}}, {"a": {"0": 5, "1": 3}, "b": {"0": 0}})


# --- what Spark calls ---


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client({"p.a": {"0": 10**6}, "p.b": {"0": 10}})
    monkeypatch.setattr(range_source, "AdminClient", lambda _: made)
    return made


def test_reader_plans_batches(client: Client) -> None:
    reader = RangeStreamReader(SETTINGS)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(400_000)
    start: Offsets = {"p.a": {"0": 0}, "p.b": {"0": 0}}
    end = reader.latestOffset(start, limit)
    assert FIRST_RECORDS_MAX - 2 < records_between(start, end) < FIRST_RECORDS_MAX + 2
    assert reader.reportLatestOffset() == client.ends
    tasks = reader.partitions(start, end)
    assert ranges_of(tasks) == divided(start, end, SETTINGS.tasks_max)
    assert all(each.ahead for each in tasks)
    then = reader.latestOffset(end, limit)
    assert ranges_of(reader.partitions(end, then))[: len(tasks)] == [each.ahead for each in tasks]
    assert reader.latestOffset(then, ReadAllAvailable()) == client.ends
    assert reader.initialOffset() == client.ends, "as the client says"


def test_end_is_known_before_a_batch_is_planned(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is repeated after a restart is not planned again."""
    reader = RangeStreamReader(SETTINGS)
    with monkeypatch.context() as patched:
        patched.setattr(reader, "_offsets", _fails)
        assert reader.reportLatestOffset() is None
    assert reader.reportLatestOffset() == client.ends


def _fails(_: object) -> Offsets:
    raise UserError("Kafka does not answer")


def test_planning_a_batch_removes_the_files_of_those_before(client: Client, tmp_path: Path) -> None:
    reader = RangeStreamReader(replace(SETTINGS, folder=str(tmp_path)))
    start: Offsets = {"p.a": {"0": 0}, "p.b": {"0": 0}}
    for batch in (1, 2, 3):
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert {each.batch for each in reader.partitions(start, end)} == {batch}
        for number in (batch, batch + 1):  # what its tasks read, and what they read ahead
            (tmp_path / f"{number}-7-{batch}").touch()
        start = end
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3-7-2", "3-7-3", "4-7-3"]
    assert reader.partitions(start, start) == []
    assert len(list(tmp_path.iterdir())) == 3, "nothing is known to be over"


def test_reader_refuses_inputs_that_end_before(client: Client) -> None:
    reader = RangeStreamReader(SETTINGS)
    client.ends = {"p.a": {"0": 3}, "p.b": {"0": 10}}
    with pytest.raises(InputsRemoved, match=r"p\.a\[0\] was read up to offset 4, and now ends at 3"):
        reader.latestOffset({"p.a": {"0": 4}}, ReadMaxRows(1))


def test_reader_refuses_a_topic_of_the_same_name(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has as many records as the one before or more, so offsets do not say so."""
    asked: list[list[str]] = []
    named = {"p.a": "first", "p.b": "second"}

    def ids(_: object, topics: Mapping[str, str]) -> dict[str, str]:
        asked.append(list(topics))
        return named

    monkeypatch.setattr(range_source, "ids_of", ids)
    reader = RangeStreamReader(replace(SETTINGS, ids=dict(named)))
    start: Offsets = {"p.a": {"0": 10**6}, "p.b": {"0": 9}}
    assert reader.latestOffset(start, ReadAllAvailable()) == client.ends
    named = {"p.a": "first"}  # Kafka does not name every id
    assert reader.latestOffset(start, ReadAllAvailable()) == client.ends
    named = {"p.a": "first", "p.b": "third"}
    assert reader.latestOffset(client.ends, ReadAllAvailable()) == client.ends, "nothing to read, so nothing is asked"
    assert len(asked) == 2
    with pytest.raises(TopicReplaced, match=r"^p\.b has id third, and the topic that was read had second$") as replaced:
        reader.latestOffset(start, ReadAllAvailable())
    raised = f"Traceback (most recent call last):\n  File x\nstreaming.range_source.TopicReplaced: {replaced.value}\n"
    reason, foreseen = reason_of(StreamingQueryException(raised))
    assert foreseen
    assert may_pass(raised, reason), "the next start of the query looks at the topics again"
    monkeypatch.setattr(range_source, "ids_of", lambda *_: _fails_with(KafkaError._TRANSPORT))
    with pytest.raises(KafkaGone, match="Kafka does not give the inputs"):
        reader.latestOffset(start, ReadAllAvailable())


def _fails_with(code: int) -> dict[str, str]:
    raise kafka_error(code)


def test_workers_get_the_settings_only(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client and what the planner knows stay where batches are planned."""
    reader = RangeStreamReader(SETTINGS)
    end = reader.latestOffset({}, reader.getDefaultReadLimit())
    (task, *_) = reader.partitions({}, end)
    read_there, task_there = cloudpickle.loads(cloudpickle.dumps((reader.read, task)))  # type: ignore[no-untyped-call]
    assert vars(read_there.__self__) == {"_settings": SETTINGS}
    assert (task_there.ranges, task_there.ahead) == (task.ranges, task.ahead)
    assert all(isinstance(each, OffsetRange) for each in (*task_there.ranges, *task_there.ahead))
    asked: list[tuple[SourceSettings, TaskRanges]] = []

    def read(*given: Any) -> list[str]:
        asked.append(given)
        return ["chunk"]

    monkeypatch.setattr(reading_process, "read", read)
    assert list(read_there(task_there)) == ["chunk"]
    assert asked == [(SETTINGS, task_there)]


def test_consumers_read_committed_records_and_never_skip_any() -> None:
    config = consumer_config(SETTINGS.kafka, INPUTS, group_id="g")
    assert config["isolation.level"] == "read_committed"
    assert config["auto.offset.reset"] == "error"
    assert (config["enable.partition.eof"], config["enable.auto.commit"]) == (True, False)


# --- effects and their causes ---


class Transactions:
    """Two producers that write causes and an effect in one transaction after another, which Kafka commits partition by partition."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.logs: dict[str, list[int | None]] = {"effects": [], "verdicts": [], "events": []}
        """By partition, the transaction of each record; None is a marker."""
        self._undecided: dict[str, set[int]] = {partition: set() for partition in self.logs}
        self._open: list[tuple[int, list[str], set[str]]] = []
        """Transactions with the records to write, then the partitions to commit."""
        self._count = 0

    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            if len(self._open) < 2 and self._chance.randrange(3) == 0:
                self._count += 1
                records = [*self._chance.choices(["verdicts", "events"], k=self._chance.randrange(4)), "effects"]
                self._open.append((self._count, records, set(records)))
            elif self._open:
                self._step(*self._chance.choice(self._open))

    def _step(self, transaction: int, records: list[str], partitions: set[str]) -> None:
        if records:
            partition = records.pop(0)
            self.logs[partition].append(transaction)
            self._undecided[partition].add(transaction)
            return
        partition = self._chance.choice(sorted(partitions))
        partitions.remove(partition)
        self._undecided[partition].remove(transaction)
        self.logs[partition].append(None)
        if not partitions:
            self._open.remove((transaction, records, partitions))

    def ends(self, *partitions: str, committed: bool = True) -> Offsets:
        found = {}
        for partition in partitions:
            log, undecided = self.logs[partition], self._undecided[partition]
            stable = next((at for at, each in enumerate(log) if each in undecided), len(log))
            found[partition] = {"0": stable if committed else len(log)}
        return found


@pytest.mark.parametrize("seed", range(repetitions(40, 1000)))
def test_effect_is_never_read_before_the_causes_of_its_transaction(seed: int) -> None:
    chance = random.Random(seed)
    kafka, settled = Transactions(chance), SettledEnds()
    start: Offsets = {"effects": {"0": 0}}
    early = 0
    for _ in range(200):
        kafka.go_on(chance.randrange(6))
        effects = kafka.ends("effects")
        kafka.go_on(chance.randrange(3))
        written = kafka.ends("verdicts", "events", committed=False)
        kafka.go_on(chance.randrange(3))
        start = settled.end(start, effects, written, kafka.ends("verdicts", "events"))
        kafka.go_on(chance.randrange(3))
        causes = kafka.ends("verdicts", "events")
        for partition, end in causes.items():
            unread = set(kafka.logs[partition][end["0"] :]) - {None}
            assert not unread & set(kafka.logs["effects"][: start["effects"]["0"]])
            early += bool(unread & set(kafka.logs["effects"][: effects["effects"]["0"]]))
    assert early, "the ends that Kafka gives would have been too early"
    kafka._chance = Commits(seed)
    kafka.go_on(400)
    ends = kafka.ends("effects"), kafka.ends("verdicts", "events", committed=False), kafka.ends("verdicts", "events")
    assert settled.end(start, *ends) == kafka.ends("effects")


class Commits(random.Random):
    """Begins no transaction."""

    def randrange(self, *_: Any) -> int:
        return 1


def test_reader_of_effects_waits_for_their_causes(client: Client) -> None:
    reader = RangeStreamReader(replace(SETTINGS, topics=("p.a",), causes=("p.b",), records_max=None))
    assert reader.latestOffset({"p.a": {"0": 4}}, ReadAllAvailable()) == {"p.a": {"0": 10**6}}
    assert [isolation for _, isolation in client.asked] == [
        IsolationLevel.READ_COMMITTED,
        IsolationLevel.READ_UNCOMMITTED,
        IsolationLevel.READ_COMMITTED,
    ]
    client.asked.clear()
    assert reader.latestOffset({"p.a": {"0": 10**6}}, ReadAllAvailable()) == {"p.a": {"0": 10**6}}
    assert len(client.asked) == 1, "without new effects the causes are not looked at"


def test_new_query_begins_a_limited_number_of_records_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = RangeStreamReader(replace(SETTINGS, backlog_records_max=100))
    ends = {"p.a": {"0": 1000}, "p.b": {"0": 30, "1": 120}}
    first = {"p.a": {"0": 950}, "p.b": {"0": 0, "1": 0}}
    monkeypatch.setattr(reader, "_offsets", lambda which: first if which == OffsetSpec.earliest() else ends)
    assert reader.initialOffset() == {"p.a": {"0": 950}, "p.b": {"0": 0, "1": 20}}
