# SPDX-License-Identifier: Apache-2.0
"""What a client needs of the log that it writes to and reads from; Kafka, and a list in memory that runs the lanes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from threading import Condition
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from uuid import uuid4

from confluent_kafka import OFFSET_BEGINNING

from validator.ask.dry_run import Answerer, Asked
from validator.ask.standings import standing_of_lane
from validator.client.streams import NOW
from validator.codec.decode import decode_record
from validator.codec.dry_runs import decode_answer, encode_request
from validator.codec.encode import encode_dead_letter
from validator.core.inputs import DeadLetter, Source
from validator.errors import UserError
from validator.job.lag import lags
from validator.kafka.reader import POLL_S, TopicReader, TopicRecord
from validator.kafka.sender import RecordSender
from validator.kafka.settings import WHOLE
from validator.kafka.settings import Reading as ConsumerReading
from validator.kafka.topics import id_of
from validator.lanes.configured import configured_codec, job_directory
from validator.lanes.processor import LaneProcessor
from validator.topics import DRY_RUN_ANSWERS, DRY_RUN_REQUESTS, INPUT_TOPICS, LANES

if TYPE_CHECKING:
    from validator.client.streams import Begin
    from validator.codec.codec import Codec
    from validator.codec.dry_runs import DryRunAnswer, DryRunRequest
    from validator.config import Config
    from validator.kafka.settings import KafkaTable
    from validator.lanes.definition import LaneDefinition

TOGETHER_MAX: Final = 10_000
"""Records that are read before the topic's id is asked again; an answer takes longer than a poll. A last poll may exceed it."""
TOGETHER_BYTES: Final = 16 * 1024 * 1024
"""The same for bytes of their values."""


class Manner(NamedTuple):
    """How a Kafka backend reads: the consumer, how long Kafka may take to answer, and the bounds of what one poll returns."""

    reading: ConsumerReading = WHOLE
    patience_s: float | None = None
    together_max: int = TOGETHER_MAX
    together_bytes: int = TOGETHER_BYTES


ASK_AGAIN_S: Final = 2.0
"""Seconds without records after which a stream asks whether its topic was made again, or has further partitions."""


class Reading(Protocol):
    """Reads one topic from chosen offsets on."""

    @property
    def topic_id(self) -> str | None:
        """The id of the topic that is read, None if Kafka names none."""

    @property
    def spans(self) -> Mapping[int, tuple[int, int]]:
        """By partition, the first available offset and the one after the last, as they were when reading began."""

    @property
    def at_end(self) -> bool:
        """Whether every partition has been read to its end at least once."""

    def go_to(self, offsets: Mapping[int, int]) -> None:
        """Continue at offsets, of every partition."""

    def begin_again(self, begin: Begin) -> None:
        """Begin as a new reading of the topic would. Raises `UserError` as `Backend.read` does."""

    def rest(self) -> None:
        """Fetch nothing until `begin_again`."""

    def poll(self, timeout_s: float) -> list[TopicRecord]:
        """Return the records that have arrived, waiting up to ``timeout_s`` for them."""

    def positions(self) -> dict[int, int]:
        """Return, by partition, the offset after all that was returned."""

    def close(self) -> None:
        """Give up what reading needs."""


class Backend(Protocol):
    """Takes records of input topics, and reads output topics."""

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        """Take a record."""

    def flush(self) -> None:
        """Wait until every record is acknowledged. Raises `UserError`."""

    def read(self, topic: str, begin: Begin) -> Reading:
        """Read a topic. Raises `UserError`, also for a beginning that the topic does not have (`Begin.resolved`)."""

    def ask(self, request: DryRunRequest, timeout_s: float) -> DryRunAnswer:
        """Return the answer to a request for a dry run. Raises `UserError`, and ``TimeoutError`` if there is none in time."""

    def unread(self, lane: str, parked: Mapping[str, Any] | None) -> int | None:
        """Return how many of a lane's records no job has read, None if that cannot be known; ``parked`` is its `LaneParked` record."""

    def why(self, lane: str | None) -> str:
        """Return in words what a lane, or each lane, waits for. Raises `UserError`."""

    def close(self) -> None:
        """Flush, and give up all connections."""


class KafkaBackend:
    """The Kafka cluster of a configuration, which names its address; connections are made when they are first needed."""

    def __init__(self, config: Config, manner: Manner = Manner()) -> None:  # noqa: B008 - it is frozen
        self._config, self._kafka, self._prefix, self._manner = config, config.kafka, config.topics.prefix, manner
        self._sender: RecordSender | None = None
        self._inputs_exist = False

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        """Pass a record to the producer. Raises `UserError`: the topic does not exist, an earlier record failed."""
        for each in () if self._inputs_exist else INPUT_TOPICS:
            self._open().check(each)
        self._inputs_exist = True
        self._open().send(topic, key, value)

    def flush(self) -> None:
        """Wait until every record is acknowledged. Raises `UserError`."""
        if self._sender is not None:
            self._sender.flush()

    def read(self, topic: str, begin: Begin) -> Reading:
        """Read committed records."""
        return _KafkaReading(self._kafka, self._prefix, topic, begin, self._manner)

    def ask(self, request: DryRunRequest, timeout_s: float) -> DryRunAnswer:
        """Write the request, and read what is answered from then on."""
        deadline_s = time.monotonic() + timeout_s
        value, sender = encode_request(request), self._open()
        for topic in (DRY_RUN_REQUESTS, DRY_RUN_ANSWERS):
            sender.check(topic)
        with closing(self.read(DRY_RUN_ANSWERS, NOW)) as answers:
            sender.send(DRY_RUN_REQUESTS, request.lane.encode(), value)
            sender.flush()
            while (left_s := deadline_s - time.monotonic()) > 0:
                for record in answers.poll(min(left_s, POLL_S)):
                    if record.key == request.correlation:
                        return decode_answer(record.value)
        raise TimeoutError(f"no answer within {timeout_s:g} s: does `validator transport run dry-run` run?")

    def unread(self, lane: str, parked: Mapping[str, Any] | None) -> int | None:
        """Count as `validator lanes` does; a client may lack the rights to."""
        held = {} if parked is None else {lane: parked}
        checkpoint = job_directory(self._config) / "checkpoint"
        try:
            codec = configured_codec(self._config)
            return lags(self._kafka, self._prefix, codec, [lane], checkpoint, held)[lane].records
        except UserError:
            return None

    def why(self, lane: str | None) -> str:
        """Return what `validator watch` says."""
        from validator.job.orders import why_lanes_wait  # slow to import

        return why_lanes_wait(self._config, lane).words

    def close(self) -> None:
        """Flush."""
        self.flush()

    def _open(self) -> RecordSender:
        if self._sender is None:
            self._sender = RecordSender(self._kafka, self._prefix)
        return self._sender


class _KafkaReading:
    """Reads all partitions of a topic, also those that are added later.

    The topic's id is asked before the first offsets and behind each poll with records, so every record that is returned comes from the
    topic of the positions: an id never comes back.
    """

    def __init__(self, kafka: KafkaTable, prefix: str, topic: str, begin: Begin, manner: Manner) -> None:
        self._topic, self._name, self._manner = topic, prefix + topic, manner
        self._reader = TopicReader(kafka, prefix, [topic], reading=manner.reading, patience_s=manner.patience_s)
        try:
            self.begin_again(begin)
        except BaseException:
            self._reader.close()
            raise

    @property
    def at_end(self) -> bool:
        """Whether every partition has been read to its end at least once."""
        return self._reader.at_end

    def poll(self, timeout_s: float) -> list[TopicRecord]:
        """Return the records that have arrived. Raises `UserError`, each time, once the topic was deleted and made again."""
        try:
            records = self._reader.poll(timeout_s)
        except UserError:  # a topic that was made again and is still shorter
            self._look_at_topic()
            raise
        size = sum(len(record.value) for record in records)
        most, bytes_max = self._manner.together_max, self._manner.together_bytes
        while records and len(records) < most and size < bytes_max and (more := self._reader.poll(0)):
            records += more
            size += sum(len(record.value) for record in more)
        if records or time.monotonic() - self._asked_s >= ASK_AGAIN_S:
            self._look_at_topic()
        return records

    def begin_again(self, begin: Begin) -> None:
        """Begin as a new reading would."""
        self.topic_id, partitions = self._now()
        self._asked_s = time.monotonic()
        if partitions:
            self._reader.start_at({(self._topic, each): OFFSET_BEGINNING for each in partitions})
        self.spans: Mapping[int, tuple[int, int]] = {
            partition: span for (_, partition), span in self._reader.spans().items()
        }
        self.go_to(begin.resolved(self._name, self.topic_id, self.spans))

    def rest(self) -> None:
        """Fetch nothing until the next beginning."""
        self._reader.rest()

    def go_to(self, offsets: Mapping[int, int]) -> None:
        """Continue at offsets, of every partition."""
        self._reader.start_at({(self._topic, partition): offset for partition, offset in offsets.items()})
        self._reader.begin()

    def _look_at_topic(self) -> None:
        self._asked_s = time.monotonic()
        topic_id, partitions = self._now()
        if topic_id is not None and self.topic_id is not None and topic_id != self.topic_id:
            self._asked_s = -ASK_AGAIN_S
            raise UserError(
                f"{self._name} was deleted and made again while it was read: its id was {self.topic_id}, and is {topic_id}; "
                "start='beginning' reads what there is"
            )
        positions = self._reader.positions()
        added = {(self._topic, each): OFFSET_BEGINNING for each in partitions} | positions
        if len(added) > len(positions):
            self._reader.start_at(added)
            self._reader.begin()

    def _now(self) -> tuple[str | None, list[int]]:
        """Return the topic's id and partitions, no partition if Kafka does not describe the topic."""
        found = self._reader.topics().get(self._topic)
        return (None, []) if found is None else (id_of(found), [each.id for each in found.partitions])

    def positions(self) -> dict[int, int]:
        """Return, by partition, the offset that comes next."""
        return {partition: offset for (_, partition), offset in self._reader.positions().items()}

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()


class MemoryBackend:
    """Executes lanes in this process, with the rules of the job, as soon as a flush has made their blocks complete."""

    def __init__(self, definitions: Mapping[str, LaneDefinition], codec: Codec) -> None:
        self._codec = codec
        self._definitions = definitions
        self._records = {lane: definition.records for lane, definition in definitions.items()}
        self._lanes = {lane: LaneProcessor.create(definition) for lane, definition in definitions.items()}
        self._sent: list[tuple[str, bytes, bytes]] = []
        self._counts = dict.fromkeys(INPUT_TOPICS, 0)
        self._topics: dict[str, list[TopicRecord]] = {}
        self._asked = 0
        self._id = str(uuid4())
        """Of all topics: positions in the topics of another process, or of another client, are none in these."""
        self._arrived = Condition()

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        """Keep a record for the next flush."""
        self._sent.append((topic, key, value))

    def flush(self) -> None:
        """Give the lanes what was sent, execute what is complete and append the output."""
        with self._arrived:
            sent, self._sent = self._sent, []
            for topic, key, value in sent:
                source = Source(topic, 0, self._counts[topic])
                self._counts[topic] += 1
                decoded = decode_record(self._codec, INPUT_TOPICS[topic], value, source, key, self._records)
                if isinstance(decoded, DeadLetter):
                    output = encode_dead_letter(decoded)
                    self._append(output.topic, output.key, output.value)
                    continue
                lane, item = decoded
                if lane not in self._lanes:
                    raise UserError(f"lane: expected {' or '.join(sorted(self._lanes))}, found {lane!r}")
                for _, records in self._lanes[lane].process([item]):
                    for record in records:
                        self._append(record.topic, record.key, record.value)
            self._arrived.notify_all()

    def read(self, topic: str, begin: Begin) -> Reading:
        """Read a topic, which has one partition. The topic `lanes` says how the lanes are when it is read."""
        if topic == LANES:
            found = [each for processor in self._lanes.values() for each in processor.status().records]
            return _MemoryReading(
                self._arrived, [TopicRecord(LANES, 0, at, *each[1:3], 0) for at, each in enumerate(found)], 0, self._id
            )
        records = self._topics.setdefault(topic, [])
        offset = begin.resolved(topic, self._id, {0: (0, len(records))})[0]
        return _MemoryReading(self._arrived, records, offset, self._id)

    def close(self) -> None:
        """Flush."""
        self.flush()

    def ask(self, request: DryRunRequest, timeout_s: float) -> DryRunAnswer:  # noqa: ARG002 - it is answered at once
        """Answer as the transport `dry-run` does."""
        offset, self._asked = self._asked, self._asked + 1
        return decode_answer(Answerer(self).answer(encode_request(request), 0, offset))

    def of(self, lane: str) -> Asked:
        """Return a copy of a lane's state (`validator.ask.dry_run.Standings`)."""
        if lane not in self._lanes:
            raise UserError(f"lane: expected {' or '.join(sorted(self._lanes))}, found {lane!r}")
        return Asked(standing_of_lane(self._definitions[lane], self._lanes[lane]), None)

    def changed(self, lane: str) -> None:
        """Each request has its own copy."""

    def waits_for(self, lane: str) -> str:
        """Return in words what a lane's next block lacks."""
        return self._lanes[lane].lane.waits_for()

    def unread(self, lane: str, parked: Mapping[str, Any] | None) -> int:  # noqa: ARG002 - a lane reads what a flush sends
        """Return none: a lane takes what a flush sends."""
        return 0

    def why(self, lane: str | None) -> str:
        """Return what the lanes in this process wait for."""
        return "; ".join(f"lane {each} is {self.waits_for(each)}" for each in ([lane] if lane else sorted(self._lanes)))

    def _append(self, topic: str, key: bytes, value: bytes) -> None:
        records = self._topics.setdefault(topic, [])
        records.append(TopicRecord(topic, 0, len(records), key, value, 0))


class _MemoryReading:
    def __init__(self, changed: Condition, records: list[TopicRecord], offset: int, topic_id: str) -> None:
        self._changed, self._records, self._offset = changed, records, offset
        self.topic_id = topic_id
        self.spans: Mapping[int, tuple[int, int]] = {0: (0, len(records))}

    @property
    def at_end(self) -> bool:
        """Whether everything has been read."""
        return self._offset >= len(self._records)

    def poll(self, timeout_s: float) -> list[TopicRecord]:
        """Return the records that have arrived."""
        with self._changed:
            if self.at_end:
                self._changed.wait(timeout_s)
            found = self._records[self._offset :]
            self._offset = len(self._records)
            return found

    def go_to(self, offsets: Mapping[int, int]) -> None:
        """Continue at an offset."""
        self._offset = offsets[0]

    def begin_again(self, begin: Begin) -> None:
        """Begin as a new reading would."""
        self.spans = {0: (0, len(self._records))}
        self._offset = begin.resolved("topic", self.topic_id, self.spans)[0]

    def rest(self) -> None:
        """Nothing is fetched."""

    def positions(self) -> dict[int, int]:
        """Return the offset that comes next, of the only partition."""
        return {0: self._offset}

    def close(self) -> None:
        """Nothing to give up."""
