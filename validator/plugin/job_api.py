# SPDX-License-Identifier: Apache-2.0
"""The public API for jobs: streaming state machines next to the lanes, on the same Kafka and Spark, exactly once.

A job is an entry point of group ``validator.jobs``: a function that takes a `JobContext` and returns a `Job`. Spark runs it like the lanes,
in a separate process (`streaming.keyed_job`): `Job.condense` for each record on every core, then a `KeyedState` for each key, then a
transaction for each key and batch.

Topics of one batch have an order. A batch never reads less of ``causes`` than its ``effects`` may refer to: the ends of ``effects`` are
read first. So if a writer produces an effect after it has read a cause, or in the same transaction, no batch holds the effect without the
cause.

Raising is for bugs: whatever a record contains, `Job.condense` and `KeyedState.process` turn it into outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, NamedTuple, Protocol

from validator.codec.codec import RecordFormat, RecordUnreadable
from validator.codec.encode import OutputRecord
from validator.codec.schemas import SchemaSet, schemas
from validator.errors import UserError, in_one_line
from validator.metrics.own import Measure, PluginMetric
from validator.topics import DAY_MS, FOREVER, MINUTE_MS, Topic

__all__ = [
    "DAY_MS",
    "FOREVER",
    "MINUTE_MS",
    "Job",
    "JobContext",
    "JobItem",
    "JobRecord",
    "KeyedState",
    "Measure",
    "OutputRecord",
    "OwnTopic",
    "PluginMetric",
    "RecordFormat",
    "RecordUnreadable",
    "SchemaSet",
    "Topic",
    "TopicForm",
    "UserError",
    "open_job",
    "schemas",
]

JOBS: Final = "validator.jobs"


class JobRecord(NamedTuple):
    """A Kafka record; ``topic`` is without the prefix."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes


class JobItem(NamedTuple):
    """What `Job.condense` made of a record for one key."""

    topic: str
    partition: int
    offset: int
    content: bytes


class TopicForm(NamedTuple):
    """The form of the records of one of a job's topics, for those who write or read them (`Job.forms`).

    ``key_of`` returns the key that a value must have. It raises ``ValueError`` that says why a value is no record of the topic, or one that
    the job cannot use. ``bytes_max`` bounds a value. ``columns`` are the fields that `validator watch` shows in a table, by default all.
    """

    format: RecordFormat
    key_of: Callable[[bytes], bytes]
    bytes_max: int
    columns: tuple[str, ...] = ()


class OwnTopic(NamedTuple):
    """A topic that exists for transports alone (`validator.plugin.api.Transport.own`).

    ``line`` makes, of a value of a compacted topic, a lane and a line about it for `validator lanes`; it raises ``ValueError`` for a value
    that is no record of the topic. Several transports of a plugin may have the same topic.
    """

    topic: Topic
    form: TopicForm
    line: Callable[[bytes], tuple[str, str]] | None = None


class KeyedState(Protocol):
    """The state of one key, in memory. The same items in the same batches give the same output, whatever was stored in between.

    It may have a method ``measures()``, which returns the values of the job's metrics for its key as `Measure`s. Counters begin at 0 when
    the state is restored. It is called after a batch with output, in the batch's thread, if the deployment has metrics. What it raises, and
    values that cannot be used, are said once and left out; what hangs is a batch that hangs.
    """

    def process(self, items: Sequence[JobItem]) -> list[OutputRecord]:
        """Take a batch's items: causes, then effects, each by partition and offset. Return the records to emit, in order."""

    def changes(self) -> Iterable[tuple[bytes, bytes | None]]:
        """Return the pages that have changed since the last call, by name; None stands for a page that is gone."""


class Job(Protocol):
    """A job's definition. It is pickled to Spark's workers, so its class is a module's own.

    It may have an attribute ``metrics``, a tuple of the `PluginMetric`s that its states measure, and an attribute ``command``: the command
    that runs it, which `validator up` then leaves to its user. `validator up` runs every other job that has a table `[jobs.<name>]`.
    With an attribute ``backlog_records_max``, a job without a checkpoint begins at most this many records before the end of each partition.
    """

    @property
    def name(self) -> str:
        """The name of the entry point."""

    @property
    def causes(self) -> tuple[str, ...]:
        """Input topics, without the prefix, that a batch reads completely."""

    @property
    def effects(self) -> tuple[str, ...]:
        """Input topics whose records may refer to those of ``causes``; a batch takes a limited number of them."""

    @property
    def topics(self) -> tuple[Topic, ...]:
        """The topics that exist for this job only."""

    @property
    def forms(self) -> Mapping[str, TopicForm]:
        """The forms of ``topics``: transports write the inputs among them, and read all of them."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Every key that may have a state; each has a transactional producer."""

    def check_written(self, keys: Iterable[str]) -> None:
        """Check the job's options against the keys of which Kafka holds output, those of lanes and other jobs among them.

        A job whose keys depend on an option recognises here that it has changed. Raises `UserError`; the job then does not start.
        """

    def condense(self, record: JobRecord) -> Iterable[tuple[str, bytes]]:
        """Return what is left of a record for each key that needs it. It runs on every core, without state."""

    def restore(self, key: str, pages: Mapping[bytes, bytes]) -> KeyedState:
        """Return a key's state from its stored pages; there are none at first."""

    @property
    def remembered(self) -> tuple[str, ...]:
        """The topics, inputs or outputs, whose records `recover` needs."""

    def recover(
        self, key: str, records: Iterable[JobRecord], consumed: Mapping[tuple[str, int], int]
    ) -> dict[bytes, bytes]:
        """Return the first pages of a key whose stored state is lost, while its output is on Kafka.

        The state will take every input again from the earliest. It must not emit again what stands in ``records``, the committed ones of
        the topics ``remembered``, nor what followed from inputs below ``consumed`` (by topic and partition, the offset after the last).
        """


@dataclass(frozen=True, slots=True)
class JobContext:
    """What a job is made from: ``options`` is its table `[jobs.<name>]`, ``chains`` the tables `[chains.<lane>]` as plain values."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    chains: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def open_job(context: JobContext) -> Job:
    """Return the installed job of a name. Raises `UserError` if there is none or several, or as the job does for its options."""
    found = tuple(entry_points(group=JOBS, name=context.name))
    if len(found) != 1:
        there = ", ".join(sorted({each.name for each in entry_points(group=JOBS)})) or "none"
        number = "no" if not found else "more than one"
        raise UserError(f"job {context.name}: {number} plugin of group {JOBS} has this name; installed: {there}")
    return _load(found[0])(context)  # type: ignore[no-any-return]


def _load(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except (Exception, SystemExit) as error:  # a plugin's module may raise anything
        raise UserError(f"job {entry.name}: importing {entry.value} failed: {in_one_line(error)}") from error
