# SPDX-License-Identifier: Apache-2.0
"""Scenarios of queues, outboxes and bounds."""

from __future__ import annotations

from collections.abc import Iterator

from network_trace import NOBODY, R1, R2, R3, A, B, C, D, Trace, mark

QUEUES = "xcmp_networking.txt XCMP high-level overview"
OUTBOX = "xcmp_rules 1.4 acceptance 1"
BOUNDS = "xcmp_rules 1.4 acceptance 2"
CHANNEL_BOUND = ("N-I03", "what is bounded", "number of unacknowledged logical messages per channel")
ONE = ("N-I11", "two candidates of one para in one relay block", "the second is refused")


def queues() -> Iterator[Trace]:
    """Yield the scenarios of queues and of who may send in a block."""
    t = Trace("queues/two-views", "one message is in the recipient's ingress and in the sender's egress", source=QUEUES)
    t.at(5).candidate(A, [B, C])
    yield t.state(ingress={B: [[5, A]], C: [[5, A]]}, egress={A: [[5, B], [5, C]]}, ingress_set=[str(B), str(C)])

    t = Trace("queues/order-of-senders", "ascending senders, whatever the order of candidates", source=QUEUES)
    t.send(5, D, C, A, B).send(6, D, B)
    t.state(ingress={D: [[5, A], [5, B], [5, C], [6, B]]}, egress={B: [[5, D], [6, D]]})
    t.at(7).candidate(D, [], [], "Ack/NoProgress", pending=[[5, A], [5, B], [5, C], [6, B]])
    yield t.state(watermarks={})

    t = Trace("queues/independent", "an acknowledgement by one recipient is none by another", source=QUEUES)
    t.at(5).candidate(A, [B, C]).at(6).candidate(B, [], [(5, A)])
    yield t.state(ingress={C: [[5, A]]}, ingress_set=[str(C)], egress={A: [[5, C]]}, watermarks={B: mark(6)})

    t = Trace(
        "queues/both-directions", "two paras send to each other and acknowledge in the same candidate", source=QUEUES
    )
    t.at(5).candidate(A, [B]).candidate(B, [A])
    t.at(6).candidate(A, [(B, R2, 7)], [(5, B)]).candidate(B, [], [(5, A)])
    yield t.state(ingress={B: [[6, A]]}, ingress_set=[str(B)], watermarks={A: mark(6), B: mark(6)})

    t = Trace("queues/unknown-para", "a candidate of nobody", source="xcmp_rules 2.3")
    t.at(5).candidate(NOBODY, [], [], "Candidate/UnknownPara", para=NOBODY)
    yield t.candidate(NOBODY, [B, B], [(9, 9)], "Candidate/UnknownPara", para=NOBODY).state(ingress_set=[])

    t = Trace(
        "queues/one-candidate",
        "a second candidate of a block is refused, even an empty one",
        source="xcmp_rules 1.4",
        interpretation=ONE,
    )
    t.at(5).candidate(A, [B]).candidate(A, [C], [], "Candidate/AlreadyEnactedInBlock", para=A, block=5)
    t.at(5).candidate(A, [], [], "Candidate/AlreadyEnactedInBlock", para=A, block=5)
    t.candidate(A, [B, B], [(9, 9)], "Candidate/AlreadyEnactedInBlock", para=A, block=5)
    yield t.at(6).candidate(A, [C]).state(ingress={B: [[5, A]], C: [[6, A]]})

    t = Trace(
        "queues/refused-does-not-count",
        "after a refused candidate another one may come",
        source="xcmp_rules 1.4",
        interpretation=ONE,
    )
    t.at(5).candidate(A, [NOBODY], [], "Outbox/NoSuchChannel", idx=0, channel=f"{A}->{NOBODY}")
    yield t.candidate(A, [B]).state(ingress={B: [[5, A]]})

    t = Trace(
        "queues/sent-at-inclusion",
        "a message is sent at the height that includes the candidate",
        source=QUEUES,
        needs=["delayed_enactment"],
    )
    t.at(5).candidate(A, [B], enact_at=8).state(ingress_set=[])
    t.at(6).candidate(B, []).state(watermarks={})
    t.at(8).candidate(A, [C], [], "Candidate/AlreadyEnactedInBlock", para=A, block=8).state(ingress={B: [[8, A]]})
    yield t.at(9).candidate(B, [], [(8, A)]).state(ingress_set=[], watermarks={B: mark(9)})

    t = Trace(
        "queues/one-message-a-height",
        "of two pending candidates of a para that are included at one height the second has no effect",
        source=QUEUES,
        needs=["delayed_enactment"],
    )
    t.at(5).candidate(A, [B], enact_at=8)
    t.at(6).candidate(A, [B, C], enact_at=8)
    yield t.at(8).state(ingress={B: [[8, A]]}, ingress_set=[str(B)])

    t = Trace(
        "queues/acknowledged-meanwhile",
        "what another candidate has acknowledged before inclusion is gone",
        source=QUEUES,
        needs=["delayed_enactment"],
    )
    t.send(5, B, A, C).at(6).candidate(B, [], [(5, A), (5, C)], enact_at=9)
    t.at(7).candidate(B, [], [(5, A)]).state(watermarks={B: mark(5, A)})
    yield t.at(9).state(ingress_set=[], watermarks={B: mark(6)})


def outboxes() -> Iterator[Trace]:
    """Yield the scenarios of the order of recipients, and of channels."""
    t = Trace("outbox/not-sorted", "recipients strictly ascending", source=OUTBOX)
    t.at(5).candidate(D, [B, A], [], "Outbox/NotSorted", idx=1)
    t.candidate(D, [A, C, B], [], "Outbox/NotSorted", idx=2)
    yield t.candidate(D, [A, B, C]).state(egress={D: [[5, A], [5, B], [5, C]]})

    t = Trace("outbox/duplicate", "one message for each recipient", source=OUTBOX)
    t.at(5).candidate(D, [A, A], [], "Outbox/DuplicateRecipient", idx=1, recipient=A)
    yield t.candidate(D, [A, B, B], [], "Outbox/DuplicateRecipient", idx=2, recipient=B).state(egress_set=[])

    t = Trace("outbox/no-such-channel", "only over open channels, in their direction", source=OUTBOX, channels=[[A, B]])
    t.at(5).candidate(B, [A], [], "Outbox/NoSuchChannel", idx=0, channel=f"{B}->{A}")
    t.candidate(A, [B, C], [], "Outbox/NoSuchChannel", idx=1, channel=f"{A}->{C}")
    t.candidate(A, [A], [], "Outbox/NoSuchChannel", idx=0, channel=f"{A}->{A}")
    yield t.candidate(A, [B]).state(ingress={B: [[5, A]]})

    t = Trace("outbox/no-channels", "a chain without channels", source=OUTBOX, channels=[])
    t.at(5).candidate(A, [B], [], "Outbox/NoSuchChannel", idx=0, channel=f"{A}->{B}")
    yield t.candidate(A).state(ingress_set=[])

    t = Trace(
        "outbox/whole-list-for-each-rule",
        "order of all recipients, then all channels, then all places, then bytes",
        source=OUTBOX,
        channels=[[A, B], [A, C]],
        config={"max_channel_messages": 1},
    )
    t.send(4, B, A).at(5).candidate(A, [D, B], [], "Outbox/NotSorted", idx=1)
    t.candidate(A, [(B, R1, 2000), D], [], "Outbox/NoSuchChannel", idx=1, channel=f"{A}->{D}")
    t.candidate(A, [(B, R1, 2000)], [], "Outbox/ChannelFull", idx=0, channel=f"{A}->{B}", count=2, limit=1)
    t.candidate(A, [(C, R1, 2000)], [(9, D)], "Outbox/BytesExceeded", total=2000, limit=1000)
    yield t.candidate(A, [C], [(9, D)], "Ack/AheadRelayParent", block=9, sender=D).state(ingress_set=[str(B)])


def bounds() -> Iterator[Trace]:
    """Yield the scenarios of places and bytes."""
    t = Trace(
        "bounds/channel",
        "two unacknowledged messages for each channel, whatever else is full",
        source=BOUNDS,
        interpretation=CHANNEL_BOUND,
    )
    t.send(3, B, A).send(4, B, A).at(5)
    t.candidate(A, [B, C], [], "Outbox/ChannelFull", idx=0, channel=f"{A}->{B}", count=3, limit=2)
    t.candidate(A, [C]).candidate(C, [A, B]).candidate(D, [B])
    t.at(6).candidate(B, [], [(3, A)]).candidate(A, [B], [(5, C)])
    yield t.state(ingress={B: [[4, A], [5, C], [5, D], [6, A]]}, watermarks={B: mark(4)})

    t = Trace("bounds/same-block", "candidates of a block see each other's acknowledgements", source=BOUNDS)
    t.send(3, B, A).send(4, B, A).at(5)
    t.candidate(A, [B], [], "Outbox/ChannelFull", idx=0, channel=f"{A}->{B}", count=3, limit=2)
    t.candidate(B, [], [(4, A)]).candidate(A, [B])
    yield t.state(ingress={B: [[5, A]]}, watermarks={B: mark(5)})

    t = Trace(
        "bounds/no-room", "a bound of zero closes every channel", source=BOUNDS, config={"max_channel_messages": 0}
    )
    yield t.at(5).candidate(A, [B], [], "Outbox/ChannelFull", idx=0, channel=f"{A}->{B}", count=1, limit=0).candidate(A)

    t = Trace("bounds/new-bound", "a lower bound takes nothing back; it holds from the next block on", source=BOUNDS)
    t.send(3, B, A).at(4).candidate(A, [B]).session(new_config={"max_channel_messages": 1, "max_block_bytes": 5})
    t.at(5).candidate(A, [B], [], "Outbox/ChannelFull", idx=0, channel=f"{A}->{B}", count=3, limit=1)
    t.candidate(A, [(C, R1, 3), (D, R1, 3)], [], "Outbox/BytesExceeded", total=6, limit=5)
    t.candidate(B, [], [(4, A)])
    yield t.at(6).candidate(A, [(B, R2, 5)]).state(ingress={B: [[6, A]]})

    t = Trace(
        "bounds/ingress",
        "with a bound on ingress, the messages of all senders count",
        source=BOUNDS,
        config={"max_ingress_messages": 2},
        interpretation=CHANNEL_BOUND,
    )
    t.at(5).candidate(A, [B]).candidate(C, [B]).candidate(
        D, [A, B], [], "Outbox/IngressFull", idx=1, recipient=B, count=3, limit=2
    )
    t.candidate(D, [A]).at(6).candidate(A, [B, C], [(5, D)], "Outbox/IngressFull", idx=0, recipient=B, count=3, limit=2)
    t.candidate(B, [], [(5, A)]).candidate(D, [B])
    yield t.state(ingress={B: [[5, C], [6, D]]})

    t = Trace(
        "bounds/channel-before-ingress",
        "a message that breaks both breaks the channel's bound",
        source=BOUNDS,
        config={"max_ingress_messages": 2},
    )
    t.send(3, B, A).send(4, B, A).at(5)
    t.candidate(A, [B], [], "Outbox/ChannelFull", idx=0, channel=f"{A}->{B}", count=3, limit=2)
    yield t.candidate(C, [B], [], "Outbox/IngressFull", idx=0, recipient=B, count=3, limit=2)

    t = Trace(
        "bounds/bytes",
        "the sizes of a candidate's messages, exactly",
        source=BOUNDS,
        interpretation=("N-I04", "rule or expectation", "rule: sum of declared sizes <= max_block_bytes"),
    )
    t.at(5).candidate(A, [(B, R1, 600), (C, R2, 401)], [], "Outbox/BytesExceeded", total=1001, limit=1000)
    t.candidate(A, [(B, R1, 600), (C, R2, 400)]).candidate(D, [(A, R3, 1000), (B, R3, 0)])
    yield t.at(6).candidate(C, [(D, R1, 1001)], [(5, A)], "Outbox/BytesExceeded", total=1001, limit=1000)

    t = Trace(
        "bounds/default-bytes",
        "one million bytes unless the chain says otherwise",
        source=BOUNDS,
        config={"max_block_bytes": None},
    )
    t.at(5).candidate(A, [(B, R1, 1_000_001)], [], "Outbox/BytesExceeded", total=1_000_001, limit=1_000_000)
    yield t.candidate(A, [(B, R1, 1_000_000)])

    t = Trace("bounds/large-sizes", "sizes add up without wrapping", source=BOUNDS)
    yield t.at(5).candidate(
        A, [(B, R1, 2**32 - 1), (C, R1, 2**32 - 1)], [], "Outbox/BytesExceeded", total=2**33 - 2, limit=1000
    )
