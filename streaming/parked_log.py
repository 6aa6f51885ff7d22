# SPDX-License-Identifier: Apache-2.0
"""Says in the job's log that a lane is parked, or continues: the lanes are executed in workers, which have no other way to tell."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final, Self

from validator.codec.json_form import shown_json
from validator.errors import UserError
from validator.kafka.reader import POLL_S, TopicReader
from validator.service.parked import command_of, remedy_of

if TYPE_CHECKING:
    from validator.kafka.client import KafkaTable

AGAIN_S: Final = 10.0
"""Seconds before the topic is read again after Kafka could not be asked; the job itself says that it waits."""


class ParkedLog(threading.Thread):
    """Follows the records of parked lanes on the topic `lanes`, while it is a context; ``lanes`` are the configured ones."""

    def __init__(self, kafka: KafkaTable, prefix: str, lanes: Collection[str], log: Any) -> None:
        super().__init__(name="parked-lanes", daemon=True)
        self._kafka, self._prefix, self._lanes, self._log = kafka, prefix, lanes, log
        self._end = threading.Event()
        self._last: dict[str, dict[str, Any]] = {}
        """By lane, what was said last."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self.join()

    def run(self) -> None:
        while not self._end.is_set():
            try:
                with TopicReader(self._kafka, self._prefix, ["lanes"]) as reader:
                    self._follow(reader)
            except UserError:
                self._end.wait(AGAIN_S)

    def _follow(self, reader: TopicReader) -> None:
        """Log how each lane is once all records so far are read, and then every change."""
        news: dict[str, dict[str, Any]] = {}
        while not self._end.is_set():
            for record in reader.poll(POLL_S):
                if (record.key or b"").endswith(b"/parked"):
                    shown = shown_json("lanes", record.value)
                    news[shown["lane"]] = shown
            if reader.caught_up:
                for shown in news.values():
                    self._tell(shown)
                news.clear()

    def _tell(self, shown: dict[str, Any]) -> None:
        lane, state = shown["lane"], shown["state"]
        before = self._last.get(lane)
        if lane not in self._lanes or shown == before:
            return
        self._last[lane] = shown
        if state == "parked":
            to_do, command = remedy_of(shown), command_of(lane, shown["fault"])
            reason = {"fault": shown["fault"], "reason": shown["reason"]}
            self._log.warning("parked", lane=lane, **reason, to_do=to_do, command=command)
        elif before is not None and before["state"] != state:
            self._log.info("resumed" if state == "running" else "resuming", lane=lane)
