# SPDX-License-Identifier: Apache-2.0
"""How the naive model reads rules that the sample traces do not pin."""

from __future__ import annotations

from typing import Any

import pytest
from validator_simulators.router.chains import TIGHT
from validator_simulators.router.model import NaiveRouter, compact, next_head

CONFIG = {**TIGHT, "hrmp_sender_deposit": 100, "hrmp_recipient_deposit": 90, "hrmp_open_request_ttl": 2}


def make(*paras: int, balance: int = 1000, **settings: Any) -> NaiveRouter:
    genesis = [{"para_id": para, "kind": "parachain", "balance": balance} for para in paras]
    return NaiveRouter({**CONFIG, **settings.pop("config", {})}, genesis, **settings)


def init(origin: int, recipient: int, places: int = 4, size: int = 100) -> dict[str, Any]:
    return {
        "kind": "init_open_channel",
        "origin": origin,
        "recipient": recipient,
        "max_places": places,
        "max_message_size": size,
    }


def accept(sender: int, recipient: int) -> dict[str, Any]:
    return {"kind": "accept_open_channel", "origin": recipient, "sender": sender}


def candidate(para: int, watermark: int, **parts: Any) -> dict[str, Any]:
    empty = {"upward_messages": [], "processed_downward_messages": 0, "horizontal_messages": []}
    return {"para_id": para, "relay_parent_number": None, "hrmp_watermark": watermark, **empty, **parts}


def send(*recipients: int, data: str = "aa") -> dict[str, Any]:
    return {"horizontal_messages": [{"recipient": recipient, "data": data} for recipient in recipients]}


def ok(result: dict[str, Any]) -> None:
    assert result["ok"], result


def kind(result: dict[str, Any]) -> str:
    return str(result["error"]["kind"])


def opened(*pairs: tuple[int, int], paras: tuple[int, ...] = (1, 2, 3), **settings: Any) -> NaiveRouter:
    router = make(*paras, **settings)
    router.begin_block(1)
    for sender, recipient in pairs:
        ok(router.request(init(sender, recipient)))
        ok(router.request(accept(sender, recipient)))
    router.session_change({})
    return router


@pytest.mark.parametrize(
    ("number", "encoded"),
    [(0, "00"), (63, "fc"), (64, "0101"), (16383, "fdff"), (16384, "02000100"), (1 << 30, "0300000040")],
)
def test_compact_gives_scale_bytes(number: int, encoded: str) -> None:
    assert compact(number).hex() == encoded


def test_head_after_two_messages_matches_published_constant() -> None:
    first = next_head("00" * 32, 2, "010203")
    assert next_head(first, 3, "040506") == "88dc00db8cc9d22aa62b87807705831f164387dfa49f80a8600ed1cbe1704b6b"


def test_digest_entry_names_sender_of_two_messages_once() -> None:
    router = opened((1, 2), (3, 1))
    router.begin_block(5)
    ok(router.candidate(candidate(3, 4, **send(1))))
    router.begin_block(7)
    ok(router.candidate(candidate(1, 5, **send(2))))
    ok(router.candidate(candidate(1, 6, **send(2))))
    assert router.state()["digests"] == {"2": [[7, [1]]]}
    assert router.state()["channels"]["1->2"]["used_places"] == 2


def test_request_count_of_returning_para_stays_at_zero() -> None:
    router = make(1, 2, 3, config={"hrmp_open_request_ttl": 2})
    router.begin_block(1)
    ok(router.request(init(1, 2)))
    router.session_change({"outgoing": [1]})  # the request stays, its count goes
    assert router.state()["open_request_count"] == {}
    assert router.state()["open_request_set"] == ["1->2"]
    router.session_change({"onboarding": [{"para_id": 1, "kind": "parachain", "balance": 5}]})
    assert router.state()["open_request_set"] == []
    assert router.state()["balances"]["1"] == {"free": 1005, "reserved": 0}
    assert router.state()["open_request_count"] == {}


def test_confirmed_request_returns_both_deposits_when_a_party_leaves() -> None:
    router = make(1, 2)
    router.begin_block(1)
    ok(router.request(init(1, 2)))
    ok(router.request(accept(1, 2)))
    assert router.state()["balances"] == {"1": {"free": 900, "reserved": 100}, "2": {"free": 910, "reserved": 90}}
    router.session_change({"outgoing": [2], "new_config": {"hrmp_recipient_deposit": 7}})
    assert router.state()["balances"] == {"1": {"free": 1000, "reserved": 0}, "2": {"free": 1000, "reserved": 0}}
    assert router.state()["open_request_set"] == []
    assert router.state()["channel_set"] == []


def test_session_change_applies_ttl_and_deposit_of_old_configuration() -> None:
    router = make(1, 2, 3)
    router.begin_block(1)
    ok(router.request(init(1, 2)))
    ok(router.request(init(1, 3)))
    ok(router.request(accept(1, 3)))
    router.session_change({"new_config": {"hrmp_open_request_ttl": 1, "hrmp_recipient_deposit": 1}})
    assert router.state()["open_requests"]["1->2"]["age"] == 1
    assert router.state()["channels"]["1->3"]["recipient_deposit"] == 90


def test_offboarded_para_loses_watermark_and_digests() -> None:
    router = opened((1, 2), (3, 2))
    router.begin_block(5)
    ok(router.candidate(candidate(2, 4)))
    ok(router.candidate(candidate(1, 4, **send(2))))
    ok(router.request({"kind": "schedule_para_cleanup", "para_id": 2}))
    assert router.state()["outgoing_paras"] == [2]
    router.session_change({})
    state = router.state()
    assert state["watermarks"] == {"1": 4}
    assert state["digests"] == {}
    assert state["channel_set"] == []
    assert state["outgoing_paras"] == []
    assert state["valid_paras"] == [1, 3]


def test_dispatch_round_without_weight_only_moves_the_pointer() -> None:
    router = make(1, 2, config={"preferred_dispatchable_upward_messages_step_weight": 0})
    router.begin_block(5)
    ok(router.candidate(candidate(2, 4, upward_messages=["aa"])))
    assert router.dispatch_round() == []
    assert router.next_dispatch_round_start_with == 2


def test_candidate_without_messages_is_refused_when_queue_exceeds_lowered_limit() -> None:
    router = make(1, config={"preferred_dispatchable_upward_messages_step_weight": 0})
    router.begin_block(5)
    ok(router.candidate(candidate(1, 4, upward_messages=["aa", "bb", "cc"])))
    router.session_change({"new_config": {"max_upward_queue_count": 2}})
    router.begin_block(6)
    error = router.candidate(candidate(1, 5))["error"]
    assert error == {"kind": "UpwardMessages/CapacityExceeded", "count": 3, "limit": 2}


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ({"processed_downward_messages": 9, "upward_messages": ["00"] * 9}, "ProcessedDownwardMessages/Underflow"),
        ({"upward_messages": ["00" * 200] * 9}, "UpwardMessages/MoreMessagesThanPermitted"),
        ({"upward_messages": ["00" * 112, "00" * 113]}, "UpwardMessages/MessageSize"),
        ({"upward_messages": ["00" * 112] * 3, "hrmp_watermark": 99}, "UpwardMessages/TotalSizeExceeded"),
        ({"hrmp_watermark": 99, **send(9)}, "HrmpWatermark/AheadRelayParent"),
        ({"hrmp_watermark": 2, **send(9)}, "HrmpWatermark/LandsOnBlockWithNoMessages"),
        (send(9, 8, 7, 6), "OutboundHrmp/MoreMessagesThanPermitted"),
        (send(2, 1), "OutboundHrmp/NotSorted"),
        (send(2, 9), "OutboundHrmp/NoSuchChannel"),
        (send(2, data="00" * 101), "OutboundHrmp/MaxMessageSizeExceeded"),
    ],
)
def test_candidate_gets_error_of_first_broken_rule(broken: dict[str, Any], expected: str) -> None:
    router = opened((1, 2))
    router.begin_block(5)
    before = router.state()
    assert kind(router.candidate({**candidate(1, 4), **broken})) == expected
    assert router.state() == before


def test_open_request_sizes_are_checked_before_recipient() -> None:
    router = make(1, 2)
    router.begin_block(1)
    assert kind(router.request(init(1, 1, places=0))) == "OpenHrmpChannelToSelf"
    assert kind(router.request(init(1, 77, places=0))) == "OpenHrmpChannelZeroCapacity"
    assert kind(router.request(init(1, 77, size=401))) == "OpenHrmpChannelMessageSizeExceedsLimit"
    assert kind(router.request(init(1, 77))) == "OpenHrmpChannelInvalidRecipient"


def test_open_request_error_distinguishes_channel_from_request() -> None:
    router = opened((1, 2))
    assert kind(router.request(init(1, 2))) == "OpenHrmpChannelAlreadyExists"
    ok(router.request(init(2, 1)))
    assert kind(router.request(init(2, 1))) == "OpenHrmpChannelAlreadyRequested"


def test_pending_candidate_survives_session_change_and_skips_closed_channel() -> None:
    router = opened((1, 2), enactment="on-inclusion")
    router.begin_block(5)
    ok(router.candidate(candidate(1, 4, upward_messages=["aa"], **send(2))))
    ok(router.candidate(candidate(2, 4)))
    assert router.state()["watermarks"] == {}
    ok(router.request({"kind": "close_channel", "origin": 2, "channel": [1, 2]}))
    router.session_change({})
    included = [{"para_id": 1, "backed_at": 4}, {"para_id": 1, "backed_at": 5}, {"para_id": 1, "backed_at": None}]
    results = router.begin_block(6, included, [{"para_id": 2, "backed_at": None}, {"para_id": 2, "backed_at": None}])
    missing = {"ok": False, "error": {"kind": "Inclusion/CandidateNotPending", "para_id": 1}}
    late = {"ok": False, "error": {"kind": "Timeout/CandidateNotPending", "para_id": 2}}
    assert results == [missing, {"ok": True}, missing, {"ok": True}, late]
    assert router.state()["watermarks"] == {"1": 4}
    assert router.state()["contents"] == {}
    assert router.state()["ump_queues"] == {"1": ["aa"]}


def test_unlimited_balances_track_reserved_deposits_only() -> None:
    router = opened((1, 2), balance=0, unlimited_balances=True)
    balances = router.state()["balances"]
    assert balances["1"] == {"free": 0, "reserved": 100}
    assert balances["2"] == {"free": 0, "reserved": 90}


def test_model_from_state_shows_same_state() -> None:
    router = opened((1, 2), (3, 2))
    router.begin_block(5)
    ok(router.candidate(candidate(1, 4, upward_messages=["aa", "bb"], **send(2))))
    ok(router.downward({"para_id": 3, "msg": "0102"}))
    ok(router.request(init(2, 1)))
    ok(router.request({"kind": "close_channel", "origin": 3, "channel": [3, 2]}))
    ok(router.request({"kind": "schedule_para_cleanup", "para_id": 3}))
    state = router.state()
    assert NaiveRouter.from_state(router.config, state).state() == state
