# SPDX-License-Identifier: Apache-2.0
"""The suite as a job runs it: configuration, Avro records, a chain that is saved and restored after every block, encoded outcomes."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import Any

import pytest
from validator_xcmp.rules import Xcmp
from validator_xcmp.traces import view
from xcmp_rule_set import Json
from xcmp_suite import all_scenarios
from xcmp_trace import ALL, ORDER, R1, A, B

from validator.codec.decode import decode_record
from validator.codec.encode import Encoder
from validator.codec.json_form import encode_input, to_json
from validator.config import Config
from validator.core.inputs import DeadLetter, DeadReason, RecordKind, Source
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
        "protocol": "xcmp",
        "first_block": scenario["steps"][0]["block"],
        "limits": scenario["config"],
        "genesis_paras": scenario["genesis_paras"],
    }
    return lane_definition(Config.model_validate({"chains": {LANE: chain | changed}}), LANE)


def record(kind: RecordKind, block: int, index: int | None, body: Json) -> bytes:
    place = {"lane": LANE, "block": block} | ({} if index is None else {"index": index})
    return encode_input(kind, place | body, "xcmp")


def as_record(item: Json) -> Json:
    """Return a step's entry as the records have it: a call by its own name, a watermark with names."""
    if item.get("kind") == "accept_open_channel":
        if "sender" in item:
            return item | {"kind": "accept_open_channel_from"}
        return {"request_index" if name == "index" else name: value for name, value in item.items()}
    if item.get("kind") == "close_channel":
        if "recipient" in item:
            return item | {"kind": "close_channel_to"}
        return {"column_index" if name == "index" else name: value for name, value in item.items()}
    if "watermark" in item:
        return item | {"watermark": dict(zip(("block", "para"), item["watermark"], strict=True))}
    return item


def records_of(block: int, parent: int, steps: list[Json]) -> list[tuple[RecordKind, bytes]]:
    inputs = {key: [as_record(item) for step in steps for item in step.get(key, ())] for key in ORDER[:3]}
    body: Json = {"parent_number": parent} | {key: len(items) for key, items in inputs.items()}
    changes = [step["session_change"] for step in steps if "session_change" in step]
    if changes:
        (change,) = changes
        body["session_change"] = {
            "outgoing": change.get("outgoing", []),
            "onboarding": [{"kind": "parachain"} | para for para in change.get("onboarding", ())],
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


def execute(
    lane: Lane, encoder: Encoder, definition: LaneDefinition, records: list[tuple[RecordKind, bytes]]
) -> list[tuple[str, Json]]:
    """Put a block's records in, the block's own last, and return what comes out, by topic."""
    for offset, (kind, value) in enumerate(reversed(records)):
        decoded = decode_record(kind, value, Source("topic", 0, offset), None, {LANE: definition.records})
        assert not isinstance(decoded, DeadLetter), decoded.detail
        assert lane.add(decoded[1]) == []
    ((executed, _),) = lane.execute_ready()
    return [(each.topic, to_json(each.topic, each.value)) for each in encoder.executed(executed)]


def restarted(lane: Lane, definition: LaneDefinition) -> Lane:
    snapshot = lane.snapshot()
    again = definition.restore(snapshot)
    assert again.snapshot() == snapshot
    assert isinstance(lane.rules, Xcmp)
    assert isinstance(again.rules, Xcmp)
    assert view(again.rules.state) == view(lane.rules.state)
    assert again.rules.state_root() == lane.rules.state_root()
    return again


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario["id"])
def test_a_lane_gives_the_verdicts(scenario: Json) -> None:
    definition = definition_of(scenario)
    encoder = Encoder(LANE, definition.runtime_digest)
    lane = definition.create()
    parent = definition.first_block - 1
    for block, steps in blocks_of(scenario):
        told = execute(lane, encoder, definition, records_of(block, parent, steps))
        verdicts = [value for topic, value in told if topic == "verdicts"]
        for key, kind in (("requests", "request"), ("downward", "downward"), ("candidates", "candidate")):
            expected = [result for step in steps for result in step.get("expect", {}).get(key, ())]
            assert results_of(verdicts, kind) == expected
        lane = restarted(lane, definition)
        parent = block


def test_most_of_the_suite_fits_into_blocks() -> None:
    assert len(SCENARIOS) > 40


def opened() -> tuple[LaneDefinition, Lane, Encoder]:
    """Return a chain with one channel, from A to B, that has told its headroom."""
    (scenario,) = (each for each in SCENARIOS if each["id"] == "xcmp/enactment/twice-in-a-block")
    definition = definition_of(scenario)
    lane, encoder = definition.create(), Encoder(LANE, definition.runtime_digest)
    request = {"requests": [{"kind": "init_open_channel", "origin": A, "recipient": B}]}
    accept = {"requests": [{"kind": "accept_open_channel", "origin": B, "sender": A}]}
    execute(lane, encoder, definition, records_of(1, 0, [request, accept]))
    execute(lane, encoder, definition, records_of(2, 1, [{"session_change": {}}]))
    return definition, lane, encoder


def send(bitfield: str = "1", root: str | None = R1) -> Json:
    return {"para_id": A, "watermark": [0, ALL], "bitfield": bitfield, "message_root": root}


def test_what_is_told_of_a_channel_and_its_paras() -> None:
    definition, lane, encoder = opened()
    told = execute(lane, encoder, definition, records_of(3, 2, [{"candidates": [send()]}]))
    assert [value["accepted"] for topic, value in told if topic == "receipts"] == [1]
    close = {"requests": [{"kind": "close_channel", "origin": A, "sender": A, "index": 0}]}
    execute(lane, encoder, definition, records_of(4, 3, [close, {"session_change": {}}]))
    execute(lane, encoder, definition, records_of(5, 4, [{"session_change": {}}]))
    told = execute(lane, encoder, definition, records_of(6, 5, [{"session_change": {}}]))
    (event,) = (value for topic, value in told if topic == "channel-events")
    assert (event["event"], event["reason"], event["sender_returned"], event["session"]) == ("closed", "unread", 100, 4)
    headroom = {value["para_id"]: value for topic, value in told if topic == "headroom"}
    assert sorted(headroom) == [A, B]
    assert (headroom[B]["downward_pending"], headroom[B]["valid_watermarks"]) == (1, [])
    assert lane.rules.state_root() == restarted(lane, definition).rules.state_root()


def test_headroom_names_the_blocks_that_are_unread() -> None:
    definition, lane, _ = opened()
    rules = lane.rules
    assert isinstance(rules, Xcmp)
    rules.begin_block(3)
    rules.apply_candidate(rules.candidate((A, 2, (2, ALL), "1", bytes(32), None)))
    told = {each[0]: each for each in rules.take_headroom()}
    assert (told[A].watermark, told[B].valid_watermarks, told[B].watermark) == (2, (3,), None)
    assert rules.take_headroom() == []
    again = restarted(lane, definition).rules
    assert again.take_headroom() == []


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"bitfield": "0" * 65_537}, "bitfield: expected at most 65536 bits, found 65537"),
        ({"bitfield": "012"}, "bitfield: expected characters 0 and 1, found '012'"),
        ({"bitfield": "1\n"}, "bitfield: expected characters 0 and 1"),
        ({"watermark": [2**32, 0]}, "watermark.block: expected an integer from 0 to 4294967295, found 4294967296"),
        ({"message_root": "00"}, "message_root: expected 32 bytes in hex"),
    ],
)
def test_a_candidate_out_of_range_is_refused_in_one_line(change: Json, detail: str) -> None:
    with pytest.raises(UserError, match=detail.replace("(", r"\(")):
        records_of(3, 2, [{"candidates": [send() | change]}])


def test_a_request_out_of_range_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match="column_index: expected an integer from 0 to 4294967295, found -1"):
        records_of(3, 2, [{"requests": [{"kind": "close_channel", "origin": A, "sender": A, "index": -1}]}])


def test_a_chain_names_its_limits() -> None:
    (scenario, *_) = SCENARIOS
    with pytest.raises(UserError, match=r"limits\.xcmp_channel_capacities: no such limit of xcmp"):
        definition_of(scenario, limits={"xcmp_channel_capacities": 1})
    with pytest.raises(UserError, match=r"limits\.watermark_regime: expected one of tuple"):
        definition_of(scenario, limits={"watermark_regime": "strict"})
    with pytest.raises(UserError, match="expected an integer from 0 to 4294967295, found 4294967296"):
        definition_of(scenario, limits={"xcmp_open_request_ttl": 2**32})


def test_the_records_of_another_protocol_are_not_taken() -> None:
    (scenario, *_) = SCENARIOS
    definition = definition_of(scenario)
    other = {"lane": LANE, "block": 1, "index": 0, "para_id": A, "hrmp_watermark": 0}
    value = encode_input(RecordKind.CANDIDATE, other)
    dead = decode_record(RecordKind.CANDIDATE, value, Source("topic", 0, 0), None, {LANE: definition.records})
    assert isinstance(dead, DeadLetter)
    assert dead.reason in DeadReason
    assert dead.detail == "validator.router.Candidate.lane: expected a lane of protocol router, found one of xcmp"
