# SPDX-License-Identifier: Apache-2.0
"""The job says when a lane is parked and when it continues, from the records of the topic `lanes`."""

from __future__ import annotations

import queue
import time
from typing import Any

import pytest

from streaming import parked_log
from streaming.parked_log import KafkaWatch, ParkedLog
from tests.sending import send
from validator.cli.job_log import describe
from validator.codec.encode import BlockOutput
from validator.errors import Unavailable
from validator.kafka.reader import TopicReader, TopicRecord
from validator.kafka.topics import create_topics
from validator.lanes.auditing import AuditFault, fault_record
from validator.lanes.parked import Fault, Parked, running
from validator.waiting import Patience

PREFIX = "parked-log."
AWAITED_S_MAX = 60.0
HUNG = Parked(Fault.HANDLER, "lane a: it hung", 7)


class Said:
    """A log whose events are awaited."""

    def __init__(self) -> None:
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()

    def info(self, event: str, **values: Any) -> None:
        self._events.put({"event": event, **values})

    warning = error = info

    def next(self) -> dict[str, Any]:
        return self._events.get(timeout=AWAITED_S_MAX)

    def empty(self) -> bool:
        return self._events.empty()


def test_job_logs_how_its_lanes_are_and_become(kafka: dict[str, Any]) -> None:
    create_topics(kafka, prefix=PREFIX)

    def tell(*outputs: BlockOutput) -> None:
        records = [record for output in outputs for record in output.records]
        send(kafka, PREFIX, [(each.topic, each.key, each.value) for each in records])

    hung, damaged = HUNG, Parked(Fault.STATE, "lane b: damaged", None)
    resuming = Parked(Fault.STATE, "lane b: damaged", None, resuming=True)
    tell(damaged.record("a"), running("a"), hung.record("a"), running("b"), hung.record("gone"))
    log = Said()
    with ParkedLog(kafka, PREFIX, {"a", "b"}, log, Patience(60)):
        first = log.next()
        assert (first["event"], first["lane"], first["fault"]) == ("parked", "a", "handler"), (
            "what holds, not what held"
        )
        assert describe(first).startswith("lane a was parked before this start: it hung; what to do: deploy a handler")
        assert describe(first).endswith("then `validator lanes resume --lane a`")
        tell(damaged.record("b"))
        second = log.next()
        assert second["reason"] == "lane b: damaged", "news of this start"
        assert (second["lane"], second["command"]) == ("b", "validator lanes resume --lane b --rebuild")
        tell(resuming.record("b"))
        assert log.next() == {"event": "resuming", "lane": "b"}
        tell(running("b"))
        assert log.next() == {"event": "resumed", "lane": "b"}
        tell(running("a"))
        assert describe(log.next()) == "lane a is no longer parked"


def test_lane_that_is_parked_while_the_first_reading_lasts_was_not_parked_before_this_start(
    kafka: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = "parked-log-slow."
    create_topics(kafka, prefix=prefix)
    poll, meanwhile = TopicReader.poll, [HUNG.record("a").records[0]]

    def slow(self: TopicReader, timeout_s: float) -> list[TopicRecord]:
        send(kafka, prefix, [(each.topic, each.key, each.value) for each in meanwhile])
        meanwhile.clear()
        return poll(self, timeout_s)

    monkeypatch.setattr(TopicReader, "poll", slow)
    log = Said()
    with ParkedLog(kafka, prefix, {"a"}, log, Patience(60)):
        assert log.next()["reason"] == "lane a: it hung"


def test_job_logs_what_its_audits_find(kafka: dict[str, Any]) -> None:
    """Also what one has found before this start: `validator health` shows it until another fault replaces it."""
    prefix = "parked-log-audit."
    create_topics(kafka, prefix=prefix)

    def tell(lane: str, block: int) -> None:
        found = fault_record(lane, AuditFault(block, "pages", "another page"))
        send(kafka, prefix, [(found.topic, found.key, found.value)])

    def said(block: int) -> dict[str, Any]:
        return {"event": "audit fault", "lane": "a", "block": block, "check": "pages", "detail": "another page"}

    for lane, block in (("a", 3), ("gone", 4), ("a", 5)):
        tell(lane, block)
    log = Said()
    with ParkedLog(kafka, prefix, {"a", "b"}, log, Patience(60)):
        first = log.next()
        assert first == said(5), "what holds, not what held"
        assert describe(first) == "lane a, block 5: pages: another page"
        tell("a", 8)
        assert log.next() == said(8)


def test_no_error_ends_the_thread(kafka: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = "parked-log-unforeseen."
    create_topics(kafka, prefix=prefix)
    hung = HUNG.record("a").records[0]
    send(kafka, prefix, [(hung.topic, hung.key, hung.value)])
    poll, deep = TopicReader.poll, [True, True]

    def fails(self: TopicReader, timeout_s: float) -> list[TopicRecord]:
        if deep:
            deep.pop()
            raise RecursionError("too deep")
        return poll(self, timeout_s)

    monkeypatch.setattr(TopicReader, "poll", fails)
    monkeypatch.setattr(parked_log, "UNFORESEEN_S", 0.0)
    log = Said()
    with ParkedLog(kafka, prefix, {"a"}, log, Patience(60)):
        unread = log.next()
        assert describe(unread) == "the topic lanes cannot be read: RecursionError: too deep"
        assert log.next()["event"] == "parked", "and what repeats is said once"


@pytest.mark.parametrize("plugin", [False, True])
def test_job_says_that_kafka_is_away_whatever_its_workers_wait_for(
    kafka: dict[str, Any], monkeypatch: pytest.MonkeyPatch, plugin: bool
) -> None:
    """That of the lanes and that of a plugin."""
    prefix = f"parked-log-away-{plugin}."
    create_topics(kafka, prefix=prefix)
    log = Said()
    poll, away = TopicReader.poll, [True, True]

    def fails(self: TopicReader, timeout_s: float) -> list[TopicRecord]:
        if away:
            away.pop()
            raise Unavailable("no broker answers at a:1")
        return poll(self, timeout_s)

    monkeypatch.setattr(TopicReader, "poll", fails)

    def watch(patience_s: float) -> KafkaWatch:
        patience = Patience(patience_s)
        return KafkaWatch(kafka, prefix, log, patience) if plugin else ParkedLog(kafka, prefix, {"a"}, log, patience)

    with watch(60):
        pauses = [log.next() for _ in range(2)]
        assert [(each["event"], each["reason"], each["seconds"]) for each in pauses] == [
            ("waiting", "no broker answers at a:1", 1.0),
            ("waiting", "no broker answers at a:1", 2.0),
        ]
        if not plugin:
            send(kafka, prefix, [(each.topic, each.key, each.value) for each in HUNG.record("a").records])
            assert log.next()["event"] == "parked", "it continues"
    monkeypatch.setattr(parked_log, "UNFORESEEN_S", 0.0)
    away += [True] * 9
    with watch(0) as quiet:
        deadline = time.monotonic() + AWAITED_S_MAX
        while away and time.monotonic() < deadline:
            time.sleep(0.02)
        assert quiet.is_alive()
        assert not away
        if plugin:
            assert log.empty(), "the job decides when to give up"
        else:
            assert log.next()["event"] == "parked", (
                "it continues, also after an outage that its own patience did not last for"
            )


pytestmark = pytest.mark.broker
