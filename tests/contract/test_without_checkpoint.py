# SPDX-License-Identifier: Apache-2.0
"""A job that starts over hears of all that its lanes have skipped, whatever a killed one has left open."""

from __future__ import annotations

from typing import Any

import pytest

from streaming import taking_over
from streaming.taking_over import known_of_lanes, writers
from streaming.transactions import TransactionalWriter
from validator.checkpoint.markers import LaneOnKafka
from validator.codec.encode import encode_dead_letter
from validator.codec.inflight import NO_LANE
from validator.config import Config
from validator.core.inputs import DeadLetter, DeadReason, Source
from validator.history.engine import skipped_records
from validator.job.orders import lane_reports
from validator.kafka.topics import create_topics
from validator.lanes.marker import Marker
from validator.lanes.parked import Fault, Parked

SKIPPED = Source("candidates", 0, 7)


@pytest.mark.parametrize("killed", ["kusama", "removed", NO_LANE])
def test_what_stands_behind_an_open_transaction_is_known(
    kafka: dict[str, Any], killed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Kafka ends the transaction by itself after minutes, which must not be what lets this pass
    monkeypatch.setattr(taking_over, "ABANDONED_S_MAX", 20.0)
    prefix = f"without-checkpoint-{killed}."
    create_topics(kafka, prefix=prefix)
    config = Config.model_validate({"kafka": kafka, "topics": {"prefix": prefix}})
    parked = Parked(Fault.BUG, "a bug", 3).record("polkadot").records
    (other,) = Parked(Fault.BUG, "a bug", 3).record("kusama").records
    letter = DeadLetter("polkadot", DeadReason.SKIPPED, "skipped", SKIPPED, b"raw")
    abandoned = TransactionalWriter(LaneOnKafka(kafka, prefix, killed), "job-1")
    abandoned.write([encode_dead_letter(letter._replace(lane=killed, reason=DeadReason.LATE)), other])
    assert abandoned._writer.producer.flush(60) == 0
    writer = TransactionalWriter(LaneOnKafka(kafka, prefix, "polkadot"), "job-1")
    writer.write([encode_dead_letter(letter), *parked])
    writer.commit(Marker(3))
    assert (skipped_records(kafka, prefix), lane_reports(config).parked) == ({}, {}), "it is hidden"
    found = known_of_lanes(config, writers(["polkadot", "kusama"], ["removed"]))
    assert found == {"skipped": {"polkadot": frozenset({SKIPPED})}, "parked": frozenset({"polkadot"})}
