# SPDX-License-Identifier: Apache-2.0
"""Reads dead letters, and the ledger of replays: which dead letters were put back, and where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from validator.codec.codec import RecordChecks
from validator.codec.decode import decode_record
from validator.codec.encode import OutputRecord, write
from validator.codec.json_form import encode_input, shown_json, to_json
from validator.codec.schemas import schemas
from validator.core.hashing import blake2b_256
from validator.core.inputs import DeadLetter, DeadReason, Source, Whole
from validator.errors import UserError
from validator.hexadecimal import to_hex
from validator.kafka.reader import TopicReader, TopicRecord
from validator.kafka.registry import plain_values
from validator.lanes.configured import chain_runtime, configured_codec, protocol_of
from validator.plugin.runtime import RuntimePlan, codec_of
from validator.strict_json import JsonRefused, read_json
from validator.topics import DEAD_LETTER_REPLAYS, DEAD_LETTERS, INPUT_TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from validator.codec.codec import Codec
    from validator.config import Config
    from validator.kafka.settings import KafkaTable

LETTERS: Final = DEAD_LETTERS
LEDGER: Final = DEAD_LETTER_REPLAYS


class DeadLetterOffset(NamedTuple):
    """The position of a dead letter on its topic."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}/{self.offset}"


class StoredLetter(NamedTuple):
    """A dead letter on its topic. ``source`` is where its record was read from, with the topic's full name."""

    place: DeadLetterOffset
    timestamp_ms: int
    lane: str
    reason: str
    detail: str
    source: Source
    block: int | None
    index: int | None  # type: ignore[assignment]  # shadows tuple.index
    raw: bytes
    whole: Whole | None = None
    """Describes the complete value if ``raw`` has only its ends."""

    @property
    def size(self) -> int:
        """Bytes of the record's complete value."""
        return len(self.raw) if self.whole is None else self.whole.size

    @classmethod
    def of(cls, record: TopicRecord, prefix: str) -> StoredLetter:
        """Decode a record of the topic. Raises `UserError`."""
        datum = to_json(LETTERS, record.value)
        topic = datum["topic"]
        source = Source(prefix + topic if topic in INPUT_TOPICS else topic, datum["partition"], datum["offset"])
        fields = (datum["lane"], datum["reason"], datum["detail"], source, datum["block"], datum["index"])
        size, digest = datum["whole_bytes"], datum["whole_hash"]
        whole = None if size is None else Whole(size, None if digest is None else bytes.fromhex(digest))
        raw = bytes.fromhex(datum["raw"])
        return cls(DeadLetterOffset(record.partition, record.offset), record.timestamp_ms, *fields, raw, whole)


class Replay(NamedTuple):
    """One ledger entry: the record of ``letter`` was put back as ``record``; ``repaired`` means with different bytes."""

    letter: DeadLetterOffset
    attempt: int
    record: Source
    repaired: bool
    timestamp_ms: int = 0

    def encode(self) -> OutputRecord:
        """Return the entry as a record of its topic. Every attempt has its own key, so that compaction removes none."""
        datum = {
            "letter_partition": self.letter.partition,
            "letter_offset": self.letter.offset,
            "attempt": self.attempt,
            **self.record._asdict(),
            "repaired": self.repaired,
        }
        return OutputRecord(
            LEDGER, f"{self.letter}/{self.attempt}".encode(), write(schemas()["validator.DeadLetterReplay"], datum)
        )

    @classmethod
    def of(cls, record: TopicRecord) -> Replay:
        """Decode a record of the topic. Raises `UserError`."""
        datum = to_json(LEDGER, record.value)
        source = Source(datum["topic"], datum["partition"], datum["offset"])
        letter = DeadLetterOffset(datum["letter_partition"], datum["letter_offset"])
        return cls(letter, datum["attempt"], source, datum["repaired"], record.timestamp_ms)


class Ledger:
    """All replays so far."""

    def __init__(self, replays: Iterable[Replay] = ()) -> None:
        self._by_letter: dict[DeadLetterOffset, list[Replay]] = {}
        self._by_record: dict[Source, Replay] = {}
        for replay in replays:
            self.add(replay)

    def add(self, replay: Replay) -> None:
        self._by_letter.setdefault(replay.letter, []).append(replay)
        self._by_record[replay.record] = replay

    def replays_of(self, letter: DeadLetterOffset) -> list[Replay]:
        """Return the replays of a dead letter, by ascending attempt."""
        return sorted(self._by_letter.get(letter, ()), key=lambda replay: replay.attempt)

    def origin(self, source: Source) -> Replay | None:
        """Return the replay that wrote the record at ``source``; None if no replay did."""
        return self._by_record.get(source)

    def next_attempt(self, letter: StoredLetter) -> int:
        """Return the attempt number of a dead letter's next replay: 1 for a record that was never put back."""
        origin = self.origin(letter.source)
        before = 0 if origin is None else origin.attempt
        return 1 + max([before, *(replay.attempt for replay in self.replays_of(letter.place))])


NEAREST_OFFSETS_MAX: Final = 10_000
"""Offsets before a wrong place in which the nearest dead letter is looked for."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Selects dead letters; None matches any value."""

    lane: str | None = None
    reason: str | None = None

    def takes(self, letter: StoredLetter) -> bool:
        return self.lane in (None, letter.lane) and self.reason in (None, letter.reason)


class LetterReader(TopicReader):
    """Reads the topic of dead letters: all that exist now, or one by its place. Reads only committed records.

    ``stranger`` is called with a line about each record that is not a dead letter. Raises `UserError` as `TopicReader` does.
    """

    def __init__(self, kafka: KafkaTable, prefix: str, stranger: Callable[[str], None]) -> None:
        super().__init__(kafka, prefix, [LETTERS])
        self._stranger = stranger
        self._spans = {partition: span for (_, partition), span in self.spans().items()}

    @property
    def partitions(self) -> int:
        return len(self._spans)

    def letters(self) -> Iterator[StoredLetter]:
        """Yield the dead letters that existed when the reader was created, without those that a replay adds meanwhile."""
        for record in self.read_to_end():
            if record.offset < self._spans[record.partition][1]:
                try:
                    yield StoredLetter.of(record, self._prefix)
                except UserError as error:
                    self._stranger(f"{LETTERS} {record.partition}/{record.offset}: {error}")

    def at(self, place: DeadLetterOffset) -> StoredLetter | None:
        """Return the dead letter at a place, None if there is none (any more). Raises `UserError` if the record is not a dead letter."""
        first, end = self._spans.get(place.partition, (0, 0))
        if not first <= place.offset < end:
            return None
        self.restart(LETTERS, *place)
        for record in self.read_to_end():
            if record.partition == place.partition and record.offset >= place.offset:
                return StoredLetter.of(record, self._prefix) if record.offset == place.offset else None
        return None

    def get(self, place: DeadLetterOffset) -> StoredLetter:
        """Return the dead letter at a place. Raises `UserError` if there is none."""
        found = self.at(place)
        if found is None:
            raise UserError(f"no dead letter at {place}: {self._what_there_is(place)}")
        return found

    def _what_there_is(self, place: DeadLetterOffset) -> str:
        """Describe the dead letters next to a place: ends of transactions have offsets, too."""
        if place.partition not in self._spans:
            return f"{self._prefix}{LETTERS} has {self.partitions} partition{'' if self.partitions == 1 else 's'}"
        first, end = self._spans[place.partition]
        before, after = None, None
        if end > first:
            self.restart(LETTERS, place.partition, max(first, min(place.offset, end) - NEAREST_OFFSETS_MAX))
            for record in self.read_to_end():
                if record.partition == place.partition and record.offset < end:
                    if record.offset > place.offset:
                        after = record.offset
                        break
                    before = record.offset
        nearest = [str(DeadLetterOffset(place.partition, each)) for each in (before, after) if each is not None]
        if not nearest:
            return f"there is none near it in partition {place.partition} of {self._prefix}{LETTERS}"
        return f"the nearest {'are' if len(nearest) > 1 else 'is'} {' and '.join(nearest)}"

    def place(self, text: str) -> DeadLetterOffset:
        """Parse ``OFFSET`` or ``PARTITION/OFFSET``. Raises `UserError`."""
        numbers = text.split("/")
        if len(numbers) > 2 or not all(each.isascii() and each.isdecimal() and len(each) < 20 for each in numbers):
            raise UserError(f"PLACE: expected OFFSET or PARTITION/OFFSET, found {text!r}")
        if len(numbers) == 1 and self.partitions > 1:
            raise UserError(
                f"PLACE: {self._prefix}{LETTERS} has {self.partitions} partitions: expected PARTITION/OFFSET, found {text!r}"
            )
        return DeadLetterOffset(int(numbers[0]) if len(numbers) == 2 else 0, int(numbers[-1]))

    def history(self, letter: StoredLetter, ledger: Ledger) -> list[Replay]:
        """Return all replays of a letter's record by ascending attempt: those that led to this letter, then the letter's own."""
        before: list[Replay] = []
        found: StoredLetter | None = letter
        while found is not None:
            origin = ledger.origin(found.source)
            if origin is None or (before and origin.attempt >= before[-1].attempt):
                break
            before.append(origin)
            found = self.at(origin.letter)
        return [*reversed(before), *ledger.replays_of(letter.place)]


def completed(letter: StoredLetter, kafka: KafkaTable) -> StoredLetter:
    """Return a letter with its record's complete value, fetched from where it was read if the letter has only its ends.

    Raises `UserError` if Kafka does not answer, if the record is no longer there, and if it is another one.
    """
    if letter.whole is None:
        return letter
    topic, partition, offset = letter.source
    place = f"{topic}[{partition}]@{offset}"
    with TopicReader(kafka, "", [topic], partitions=[partition], keeps_form=True) as reader:
        first, end = reader.spans().get((topic, partition), (0, 0))
        value = None
        if first <= offset < end:
            reader.restart(topic, partition, offset)
            value = next((record.value for record in reader.read_to_end() if record.offset >= offset), None)
    if value is None:
        raise UserError(f"dead letter {letter.place} has only the ends of {letter.size} bytes, and {place} is gone")
    size, digest = letter.whole

    def is_it(form: bytes) -> bool:
        return len(form) == size and digest in (None, blake2b_256(form))

    if not is_it(value):  # the letter has the plain form of a record whose schema id was known
        value = plain_values(kafka)(value)
    if not is_it(value):
        of_hash = "" if digest is None else f" of BLAKE2b-256 {to_hex(digest)}"
        found = f"expected {letter.size} bytes{of_hash}, found {len(value)} other bytes"
        raise UserError(f"dead letter {letter.place}: {place} holds another record: {found}")
    return letter._replace(raw=value, whole=None)


def lane_records(config: Config, lane: str) -> dict[str, RecordChecks]:
    """Return the checks on a lane's records; empty if the lane is not configured. Raises `UserError`."""
    chain = config.chains.get(lane)
    return {} if chain is None else {lane: chain_runtime(chain, lane).records}


def read_repaired(path: Path, letter: StoredLetter, config: Config) -> bytes:
    """Return a repaired record value from a file: the file's bytes, or encoded from JSON if its name ends in .json. Raises `UserError`."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    if path.suffix != ".json":
        return data
    try:
        return encode_repaired(data, letter, config)
    except JsonRefused as error:
        raise UserError(f"{path}{error.place}: {error}") from error
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def encode_repaired(text: bytes, letter: StoredLetter, config: Config) -> bytes:
    """Encode a repaired record in JSON for the topic of a dead letter. Raises `JsonRefused` and `UserError`."""
    kind = INPUT_TOPICS.get(letter.source.topic.removeprefix(config.topics.prefix))
    if kind is None:
        return text  # `judge` refuses every record of such a topic and says why
    protocol = protocol_of(config, letter.lane)
    return encode_input(codec_of([RuntimePlan(protocol)]), kind, read_json(text), protocol)


def decoded(letter: StoredLetter, raw: bytes, config: Config) -> tuple[dict[str, Any] | None, str | None]:
    """Decode ``raw`` as a record of the dead letter's topic; return it in JSON, and why it would be dead on arrival.

    Only the record itself is checked: that it decodes, and that its lane is configured if any lane is. Either part may be None, or neither.
    """
    name = letter.source.topic.removeprefix(config.topics.prefix)
    kind = INPUT_TOPICS.get(name)
    if kind is None:
        return (
            None,
            f"{letter.source.topic} is not one of the input topics {', '.join(config.topics.prefix + each for each in INPUT_TOPICS)}",
        )
    codec = configured_codec(config)
    raw = plain_values(config.kafka)(raw)
    item = decode_record(codec, kind, raw, letter.source, letter.lane.encode(), lane_records(config, letter.lane))
    if isinstance(item, DeadLetter):
        return _json_or_none(name, raw, codec), f"{item.reason.name}: {item.detail}"
    lane, _ = item
    # a configuration without chains only says where Kafka is, as for `submit`
    known = not config.chains or lane in config.chains
    problem = None if known else f"{DeadReason.UNKNOWN_LANE.name}: lane {lane!r} is not configured"
    return shown_json(name, raw, codec), problem


def _json_or_none(topic: str, raw: bytes, codec: Codec) -> dict[str, Any] | None:
    try:
        return shown_json(topic, raw, codec)
    except UserError:
        return None


def read_ledger(kafka: KafkaTable, prefix: str) -> Ledger:
    """Read all replays so far. Raises `UserError`."""
    with TopicReader(kafka, prefix, [LEDGER]) as reader:
        return Ledger(map(Replay.of, reader.read_to_end()))


def summary(letter: StoredLetter, ledger: Ledger) -> dict[str, Any]:
    """Return a dead letter in JSON, without its raw bytes."""
    replays = ledger.replays_of(letter.place)
    return {
        "place": str(letter.place),
        "timestamp_ms": letter.timestamp_ms,
        "lane": letter.lane,
        "reason": letter.reason,
        "detail": letter.detail,
        "topic": letter.source.topic,
        "partition": letter.source.partition,
        "offset": letter.source.offset,
        "block": letter.block,
        "index": letter.index,
        "bytes": letter.size,
        "whole_hash": None if letter.whole is None or letter.whole.hash is None else to_hex(letter.whole.hash),
        "attempt": ledger.next_attempt(letter),
        "replayed": replay_json(replays[-1]) if replays else None,
    }


def replay_json(replay: Replay) -> dict[str, Any]:
    return {
        "letter": str(replay.letter),
        "attempt": replay.attempt,
        **replay.record._asdict(),
        "repaired": replay.repaired,
        "timestamp_ms": replay.timestamp_ms,
    }
