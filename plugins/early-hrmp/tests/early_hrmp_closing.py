# SPDX-License-Identifier: Apache-2.0
"""Closing channels: requests, sealing, draining."""

from __future__ import annotations

from collections.abc import Iterator

from early_hrmp_trace import NOBODY, A, B, C, D, Trace, balance, channel, close_request, hrmp, name, relay, request

CLOSE = "early_hrmp.txt close_channel"
BOUNDARY = "early_hrmp.txt session change 3"


def scenarios() -> Iterator[Trace]:
    """Yield the scenarios of the group ``closing``."""
    yield from _requests()
    yield from _boundaries()


def _requests() -> Iterator[Trace]:
    trace = Trace(
        "closing/either-end", "sender and recipient may both close; an empty channel goes at the boundary", source=CLOSE
    )
    trace.open((A, B), (A, C), (B, C))
    trace.at(3).close(A, A, B).close(C, A, C)
    trace.state(
        close_requests=[close_request(A, A, B), close_request(C, A, C)],
        channels_set=[name(A, B), name(A, C), name(B, C)],
        balances={A: balance(20), B: balance(17), C: balance(14)},
    )
    trace.at(4).session().state(
        close_requests=[],
        channels_set=[name(B, C)],
        balances={A: balance(0), B: balance(10), C: balance(7)},
    )
    yield trace

    trace = Trace(
        "closing/no-such-channel",
        "neither a request nor the other direction is a channel, which is looked at before the origin",
        source=f"{CLOSE} 1",
    )
    trace.open((A, B)).at(3).init(A, C)
    trace.close(B, B, A, "Close/NoSuchChannel", channel=name(B, A))
    trace.close(A, A, C, "Close/NoSuchChannel", channel=name(A, C))
    trace.close(D, A, C, "Close/NoSuchChannel", channel=name(A, C))
    trace.close(A, A, A, "Close/NoSuchChannel", channel=name(A, A)).state(close_requests=[])
    yield trace

    trace = Trace(
        "closing/sealed-before-the-origin",
        "a sealed channel is not closed again, which is looked at before the origin",
        source=f"{CLOSE} 2",
    )
    trace.open((A, B)).at(3).close(A, A, B).at(3).candidate(A, 2, {B: "01"}).at(4).session()
    for origin in (A, B, C):
        trace.at(5).close(origin, A, B, "Close/ChannelSealed", channel=name(A, B))
    trace.state(close_requests=[])
    yield trace

    trace = Trace(
        "closing/unauthorized",
        "whoever is neither end cannot close, which is looked at before requests that are there",
        source=f"{CLOSE} 3",
    )
    trace.open((A, B)).at(3).close(C, A, B, "Close/Unauthorized", origin=C, channel=name(A, B))
    trace.close(NOBODY, A, B, "Close/Unauthorized", origin=NOBODY, channel=name(A, B)).close(B, A, B)
    trace.close(C, A, B, "Close/Unauthorized", origin=C, channel=name(A, B))
    trace.state(close_requests=[close_request(B, A, B)])
    yield trace

    trace = Trace("closing/already-underway", "one close request is enough, whoever made it", source=f"{CLOSE} 4")
    trace.open((A, B)).at(3).close(B, A, B).close(B, A, B, "Close/AlreadyUnderway", channel=name(A, B))
    trace.close(A, A, B, "Close/AlreadyUnderway", channel=name(A, B)).state(close_requests=[close_request(B, A, B)])
    yield trace

    trace = Trace(
        "closing/messages-flow-until-the-boundary",
        "a close request changes nothing within the session",
        source="early_hrmp.txt acceptance, note",
    )
    trace.open((A, B)).at(3).close(B, A, B).at(3).candidate(A, 2, {B: "0102"})
    trace.state(channels={(A, B): channel(1, 2)})
    trace.at(4).candidate(A, 3, {B: "03"}).state(channels={(A, B): channel(2, 3)})
    trace.at(5).session().state(channels={(A, B): channel(2, 3, sealed=True)})
    yield trace


def _boundaries() -> Iterator[Trace]:
    trace = Trace(
        "closing/sealed-until-drained",
        "a channel with messages is sealed; read to the end it goes at the next boundary, not before, and its deposits with it",
        source=f"{BOUNDARY}.1, 4",
    )
    trace.open((A, B)).at(3).candidate(A, 2, {B: "01"}).at(4).candidate(A, 3, {B: "02"}).at(4).close(A, A, B)
    trace.at(5).session().state(channels={(A, B): channel(2, 2, sealed=True)}, close_requests=[])
    trace.at(6).candidate(A, 5, {B: "03"}, error="Outbound/ChannelSealed", idx=0, channel=name(A, B))
    trace.candidate(B, 3).state(channels={(A, B): channel(1, 1, sealed=True)}, dmq={B: [hrmp(4, A, "02")]})
    trace.at(7).session().state(channels={(A, B): channel(1, 1, sealed=True)})
    trace.at(8).candidate(B, 4)
    trace.state(channels={(A, B): channel(0, 0, sealed=True)}, balances={A: balance(10), B: balance(7)})
    trace.at(9).candidate(A, 8, {B: "03"}, error="Outbound/ChannelSealed", idx=0, channel=name(A, B))
    trace.at(9).session().state(channels_set=[], balances={A: balance(0), B: balance(0)})
    yield trace

    trace = Trace(
        "closing/drained-before-the-boundary",
        "what counts is what is in the channel at the boundary: read to the end before it, it goes at once",
        source=f"{BOUNDARY}.1",
    )
    trace.open((A, B)).at(3).candidate(A, 2, {B: "01"}).at(3).close(A, A, B).at(4).candidate(B, 3).session()
    trace.state(channels_set=[], balances={A: balance(0), B: balance(0)})
    yield trace

    trace = Trace(
        "closing/relay-messages-do-not-fill-a-channel",
        "only the channel's own messages keep it",
        source=f"{BOUNDARY}.1",
    )
    trace.open((A, B), (C, B)).at(3).close(A, A, B).downward(B, "ff").candidate(C, 2, {B: "01"}).at(4).session()
    trace.state(
        channels={(C, B): channel(1, 1)}, channels_set=[name(C, B)], dmq={B: [relay(3, "ff"), hrmp(3, C, "01")]}
    )
    yield trace

    trace = Trace(
        "closing/an-empty-message-fills-a-channel",
        "a channel with a message of no bytes is not empty",
        source=f"{BOUNDARY}.1",
    )
    trace.open((A, B)).at(3).close(A, A, B).at(3).candidate(A, 2, {B: ""}).at(4).session()
    trace.state(channels={(A, B): channel(1, 0, sealed=True)}).at(5).candidate(B, 4).session().state(channels_set=[])
    yield trace

    trace = Trace(
        "closing/never-read",
        "a sealed channel that is never read stays, and so do both deposits",
        source="xcmp_rules 1.3",
    )
    trace.open((A, B)).at(3).candidate(A, 2, {B: "01"}).at(3).close(A, A, B)
    for block in (4, 5, 6, 7):
        trace.at(block).session()
        trace.state(channels={(A, B): channel(1, 1, sealed=True)}, balances={A: balance(10), B: balance(7)})
    yield trace

    trace = Trace(
        "closing/open-again",
        "once it is gone a channel can be asked for again, and starts empty and open",
        source=f"{CLOSE}; session change 4",
    )
    trace.open((A, B)).at(3).close(A, A, B).at(3).init(A, B, "Open/AlreadyExists", channel=name(A, B)).at(4).session()
    trace.at(5).init(A, B).accept(B, 0).state(open_requests=[request(A, B, confirmed=True)])
    trace.at(6).session().state(channels={(A, B): channel()}).at(7).candidate(A, 6, {B: "01"})
    trace.state(channels={(A, B): channel(1, 1)})
    yield trace

    trace = Trace(
        "closing/only-the-channel-that-was-named",
        "its reverse and other channels of its ends stay open",
        source=f"{BOUNDARY}.1",
    )
    trace.open((A, B), (B, A), (A, C)).at(3).candidate(A, 2, {B: "01", C: "02"}).at(3).close(A, A, B).at(4).session()
    trace.state(
        channels={(A, B): channel(1, 1, sealed=True), (B, A): channel(), (A, C): channel(1, 1)},
        channels_set=[name(A, B), name(A, C), name(B, A)],
    )
    trace.at(5).candidate(A, 4, {C: "03"}).candidate(B, 4, {A: "04"})
    trace.state(channels={(A, C): channel(2, 2), (B, A): channel(1, 1)}, dmq={B: None, A: [hrmp(5, B, "04")]})
    yield trace

    trace = Trace(
        "closing/in-the-first-session-of-a-channel",
        "a channel may be closed as soon as it is open",
        source=CLOSE,
    )
    trace.at(1).init(A, B).accept(B, 0).close(A, A, B, "Close/NoSuchChannel", channel=name(A, B)).at(1).session()
    trace.at(2).close(A, A, B).session().state(channels_set=[], balances={A: balance(0), B: balance(0)})
    yield trace
