# SPDX-License-Identifier: Apache-2.0
"""Scenarios of bodies, session changes, and of channels that requests open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from network_trace import EVERYBODY, R1, R2, A, B, C, D, Json, Trace, mark, tree_root

BODIES = "xcmp_rules 1.4 bodies"
SESSION = "xcmp_rules 1.4 session change"
COMPOSED = "xcmp_rules 1.1"
HELD = ("N-I06", "must the bodies be held before an acknowledgement is accepted", "configurable; default no")
NOT_LISTED = ("N-I07", "a body that the relay chain does not list (yet)", "refuse")
TREE = ("N-I10", "tree of the per (sender, block, recipient) root", "RFC 9162 shape, tag xcmp/msg, sized")


def bodies() -> Iterator[Trace]:
    """Yield the scenarios of bodies."""
    one_two = tree_root(b"one", b"two")
    t = Trace(
        "bodies/delivered", "payloads, their order and their split make the root", source=BODIES, interpretation=TREE
    )
    t.at(5).candidate(A, [(B, one_two, 6)])
    t.at(6).body(A, B, 5, [b"two", b"one"], "Body/RootMismatch", expected=one_two)
    t.body(A, B, 5, [b"onetwo"], "Body/RootMismatch", expected=one_two)
    t.body(A, B, 5, [b"one", b"two", b""], "Body/RootMismatch", expected=one_two)
    t.body(A, B, 5, [b"one", b"two!"], "Body/SizeMismatch", declared=6, actual=7)
    t.body(A, B, 5, [b"one", b"two"]).body(
        A, B, 5, [b"one", b"two"], "Body/Duplicate", sender=A, recipient=B, sent_at=5
    )
    t.state(bodies_held=[[5, A, B]])
    yield t.at(7).candidate(B, [], [(5, A)]).state(bodies_held=[])

    t = Trace("bodies/after-the-candidates", "a body may come in the block of its message", source=BODIES)
    t.at(5).candidate(A, [(B, tree_root(), 0)]).body(A, B, 5, [])
    yield t.state(bodies_held=[[5, A, B]])

    t = Trace("bodies/report", "a report is checked like a body: listed, size, root, first", source=BODIES)
    t.at(5).candidate(A, [(B, R1, 7)])
    t.at(6).report(A, B, 5, R2, 8, "Body/SizeMismatch", declared=7, actual=8)
    t.report(A, B, 5, R2, 7, "Body/RootMismatch", expected=R1).report(A, B, 5, R1, 7)
    t.report(A, B, 5, R2, 8, "Body/SizeMismatch", declared=7, actual=8)
    t.report(A, B, 5, R1, 7, "Body/Duplicate", sender=A, recipient=B, sent_at=5)
    yield t.state(bodies_held=[[5, A, B]], ingress={B: [[5, A]]})

    t = Trace("bodies/not-expected", "early, late, or of others", source=BODIES, interpretation=NOT_LISTED)
    t.at(4).report(A, B, 5, R1, 1, "Body/NotExpected", sender=A, recipient=B, sent_at=5)
    t.at(5).candidate(A, [B])
    t.at(6).report(A, C, 5, R1, 1, "Body/NotExpected", sender=A, recipient=C, sent_at=5)
    t.report(B, A, 5, R1, 1, "Body/NotExpected", sender=B, recipient=A, sent_at=5)
    t.report(A, B, 6, R1, 1, "Body/NotExpected", sender=A, recipient=B, sent_at=6)
    t.candidate(B, [], [(5, A)])
    yield t.at(7).report(A, B, 5, R1, 1, "Body/NotExpected", sender=A, recipient=B, sent_at=5).state(bodies_held=[])

    t = Trace("bodies/equal-roots", "one content, two messages", source=BODIES)
    t.at(5).candidate(A, [(B, R1, 1), (C, R1, 1)]).send(6, B, A)
    yield t.at(7).report(A, B, 5, R1, 1).report(A, C, 5, R1, 1).state(bodies_held=[[5, A, B], [5, A, C]])

    t = Trace("bodies/not-required", "an acknowledgement frees a body, held or not", source=BODIES, interpretation=HELD)
    t.send(5, B, A, C).at(6).report(A, B, 5, R1, 1).candidate(B, [], [(5, A), (5, C)])
    yield t.state(bodies_held=[], ingress_set=[])

    t = Trace(
        "bodies/required",
        "every covered message needs its body; the lowest without one is told",
        source="xcmp_rules 1.4 acceptance 7",
        config={"require_bodies": True},
        interpretation=HELD,
    )
    t.send(5, B, A, C).send(6, B, A).at(7).candidate(B, [], [(5, C)], "Ack/BodyMissing", block=5, sender=C)
    t.candidate(B, [], [(6, A), (5, C)], "Ack/BodyMissing", block=5, sender=A)
    t.at(8).report(A, B, 5, R1, 1).candidate(B, [], [(5, A), (5, C)], "Ack/BodyMissing", block=5, sender=C)
    t.candidate(B, [], [], "Ack/NoProgress", pending=[[5, A], [5, C], [6, A]])
    t.candidate(B, [], [(5, A)]).state(watermarks={B: mark(5, A)}, bodies_held=[])
    t.at(9).report(C, B, 5, R1, 1).candidate(B, [], [(6, A)], "Ack/Gap", block=6, missing=[[5, C]])
    yield t.candidate(B, [], [(6, A), (5, C)], "Ack/BodyMissing", block=6, sender=A)


def sessions() -> Iterator[Trace]:
    """Yield the scenarios of session changes under fixed channels."""
    t = Trace(
        "sessions/sender-leaves",
        "its messages leave the queues, which would block the recipients for ever",
        source=SESSION,
    )
    t.send(5, B, A, C).send(6, B, D).at(7).candidate(B, [], [(5, C)]).state(watermarks={B: mark(5, C)})
    t.at(8).report(A, B, 5, R1, 1).session(outgoing=[A])
    t.state(ingress={B: [[6, D]]}, watermarks={B: mark(6)}, egress={D: [[6, B]]}, egress_set=[str(D)], bodies_held=[])
    t.at(9).candidate(B, [], [(5, A)], "Ack/UnknownMessage", block=5, sender=A)
    yield t.candidate(B, [], [(6, D)]).state(watermarks={B: mark(7)}, ingress_set=[])

    t = Trace(
        "sessions/recipient-leaves", "its queue and watermark go, its senders have nothing in egress", source=SESSION
    )
    t.send(5, B, A, C).at(6).candidate(B, [], [(5, A)]).session(outgoing=[B])
    t.state(ingress_set=[], egress_set=[], watermarks={}, paras=[A, C, D])
    t.at(7).candidate(A, [B], [], "Outbox/NoSuchChannel", idx=0, channel=f"{A}->{B}")
    yield t.candidate(B, [], [], "Candidate/UnknownPara", para=B).candidate(A, [C])

    t = Trace("sessions/id-is-reused", "a para under an old id has neither channels nor messages", source=SESSION)
    t.send(5, B, A).at(6).candidate(B, [A], [(5, A)]).session(outgoing=[A], onboarding={A: 1})
    t.state(ingress_set=[], watermarks={B: mark(6)})
    t.at(7).candidate(A, [B], [], "Outbox/NoSuchChannel", idx=0, channel=f"{A}->{B}")
    yield (
        t.candidate(A)
        .candidate(B, [A], [], "Outbox/NoSuchChannel", idx=0, channel=f"{B}->{A}")
        .state(paras=[A, B, C, D])
    )

    t = Trace("sessions/fixed-channels", "nobody opens or closes one", source=SESSION)
    t.at(5).ask("init_open_channel", A, "RequestNotInForce", recipient=B, _request="init_open_channel")
    t.ask("accept_open_channel", B, "RequestNotInForce", sender=A, _request="accept_open_channel")
    t.ask("close_channel", A, "RequestNotInForce", sender=A, recipient=B, _request="close_channel")
    yield t.candidate(A, [B])

    t = Trace(
        "sessions/pending-stays",
        "an accepted candidate waits for inclusion over a session change",
        source=SESSION,
        needs=["delayed_enactment"],
    )
    t.at(5).candidate(A, [B, C], enact_at=8).at(6).session(outgoing=[C])
    yield t.at(8).state(ingress={B: [[8, A]]}, ingress_set=[str(B)])

    t = Trace(
        "sessions/downward",
        "the relay parent of a candidate removes what the relay chain sent up to it",
        source="xcmp_rules 1.4 candidate",
    )
    t.at(5).downward(B, "aa").at(6).downward(B, "bb").candidate(B).state(dmq={B: [{"sent_at": 6, "msg": "bb"}]})
    yield t.at(8).candidate(B).state(dmq_set=[])


LIMITS: Json = {
    "channels": "xcmp",
    "max_channel_messages": 1,
    "xcmp_channel_capacity": 2,
    "xcmp_max_outbound_channels": 3,
    "xcmp_open_request_ttl": 2,
    "xcmp_condemned_sessions": 2,
}


def opened(identifier: str, rule: str, *channels: tuple[int, int], **more: Any) -> Trace:
    """Return a scenario whose channels were opened by requests, in block 1 and at the end of block 2."""
    config = {**LIMITS, **more.pop("config", {})}
    t = Trace(f"composed/{identifier}", rule, source=COMPOSED, config=config, **more).at(1)
    for sender, recipient in channels:
        t.ask("init_open_channel", sender, recipient=recipient)
    for sender, recipient in channels:
        t.ask("accept_open_channel", recipient, sender=sender)
    return t.at(2).session()


def part(bitfield: str = "", block: int = 2) -> Json:
    """Return the part of a candidate that concerns XCMP channels."""
    return {"watermark": [block, EVERYBODY], "bitfield": bitfield, "message_root": R2 if "1" in bitfield else None}


def composed() -> Iterator[Trace]:
    """Yield the scenarios of chains whose channels open and close."""
    t = opened("bits-and-outbox", "messages go exactly to the marked recipients", (A, C), (A, B))
    t.at(3).candidate(A, [B], [], "Outbox/BitfieldMismatch", channel_part=part("1"))
    t.candidate(A, [], [], "Outbox/BitfieldMismatch", channel_part=part("01"))
    t.candidate(A, [B], [], "Outbox/BitfieldMismatch", channel_part=part())
    t.candidate(A, [B], [], "Outbox/BitfieldMismatch", channel_part=part("11"))
    t.candidate(A, [B, C], channel_part=part("11"))
    yield t.state(ingress={B: [[3, A]], C: [[3, A]]}, cst={A: [{"last_updated": 3, "message_root": R2}] * 2})

    t = opened("no-channel", "a channel that nobody has opened", (A, B))
    yield t.at(3).candidate(A, [C], [], "Outbox/NoSuchChannel", idx=0, channel=f"{A}->{C}", channel_part=part())

    t = opened("capacity", "a channel takes as many messages as its capacity", (A, B))
    t.at(3).candidate(A, [B], channel_part=part("1")).at(4).candidate(A, [B], channel_part=part("1"))
    t.at(5).candidate(
        A, [B], [], "Outbox/ChannelFull", idx=0, channel=f"{A}->{B}", count=3, limit=2, channel_part=part("1")
    )
    t.candidate(B, [], [(3, A)], channel_part=part("", 3)).candidate(A, [B], channel_part=part("1"))
    yield t.state(ingress={B: [[4, A], [5, A]]}, watermarks={B: mark(4)}, channel_watermarks={B: [3, EVERYBODY]})

    t = opened("acks-after-channels", "both parts are checked, the partial watermark after the other", (A, B))
    t.at(3).candidate(A, [B], channel_part=part("1"))
    t.at(4).candidate(B, [], [], "Ack/NoProgress", pending=[[3, A]], channel_part=part("", 3))
    t.candidate(B, [], [(3, A)], channel_part=part("", 3))
    yield t.state(watermarks={B: mark(4)}, channel_watermarks={B: [3, EVERYBODY]})

    t = opened("watermark-stays", "a candidate without a watermark leaves it where it is", (A, B))
    t.at(3).candidate(B, [], [], channel_part=part("", 2)).at(4).candidate(B)
    yield t.state(channel_watermarks={B: [2, EVERYBODY]})

    t = opened("closed-with-messages", "entries of a channel that closes leave the queue", (A, B), (C, B))
    t.at(3).candidate(A, [B], channel_part=part("1")).candidate(C, [B], channel_part=part("1"))
    t.at(4).ask("close_channel", A, sender=A, recipient=B).session().state(ingress={B: [[3, A], [3, C]]})
    t.at(5).session().state(ingress={B: [[3, C]]}, cmt_set=[str(C)])
    t.at(6).candidate(B, [], [(3, A)], "Ack/UnknownMessage", block=3, sender=A, channel_part=part("", 5))
    yield t.candidate(B, [], [(3, C)], channel_part=part("", 5)).state(ingress_set=[], watermarks={B: mark(4)})

    t = opened("offboarded", "a para that leaves takes its channels and their messages along", (A, B), (C, B), (B, A))
    t.at(3).candidate(A, [B], channel_part=part("1")).candidate(C, [B], channel_part=part("1"))
    t.candidate(B, [A], channel_part=part("1")).session(outgoing=[A])
    yield t.state(ingress={B: [[3, C]]}, ingress_set=[str(B)], egress_set=[str(C)])

    t = opened(
        "dropped-at-a-boundary",
        "a pending candidate is dropped: its bits refer to the old row",
        (A, B),
        (A, D),
        needs=["delayed_enactment"],
    )
    t.at(3).candidate(A, [D], channel_part=part("01"), enact_at=5).at(4).session()
    yield t.at(5).state(ingress_set=[])
