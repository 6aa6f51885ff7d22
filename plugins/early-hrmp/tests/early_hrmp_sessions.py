# SPDX-License-Identifier: Apache-2.0
"""Paras that leave and return, the order of a session boundary, candidates that are enacted later."""

from __future__ import annotations

from collections.abc import Iterator

from early_hrmp_trace import NOBODY, A, B, C, D, Trace, balance, channel, hrmp, name, relay, request

BOUNDARY = "early_hrmp.txt session change"
LATER = ("delayed_enactment",)


def offboarding() -> Iterator[Trace]:
    """Yield the scenarios of the group ``offboarding``."""
    yield from _gone()
    yield from _requests_of_the_gone()
    yield from _back_again()


def _gone() -> Iterator[Trace]:
    trace = Trace(
        "offboarding/channels-queue-and-watermark",
        "channels in both directions go with all deposits, and so do the para's queue and watermark; its account stays",
        source=f"{BOUNDARY} 1",
        interpretation=("H-I06", "DMQ and watermark of an offboarded para", "removed"),
    )
    trace.open((A, B), (B, C), (A, C)).at(3).downward(B, "ff").candidate(A, 2, {B: "01", C: "02"}).candidate(B, 2)
    trace.at(4).session(outgoing=(B,)).state(
        paras=[A, C, D],
        channels_set=[name(A, C)],
        channels={(A, C): channel(1, 1)},
        dmq={B: None, C: [hrmp(3, A, "02")]},
        watermarks={A: 2, B: None},
        balances={A: balance(10), B: balance(0), C: balance(7)},
    )
    trace.at(5).candidate(A, 4, {B: "03"}, error="Outbound/NoSuchChannel", idx=0, channel=name(A, B))
    trace.candidate(B, 4, error="Candidate/UnknownPara", para=B)
    trace.at(6).init(A, B, "Open/InvalidRecipient", recipient=B).init(B, A, "Open/InvalidSender", sender=B)
    yield trace

    trace = Trace(
        "offboarding/delivered-messages-stay",
        "what the para has sent stays in the queues of others, is a landing like any message, and frees nothing when it is read",
        source=f"{BOUNDARY} 1",
        interpretation=("H-I05", "messages of an offboarded sender in the DMQs of others", "stay deliverable"),
    )
    trace.open((A, B), (C, B)).at(3).candidate(A, 2, {B: "01"}).at(4).candidate(C, 3, {B: "02"}).session(outgoing=(A,))
    trace.state(channels_set=[name(C, B)], dmq={B: [hrmp(3, A, "01"), hrmp(4, C, "02")]}, balances={B: balance(7)})
    trace.at(5).candidate(B, 3).state(dmq={B: [hrmp(4, C, "02")]}, channels={(C, B): channel(1, 1)}, watermarks={B: 3})
    yield trace

    trace = Trace(
        "offboarding/sealed-channels",
        "a sealed channel goes with its ends as an open one does",
        source=f"{BOUNDARY} 1",
    )
    trace.open((A, B), (C, B)).at(3).candidate(A, 2, {B: "01"}).candidate(C, 2, {B: "02"})
    trace.at(3).close(A, A, B).close(C, C, B).at(4).session().at(5).session(outgoing=(A,))
    trace.state(
        channels={(C, B): channel(1, 1, sealed=True)},
        channels_set=[name(C, B)],
        balances={A: balance(0), B: balance(7)},
    )
    trace.at(6).session(outgoing=(B,)).state(channels_set=[], dmq_set=[], balances={B: balance(0), C: balance(0)})
    yield trace

    trace = Trace(
        "offboarding/close-request-of-a-channel-that-is-gone",
        "the request goes without a second refund",
        source=f"{BOUNDARY} 1, 3",
    )
    trace.open((A, B)).at(3).close(A, A, B).at(4).session(outgoing=(B,))
    trace.state(channels_set=[], close_requests=[], balances={A: balance(0), B: balance(0)})
    yield trace

    trace = Trace(
        "offboarding/strangers-and-repeats",
        "whoever is not registered may be named, and anybody twice",
        source=f"{BOUNDARY} 1",
    )
    trace.open((A, B)).at(3).session(outgoing=(B, NOBODY, B)).state(
        paras=[A, C, D], channels_set=[], balances={A: balance(0), B: balance(0)}
    )
    trace.at(4).downward(B, "ff").session(outgoing=(B,)).state(dmq_set=[])
    yield trace


def _requests_of_the_gone() -> Iterator[Trace]:
    reading = (
        "H-I03",
        "confirmed request whose sender or recipient is offboarded at the same boundary",
        "no channel, both reserved deposits returned, request removed",
    )
    for who, gone in (("sender", A), ("recipient", B)):
        trace = Trace(
            f"offboarding/confirmed-request-of-a-{who}",
            f"a confirmed request whose {who} goes at the boundary opens nothing, and both sides get their deposits back",
            source=f"{BOUNDARY} 1, 2",
            interpretation=reading,
        )
        trace.at(1).init(A, B).accept(B, 0).at(2).session(outgoing=(gone,))
        trace.state(open_requests=[], channels_set=[], balances={A: balance(0), B: balance(0)})
        yield trace

    trace = Trace(
        "offboarding/confirmed-request-of-a-para-that-comes-back-at-once",
        "who goes at the boundary is gone for its requests, also where it is onboarded in the same change",
        source=f"{BOUNDARY} 1, 2",
        interpretation=reading,
    )
    trace.at(1).init(A, B).accept(B, 0).at(2).session(outgoing=(B,), onboarding={B: 5})
    trace.state(paras=[A, B, C, D], open_requests=[], channels_set=[], balances={A: balance(0), B: balance(0, 105)})
    yield trace

    reading = (
        "H-I04",
        "unconfirmed request whose recipient or sender is offboarded",
        "stays, ages, refunds at the ttl",
    )
    for who, gone in (("sender", A), ("recipient", B)):
        trace = Trace(
            f"offboarding/unconfirmed-request-of-a-{who}",
            f"an unconfirmed request outlives its {who}, ages on and returns the deposit when it expires",
            source=f"{BOUNDARY} 2.1",
            interpretation=reading,
        )
        trace.at(1).init(A, B).at(2).session(outgoing=(gone,))
        trace.state(open_requests=[request(A, B, age=1)], balances={A: balance(10)})
        trace.at(3).session().state(open_requests=[], balances={A: balance(0)})
        yield trace

    trace = Trace(
        "offboarding/accepted-by-a-para-that-is-gone",
        "nothing keeps a para that has gone from accepting; at the boundary the request is dropped and both deposits return",
        source="early_hrmp.txt accept_open_channel; xcmp_rules 1.3",
        config={"hrmp_open_request_ttl": 3},
        interpretation=reading,
    )
    trace.at(1).init(A, B).at(2).session(outgoing=(B,)).at(3).accept(B, 0).state(balances={B: balance(7)})
    trace.at(4).session().state(open_requests=[], channels_set=[], balances={A: balance(0), B: balance(0)})
    yield trace

    trace = Trace(
        "offboarding/the-request-of-a-para-that-comes-back",
        "an unconfirmed request still counts and still blocks when its sender is back, and can be confirmed",
        source=f"{BOUNDARY} 2.1",
        config={"hrmp_open_request_ttl": 5, "hrmp_max_outbound_channels": 1},
        interpretation=reading,
    )
    trace.at(1).init(A, B).at(2).session(outgoing=(A,)).at(3).session(onboarding={A: 0})
    trace.at(4).init(A, B, "Open/AlreadyRequested", channel=name(A, B)).init(
        A, C, "Open/LimitExceeded", count=1, limit=1
    )
    trace.accept(B, 0).at(5).session().state(channels={(A, B): channel()}, balances={A: balance(10), B: balance(7)})
    yield trace


def _back_again() -> Iterator[Trace]:
    reading = (
        "H-I11",
        "a para reuses the id of an offboarded one and re-opens the channel while old messages are still queued",
        "usage of the new channel counts only its own messages",
    )
    trace = Trace(
        "offboarding/sender-id-used-again",
        "the new channel starts empty, reading the old messages frees nothing of it, reading its own does",
        source="xcmp_rules 1.3",
        config={"hrmp_channel_max_places": 2},
        interpretation=reading,
    )
    trace.open((A, B)).at(3).candidate(A, 2, {B: "01"}).at(4).candidate(A, 3, {B: "0202"})
    trace.session(outgoing=(A,), onboarding={A: 0}).state(channels_set=[], paras=[A, B, C, D], watermarks={A: None})
    trace.at(5).init(A, B).accept(B, 0).at(6).session()
    trace.state(channels={(A, B): channel()}, dmq={B: [hrmp(3, A, "01"), hrmp(4, A, "0202")]})
    trace.at(7).candidate(A, 6, {B: "030303"}).at(8).candidate(A, 7, {B: "04040404"}).state(
        channels={(A, B): channel(2, 7)}
    )
    trace.at(9).candidate(A, 8, {B: ""}, error="Outbound/CapacityExceeded", idx=0, count=3, limit=2)
    trace.candidate(B, 4).state(
        channels={(A, B): channel(2, 7)}, dmq={B: [hrmp(7, A, "030303"), hrmp(8, A, "04040404")]}
    )
    trace.at(10).candidate(B, 7).state(channels={(A, B): channel(1, 4)})
    trace.at(11).candidate(B, 10).state(channels={(A, B): channel()}, dmq_set=[])
    yield trace

    trace = Trace(
        "offboarding/old-messages-do-not-keep-a-channel",
        "a new channel without messages of its own is empty and closes at once, whatever the old one has left in the queue",
        source=f"{BOUNDARY} 3.1",
        interpretation=reading,
    )
    trace.open((A, B)).at(3).candidate(A, 2, {B: "01"}).session(outgoing=(A,)).at(4).session(onboarding={A: 0})
    trace.at(5).init(A, B).accept(B, 0).at(6).session().at(7).close(A, A, B).session()
    trace.state(channels_set=[], dmq={B: [hrmp(3, A, "01")]}, balances={A: balance(0), B: balance(0)})
    yield trace

    trace = Trace(
        "offboarding/old-messages-of-three-channels",
        "every channel of the two paras is told from every other, read in one go",
        source="xcmp_rules 1.3",
        interpretation=reading,
    )
    trace.open((A, B))
    for block in (3, 7):
        trace.at(block).candidate(A, block - 1, {B: "01"}).session(outgoing=(A,), onboarding={A: 0})
        trace.at(block + 1).init(A, B).accept(B, 0).at(block + 2).session()
    trace.at(11).candidate(A, 10, {B: "0203"}).state(channels={(A, B): channel(1, 2)})
    trace.state(dmq={B: [hrmp(3, A, "01"), hrmp(7, A, "01"), hrmp(11, A, "0203")]})
    trace.at(12).candidate(B, 7).state(channels={(A, B): channel(1, 2)})
    trace.at(13).candidate(B, 11).state(channels={(A, B): channel()}, dmq_set=[])
    yield trace

    trace = Trace(
        "offboarding/recipient-id-used-again",
        "a recipient that comes back finds an empty queue and no watermark",
        source=f"{BOUNDARY} 1",
        interpretation=("H-I06", "DMQ and watermark of an offboarded para", "removed"),
    )
    trace.open((A, B)).at(3).downward(B, "ff").candidate(A, 2, {B: "01"}).at(5).candidate(B, 3)
    trace.at(5).candidate(A, 4, {B: "02"}).session(outgoing=(B,), onboarding={B: 20})
    trace.state(dmq_set=[], watermarks={A: 4, B: None}, balances={A: balance(0), B: balance(0, 120)})
    trace.at(6).candidate(B, 1, relay_parent=1).state(watermarks={B: 1})
    trace.at(6).init(A, B).accept(B, 0).at(7).session().at(8).candidate(A, 7, {B: "03"})
    trace.state(dmq={B: [hrmp(8, A, "03")]}, channels={(A, B): channel(1, 1)})
    yield trace

    trace = Trace(
        "offboarding/onboarding",
        "a new para is registered from the boundary on; one that is there only gets the balance",
        source="traces FORMAT session_change",
    )
    trace.at(1).init(A, NOBODY, "Open/InvalidRecipient", recipient=NOBODY).session(onboarding={NOBODY: 33, A: 5})
    trace.state(paras=[NOBODY, A, B, C, D], balances={NOBODY: balance(0, 33), A: balance(0, 105)})
    trace.at(2).init(A, NOBODY).accept(NOBODY, 0).at(3).session().state(channels_set=[name(A, NOBODY)])
    yield trace


def boundaries() -> Iterator[Trace]:
    """Yield the scenarios of the group ``boundary``."""
    trace = Trace(
        "boundary/everything-at-once",
        "offboarding, opening, expiring, sealing and cleaning at one boundary, each with its deposits",
        source=BOUNDARY,
        config={"hrmp_open_request_ttl": 1},
    )
    trace.open((A, B), (B, C), (C, A), (D, A), (B, A)).at(3).candidate(A, 2, {B: "01"}).candidate(B, 2, {A: "02"})
    trace.candidate(C, 2, {A: "03"}).at(3).close(A, A, B).close(C, B, C).close(A, D, A).init(A, C).accept(C, 0).init(
        B, D
    )
    trace.at(4).session(outgoing=(D,)).state(
        paras=[A, B, C],
        channels={(A, B): channel(1, 1, sealed=True), (A, C): channel(), (B, A): channel(1, 1), (C, A): channel(1, 1)},
        channels_set=[name(A, B), name(A, C), name(B, A), name(C, A)],
        open_requests=[],
        close_requests=[],
        dmq={A: [hrmp(3, B, "02"), hrmp(3, C, "03")], B: [hrmp(3, A, "01")]},
        balances={A: balance(34), B: balance(17), C: balance(17), D: balance(0)},
    )
    yield trace

    trace = Trace(
        "boundary/last-in-its-block",
        "the session changes after everything of its block, whichever step says so",
        source="traces FORMAT step",
    )
    trace.at(1).init(A, B).accept(B, 0).session().state(channels_set=[], open_requests=[request(A, B, confirmed=True)])
    trace.at(1).candidate(A, 0, {B: "01"}, error="Outbound/NoSuchChannel", idx=0, channel=name(A, B))
    trace.state(channels_set=[name(A, B)]).at(2).candidate(A, 1, {B: "01"}).state(channels={(A, B): channel(1, 1)})
    yield trace

    trace = Trace(
        "boundary/room-for-a-channel",
        "a place among the sender's channels that a boundary frees can be used after it",
        source=f"{BOUNDARY} 3",
        config={"hrmp_max_outbound_channels": 1},
    )
    trace.open((A, B)).at(3).close(A, A, B).init(A, C, "Open/LimitExceeded", count=1, limit=1).session()
    trace.at(4).init(A, C).accept(C, 0).at(5).session().state(channels_set=[name(A, C)])
    yield trace

    trace = Trace(
        "boundary/limit-below-what-is-open",
        "a smaller limit closes nothing and drops no request; it only refuses new ones",
        source="early_hrmp.txt init_open_channel 5",
    )
    trace.open((A, B)).at(3).init(A, C).accept(C, 0).session(new_config={"hrmp_max_outbound_channels": 1})
    trace.state(channels_set=[name(A, B), name(A, C)]).at(4).init(A, D, "Open/LimitExceeded", count=2, limit=1)
    yield trace


def delayed() -> Iterator[Trace]:
    """Yield the scenarios of the group ``delayed``."""
    trace = Trace(
        "delayed/nothing-before-enactment",
        "acceptance changes nothing; sent_at is the block of enactment, and pruning comes then, too",
        source="early_hrmp.txt enactment",
        needs=LATER,
    )
    trace.open((A, B)).at(3).candidate(A, 2, {B: "01"}).at(4).candidate(A, 3, {B: "02"}, enact_at=6).candidate(
        B, 3, enact_at=6
    )
    trace.state(dmq={B: [hrmp(3, A, "01")]}, channels={(A, B): channel(1, 1)}, watermarks={A: 2, B: None})
    trace.at(6).state(dmq={B: [hrmp(6, A, "02")]}, channels={(A, B): channel(1, 1)}, watermarks={A: 3, B: 3})
    yield trace

    trace = Trace(
        "delayed/the-channel-is-gone",
        "a message whose channel has vanished is skipped; the others are sent, the watermark is set",
        source="xcmp_rules 1.3",
        needs=LATER,
        interpretation=(
            "H-I09",
            "message whose channel vanished between acceptance and enactment",
            "skip the message, enact the rest",
        ),
    )
    trace.open((A, B), (A, C)).at(3).close(A, A, B).candidate(A, 2, {B: "01", C: "02"}, enact_at=5).at(4).session()
    trace.state(channels_set=[name(A, C)]).at(5).state(
        dmq={C: [hrmp(5, A, "02")]}, dmq_set=[str(C)], watermarks={A: 2}, channels={(A, C): channel(1, 1)}
    )
    yield trace

    trace = Trace(
        "delayed/the-channel-is-sealed",
        "what was accepted before a channel was sealed still goes into it, and is waited for",
        source="xcmp_rules 1.3",
        needs=LATER,
    )
    trace.open((A, B)).at(3).candidate(A, 2, {B: "01"}).candidate(
        A, 2, {B: "02"}, error="Watermark/AdvancementRule", new_watermark=2, last_watermark=2
    )
    trace.at(4).close(A, A, B).candidate(A, 3, {B: "02"}, enact_at=6).at(5).candidate(B, 3, enact_at=6).session()
    trace.state(channels={(A, B): channel(1, 1, sealed=True)})
    trace.at(6).session().state(channels={(A, B): channel(1, 1, sealed=True)}, dmq={B: [hrmp(6, A, "02")]})
    trace.at(7).candidate(B, 6).session().state(channels_set=[])
    yield trace

    trace = Trace(
        "delayed/limits-are-not-checked-again",
        "two candidates that both fit when they were accepted may overfill a channel together",
        source="early_hrmp.txt enactment, note",
        needs=LATER,
        config={"hrmp_channel_max_places": 1},
    )
    trace.open((A, B)).at(3).candidate(A, 2, {B: "01"}, enact_at=5).at(4).candidate(A, 3, {B: "02"}, enact_at=5)
    trace.at(5).state(channels={(A, B): channel(2, 2)}, watermarks={A: 3})
    trace.at(6).candidate(A, 5, {B: ""}, error="Outbound/CapacityExceeded", idx=0, count=3, limit=1)
    yield trace

    trace = Trace(
        "delayed/the-para-comes-back",
        "a candidate of before is enacted into the channel that is there by then, and counted in it",
        source="xcmp_rules 1.3",
        needs=LATER,
        config={"hrmp_sender_deposit": 0},
    )
    trace.open((A, B)).at(3).downward(A, "ff").candidate(A, 2, {B: "01"}, enact_at=8)
    trace.at(4).session(outgoing=(A,), onboarding={A: 0}).at(5).init(A, B).accept(B, 0).at(6).session()
    trace.state(channels={(A, B): channel(deposits=(0, 7))}).at(7).downward(A, "fe")
    trace.at(8).state(
        channels={(A, B): channel(1, 1, deposits=(0, 7))},
        watermarks={A: 2},
        dmq={A: [relay(7, "fe")], B: [hrmp(8, A, "01")]},
    )
    yield trace
