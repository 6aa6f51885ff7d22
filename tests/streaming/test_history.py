# SPDX-License-Identifier: Apache-2.0
"""A chain that lives through all profiles of its protocol, through Kafka and Spark: the bytes of the core alone, restarts on switches."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from validator_simulators import SimulationSettings
from validator_simulators.settings import PROFILES

from tests.streaming.harness import Stream, decoded, first_difference, last_status, of_lane
from tests.streaming.reference import output_alone
from tests.unit.lanes.chains import chain, definition_of


@pytest.mark.long
def test_history_through_the_job_matches_core_and_model(stream: Callable[..., Stream]) -> None:
    history = chain(SimulationSettings(**{**PROFILES["history"], "seed": 11}))
    definition = definition_of(history)
    switches = [entry["from_block"] for entry in history.table["rules"]]
    middle, late = switches[len(switches) // 2], switches[-1]
    running = stream({history.lane: definition}, records_per_trigger=1_500)
    running.produce([record for record in history.records if record.block < middle])
    running.start()
    running.settle()
    running.stop()  # between the blocks of one profile and those of the next
    running.produce([record for record in history.records if middle <= record.block < late])
    running.start()
    running.settle()
    running.produce([record for record in history.records if record.block >= late])
    running.settle()
    running.stop()

    outputs = running.outputs()
    assert decoded(outputs, "dead-letters") == []
    assert first_difference(of_lane(outputs, history.lane), output_alone(definition, history)) is None
    status = last_status(outputs, history.lane)
    assert (status["executed_block"], status["waiting"]) == (history.blocks[-1].block, 0)
    verdicts = decoded(outputs, "verdicts")
    assert len(verdicts) == len(history.expected)
    for verdict, expected in zip(verdicts, history.expected, strict=True):
        place = ("block", "kind", "index", "ok")
        assert [verdict[key] for key in place] == [expected[key] for key in place], (verdict, expected)
        assert expected["ok"] or verdict["error"]["kind"] == expected["error"]["kind"], (verdict, expected)
