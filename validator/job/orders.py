# SPDX-License-Identifier: Apache-2.0
"""Parked lanes as an operator sees them, and the orders that let them continue."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from validator.checkpoint.files import checkpoint_id, consumed_by_batch, last_committed_batch
from validator.checkpoint.kafka import PERSON_S, SecondLook, cut_inputs
from validator.checkpoint.markers import read_markers
from validator.codec.inflight import Arrival, arrival
from validator.codec.json_form import shown_json
from validator.codec.orders import InputSpan, LaneOrder, encode_order
from validator.config.explain import chain_of
from validator.core.inputs import DeadLetter, Input, Source
from validator.core.limits import ORDER_SKIPS_MAX, ORDER_SPANS_MAX
from validator.errors import UserError
from validator.history.emitted import compare_lanes
from validator.history.engine import skipped_records
from validator.job.lag import Lag, lags
from validator.job.process import running_job
from validator.job.start_check import checkpoint_of, differences
from validator.kafka.reader import POLL_S, TopicReader
from validator.kafka.sender import RecordSender
from validator.lanes.auditing import fault_key
from validator.lanes.configured import chain_runtime, configured_codec, job_directory, lane_definition
from validator.lanes.kept_start import NOTHING, kept_starts, start_of
from validator.lanes.parked import Fault, parked_key, status_of
from validator.plugin.pack import use_artefacts
from validator.topics import INPUT_TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from validator.config import Config

BLOCKS: Final = "blocks"
"""The topic that carries orders, next to the lane's blocks."""

REMEDIES: Final[dict[str, str]] = {
    Fault.WAITING: "send what is missing, skip what is too far ahead (--skip), or raise the limit and restart the job",
    Fault.HANDLER: "deploy a handler that ends and restart the job, or skip the record with the message (--skip)",
    Fault.MEMORY: "nothing if a batch was too large; else raise [job] worker_memory and restart the job",
    Fault.WORKER: "raise [job] worker_memory, or deploy another version of the plugin, and restart the job",
    Fault.STATE: "nothing, if Kafka still has all its inputs, which are executed again; but first correct a handler that the reason names",
    Fault.AUDIT: 'report the bug with the block; [audit] on_fault = "report" and a restart let the lane continue all the same',
    Fault.MARKER: "let nobody but the job write to the topic markers; the lane then continues after its last receipt",
    Fault.CONFIGURATION: "correct the configuration and restart the job",
    Fault.INPUTS: "resume the lane some minutes later, which asks Kafka again; if it still lacks them, remove the job's checkpoint and "
    "import a later state of the lane with `validator lanes import`",
    Fault.BUG: "report the bug with the traceback in the job's log, to the author of a handler that the reason names; skip the record "
    "(--skip) if one is named",
}
"""By fault, what lets a lane continue."""


ORDERED: Final = "an order to resume is written; the job takes it with its next batch"


def awaits_order(parked: Mapping[str, Any] | None, parked_ms: int, lag: Lag) -> bool:
    """Return whether an order to a parked lane is not taken: the lane writes a `LaneParked` record whenever it takes one.

    ``parked_ms`` is when ``parked``, its last one, was written. Both times are the brokers' (`validator.kafka.topics`).
    """
    return parked is not None and parked["state"] == "parked" and (lag.order_ms or 0) > parked_ms


WORDS_MAX: Final = 3
"""Lanes that one line names."""


@dataclass(frozen=True, slots=True)
class LaneReports:
    """What the topic `lanes` says: by lane, the last status, the last record of a lane that is parked or resuming, and the last fault
    that an audit in the job found. ``parked_ms`` is when a record of ``parked`` was written, in Unix milliseconds."""

    statuses: dict[str, dict[str, Any]]
    parked: dict[str, dict[str, Any]]
    audits: dict[str, dict[str, Any]]
    parked_ms: dict[str, int] = field(default_factory=dict)

    def has_order(self, lane: str, lag: Lag) -> bool:
        """Return whether an order to resume a parked lane is written and the job has not taken it."""
        return awaits_order(self.parked.get(lane), self.parked_ms.get(lane, 0), lag)

    def words(self, lanes: Iterable[str], unread: Mapping[str, str], ordered: Collection[str] = ()) -> str:
        """Return why no further block of some lanes is executed, for one line; ``unread`` is of `unread_words`, by lane.

        Orders to resume the lanes ``ordered`` are written and not taken.
        """
        said = [self._words(lane, unread.get(lane)) + f"; {ORDERED}" * (lane in ordered) for lane in lanes]
        more = f"; {len(said) - WORDS_MAX} more lanes: see `validator lanes`" if len(said) > WORDS_MAX else ""
        return "; ".join(said[:WORDS_MAX]) + more

    def _words(self, lane: str, unread: str | None) -> str:
        status, parked = self.statuses.get(lane), self.parked.get(lane)
        if parked is not None and parked["state"] == "parked":
            return f"lane {lane} is parked: {without_lane(lane, parked['reason'])}"
        if status is None:
            return f"lane {lane}: {unread or 'no record has been sent'}"
        executed = "no block" if status["executed_block"] is None else f"block {status['executed_block']}"
        if unread is not None:  # the job said before these records came what the lane waits for
            return f"lane {lane} has executed {executed}; {unread}"
        waiting = (
            f"; {status['waiting']} record{'s wait' if status['waiting'] > 1 else ' waits'}"
            if status["waiting"]
            else ""
        )
        dead = f"; dead letters: {status['dead']}" if status["dead"] else ""
        return f"lane {lane} has executed {executed}, {status['waiting_for'] or 'and waits for nothing'}{waiting}{dead}"


def lane_reports(config: Config, progress_s: float | None = None) -> LaneReports:
    """Return what the job last said of each lane. Raises `UserError` if Kafka or the topic is not available.

    ``progress_s`` is of `TopicReader.read_to_end`.
    """
    found = LaneReports({}, {}, {}, {})
    with TopicReader(config.kafka, config.topics.prefix, ["lanes"], newest=True) as reader:
        for record in reader.read_to_end(progress_s):
            shown = shown_json("lanes", record.value)
            if record.key == fault_key(shown["lane"]):
                found.audits[shown["lane"]] = shown
            elif not (record.key or b"").endswith(b"/parked"):
                found.statuses[shown["lane"]] = shown
            elif shown["state"] == "running":
                found.parked.pop(shown["lane"], None)
            else:
                found.parked[shown["lane"]] = shown
                found.parked_ms[shown["lane"]] = record.timestamp_ms
    for lane, status in found.statuses.items():
        found.statuses[lane] = status_of(status, found.parked.get(lane))
    return found


def unread_words(config: Config, lag: Lag) -> str | None:
    """Return in words that no job has read some of a lane's records, and whether a job runs on this machine; None if all are read."""
    if not lag.records:
        return None
    least = "" if lag.complete else "at least "
    unread = f"{least}{lag.records} record{' is' if lag.records == 1 else 's are'} unread"
    if running_job(job_directory(config)) is not None:
        return f"{unread}: the job has not read {'it' if lag.records == 1 else 'them'} yet"
    return f"{unread}: no job has read {'it' if lag.records == 1 else 'them'}, and none runs here (`validator up` or `validator run`)"


@dataclass(frozen=True, slots=True)
class Waits:
    """Why no further output of some lanes comes, and whether something else than new records would bring it."""

    words: str
    is_stuck: bool


def why_lanes_wait(config: Config, lane: str | None) -> Waits:
    """Return why a lane, or each configured or known one, emits nothing more. Raises `UserError` as `lane_reports` and `lags` do."""
    reports = lane_reports(config)
    lanes = [lane] if lane is not None else sorted({*config.chains, *reports.statuses, *reports.parked})
    use_artefacts(config.plugins.artefacts)
    checkpoint = job_directory(config) / "checkpoint"
    behind = lags(config.kafka, config.topics.prefix, configured_codec(config), lanes, checkpoint, reports.parked)
    unread = {each: words for each in lanes if (words := unread_words(config, behind[each])) is not None}
    parked = any(reports.parked.get(each, {}).get("state") == "parked" for each in lanes)
    ordered = [each for each in lanes if reports.has_order(each, behind[each])]
    return Waits(reports.words(lanes, unread, ordered) or "no lane is configured", bool(unread) or parked)


def without_lane(lane: str, reason: str) -> str:
    """Return why a lane is parked without the words that name it, for a line that does."""
    return reason.removeprefix(f"lane {lane}: ")


def remedy_of(parked: dict[str, Any]) -> str:
    """Return what lets a parked lane continue."""
    return REMEDIES.get(parked["fault"], "see docs/parked-lanes.md")


def command_of(lane: str, fault: str) -> str:
    """Return the command that lets a lane continue after a fault."""
    return f"validator lanes resume --lane {lane}{' --rebuild' if fault == Fault.STATE else ''}"


def lost_inputs(config: Config, parked: dict[str, Any]) -> list[str]:
    """Return, in words, which held inputs of a lane are no longer in Kafka."""
    prefix = config.topics.prefix
    with TopicReader(config.kafka, prefix, list(INPUT_TOPICS)) as reader:
        firsts = {(prefix + topic, partition): first for (topic, partition), (first, _) in reader.spans().items()}
    return [
        f"{held['topic']}[{held['partition']}] from {held['first']}"
        for held in parked["held"]
        if firsts.get((held["topic"], held["partition"]), 0) > held["first"]
    ]


def place_of(text: str, prefix: str) -> Source:
    """Return the record that ``TOPIC:PARTITION:OFFSET`` names; the topic may be given without the prefix. Raises `UserError`."""
    topic, *numbers = text.rsplit(":", 2)
    name = topic.removeprefix(prefix)
    if len(numbers) != 2 or not all(number.isascii() and number.isdigit() for number in numbers):
        raise UserError(f"--skip {text}: expected TOPIC:PARTITION:OFFSET, such as candidates:0:17")
    if name not in INPUT_TOPICS:
        raise UserError(f"--skip {text}: expected one of the topics {', '.join(INPUT_TOPICS)}, found {topic}")
    return Source(prefix + name, int(numbers[0]), int(numbers[1]))


def order_to_resume(config: Config, lane: str, skips: Collection[Source], *, rebuild: bool = False) -> None:
    """Write the order that lets a parked lane continue without some records, with ``rebuild`` from its beginning.

    Errors, in order, each a `UserError`: the lane is not configured; it is not parked; too many records are named; an artefact cannot be
    used; a record is not in Kafka, belongs to another lane, or to a block whose output is already committed; the lane
    cannot be executed again from its first block.
    """
    chain_of(config.chains, lane)
    parked = lane_reports(config).parked.get(lane)
    if parked is None:
        raise UserError(f"lane {lane} is not parked")
    if rebuild and parked["state"] != "parked":
        raise UserError(f"lane {lane} is {parked['state']}: --rebuild is for a lane that is parked")
    named = skips
    if rebuild:  # what was skipped before is skipped again
        skips = {*named, *skipped_records(config.kafka, config.topics.prefix).get(lane, ())}
    if len(skips) > ORDER_SKIPS_MAX:
        raise UserError(f"--skip: expected at most {ORDER_SKIPS_MAX} records, found {len(skips)}")
    if skips or rebuild:
        use_artefacts(config.plugins.artefacts)  # a record is read with the schemas of its chain
    for source in sorted(named):
        _check_skip(config, lane, source)
    inputs: tuple[InputSpan, ...] = ()
    checkpoint = ""
    if rebuild:
        _check_beginning(config, lane)
        inputs = _inputs_of_job(config, lane)
        checkpoint = checkpoint_id(checkpoint_of(config))
    _write_order(config, lane, skips, inputs, checkpoint)


def _check_beginning(config: Config, lane: str) -> None:
    """Check that a lane can be executed again from its first block.

    It is a rebuild of one lane while the job runs, so it is refused for the same reasons as a start of the job with `--rebuild`. Errors, in
    order, each a `UserError`: the configuration differs from what the job has started with; retention has removed inputs; what
    the lane has emitted comes out differently.
    """
    definition = lane_definition(config, lane)
    folder = job_directory(config) / "lanes"
    kept = kept_starts(folder).get(lane)
    if kept is not None and differences(lane, kept, start_of(config, definition)):
        raise UserError(
            f"lane {lane}: the configuration differs from what the job has started with: start the job with it, or put it back"
        )
    SecondLook(config.kafka, PERSON_S).refuse_soon("first inputs", partial(cut_inputs, config, {lane: definition}))
    markers = read_markers(config.kafka, config.topics.prefix)
    emitted = {each: marker.block for each, marker in markers.items()}
    compare_lanes(config, {lane: definition}, emitted, NOTHING, {} if kept is None else {lane: kept})


def _inputs_of_job(config: Config, lane: str) -> tuple[InputSpan, ...]:
    """Return what the job has read of each partition. A lane that is parked holds everything after that.

    Raises `UserError` if there is no checkpoint here, since nobody else knows, or there are too many partitions.
    """
    checkpoint = checkpoint_of(config)
    try:
        ends = consumed_by_batch(checkpoint, last_committed_batch(checkpoint))
    except (UserError, OSError) as error:
        raise UserError(f"lane {lane}: --rebuild is for the machine with the job's checkpoint: {error}") from error
    prefix = config.topics.prefix
    with TopicReader(config.kafka, prefix, list(INPUT_TOPICS)) as reader:
        firsts = {(prefix + topic, partition): first for (topic, partition), (first, _) in reader.spans().items()}
    spans = [InputSpan(*place, firsts[place], end) for place, end in ends.items() if firsts.get(place, end) < end]
    if len(spans) > ORDER_SPANS_MAX:
        raise UserError(f"lane {lane}: expected at most {ORDER_SPANS_MAX} partitions with inputs, found {len(spans)}")
    return tuple(sorted(spans))


def _write_order(
    config: Config, lane: str, skips: Collection[Source], inputs: tuple[InputSpan, ...] = (), checkpoint: str = ""
) -> None:
    sender = RecordSender(config.kafka, config.topics.prefix)
    sender.check(BLOCKS)
    sender.send(BLOCKS, lane.encode(), encode_order(lane, frozenset(skips), inputs, checkpoint))
    sender.flush()


def _check_skip(config: Config, lane: str, source: Source) -> None:
    named, item = _record_at(config, source)
    where = f"--skip {source.topic}:{source.partition}:{source.offset}"
    if named != lane or isinstance(item, LaneOrder):
        raise UserError(f"{where}: it is not an input of lane {lane}")
    if isinstance(item, DeadLetter):
        raise UserError(f"{where}: it is a dead letter in any case: {item.detail}")
    marker = read_markers(config.kafka, config.topics.prefix).get(lane)
    emitted = None if marker is None else marker.block
    if isinstance(item, Input) and emitted is not None and item.block <= emitted:
        raise UserError(f"{where}: it belongs to block {item.block}, and the output up to block {emitted} is committed")


def _record_at(config: Config, source: Source) -> tuple[str, Arrival]:
    topic = source.topic.removeprefix(config.topics.prefix)
    lanes = {lane: chain_runtime(chain, lane).records for lane, chain in config.chains.items()}
    with TopicReader(config.kafka, config.topics.prefix, [topic], partitions=[source.partition], nulls=True) as reader:
        first, end = reader.spans()[topic, source.partition]
        if first <= source.offset < end:
            reader.restart(topic, source.partition, source.offset)
            for record in reader.read_to_end():
                if record.offset == source.offset:
                    value = record.value or None
                    return arrival(configured_codec(config), INPUT_TOPICS[topic], value, source, record.key, lanes)
                break
    raise UserError(f"--skip {source.topic}:{source.partition}:{source.offset}: Kafka has no record there")


def resume(
    config: Config,
    lane: str,
    skips: Collection[Source],
    seconds_max: float,
    told: Callable[[dict[str, Any]], None],
    *,
    rebuild: bool = False,
) -> dict[str, Any] | None:
    """Order a lane to continue, and order it on after each share of its inputs, since it may have no others that would wake it.

    ``told`` gets each record of how it is. Returns the last one once the lane runs or is parked again, None if it has said nothing for
    ``seconds_max``. Raises `UserError` as `order_to_resume`.
    """
    with TopicReader(config.kafka, config.topics.prefix, ["lanes"]) as reader:
        for _ in reader.read_to_end():
            pass
        order_to_resume(config, lane, skips, rebuild=rebuild)
        deadline = time.monotonic() + seconds_max
        while time.monotonic() < deadline:
            for record in reader.poll(POLL_S):
                if record.key != parked_key(lane):
                    continue
                shown = shown_json("lanes", record.value)
                told(shown)
                if shown["state"] != "resuming":
                    return shown
                _write_order(config, lane, ())
                deadline = time.monotonic() + seconds_max
    return None
