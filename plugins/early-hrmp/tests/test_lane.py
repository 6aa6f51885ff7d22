# SPDX-License-Identifier: Apache-2.0
"""The suite as a job runs it: configuration, Avro records, a lane that is saved and restored after every block, encoded outcomes."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import Any

import pytest
from early_hrmp_rule_set import Json
from early_hrmp_suite import all_scenarios
from early_hrmp_trace import ORDER
from validator_early_hrmp.configuration import WATERMARK_RULE
from validator_early_hrmp.rules import EarlyHrmp
from validator_early_hrmp.traces import view

from validator.codec.decode import decode_record
from validator.codec.encode import Encoder
from validator.codec.json_form import encode_input, to_json
from validator.config import Config
from validator.core.inputs import DeadLetter, RecordKind, Source
from validator.core.lane import Lane
from validator.errors import UserError
from validator.lanes.configured import lane_definition
from validator.lanes.definition import LaneDefinition

LANE = "chain"


def blocks_of(scenario: Json) -> list[tuple[int, list[Json]]]:
    return [(block, list(steps)) for block, steps in groupby(scenario["steps"], key=lambda step: step["block"])]


def fits_into_blocks(scenario: Json) -> bool:
    """Whether every block's steps, put together, keep their order: a block applies requests before messages before candidates."""
    kinds = [[ORDER.index(key) for step in steps for key in ORDER if key in step] for _, steps in blocks_of(scenario)]
    return not scenario["needs"] and all(earlier <= later for each in kinds for earlier, later in pairwise(each))


SCENARIOS = [scenario for scenario in all_scenarios() if fits_into_blocks(scenario)]


def definition_of(scenario: Json, **changed: Any) -> LaneDefinition:
    chain = {
        "protocol": "early-hrmp",
        "first_block": scenario["steps"][0]["block"] or 1,
        "limits": scenario["config"],
        "genesis_paras": scenario["genesis_paras"],
    }
    return lane_definition(Config.model_validate({"chains": {LANE: chain | changed}}), LANE)


def record(kind: RecordKind, block: int, index: int | None, body: Json) -> bytes:
    place = {"lane": LANE, "block": block} | ({} if index is None else {"index": index})
    return encode_input(kind, place | body, "early-hrmp")


def flat(request: Json) -> Json:
    """Return a request in the JSON form of its record: a request to accept is named in one of two calls."""
    if request["kind"] != "accept_open_channel":
        return request
    if "sender" in request:
        return request | {"kind": "accept_open_channel_from"}
    return {"kind": request["kind"], "origin": request["origin"], "request_index": request["index"]}


def records_of(block: int, parent: int, steps: list[Json]) -> list[tuple[RecordKind, bytes]]:
    """Return the records of a block."""
    inputs = {key: [item for step in steps for item in step.get(key, ())] for key in ORDER[:3]}
    inputs["requests"] = list(map(flat, inputs["requests"]))
    body: Json = {"parent_number": parent} | {key: len(items) for key, items in inputs.items()}
    changes = [step["session_change"] for step in steps if "session_change" in step]
    if changes:
        (change,) = changes
        paras = [{"kind": "parachain"} | para for para in change.get("onboarding", ())]
        body["session_change"] = {
            "outgoing": change.get("outgoing", []),
            "onboarding": paras,
            "limits": change.get("new_config", {}),
        }
    kinds = (RecordKind.REQUEST, RecordKind.DOWNWARD, RecordKind.CANDIDATE)
    made = [
        (kind, record(kind, block, at, item))
        for kind, items in zip(kinds, inputs.values(), strict=True)
        for at, item in enumerate(items)
    ]
    return [(RecordKind.BLOCK, record(RecordKind.BLOCK, block, None, body)), *made]


def results_of(verdicts: list[Json], kind: str) -> list[Json]:
    return [
        {key: verdict[key] for key in ("ok", "error") if verdict.get(key) is not None}
        for verdict in verdicts
        if verdict["kind"] == kind
    ]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario["id"])
def test_a_lane_gives_the_verdicts(scenario: Json) -> None:
    definition = definition_of(scenario)
    encoder = Encoder(LANE, definition.runtime_digest)
    lane = definition.create()
    parent = definition.first_block - 1
    for block, steps in blocks_of(scenario):
        verdicts = execute(lane, encoder, definition, records_of(block, parent, steps))
        for key, kind in (("requests", "request"), ("downward", "downward"), ("candidates", "candidate")):
            expected = [result for step in steps for result in step.get("expect", {}).get(key, ())]
            assert results_of(verdicts, kind) == expected
        lane = restarted(lane, definition)
        parent = block


def execute(
    lane: Lane, encoder: Encoder, definition: LaneDefinition, records: list[tuple[RecordKind, bytes]]
) -> list[Json]:
    """Put a block's records in, the block's own last, and return the verdicts that come out."""
    for offset, (kind, value) in enumerate(reversed(records)):
        decoded = decode_record(kind, value, Source("topic", 0, offset), None, {LANE: definition.records})
        assert not isinstance(decoded, DeadLetter), decoded.detail
        assert lane.add(decoded[1]) == []
    ((executed, _),) = lane.execute_ready()
    told = encoder.executed(executed)
    return [to_json("verdicts", each.value) for each in told if each.topic == "verdicts"]


def restarted(lane: Lane, definition: LaneDefinition) -> Lane:
    snapshot = lane.snapshot()
    again = definition.restore(snapshot)
    assert again.snapshot() == snapshot
    assert isinstance(lane.rules, EarlyHrmp)
    assert isinstance(again.rules, EarlyHrmp)
    assert view(again.rules.state) == view(lane.rules.state)
    assert again.rules.state_root() == lane.rules.state_root()
    return again


def test_most_of_the_suite_fits_into_blocks() -> None:
    assert len(SCENARIOS) > 40


def test_a_chain_names_its_limits() -> None:
    (scenario, *_) = SCENARIOS
    with pytest.raises(UserError, match=r"chains\.chain\.limits\.hrmp_channel_max_place: no such limit of early-hrmp"):
        definition_of(scenario, limits={"hrmp_channel_max_place": 1})
    with pytest.raises(UserError, match=rf"chains\.chain\.limits\.{WATERMARK_RULE}: expected one of land"):
        definition_of(scenario, limits={WATERMARK_RULE: "floor"})
    with pytest.raises(UserError, match="expected an integer from 0 to 4294967295, found -1"):
        definition_of(scenario, limits={"hrmp_channel_max_places": -1})


def test_the_records_of_another_protocol_are_not_taken() -> None:
    (scenario, *_) = SCENARIOS
    definition = definition_of(scenario)
    other = {"lane": LANE, "block": 1, "index": 0, "para_id": 2000, "hrmp_watermark": 0}
    value = encode_input(RecordKind.CANDIDATE, other)
    dead = decode_record(RecordKind.CANDIDATE, value, Source("topic", 0, 0), None, {LANE: definition.records})
    assert isinstance(dead, DeadLetter)
    assert "lane" in dead.detail
