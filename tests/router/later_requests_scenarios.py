# SPDX-License-Identifier: Apache-2.0
"""Later rules for channel requests: no expiry, cancellation, clearing with an outgoing para, opening by governance, one limit."""

from __future__ import annotations

from collections.abc import Iterator

from tests.router.forced_channels_scenarios import force, plain_force
from tests.router.trace import WITH_SYSTEM, Trace

S = 1000
A, B, C, T, U = 2000, 2001, 2002, 2003, 2004
STRANGER = 2999
FULL = {"free": 100, "reserved": 0}
ONE_DEPOSIT = {"free": 90, "reserved": 10}


def scenarios() -> Iterator[Trace]:
    """Yield the scenarios of the group ``later_requests``."""
    yield from _no_ttl()
    yield from _cancellations()
    yield from _cleaning()
    yield from plain_force()
    yield from force()
    yield from _single_limit()


def _no_ttl() -> Iterator[Trace]:
    trace = Trace(
        "later_requests/age-stands-still",
        "while no_ttl holds an age stays as it is; afterwards it goes on from there and reaches the limit",
        source="router_profiles 3.3",
        rules={3: ["no_ttl"], 7: []},
        config={"hrmp_open_request_ttl": 3},
        interpretation=("PR-02", "ages while nothing expires", "kept, and counted on if the ttl returns"),
    )
    trace.at(1).init(A, B)
    trace.at(2).session().state(open_requests={(A, B): {"age": 1}})
    trace.at(3).session(hrmp_open_request_ttl=1).at(4).init(C, B)
    for block in (4, 5):
        trace.at(block).session().state(open_requests={(A, B): {"age": 1}, (C, B): {"age": 0}})
    trace.at(6).session(hrmp_open_request_ttl=3).state(open_request_set=["2000->2001", "2002->2001"])
    trace.at(7).session().state(open_requests={(A, B): {"age": 2}, (C, B): {"age": 1}})
    trace.at(8).session().state(
        open_requests={(A, B): None, (C, B): {"age": 2}}, open_request_count={A: 0, C: 1}, balances={A: FULL}
    )
    trace.at(9).session().state(open_request_set=[], balances={C: FULL})
    yield trace

    trace = Trace(
        "later_requests/a-time-to-live-of-zero-is-not-looked-at",
        "an unconfirmed request stays whatever the configuration says; confirmed ones open as before",
        source="router_profiles 3.3",
        rules={0: ["no_ttl"]},
        config={"hrmp_open_request_ttl": 0},
    )
    trace.at(1).init(A, B).init(B, C).accept(C, B)
    trace.at(2).session().state(
        open_requests={(A, B): {"age": 0, "confirmed": False}, (B, C): None}, channel_set=["2001->2002"]
    )
    trace.at(3).session().at(4).accept(B, A).session().state(channel_set=["2000->2001", "2001->2002"])
    yield trace

    trace = Trace(
        "later_requests/older-than-the-limit-when-it-returns",
        "a request that is past the limit when ages count again goes with the next session change",
        source="router_profiles 3.3",
        rules={3: ["no_ttl"], 5: []},
        config={"hrmp_open_request_ttl": 4},
        interpretation=("PR-02", "ages while nothing expires", "kept, and counted on if the ttl returns"),
    )
    trace.at(1).init(A, B).session().at(2).session().at(4).session(hrmp_open_request_ttl=2)
    trace.state(open_requests={(A, B): {"age": 2}})
    trace.at(5).session().state(open_request_set=[], balances={A: FULL})
    yield trace


def _cancellations() -> Iterator[Trace]:
    trace = Trace(
        "later_requests/cancelled-by-either-party",
        "the request goes at once, its place is free again, and the deposit that was left comes back",
        source="router_profiles 3.4",
        rules={0: ["cancel_open_request"]},
    )
    trace.at(1).init(T, A).init(T, B, error="OpenHrmpChannelLimitExceeded").cancel(T, T, A)
    trace.state(open_request_set=[], open_request_count={T: 0}, balances={T: FULL})
    trace.at(1).init(T, B).session(hrmp_sender_deposit=30).state(open_request_count={T: 1})
    trace.at(2).init(T, A, error="OpenHrmpChannelLimitExceeded").cancel(B, T, B)
    trace.state(open_request_set=[], open_request_count={T: 0}, balances={T: FULL, B: FULL})
    trace.at(3).init(T, A).state(balances={T: {"free": 70, "reserved": 30}})
    yield trace

    trace = Trace(
        "later_requests/order-of-a-cancellation",
        "party, request, not confirmed: each broken together with what comes later",
        source="router_profiles 3.4",
        rules={0: ["cancel_open_request"]},
    )
    trace.at(1).cancel(C, A, B, error="CancelHrmpOpenChannelUnauthorized")  # there is no request, too
    trace.cancel(A, A, B, error="OpenHrmpChannelDoesntExist").cancel(B, A, B, error="OpenHrmpChannelDoesntExist")
    trace.init(A, B).cancel(A, B, A, error="OpenHrmpChannelDoesntExist").accept(B, A)
    trace.cancel(C, A, B, error="CancelHrmpOpenChannelUnauthorized")  # and confirmed
    trace.cancel(A, A, B, error="OpenHrmpChannelAlreadyConfirmed").cancel(
        B, A, B, error="OpenHrmpChannelAlreadyConfirmed"
    )
    trace.init(A, C).cancel(A, A, C).cancel(A, A, C, error="OpenHrmpChannelDoesntExist").init(B, A).init(C, B).cancel(
        C, C, B
    )
    trace.cancel(B, B, A)
    trace.at(2).session().state(channel_set=["2000->2001"], open_request_set=[])
    trace.at(3).cancel(A, A, B, error="OpenHrmpChannelDoesntExist")  # a channel is no request
    yield trace

    trace = Trace(
        "later_requests/cancelled-although-a-party-is-gone",
        "requests from before the switch may be cancelled, also by or towards a para that has left",
        source="router_profiles 3.4",
        rules={4: ["cancel_open_request"]},
        config={"hrmp_open_request_ttl": 9},
    )
    trace.at(1).init(A, B).init(U, A).init(U, C, error="OpenHrmpChannelLimitExceeded").init(T, C)
    trace.at(2).session(B, U, T).state(open_request_count={A: 1, U: 0, T: 0}, valid_paras=[A, C])
    trace.at(3).cancel(A, A, B, error="RequestNotInForce")
    trace.at(4).cancel(A, A, B).cancel(A, U, A).cancel(T, T, C)
    trace.state(open_request_set=[], open_request_count={A: 0, U: 0, T: 0}, balances={A: FULL, U: FULL, T: FULL})
    yield trace

    trace = Trace(
        "later_requests/a-cancelled-request-is-not-settled",
        "what is cancelled in the block of the session change is gone before it; a new one may follow at once",
        source="router_profiles 3.4",
        rules={0: ["cancel_open_request"]},
    )
    trace.at(1).init(A, B).session().at(2).cancel(A, A, B).init(A, B, 2, 3).session()
    trace.state(
        open_requests={(A, B): {"age": 1, "limit_used_places": 2, "limit_message_size": 3}},
        open_request_count={A: 1},
        balances={A: ONE_DEPOSIT},
    )
    yield trace


def _cleaning() -> Iterator[Trace]:
    cleaning = ["clean_open_channel_requests"]
    trace = Trace(
        "later_requests/cleared-with-an-outgoing-para",
        "every request with an outgoing party goes; who stays gets back what it left, who goes does not",
        source="router_profiles 3.5",
        rules={0: cleaning},
        interpretation=("PR-04", "request deposits of the party that goes", "stay reserved"),
    )
    trace.at(1).init(A, B).init(B, C).init(C, B).accept(B, C).init(B, T).accept(T, B).init(U, A)
    trace.state(
        open_request_count={A: 1, B: 2, C: 1, U: 1},
        accepted_request_count={B: 1, T: 1},
        balances={B: {"free": 74, "reserved": 26}},
    )
    trace.at(2).session(B).state(
        open_request_set=["2004->2000"],
        open_requests={(U, A): {"age": 1}},
        open_request_count={A: 0, B: 0, C: 0, U: 1},
        accepted_request_count={B: 0, T: 0},
        channel_set=[],
        balances={A: FULL, B: {"free": 74, "reserved": 26}, C: FULL, T: FULL, U: ONE_DEPOSIT},
    )
    trace.at(3).session(onboarding=[(B, "parachain", 7)]).state(balances={B: {"free": 81, "reserved": 26}})
    trace.at(4).init(B, A).accept(A, B).state(open_request_count={B: 1}, balances={B: {"free": 71, "reserved": 36}})
    trace.at(5).session().at(6).close(A, B, A).session().state(
        channel_set=[], balances={A: FULL, B: {"free": 81, "reserved": 26}}
    )
    yield trace

    trace = Trace(
        "later_requests/the-place-is-free-when-the-recipient-goes",
        "the sender's count goes down, for a confirmed request as for one that is not, and it may ask again",
        source="router_profiles 3.5",
        rules={0: cleaning},
        interpretation=("PR-03", "the sender's count when the recipient goes", "lowered"),
    )
    trace.at(1).init(T, B).init(U, B).accept(B, U).cleanup(B)
    trace.at(2).session().state(open_request_set=[], open_request_count={T: 0, U: 0}, balances={T: FULL, U: FULL})
    trace.at(3).init(T, A).init(T, C, error="OpenHrmpChannelLimitExceeded").init(U, A)
    yield trace

    trace = Trace(
        "later_requests/both-parties-go",
        "nothing comes back, and no count is left over",
        source="router_profiles 3.5",
        rules={0: cleaning},
        interpretation=("PR-04", "request deposits of the party that goes", "stay reserved"),
    )
    trace.at(1).init(A, B).init(B, A).accept(A, B).cleanup(A)
    trace.at(2).session(B).state(
        open_request_set=[],
        open_request_count={A: 0, B: 0},
        accepted_request_count={A: 0},
        balances={A: {"free": 84, "reserved": 16}, B: ONE_DEPOSIT},
    )
    yield trace

    trace = Trace(
        "later_requests/gone-and-back-at-once",
        "a para that leaves and returns with one session change has left: its requests are cleared and nothing opens",
        source="router_profiles 3.5",
        rules={0: cleaning},
    )
    trace.at(1).init(A, B).accept(B, A).init(B, C).init(C, A)
    trace.at(2).session(B, onboarding=[(B, "parachain", 1)]).state(
        channel_set=[],
        open_request_set=["2002->2000"],
        valid_paras=[A, B, C, T, U],
        balances={A: FULL, B: {"free": 85, "reserved": 16}, C: ONE_DEPOSIT},
    )
    yield trace

    trace = Trace(
        "later_requests/who-left-under-older-rules",
        "requests of a para that was gone before the switch stay and die by age; who goes after the switch takes its own along",
        source="router_profiles 3.5",
        rules={3: cleaning},
        config={"hrmp_open_request_ttl": 3},
        interpretation=(
            "I-06b",
            "a request to an outgoing recipient",
            "dies by age where the party went under older rules",
        ),
    )
    trace.at(1).init(A, B).init(A, C).session(B).state(open_request_set=["2000->2001", "2000->2002"])
    trace.at(3).session(C).state(
        open_requests={(A, B): {"age": 2}, (A, C): None}, open_request_count={A: 1}, balances={A: ONE_DEPOSIT}
    )
    trace.at(4).session().state(open_request_set=[], open_request_count={A: 0}, balances={A: FULL})
    yield trace

    trace = Trace(
        "later_requests/uncounted-requests-end-early",
        "requests that lost their count when their sender left and came back take one off the count of its new ones, to zero at least",
        source="router_profiles 3.5",
        rules={3: [*cleaning, "cancel_open_request"]},
        config={"hrmp_open_request_ttl": 9},
        interpretation=("I-06", "a count that is gone and then decremented", "saturates at zero"),
    )
    trace.at(1).init(A, B).init(A, C).session(A).at(2).session(onboarding=[(A, "parachain", 0)])
    trace.state(open_request_set=["2000->2001", "2000->2002"], open_request_count={A: 0})
    trace.at(3).init(A, T).session(B).state(
        open_request_set=["2000->2002", "2000->2003"],
        open_request_count={A: 0},
        balances={A: {"free": 80, "reserved": 20}},
    )
    trace.at(4).cancel(C, A, C).state(
        open_request_set=["2000->2003"], open_request_count={A: 0}, balances={A: ONE_DEPOSIT}
    )
    trace.at(5).cancel(A, A, T).state(open_request_set=[], open_request_count={A: 0}, balances={A: FULL})
    yield trace

    trace = Trace(
        "later_requests/what-the-recipient-left",
        "a recipient gets back what it left: six from before the switch for system paras, nothing from after it",
        source="router_profiles 3.5",
        rules={
            0: cleaning,
            3: [*cleaning, "system_channels_without_deposits"],
            4: cleaning,
        },
        paras=WITH_SYSTEM,
        interpretation=("PR-05", "what comes back to a recipient", "what it really left"),
    )
    trace.at(2).init(S, A).accept(A, S).init(S, B).state(
        balances={S: {"free": 80, "reserved": 20}, A: {"free": 94, "reserved": 6}}
    )
    trace.at(3).accept(B, S).state(balances={B: FULL})
    trace.at(4).session(S).state(
        open_request_set=[],
        accepted_request_count={A: 0, B: 0},
        balances={S: {"free": 80, "reserved": 20}, A: FULL, B: FULL},
    )
    yield trace

    trace = Trace(
        "later_requests/what-the-recipient-left-before-the-switch",
        "the configuration of now would give nothing back for a system para's channel; six were left and come back",
        source="router_profiles 3.5",
        rules={0: cleaning, 3: [*cleaning, "system_channels_without_deposits"]},
        paras=WITH_SYSTEM,
        interpretation=("PR-05", "what comes back to a recipient", "what it really left"),
    )
    trace.at(2).init(S, A).accept(A, S).at(3).session(S).state(balances={S: ONE_DEPOSIT, A: FULL}, open_request_set=[])
    yield trace


def _single_limit() -> Iterator[Trace]:
    trace = Trace(
        "later_requests/one-limit-for-all-paras",
        "parathreads have the limits of parachains, to the last channel; what is above a limit afterwards stays",
        source="router_profiles 3.11",
        rules={3: ["single_channel_limit"], 6: []},
        config={"hrmp_max_parachain_outbound_channels": 2, "hrmp_max_parachain_inbound_channels": 2},
    )
    trace.at(2).init(T, A).init(T, B, error="OpenHrmpChannelLimitExceeded").init(A, U).accept(U, A).init(B, U)
    trace.accept(U, B, error="AcceptHrmpChannelLimitExceeded")
    trace.at(3).init(T, B).init(T, C, error="OpenHrmpChannelLimitExceeded").accept(U, B).accept(A, T).init(C, U)
    trace.accept(U, C, error="AcceptHrmpChannelLimitExceeded").accept(B, T)
    trace.at(4).session().state(
        channel_set=["2000->2004", "2001->2004", "2003->2000", "2003->2001"],
        egress={T: [A, B]},
        ingress={U: [A, B]},
        open_request_set=["2002->2004"],
    )
    trace.at(6).init(T, C, error="OpenHrmpChannelLimitExceeded").accept(U, C, error="AcceptHrmpChannelLimitExceeded")
    trace.close(T, T, A).close(U, A, U).at(7).session().state(channel_set=["2001->2004", "2003->2001"])
    trace.at(8).init(T, C, error="OpenHrmpChannelLimitExceeded")  # one is open, one is the limit again
    yield trace

    trace = Trace(
        "later_requests/a-parathread-limit-above-the-other",
        "the parathreads' own limits are not looked at, also where they allow more",
        source="router_profiles 3.11",
        rules={0: ["single_channel_limit"]},
        config={
            "hrmp_max_parachain_outbound_channels": 1,
            "hrmp_max_parachain_inbound_channels": 1,
            "hrmp_max_parathread_outbound_channels": 3,
            "hrmp_max_parathread_inbound_channels": 3,
        },
    )
    trace.at(1).init(T, A).init(T, B, error="OpenHrmpChannelLimitExceeded").init(A, T).init(B, T).accept(T, A)
    trace.accept(T, B, error="AcceptHrmpChannelLimitExceeded").init(A, B, error="OpenHrmpChannelLimitExceeded")
    yield trace
