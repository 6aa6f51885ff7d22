# SPDX-License-Identifier: Apache-2.0
"""Compares what readers of committed records see with the undisturbed run, record by record as it arrives."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.crash.traffic import COMPARED, Undisturbed
from validator.codec.json_form import to_json
from validator.errors import UserError
from validator.kafka.reader import available
from validator.kafka.settings import WHOLE, consumer_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from validator.kafka.settings import KafkaTable

FAULTS_KEPT = 20

READ_S_MAX = 300.0
"""Seconds until the ends of all topics must have been read; successors end the open transactions of dead writers."""


@dataclass
class Tally:
    """The findings; all except ``verdicts`` and ``records`` must stay 0."""

    verdicts: int = 0
    records: int = 0
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    differing: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether everything read so far is correct."""
        return not (self.lost or self.duplicated or self.out_of_order or self.differing)

    def blame(self, kind: str, text: str) -> None:
        """Count a fault, and keep the first few as text."""
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.faults) < FAULTS_KEPT:
            self.faults.append(f"{kind.replace('_', ' ')}: {text}")


class Reader:
    """Reads output topics of one partition each from the beginning, and compares."""

    def __init__(self, kafka: KafkaTable, prefix: str, undisturbed: Undisturbed) -> None:
        self.tally = Tally()
        self.status: dict[str, dict[str, object]] = {}
        self.parked: dict[str, dict[str, object]] = {}
        """By lane, the last record that says whether it is parked."""
        self._prefix = prefix
        self._undisturbed = undisturbed
        self._topics = [prefix + topic for topic in (*COMPARED, "dead-letters", "lanes")]
        self._consumer = Consumer(
            consumer_config(kafka, WHOLE, group_id="crash-reader")
            | {"reconnect.backoff.max.ms": 500, "topic.metadata.refresh.interval.ms": 2_000}
        )
        self._next = dict.fromkeys(self._topics, 0)
        self._consumer.assign([TopicPartition(topic, 0, 0) for topic in self._topics])
        self._ended: set[str] = set()
        self._read: Counter[tuple[str, str]] = Counter()
        self._dead: Counter[bytes] = Counter()

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def poll(self, timeout_s: float) -> None:
        """Read and compare what has arrived; if the broker is down, later calls continue."""
        for message in available(self._consumer, 2_000, timeout_s):
            topic = message.topic()
            if (error := message.error()) is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    self._ended.add(topic)
                elif error.fatal() or error.code() == KafkaError.OFFSET_OUT_OF_RANGE:
                    raise KafkaException(error)
                continue
            self._ended.discard(topic)
            self._next[topic] = message.offset() + 1
            self._compare(topic.removeprefix(self._prefix), message.key() or b"", message.value() or b"", message)

    @property
    def complete(self) -> bool:
        """Whether all output of the undisturbed run so far has arrived."""
        output = self._undisturbed.output
        return (
            all(self._read[place] >= len(output[place]) for place in output) and not self._undisturbed.dead - self._dead
        )

    def complete_but(self, lane: str) -> bool:
        """Return whether all output in blocks of the other lanes has arrived."""
        output = self._undisturbed.output
        return all(self._read[place] >= len(output[place]) for place in output if place[0] != lane)

    def missing(self) -> str:
        """Return a description of the output that has not arrived yet."""
        output = self._undisturbed.output
        left = {
            place: len(output[place]) - self._read[place] for place in output if len(output[place]) > self._read[place]
        }
        dead = self._undisturbed.dead - self._dead
        parts = [f"{count} of {lane}'s {topic}" for (lane, topic), count in left.items()]
        return ", ".join([*parts, *(f"the dead letter of {source.decode()}" for source in dead)]) or "nothing"

    def read_to_end(self, supervise: Callable[[], None]) -> None:
        """Read to the current end of every topic; ``supervise`` restarts a broker that dies meanwhile."""
        self._ended.clear()
        # a partition reports its end once each time it is reached: assigning it again makes it report again
        self._consumer.assign([TopicPartition(topic, 0, offset) for topic, offset in self._next.items()])
        deadline = time.monotonic() + READ_S_MAX
        while self._ended != set(self._topics):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no end of {', '.join(sorted(set(self._topics) - self._ended))} in sight")
            supervise()
            self.poll(0.2)

    def check_lost(self) -> None:
        """Count missing output after everything has settled."""
        if not self.complete:
            output = self._undisturbed.output
            for place, expected in output.items():
                for _ in range(self._read[place], len(expected)):
                    self.tally.blame("lost", f"{place[1]} of {place[0]} end at {self._read[place]} of {len(expected)}")
            for source in self._undisturbed.dead - self._dead:
                self.tally.blame("lost", f"the dead letter of {source.decode()}")

    def _compare(self, topic: str, key: bytes, value: bytes, message: object) -> None:
        self.tally.records += 1
        if topic == "lanes":
            status = to_json(topic, value)
            (self.parked if key.endswith(b"/parked") else self.status)[str(status["lane"])] = status
        elif topic == "dead-letters":
            self._dead_letter(dict(message.headers())["source"], value)  # type: ignore[attr-defined]
        else:
            self.tally.verdicts += topic == "verdicts"
            self._output_record(topic, key, value)

    def _dead_letter(self, source: bytes, value: bytes) -> None:
        self._dead[source] += 1
        expected = self._undisturbed.dead[source]
        if self._dead[source] > expected:
            kind = "duplicated" if expected else "differing"
            letter = to_json("dead-letters", value)
            said = f"{letter['reason']} of {letter['lane']}: {letter['detail']}"
            self.tally.blame(kind, f"the dead letter of {source.decode()} for the {self._dead[source]}. time ({said})")

    def _output_record(self, topic: str, key: bytes, value: bytes) -> None:
        place = key.split(b"/")[0].decode(), topic
        expected = self._undisturbed.output.get(place)
        if expected is None:
            self.tally.blame("differing", f"{topic}: a record of {key!r}")
            return
        at, record = self._read[place], (key, value)
        if at < len(expected) and expected[at] == record:
            self._read[place] += 1
            return
        shown = f"{topic}[{at}] of {place[0]}: {_shown(topic, value)}"
        if record in expected[:at]:
            self.tally.blame("duplicated", shown)
        elif record in expected[at:]:
            # skipped records are lost or still to come; continue from here, so that one fault is reported once
            self.tally.blame("out_of_order", shown)
            self._read[place] = expected.index(record, at) + 1
        else:
            self.tally.blame("differing", shown)
            self._read[place] += 1


def _shown(topic: str, value: bytes) -> object:
    try:
        return to_json(topic, value)
    except UserError:
        return value
