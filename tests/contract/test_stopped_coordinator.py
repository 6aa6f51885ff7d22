# SPDX-License-Identifier: Apache-2.0
"""A coordinator that is stopped keeps its connections and answers nothing: no lane hangs, and each record comes once afterwards."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from streaming.transactions import KafkaOutput
from tests.contract.test_lane_marker import await_group
from tests.contract.test_lane_writer import LANE, block, committed
from validator.checkpoint import markers
from validator.kafka import calls
from validator.kafka.broker import EmbeddedBroker
from validator.kafka.topics import create_topics
from validator.kafka.transaction import KafkaGone
from validator.lanes.sink import TransactionalSink

if TYPE_CHECKING:
    from pathlib import Path

    from validator.lanes.sink import LaneSink

pytestmark = pytest.mark.broker

PREFIX = "stopped."
CALL_S = 3.0
"""Seconds instead of `CALL_S_MAX`."""


@contextmanager
def stopped(broker: EmbeddedBroker) -> Iterator[None]:
    """Stop the broker's process for a while."""
    pid = broker.status().pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path) as made:
        create_topics(made.kafka, prefix=PREFIX)
        yield made


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make calls short, and return what the watching thread would have ended the worker for."""
    words: list[str] = []
    monkeypatch.setattr(calls, "CALL_S_MAX", CALL_S)
    monkeypatch.setattr(markers, "GROUP_S_MAX", CALL_S)
    monkeypatch.setattr(calls, "end_process", words.append)
    return words


def test_lane_says_that_kafka_is_why_and_writes_once(broker: EmbeddedBroker, ended: list[str]) -> None:
    def opened() -> LaneSink:
        return KafkaOutput.of(TransactionalSink, broker.kafka, PREFIX, "job").open()

    def write(sink: LaneSink, *numbers: int) -> None:
        sink.write(LANE, [block(number) for number in numbers])
        sink.commit(LANE, {(f"{PREFIX}candidates", 0): numbers[-1]})

    sink = opened()
    write(sink, 1)
    sink.write(LANE, [block(2)])
    with stopped(broker):
        steps: list[Callable[[], Any]] = [
            lambda: sink.commit(LANE, {(f"{PREFIX}candidates", 0): 2}),  # as a batch that is at its commit
            lambda: write(opened(), 2),  # and as it is repeated
        ]
        for step in steps:
            with pytest.raises(KafkaGone, match="Kafka did not accept the batch of lane polkadot: "):
                step()
    write(opened(), 1, 2, 3)
    assert committed(broker.kafka, PREFIX + "verdicts") == [b"1", b"2", b"3"]
    await_group(broker.kafka, PREFIX, 3)
    assert ended == []
