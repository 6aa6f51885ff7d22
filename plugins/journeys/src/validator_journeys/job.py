# SPDX-License-Identifier: Apache-2.0
"""Journeys as a job of the product (`validator.plugin.job_api`), with the table `[jobs.journeys]` of the configuration.

A lane is one key: its blocks are one ordered stream, and a block is applied when its receipt has come. The receipts are the job's effects.
A lane writes a receipt in one transaction with everything else that its block emits, after it has read the block's inputs. So no batch
holds a receipt without the facts of its block, and no fact has to wait for a timer. A job without a checkpoint reads a limited backlog, and
takes messages that were queued before it as those of a lane that began with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from validator.plugin.job_api import (
    Job,
    JobContext,
    JobItem,
    JobRecord,
    KeyedState,
    Measure,
    OutputRecord,
    PluginMetric,
    RecordUnreadable,
    Topic,
    TopicForm,
    UserError,
)
from validator.plugin.protocol_api import U32_MAX
from validator_journeys import records
from validator_journeys.facts import Place, Source, encode_fact
from validator_journeys.options import numbers
from validator_journeys.pages import changes, restore
from validator_journeys.plain import decode_plain, encode_plain
from validator_journeys.waiting import Channels, Step, Waiting

JOB: Final = "journeys"

BACKLOG_RECORDS_MAX: Final = 200_000
"""Records of each partition that a first start reads: a batch takes all causes there are, with at most some 0.5 KiB for each in memory."""

_RANGES: Final = {"retention_days": (1, 3650), "timeout_blocks": (1, U32_MAX)}


@dataclass(frozen=True, slots=True)
class Options:
    """``protocols`` has the protocol of each of ``chains``. A message that waits for more than ``timeout_blocks`` is overdue."""

    chains: tuple[str, ...]
    protocols: Mapping[str, str]
    """By chain."""
    retention_days: int = 30
    timeout_blocks: int = 600

    @classmethod
    def read(cls, context: JobContext) -> Options:
        """Read the table. Raises `UserError` that names the key, what was expected and what was found."""
        where = f"[jobs.{context.name}]"
        options = dict(context.options)
        chains = _chains(where, options.pop("chains", None), context.chains)
        given = numbers(context, options, _RANGES, "chains")
        return cls(chains, {lane: context.chains[lane]["protocol"] for lane in chains}, **given)


def _chains(where: str, named: Any, configured: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    if named is None:
        return tuple(sorted(configured))
    if not isinstance(named, list | tuple) or not named or not all(isinstance(lane, str) for lane in named):
        raise UserError(f"{where} chains: expected a list of chains, found {named!r}")
    for lane in named:
        if lane not in configured:
            raise UserError(f"{where} chains: {lane} is not configured in [chains]")
    return tuple(sorted(set(named)))


METRICS: Final = (
    PluginMetric("height", "The last executed block that the job knows of."),
    PluginMetric("waiting_messages", "Messages that wait in a queue, by kind.", ("kind",)),
    PluginMetric("oldest_age_blocks", "Blocks since the message that has waited longest was queued; 0 if none waits."),
    PluginMetric("pending_candidates", "Candidates that wait for their inclusion."),
    PluginMetric("blocks_ahead", "Blocks with inputs whose receipt has not come."),
    PluginMetric("dropped_inputs_total", "Inputs too far ahead that were dropped: their messages have no content."),
    PluginMetric("ended_messages_total", "Messages that ended, by kind, and by fate or outcome.", ("kind", "outcome")),
    PluginMetric("overdue_messages_total", "Messages that had waited longer than timeout_blocks when they ended."),
)


def open_job(context: JobContext) -> Job:
    """Return the job. Raises `UserError`."""
    return JourneysJob(Options.read(context))


@dataclass(frozen=True, slots=True)
class JourneysJob:
    """The job for the chains of its options."""

    name: ClassVar = JOB
    metrics: ClassVar = METRICS
    backlog_records_max: ClassVar = BACKLOG_RECORDS_MAX
    causes: ClassVar = (
        records.BLOCKS,
        records.CANDIDATES,
        records.DOWNWARD,
        records.VERDICTS,
        records.DISPATCHES,
        records.EVENTS,
    )
    effects: ClassVar = (records.RECEIPTS,)
    remembered: ClassVar = (records.JOURNEYS,)
    """Which messages wait, and their numbers."""

    options: Options

    @property
    def topics(self) -> tuple[Topic, ...]:
        """The topic of messages."""
        return (records.journeys_topic(self.options.retention_days),)

    @property
    def forms(self) -> dict[str, TopicForm]:
        """The form of this topic."""
        return records.forms()

    @property
    def keys(self) -> tuple[str, ...]:
        """One key for each chain; no chain's name has a slash."""
        return tuple(map(_key, self.options.chains))

    def check_written(self, keys: Iterable[str]) -> None:
        """Accept any output: no option divides the keys."""

    def condense(self, record: JobRecord) -> Iterable[tuple[str, bytes]]:
        """Return a record's place and fact, or a receipt's block."""
        if record.topic == records.RECEIPTS:
            try:
                receipt = records.decode(record.topic, record.value)
            except RecordUnreadable:
                return
            if receipt["lane"] in self.options.protocols:
                yield _key(receipt["lane"]), encode_plain(receipt["block"])
            return
        protocols = tuple(sorted(set(self.options.protocols.values())))
        found = records.fact_of(record.topic, protocols, record.value)
        if found is not None and found[0] in self.options.protocols:
            lane, place, fact = found
            yield _key(lane), encode_plain((place.block, int(place.source), place.index, encode_fact(fact)))

    def restore(self, key: str, pages: Mapping[bytes, bytes]) -> KeyedState:
        """Return a lane's state."""
        lane, channels = self._lane(key)
        own = {name: page for name, page in pages.items() if not name.startswith(_RECOVERED)}
        recovered = None
        if _RECOVERED in pages:
            theirs = {
                name[1:]: page for name, page in pages.items() if name.startswith(_RECOVERED) and name != _RECOVERED
            }
            recovered = Recovered(dict(decode_plain(pages[_RECOVERED])), restore(lane, channels, theirs), tuple(theirs))
        return LaneJourneys(restore(lane, channels, own), set(own), self.options.timeout_blocks, recovered)

    def recover(
        self, key: str, found: Iterable[JobRecord], consumed: Mapping[tuple[str, int], int]
    ) -> dict[bytes, bytes]:
        """Return up to which receipts everything has been emitted, since the output follows from receipts alone, and what waited then."""
        below = [(partition, end) for (topic, partition), end in sorted(consumed.items()) if topic == records.RECEIPTS]
        remembered = records.remembered(*self._lane(key), (record.value for record in found))
        pages = {_RECOVERED + name: page for name, page in changes(remembered, set()) if page is not None}
        return {_RECOVERED: encode_plain(below), **pages}

    def _lane(self, key: str) -> tuple[str, Channels]:
        lane = key.split("/", 1)[0]
        return lane, records.channels_of(self.options.protocols[lane])


_RECOVERED: Final = b"r"
"""The page of a `Recovered`, and the first byte of the names of its other pages."""


def _key(lane: str) -> str:
    return f"{lane}/{JOB}"


class Recovered(NamedTuple):
    """What a state without a checkpoint begins with.

    ``silent_below`` are, by partition, the offsets of receipts up to which the output is on Kafka already. ``waiting`` are the queues after
    these receipts, as the output says, and ``pages`` the names of the pages that hold them.
    """

    silent_below: Mapping[int, int]
    waiting: Waiting
    pages: tuple[bytes, ...]


class LaneJourneys:
    """The state of one lane (`validator.plugin.job_api.KeyedState`).

    One that was recovered emits nothing until the first receipt whose output is not on Kafka.
    """

    def __init__(
        self, waiting: Waiting, stored: set[bytes], timeout_blocks: int, recovered: Recovered | None = None
    ) -> None:
        self.waiting = waiting
        self._stored = stored
        self._timeout_blocks = timeout_blocks
        self._recovered = recovered
        self._gone: tuple[bytes, ...] = ()
        """The pages of a recovered state that is no longer needed."""
        self._ended: Counter[tuple[str, str]] = Counter()
        self._overdue = 0

    def process(self, items: Sequence[JobItem]) -> list[OutputRecord]:
        """Take a batch: facts, then receipts; return a record for each step of a message."""
        output: list[OutputRecord] = []
        for topic, partition, offset, content in items:
            plain = decode_plain(content)
            if topic != records.RECEIPTS:
                block, source, index, fact = plain
                self.waiting.add(Place(block, Source(source), index), fact)
                continue
            silent = self._recovered is not None and self._is_silent(self._recovered, partition, offset)
            steps = self.waiting.apply(plain)
            if not silent:
                output += map(records.encode_step, steps)
                self._count(steps)
        return output

    def _is_silent(self, recovered: Recovered, partition: int, offset: int) -> bool:
        """Return whether the output of a receipt is on Kafka; before the first one whose output is not, take what waited there."""
        if offset < recovered.silent_below.get(partition, 0):
            return True
        self.waiting.adopt(recovered.waiting)
        self._recovered, self._gone = None, (_RECOVERED, *(_RECOVERED + name for name in recovered.pages))
        return False

    def changes(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the pages that have changed."""
        yield from changes(self.waiting, self._stored)
        yield from ((name, None) for name in self._gone)
        self._gone = ()

    def measures(self) -> Iterator[Measure]:
        """Yield the lane's figures."""
        waiting = self.waiting
        counts: Counter[str] = Counter()
        for (sender, recipient), queue in waiting.queues.items():
            kind = "upward" if recipient is None else "downward" if sender is None else "horizontal"
            counts[kind] += len(queue.waiting)
        oldest = waiting.oldest()
        yield Measure("height", max(waiting.height, 0))
        for kind in ("downward", "horizontal", "upward"):
            yield Measure("waiting_messages", counts[kind], (kind,))
        yield Measure("oldest_age_blocks", 0 if oldest is None else waiting.height - oldest)
        yield Measure("pending_candidates", sum(map(len, waiting.pending.values())))
        yield Measure("blocks_ahead", len(waiting.ahead))
        yield Measure("dropped_inputs_total", waiting.dropped_inputs)
        for labels, count in sorted(self._ended.items()):
            yield Measure("ended_messages_total", count, labels)
        yield Measure("overdue_messages_total", self._overdue)

    def _count(self, steps: Iterable[Step]) -> None:
        for identity, queued, end, _ in steps:
            if end is None:
                continue
            self._ended[str(identity.kind), end.detail or str(end.fate)] += 1
            if queued is not None and end.block - queued.block > self._timeout_blocks:
                self._overdue += 1
