# SPDX-License-Identifier: Apache-2.0
"""Keeps the state of a plugin's job and emits its output once: what `lanes.store` and `lanes.sink` are for lanes.

A key's state is pages by name. A batch writes those that changed, and the head: the number of the next *step*, what has been consumed,
and a token that chains over the inputs of every batch. A worker uses its live state only if its token is the head's, otherwise it restores
the pages.

A batch with output is a step, and the output's marker (`lanes.marker`) has the step's number. Spark repeats a batch with the same inputs
from the same state, so a repeated step has the same output and is left out as a whole. Which records share a batch is decided once, when
Spark plans it, and no output says how. So a job on another checkpoint would decide differently: `StepSink` stops it as soon as its steps
are not the ones that follow the marker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol

from validator.codec.encode import BlockOutput, OutputRecord
from validator.core.scale import DecodeError, Encoding, decoding
from validator.errors import UserError
from validator.lanes.marker import Consumed
from validator.lanes.parked import point_of
from validator.lanes.sink import BatchWriter, KeptWriters
from validator.metrics.own import Measures, PluginMetric, asked, exported
from validator.metrics.report import KEY, Report
from validator.plugin.job_api import Job, JobItem, KeyedState
from validator.topics import METRICS

HEAD = Encoding("head of a job's state")
TOKEN_BYTES = 16


class PageStore(Protocol):
    """The state of one key, in a store that commits a batch completely or not at all."""

    def load_head(self) -> bytes | None:
        """Return the head, or None if the key is new."""

    def save_head(self, head: bytes) -> None:
        """Replace the head."""

    def load_pages(self) -> dict[bytes, bytes]:
        """Return every page."""

    def save_page(self, name: bytes, page: bytes) -> None:
        """Write a page."""

    def remove_page(self, name: bytes) -> None:
        """Remove an existing page."""


class Head(NamedTuple):
    """The number of the next step, by place the offset after the last record consumed, and what the state was made from."""

    step: int
    consumed: Consumed
    token: bytes

    def after(self, items: Sequence[JobItem], prefix: str, *, emits: bool) -> Head:
        """Return the head after a batch that took these items."""
        chained = blake2b(self.token, digest_size=TOKEN_BYTES)
        consumed = dict(self.consumed)
        for topic, partition, offset, content in items:
            chained.update(f"{topic}/{partition}/{offset}/{len(content)};".encode())
            place = prefix + topic, partition
            consumed[place] = max(consumed.get(place, 0), offset + 1)
        return Head(self.step + emits, consumed, chained.digest())

    def encode(self) -> bytes:
        out = HEAD.begin()
        out.u64(self.step)
        out.bytes(self.token)
        out.compact(len(self.consumed))
        for (topic, partition), offset in sorted(self.consumed.items()):
            out.bytes(topic.encode())
            out.u32(partition)
            out.u64(offset)
        return bytes(out.buffer)

    @classmethod
    def decode(cls, data: bytes) -> Head:
        """Return the head that the bytes encode. Raises `core.scale.DecodeError`."""
        reader = HEAD.read(data)
        step, token = reader.u64(), reader.bytes()
        with decoding("the head of a job's state"):
            places = reader.items(lambda: ((reader.bytes().decode(), reader.u32()), reader.u64()))
        reader.end()
        consumed = dict(places)
        if places != sorted(consumed.items()):
            raise DecodeError(
                "the head of a job's state is damaged: its offsets are not by ascending topic and partition, each once"
            )
        return cls(step, consumed, token)


FIRST: Final = Head(0, {}, bytes(TOKEN_BYTES))
"""The head of a key without a state."""


@dataclass(slots=True)
class KeyedCache:
    """The live states of one worker, with the tokens of their heads."""

    live: dict[str, tuple[bytes, KeyedState]] = field(default_factory=dict)
    restored: Callable[[str, int], None] = lambda _key, _pages: None
    """Called with a key and a number of pages whenever a stored state is read."""
    tell: Callable[[str], None] = lambda _: None
    """Called with a line about a key whose metrics cannot be used, once for each key."""
    told: set[str] = field(default_factory=set)
    """The keys of which that was said."""


class Recovery(NamedTuple):
    """What a key without a stored state begins with, if Kafka holds output of it: its next step, what was consumed, its first pages."""

    step: int
    consumed: Consumed
    pages: dict[bytes, bytes]


class Step(NamedTuple):
    """What a batch leads to: the step if it has output, and what the key has consumed with it.

    ``found`` and ``left`` are the points of the key's state before and after it (`parked.point_of`).
    """

    output: BlockOutput
    consumed: Consumed
    found: str
    left: str


def process_keyed(
    job: Job,
    key: str,
    store: PageStore,
    cache: KeyedCache,
    items: Sequence[JobItem],
    prefix: str,
    recovery: Recovery | None = None,
    *,
    measured: bool = False,
) -> Step:
    """Take a batch's items of one key, and store what changed. Raises `UserError` if the stored state is damaged.

    If the job is ``measured``, a step with output also has the values of the key's metrics.
    """
    stored = store.load_head()
    with _explained(key):
        head = FIRST if stored is None else Head.decode(stored)
    if stored is None and recovery is not None:
        head = Head(recovery.step, recovery.consumed, FIRST.token)
        for name, first in recovery.pages.items():
            store.save_page(name, first)
    token, state = cache.live.pop(key, (None, None))
    if state is None or token != head.token or stored is None:
        pages: Mapping[bytes, bytes] = store.load_pages()
        cache.restored(key, len(pages))
        with _explained(key), decoding("a saved page"):
            state = job.restore(key, pages)
    records = state.process(items)
    for name, page in state.changes():
        if page is None:
            store.remove_page(name)
        else:
            store.save_page(name, page)
    if measured and records:
        records = [*records, *_measured(job, key, state, cache)]
    after = head.after(items, prefix, emits=bool(records))
    encoded = after.encode()
    store.save_head(encoded)
    cache.live[key] = after.token, state
    output = BlockOutput(head.step if records else None, records)
    return Step(output, after.consumed, point_of(stored), point_of(encoded))


def _measured(job: Job, key: str, state: KeyedState, cache: KeyedCache) -> list[OutputRecord]:
    """Return the record with the values of a key's metrics, if its job has any.

    Faults of the plugin are said once, and leave the values out: the batch is worth more than its figures. The record takes the place of
    the one before, so a scrape does not show old values as those of now.
    """
    declared: Sequence[PluginMetric] = getattr(job, "metrics", ())
    measures: Measures | None = getattr(state, "measures", None)
    if not declared or measures is None:
        return []
    report = Report(KEY, key)
    try:
        metrics = exported(job.name, KEY, declared)
    except ValueError as error:
        fault: str | None = str(error)
    else:
        values, fault = asked(metrics, measures)
        if fault is None:
            fault = report.put_own(metrics.values(), values)
    if fault is not None and key not in cache.told:
        cache.told.add(key)
        cache.tell(f"job {job.name}: metrics of {key} are left out: {fault}")
    return [OutputRecord(METRICS, f"key/{key}".encode(), report.encode())]


@contextmanager
def _explained(key: str) -> Iterator[None]:
    """Turn errors in a key's stored state into what its user can do about them."""
    try:
        yield
    except DecodeError as error:
        raise UserError(
            f"{key}: its state in the checkpoint cannot be used: {error}: remove the job's checkpoint and start with --rebuild"
        ) from error


def ordered(job: Job, items: Sequence[JobItem]) -> list[JobItem]:
    """Return a batch's items in the order in which a state takes them: by topic as the job lists them, partition, offset."""
    rank = {topic: at for at, topic in enumerate((*job.causes, *job.effects))}
    return sorted(items, key=lambda item: (rank[item.topic], item.partition, item.offset))


class StepSink(KeptWriters[BatchWriter]):
    """Emits each step of a key once, in one transaction of the key's `BatchWriter` with its marker (`lanes.sink.Sink`).

    Exceptions of the writer propagate; after one the sink is unusable.
    """

    def __init__(self, open_writer: Callable[[str], BatchWriter]) -> None:
        super().__init__(open_writer)
        self._steps: dict[str, list[BlockOutput]] = {}

    def write(self, lane: str, output: list[BlockOutput]) -> None:
        """Take a batch's step, if it has one."""
        self._steps.setdefault(lane, []).extend(each for each in output if each.block is not None)

    def commit(self, lane: str, consumed: Consumed) -> dict[str, int]:
        """Commit a batch; a step that is already committed is left out. Raises `UserError` if the step is not the marker's or its next."""
        steps = self._steps.pop(lane, [])
        if not steps:
            return {}
        ((step, records),) = steps
        writer = self.writer(lane)
        marker = writer.marker(consumed)
        last = -1 if marker.block is None else marker.block
        if last == step and dict(marker.consumed) == dict(consumed):
            return {}
        if last + 1 != step:
            raise UserError(
                f"{lane}: step {step} does not follow step {last} on Kafka: another job has continued from an earlier checkpoint, or this "
                "checkpoint has been replaced; start the job with the checkpoint that was used last"
            )
        writer.write(records)
        writer.commit(marker.after(step, consumed))
        written: dict[str, int] = {}
        for record in records:
            written[record.topic] = written.get(record.topic, 0) + 1
        return written
