# SPDX-License-Identifier: Apache-2.0
"""What the demo says of messages is what another reading of the lane's output says, in whatever order the topics arrive."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import pytest
from validator_simulators import SimulationSettings
from validator_simulators.demo.messages import Messages

from tests.journeys import judge
from tests.unit.lanes.chains import chain, definition_of, inputs_of
from validator.codec.json_form import to_json
from validator.lanes.processor import LaneProcessor

TOPICS = ("verdicts", "dispatches", "channel-events")
SETTINGS: dict[str, dict[str, Any]] = {
    "router": {"preset": "tight", "paras": 8, "candidates_per_block": 5, "session_length_blocks": 5, "requests_per_100_blocks": 400},
    "early-hrmp": {"session_length_blocks": 5},
}  # fmt: skip


@cache
def output(protocol: str) -> dict[str, list[dict[str, Any]]]:
    of = chain(SimulationSettings(seed=21, blocks=60, **SETTINGS[protocol]), protocol)
    processor = LaneProcessor.create(definition_of(of))
    found: dict[str, list[dict[str, Any]]] = {topic: [] for topic in TOPICS}
    for _, records in processor.process(inputs_of(of.records, protocol)):
        for each in records:
            if each.topic in found:
                found[each.topic].append(to_json(each.topic, each.value))
    return found


def summary_of(protocol: str, seed: int) -> dict[str, Any]:
    """Return what is said if each topic keeps its order, and the topics have any order."""
    left = {topic: list(records) for topic, records in output(protocol).items()}
    random, messages = Random(seed), Messages()
    while any(left.values()):
        topic = random.choice([each for each, records in left.items() if records])
        messages.observe(topic, left[topic].pop(0))
    return messages.summary()


@pytest.mark.parametrize("seed", range(3))
def test_counts_are_those_of_the_judge_of_journeys(seed: int) -> None:
    records = output("router")
    judged = judge.numbered(*(records[topic] for topic in TOPICS))
    ends = [message.ended and message.ended[1].partition(" ")[0] for message in judged.elements()]
    found = summary_of("router", seed)
    assert {name: found[name] for name in ("received", "dropped", "waiting")} == {
        "received": ends.count("received"),
        "dropped": ends.count("dropped"),
        "waiting": ends.count(None),
    }
    assert found["queued"] == len(ends)
    assert found["dispatched"] == len(records["dispatches"])


@pytest.mark.parametrize("protocol", SETTINGS)
def test_each_message_ends_once_and_one_way_is_told(protocol: str) -> None:
    found = summary_of(protocol, 1)
    assert found["queued"] == found["received"] + found["dropped"] + found["waiting"]
    assert found["received"] > 0
    assert " queued by candidate " in found["example"]
    assert " received by candidate " in found["example"]
    assert found == summary_of(protocol, 2)
