# SPDX-License-Identifier: Apache-2.0
"""Channel requests: each refusal next to an acceptance that differs in one respect."""

from __future__ import annotations

from collections.abc import Iterator

from tests.router.trace import Trace

A, B, C, T, U = 2000, 2001, 2002, 2003, 2004  # three parachains, two parathreads
STRANGER = 2999


def scenarios() -> Iterator[Trace]:
    """Yield the scenarios of the group ``requests``."""
    yield from _init()
    yield from _accept()
    yield from _close()


def _init() -> Iterator[Trace]:
    trace = Trace(
        "requests/open-accept-and-use",
        "a request reserves the sender's deposit, its acceptance the recipient's, and the next session change opens the channel",
        source="router.txt hrmp_init_open_channel, hrmp_accept_open_channel, Session Change 2",
    )
    request = {"age": 0, "sender_deposit": 10, "limit_used_places": 3, "limit_used_bytes": 20, "limit_message_size": 7}
    trace.at(3).init(A, B, 3, 7).state(
        open_requests={(A, B): {"confirmed": False, **request}},
        open_request_set=["2000->2001"],
        open_request_count={A: 1, B: None},
        accepted_request_count={B: None},
        channel_set=[],
        balances={A: {"free": 90, "reserved": 10}, B: {"free": 100, "reserved": 0}},
    )
    trace.at(3).accept(B, A).state(
        open_requests={(A, B): {"confirmed": True, **request}},
        open_request_count={A: 1},
        accepted_request_count={B: 1},
        channel_set=[],
        balances={B: {"free": 94, "reserved": 6}},
    )
    trace.at(4).session().state(
        channels={
            (A, B): {
                "sender_deposit": 10,
                "recipient_deposit": 6,
                "limit_used_places": 3,
                "limit_used_bytes": 20,
                "limit_message_size": 7,
                "used_places": 0,
                "used_bytes": 0,
                "mqc_head": "00" * 32,
            }
        },
        channel_set=["2000->2001"],
        open_requests={(A, B): None},
        open_request_set=[],
        open_request_count={A: 0},
        accepted_request_count={B: 0},
        ingress={B: [A], A: None},
        egress={A: [B], B: None},
        mqc_heads={B: [[A, "00" * 32]]},
        balances={A: {"free": 90, "reserved": 10}, B: {"free": 94, "reserved": 6}},
    )
    trace.at(5).candidate(A, send={B: "01"}).state(channels={(A, B): {"used_places": 1, "used_bytes": 1}})
    yield trace

    trace = Trace("requests/to-self", "a para cannot open a channel to itself", source="hrmp_init_open_channel 1")
    trace.at(1).init(A, A, error="OpenHrmpChannelToSelf").state(open_request_set=[], balances={A: {"reserved": 0}})
    trace.at(1).init(A, B)
    yield trace

    trace = Trace(
        "requests/capacity-bounds",
        "places from 1 to the configured limit, both included",
        source="hrmp_init_open_channel 2",
    )
    trace.at(1).init(A, B, 0, error="OpenHrmpChannelZeroCapacity").init(A, B, 1)
    trace.at(2).init(A, C, 5, error="OpenHrmpChannelCapacityExceedsLimit").init(A, C, 4)
    trace.at(3).init(A, T, 2**32 - 1, error="OpenHrmpChannelCapacityExceedsLimit").state(
        open_requests={(A, B): {"limit_used_places": 1}, (A, C): {"limit_used_places": 4}, (A, T): None}
    )
    yield trace

    trace = Trace(
        "requests/message-size-bounds",
        "message sizes from 1 to the configured limit, both included",
        source="hrmp_init_open_channel 3",
    )
    trace.at(1).init(A, B, 1, 0, error="OpenHrmpChannelZeroMessageSize").init(A, B, 1, 1)
    trace.at(2).init(A, C, 1, 9, error="OpenHrmpChannelMessageSizeExceedsLimit").init(A, C, 1, 8)
    trace.at(2).state(
        open_requests={(A, B): {"limit_message_size": 1}, (A, C): {"limit_message_size": 8}},
        open_request_count={A: 2},
    )
    yield trace

    trace = Trace(
        "requests/recipient-is-a-valid-para",
        "the recipient must be valid now: not before it is onboarded, not after it is offboarded",
        source="hrmp_init_open_channel 4",
    )
    trace.at(1).init(A, STRANGER, error="OpenHrmpChannelInvalidRecipient").init(A, B).cleanup(C)
    trace.at(1).init(A, C).state(outgoing_paras=[C])
    trace.at(2).session(onboarding=[(STRANGER, "parachain", 50)]).state(valid_paras=[A, B, T, U, STRANGER])
    trace.at(3).init(B, STRANGER).init(B, C, error="OpenHrmpChannelInvalidRecipient")
    yield trace

    trace = Trace(
        "requests/already-requested-already-exists",
        "the two are told apart by their meaning; the opposite direction is another channel",
        source="hrmp_init_open_channel 5 and 6",
        interpretation=("I-02", "which name means which", "by meaning"),
    )
    trace.at(1).init(A, B).init(A, B, error="OpenHrmpChannelAlreadyRequested").init(B, A)
    trace.at(2).accept(B, A).init(A, B, error="OpenHrmpChannelAlreadyRequested")
    trace.at(3).session().state(channel_set=["2000->2001"], open_request_set=["2001->2000"])
    trace.at(4).init(A, B, error="OpenHrmpChannelAlreadyExists").init(B, A, error="OpenHrmpChannelAlreadyRequested")
    trace.at(4).close(A, A, B).init(A, B, error="OpenHrmpChannelAlreadyExists")
    trace.at(5).session().state(channel_set=[])
    trace.at(6).init(A, B)
    yield trace

    trace = Trace(
        "requests/outbound-limit-of-a-parachain",
        "egress channels and own open requests together stay within the limit; inbound ones do not count",
        source="hrmp_init_open_channel 7",
    )
    trace.open((A, B), (B, A))
    trace.at(3).init(A, C).init(A, T).init(A, U, error="OpenHrmpChannelLimitExceeded")
    trace.at(3).state(open_request_count={A: 2}, egress={A: [B]}, balances={A: {"free": 64, "reserved": 36}})
    yield trace

    trace = Trace(
        "requests/outbound-limit-of-a-parathread",
        "a parathread has a limit of its own; a refused request leaves no trace",
        source="hrmp_init_open_channel 7",
    )
    trace.at(1).init(T, A).init(T, B, error="OpenHrmpChannelLimitExceeded").state(open_request_set=["2003->2000"])
    trace.at(2).accept(A, T).session()
    trace.at(3).init(T, B, error="OpenHrmpChannelLimitExceeded")
    trace.at(4).close(T, T, A).init(T, B, error="OpenHrmpChannelLimitExceeded")
    trace.at(5).session()
    trace.at(6).init(T, B)
    yield trace

    trace = Trace(
        "requests/a-limit-of-zero-allows-none",
        "with a limit of zero the first request is one too many",
        source="hrmp_init_open_channel 7, router_rules 1.9",
        config={"hrmp_max_parathread_outbound_channels": 0, "hrmp_max_parachain_inbound_channels": 0},
    )
    trace.at(1).init(T, A, error="OpenHrmpChannelLimitExceeded").init(A, B)
    trace.at(2).accept(B, A, error="AcceptHrmpChannelLimitExceeded")
    yield trace

    trace = Trace(
        "requests/all-zero-configuration",
        "nothing is allowed by a configuration of zeros",
        source="router_rules 1.9",
        config=dict.fromkeys(Trace("x/x", "", source="").json["config"], 0),
    )
    trace.at(1).init(A, B, 1, 1, error="OpenHrmpChannelCapacityExceedsLimit")
    trace.at(1).init(A, B, 0, 1, error="OpenHrmpChannelZeroCapacity")
    trace.at(1).downward(A, "").downward(A, "00", error="ExceedsMaxMessageSize")
    trace.at(2).candidate(B, up=("",), error="UpwardMessages/MoreMessagesThanPermitted", sent=1, permitted=0)
    trace.at(2).candidate(B, send={A: ""}, error="OutboundHrmp/MoreMessagesThanPermitted", sent=1, permitted=0)
    trace.at(2).candidate(B).dispatched()
    yield trace

    trace = Trace(
        "requests/sender-deposit-to-the-last-unit",
        "a free balance equal to the deposit is enough, one unit less is not",
        source="hrmp_init_open_channel 8 and 9",
        balances={A: 10, B: 9, C: 20},
    )
    trace.at(1).init(A, C).init(B, C, error="InsufficientBalance").init(A, B, error="InsufficientBalance")
    trace.at(1).init(C, A).init(C, B).state(
        balances={A: {"free": 0, "reserved": 10}, B: {"free": 9, "reserved": 0}, C: {"free": 0, "reserved": 20}}
    )
    yield trace

    trace = Trace(
        "requests/origin-is-not-checked-to-be-a-para",
        "an origin that is no para has no balance; where deposits are zero it may ask, and never gets the channel",
        source="router_rules 1.6",
    )
    trace.at(1).init(STRANGER, A, error="InsufficientBalance")
    trace.at(2).session(hrmp_sender_deposit=0, hrmp_recipient_deposit=0)
    trace.at(3).init(STRANGER, A).accept(A, STRANGER).state(open_request_count={STRANGER: 1})
    trace.at(4).session().state(channel_set=[], open_request_set=[], open_request_count={STRANGER: 0})
    yield trace


def _accept() -> Iterator[Trace]:
    trace = Trace(
        "requests/accept-what-was-requested",
        "only the recipient of a request that is there and not confirmed yet can accept it",
        source="hrmp_accept_open_channel 1 and 2",
    )
    trace.at(1).init(A, B).accept(A, B, error="AcceptHrmpChannelDoesntExist")
    trace.at(1).accept(C, A, error="AcceptHrmpChannelDoesntExist").accept(B, A)
    trace.at(2).accept(B, A, error="AcceptHrmpChannelAlreadyConfirmed").state(
        accepted_request_count={B: 1}, balances={B: {"free": 94, "reserved": 6}}
    )
    trace.at(3).session()
    trace.at(4).accept(B, A, error="AcceptHrmpChannelDoesntExist")
    yield trace

    trace = Trace(
        "requests/inbound-limit-of-a-parachain",
        "ingress channels and accepted requests together stay within the limit; requests not accepted do not count",
        source="hrmp_accept_open_channel 3",
    )
    trace.open((B, A))
    trace.at(3).init(C, A).init(T, A).init(U, A).accept(A, C).accept(A, T)
    trace.at(3).accept(A, U, error="AcceptHrmpChannelLimitExceeded").state(
        accepted_request_count={A: 2}, ingress={A: [B]}, open_requests={(U, A): {"confirmed": False}}
    )
    trace.at(4).session().state(ingress={A: [B, C, T]}, accepted_request_count={A: 0})
    trace.at(5).accept(A, U, error="AcceptHrmpChannelLimitExceeded").close(A, T, A)
    trace.at(6).session().state(ingress={A: [B, C]}, open_request_set=[])
    trace.at(7).init(U, A).accept(A, U)
    yield trace

    trace = Trace(
        "requests/inbound-limit-of-a-parathread",
        "a parathread has a limit of its own, inbound as outbound",
        source="hrmp_accept_open_channel 3",
    )
    trace.at(1).init(A, T).init(B, T).accept(T, B).accept(T, A, error="AcceptHrmpChannelLimitExceeded")
    trace.at(1).state(accepted_request_count={T: 1}, balances={T: {"free": 94, "reserved": 6}})
    yield trace

    trace = Trace(
        "requests/recipient-deposit-to-the-last-unit",
        "a free balance equal to the deposit is enough, one unit less is not",
        source="hrmp_accept_open_channel 4 and 5",
        balances={B: 6, C: 5},
    )
    trace.at(1).init(A, B).init(A, C).accept(B, A).accept(C, A, error="InsufficientBalance")
    trace.at(1).state(
        open_requests={(A, B): {"confirmed": True}, (A, C): {"confirmed": False}},
        balances={B: {"free": 0, "reserved": 6}, C: {"free": 5, "reserved": 0}},
        accepted_request_count={B: 1, C: 0},
    )
    yield trace

    trace = Trace(
        "requests/accept-from-a-sender-that-left",
        "nobody checks whether the sender is still valid; the session change drops the request and returns both deposits",
        source="router_rules 1.6, 1.7",
        interpretation=("I-07", "deposits of a confirmed request with an offboarded party", "both go back"),
    )
    trace.at(1).init(A, B)
    trace.at(2).session(A).state(open_requests={(A, B): {"age": 1}}, open_request_count={A: 0})
    trace.at(3).accept(B, A).state(accepted_request_count={B: 1}, balances={B: {"reserved": 6}})
    trace.at(4).session().state(
        channel_set=[],
        open_request_set=[],
        accepted_request_count={B: 0},
        balances={A: {"free": 100, "reserved": 0}, B: {"free": 100, "reserved": 0}},
    )
    yield trace


def _close() -> Iterator[Trace]:
    trace = Trace(
        "requests/close-by-either-end",
        "sender and recipient may close, nobody else, and once",
        source="hrmp_close_channel",
    )
    trace.open((A, B), (B, A))
    trace.at(3).close(C, A, B, error="CloseHrmpChannelUnauthorized").close(A, A, B)
    trace.at(3).close(B, A, B, error="CloseHrmpChannelAlreadyUnderway").close(A, B, A)
    trace.at(4).close(A, A, B, error="CloseHrmpChannelAlreadyUnderway").state(
        close_request_set=["2000->2001", "2001->2000"], channel_set=["2000->2001", "2001->2000"]
    )
    trace.at(5).session().state(
        close_request_set=[],
        channel_set=[],
        ingress={A: None, B: None},
        egress={A: None, B: None},
        balances={A: {"free": 100, "reserved": 0}, B: {"free": 100, "reserved": 0}},
    )
    trace.at(6).close(A, A, B, error="CloseHrmpChannelDoesntExist")
    yield trace

    trace = Trace(
        "requests/close-what-is-open",
        "a channel that is only requested, or only open the other way, does not exist",
        source="hrmp_close_channel 2",
    )
    trace.open((A, B))
    trace.at(3).init(A, C).close(A, A, C, error="CloseHrmpChannelDoesntExist")
    trace.at(3).close(B, B, A, error="CloseHrmpChannelDoesntExist").close(B, A, B)
    yield trace

    trace = Trace(
        "requests/cleanup-is-kept-sorted",
        "any id may be scheduled, twice as well; the list is ascending and unique, and drained by the session change",
        source="schedule_para_cleanup",
    )
    trace.at(1).cleanup(C).cleanup(STRANGER).cleanup(A).cleanup(C).state(outgoing_paras=[A, C, STRANGER])
    trace.at(2).session().state(outgoing_paras=[], valid_paras=[B, T, U])
    yield trace

    trace = Trace(
        "requests/refused-requests-change-nothing",
        "after a refusal of every kind the state is what it was",
        source="traces FORMAT: a rejected input changes nothing",
        balances={C: 5},
    )
    trace.open((A, B))
    untouched = {
        "open_request_set": [],
        "close_request_set": [],
        "open_request_count": {A: 0, C: 0},
        "accepted_request_count": {A: 0, B: 0},
        "outgoing_paras": [],
        "balances": {A: {"free": 90, "reserved": 10}, B: {"free": 94, "reserved": 6}, C: {"free": 5, "reserved": 0}},
    }
    trace.at(3).init(A, A, error="OpenHrmpChannelToSelf").init(A, B, error="OpenHrmpChannelAlreadyExists")
    trace.init(C, A, error="InsufficientBalance").accept(A, C, error="AcceptHrmpChannelDoesntExist")
    trace.close(C, A, B, error="CloseHrmpChannelUnauthorized").close(A, A, C, error="CloseHrmpChannelDoesntExist")
    trace.state(**untouched)
    yield trace
