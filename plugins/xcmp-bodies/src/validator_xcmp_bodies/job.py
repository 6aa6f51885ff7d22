# SPDX-License-Identifier: Apache-2.0
"""The operator of bodies as a job of the product (`validator.plugin.job_api`), with the table `[jobs.xcmp-bodies]` of the configuration.

A chain's recipients are divided into *buckets*, by para id modulo their number. Each bucket is one state with one producer. A block's
receipt goes to all buckets of its chain, since it is their clock; an event or a part of a body goes to its recipient's.

What a batch holds is ordered: events, receipts, then bodies. The job reads events and receipts without a limit (`Job.causes`), so the body
of a sender that waited for its event is never early.
"""

from __future__ import annotations

import marshal
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from validator.plugin.job_api import (
    DAY_MS,
    FOREVER,
    MINUTE_MS,
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
from validator_xcmp_bodies import limits, records
from validator_xcmp_bodies.bodies import Bodies
from validator_xcmp_bodies.outcomes import (
    BodyPart,
    EventKind,
    Held,
    IngressEvent,
    Outcome,
    RecordOffset,
    Refused,
    Settings,
    Wanted,
    malformed,
)
from validator_xcmp_bodies.pages import Pages, recovered_pages, restore
from validator_xcmp_bodies.parts import BodyError, Condensed
from validator_xcmp_bodies.queue import Content, Name

PROTOCOL: Final = "xcmp-network"
"""Chains of this protocol have bodies, unless the table names the chains."""
CAPACITY_LIMIT: Final = "max_channel_messages"
"""The limit of that protocol that bounds a channel; senders see it as the capacity in their credits."""

_RANGES: Final = {
    "buckets": (1, limits.BUCKETS_MAX),
    "retention_hours": (limits.RETENTION_HOURS_MIN, 24 * 365),
    "wanted_after_blocks": (1, U32_MAX),
    "wanted_interval_blocks_max": (1, U32_MAX),
    "wanted_per_batch_max": (1, 65_536),
    "sender_requests": (0, U32_MAX),
    "unlisted_bytes": (0, limits.UNLISTED_TOTAL_BYTES_MAX),
    "unlisted_blocks": (1, U32_MAX),
    "alarm_blocks": (1, U32_MAX),
    "capacity_messages": (1, U32_MAX),
}


@dataclass(frozen=True, slots=True)
class Options:
    """``buckets`` is into how many shares a chain's recipients are divided; it can never change once the job has run."""

    chains: tuple[str, ...]
    settings: Mapping[str, Settings]
    """By chain."""
    buckets: int = 1
    retention_hours: int = limits.RETENTION_HOURS_MIN

    @classmethod
    def read(cls, context: JobContext) -> Options:
        """Read the table. Raises `UserError` that names the key, what was expected and what was found."""
        where = f"[jobs.{context.name}]"
        options = dict(context.options)
        chains = _chains(where, options.pop("chains", None), context.chains)
        for key, value in options.items():
            if key not in _RANGES:
                raise UserError(f"{where} {key}: no such key; there are chains, {', '.join(_RANGES)}")
            _number(where, key, value)
        buckets = options.pop("buckets", 1)
        retention = options.pop("retention_hours", limits.RETENTION_HOURS_MIN)
        settings = {
            lane: Settings(**{"capacity_messages": _capacity(context.chains[lane]), **options}) for lane in chains
        }
        return cls(chains, settings, buckets, retention)


def alarm_blocks(name: str, table: Mapping[str, Any]) -> int:
    """Return the key of a job's table, or its default; other keys are not looked at. Raises `UserError`."""
    return _number(f"[jobs.{name}]", "alarm_blocks", table.get("alarm_blocks", limits.ALARM_BLOCKS))


def _number(where: str, key: str, value: Any) -> int:
    least, most = _RANGES[key]
    if type(value) is not int or not least <= value <= most:
        raise UserError(f"{where} {key}: expected {least} to {most}, found {value!r}")
    return value


def _chains(where: str, named: Any, configured: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    if named is None:
        chains = sorted(lane for lane, chain in configured.items() if chain["protocol"] == PROTOCOL)
        if not chains:
            raise UserError(f"{where} chains: no chain has protocol {PROTOCOL!r}: name the chains that have bodies")
        return tuple(chains)
    if not isinstance(named, list | tuple) or not named or not all(isinstance(lane, str) for lane in named):
        raise UserError(f"{where} chains: expected a list of chains, found {named!r}")
    for lane in named:
        if lane not in configured:
            raise UserError(f"{where} chains: {lane} is not configured in [chains]")
    return tuple(sorted(set(named)))


def _capacity(chain: Mapping[str, Any]) -> int:
    for table in chain.get("limits", {}).values():
        if isinstance(table, Mapping) and isinstance(table.get(CAPACITY_LIMIT), int):
            return int(table[CAPACITY_LIMIT])
    return limits.CAPACITY_MESSAGES


JOB: Final = "xcmp-bodies"
DETAIL_CHARACTERS_MAX: Final = 400
"""Characters of the reason why a record cannot be read."""


METRICS: Final = (
    PluginMetric("height", "The last executed block that the operator knows of."),
    PluginMetric("queues", "Ingress queues of recipients."),
    PluginMetric("unread_messages", "Entries of those queues that are not acknowledged."),
    PluginMetric("missing_bodies", "Entries whose body is not held."),
    PluginMetric("waiting_bytes", "Bytes of incomplete and unlisted bodies in memory."),
    PluginMetric("alarms", "Queues whose front is too old."),
    PluginMetric("held_bodies_total", "Bodies that were verified."),
    PluginMetric("held_bytes_total", "Bytes of those bodies."),
    PluginMetric("refused_records_total", "Records of bodies that were dropped, by kind of the refusal.", ("kind",)),
    PluginMetric("requests_total", "Requests for bodies that are missing."),
)
"""What a bucket measures."""


def open_job(context: JobContext) -> Job:
    """Return the job. Raises `UserError`."""
    return BodiesJob(Options.read(context))


@dataclass(frozen=True, slots=True)
class BodiesJob:
    """The job for the chains of its options."""

    name: ClassVar = JOB
    command: ClassVar = "messages run"
    """Its log has the alarms, too."""
    metrics: ClassVar = METRICS
    causes: ClassVar = (records.INGRESS, records.RECEIPTS)
    effects: ClassVar = (records.BODIES,)
    """A sender writes a body after it has read the event that lists it."""
    remembered: ClassVar = (records.INGRESS, records.HELD)
    """What is queued, and which bodies are held."""

    options: Options

    @property
    def topics(self) -> tuple[Topic, ...]:
        """The topics of bodies and of what is said about them."""
        hours = self.options.retention_hours
        return (
            Topic(records.BODIES, None, "delete", hours * 60 * MINUTE_MS, "parts of bodies of XCMP messages"),
            Topic(records.HELD, None, "delete", hours * 60 * MINUTE_MS, "verified bodies, and where their parts are"),
            Topic(records.REFUSED, None, "delete", 7 * DAY_MS, "records of bodies that are dropped, and why"),
            Topic(records.WANTED, None, "delete", DAY_MS, "requests to senders for bodies that are missing"),
            Topic(records.FLOW, None, "compact", FOREVER, "what each sender may still send to each recipient"),
            Topic(records.QUEUES, None, "compact", FOREVER, "status of each recipient's ingress queue"),
        )

    @property
    def forms(self) -> dict[str, TopicForm]:
        """The forms of these topics."""
        return records.forms(self.options.chains)

    @property
    def keys(self) -> tuple[str, ...]:
        """One key for each bucket of each chain; no chain's name has a slash."""
        buckets = self.options.buckets
        return tuple(_bucket(lane, number, buckets) for lane in self.options.chains for number in range(buckets))

    def check_written(self, keys: Iterable[str]) -> None:
        """Refuse another number of buckets than that of the output: each has a part of the queues, and a place in its inputs."""
        for key in keys:
            lane, _, rest = key.partition(f"/{JOB}/")
            before = rest.rpartition("-")[2]
            if rest and lane in self.options.settings and before != str(self.options.buckets):
                raise UserError(
                    f"[jobs.{JOB}] buckets: expected {before}, with which Kafka holds output of {lane}, found {self.options.buckets}; "
                    "it can only change with another [topics] prefix"
                )

    def condense(self, record: JobRecord) -> Iterable[tuple[str, bytes]]:
        """Return an event, a height or a part whose payloads are hashed, for the buckets that need it."""
        if record.topic == records.BODIES:
            return (self._condense_body(record),)
        if record.topic == records.RECEIPTS:
            return self._condense_receipt(record)
        return self._condense_event(record)

    def restore(self, key: str, pages: Mapping[bytes, bytes]) -> KeyedState:
        """Return a bucket's state."""
        lane = key.split("/", 1)[0]
        return Bucket(lane, restore(self.options.settings[lane], pages), pages)

    def recover(
        self, key: str, found: Iterable[JobRecord], consumed: Mapping[tuple[str, int], int]
    ) -> dict[bytes, bytes]:
        """Return the bodies that are held for messages still queued, and up to where refusals were emitted."""
        queued: set[tuple[int, Name]] = set()
        held: dict[tuple[int, Name], Content] = {}
        for record in found:
            if record.topic == records.HELD:
                lane, body = records.decode_held(record.value)
                if self._owner(lane, body.recipient) == key:
                    held[body.recipient, (body.sent_at, body.sender)] = Content(body.payloads, body.places)
            else:
                lane, event = records.decode_event(record.value)
                if event is None or self._owner(lane, event.recipient) != key:
                    continue
                place = event.recipient, (event.sent_at, event.sender)
                (queued.add if event.kind is EventKind.QUEUED else queued.discard)(place)
        adopted: dict[int, dict[Name, Content]] = {}
        for recipient, name in sorted(queued & held.keys()):
            adopted.setdefault(recipient, {})[name] = held[recipient, name]
        below = {partition: offset for (topic, partition), offset in consumed.items() if topic == records.BODIES}
        return recovered_pages(adopted, below)

    def _condense_event(self, record: JobRecord) -> Iterator[tuple[str, bytes]]:
        lane, event = records.decode_event(record.value)
        if lane in self.options.settings and event is not None:
            plain = (event.block, event.kind.value, *event[2:])
            yield self._owner(lane, event.recipient), marshal.dumps(plain)

    def _condense_receipt(self, record: JobRecord) -> Iterator[tuple[str, bytes]]:
        receipt = records.decode(records.RECEIPTS, record.value)
        if receipt["lane"] in self.options.settings:
            block = marshal.dumps(receipt["block"])
            for number in range(self.options.buckets):
                yield _bucket(receipt["lane"], number, self.options.buckets), block

    def _condense_body(self, record: JobRecord) -> tuple[str, bytes]:
        try:
            lane, part, _ = records.decode_body(record.value)
        except (RecordUnreadable, BodyError) as error:
            return self.keys[0], marshal.dumps(str(error)[:DETAIL_CHARACTERS_MAX])
        if lane not in self.options.settings:
            return self.keys[0], marshal.dumps(f"lane: {lane[:64]!r} has no bodies")
        plain = (*part[:-1], tuple(part.content))
        return self._owner(lane, part.recipient), marshal.dumps(plain)

    def _owner(self, lane: str, recipient: int) -> str:
        return _bucket(lane, recipient % self.options.buckets, self.options.buckets)


def _bucket(lane: str, number: int, buckets: int) -> str:
    """Return a bucket's key, which says how many there are (`BodiesJob.check_written`)."""
    return f"{lane}/{JOB}/{number}-{buckets}"


class Bucket:
    """The state of one bucket (`validator.plugin.job_api.KeyedState`)."""

    def __init__(self, lane: str, bodies: Bodies, stored: Mapping[bytes, bytes]) -> None:
        self._lane = lane
        self._bodies = bodies
        self._pages = Pages(bodies, stored)
        self._held = self._held_bytes = self._requests = 0
        self._refused: Counter[str] = Counter()

    def process(self, items: Sequence[JobItem]) -> list[OutputRecord]:
        """Take a batch: events, receipts, bodies; return what it led to."""
        bodies = self._bodies
        for topic, partition, offset, content in items:
            plain = marshal.loads(content)  # noqa: S302 - written by `BodiesJob.condense` in the same batch
            if topic == records.INGRESS:
                block, kind, *rest = plain
                bodies.apply(IngressEvent(block, EventKind(kind), *rest))
            elif topic == records.RECEIPTS:
                bodies.advance(plain)
            elif isinstance(plain, str):
                bodies.say(Refused(malformed(plain), RecordOffset(partition, offset)))
            else:
                *claim, condensed = plain
                bodies.offer(BodyPart._make((*claim, Condensed(*condensed))), RecordOffset(partition, offset))
        outcomes = bodies.finish()
        self._count(outcomes)
        return records.encode_outcomes(self._lane, outcomes)

    def measures(self) -> Iterator[Measure]:
        """Yield the bucket's figures."""
        statuses = list(self._bodies.statuses())
        yield Measure("height", self._bodies.height)
        yield Measure("queues", len(statuses))
        yield Measure("unread_messages", sum(each.unread for each in statuses))
        yield Measure("missing_bodies", sum(each.missing for each in statuses))
        yield Measure("waiting_bytes", sum(each.waiting_bytes for each in statuses))
        yield Measure("alarms", sum(each.alarm for each in statuses))
        yield Measure("held_bodies_total", self._held)
        yield Measure("held_bytes_total", self._held_bytes)
        yield Measure("requests_total", self._requests)
        for kind, count in sorted(self._refused.items()):
            yield Measure("refused_records_total", count, (kind,))

    def _count(self, outcomes: Sequence[Outcome]) -> None:
        for each in outcomes:
            match each:
                case Held(size=size):
                    self._held += 1
                    self._held_bytes += size
                case Refused(refusal):
                    self._refused[refusal.kind] += 1
                case Wanted():
                    self._requests += 1
                case _:
                    pass

    def changes(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Return the pages that have changed."""
        return self._pages.changes()
