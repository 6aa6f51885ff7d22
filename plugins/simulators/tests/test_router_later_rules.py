# SPDX-License-Identifier: Apache-2.0
"""How the naive model reads the later rules: its data matches the rules', and readings that no sample trace pins."""

from __future__ import annotations

from typing import Any

import pytest
from validator_simulators.router import later_rules
from validator_simulators.router.chains import TIGHT
from validator_simulators.router.model import NaiveRouter

from validator.protocols.router.configuration import LATER_FIELDS, MESSAGE_QUEUE_HEAP_SIZE_DEFAULT
from validator.protocols.router.features import table
from validator.protocols.router.records import REQUESTS as RECORDS

CONFIG = {**TIGHT, "hrmp_sender_deposit": 100, "hrmp_recipient_deposit": 90, "max_upward_queue_count": 9}
BUDGET = "preferred_dispatchable_upward_messages_step_weight"
WEIGHTS = {"aa": 600, "bb": 1001, "cc": 300}
QUEUE = "message_queue"


def make(
    *features: str, paras: tuple[int, ...] = (5, 7, 2000, 2001), balance: int = 1000, **config: int
) -> NaiveRouter:
    """Return a chain with features from block 0 on; it is in block 5."""
    return by_height([{"from_block": 0, "features": list(features)}], paras=paras, balance=balance, **config)


def by_height(
    rules: list[dict[str, Any]], *, paras: tuple[int, ...] = (5, 7, 2000, 2001), balance: int = 1000, **config: int
) -> NaiveRouter:
    genesis = [{"para_id": para, "kind": "parachain", "balance": balance} for para in paras]
    router = NaiveRouter({**CONFIG, **config}, genesis, ump_weights=WEIGHTS, rules=rules)
    router.begin_block(5)
    return router


def init(origin: int, recipient: int) -> dict[str, Any]:
    sizes = {"max_places": 4, "max_message_size": 100}
    return {"kind": "init_open_channel", "origin": origin, "recipient": recipient, **sizes}


def accept(sender: int, recipient: int) -> dict[str, Any]:
    return {"kind": "accept_open_channel", "origin": recipient, "sender": sender}


def send_up(router: NaiveRouter, para: int, *messages: str) -> dict[str, Any]:
    candidate = {"para_id": para, "hrmp_watermark": router.now - 1, "upward_messages": list(messages)}
    return router.candidate({**candidate, "processed_downward_messages": 0, "horizontal_messages": []})


def service(para: int, page: int, index: int, weight_limit: int = 2000) -> dict[str, Any]:
    place = {"para_id": para, "page": page, "index": index}
    return {"kind": "service_overweight", **place, "weight_limit": weight_limit}


def ok(result: dict[str, Any]) -> None:
    assert result == {"ok": True}


def kind(result: dict[str, Any]) -> str:
    return str(result["error"]["kind"])


# --- the data ---


def test_model_knows_features_and_profiles_of_the_rules() -> None:
    assert set(later_rules.FEATURES) == set(table.BY_NAME)
    assert table.PROFILES == later_rules.PROFILES
    assert list(later_rules.PROFILES) == list(table.PROFILES)
    assert {name: (implied,) for name, implied in later_rules.IMPLIES.items()} == {
        feature.name: feature.implies for feature in table.FEATURES if feature.implies
    }
    assert [feature.name for feature in table.FEATURES if feature.lasts] == [later_rules.LASTING]


def test_model_knows_requests_and_configuration_keys_of_the_rules() -> None:
    assert set(later_rules.REQUESTS) < set(RECORDS)
    assert len(RECORDS) == len(later_rules.REQUESTS) + 4
    assert {*later_rules.DEFAULTS, *later_rules.STANDS_FOR} == set(LATER_FIELDS)
    assert later_rules.DEFAULTS["message_queue_heap_size"] == MESSAGE_QUEUE_HEAP_SIZE_DEFAULT


def test_last_entry_begun_holds_as_a_whole() -> None:
    rules = [
        {"from_block": 3, "features": ["no_ttl", "watermark_may_stay"]},
        {"from_block": 7, "profile": "router/2020-11"},
    ]
    assert later_rules.features_at(rules, 2) == set()
    assert later_rules.features_at(rules, 3) == {"no_ttl", "watermark_may_stay", "relaxed_watermark"}
    assert later_rules.features_at(rules, 8) == {"hrmp_notifications"}
    assert later_rules.features_at([], 8) == set()


# --- requests ---


@pytest.mark.parametrize("kind_of_request", sorted(later_rules.REQUESTS))
def test_later_request_is_refused_before_anything_else_is_looked_at(kind_of_request: str) -> None:
    error = make().request({"kind": kind_of_request})["error"]
    assert error == {"kind": "RequestNotInForce", "request": kind_of_request}


def test_refused_second_half_takes_back_the_first() -> None:
    router = make("establish_channel_with_system", "hrmp_notifications", balance=250)
    ok(
        router.request(init(5, 2001))
    )  # leaves 150 of 250: enough to be the recipient, not enough to be the sender again
    before = router.state()
    request = {"kind": "establish_channel_with_system", "origin": 2000, "target": 5}
    assert kind(router.request(request)) == "InsufficientBalance"
    assert router.state() == before


def test_forced_channel_that_is_refused_leaves_the_request_it_would_clear() -> None:
    router = make("force_open_channel")
    ok(router.request(init(2000, 2001)))
    before = router.state()
    request = {"kind": "force_open_channel", "sender": 2000, "recipient": 2001, "max_places": 0, "max_message_size": 1}
    assert kind(router.request(request)) == "OpenHrmpChannelZeroCapacity"
    assert router.state() == before


def test_later_form_of_forced_channels_counts_if_both_hold() -> None:
    router = make("force_open_channel_plain", "force_open_channel")
    ok(router.request(init(2000, 2001)))
    request = {"kind": "force_open_channel", "sender": 2000, "recipient": 2001, "max_places": 1, "max_message_size": 1}
    ok(router.request(request))
    assert kind(router.request(request)) == "OpenHrmpChannelAlreadyConfirmed"


def test_poke_is_all_or_nothing() -> None:
    router = make("poke_channel_deposits", hrmp_sender_deposit=0, hrmp_recipient_deposit=0, balance=50)
    ok(router.request(init(2000, 2001)))
    ok(router.request(accept(2000, 2001)))
    router.session_change({"new_config": {"hrmp_sender_deposit": 50, "hrmp_recipient_deposit": 51}})
    before = router.state()
    assert (
        kind(router.request({"kind": "poke_channel_deposits", "sender": 2000, "recipient": 2001}))
        == "InsufficientBalance"
    )
    assert router.state() == before


def test_sender_that_stays_gets_its_place_back() -> None:
    router = make("clean_open_channel_requests")
    ok(router.request(init(2000, 2001)))
    router.session_change({"outgoing": [2001]})
    assert router.state()["open_request_count"] == {}
    assert router.state()["balances"]["2000"] == {"free": 1000, "reserved": 0}


def test_recipient_that_stays_gets_what_it_left() -> None:
    rules = [
        {"from_block": 6, "features": ["system_channels_without_deposits", "clean_open_channel_requests"]},
    ]
    router = by_height(rules)
    ok(router.request(init(5, 2000)))
    ok(router.request(init(7, 2000)))
    ok(router.request(accept(5, 2000)))
    router.begin_block(6)
    ok(router.request(accept(7, 2000)))
    assert router.state()["balances"]["2000"] == {"free": 910, "reserved": 90}
    router.session_change({"outgoing": [7]})
    assert router.state()["channels"]["5->2000"]["recipient_deposit"] == 90
    assert router.state()["balances"]["7"] == {"free": 900, "reserved": 100}  # what leaves stays reserved
    assert router.state()["balances"]["2000"] == {"free": 910, "reserved": 90}


def test_age_goes_on_from_where_it_stopped() -> None:
    router = by_height([{"from_block": 6, "features": ["no_ttl"]}, {"from_block": 8, "features": []}])
    ok(router.request(init(2000, 2001)))
    ages = []
    for block in (6, 7, 8):
        router.begin_block(block)
        router.session_change({})
        ages.append(router.state()["open_requests"]["2000->2001"]["age"])
    assert ages == [0, 0, 1]


# --- watermarks ---


def advance(router: NaiveRouter, watermark: int, relay_parent: int) -> dict[str, Any]:
    candidate = {"para_id": 5, "hrmp_watermark": watermark, "relay_parent_number": relay_parent, "upward_messages": []}
    return router.candidate({**candidate, "processed_downward_messages": 0, "horizontal_messages": []})


@pytest.mark.parametrize(
    ("features", "watermark", "relay_parent", "expected"),
    [
        ((), 4, 3, "HrmpWatermark/AdvancementRule"),
        (("relaxed_watermark",), 4, 3, "HrmpWatermark/AheadRelayParent"),
        (("relaxed_watermark",), 3, 3, None),
        (("relaxed_watermark",), 4, 5, "HrmpWatermark/AdvancementRule"),
        (("watermark_may_stay",), 4, 5, None),
        (("watermark_may_stay",), 4, 3, "HrmpWatermark/AheadRelayParent"),
        (("watermark_may_stay",), 3, 5, "HrmpWatermark/AdvancementRule"),
        (("watermark_may_stay",), 5, 6, "HrmpWatermark/LandsOnBlockWithNoMessages"),
    ],
)
def test_watermark_after_4(features: tuple[str, ...], watermark: int, relay_parent: int, expected: str | None) -> None:
    router = make(*features)
    ok(advance(router, 4, 4))
    result = advance(router, watermark, relay_parent)
    assert (None if result["ok"] else kind(result)) == expected
    if expected is None:
        assert router.watermarks[5] == watermark


# --- the message queue ---


def test_round_passes_each_para_once_and_the_next_one_starts_after_its_first() -> None:
    router = make(QUEUE)
    for para, messages in ((2001, ("aa", "aa")), (5, ("aa",)), (2000, ("cc", "cc"))):
        ok(send_up(router, para, *messages))
    assert router.dispatch_round() == [[2001, "aa"], [2000, "cc"]]
    assert router.state()["ready_ring"] == [5, 2000, 2001]
    router.begin_block(6)
    assert router.dispatch_round() == [[5, "aa"], [2000, "cc"]]
    assert router.state()["ready_ring"] == [2001]


def test_pages_fill_up_with_processed_messages_too() -> None:
    router = make(QUEUE, message_queue_heap_size=13, **{BUDGET: 600})
    ok(send_up(router, 5, "aa", "bb", "cc"))  # 6 bytes each: two in a page
    assert router.dispatch_round() == [[5, "aa"]]
    router.begin_block(6)
    ok(send_up(router, 5, "dd"))
    assert router.state()["ump_overweight"] == {"5": [{"page": 0, "index": 1, "msg": "bb"}]}
    assert kind(router.request(service(5, 0, 0))) == "AlreadyProcessed"
    assert kind(router.request(service(5, 0, 2))) == "NoMessage"
    assert kind(router.request(service(5, 1, 0))) == "Queued"
    assert kind(router.request(service(5, 2, 0))) == "NoPage"
    assert kind(router.request(service(5, 0, 1, 1000))) == "InsufficientWeight"
    ok(router.request(service(5, 0, 1, 1001)))
    assert kind(router.request(service(5, 0, 1, 1001))) == "NoPage"
    assert router.dispatch_round() == [[5, "bb"], [5, "cc"], [5, "dd"]]


def test_message_longer_than_a_page_is_dropped_and_its_para_does_not_join() -> None:
    router = make(QUEUE, message_queue_heap_size=6)
    ok(send_up(router, 5, "0102"))
    assert router.state()["ready_ring"] == []
    ok(send_up(router, 7, "0102", "aa"))
    assert router.state()["ump_queues"] == {"7": ["aa"]}


def test_queues_move_over_in_the_order_of_the_next_old_round() -> None:
    router = by_height([{"from_block": 6, "features": [QUEUE]}], **{BUDGET: 1000})
    for para in (5, 7, 2000):
        ok(send_up(router, para, "aa", "aa"))
    assert router.dispatch_round() == [[5, "aa"], [7, "aa"]]
    assert router.state()["ready_ring"] is None
    router.begin_block(6)
    assert router.state()["ready_ring"] == [2000, 5, 7]
    assert router.state()["ump_queues"] == {"5": ["aa"], "7": ["aa"], "2000": ["aa", "aa"]}


def test_no_budget_serves_nothing_and_sets_nothing_aside() -> None:
    router = make(QUEUE, **{BUDGET: 0})
    ok(send_up(router, 5, "aa", ""))
    assert router.dispatch_round() == []
    assert router.state()["ready_ring"] == [5]
    assert router.state()["ump_overweight"] == {}


def test_para_with_a_message_set_aside_cannot_offboard_but_can_be_removed() -> None:
    router = make(QUEUE)
    ok(send_up(router, 5, "bb"))
    router.dispatch_round()
    assert kind(router.request({"kind": "schedule_para_cleanup", "para_id": 5})) == "CannotOffboard"
    router.session_change({"outgoing": [5], "onboarding": [{"para_id": 5, "kind": "parachain", "balance": 0}]})
    assert router.state()["ump_overweight"] == {}
    router.begin_block(7)
    ok(send_up(router, 5, "bb"))
    router.dispatch_round()
    assert router.state()["ump_overweight"] == {"5": [{"page": 0, "index": 0, "msg": "bb"}]}


def test_upward_checks_take_count_before_sizes_and_size_and_bytes_message_by_message() -> None:
    large, fits = "00" * 113, "00" * 112
    router = make(QUEUE, max_upward_queue_count=2, max_upward_queue_size=150)
    assert kind(send_up(router, 5, large, large, large)) == "UpwardMessages/CapacityExceeded"
    result = send_up(router, 5, fits, fits)
    assert result["error"] == {"kind": "UpwardMessages/TotalSizeExceeded", "total_size": 224, "limit": 150}
    assert kind(send_up(router, 5, large, fits)) == "UpwardMessages/MessageSize"
    ok(router.request({"kind": "schedule_para_cleanup", "para_id": 5}))
    assert kind(send_up(router, 5, *[large] * 9)) == "UpwardMessages/IsOffboarding"
    ok(send_up(router, 5))
