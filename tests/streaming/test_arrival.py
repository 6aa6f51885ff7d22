# SPDX-License-Identifier: Apache-2.0
"""Any order of arrival and any split into batches give the same bytes, and the verdicts that the simulator expects."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.streaming.harness import Stream, decoded, first_difference, last_status, of_lane
from tests.streaming.reference import IMMEDIATE, ON_INCLUSION, chains, definition, reference
from tests.streaming.spied import noted, spied
from tests.unit.lanes.chains import Record

Bursts = list[list[Record]]


def all_records() -> list[Record]:
    """Return the records of both chains, their blocks alternating."""
    return sorted((record for chain in chains() for record in chain.records), key=lambda record: record.block)


def in_order() -> Bursts:
    return [all_records()]


def topics_reversed() -> Bursts:
    """Return each topic completely before the next, block records last: nothing can execute before they arrive."""
    topics = ("downward-messages", "channel-requests", "candidates", "blocks")
    return [[record for record in all_records() if record.topic == topic] for topic in topics]


def shuffled() -> Bursts:
    """Return all records in random order, in three bursts."""
    records = all_records()
    Random(5).shuffle(records)
    return [records[at::3] for at in range(3)]


@pytest.mark.parametrize(
    ("bursts", "records_per_trigger"),
    [(in_order, 700), pytest.param(topics_reversed, 500, marks=pytest.mark.long), (shuffled, 100_000)],
)
def test_any_arrival_gives_the_same_bytes(
    stream: Callable[..., Stream], bursts: Callable[[], Bursts], records_per_trigger: int, tmp_path: Any
) -> None:
    definitions = {each.lane: spied(definition(each), tmp_path / "spied") for each in (IMMEDIATE, ON_INCLUSION)}
    running = stream(definitions, records_per_trigger=records_per_trigger)
    made = bursts()
    running.produce(made[0])
    running.start()
    running.settle()
    for burst in made[1:]:
        running.produce(burst)
        running.settle()
    batches = running.batches()
    running.stop()

    outputs = running.outputs()
    assert decoded(outputs, "dead-letters") == []
    for settings, chain in zip((IMMEDIATE, ON_INCLUSION), chains(), strict=True):
        assert first_difference(of_lane(outputs, chain.lane), reference(settings)) is None
        status = last_status(outputs, chain.lane)
        assert (status["consumed"], status["waiting"]) == (len(chain.records), 0)
        assert status["executed_block"] == chain.blocks[-1].block
    assert batches >= 3
    # every batch found the lanes as the previous batch left them
    assert sorted(noted(tmp_path / "spied")) == ["created kusama", "created polkadot"]


def test_reference_matches_naive_model() -> None:
    for settings, chain in zip((IMMEDIATE, ON_INCLUSION), chains(), strict=True):
        verdicts = decoded(reference(settings), "verdicts")
        shown = [shown_as(verdict, expected) for verdict, expected in zip(verdicts, chain.expected, strict=True)]
        assert shown == chain.expected
        assert any(not verdict["ok"] for verdict in verdicts)
        assert {verdict["kind"] for verdict in verdicts} >= {"candidate", "request", "downward"}
        # bodies of the Router's messages travel in its blocks
        assert [topic for topic, records in reference(settings).items() if not records] == ["ingress-events"]


def shown_as(verdict: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """Return a verdict with only the keys of the expected one; the job emits more than the conformance format has."""
    shown = {key: verdict[key] for key in expected if key in verdict}
    if "error" in shown:
        shown["error"] = {key: value for key, value in verdict["error"].items() if key in expected.get("error", {})}
    return shown
