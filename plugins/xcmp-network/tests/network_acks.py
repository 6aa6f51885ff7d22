# SPDX-License-Identifier: Apache-2.0
"""Scenarios of acknowledgements: which may be named, how many must be, and in which order."""

from __future__ import annotations

from collections.abc import Iterator

from network_trace import NOBODY, A, B, C, D, Trace, mark

ACKS = "xcmp_rules 1.4 acceptance 3"
LIVENESS = "xcmp_rules 1.4 acceptance 4"
FAIRNESS = "xcmp_rules 1.4 acceptance 5"
INSIDE = "xcmp_rules 1.4 acceptance 6"
FREE = (
    "N-I01",
    "may a recipient pick messages of one block in any order",
    "free: any non-empty subset of the lowest unread block",
)
NORMAL = ("N-I02", "stored form of the watermark after all messages of block W are acknowledged", "(W+1, {})")
AGAIN = ("N-I05", "acknowledging a message again", "reject")
WHICH = (
    "N-I09",
    "which kind for something that is not pending",
    "Ack/AlreadyAcked if it was sent and acknowledged, else Ack/UnknownMessage",
)


def acknowledgements() -> Iterator[Trace]:
    """Yield the scenarios of single acknowledgements."""
    t = Trace("acks/ahead", "only what is visible at the relay parent", source=ACKS)
    t.send(5, B, A).send(6, B, A).at(7)
    t.candidate(B, [], [(6, A)], "Ack/AheadRelayParent", relay_parent=5, block=6, sender=A)
    t.candidate(B, [], [(5, A), (9, C)], "Ack/AheadRelayParent", relay_parent=5, block=9, sender=C)
    yield t.candidate(B, [], [(5, A)], relay_parent=5).state(ingress={B: [[6, A]]}, watermarks={B: mark(6)})

    t = Trace("acks/unknown", "a message that was never sent, or to somebody else", source=ACKS, interpretation=WHICH)
    t.at(5).candidate(A, [B]).candidate(D, [C]).at(6)
    t.candidate(B, [], [(5, C)], "Ack/UnknownMessage", block=5, sender=C)
    t.candidate(B, [], [(4, A)], "Ack/UnknownMessage", block=4, sender=A)
    t.candidate(B, [], [(5, D)], "Ack/UnknownMessage", block=5, sender=D)
    t.candidate(B, [], [(5, A), (5, NOBODY)], "Ack/UnknownMessage", block=5, sender=NOBODY)
    t.candidate(A, [], [(5, A)], "Ack/UnknownMessage", block=5, sender=A)
    yield t.state(ingress={B: [[5, A]]}, watermarks={})

    t = Trace(
        "acks/unknown-below-the-watermark",
        "below the watermark, only what was sent counts as acknowledged",
        source=ACKS,
        interpretation=WHICH,
    )
    t.send(5, B, A, C).at(6).candidate(B, [], [(5, A), (5, C)]).state(watermarks={B: mark(6)}).at(8)
    t.candidate(B, [], [(5, D)], "Ack/UnknownMessage", block=5, sender=D)
    t.candidate(B, [], [(3, A)], "Ack/UnknownMessage", block=3, sender=A)
    t.candidate(B, [], [(6, A)], "Ack/UnknownMessage", block=6, sender=A)
    yield t.candidate(B, [], [(5, C)], "Ack/AlreadyAcked", block=5, sender=C)

    t = Trace("acks/again", "neither in a later candidate nor twice in one", source=ACKS, interpretation=AGAIN)
    t.send(5, B, A, C, D).at(6).candidate(B, [], [(5, C), (5, C)], "Ack/AlreadyAcked", block=5, sender=C)
    t.candidate(B, [], [(5, C)]).state(watermarks={B: mark(5, C)})
    t.at(7).candidate(B, [], [(5, A), (5, C)], "Ack/AlreadyAcked", block=5, sender=C)
    t.candidate(B, [], [(5, A), (5, D)])
    yield t.at(8).candidate(B, [], [(5, A)], "Ack/AlreadyAcked", block=5, sender=A).candidate(B)

    t = Trace(
        "acks/again-after-transitive",
        "what was acknowledged without being named is acknowledged",
        source=ACKS,
        interpretation=AGAIN,
    )
    t.send(5, B, A).send(6, B, A).at(7).candidate(B, [], [(6, A)])
    yield t.at(8).candidate(B, [], [(5, A)], "Ack/AlreadyAcked", block=5, sender=A).state(watermarks={B: mark(7)})

    t = Trace(
        "acks/named-and-implied", "naming what another acknowledgement covers is allowed, in any order", source=ACKS
    )
    t.send(5, B, A).send(6, B, A).at(7).candidate(B, [], [(6, A), (5, A)])
    yield t.state(ingress_set=[], watermarks={B: mark(7)})

    t = Trace("acks/first-that-fails", "acknowledgements are checked in their order", source=ACKS)
    t.send(5, B, A).at(6).candidate(B, [], [(5, C), (9, A)], "Ack/UnknownMessage", block=5, sender=C)
    yield t.candidate(B, [], [(9, A), (5, C)], "Ack/AheadRelayParent", block=9, sender=A)

    t = Trace(
        "acks/explicit-list",
        "the relay chain derives the watermark",
        source="xcmp_rules 1.4 candidate",
        interpretation=("N-I08", "form of acknowledgements in the candidate", "explicit list of (block, sender)"),
    )
    t.send(5, B, A, D).send(6, B, C).at(7).candidate(B, [], [(6, C), (5, D), (5, A)])
    yield t.state(watermarks={B: mark(7)}, ingress_set=[])


def liveness() -> Iterator[Trace]:
    """Yield the scenarios of the obligation to acknowledge something."""
    t = Trace("liveness/no-progress", "a non-empty inbox obliges to one acknowledgement", source=LIVENESS)
    t.send(5, B, C, A).at(6).candidate(B, [A], [], "Ack/NoProgress", pending=[[5, A], [5, C]])
    yield t.candidate(B, [A], [(5, C)]).state(ingress={B: [[5, A]], A: [[6, B]]}, watermarks={B: mark(5, C)})

    t = Trace("liveness/not-visible", "messages after the relay parent oblige to nothing", source=LIVENESS)
    t.send(5, B, A).at(6).candidate(B, [], [], relay_parent=4)
    t.at(7).candidate(B, [], [], "Ack/NoProgress", relay_parent=5, pending=[[5, A]])
    yield t.state(ingress={B: [[5, A]]}, watermarks={})

    t = Trace("liveness/only-visible-are-listed", "pending ends at the relay parent", source=LIVENESS)
    t.send(5, B, A).send(6, B, C).send(7, B, A).at(8)
    yield t.candidate(B, [], [], "Ack/NoProgress", relay_parent=6, pending=[[5, A], [6, C]])

    t = Trace("liveness/nothing-unread", "an empty inbox obliges to nothing", source=LIVENESS)
    t.at(5).candidate(B).send(6, B, A).at(7).candidate(B, [], [(6, A)]).at(8).candidate(B).at(9).candidate(B)
    yield t.state(watermarks={B: mark(7)})

    t = Trace("liveness/rest-of-a-block", "after part of a block the rest obliges", source=LIVENESS)
    t.send(5, B, A, C).at(6).candidate(B, [], [(5, A)]).at(7).candidate(B, [], [], "Ack/NoProgress", pending=[[5, C]])
    yield t.candidate(B, [], [(5, C)]).state(watermarks={B: mark(6)})


def fairness() -> Iterator[Trace]:
    """Yield the scenarios of transitivity and fairness, and of the watermark."""
    t = Trace("fairness/gap", "nothing of a block before all of earlier ones", source=FAIRNESS)
    t.send(5, B, A, C).send(7, B, D).at(8)
    t.candidate(B, [], [(7, D)], "Ack/Gap", block=7, missing=[[5, A], [5, C]])
    t.candidate(B, [], [(5, C), (7, D)], "Ack/Gap", block=7, missing=[[5, A]])
    yield t.candidate(B, [], [(5, A), (7, D), (5, C)]).state(ingress_set=[], watermarks={B: mark(8)})

    t = Trace(
        "fairness/transitive",
        "an acknowledgement covers the earlier ones of its sender, not of others",
        source=FAIRNESS,
    )
    t.send(5, B, A, D).send(7, B, A).at(8)
    t.candidate(B, [], [(7, A)], "Ack/Gap", block=7, missing=[[5, D]])
    yield t.candidate(B, [], [(7, A), (5, D)]).state(ingress_set=[], watermarks={B: mark(8)})

    t = Trace(
        "fairness/transitive-into-the-highest-block",
        "coverage counts towards earlier blocks, the highest may stay partial",
        source=FAIRNESS,
        interpretation=FREE,
    )
    t.send(5, B, A).send(6, B, A, C).at(7).candidate(B, [], [(6, A)])
    yield t.state(ingress={B: [[6, C]]}, watermarks={B: mark(6, A)})

    t = Trace("fairness/other-recipients", "what others have not read does not matter", source=FAIRNESS)
    t.at(5).candidate(A, [B, C]).send(6, B, D).at(7).candidate(B, [], [(5, A), (6, D)])
    yield t.state(ingress={C: [[5, A]]}, watermarks={B: mark(7)})

    t = Trace(
        "fairness/hidden-message-below",
        "what is sent above the relay parent never stands below an acknowledgement",
        source=FAIRNESS,
    )
    t.send(5, B, A).send(6, B, C).at(7).candidate(B, [], [(5, A)], relay_parent=5)
    yield t.state(ingress={B: [[6, C]]}, watermarks={B: mark(6)})

    t = Trace(
        "fairness/watermark",
        "the watermark goes from part of a block to the next one",
        source=FAIRNESS,
        interpretation=NORMAL,
    )
    t.send(5, B, A, C, D).send(7, B, A).at(8).candidate(B, [], [(5, C)]).state(watermarks={B: mark(5, C)})
    t.at(9).candidate(B, [], [(5, A)]).state(watermarks={B: mark(5, A, C)})
    t.at(10).candidate(B, [], [(5, D)]).state(watermarks={B: mark(6)})
    yield t.at(11).candidate(B, [], [(7, A)]).state(watermarks={B: mark(8)}, ingress_set=[])

    t = Trace(
        "fairness/watermark-over-blocks",
        "part of a later block leaves the earlier one",
        source=FAIRNESS,
        interpretation=NORMAL,
    )
    t.send(5, B, A, C).send(6, B, A, D).at(7).candidate(B, [], [(5, C)])
    t.at(8).candidate(B, [], [(6, A)]).state(watermarks={B: mark(6, A)}, ingress={B: [[6, D]]})
    yield t.at(9).candidate(B, [], [(6, D)]).state(watermarks={B: mark(7)})

    t = Trace(
        "fairness/gap-before-order",
        "a gap is told before a wrong order",
        source=FAIRNESS,
        config={"intra_block": "prefix"},
    )
    t.send(5, B, A).send(6, B, A, C).at(7)
    t.candidate(B, [], [(6, C)], "Ack/Gap", block=6, missing=[[5, A]])
    yield t.candidate(B, [], [(5, A), (6, C)], "Ack/OutOfOrder", block=6, expected=[A])


def inside_a_block() -> Iterator[Trace]:
    """Yield the scenarios of the order inside one block."""
    t = Trace("inside/free", "any messages of the lowest unread block", source=INSIDE, interpretation=FREE)
    t.send(5, B, A, C, D).at(6).candidate(B, [], [(5, D)]).state(watermarks={B: mark(5, D)})
    yield t.at(7).candidate(B, [], [(5, C), (5, A)]).state(watermarks={B: mark(6)})

    t = Trace(
        "inside/prefix",
        "the lowest senders of the block first",
        source=INSIDE,
        config={"intra_block": "prefix"},
        interpretation=FREE,
    )
    t.send(5, B, D, A, C).at(6).candidate(B, [], [(5, C)], "Ack/OutOfOrder", block=5, expected=[A])
    t.candidate(B, [], [(5, A), (5, D)], "Ack/OutOfOrder", block=5, expected=[A, C])
    t.candidate(B, [], [(5, C), (5, A)]).state(watermarks={B: mark(5, A, C)})
    yield t.at(7).candidate(B, [], [(5, D)]).state(watermarks={B: mark(6)})

    t = Trace(
        "inside/prefix-of-the-rest",
        "what is acknowledged is not expected again",
        source=INSIDE,
        config={"intra_block": "prefix"},
        interpretation=FREE,
    )
    t.send(5, B, A, C, D).at(6).candidate(B, [], [(5, A)]).at(7)
    t.candidate(B, [], [(5, D)], "Ack/OutOfOrder", block=5, expected=[C])
    yield t.candidate(B, [], [(5, C)]).state(watermarks={B: mark(5, A, C)})

    t = Trace(
        "inside/prefix-only-in-the-highest-block",
        "lower blocks are covered completely, in any order of the list",
        source=INSIDE,
        config={"intra_block": "prefix"},
    )
    t.send(5, B, A, C).send(6, B, A, D).at(7).candidate(B, [], [(5, C), (6, A)])
    yield t.state(watermarks={B: mark(6, A)}, ingress={B: [[6, D]]})
