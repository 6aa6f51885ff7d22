# SPDX-License-Identifier: Apache-2.0
"""The in-process layer of the golden recording: every output record, marker, stored byte and document equals the recording."""

from __future__ import annotations

from collections import Counter

from tests.golden.inputs import Inputs
from tests.golden.layers import check_documents, check_lanes, check_simulator
from tests.golden.play import definitions
from tests.golden.product import DeadReason, decode_bytes
from tests.golden.recording_file import INPUTS, LANES, path_of, read_lines


def test_simulators_make_the_recorded_inputs() -> None:
    assert check_simulator() == []


def test_lanes_match_the_recording() -> None:
    assert check_lanes() == []


def test_documents_match_the_recording() -> None:
    assert check_documents() == []


def test_recording_covers_every_protocol_reason_and_outcome() -> None:
    inputs = Inputs.of_lines(read_lines(path_of(INPUTS)))
    protocols = {definition.plan.protocol for definition in definitions(inputs).values()}
    assert protocols == {"router", "early-hrmp", "xcmp"}
    reasons, outcomes, stored = Counter[str](), Counter[str](), Counter[str]()
    for line in read_lines(path_of(LANES)):
        kind, _, topic = line["group"].split("/")
        if topic == "dead-letters":
            reasons[bytes.fromhex(dict(line["headers"])["reason"]).decode()] += 1
        elif topic == "dispatches":
            outcomes[decode_bytes(line["group"], bytes.fromhex(line["value"]))["outcome"]] += 1
        elif kind == "stored":
            stored[topic] += 1
    # records far ahead and orders of operators are in tests/unit/lanes/test_orders.py and tests/unit/core/test_lane.py
    assert set(reasons) == {reason.name for reason in DeadReason} - {"TOO_FAR_AHEAD", "SKIPPED"}
    assert set(outcomes) == {"ok", "failed", "out_of_weight", "no_handler"}
    assert set(stored) == {"head", "slots", "journal", "own-page", "lane-page", "snapshot"}
