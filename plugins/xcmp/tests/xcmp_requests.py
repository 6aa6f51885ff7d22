# SPDX-License-Identifier: Apache-2.0
"""Scenarios of channel requests: opening, accepting, closing, and their deposits."""

from __future__ import annotations

from collections.abc import Iterator

from xcmp_trace import (
    ALL,
    NOBODY,
    R1,
    A,
    B,
    C,
    D,
    Trace,
    balance,
    closing,
    column,
    condemned,
    metadata,
    request,
    row_root,
)

INIT = "xcmp_channels.txt init_open_channel"
ACCEPT = "xcmp_channels.txt accept_open_channel"
CLOSE = "xcmp_channels.txt close_channel"


def opening() -> Iterator[Trace]:
    """Yield the scenarios of init_open_channel."""
    t = Trace("opening/request-reserves-and-queues", "the deposit is reserved at once, the request waits", source=INIT)
    yield (
        t.at(5)
        .init(A, B)
        .state(open_requests=[request(A, B)], balances={A: balance(900), B: balance(1000)}, cst_set=[], dmq_set=[])
    )

    t = Trace("opening/sender-unknown", "a caller that is not registered is refused", source="xcmp_rules 1.2")
    yield t.at(1).init(NOBODY, B, "Open/InvalidSender", sender=NOBODY).state(open_requests=[])

    t = Trace("opening/exists", "there is a channel already", source=f"{INIT} 1").open((A, B))
    t.at(3).init(A, B, "Open/AlreadyExists", channel="2000->2001")
    yield t.init(B, A).state(open_requests=[request(B, A)])

    t = Trace("opening/exists-condemned", "a condemned channel still exists", source=f"{INIT} 1").open((A, B))
    t.at(3).candidate(A, None, "1", R1).at(3).close(A, A, 0)
    t.at(4).session().state(condemned=[condemned(A, B, 0, 2)])
    yield t.at(5).init(A, B, "Open/AlreadyExists", channel="2000->2001")

    t = Trace("opening/requested-twice", "there is a request already, confirmed or not", source=f"{INIT} 1")
    t.at(1).init(A, B).init(A, B, "Open/AlreadyRequested", channel="2000->2001")
    yield t.accept(B, 0).init(A, B, "Open/AlreadyRequested", channel="2000->2001").state(balances={A: balance(900)})

    t = Trace(
        "opening/limit-counts-requests-and-condemned",
        "columns, condemned ones with them, and own requests count towards the limit; those of others do not",
        source=f"{INIT} 2",
        interpretation=(
            "X-I07",
            "do open requests and condemned channels count towards the channel limit",
            "yes, both",
        ),
    ).open((A, B), (A, C))
    t.at(3).candidate(A, None, "1", R1).at(3).close(A, A, 0)
    t.at(4).session().state(condemned=[condemned(A, B, 0, 2)])
    t.at(5).init(B, A).init(A, D)
    yield t.init(A, NOBODY, "Open/LimitExceeded", count=3, limit=3)

    t = Trace(
        "opening/limit-of-zero",
        "a limit of 0 allows nothing",
        source=f"{INIT} 2",
        config={"xcmp_max_outbound_channels": 0},
    )
    yield t.at(1).init(A, B, "Open/LimitExceeded", count=0, limit=0)

    t = Trace("opening/to-self", "sender and recipient differ", source=f"{INIT} 3")
    yield t.at(1).init(A, A, "Open/ToSelf", para=A)

    t = Trace("opening/limit-before-self", "the limit is looked at before the ends", source=f"{INIT} 2, 3").open(
        (A, B), (A, C), (A, D)
    )
    yield t.at(3).init(A, A, "Open/LimitExceeded", count=3, limit=3)

    t = Trace(
        "opening/recipient-unknown-then-funds",
        "the recipient is looked at after all checks of the text, the funds last",
        source="xcmp_rules 1.2",
        balances={A: 99},
        interpretation=(
            "X-I08",
            "existence of the recipient, and funds, are not in the list of checks",
            "checked last",
        ),
    )
    t.at(1).init(A, NOBODY, "Open/InvalidRecipient", recipient=NOBODY)
    t.init(A, B, "InsufficientBalance", para=A, needed=100, free=99)
    yield t.state(open_requests=[], balances={A: {"free": 99, "reserved": 0}})

    t = Trace("opening/last-coin", "the deposit may be all there is", source="xcmp_rules 1.2", balances={A: 100, B: 50})
    t.at(1).init(A, B).accept(B, 0)
    yield t.state(balances={A: {"free": 0, "reserved": 100}, B: {"free": 0, "reserved": 50}})


def accepting() -> Iterator[Trace]:
    """Yield the scenarios of accept_open_channel."""
    t = Trace("accepting/not-the-recipient", "only its recipient confirms a request", source=f"{ACCEPT} 2")
    t.at(1).init(A, B).accept(C, 0, "Accept/NotRecipient", index=0, origin=C, recipient=B)
    t.accept(A, 0, "Accept/NotRecipient", index=0, origin=A, recipient=B)
    yield t.state(open_requests=[request(A, B)])

    t = Trace("accepting/no-such-request", "the list has no such entry", source=f"{ACCEPT} 1")
    yield t.at(1).init(A, B).accept(B, 1, "Accept/NoSuchRequest", index=1)

    t = Trace(
        "accepting/twice",
        "no second deposit is taken",
        source=ACCEPT,
        interpretation=("X-I05", "accept of an already confirmed request", "reject"),
    )
    t.at(1).init(A, B).accept(B, 0).accept(B, 0, "Accept/AlreadyConfirmed", index=0)
    t.accept(C, 0, "Accept/NotRecipient", index=0, origin=C, recipient=B)
    yield t.state(balances={B: balance(950)}, open_requests=[request(A, B, confirmed=True)])

    t = Trace("accepting/funds", "the recipient pays too", source=ACCEPT, balances={B: 49})
    t.at(1).init(A, B).accept(B, 0, "InsufficientBalance", para=B, needed=50, free=49)
    yield t.state(open_requests=[request(A, B)])

    t = Trace(
        "accepting/positions-close-up",
        "positions move at the boundary: the same one is another request",
        source="xcmp_rules 1.2",
    )
    t.at(1).init(A, B).init(C, B).accept(B, 0)
    t.at(2).session().state(open_requests=[request(C, B, age=1)], cst_set=["2000"])
    t.at(3).accept(B, 1, "Accept/NoSuchRequest", index=1).accept(B, 0)
    yield t.state(open_requests=[request(C, B, confirmed=True, age=1)])

    t = Trace("accepting/by-sender", "a request may be named by its ends", source="xcmp_rules 1.2 addressing")
    t.at(1).init(A, B).init(C, B).accept_from(B, D, "Accept/NoSuchRequest", channel="2003->2001")
    t.accept_from(C, A, "Accept/NoSuchRequest", channel="2000->2002").accept_from(B, C)
    t.accept_from(B, C, "Accept/AlreadyConfirmed", index=1)
    yield t.state(open_requests=[request(A, B), request(C, B, confirmed=True)])

    t = Trace(
        "accepting/no-inbound-limit",
        "the text has no limit of channels to a para",
        source=ACCEPT,
        config={"xcmp_max_outbound_channels": 1},
    )
    t.at(1).init(A, D).init(B, D).init(C, D).accept(D, 2).accept(D, 1).accept(D, 0)
    yield t.at(2).session().state(cst_set=["2000", "2001", "2002"], balances={D: balance(850)})


def ageing() -> Iterator[Trace]:
    """Yield the scenarios of requests at session boundaries."""
    t = Trace(
        "ageing/opens-with-initial-column",
        "a confirmed request becomes a column that says nothing was sent, with the capacity configured at the boundary",
        source="xcmp_channels.txt On Session Change 2.3.1",
        interpretation=("X-I04", "initial value of a CST column", "last_updated 0, message_root null"),
    )
    t.at(7).init(A, B).accept(B, 0).at(9).session()
    yield t.state(cst={A: [column()]}, cmt={A: [metadata(B)]}, cst_roots={A: row_root((B, 0, None))}, open_requests=[])

    t = Trace(
        "ageing/list-order",
        "columns are appended in the order of the requests, not of the acceptances",
        source="xcmp_rules 1.2",
    )
    t.at(1).init(A, D).init(A, B).init(A, C).accept(C, 2).accept(D, 0).accept(B, 1)
    t.at(2).session()
    yield t.state(
        cmt={A: [metadata(D), metadata(B), metadata(C)]},
        cst_roots={A: row_root((D, 0, None), (B, 0, None), (C, 0, None))},
    )

    t = Trace("ageing/confirmed-late", "a request that has aged can still be accepted", source="xcmp_rules 1.2")
    t.at(1).init(A, B).at(2).session().state(open_requests=[request(A, B, age=1)])
    yield t.at(3).accept(B, 0).at(4).session().state(cst_set=["2000"], open_requests=[])

    t = Trace(
        "ageing/ttl-of-zero",
        "a ttl of 0 removes at the first boundary",
        source="xcmp_rules 1.2",
        config={"xcmp_open_request_ttl": 0},
    )
    yield t.at(1).init(A, B).at(2).session().state(open_requests=[], balances={A: balance(1000)})

    t = Trace(
        "ageing/refunds-what-was-reserved",
        "deposits of requests and channels are returned as they were taken, whatever is configured by then",
        source="xcmp_rules 1.2",
        interpretation=("X-I15", "deposit amounts to return", "exactly what was reserved"),
        config={"xcmp_open_request_ttl": 3},
    )
    t.at(1).init(A, B).init(A, C).accept(B, 0)
    t.at(2).session(new_config={"xcmp_sender_deposit": 10, "xcmp_recipient_deposit": 5})
    t.at(3).accept(C, 0).init(B, A).accept(A, 1).close(A, A, 0)
    t.state(balances={A: {"free": 795, "reserved": 205}, B: {"free": 940, "reserved": 60}, C: balance(995)})
    t.at(4).session().state(cmt={A: [metadata(C, 100, 5)], B: [metadata(A, 10, 5)]})
    yield t.state(balances={A: {"free": 895, "reserved": 105}, B: balance(990), C: balance(995)})

    t = Trace(
        "ageing/configuration-before-the-change",
        "a boundary settles by the configuration before it",
        source="xcmp_rules 1.2",
        config={"xcmp_open_request_ttl": 1},
    )
    t.at(1).init(A, B).init(A, C).accept(B, 0)
    t.at(2).session(
        new_config={"xcmp_channel_capacity": 2, "xcmp_open_request_ttl": 9, "xcmp_max_outbound_channels": 1}
    )
    t.state(cmt={A: [metadata(B)]}, open_requests=[])
    yield t.at(3).init(A, C, "Open/LimitExceeded", count=1, limit=1)


def requests_to_close() -> Iterator[Trace]:
    """Yield the scenarios of close_channel."""
    t = Trace("close-requests/no-such-column", "the sender has that column", source=f"{CLOSE} 1").open((A, B))
    t.at(3).close(A, A, 1, "Close/NoSuchChannel", sender=A, index=1)
    t.close(B, B, 0, "Close/NoSuchChannel", sender=B, index=0)
    yield t.close(C, A, 7, "Close/NoSuchChannel", sender=A, index=7).state(close_requests=[])

    t = Trace("close-requests/unauthorized", "sender and recipient alone may close", source=f"{CLOSE} 2").open((A, B))
    yield t.at(3).close(C, A, 0, "Close/Unauthorized", origin=C, channel="2000->2001").state(close_requests=[])

    t = Trace("close-requests/underway", "one request is enough", source=f"{CLOSE} 3").open((A, B), (A, C))
    t.at(3).close(B, A, 0).close(A, A, 0, "Close/AlreadyUnderway", channel="2000->2001")
    t.close(D, A, 0, "Close/Unauthorized", origin=D, channel="2000->2001").close(A, A, 1)
    yield t.state(close_requests=[closing(B, A, B), closing(A, A, C)])

    t = Trace(
        "close-requests/condemned",
        "a condemned channel is being closed already",
        source=CLOSE,
        interpretation=("X-I06", "close of a condemned channel", "reject"),
    ).open((A, B))
    t.at(3).candidate(A, None, "1", R1).at(3).close(A, A, 0).at(4).session()
    t.at(5).close(B, A, 0, "Close/AlreadyCondemned", channel="2000->2001")
    yield t.close(C, A, 0, "Close/Unauthorized", origin=C, channel="2000->2001").state(close_requests=[])

    t = Trace("close-requests/by-ends", "a channel may be named by its ends", source="xcmp_rules 1.2 addressing").open(
        (A, B), (A, C)
    )
    t.at(3).close_to(A, C, A, "Close/NoSuchChannel", channel="2002->2000").close_to(
        D, A, C, "Close/Unauthorized", origin=D, channel="2000->2002"
    )
    t.close_to(C, A, C).close(A, A, 1, "Close/AlreadyUnderway", channel="2000->2002")
    yield t.state(close_requests=[closing(C, A, C)])

    t = Trace(
        "close-requests/channel-goes-on-until-the-boundary",
        "a request to close stops nothing within the session",
        source="xcmp_rules 1.2 acceptance 2",
    ).open((A, B))
    t.at(3).close(A, A, 0).candidate(A, None, "1", R1).state(cst={A: [column(3, R1)]})
    t.at(4).session().state(condemned=[condemned(A, B, 0, 2)])
    t.at(5).candidate(A, None, "1", R1, "Bitfield/ChannelCondemned", index=0, recipient=B)
    yield t.candidate(A, (4, ALL), "0")
