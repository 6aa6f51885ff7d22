# SPDX-License-Identifier: Apache-2.0
"""The features force_open_channel_plain and force_open_channel."""

from __future__ import annotations

from collections.abc import Iterator

from tests.router.trace import Trace

S = 1000
A, B, C, T, U = 2000, 2001, 2002, 2003, 2004
STRANGER = 2999
FULL = {"free": 100, "reserved": 0}
ONE_DEPOSIT = {"free": 90, "reserved": 10}


def plain_force() -> Iterator[Trace]:
    """Yield the scenarios of a forced channel that replaces nothing."""
    plain = ["force_open_channel_plain"]
    trace = Trace(
        "later_requests/opened-by-governance",
        "asked for and accepted at once, with both deposits and both counts; the channel opens with the session change",
        source="router_profiles 3.6",
        rules={0: plain},
    )
    trace.at(1).force(A, B, 3, 5).state(
        open_requests={
            (A, B): {
                "confirmed": True,
                "age": 0,
                "sender_deposit": 10,
                "limit_used_places": 3,
                "limit_used_bytes": 20,
                "limit_message_size": 5,
            }
        },
        open_request_count={A: 1},
        accepted_request_count={B: 1},
        channel_set=[],
        balances={A: ONE_DEPOSIT, B: {"free": 94, "reserved": 6}},
    )
    trace.at(2).session().state(
        channels={
            (A, B): {"sender_deposit": 10, "recipient_deposit": 6, "limit_used_places": 3, "limit_message_size": 5}
        },
        open_request_set=[],
        open_request_count={A: 0},
        accepted_request_count={B: 0},
    )
    yield trace

    trace = Trace(
        "later_requests/order-of-plain-force",
        "the checks of asking in their order, then those of accepting",
        source="router_profiles 3.6",
        rules={0: plain},
        paras={A: "parachain", B: "parachain", C: "parachain", T: "parathread", U: "parathread"},
        balances={A: 40, B: 16, C: 10, U: 9},
        interpretation=(
            "PR-12",
            "sizes before or after the recipient",
            "the order of router.txt, inside other requests, too",
        ),
    )
    trace.at(1).force(A, A, 0, 0, error="OpenHrmpChannelToSelf").force(
        A, STRANGER, 0, 0, error="OpenHrmpChannelZeroCapacity"
    )
    trace.force(A, STRANGER, 5, 0, error="OpenHrmpChannelCapacityExceedsLimit")
    trace.force(A, STRANGER, 4, 0, error="OpenHrmpChannelZeroMessageSize")
    trace.force(A, STRANGER, 4, 9, error="OpenHrmpChannelMessageSizeExceedsLimit")
    trace.force(A, STRANGER, error="OpenHrmpChannelInvalidRecipient")
    trace.force(A, T).at(2).session().at(3).force(A, T, error="OpenHrmpChannelAlreadyExists")
    trace.force(A, U).force(A, U, error="OpenHrmpChannelAlreadyRequested").init(B, A)
    trace.force(B, A, error="OpenHrmpChannelAlreadyRequested")  # unconfirmed, too
    trace.at(4).force(T, U, error="AcceptHrmpChannelLimitExceeded").force(U, B, error="InsufficientBalance")
    trace.force(C, A).force(C, B, error="InsufficientBalance")  # of the sender, which has nothing left
    trace.state(
        open_request_set=["2000->2004", "2001->2000", "2002->2000"],
        open_request_count={A: 1, B: 1, C: 1, T: 0, U: 0},
        accepted_request_count={A: 1, U: 1, B: 0},
        balances={
            A: {"free": 14, "reserved": 26},
            B: {"free": 6, "reserved": 10},
            C: {"free": 0, "reserved": 10},
            T: {"free": 94, "reserved": 6},
            U: {"free": 3, "reserved": 6},
        },
    )
    yield trace

    trace = Trace(
        "later_requests/plain-force-fails-in-its-second-part",
        "the recipient cannot pay or has no place left: nothing stays of what the sender's part did",
        source="router_profiles 1",
        rules={0: [*plain, "hrmp_notifications"]},
        balances={B: 5},
    )
    trace.at(1).force(A, B, error="InsufficientBalance").state(
        open_request_set=[],
        open_request_count={A: 0},
        accepted_request_count={B: 0},
        balances={A: FULL, B: {"free": 5, "reserved": 0}},
        dmq={A: None, B: None},
        dmq_heads={A: None, B: None},
    )
    trace.at(2).force(C, T).force(A, T, error="AcceptHrmpChannelLimitExceeded").state(
        open_request_set=["2002->2003"], open_request_count={A: 0, C: 1}, balances={A: FULL}, dmq={A: None}
    )
    trace.at(3).downward(B, "aa").at(4).force(A, B, error="InsufficientBalance").state(
        dmq={A: None, B: [{"sent_at": 3, "msg": "aa"}]}
    )
    trace.at(4).force(A, C).state(open_request_set=["2000->2002", "2002->2003"])
    yield trace

    trace = Trace(
        "later_requests/forced-for-a-sender-that-is-not-valid",
        "as in asking, the sender is not checked; no channel opens for it",
        source="router_profiles 3.6",
        rules={0: plain},
        config={"hrmp_sender_deposit": 0, "hrmp_recipient_deposit": 6},
    )
    trace.at(1).force(STRANGER, A).state(open_request_count={STRANGER: 1}, balances={A: {"free": 94, "reserved": 6}})
    trace.at(2).session().state(
        channel_set=[], open_request_set=[], open_request_count={STRANGER: 0}, balances={A: FULL}
    )
    yield trace


def force() -> Iterator[Trace]:
    """Yield the scenarios of a forced channel that replaces a request."""
    force = ["force_open_channel"]
    trace = Trace(
        "later_requests/force-takes-the-place-of-a-request",
        "the old deposit comes back and the place is free before the new request is checked, which keeps nothing of the old one",
        source="router_profiles 3.6",
        rules={0: force},
        balances={T: 25},
    )
    trace.at(1).init(T, A, 4, 8).session(hrmp_sender_deposit=25, hrmp_channel_max_size=18)
    trace.at(2).force(T, A, 2, 5).state(
        open_requests={
            (T, A): {
                "confirmed": True,
                "age": 0,
                "sender_deposit": 25,
                "limit_used_places": 2,
                "limit_used_bytes": 18,
                "limit_message_size": 5,
            }
        },
        open_request_count={T: 1},
        accepted_request_count={A: 1},
        balances={T: {"free": 0, "reserved": 25}, A: {"free": 94, "reserved": 6}},
    )
    trace.at(3).session().state(channel_set=["2003->2000"], open_request_count={T: 0})
    yield trace

    trace = Trace(
        "later_requests/force-without-a-request",
        "as the plain form, with its checks in their order",
        source="router_profiles 3.6",
        rules={0: force},
    )
    trace.at(1).force(A, A, 0, 0, error="OpenHrmpChannelToSelf").force(
        A, STRANGER, 0, 9, error="OpenHrmpChannelZeroCapacity"
    )
    trace.force(A, STRANGER, 1, 9, error="OpenHrmpChannelMessageSizeExceedsLimit")
    trace.force(A, STRANGER, 1, 8, error="OpenHrmpChannelInvalidRecipient").force(A, T)
    trace.force(B, T, error="AcceptHrmpChannelLimitExceeded").state(
        open_request_set=["2000->2003"], balances={A: ONE_DEPOSIT, B: FULL, T: {"free": 94, "reserved": 6}}
    )
    trace.at(2).session().state(channel_set=["2000->2003"]).at(3).force(A, T, error="OpenHrmpChannelAlreadyExists")
    yield trace

    trace = Trace(
        "later_requests/force-and-a-confirmed-request",
        "a confirmed request decides before everything else, even sizes that are out of range",
        source="router_profiles 3.6",
        rules={0: force},
    )
    trace.at(1).init(A, B).accept(B, A).force(A, B, error="OpenHrmpChannelAlreadyConfirmed")
    trace.force(A, B, 0, 9, error="OpenHrmpChannelAlreadyConfirmed").force(B, A)
    trace.force(B, A, error="OpenHrmpChannelAlreadyConfirmed").state(
        open_request_count={A: 1, B: 1}, balances={A: {"free": 84, "reserved": 16}, B: {"free": 84, "reserved": 16}}
    )
    yield trace

    trace = Trace(
        "later_requests/force-that-fails-brings-the-request-back",
        "age, limits, deposit and count of the request are as before, whichever part fails",
        source="router_profiles 1",
        rules={0: [*force, "hrmp_notifications"]},
        config={"hrmp_open_request_ttl": 5},
    )
    as_before = {
        "open_requests": {
            (A, T): {
                "confirmed": False,
                "age": 1,
                "sender_deposit": 10,
                "limit_used_places": 3,
                "limit_used_bytes": 20,
                "limit_message_size": 7,
            }
        },
        "open_request_count": {A: 2, B: 1},
        "balances": {A: {"free": 80, "reserved": 20}},
        "dmq": {A: None, T: [{"sent_at": 1, "msg": "07411f1c0c"}, {"sent_at": 2, "msg": "07451f2010"}]},
    }
    trace.at(1).init(A, T, 3, 7).init(A, C).session(hrmp_sender_deposit=90)
    trace.at(2).init(B, T).accept(T, B)
    trace.at(3).force(A, T, 0, 8, error="OpenHrmpChannelZeroCapacity").state(**as_before)
    trace.at(3).force(A, T, error="AcceptHrmpChannelLimitExceeded").state(**as_before)  # 90 could be paid
    trace.at(4).force(A, C, 4, 8).state(
        open_requests={(A, C): {"confirmed": True, "sender_deposit": 90}}, balances={A: {"free": 0, "reserved": 100}}
    )
    trace.at(5).force(A, T, 4, 8, error="InsufficientBalance").state(
        open_requests={(A, T): {"confirmed": False, "sender_deposit": 10}}, balances={A: {"free": 0, "reserved": 100}}
    )
    yield trace

    trace = Trace(
        "later_requests/from-plain-to-the-later-form",
        "an older request makes the plain form fail and is cancelled by the later one; where both hold the later one counts",
        source="router_profiles 3.6",
        rules={
            2: ["force_open_channel_plain"],
            4: ["force_open_channel_plain", "force_open_channel"],
            6: ["force_open_channel"],
            8: ["force_open_channel_plain"],
            10: [],
        },
    )
    trace.at(1).init(A, B).init(A, C).force(A, B, error="RequestNotInForce")
    trace.at(3).force(A, B, error="OpenHrmpChannelAlreadyRequested").state(open_requests={(A, B): {"confirmed": False}})
    trace.at(4).force(A, B).force(A, B, error="OpenHrmpChannelAlreadyConfirmed")
    trace.at(6).force(A, C).force(A, C, error="OpenHrmpChannelAlreadyConfirmed")
    trace.at(8).force(A, C, error="OpenHrmpChannelAlreadyRequested")
    trace.at(10).force(B, C, error="RequestNotInForce").session().state(channel_set=["2000->2001", "2000->2002"])
    yield trace
