# SPDX-License-Identifier: Apache-2.0
"""Opening channels: requests, deposits, ageing."""

from __future__ import annotations

from collections.abc import Iterator

from early_hrmp_trace import BALANCE, NOBODY, A, B, C, D, E, Trace, balance, channel, close_request, name, request

INIT = "early_hrmp.txt init_open_channel"
ACCEPT = "early_hrmp.txt accept_open_channel"
BOUNDARY = "early_hrmp.txt session change 2"


def scenarios() -> Iterator[Trace]:
    """Yield the scenarios of the group ``requests``."""
    yield from _init()
    yield from _init_errors()
    yield from _accept()
    yield from _ageing()
    yield from _deposits()


def _init() -> Iterator[Trace]:
    trace = Trace(
        "requests/init", "the sender's deposit is reserved, the request waits unconfirmed; no channel yet", source=INIT
    )
    trace.at(1).init(A, B)
    trace.state(open_requests=[request(A, B)], channels_set=[], balances={A: balance(10), B: balance(0)})
    trace.at(1).candidate(A, 0, {B: "01"}, error="Outbound/NoSuchChannel", idx=0, channel=name(A, B))
    yield trace

    trace = Trace(
        "requests/accept",
        "the recipient's deposit is reserved, the channel is there from the boundary on with nothing in it",
        source=f"{ACCEPT}; session change 2.2",
    )
    trace.at(1).init(A, B).accept(B, 0)
    trace.state(
        open_requests=[request(A, B, confirmed=True)], channels_set=[], balances={A: balance(10), B: balance(7)}
    )
    trace.at(1).candidate(A, 0, {B: "01"}, error="Outbound/NoSuchChannel", idx=0, channel=name(A, B))
    trace.at(2).session().state(
        open_requests=[],
        channels={(A, B): channel()},
        channels_set=[name(A, B)],
        balances={A: balance(10), B: balance(7)},
    )
    yield trace

    trace = Trace("requests/both-directions", "a channel leads one way: its reverse is another channel", source=INIT)
    trace.at(1).init(A, B).init(B, A).accept(B, 0).accept(A, 1).at(2).session()
    trace.state(channels_set=[name(A, B), name(B, A)], balances={A: balance(17), B: balance(17)})
    yield trace

    trace = Trace(
        "requests/list-order",
        "requests stand in the order in which they came, confirmed or not, and new ones come last",
        source="early_hrmp.txt open_requests",
    )
    trace.at(1).init(C, A).init(A, B).init(B, C).accept(B, 1).init(A, D)
    trace.state(open_requests=[request(C, A), request(A, B, confirmed=True), request(B, C), request(A, D)])
    yield trace

    trace = Trace(
        "requests/accepted-in-a-later-session",
        "an unconfirmed request is carried over a boundary and opens its channel at the boundary after it is confirmed",
        source=f"{BOUNDARY}.1, 2.2",
    )
    trace.at(1).init(A, B).at(2).session().state(open_requests=[request(A, B, age=1)], channels_set=[])
    trace.at(3).accept(B, 0).state(open_requests=[request(A, B, confirmed=True, age=1)])
    trace.at(4).session().state(open_requests=[], channels_set=[name(A, B)])
    yield trace


def _init_errors() -> Iterator[Trace]:
    trace = Trace(
        "requests/invalid-sender",
        "a para that is not registered cannot ask, whatever else is wrong",
        source=f"{INIT} 1",
        balances={A: 0},
    )
    trace.at(1).init(NOBODY, A, "Open/InvalidSender", sender=NOBODY)
    trace.init(NOBODY, 98, "Open/InvalidSender", sender=NOBODY).init(
        NOBODY, NOBODY, "Open/InvalidSender", sender=NOBODY
    )
    trace.state(open_requests=[], balances={NOBODY: None})
    yield trace

    trace = Trace(
        "requests/invalid-recipient",
        "the recipient has to be registered, which is looked at before limit and funds",
        source=f"{INIT} 1",
        config={"hrmp_max_outbound_channels": 0},
        balances={A: 0},
    )
    trace.at(1).init(A, NOBODY, "Open/InvalidRecipient", recipient=NOBODY).state(open_requests=[])
    yield trace

    trace = Trace(
        "requests/to-self",
        "no channel leads back, which is looked at before limit and funds",
        source=f"{INIT} 2",
        config={"hrmp_max_outbound_channels": 0},
        balances={A: 0},
    )
    trace.at(1).init(A, A, "Open/ToSelf", para=A).state(open_requests=[])
    yield trace

    trace = Trace(
        "requests/already-exists",
        "an open channel and a sealed one both are there already, which is looked at before the limit",
        source=f"{INIT} 3",
        config={"hrmp_max_outbound_channels": 2},
    )
    trace.open((A, B), (A, C))
    trace.at(3).init(A, B, "Open/AlreadyExists", channel=name(A, B))
    trace.at(3).candidate(A, 2, {C: "01"}).at(3).close(A, A, C).at(4).session()
    trace.state(channels={(A, C): channel(1, 1, sealed=True)})
    trace.at(5).init(A, C, "Open/AlreadyExists", channel=name(A, C))
    yield trace

    trace = Trace(
        "requests/already-requested",
        "there is one request for a channel, unconfirmed or confirmed, which is looked at before the limit",
        source=f"{INIT} 4",
        config={"hrmp_max_outbound_channels": 1},
    )
    trace.at(1).init(A, B).init(A, B, "Open/AlreadyRequested", channel=name(A, B))
    trace.accept(B, 0).init(A, B, "Open/AlreadyRequested", channel=name(A, B))
    trace.state(open_requests=[request(A, B, confirmed=True)], balances={A: balance(10)})
    yield trace

    trace = Trace(
        "requests/limit-of-requests",
        "requests count from the start, confirmed or not; those of others and inbound ones do not",
        source=f"{INIT} 5",
        config={"hrmp_max_outbound_channels": 2},
    )
    trace.at(1).init(B, A).init(C, A).accept(A, 0).init(A, B).init(A, C).accept(B, 2)
    trace.init(A, D, "Open/LimitExceeded", count=2, limit=2).state(balances={A: balance(27)})
    yield trace

    trace = Trace(
        "requests/limit-of-channels",
        "channels count until they are removed: also while they are going to be closed, and while they are sealed",
        source=f"{INIT} 5",
        config={"hrmp_max_outbound_channels": 1},
    )
    trace.open((A, B), (C, A))
    trace.at(3).close(A, A, B).init(A, D, "Open/LimitExceeded", count=1, limit=1)
    trace.at(3).candidate(A, 2, {B: "01"}).at(4).session()
    trace.at(5).init(A, D, "Open/LimitExceeded", count=1, limit=1).at(5).candidate(B, 3)
    trace.at(6).init(A, D, "Open/LimitExceeded", count=1, limit=1).at(6).session().at(7).init(A, D)
    trace.state(open_requests=[request(A, D)])
    yield trace

    trace = Trace(
        "requests/limit-of-zero",
        "a limit of zero allows no channel, which is looked at before funds",
        source=f"{INIT} 5",
        config={"hrmp_max_outbound_channels": 0},
        balances={A: 0},
    )
    trace.at(1).init(A, B, "Open/LimitExceeded", count=0, limit=0)
    yield trace

    trace = Trace(
        "requests/sender-funds",
        "the free balance has to cover the deposit, exactly is enough; deposits held back do not count",
        source=f"{INIT} 6",
        balances={A: 19, B: 9},
    )
    trace.at(1).init(B, A, "InsufficientBalance", para=B, needed=10, free=9)
    trace.init(A, B).init(A, C, "InsufficientBalance", para=A, needed=10, free=9)
    trace.state(open_requests=[request(A, B)], balances={A: {"free": 9, "reserved": 10}, B: {"free": 9, "reserved": 0}})
    trace.at(1).init(C, A).state(balances={C: balance(10)})
    yield trace

    trace = Trace(
        "requests/exact-funds",
        "a balance of just the deposit is enough on both sides",
        source=INIT,
        balances={A: 10, B: 7},
    )
    trace.at(1).init(A, B).accept(B, 0)
    trace.state(balances={A: {"free": 0, "reserved": 10}, B: {"free": 0, "reserved": 7}})
    yield trace


def _accept() -> Iterator[Trace]:
    trace = Trace("requests/no-such-request", "places are counted from 0, and the list ends", source=f"{ACCEPT} 1")
    trace.at(1).accept(B, 0, "Accept/NoSuchRequest", index=0).init(A, B).accept(B, 1, "Accept/NoSuchRequest", index=1)
    trace.accept(NOBODY, 7, "Accept/NoSuchRequest", index=7).accept(B, 0)
    yield trace

    trace = Trace(
        "requests/not-recipient",
        "only the request's recipient accepts it, also where it is confirmed already",
        source=f"{ACCEPT} 2",
    )
    trace.at(1).init(A, B).accept(A, 0, "Accept/NotRecipient", index=0, origin=A, recipient=B)
    trace.accept(C, 0, "Accept/NotRecipient", index=0, origin=C, recipient=B)
    trace.accept(B, 0).accept(C, 0, "Accept/NotRecipient", index=0, origin=C, recipient=B)
    trace.state(balances={A: balance(10), C: balance(0)})
    yield trace

    trace = Trace(
        "requests/already-confirmed",
        "a confirmed request is not accepted again, which is looked at before funds",
        source="xcmp_rules 1.2, X-I05",
        balances={B: 7},
        interpretation=("H-I02", "accept of an already confirmed request", "reject"),
    )
    trace.at(1).init(A, B).accept(B, 0).accept(B, 0, "Accept/AlreadyConfirmed", index=0)
    trace.state(balances={B: {"free": 0, "reserved": 7}}, open_requests=[request(A, B, confirmed=True)])
    yield trace

    trace = Trace(
        "requests/recipient-funds",
        "the recipient's free balance has to cover its own deposit; the request waits on",
        source=f"{ACCEPT} 3",
        balances={B: 6},
    )
    trace.at(1).init(A, B).accept(B, 0, "InsufficientBalance", para=B, needed=7, free=6)
    trace.state(open_requests=[request(A, B)], balances={B: {"free": 6, "reserved": 0}})
    yield trace

    trace = Trace(
        "requests/no-inbound-limit",
        "channels to a para are not limited",
        source="xcmp_rules 1.2",
        paras=dict.fromkeys((A, B, C, D, E), BALANCE),
        config={"hrmp_max_outbound_channels": 1},
    )
    trace.open((B, A), (C, A), (D, A), (E, A)).state(channels_set=[name(each, A) for each in (B, C, D, E)])
    trace.state(balances={A: balance(28)})
    yield trace

    trace = Trace(
        "requests/indexes-close-up",
        "within a session places stay; at the boundary the list closes up over what has been opened",
        source="xcmp_rules 1.2",
    )
    trace.at(1).init(A, B).init(C, B).init(D, B).accept(B, 1).accept(B, 2)
    trace.state(open_requests=[request(A, B), request(C, B, confirmed=True), request(D, B, confirmed=True)])
    trace.at(2).session().state(open_requests=[request(A, B, age=1)])
    trace.at(3).accept(B, 1, "Accept/NoSuchRequest", index=1).accept(B, 0).at(4).session()
    trace.state(channels_set=[name(A, B), name(C, B), name(D, B)])
    yield trace

    trace = Trace(
        "requests/a-late-index-hits-another-request",
        "an index meant for a request that has expired accepts the one that took its place",
        source="xcmp_rules 1.2",
        config={"hrmp_open_request_ttl": 1},
    )
    trace.at(1).init(A, B).at(2).session().state(open_requests=[])
    trace.at(3).init(C, B).accept(B, 0).at(4).session().state(channels_set=[name(C, B)])
    yield trace

    trace = Trace(
        "requests/accept-by-sender",
        "a request named by its sender is found wherever it stands, or not at all; the other checks are the same",
        source="xcmp_rules 1.2, addressing by (sender, recipient)",
        balances={D: 6},
    )
    trace.at(1).init(A, B).init(C, B).init(C, D)
    trace.accept_from(B, D, "Accept/NoSuchRequest", channel=name(D, B))
    trace.accept_from(A, B, "Accept/NoSuchRequest", channel=name(B, A))
    trace.accept_from(B, C).accept_from(B, C, "Accept/AlreadyConfirmed", index=1)
    trace.accept_from(D, C, "InsufficientBalance", para=D, needed=7, free=6)
    trace.state(open_requests=[request(A, B), request(C, B, confirmed=True), request(C, D)])
    yield trace


def _ageing() -> Iterator[Trace]:
    trace = Trace(
        "requests/expires-at-the-ttl",
        "age counts boundaries; at the ttl the request goes, the deposit returns and the channel can be asked for again",
        source=f"{BOUNDARY}.1",
        config={"hrmp_open_request_ttl": 3},
    )
    trace.at(1).init(A, B)
    trace.at(2).session().state(open_requests=[request(A, B, age=1)])
    trace.at(3).session().state(open_requests=[request(A, B, age=2)], balances={A: balance(10)})
    trace.at(4).session().state(open_requests=[], balances={A: balance(0)}, channels_set=[])
    trace.at(5).init(A, B).state(open_requests=[request(A, B)])
    yield trace

    for ttl in (0, 1):
        trace = Trace(
            f"requests/ttl-of-{ttl}",
            "the age is incremented before it is compared: the request goes at the first boundary",
            source=f"{BOUNDARY}.1",
            config={"hrmp_open_request_ttl": ttl},
        )
        trace.at(1).init(A, B).at(2).session().state(open_requests=[], balances={A: balance(0)})
        yield trace

    trace = Trace(
        "requests/confirmed-does-not-age",
        "a request that is confirmed before the boundary at which it would expire opens its channel",
        source=f"{BOUNDARY}.2",
    )
    trace.at(1).init(A, B).init(A, C).at(2).session().at(3).accept(B, 0).at(4).session()
    trace.state(channels_set=[name(A, B)], open_requests=[], balances={A: balance(10)})
    yield trace

    trace = Trace(
        "requests/ttl-before-the-change",
        "requests are settled by the configuration that held before the boundary",
        source="router_rules I-10",
        config={"hrmp_open_request_ttl": 1},
    )
    trace.at(1).init(A, B).at(2).session(new_config={"hrmp_open_request_ttl": 3}).state(open_requests=[])
    trace.at(3).init(A, B).at(4).session().state(open_requests=[request(A, B, age=1)])
    trace.at(5).session(new_config={"hrmp_open_request_ttl": 1}).state(open_requests=[request(A, B, age=2)])
    trace.at(6).session().state(open_requests=[])
    yield trace


def _deposits() -> Iterator[Trace]:
    reading = ("H-I07", "deposit amounts to return", "exactly what was reserved at the time")
    trace = Trace(
        "requests/refund-of-a-request",
        "an expired request returns what was reserved for it, not what is configured by then",
        source=f"{BOUNDARY}.1",
        interpretation=reading,
    )
    trace.at(1).init(A, B).at(2).session(new_config={"hrmp_sender_deposit": 3}).at(3).init(A, C)
    trace.state(balances={A: balance(13)}).at(4).session()
    trace.state(open_requests=[request(A, C, age=1)], balances={A: balance(3)})
    yield trace

    trace = Trace(
        "requests/refund-of-a-channel",
        "sender and recipient may have paid under different configurations; each gets back what it paid",
        source="early_hrmp.txt to remove a channel",
        interpretation=reading,
    )
    trace.at(1).init(A, B).at(2).session(new_config={"hrmp_sender_deposit": 3, "hrmp_recipient_deposit": 5})
    trace.at(3).accept(B, 0).at(4).session(new_config={"hrmp_sender_deposit": 1, "hrmp_recipient_deposit": 1})
    trace.state(channels={(A, B): channel(deposits=(10, 5))}, balances={A: balance(10), B: balance(5)})
    trace.at(5).close(B, A, B).state(close_requests=[close_request(B, A, B)]).at(6).session()
    trace.state(channels_set=[], close_requests=[], balances={A: balance(0), B: balance(0)})
    yield trace

    trace = Trace(
        "requests/free-of-charge",
        "deposits of zero need no funds",
        source=INIT,
        config={"hrmp_sender_deposit": 0, "hrmp_recipient_deposit": 0},
        balances=dict.fromkeys((A, B), 0),
    )
    trace.open((A, B)).state(
        channels={(A, B): channel(deposits=(0, 0))},
        balances={A: balance(0, 0), B: balance(0, 0), C: balance(0, BALANCE)},
    )
    yield trace
