# SPDX-License-Identifier: Apache-2.0
"""Executes a lane's inputs again before a rebuild, and compares each block with what the lane has emitted.

A rebuild emits nothing for blocks that are already emitted. If it executed them differently, the lane would continue from a state that does
not fit its own verdicts. So all records of these blocks must be equal; only the runtime digest may differ, since it names versions of
programs, and fields that the program of then did not have. State roots are compared where both sides have one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from validator.codec.json_form import comparable_json, error_fields, shown_json, to_json, without_clause
from validator.errors import UserError
from validator.hexadecimal import bare
from validator.history.engine import Engine, Replica, recorded_inputs
from validator.history.expectation import has
from validator.kafka.reader import TopicReader
from validator.lanes.definition import job_codec
from validator.lanes.kept_start import OPTION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from validator.codec.codec import Codec
    from validator.codec.encode import OutputRecord
    from validator.config import Config
    from validator.core.outcomes import Executed
    from validator.core.types import BlockNumber
    from validator.kafka.settings import KafkaTable
    from validator.lanes.definition import LaneDefinition
    from validator.lanes.kept_start import Accepted, LaneStart

COMPARED: Final = ("verdicts", "dispatches", "channel-events", "ingress-events", "receipts")
"""The topics whose records are compared with a second execution, in the order in which a block emits them."""

DIFFERENCE_CHARACTERS_MAX: Final = 200
"""Characters of one side of a difference in the error."""


class EmittedDiffers(UserError):
    """A block would not be rebuilt as it was emitted; ``topic`` has what ``there`` says, a second execution what ``here`` says."""

    def __init__(self, lane: str, block: BlockNumber, topic: str, there: str, here: str) -> None:
        self.block, self.topic, self.there, self.here = block, topic, there, here
        super().__init__(
            f"lane {lane}: block {block} would not be rebuilt as it was emitted: {topic} has {there}, the rebuild {here}: start "
            f"with the configuration, plugins and program of then, or accept other results from this block on with {OPTION} "
            f"{lane}:{block}"
        )


def compare_lanes(
    config: Config,
    definitions: Mapping[str, LaneDefinition],
    emitted: Mapping[str, BlockNumber | None],
    accepted: Accepted,
    before: Mapping[str, LaneStart],
    compared: Callable[[str, BlockNumber], None] = lambda *_: None,
) -> None:
    """Execute lanes again up to what they have emitted, or accept to be other than that. Raises `UserError` at the first difference.

    ``emitted`` has the last block of each lane, ``before`` what is kept of it. ``compared`` is called with a lane and the last block that
    will be compared, before these blocks are executed.
    """
    codec = job_codec(definitions.values())
    for lane, definition in definitions.items():
        block = emitted.get(lane)
        if block is None or lane in accepted.genesis:
            continue
        last = min(block, accepted.blocks.get(lane, block + 1) - 1)
        compared(lane, last)
        try:
            _compare_lane(config.kafka, config.topics.prefix, codec, definition, last)
        except EmittedDiffers as error:
            since = [
                f"blocks before {change.from_block} were executed with {change.key} {change.before}, which was changed to {change.now}, "
                f"and a rebuild executes every block under one value"
                for change in (before[lane].changes if lane in before else ())
            ]
            raise UserError("; ".join([str(error), *since])) from None


def _compare_lane(kafka: KafkaTable, prefix: str, codec: Codec, definition: LaneDefinition, last: BlockNumber) -> None:
    """Execute a lane up to block ``last``. Raises `EmittedDiffers` at the first record that differs, with both sides."""
    replica = Replica.create(definition, f"lane {definition.name}: its inputs cannot be executed again")
    with ExitStack() as stack:
        inputs = stack.enter_context(closing(recorded_inputs(kafka, prefix, codec, definition)))
        emitted = [stack.enter_context(closing(Emitted(kafka, prefix, topic, definition.name))) for topic in COMPARED]

        def observe(executed: Sequence[Executed]) -> bool:
            block = executed[0].receipt.block
            if block > last:
                return True
            records = replica.processor.encoded(executed[0])
            for topic in emitted:
                topic.compare(block, [record for record in records if record.topic == topic.name])
            return block == last

        Engine(inputs, [replica]).run(observe)


def emitted_values(reader: TopicReader, lane: str) -> Iterator[bytes]:
    """Yield the records of a lane on the topics of a reader, as values."""
    key = lane.encode()
    return (record.value for record in reader.read_to_end() if record.key == key)


class OtherRuntime(NamedTuple):
    """The first block whose records carry another runtime digest than a second execution gives them; both in hex."""

    block: BlockNumber
    there: str
    here: str


class Emitted:
    """What a lane has emitted to one topic, block by block."""

    _open_end = True
    """Whether the last records of a block may be behind an open transaction."""

    def __init__(self, kafka: KafkaTable, prefix: str, topic: str, lane: str) -> None:
        self._reader = TopicReader(kafka, prefix, [topic])
        self._begin(topic, lane, cut=any(low for low, _ in self._reader.spans().values()))

    def _begin(self, topic: str, lane: str, *, cut: bool) -> None:
        self.name, self._lane, self._cut = topic, lane, cut
        self.other_runtime: OtherRuntime | None = None
        self.ended_before: BlockNumber | None = None
        """The first block with records of which, and of all later ones, nothing is there to compare with."""
        self._blocks: Iterator[tuple[BlockNumber, list[Any]]] = self._ordered(self._read())
        self._next = next(self._blocks, None)

    def close(self) -> None:
        self._reader.close()

    def has_since(self, block: BlockNumber) -> bool:
        """Return whether the lane has emitted records of a block, or of a later one, that are not compared yet."""
        return self._next is not None and self._next[0] >= block

    def compare(self, block: BlockNumber, records: list[OutputRecord]) -> None:
        """Raise `UserError` if the block's records are not those that the lane has emitted."""
        if self._next is None and records and self.ended_before is None:
            self.ended_before = block
        if self._next is None or (self._cut and block <= self._next[0]):
            if (
                self._next is not None and block == self._next[0]
            ):  # retention may have removed the first records of this one
                self._cut, self._next = False, next(self._blocks, None)
            return
        if self._next[0] < block:
            raise self._differs(self._next[0], "the block", "no such block")
        there = self._next[1] if self._next[0] == block else []
        if self._next[0] == block:
            self._next = next(self._blocks, None)
        for one, other in zip(there, (record.value for record in records), strict=False):
            self._check(block, one, other)
        ends_here = self._open_end and self._next is None and len(there) < len(records)
        if len(there) != len(records) and not ends_here:
            raise self._differs(block, f"{len(there)} {self.name}", str(len(records)))

    def _check(self, block: BlockNumber, one: bytes, other: bytes) -> None:
        if one != other:
            there, here = comparable_json(self.name, one, other)
            self._note_runtime(block, there.get("runtime_digest"), here.get("runtime_digest"))
            self._compare(block, _meaning(there), _meaning(here))

    def _note_runtime(self, block: BlockNumber, there: str | None, here: str | None) -> None:
        if self.other_runtime is None and there is not None and here is not None and bare(there) != bare(here):
            self.other_runtime = OtherRuntime(block, bare(there), bare(here))

    def _compare(self, block: BlockNumber, one: dict[str, Any], other: dict[str, Any]) -> None:
        if (
            one.get("state_root") is None or other.get("state_root") is None
        ):  # [job] root_interval_blocks may have changed
            one, other = (
                {name: value for name, value in each.items() if name != "state_root"} for each in (one, other)
            )
        for name in dict.fromkeys((*one, *other)):
            if one.get(name) != other.get(name):
                parts = (one.get(part) for part in PLACE)
                place = " ".join(str(each) for each in parts if each is not None)
                there, here = (_short(_value(name, each)) for each in (one, other))
                raise self._differs(block, f"{place}{': ' if place else ''}{name} {there}", here)

    def _differs(self, block: BlockNumber, there: str, here: str) -> EmittedDiffers:
        return EmittedDiffers(self._lane, block, self.name, there, here)

    def _ordered(self, blocks: Iterator[tuple[BlockNumber, list[Any]]]) -> Iterator[tuple[BlockNumber, list[Any]]]:
        """Yield the same blocks. Raises `EmittedDiffers` for one that is there again, or behind a later one."""
        last: BlockNumber | None = None
        for block, records in blocks:
            if last is not None and block <= last:
                raise self._differs(block, f"records of the block behind block {last}", "none there")
            last = block
            yield block, records

    def _read(self) -> Iterator[tuple[BlockNumber, list[bytes]]]:
        values = emitted_values(self._reader, self._lane)
        for block, group in groupby(values, key=lambda value: int(to_json(self.name, value)["block"])):
            yield block, list(group)


class EmittedInFile(Emitted):
    """The same from documents that `validator watch TOPIC --json` has written. Members that a document lacks are not compared."""

    _open_end = False

    def __init__(self, documents: Iterator[dict[str, Any]], topic: str, lane: str) -> None:
        self._documents = documents
        self._begin(topic, lane, cut=False)

    def close(self) -> None:
        pass

    def _check(self, block: BlockNumber, one: Any, other: bytes) -> None:
        there, here = without_clause(one), without_clause(shown_json(self.name, other))
        self._note_runtime(block, there.get("runtime_digest"), here.get("runtime_digest"))
        other_names = [name for name, value in _meaning(there).items() if not has(here.get(name), value)]
        other_names += ["error"] if "ok" in other_names else []
        place = {name: here.get(name) for name in PLACE}
        self._compare(block, *(place | {name: each.get(name) for name in other_names} for each in (there, here)))

    def _read(self) -> Iterator[tuple[BlockNumber, list[Any]]]:
        of_lane = (each for each in self._documents if each["lane"] == self._lane)
        for block, group in groupby(of_lane, key=lambda each: int(each["block"])):
            yield block, list(group)


PLACE: Final = ("kind", "index", "handler")
"""Members that say which record of a block one is."""


def _value(name: str, record: dict[str, Any]) -> object:
    """Return a member for people: of a verdict that is rejected, also why."""
    value, error = record.get(name), record.get("error")
    if name != "ok" or not isinstance(error, dict):
        return value
    fields = ", ".join(f"{field} {number}" for field, number in error_fields(error).items())
    return f"{value} ({error.get('kind')}{': ' if fields else ''}{fields})"


def _meaning(record: dict[str, Any]) -> dict[str, Any]:
    return {name: field for name, field in record.items() if name != "runtime_digest"}


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= DIFFERENCE_CHARACTERS_MAX else text[: DIFFERENCE_CHARACTERS_MAX - 1] + "…"
