# SPDX-License-Identifier: Apache-2.0
"""Turns the events of the job's log into metrics: what is worth a line there is what an operator counts."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from validator.metrics.store import MetricStore

RUNNING: Final = "running"

_NAMED_LANE: Final = re.compile(r"\blane ([a-z0-9][a-z0-9._-]*)")
"""The lane that a failed batch's reason names; all reasons that do are about its transaction or its worker."""


class JobFigures:
    """The figures of one job; ``lanes`` are the configured ones."""

    def __init__(self, store: MetricStore, lanes: Collection[str], wall_clock: Callable[[], float] = time.time) -> None:
        self._store, self._lanes, self._wall_clock = store, lanes, wall_clock
        self._is_ready = self._lacks_executors = False
        self._set_ready(value=False)
        store.set("validator_job_outage", 0)
        for name in ("restarts", "batches", "records"):
            store.add(f"validator_job_{name}_total", 0)
        for lane in lanes:
            store.choose("validator_lane_state", RUNNING, lane)
            store.add("validator_lane_transaction_aborts_total", 0, lane)

    def note(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "ready":
                self._set_ready(value=True)
                self._end_outage()
            case "executor added" | "executor lost":
                self._executors(event["executors"])
            case "batch":
                self._batch(event)
            case "restarting" | "failed":
                self._set_ready(value=False)
                self._store.add("validator_job_restarts_total", event["event"] == "restarting")
                self._abort(str(event.get("reason", "")))
            case "waiting":
                self._store.set("validator_job_outage", 1)
                if "master" in event:
                    self._lacks_executors = True
                    self._store.set("validator_job_executors", 0)
                    self._store.set("validator_job_without_executor_timestamp_seconds", event["since"], event["master"])
                self._abort(str(event.get("reason", "")))
            case "parked":
                self._state(event["lane"], "parked", event["fault"])
            case "resuming" | "resumed":
                self._state(event["lane"], "resuming" if event["event"] == "resuming" else RUNNING, None)
            case "audit fault":
                self._store.set("validator_lane_audit_fault_block", event["block"], event["lane"])
            case "stopped":
                self._set_ready(value=False)

    def kafka_answers(self) -> None:
        """Note that Kafka answers: an outage that no batch has met is over."""
        if self._is_ready:
            self._end_outage()

    def _executors(self, count: int) -> None:
        self._store.set("validator_job_executors", count)
        if count and self._lacks_executors:
            self._lacks_executors = False
            self._store.remove("validator_job_without_executor_timestamp_seconds")
            self.kafka_answers()

    def _end_outage(self) -> None:
        """Note that what was away is back, unless the job has no executor either."""
        if not self._lacks_executors:
            self._store.set("validator_job_outage", 0)

    def _batch(self, event: Mapping[str, Any]) -> None:
        store = self._store
        self._set_ready(value=True)
        self._end_outage()
        store.add("validator_job_batches_total", 1)
        store.add("validator_job_records_total", event["records"])
        store.set("validator_job_unread_records", event["unread"])
        store.set("validator_job_last_batch_timestamp_seconds", self._wall_clock())
        for part, milliseconds in event["milliseconds"].items():
            if part == "triggerExecution":
                store.observe("validator_job_batch_duration_seconds", milliseconds / 1000)
            else:
                store.add("validator_job_batch_part_seconds_total", milliseconds / 1000, part)

    def _abort(self, reason: str) -> None:
        found = _NAMED_LANE.search(reason)
        if found is not None and found[1] in self._lanes:
            self._store.add("validator_lane_transaction_aborts_total", 1, found[1])

    def _state(self, lane: str, state: str, fault: str | None) -> None:
        self._store.choose("validator_lane_state", state, lane)
        self._store.choose("validator_lane_parked", fault, lane)

    def _set_ready(self, *, value: bool) -> None:
        self._is_ready = value
        self._store.set("validator_job_ready", value)
