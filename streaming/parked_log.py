# SPDX-License-Identifier: Apache-2.0
"""Says in the job's log what its workers do not log: that a lane is parked, or continues, what its audit finds, that Kafka is away,
and that a producer's open transaction holds up the inputs.

In a batch, Spark waits two minutes for a record and a worker 45 seconds for Kafka's answer, without a word. The thread here asks Kafka all
the time, and says after a few seconds that it does not answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final, Self

from validator.codec.json_form import shown_json
from validator.errors import GivenUp, UserError
from validator.job.orders import command_of, remedy_of, without_lane
from validator.kafka.open_transactions import open_transactions
from validator.kafka.reader import POLL_S, TopicReader
from validator.lanes.parked import shortened
from validator.topics import INPUT_TOPICS
from validator.waiting import UNFORESEEN_S

if TYPE_CHECKING:
    from validator.kafka.open_transactions import OpenTransaction
    from validator.kafka.reader import TopicRecord
    from validator.kafka.settings import KafkaTable
    from validator.waiting import Patience

TRANSACTIONS_S: Final = 30.0
"""Seconds between two looks for open transactions."""

END_S_MAX: Final = 2.0
"""Seconds that the end of the thread is waited for."""


class KafkaWatch(threading.Thread):
    """Asks Kafka all the time, while it is a context, and says when it is away. No error ends it.

    ``inputs`` are the full names of the topics that the job reads. ``patience`` is for this thread alone: once it ends, the thread says
    nothing more of this outage, and the job decides.
    """

    tail: int | None = 0
    """Records before the end of the topic `lanes` that it begins with; None for all."""

    def __init__(
        self, kafka: KafkaTable, prefix: str, log: Any, patience: Patience, inputs: Collection[str] = ()
    ) -> None:
        super().__init__(name="kafka-watch", daemon=True)
        self._inputs = inputs
        self._open: set[OpenTransaction] = set()
        """What was said last."""
        self._next_look = 0.0
        self._kafka, self._prefix, self._log = kafka, prefix, log
        self._patience = patience
        self._end = threading.Event()
        self._said = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self.join(END_S_MAX)  # it may just be asking a Kafka that is away

    def run(self) -> None:
        while not self._end.is_set():
            try:
                with TopicReader(self._kafka, self._prefix, ["lanes"], tail=self.tail, newest=True) as reader:
                    self._follow(reader)
            except UserError as error:
                self._wait(str(error))
            except Exception as error:  # noqa: BLE001 - such as what a registry's answer does to a parser
                self._unforeseen(shortened(f"{type(error).__name__}: {error}"))

    def _unforeseen(self, reason: str) -> None:
        """Say an error, once while it repeats, and wait."""
        if reason != self._said:
            self._said = reason
            self._log.error("lanes unread", reason=f"the topic lanes cannot be read: {reason}")
        self._end.wait(UNFORESEEN_S)

    def _wait(self, reason: str) -> None:
        """Say that Kafka is away, as long as there is patience, and wait."""
        try:
            pause = self._patience.pause(reason)
        except GivenUp:
            self._end.wait(UNFORESEEN_S)
            return
        self._log.warning("waiting", **pause.event())
        self._patience.sleep(pause.seconds, self._end.is_set)

    def _follow(self, reader: TopicReader) -> None:
        """Read until the context ends; an outage is over once everything is read."""
        self._begin(reader)
        while not self._end.is_set():
            self._look_for_transactions()
            self._take(reader.poll(POLL_S))
            if reader.caught_up:
                self._patience.ended()
                self._caught_up()

    def _look_for_transactions(self) -> None:
        """From time to time, say which open transactions hold up the inputs, each once. Raises `UserError` if Kafka does not answer."""
        if not self._inputs or time.monotonic() < self._next_look:
            return
        found = set(open_transactions(self._kafka, self._inputs))
        for each in sorted(found - self._open):
            self._log.warning("open transaction", reason=each.words(self._kafka), **each._asdict())
        self._open = found
        self._next_look = time.monotonic() + TRANSACTIONS_S

    def _begin(self, reader: TopicReader) -> None:
        """Note what there is to note before a reader's first record."""

    def _take(self, records: list[TopicRecord]) -> None:
        """Take the records that have arrived."""

    def _caught_up(self) -> None:
        """Say what there is to say once all records so far are taken."""


class ParkedLog(KafkaWatch):
    """Follows the records of parked lanes and audits, too; ``lanes`` are the configured ones."""

    tail = None

    def __init__(self, kafka: KafkaTable, prefix: str, lanes: Collection[str], log: Any, patience: Patience) -> None:
        super().__init__(kafka, prefix, log, patience, [prefix + name for name in INPUT_TOPICS])
        self._lanes = lanes
        self._last: dict[str, dict[str, Any]] = {}
        """By lane, what was said last."""
        self._news: dict[str, dict[str, Any]] = {}
        """By lane, what is not said yet."""
        self._ends: dict[tuple[str, int], int] | None = None
        """By full topic and partition, where records from before this start end, None until Kafka has said it."""
        self._earlier: set[str] = set()
        """Lanes whose last record is from before this start."""
        self._audits: dict[str, dict[str, Any]] = {}
        """By lane, the last fault that its audit has found, which may be from before this start."""
        self._audit_news: dict[str, dict[str, Any]] = {}

    def _begin(self, reader: TopicReader) -> None:
        if self._ends is None:
            self._ends = reader.ends()

    def _take(self, records: list[TopicRecord]) -> None:
        for record in records:
            news = self._news_of(record.key or b"")
            if news is None:
                continue
            shown = shown_json("lanes", record.value)
            news[shown["lane"]] = shown
            if news is self._news:
                is_earlier = record.offset < (self._ends or {}).get((self._prefix + record.topic, record.partition), 0)
                (self._earlier.add if is_earlier else self._earlier.discard)(shown["lane"])

    def _news_of(self, key: bytes) -> dict[str, dict[str, Any]] | None:
        if key.endswith(b"/parked"):
            return self._news
        return self._audit_news if key.endswith(b"/audit") else None

    def _caught_up(self) -> None:
        """Log how each lane is once all records so far are read, and then every change."""
        for shown in self._news.values():
            self._tell(shown)
        self._news.clear()
        for lane, fault in self._audit_news.items():
            if lane in self._lanes and fault != self._audits.get(lane):
                self._audits[lane] = fault
                self._log.error("audit fault", **fault)
        self._audit_news.clear()

    def _tell(self, shown: dict[str, Any]) -> None:
        lane, state = shown["lane"], shown["state"]
        before = self._last.get(lane)
        if lane not in self._lanes or shown == before:
            return
        self._last[lane] = shown
        if state == "parked":
            to_do, command = remedy_of(shown), command_of(lane, shown["fault"])
            reason = {"fault": shown["fault"], "reason": shown["reason"]}
            if lane in self._earlier:  # what has been configured or ordered since then is not in it
                reason["reason"] = f"lane {lane} was parked before this start: {without_lane(lane, shown['reason'])}"
            self._log.warning("parked", lane=lane, **reason, to_do=to_do, command=command)
        elif before is not None and before["state"] != state:
            self._log.info("resumed" if state == "running" else "resuming", lane=lane)
