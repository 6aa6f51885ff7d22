# SPDX-License-Identifier: Apache-2.0
"""A transaction that a producer leaves open on an input topic is said by `validator lanes` and in the job's log."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from streaming import parked_log
from streaming.parked_log import ParkedLog
from tests.cli.follower import follower, invoke, lines
from validator.cli.job_log import describe
from validator.errors import UserError
from validator.kafka import open_transactions as module
from validator.kafka.open_transactions import open_transactions
from validator.kafka.settings import producer_config
from validator.kafka.topics import create_topics
from validator.topics import INPUT_TOPICS
from validator.waiting import Patience

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PREFIX = "open-transactions."
BLOCKS = f"{PREFIX}blocks"


@pytest.fixture
def opened(kafka: dict[str, Any]) -> Iterator[Producer]:
    """A producer that has begun a transaction behind one committed record; its end is committed."""
    create_topics(kafka, prefix=PREFIX)
    producer = Producer(producer_config(kafka, transactional_id="left-open"))
    producer.init_transactions(30)
    for value in (b"first", b"second"):
        producer.begin_transaction()
        producer.produce(BLOCKS, value, b"key", partition=0)
        producer.flush(30)
        if value == b"first":
            producer.commit_transaction(30)
    yield producer
    producer.commit_transaction(30)


def names() -> list[str]:
    return [PREFIX + name for name in INPUT_TOPICS]


def test_open_transaction_is_found_with_its_place_and_time(kafka: dict[str, Any], opened: Producer) -> None:
    now = time.time()
    assert open_transactions(kafka, names(), now_s=now) == [], "one that is as new as this is none worth a word"
    (found,) = open_transactions(kafka, names(), now_s=now + 60)
    assert found[:2] == (BLOCKS, 0)
    assert abs(found.since_ms / 1000 - now) < 60
    words = found.words(kafka)
    assert words.startswith("an open transaction of a producer since 20")
    assert f" on {BLOCKS}-0, offset {found.offset}: " in words
    assert f"--bootstrap-server {kafka['bootstrap.servers']} describe-producers --topic {BLOCKS} --partition 0" in words
    opened.commit_transaction(30)
    assert open_transactions(kafka, names(), now_s=now + 60) == []
    opened.begin_transaction()  # for the fixture


def test_lanes_and_the_log_of_the_job_say_it(
    kafka: dict[str, Any], opened: Producer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OPEN_S_MIN", -60.0)
    chain = follower(tmp_path, kafka, PREFIX, blocks=3)
    (row,) = lines(invoke("lanes", "--json", chain.option()).stdout)
    (line,) = row["open_transactions"]
    assert line.startswith("an open transaction of a producer since ")
    assert invoke("lanes", chain.option()).stdout.splitlines()[-1] == line

    events: list[dict[str, Any]] = []

    class Log:
        def warning(self, event: str, **fields: Any) -> None:
            events.append({"event": event, **fields})

        error = info = warning

    monkeypatch.setattr(parked_log, "TRANSACTIONS_S", 0.1)
    with ParkedLog(kafka, PREFIX, {"polkadot"}, Log(), Patience(60)) as watch:
        deadline = time.monotonic() + 60
        while not events and time.monotonic() < deadline:
            time.sleep(0.05)
        looks = watch._next_look
        while watch._next_look < looks + 1 and time.monotonic() < deadline:  # several more looks
            time.sleep(0.05)
    (event,) = events
    assert (event["event"], event["topic"], event["partition"]) == ("open transaction", BLOCKS, 0)
    assert describe(event) == event["reason"] == line
    assert json.dumps(event)


def test_topic_that_does_not_exist_is_an_error_in_one_line(kafka: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"^open transactions cannot be looked for: .*UNKNOWN_TOPIC"):
        open_transactions(kafka, [f"{PREFIX}nowhere"])
