# SPDX-License-Identifier: Apache-2.0
"""Scenarios of candidates: bitfields, message roots, watermarks, enactment; and of the relay chain's own messages."""

from __future__ import annotations

from collections.abc import Iterator

from xcmp_trace import ALL, NOBODY, R1, R2, R3, A, B, C, D, Trace, column, metadata, row_root
from xcmp_world import compact, digest, le32

ACCEPTANCE = "xcmp_channels.txt Acceptance Function"
ENACTMENT = "xcmp_channels.txt Enactment"
WATERMARK = (
    "X-I01",
    "watermark rule",
    "tuple order: never above the relay parent, never lower, equal only when nothing visible is unread",
)


def bitfields() -> Iterator[Trace]:
    """Yield the scenarios of bitfields and message roots."""
    t = Trace("bitfield/unknown-para", "a candidate of nobody", source="xcmp_rules 2.3")
    yield t.at(3).candidate(NOBODY, None, "1", None, "Candidate/UnknownPara", para=NOBODY).state(watermarks={})

    t = Trace("bitfield/no-channels", "without channels only the empty bitfield is valid", source=f"{ACCEPTANCE} 1.1")
    t.at(3).candidate(A, None, "0", None, "Bitfield/TooLong", length=1, row_length=0)
    yield t.candidate(A, None, "").state(watermarks={A: [2, ALL]}, cst_set=[])

    t = Trace("bitfield/surplus-zeros", "one bit too many, were it 0", source=f"{ACCEPTANCE} 1.1").open((A, B))
    t.at(3).candidate(A, None, "10", R1, "Bitfield/TooLong", length=2, row_length=1)
    t.candidate(A, None, "0000", None, "Bitfield/TooLong", length=4, row_length=1)
    yield t.state(cst={A: [column()]}, watermarks={A: None})

    t = Trace(
        "bitfield/missing-bits-are-zero", "a short bitfield leaves later columns alone", source=f"{ACCEPTANCE} 1.1"
    ).open((A, B), (A, C), (A, D))
    t.at(3).candidate(A, None, "01", R1)
    yield t.state(
        cst={A: [column(), column(3, R1), column()]}, cst_roots={A: row_root((B, 0, None), (C, 3, R1), (D, 0, None))}
    )

    t = Trace(
        "bitfield/first-condemned-bit", "the first set bit of a condemned channel is told", source=f"{ACCEPTANCE} 2.1"
    ).open((A, B), (A, C), (A, D))
    t.at(3).candidate(A, None, "111", R1).at(3).close(A, A, 2).close(A, A, 1).at(4).session()
    t.at(5).candidate(A, None, "111", R2, "Bitfield/ChannelCondemned", index=1, recipient=C)
    t.candidate(A, None, "101", R2, "Bitfield/ChannelCondemned", index=2, recipient=D)
    yield t.candidate(A, None, "1", R2).state(cst={A: [column(5, R2), column(3, R1), column(3, R1)]})

    t = Trace(
        "bitfield/no-message-root",
        "a set bit needs a root to write",
        source=ENACTMENT,
        interpretation=("X-I09", "bits set but no message root in the receipt", "reject"),
    ).open((A, B))
    t.at(3).candidate(A, None, "1", None, "Bitfield/MissingMessageRoot")
    yield t.candidate(A, None, "0", None).state(cst={A: [column()]})

    t = Trace(
        "bitfield/root-without-bits",
        "a root that no column gets changes nothing",
        source=ENACTMENT,
        interpretation=("X-I17", "message root present although no bit is set", "ignored"),
    ).open((A, B))
    yield t.at(3).candidate(A, None, "0", R1).state(cst={A: [column()]}, cst_roots={A: row_root((B, 0, None))})

    t = Trace(
        "bitfield/order-of-checks",
        "length, condemned channels, root, watermark: the first that fails is told",
        source="xcmp_rules 1.2",
    ).open((A, B))
    t.at(3).candidate(A, None, "1", R1).at(3).close(A, A, 0).at(4).session()
    t.at(5).candidate(A, (99, 0), "11", None, "Bitfield/TooLong", length=2, row_length=1)
    t.candidate(A, (99, 0), "1", None, "Bitfield/ChannelCondemned", index=0, recipient=B)
    t.candidate(A, (99, 0), "0", None, "Watermark/AheadRelayParent", new_watermark=[99, 0], relay_parent_number=4)
    yield t.state(watermarks={A: [2, ALL]})

    t = Trace(
        "bitfield/root-before-watermark", "a missing root is told before a bad watermark", source="xcmp_rules 1.2"
    ).open((A, B))
    yield t.at(3).candidate(A, (99, 0), "1", None, "Bitfield/MissingMessageRoot")

    t = Trace(
        "bitfield/capacity-is-not-checked",
        "the relay chain cannot see how full a channel is",
        source="xcmp_rules 1.2 acceptance 5",
        config={"xcmp_channel_capacity": 1},
    ).open((A, B))
    t.at(3).candidate(A, None, "1", R1).at(4).candidate(A, None, "1", R2).at(5).candidate(A, None, "1", R3)
    yield t.state(cst={A: [column(5, R3)]}, cmt={A: [metadata(B, capacity=1)]})


def watermarks() -> Iterator[Trace]:
    """Yield the scenarios of watermarks."""
    t = Trace(
        "watermark/ahead",
        "the relay parent bounds the block, not the para",
        source="xcmp_rules 1.2",
        interpretation=WATERMARK,
    )
    t.at(5).candidate(A, (5, 0), "", None, "Watermark/AheadRelayParent", new_watermark=[5, 0], relay_parent_number=4)
    t.candidate(A, (4, ALL), "").at(9)
    t.candidate(
        A, (8, 0), "", None, "Watermark/AheadRelayParent", relay_parent=7, new_watermark=[8, 0], relay_parent_number=7
    )
    yield t.candidate(A, (7, ALL), "", relay_parent=7).state(watermarks={A: [7, ALL]})

    t = Trace(
        "watermark/regressed", "never lower, by block or by para", source="xcmp_rules 1.2", interpretation=WATERMARK
    )
    t.at(9).candidate(A, (5, 7), "")
    t.at(10).candidate(A, (5, 6), "", None, "Watermark/Regressed", new_watermark=[5, 6], last_watermark=[5, 7])
    t.candidate(A, (4, ALL), "", None, "Watermark/Regressed", new_watermark=[4, ALL], last_watermark=[5, 7])
    yield t.candidate(A, (5, 8), "").state(watermarks={A: [5, 8]})

    t = Trace(
        "watermark/ahead-before-regressed",
        "a watermark that is both is told to be ahead",
        source="xcmp_rules 1.2",
        interpretation=WATERMARK,
    )
    t.at(9).candidate(A, (8, 0), "")
    yield t.at(10).candidate(
        A, (7, 0), "", None, "Watermark/AheadRelayParent", relay_parent=6, new_watermark=[7, 0], relay_parent_number=6
    )

    t = Trace(
        "watermark/stays-where-nothing-is-unread",
        "it may stay: nothing was sent",
        source="xcmp_rules 1.2",
        interpretation=WATERMARK,
    ).open((A, B))
    t.at(5).candidate(B, (4, 3), "").at(6).candidate(B, (4, 3), "")
    yield t.at(7).candidate(B, (4, 3), "").state(watermarks={B: [4, 3]})

    t = Trace(
        "watermark/must-move",
        "something that the relay parent shows is unread",
        source="xcmp_rules 1.2",
        interpretation=WATERMARK,
    ).open((A, C), (B, C))
    t.at(3).candidate(C, (2, ALL), "").at(4).candidate(B, None, "1", R1).candidate(A, None, "1", R2)
    t.at(5).candidate(C, (2, ALL), "", None, "Watermark/NotAdvanced", last_watermark=[2, ALL], pending=[[4, A], [4, B]])
    t.candidate(C, (4, A), "").at(6)
    t.candidate(C, (4, A), "", None, "Watermark/NotAdvanced", last_watermark=[4, A], pending=[[4, B]])
    yield t.candidate(C, (4, B), "").at(7).candidate(C, (4, B), "").state(watermarks={C: [4, B]})

    t = Trace(
        "watermark/may-land-anywhere",
        "it need not land on a message",
        source="xcmp_rules 1.2",
        interpretation=WATERMARK,
    ).open((A, C))
    t.at(3).candidate(C, (2, ALL), "").at(6).candidate(A, None, "1", R1)
    yield t.at(8).candidate(C, (5, 1), "").at(9).candidate(C, (6, A - 1), "").state(watermarks={C: [6, A - 1]})

    t = Trace(
        "watermark/sent-after-the-relay-parent",
        "what the relay parent does not show obliges to nothing",
        source="xcmp_rules 1.2",
        interpretation=WATERMARK,
    ).open((A, C))
    t.at(3).candidate(C, (2, ALL), "").at(6).candidate(A, None, "1", R1)
    t.at(7).candidate(C, (2, ALL), "", relay_parent=5)
    yield t.candidate(
        C, (2, ALL), "", None, "Watermark/NotAdvanced", relay_parent=6, last_watermark=[2, ALL], pending=[[6, A]]
    )

    t = Trace(
        "watermark/newer-message-covers-an-older-one",
        "the row forgets an unread message when a newer one overwrites it: the check gets laxer",
        source="xcmp_rules 1.2",
        interpretation=WATERMARK,
    ).open((A, C))
    t.at(3).candidate(C, (2, ALL), "").at(4).candidate(A, None, "1", R1)
    t.at(6).candidate(
        C, (2, ALL), "", None, "Watermark/NotAdvanced", relay_parent=5, last_watermark=[2, ALL], pending=[[4, A]]
    )
    t.at(6).candidate(A, None, "1", R2)
    yield t.at(7).candidate(C, (2, ALL), "", relay_parent=5).state(watermarks={C: [2, ALL]})

    t = Trace(
        "watermark/first",
        "the first one may be anything up to the relay parent",
        source="xcmp_rules 1.2",
        interpretation=WATERMARK,
    ).open((A, C))
    t.at(4).candidate(A, None, "1", R1)
    yield (
        t.at(5)
        .candidate(C, (0, 0), "")
        .at(6)
        .candidate(C, (0, 0), "", None, "Watermark/NotAdvanced", last_watermark=[0, 0], pending=[[4, A]])
    )


def enactments() -> Iterator[Trace]:
    """Yield the scenarios of enactment."""
    t = Trace(
        "enactment/writes-the-marked-columns",
        "every marked column gets the root and the height, the row one new root",
        source=f"{ENACTMENT} 1",
    ).open((A, B), (A, C), (A, D), (B, A))
    t.at(9).candidate(A, (3, 1), "101", R1, relay_parent=5)
    t.state(cst={A: [column(9, R1), column(), column(9, R1)], B: [column()]}, watermarks={A: [3, 1], B: None})
    yield t.state(cst_roots={A: row_root((B, 9, R1), (C, 0, None), (D, 9, R1)), B: row_root((A, 0, None))})

    t = Trace(
        "enactment/rejected-changes-nothing",
        "a candidate that fails on its watermark has sent nothing",
        source="xcmp_rules 1.2",
    ).open((A, B))
    t.at(3).candidate(A, (3, 0), "1", R1, "Watermark/AheadRelayParent", new_watermark=[3, 0], relay_parent_number=2)
    yield t.state(cst={A: [column()]}, cst_roots={A: row_root((B, 0, None))}, watermarks={A: None})

    t = Trace(
        "enactment/twice-in-a-block", "the later candidate of a block overwrites the earlier one", source=ENACTMENT
    ).open((A, B), (A, C))
    t.at(3).candidate(A, None, "11", R1).candidate(A, None, "01", R2)
    yield t.state(cst={A: [column(3, R1), column(3, R2)]}, cst_roots={A: row_root((B, 3, R1), (C, 3, R2))})

    t = Trace(
        "enactment/height-is-that-of-enactment",
        "what waits for availability is written with the height at which it is enacted",
        source=f"{ENACTMENT} 1.1",
        needs=("delayed_enactment",),
    ).open((A, B))
    t.at(3).candidate(A, (2, 5), "1", R1, relay_parent=2, enact_at=8).state(cst={A: [column()]}, watermarks={A: None})
    yield t.at(8).state(cst={A: [column(8, R1)]}, watermarks={A: [2, 5]}, cst_roots={A: row_root((B, 8, R1))})

    t = Trace(
        "enactment/dropped-at-the-boundary",
        "what is pending at a boundary is dropped, for its bits index the old row",
        source="xcmp_rules 1.2",
        needs=("delayed_enactment",),
        interpretation=("X-I12", "candidate accepted before a boundary, not yet enacted", "dropped at the boundary"),
    ).open((A, B), (A, C))
    t.at(3).close(A, A, 0).candidate(A, (2, 5), "01", R1, enact_at=8)
    t.at(5).session().state(cmt={A: [metadata(C)]})
    yield t.at(8).state(cst={A: [column()]}, watermarks={A: None}, cst_roots={A: row_root((C, 0, None))})


def downward() -> Iterator[Trace]:
    """Yield the scenarios of the relay chain's messages."""
    t = Trace(
        "downward/queue-and-prune",
        "a message leaves with the watermark that reaches its block, inclusive",
        source="README, downward messages",
    )
    t.at(3).downward(A, "aa").downward(A, "bb").at(5).downward(A, "cc")
    first = digest(bytes(32) + le32(3) + digest(compact(1) + b"\xaa"))
    second = digest(first + le32(3) + digest(compact(1) + b"\xbb"))
    third = digest(second + le32(5) + digest(compact(1) + b"\xcc"))
    t.state(
        dmq={A: [{"sent_at": 3, "msg": "aa"}, {"sent_at": 3, "msg": "bb"}, {"sent_at": 5, "msg": "cc"}]},
        dmq_heads={A: third.hex()},
    )
    t.at(6).candidate(A, (3, 0), "").state(dmq={A: [{"sent_at": 5, "msg": "cc"}]})
    yield t.at(7).candidate(A, (6, ALL), "").state(dmq_set=[], dmq_heads={A: third.hex()})
