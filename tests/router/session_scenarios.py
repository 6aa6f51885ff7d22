# SPDX-License-Identifier: Apache-2.0
"""Session changes: requests that age, open and expire, closures, configuration, paras that come and go."""

from __future__ import annotations

from collections.abc import Iterator

from validator_simulators.router.model import ZERO_HASH, next_head

from tests.router.trace import Trace

A, B, C, T, U = 2000, 2001, 2002, 2003, 2004
NEWCOMER = 2999
FULL = {"free": 100, "reserved": 0}


def scenarios() -> Iterator[Trace]:
    """Yield the scenarios of the group ``session``."""
    yield from _requests()
    yield from _closures()
    yield from _configuration()
    yield from _offboarding()
    yield from _offboarding_requests()
    yield from _onboarding()


def _requests() -> Iterator[Trace]:
    trace = Trace(
        "session/a-request-ages-and-expires",
        "one older at each session change; at the configured age it goes, with its count, and its deposit comes back",
        source="Session Change 2.1",
        interpretation=("I-05", "is the age stored, and which comparison", "stored, >="),
    )
    trace.at(1).init(A, B).init(A, C).session().state(
        open_requests={(A, B): {"age": 1, "confirmed": False}},
        open_request_count={A: 2},
        balances={A: {"reserved": 20}},
    )
    trace.at(2).init(A, T)
    trace.at(3).session().state(
        open_request_set=["2000->2003"], open_request_count={A: 1}, balances={A: {"free": 90, "reserved": 10}}
    )
    trace.at(4).accept(B, A, error="AcceptHrmpChannelDoesntExist").init(A, B)
    yield trace

    trace = Trace(
        "session/a-confirmed-request-opens-at-its-last-chance",
        "confirmed after it has aged, it opens at the session change at which it would have expired",
        source="Session Change 2.2",
    )
    trace.at(1).init(A, B).init(A, C).at(2).session().at(3).accept(B, A)
    trace.at(4).session().state(
        channel_set=["2000->2001"], open_request_set=[], balances={A: {"free": 90, "reserved": 10}}
    )
    yield trace

    trace = Trace(
        "session/a-time-to-live-of-zero",
        "a request that nobody confirms before the next session change is gone with it",
        source="Session Change 2.1",
        config={"hrmp_open_request_ttl": 0},
        interpretation=("I-05", "R.age reached the limit", ">="),
    )
    trace.at(1).init(A, B).init(A, C).accept(C, A)
    trace.at(2).session().state(open_request_set=[], channel_set=["2000->2002"], balances={B: FULL})
    yield trace

    trace = Trace(
        "session/a-time-to-live-lowered-below-an-age",
        "a request older than the new limit expires at the next session change; the limit before the change holds in the change",
        source="Session Change 2.1",
        config={"hrmp_open_request_ttl": 5},
        interpretation=("I-05", "R.age reached the limit", ">="),
    )
    trace.at(1).init(A, B).at(2).session().at(3).session().at(4).session(hrmp_open_request_ttl=1)
    trace.state(open_requests={(A, B): {"age": 3}})
    trace.at(5).session().state(open_request_set=[], open_request_count={A: 0}, balances={A: FULL})
    yield trace

    trace = Trace(
        "session/several-requests-at-once",
        "each is settled by itself: one expires, one opens, one ages",
        source="Session Change 2",
    )
    trace.at(1).init(A, B).at(2).session().at(3).init(B, A).init(C, A).accept(A, B)
    trace.at(4).session().state(
        open_requests={(A, B): None, (B, A): None, (C, A): {"age": 1, "confirmed": False}},
        channel_set=["2001->2000"],
        open_request_count={A: 0, B: 0, C: 1},
        accepted_request_count={A: 0},
        ingress={A: [B]},
        egress={B: [A]},
        balances={A: {"free": 94, "reserved": 6}, B: {"free": 90, "reserved": 10}, C: {"free": 90, "reserved": 10}},
    )
    yield trace

    trace = Trace(
        "session/indexes-are-sorted",
        "rows of both indexes ascend, whatever the order of requests",
        source="router_rules 1.7",
    )
    trace.open((C, A), (A, C), (U, A), (B, A), (A, T), (A, B))
    trace.state(ingress={A: [B, C, U], C: [A], T: [A], B: [A]}, egress={A: [B, C, T], C: [A], U: [A], B: [A]})
    yield trace


def _closures() -> Iterator[Trace]:
    trace = Trace(
        "session/a-closure-returns-both-deposits",
        "the channel goes with what is in it; digests stay",
        source="Session Change 3, To remove a HRMP channel",
    )
    trace.open((A, B), (C, B))
    trace.at(3).candidate(A, send={B: "01"}).close(A, A, B)
    trace.at(4).session().state(
        channel_set=["2002->2001"],
        contents={(A, B): None},
        close_request_set=[],
        ingress={B: [C]},
        egress={A: None},
        digests={B: [[3, [A]]]},
        balances={A: FULL, B: {"free": 94, "reserved": 6}},
    )
    yield trace

    trace = Trace(
        "session/a-closure-of-a-channel-that-offboarding-removed",
        "the close request finds nothing to remove, and no deposit comes back twice",
        source="Session Change 3: if exists",
    )
    trace.open((A, B), (A, C))
    trace.at(3).close(A, A, B).cleanup(B)
    trace.at(4).session().state(
        channel_set=["2000->2002"],
        close_request_set=[],
        balances={A: {"free": 90, "reserved": 10}, B: FULL, C: {"free": 94, "reserved": 6}},
    )
    yield trace

    trace = Trace(
        "session/an-opened-channel-is-not-closed-by-an-older-request",
        "closing and asking again need a session change in between",
        source="Session Change 2 and 3",
    )
    trace.open((A, B))
    trace.at(3).close(A, A, B).init(A, B, error="OpenHrmpChannelAlreadyExists")
    trace.at(4).session().at(5).init(A, B).accept(B, A).close(A, A, B, error="CloseHrmpChannelDoesntExist")
    trace.at(6).session().state(channel_set=["2000->2001"], close_request_set=[])
    yield trace


def _configuration() -> Iterator[Trace]:
    trace = Trace(
        "session/configuration-holds-from-the-next-block-on",
        "inputs of the block that ends the session are judged by the old limits",
        source="router_rules 1.1 step 6",
    )
    trace.at(1).downward(A, "00" * 16).session(max_downward_message_size=2, hrmp_channel_max_places=1)
    trace.at(2).downward(B, "00" * 3, error="ExceedsMaxMessageSize").downward(B, "00" * 2)
    trace.init(A, B, 2, error="OpenHrmpChannelCapacityExceedsLimit").init(A, B, 1)
    yield trace

    trace = Trace(
        "session/limits-stay-with-request-and-channel",
        "a request keeps the limits it was made with, its channel as well; what is not named stays as it was",
        source="hrmp_init_open_channel, Session Change 2.2",
    )
    trace.at(1).init(A, B).accept(B, A).init(A, C)
    trace.at(2).session(hrmp_channel_max_size=1, hrmp_channel_max_message_size=1).state(
        channels={(A, B): {"limit_used_bytes": 20, "limit_message_size": 8}},
        open_requests={(A, C): {"limit_used_bytes": 20, "limit_message_size": 8}},
    )
    trace.at(3).candidate(A, send={B: "00" * 8}).init(B, A, 4, 2, error="OpenHrmpChannelMessageSizeExceedsLimit")
    trace.init(B, A, 4, 1).state(open_requests={(B, A): {"limit_used_bytes": 1, "limit_used_places": 4}})
    yield trace

    trace = Trace(
        "session/deposits-of-the-configuration-before-the-change",
        "a channel that opens with a change of deposits holds the old ones, and returns just these",
        source="Session Change 2.2",
        interpretation=("I-10", "which configuration's recipient deposit", "the one before the change"),
    )
    trace.at(1).init(A, B).accept(B, A)
    trace.at(2).session(hrmp_sender_deposit=50, hrmp_recipient_deposit=40).state(
        channels={(A, B): {"sender_deposit": 10, "recipient_deposit": 6}}
    )
    trace.at(3).init(B, A).accept(A, B).close(A, A, B).state(
        balances={A: {"free": 50, "reserved": 50}, B: {"free": 44, "reserved": 56}}
    )
    trace.at(4).session().state(
        channels={(A, B): None, (B, A): {"sender_deposit": 50, "recipient_deposit": 40}},
        balances={A: {"free": 60, "reserved": 40}, B: {"free": 50, "reserved": 50}},
    )
    yield trace


def _offboarding() -> Iterator[Trace]:
    trace = Trace(
        "session/offboarding-removes-what-a-para-owns",
        "its queues, heads, channels in both directions with contents and deposits, and its rows at the peers",
        source="Session Change 1, router_rules 1.8",
        config={"preferred_dispatchable_upward_messages_step_weight": 0},
    )
    trace.open((A, B), (B, A), (C, B), (B, C), (A, C))
    trace.at(3).downward(B, "dd").candidate(A, send={B: "01", C: "02"})
    trace.at(4).candidate(B, processed=1, send={A: "03"}, up=("04",)).at(4).downward(B, "ee")
    trace.at(5).session(B).state(
        valid_paras=[A, C, T, U],
        channel_set=["2000->2002"],
        contents={(A, B): None, (B, A): None, (A, C): [{"sent_at": 3, "data": "02"}]},
        ingress={A: None, B: None, C: [A]},
        egress={A: [C], B: None, C: None},
        mqc_heads={A: None, B: None},
        dmq={B: None},
        dmq_heads={B: None},
        ump_queues={B: None},
        ump_queue_size={B: None},
        needs_dispatch=[],
        next_dispatch_round_start_with=None,
        balances={A: {"free": 90, "reserved": 10}, B: FULL, C: {"free": 94, "reserved": 6}},
    )
    yield trace

    trace = Trace(
        "session/digests-of-others-keep-naming-who-left",
        "an entry that names an offboarded sender stays a landing place",
        source="router_rules 1.8",
    )
    trace.open((A, B))
    trace.at(3).candidate(A, send={B: "01"}).at(4).session(A).state(digests={B: [[3, [A]]]}, contents={(A, B): None})
    trace.at(6).candidate(B, 4, error="HrmpWatermark/LandsOnBlockWithNoMessages", new_watermark=4).candidate(B, 3)
    trace.state(digests={B: None}, watermarks={B: 3})
    yield trace

    trace = Trace(
        "session/scheduled-and-named-paras-leave-together",
        "paras scheduled for cleanup and paras that the change names; both ends of a channel at once",
        source="Session Change 1",
    )
    trace.open((A, B), (A, C))
    trace.at(3).cleanup(B).at(4).session(A, B).state(
        valid_paras=[C, T, U], channel_set=[], outgoing_paras=[], balances={A: FULL, B: FULL, C: FULL}
    )
    yield trace

    trace = Trace(
        "session/a-scheduled-para-works-until-the-session-change",
        "until then it is valid: it sends, receives and asks for channels",
        source="schedule_para_cleanup",
    )
    trace.open((A, B))
    trace.at(3).cleanup(A).candidate(A, send={B: "01"}).init(A, C).init(C, A).state(valid_paras=[A, B, C, T, U])
    trace.at(4).session().state(valid_paras=[B, C, T, U], channel_set=[])
    yield trace

    trace = Trace(
        "session/an-unknown-para-leaves",
        "nothing happens",
        source="Session Change 1",
    )
    trace.at(1).session(NEWCOMER).state(valid_paras=[A, B, C, T, U], outgoing_paras=[], balances={A: FULL})
    yield trace


def _offboarding_requests() -> Iterator[Trace]:
    trace = Trace(
        "session/a-confirmed-request-with-a-party-that-leaves",
        "no channel; the request and both counts go, and both deposits come back",
        source="Session Change 2.2",
        interpretation=("I-07", "deposits of a confirmed request with an offboarded party", "both go back"),
    )
    trace.at(1).init(A, B).accept(B, A).init(B, C).accept(C, B).init(C, A).accept(A, C)
    trace.at(2).session(B).state(
        channel_set=["2002->2000"],
        open_request_set=[],
        open_request_count={A: 0, B: 0, C: 0},
        accepted_request_count={A: 0, B: 0, C: 0},
        balances={A: {"free": 94, "reserved": 6}, B: FULL, C: {"free": 90, "reserved": 10}},
    )
    yield trace

    trace = Trace(
        "session/an-unconfirmed-request-outlives-its-sender",
        "its sender's count goes at once; the request dies by age and the count stays at zero",
        source="Session Change 1 and 2.1",
        interpretation=("I-06", "a count that is gone and then decremented", "saturates at zero"),
    )
    trace.at(1).init(A, B).session(A).state(
        open_requests={(A, B): {"age": 1, "confirmed": False}},
        open_request_count={A: 0},
        balances={A: {"free": 90, "reserved": 10}},
    )
    trace.at(2).session().state(open_request_set=[], open_request_count={A: 0}, balances={A: FULL})
    yield trace

    trace = Trace(
        "session/an-unconfirmed-request-outlives-its-recipient",
        "it dies by age, and until then counts against its sender",
        source="Session Change 1 and 2.1",
        interpretation=("I-06b", "a request to an outgoing recipient", "dies by age"),
    )
    trace.at(1).init(T, B).session(B).state(open_requests={(T, B): {"age": 1}}, open_request_count={T: 1})
    trace.at(2).init(T, A, error="OpenHrmpChannelLimitExceeded")
    trace.at(3).session().state(open_request_set=[], open_request_count={T: 0}, balances={T: FULL})
    trace.at(4).init(T, A)
    yield trace

    trace = Trace(
        "session/a-request-from-before-its-sender-left-and-came-back",
        "it is not counted any more; when it dies it takes one off the count of the new ones, which ends at zero",
        source="Session Change 1 and 2",
        config={"hrmp_open_request_ttl": 3},
        interpretation=("I-06", "a count that is gone and then decremented", "saturates at zero"),
    )
    trace.at(1).init(A, B).init(A, C).session(A)
    trace.at(2).session(onboarding=[(A, "parachain", 0)]).state(
        open_request_set=["2000->2001", "2000->2002"], open_request_count={A: 0}, valid_paras=[A, B, C, T, U]
    )
    trace.at(3).init(A, T).init(A, B, error="OpenHrmpChannelAlreadyRequested").state(open_request_count={A: 1})
    trace.at(4).session().state(open_request_set=["2000->2003"], open_request_count={A: 0})
    trace.at(5).session().at(6).session().state(open_request_set=[], open_request_count={A: 0}, balances={A: FULL})
    yield trace

    trace = Trace(
        "session/a-para-leaves-and-comes-back-at-once",
        "what it owned is gone, but it is valid when requests are settled: its confirmed ones open",
        source="router_rules 1.1 step 6, 1.7",
    )
    trace.open((A, B))
    trace.at(3).init(A, C).accept(C, A).init(T, A).accept(A, T).candidate(A, send={B: "01"}).at(3).downward(A, "02")
    trace.at(4).session(A, onboarding=[(A, "parachain", 5)]).state(
        valid_paras=[A, B, C, T, U],
        channel_set=["2000->2002", "2003->2000"],
        dmq={A: None},
        watermarks={A: None},
        open_request_count={A: 0, T: 0},
        accepted_request_count={A: 0, C: 0},
        ingress={A: [T], B: None, C: [A]},
        egress={A: [C], T: [A]},
        balances={
            A: {"free": 89, "reserved": 16},
            B: FULL,
            C: {"free": 94, "reserved": 6},
            T: {"free": 90, "reserved": 10},
        },
    )
    trace.at(5).candidate(A, send={C: "03"}).state(mqc_heads={C: [[A, next_head(ZERO_HASH, 5, "03")]]})
    yield trace


def _onboarding() -> Iterator[Trace]:
    trace = Trace(
        "session/a-para-is-valid-after-the-session-change",
        "it brings its balance and its kind, which decides its limits",
        source="router_rules 1.1 step 6",
    )
    trace.at(1).init(A, NEWCOMER, error="OpenHrmpChannelInvalidRecipient")
    trace.session(onboarding=[(NEWCOMER, "parathread", 21)]).state(
        valid_paras=[A, B, C, T, U, NEWCOMER], balances={NEWCOMER: {"free": 21, "reserved": 0}}
    )
    trace.at(2).init(A, NEWCOMER).accept(NEWCOMER, A).init(NEWCOMER, A).state(
        balances={NEWCOMER: {"free": 5, "reserved": 16}}
    )
    trace.at(2).init(NEWCOMER, B, error="OpenHrmpChannelLimitExceeded")
    trace.at(3).session().state(channel_set=["2000->2999"], open_request_set=["2999->2000"])
    yield trace

    trace = Trace(
        "session/a-parathread-becomes-a-parachain",
        "the kind is that of the last onboarding",
        source="router_rules 1.6",
    )
    trace.at(1).init(T, A).init(T, B, error="OpenHrmpChannelLimitExceeded")
    trace.at(2).session(onboarding=[(T, "parachain", 0)])
    trace.at(3).init(T, B).init(T, C).init(T, U, error="OpenHrmpChannelLimitExceeded")
    yield trace

    trace = Trace(
        "session/an-empty-change",
        "a session that ends without anything to do leaves everything but ages",
        source="Session Change",
    )
    trace.open((A, B))
    trace.at(3).candidate(A, send={B: "01"}).session().state(
        contents={(A, B): [{"sent_at": 3, "data": "01"}]}, watermarks={A: 2}, digests={B: [[3, [A]]]}
    )
    trace.at(4).candidate(B, 3).state(contents={(A, B): None})
    yield trace
