# SPDX-License-Identifier: Apache-2.0
"""Checks that retention has not removed inputs: those after a checkpoint, or those that a lane needs from its first block on.

Retention removes the oldest records. A lane whose first blocks are gone would wait for them forever; the check names the missing block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from validator.checkpoint.files import consumed_so_far
from validator.checkpoint.second_look import Lack
from validator.codec.decode import decode_record
from validator.core.inputs import DeadLetter, Input, RecordKind, Source
from validator.core.records import block_record
from validator.core.types import BlockNumber, BlockRecord
from validator.errors import Unavailable, UserError
from validator.kafka.reader import TopicReader
from validator.topics import INPUT_TOPICS, TOPIC_OF_KIND

if TYPE_CHECKING:
    from pathlib import Path

    from validator.codec.codec import Codec
    from validator.kafka.settings import KafkaTable

_COUNTED: Final = {RecordKind.CANDIDATE: "candidates", RecordKind.REQUEST: "requests", RecordKind.DOWNWARD: "downward"}


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
