# SPDX-License-Identifier: Apache-2.0
"""The protocol in a lane: events of ingress queues, headroom, the limits, and the records that it accepts."""

from __future__ import annotations

from typing import Any

import pytest
from network_suite import all_scenarios
from network_trace import R1, A, B, C, Json, as_record
from network_world import chain_of, judged

from validator.errors import UserError
from validator.plugin.protocol_api import ChannelHeadroom, ParaHeadroom, SessionChange
from validator.testing.lane_suite import SuitePlayer


def player(scenario_id: str = "xcmp-network/queues/two-views", **changed: Any) -> SuitePlayer:
    """Return a lane for the chain that a scenario begins with."""
    (scenario,) = (each for each in all_scenarios() if each["id"] == scenario_id)
    return SuitePlayer(scenario, as_record, **changed)


def send(para: int, *recipients: int) -> Json:
    return {"para_id": para, "outbox": [{"recipient": each, "root": R1, "size": 7} for each in recipients]}


def event(block: int, index: int, what: str, sender: int, recipient: int, sent_at: int) -> Json:
    place = {"lane": "chain", "block": block, "index": index, "event": what}
    return {**place, "recipient": recipient, "sender": sender, "sent_at": sent_at, "root": R1, "size": 7}


def test_ingress_events_are_emitted_in_order() -> None:
    chain = player()
    output = chain.execute(5, [{"candidates": [send(C, B), send(A, B, C)]}])
    output += chain.execute(6, [{"candidates": [{"para_id": B, "acks": [[5, A]], **send(B, A)} | {"para_id": B}]}])
    output += chain.execute(7, [{"session_change": {"outgoing": [C]}}])
    chain.restart()
    events = [value for topic, value in output if topic == "ingress-events"]
    for each in events:
        del each["runtime_digest"]
    assert events == [
        event(5, 0, "queued", C, B, 5),
        event(5, 1, "queued", A, B, 5),
        event(5, 2, "queued", A, C, 5),
        event(6, 0, "acknowledged", A, B, 5),
        event(6, 1, "queued", B, A, 6),
        event(7, 0, "removed", A, C, 5),
        event(7, 1, "removed", C, B, 5),
    ]


def test_refused_candidate_emits_no_event() -> None:
    chain = player()
    output = chain.execute(5, [{"candidates": [send(A, C, B)]}])
    assert [topic for topic, _ in output if topic == "ingress-events"] == []


def test_headroom_has_unread_blocks_and_places() -> None:
    rules = chain_of((1, 2, 3), [(2, 1), (3, 1)], max_channel_messages=2, max_block_bytes=50)
    rules.take_headroom()
    for block, sender in ((5, 2), (6, 2), (6, 3)):
        assert judged(rules, block, sender, [1])["ok"]
    assert rules.take_headroom() == [
        ParaHeadroom(1, valid=True, watermark=0, valid_watermarks=(5, 6)),
        ParaHeadroom(2, valid=True),
        ParaHeadroom(3, valid=True),
        ChannelHeadroom(2, 1, open=True, places_left=0, bytes_left=50, message_size_max=50),
        ChannelHeadroom(3, 1, open=True, places_left=1, bytes_left=50, message_size_max=50),
    ]
    assert judged(rules, 7, 1, acks=[(6, 2)])["ok"]
    assert rules.take_headroom() == [
        ParaHeadroom(1, valid=True, watermark=6, valid_watermarks=(6,)),
        ChannelHeadroom(2, 1, open=True, places_left=2, bytes_left=50, message_size_max=50),
    ]
    rules.change_session(SessionChange(outgoing=(3,)))
    gone = [each for each in rules.take_headroom() if isinstance(each, ChannelHeadroom)]
    assert gone == [ChannelHeadroom(3, 1, open=False)]
    assert rules.take_headroom() == []


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_channel_message": 1}, r"limits\.max_channel_message: no such limit of xcmp-network"),
        ({"channels": "open"}, r"limits\.channels: expected one of fixed, xcmp"),
        ({"open_channels": [[1]]}, r"limits\.open_channels\[0\]: expected \[sender, recipient\] of two paras"),
        ({"max_ingress_messages": 2**32}, "expected an integer from 0 to 4294967295, found 4294967296"),
    ],
)
def test_invalid_limits_are_rejected(limits: Json, message: str) -> None:
    with pytest.raises(UserError, match=message):
        player(limits=limits)


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"acks": [[5]]}, r"acks\[0\]: expected \[block, sender\], found \[5\]"),
        ({"acks": [[5, -1]]}, r"acks\[0\].sender: expected an integer from 0 to 4294967295, found -1"),
        ({"outbox": [{"recipient": 1, "size": 1}]}, r"outbox\[0\].root: expected a value, found none"),
        ({"outbox": [{"recipient": 1, "root": "00", "size": 1}]}, r"outbox\[0\].root: expected 32 bytes in hex"),
    ],
)
def test_candidate_out_of_range_is_rejected_in_one_line(change: Json, detail: str) -> None:
    with pytest.raises(UserError, match=detail):
        player().records(5, [{"candidates": [send(A) | change]}])


def test_rules_of_channels_come_first() -> None:
    """Where requests open the channels, a candidate that breaks rules of both protocols breaks those of XCMP channels."""
    chain = player("xcmp-network/composed/bits-and-outbox")
    bad = {**send(A, C, B), "bitfield": "1", "watermark": {"block": 0, "para": 0}, "message_root": R1}
    worse = {**send(99), "bitfield": "1"}
    late = {**send(B, C, A), "watermark": {"block": 9, "para": 0}}
    output = chain.execute(1, [{"candidates": [bad, worse, late]}])
    kinds = [value["error"]["kind"] for topic, value in output if topic == "verdicts"]
    assert kinds == ["Bitfield/TooLong", "Candidate/UnknownPara", "Watermark/AheadRelayParent"]
