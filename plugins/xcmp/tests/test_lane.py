# SPDX-License-Identifier: Apache-2.0
"""The protocol in a lane: the output about channels, the limits, and the records that it accepts."""

from __future__ import annotations

import pytest
from validator_xcmp.rules import XCMP
from xcmp_suite import all_scenarios
from xcmp_trace import ALL, R1, A, B, Json, as_record

from validator.codec.json_form import encode_input
from validator.core.inputs import DeadLetter, DeadReason, RecordKind
from validator.errors import UserError
from validator.plugin.runtime import RuntimePlan, codec_of
from validator.testing.lane_suite import LANE, SuitePlayer, fits_into_blocks


def test_most_scenarios_fit_into_blocks() -> None:
    assert sum(map(fits_into_blocks, all_scenarios())) > 40


def opened() -> SuitePlayer:
    """Return a chain with one channel, from A to B, that has emitted its headroom."""
    (scenario,) = (each for each in all_scenarios() if each["id"] == "xcmp/enactment/twice-in-a-block")
    chain = SuitePlayer(scenario, as_record)
    request = {"requests": [{"kind": "init_open_channel", "origin": A, "recipient": B}]}
    accept = {"requests": [{"kind": "accept_open_channel", "origin": B, "sender": A}]}
    chain.execute(1, [request, accept])
    chain.execute(2, [{"session_change": {}}])
    return chain


def send(bitfield: str = "1", root: str | None = R1) -> Json:
    return {"para_id": A, "watermark": [0, ALL], "bitfield": bitfield, "message_root": root}


def test_channel_events_and_headroom_are_emitted() -> None:
    chain = opened()
    output = chain.execute(3, [{"candidates": [send()]}])
    assert [value["accepted"] for topic, value in output if topic == "receipts"] == [1]
    close = {"requests": [{"kind": "close_channel", "origin": A, "sender": A, "index": 0}]}
    chain.execute(4, [close, {"session_change": {}}])
    chain.execute(5, [{"session_change": {}}])
    output = chain.execute(6, [{"session_change": {}}])
    (event,) = (value for topic, value in output if topic == "channel-events")
    assert (event["event"], event["reason"], event["sender_returned"], event["session"]) == ("closed", "unread", 100, 4)
    headroom = {value["para_id"]: value for topic, value in output if topic == "headroom"}
    assert sorted(headroom) == [A, B]
    assert (headroom[B]["downward_pending"], headroom[B]["valid_watermarks"]) == (1, [])
    chain.restart()


def test_headroom_lists_unread_blocks() -> None:
    chain = opened()
    rules = chain.lane.rules
    assert rules.rule_set is XCMP
    rules.begin_block(3)
    rules.apply_candidate(rules.rule_set.candidate((A, 2, (2, ALL), "1", bytes(32), None)))
    headroom = {each[0]: each for each in rules.take_headroom()}
    assert (headroom[A].watermark, headroom[B].valid_watermarks, headroom[B].watermark) == (2, (3,), None)
    assert rules.take_headroom() == []
    chain.restart()
    assert chain.lane.rules.take_headroom() == []


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
def test_candidate_out_of_range_is_rejected_in_one_line(change: Json, detail: str) -> None:
    with pytest.raises(UserError, match=detail.replace("(", r"\(")):
        opened().records(3, [{"candidates": [send() | change]}])


def test_request_out_of_range_is_rejected_in_one_line() -> None:
    request = {"kind": "close_channel", "origin": A, "sender": A, "index": -1}
    with pytest.raises(UserError, match="column_index: expected an integer from 0 to 4294967295, found -1"):
        opened().records(3, [{"requests": [request]}])


def test_invalid_limits_are_rejected() -> None:
    (scenario, *_) = all_scenarios()
    with pytest.raises(UserError, match=r"limits\.xcmp_channel_capacities: no such limit of xcmp"):
        SuitePlayer(scenario, limits={"xcmp_channel_capacities": 1})
    with pytest.raises(UserError, match=r"limits\.watermark_regime: expected one of tuple"):
        SuitePlayer(scenario, limits={"watermark_regime": "strict"})
    with pytest.raises(UserError, match="expected an integer from 0 to 4294967295, found 4294967296"):
        SuitePlayer(scenario, limits={"xcmp_open_request_ttl": 2**32})


def test_record_of_another_protocol_is_undecodable() -> None:
    (scenario, *_) = all_scenarios()
    other = {"lane": LANE, "block": 1, "index": 0, "para_id": A, "hrmp_watermark": 0}
    router = codec_of([RuntimePlan("router")])
    dead = SuitePlayer(scenario).decoded(
        RecordKind.CANDIDATE, encode_input(router, RecordKind.CANDIDATE, other, "router")
    )
    assert isinstance(dead, DeadLetter)
    assert dead.reason in DeadReason
    assert (
        dead.detail
        == "expected a record of validator.xcmp.Candidate on topic topic, found one of validator.router.Candidate"
    )
