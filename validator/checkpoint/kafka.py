# SPDX-License-Identifier: Apache-2.0
"""What Kafka still has of what a checkpoint, or a lane from its first block on, needs: topics, inputs, markers.

A topic that is deleted and created again has the same name, and may have grown past the checkpoint's offsets, but its id is another. So the
ids are kept in a file next to the checkpoint. Retention removes the oldest records. A lane whose first blocks are gone would wait for them
forever; the check names the missing block.

*Looking twice.* A broker that has just become a leader, or a client that has just lost one, may say for a moment that records, partitions
or topics are not there. Whoever follows a message that says to remove or to rebuild something then removes a good checkpoint. So what Kafka
seems to lack has to be seen twice, some time apart, the second time by a new client at each broker (`SecondLook`). Until then it is
`Unavailable`, for which a job waits. What Kafka has needs no second look, such as the marker of a lane: no broker makes that up. Neither
does what a local file says.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeAlias

from validator.checkpoint.files import consumed_by_batch, consumed_so_far, has_checkpoint, last_begun_batch
from validator.codec.decode import decode_record
from validator.core.inputs import DeadLetter, Input, RecordKind, Source
from validator.core.records import block_record
from validator.core.types import BlockNumber, BlockRecord
from validator.errors import GivenUp, Unavailable, UserError, written_by_newer
from validator.kafka.reader import TopicReader
from validator.kafka.topics import each_broker, topic_ids
from validator.lanes.definition import job_codec
from validator.lanes.marker import Marker
from validator.private import write_private
from validator.topics import INPUT_TOPICS, TOPIC_OF_KIND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from validator.codec.codec import Codec
    from validator.config import Config
    from validator.kafka.settings import KafkaTable
    from validator.lanes.definition import LaneDefinition

    Question: TypeAlias = "Callable[[KafkaTable], Lack | None]"
    """Asks Kafka, with its own client; None if nothing is lacking. Raises `UserError` as its readers do."""


FILE: Final = "topics.json"
VERSION: Final = 1
"""The file of the ids, and its version."""

_COUNTED: Final = {RecordKind.CANDIDATE: "candidates", RecordKind.REQUEST: "requests", RecordKind.DOWNWARD: "downward"}


def refuse_written(prefix: str, checkpoint: Path, lanes: Iterable[str], markers: Mapping[str, Marker]) -> None:
    """Raise `UserError` if Kafka already holds a lane's output, since a job without a checkpoint would start over.

    Nothing would be emitted twice. But if the chain itself has started over, its first blocks would count as already emitted.
    """
    for lane in lanes:
        block = markers[lane].block if lane in markers else None
        if block is not None:
            raise UserError(
                f"{prefix}verdicts holds lane {lane} up to block {block}, but {checkpoint} has no checkpoint: start with --rebuild to "
                "execute the inputs again and emit only what is missing, or use another [topics] prefix"
            )


# --- the topics of a checkpoint ----------------------------------------------------------------------------------------------------------


def checked_ids(
    kafka: KafkaTable, prefix: str, topics: Iterable[str], checkpoint: Path, second: SecondLook
) -> dict[str, str]:
    """Return the ids to keep of the topics that a job reads. Raises `UserError` if one is another than the checkpoint has read.

    Not compared is a topic of which Kafka names no id, and one that is not in the file: a later version reads more topics, and an earlier
    one has kept no ids. Raises `UserError` and `Unavailable` as `SecondLook.refuse`.
    """
    names = [prefix + topic for topic in topics]
    if not has_checkpoint(checkpoint):
        return topic_ids(kafka, names)
    found = kept = kept_ids(checkpoint)

    def other(kafka: KafkaTable) -> Lack | None:
        nonlocal found
        found = topic_ids(kafka, names)
        for topic, found_id in sorted(found.items()):
            if kept.get(topic, found_id) != found_id:
                return Lack(
                    f"{topic} has id {found_id}, but {checkpoint} has read the one with id {kept[topic]}",
                    "it is another topic or another Kafka than the job read: check [kafka] bootstrap.servers; if the topics were created "
                    f"again, remove the checkpoint; if they are a copy with the same offsets, remove {checkpoint.with_name(FILE)}",
                )
        return None

    second.refuse("ids of topics", other)
    return kept | found


def keep_ids(checkpoint: Path, ids: Mapping[str, str]) -> None:
    """Write the ids of a checkpoint's topics, in place of those of an earlier start. Raises `OSError`."""
    path = checkpoint.with_name(FILE)
    if ids or path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, json.dumps({"version": VERSION, "ids": dict(ids)}, indent=1) + "\n")


def kept_ids(checkpoint: Path) -> dict[str, str]:
    """Return the ids that are kept, none without a file. Raises `UserError` for one that is damaged or newer."""
    path = checkpoint.with_name(FILE)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if (version := values["version"]) != VERSION:
            raise written_by_newer(path, VERSION, version)
        return {str(topic): str(each) for topic, each in values["ids"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"{path}: expected ids of topics: {error}: remove it if the topics were not created again"
        ) from error


def other_topics(config: Config, checkpoint: Path, kafka: KafkaTable) -> Lack | None:
    """Return whether an input topic ends before what the checkpoint has consumed: it was created again. Raises `UserError`.

    This needs no ids of topics, which a Kafka may not name, and an earlier version has not kept.
    """
    consumed = consumed_by_batch(checkpoint, last_begun_batch(checkpoint))
    with TopicReader(kafka, config.topics.prefix, list(INPUT_TOPICS)) as reader:
        ends = {(config.topics.prefix + topic, part): end for (topic, part), (_, end) in reader.spans().items()}
    for (topic, partition), offset in sorted(consumed.items()):
        end = ends.get((topic, partition))
        if end is None or end < offset:
            found = "has no such partition" if end is None else f"ends at offset {end}"
            return Lack(
                f"{topic}[{partition}] {found}, but {checkpoint} has consumed it up to {offset}",
                "it is another topic or another Kafka than the job read: check [kafka] bootstrap.servers; if the topics were created "
                "again, remove the checkpoint",
            )
    return None


def unread_inputs(checkpoint: Path, kafka: KafkaTable) -> Lack | None:
    """Return whether Kafka no longer has what follows the last complete batch of a checkpoint. Raises `UserError`."""
    consumed = consumed_so_far(checkpoint)
    if not consumed:
        return None
    advice = (
        "retention removed them before the job read them, or their topic was created again: remove the checkpoint and import a later state "
        "of the lanes with `validator lanes import`"
    )
    try:
        with TopicReader(kafka, "", sorted({topic for topic, _ in consumed})) as reader:
            spans = reader.spans()
    except Unavailable:
        raise
    except UserError as error:  # a topic does not exist
        return Lack(str(error), advice)
    for (topic, partition), offset in sorted(consumed.items()):
        first, end = spans.get((topic, partition), (0, 0))
        if not first <= offset <= end:
            found = f"begins at offset {first}" if offset < first else f"ends at offset {end}"
            return Lack(
                f"Kafka does not have inputs that the job has not read ({topic}[{partition}] was read up to offset {offset}, and {found})",
                advice,
            )
    return None


def refuse_lost_inputs(second: SecondLook, checkpoint: Path) -> None:
    """Look whether Kafka still has what follows a checkpoint, before a query reads it.

    Raises `UserError` if Kafka cannot be asked, `Unavailable` while a loss is not certain, and `GivenUp` once it is.
    """
    try:
        second.refuse("unread inputs", partial(unread_inputs, checkpoint))
    except SeenTwice as lost:
        raise GivenUp(str(lost)) from None


# --- the first inputs of a lane ----------------------------------------------------------------------------------------------------------


def cut_inputs(config: Config, definitions: Mapping[str, LaneDefinition], kafka: KafkaTable) -> Lack | None:
    """Return whether retention has removed the first inputs of a lane, which would wait for them forever. Raises `UserError`."""
    starts = {lane: definition.first_block for lane, definition in definitions.items()}
    ahead = max((definition.settings.blocks_ahead_max for definition in definitions.values()), default=0)
    codec = job_codec(definitions.values())
    for lane, (block, lacks) in missing_blocks(kafka, config.topics.prefix, codec, starts, ahead).items():
        return Lack(
            f"lane {lane}: block {block} is missing: {lacks}",
            f"retention has removed the rest, and the lane cannot start with block {starts[lane]}: import the state after a later block "
            "with `validator lanes import`",
        )
    return None


@dataclass(slots=True)
class _Chain:
    """The block records of one lane."""

    start: BlockNumber
    by_parent: dict[BlockNumber, BlockRecord] = field(default_factory=dict)
    first: BlockNumber | None = None

    def add(self, record: BlockRecord) -> None:
        self.by_parent.setdefault(record.parent_number, record)
        self.first = record.block if self.first is None else min(self.first, record.block)

    def first_with(self, kind: RecordKind) -> BlockRecord | None:
        """Return the first block that has records of a kind."""
        record = self.by_parent.get(self.start - 1)
        while record is not None and not getattr(record, _COUNTED[kind]):
            record = self.by_parent.get(record.block)
        return record


def refuse_missing(kafka: KafkaTable, prefix: str, codec: Codec, definition: LaneDefinition, failing: str) -> None:
    """Raise `UserError`, whose line begins with ``failing``, if a lane cannot be executed from its first block; ``codec`` as below."""
    lane, ahead = definition.name, definition.settings.blocks_ahead_max
    for block, lacks in missing_blocks(kafka, prefix, codec, {lane: definition.first_block}, ahead).values():
        raise UserError(f"{failing}: block {block} is missing: {lacks}, retention has removed the rest")


def missing_blocks(
    kafka: KafkaTable, prefix: str, codec: Codec, starts: Mapping[str, BlockNumber], blocks_ahead_max: int
) -> dict[str, tuple[BlockNumber, str]]:
    """Return, by lane, the first block that can no longer be executed, and the reason in words; complete lanes are omitted.

    ``codec`` reads the lanes' records and ``starts`` has their first blocks. If nothing was ever removed, this takes one call. Otherwise it
    reads the topic of blocks to its end, and each cut topic until the records of its first block are found or ``blocks_ahead_max`` blocks
    have passed. Raises `UserError` if Kafka does not answer.
    """
    cut = _cut_topics(kafka, prefix)
    if not cut:
        return {}
    chains = {lane: _Chain(start) for lane, start in starts.items()}
    for lane, item in _inputs(kafka, prefix, codec, "blocks"):
        if lane in chains:
            chains[lane].add(block_record(item.fields))
    missing: dict[str, tuple[BlockNumber, str]] = {}
    for lane, chain in chains.items():
        if "blocks" in cut and chain.by_parent.get(chain.start - 1) is None:
            rest = "holds no record of the lane" if chain.first is None else f"begins with block {chain.first}"
            missing[lane] = (chain.start, f"{prefix}blocks {rest}")
    for kind in _COUNTED:
        topic = TOPIC_OF_KIND[kind]
        if topic in cut:
            wanted = {lane: record for lane, chain in chains.items() if (record := chain.first_with(kind)) is not None}
            for lane, (block, lacks) in _incomplete(kafka, prefix, codec, kind, wanted, blocks_ahead_max).items():
                if lane not in missing or block < missing[lane][0]:
                    missing[lane] = (block, lacks)
    return missing


def _cut_topics(kafka: KafkaTable, prefix: str) -> set[str]:
    with TopicReader(kafka, prefix, list(INPUT_TOPICS)) as reader:
        return {topic for (topic, _), (beginning, _) in reader.spans().items() if beginning > 0}


def _incomplete(
    kafka: KafkaTable,
    prefix: str,
    codec: Codec,
    kind: RecordKind,
    wanted: Mapping[str, BlockRecord],
    blocks_ahead_max: int,
) -> dict[str, tuple[BlockNumber, str]]:
    """Return the lanes whose wanted block lacks records of a kind."""
    name = _COUNTED[kind]
    lacking = {lane: set(range(getattr(record, name))) for lane, record in wanted.items()}
    looking = set(lacking)
    for lane, item in _inputs(kafka, prefix, codec, TOPIC_OF_KIND[kind]):
        if not looking:
            break
        if lane not in looking:
            continue
        block = wanted[lane].block
        if item.block == block:
            lacking[lane].discard(item.index)
        if not lacking[lane] or item.block > block + blocks_ahead_max:  # a lane would not accept its records any later
            looking.discard(lane)
    return {
        lane: (
            wanted[lane].block,
            f"{prefix}{TOPIC_OF_KIND[kind]} holds {(count := getattr(wanted[lane], name)) - len(indexes)} of its {count} records",
        )
        for lane, indexes in lacking.items()
        if indexes
    }


def _inputs(kafka: KafkaTable, prefix: str, codec: Codec, topic: str) -> Iterator[tuple[str, Input]]:
    kind = INPUT_TOPICS[topic]
    with TopicReader(kafka, prefix, [topic]) as reader:
        for record in reader.read_to_end():
            source = Source(topic, record.partition, record.offset)
            decoded = decode_record(codec, kind, record.value, source, record.key)
            if not isinstance(decoded, DeadLetter):
                yield decoded


JOB_S: Final = 120.0
"""Seconds between the two looks of a job: a leader that has died has long been replaced."""

LOOKS_IN_PATIENCE: Final = 4
"""Looks for which `[job] give_up_after` leaves time if it is short."""

PERSON_S: Final = 10.0
"""Seconds between them where a person, or the batch of a job, waits for the answer."""


class Lack(NamedTuple):
    """What Kafka seems to lack, and what to do about it once that is certain."""

    fact: str
    advice: str = ""


class NotSure(Unavailable):
    """Something was seen that has to be seen again."""


class SeenTwice(UserError):
    """Something was seen twice, and by all brokers; the text says what to do."""


class SecondLook:
    """Remembers by subject when something was first seen to lack. ``brokers`` returns the tables of clients that ask one broker each."""

    def __init__(
        self,
        kafka: KafkaTable,
        after_s: float = JOB_S,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        brokers: Callable[[KafkaTable], Iterable[KafkaTable]] = each_broker,
    ) -> None:
        self._kafka, self._after_s = kafka, after_s
        self._clock, self._sleep, self._brokers = clock, sleep, brokers
        self._first: dict[str, float] = {}

    @classmethod
    def of_job(cls, config: Config) -> Self:
        """Return how a job looks twice: within the time that it waits for what is outside."""
        return cls(config.kafka, min(JOB_S, config.job.give_up_after / LOOKS_IN_PATIENCE))

    def refuse(self, subject: str, question: Question) -> None:
        """Return if nothing is lacking.

        Raises `UserError` as the question; `NotSure` until that was first seen ``after_s`` seconds ago, and while brokers do not agree;
        then `SeenTwice`.
        """
        found = question(self._kafka)
        if found is None:
            self._first.pop(subject, None)
            return
        first = self._first.setdefault(subject, self._clock())
        if self._clock() - first < self._after_s:
            raise NotSure(
                f"{found.fact}: this may pass, and is looked at again {self._after_s:.0f} s after it was first seen"
            )
        for kafka in self._brokers(self._kafka):
            if question(kafka) is None:
                del self._first[subject]
                raise NotSure(
                    f"{found.fact}, but not for the broker {kafka['bootstrap.servers']}: they are asked again"
                )
        advice = f": {found.advice}" if found.advice else ""
        raise SeenTwice(f"{found.fact} (seen twice, {self._after_s:.0f} s apart){advice}")

    def refuse_soon(self, subject: str, question: Question) -> None:
        """Wait between the two looks instead of raising `NotSure` after the first one; otherwise as `refuse`."""
        try:
            self.refuse(subject, question)
        except NotSure:
            self._sleep(self._after_s)
            self.refuse(subject, question)
