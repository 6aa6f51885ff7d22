# SPDX-License-Identifier: Apache-2.0
"""The features relaxed_watermark and watermark_may_stay: which watermarks are good, and which error comes first."""

from __future__ import annotations

from collections.abc import Iterator

from tests.router.trace import Trace

A, B, C = 2000, 2001, 2002
AHEAD = "HrmpWatermark/AheadRelayParent"
ADVANCE = "HrmpWatermark/AdvancementRule"
NO_MESSAGES = "HrmpWatermark/LandsOnBlockWithNoMessages"


def scenarios() -> Iterator[Trace]:
    """Yield the scenarios of the group ``later_watermark``."""
    trace = Trace(
        "later_watermark/the-relay-parent-is-always-good",
        "again, and even below the last one: then the watermark goes back and nothing else changes",
        source="router_profiles 3.8",
        rules={0: ["relaxed_watermark"]},
        interpretation=("PR-06", "new watermark == relay parent < last", "accepted, the watermark goes back"),
    )
    trace.open((A, B))
    trace.at(4).candidate(A, send={B: "01"}).at(6).candidate(A, send={B: "02"})
    trace.at(9).candidate(B, 4).state(watermarks={B: 4}, digests={B: [[6, [A]]]})
    trace.at(9).candidate(B, 8).candidate(B, 8).state(watermarks={B: 8}, digests={B: None}, contents={(A, B): None})
    trace.at(11).candidate(A, send={B: "03"})
    trace.at(12).candidate(B, 5, relay_parent=5).state(
        watermarks={B: 5}, digests={B: [[11, [A]]]}, contents={(A, B): [{"sent_at": 11, "data": "03"}]}
    )
    trace.at(13).candidate(B, 6, error=NO_MESSAGES, new_watermark=6).candidate(B, 11).state(contents={(A, B): None})
    yield trace

    trace = Trace(
        "later_watermark/order-of-the-relaxed-checks",
        "ahead of the relay parent, not after the last one, no messages",
        source="router_profiles 3.8",
        rules={0: ["relaxed_watermark"]},
        interpretation=("I-12", "watermark == last watermark == relay parent", "accepted under relaxed_watermark"),
    )
    trace.open((A, B))
    trace.at(4).candidate(A, send={B: "01"}).at(9).candidate(B, 8)
    trace.at(10).candidate(B, 8, relay_parent=6, error=AHEAD, new_watermark=8, relay_chain_parent_number=6)
    trace.candidate(B, 7, relay_parent=6, error=AHEAD, new_watermark=7, relay_chain_parent_number=6)
    trace.candidate(B, 9, relay_parent=8, error=AHEAD, new_watermark=9, relay_chain_parent_number=8)
    trace.at(11).candidate(B, 8, error=ADVANCE, new_watermark=8, last_watermark=8)
    trace.candidate(B, 4, error=ADVANCE, new_watermark=4, last_watermark=8)  # a block that had messages
    trace.candidate(B, 9, error=NO_MESSAGES, new_watermark=9)
    trace.candidate(B, 8, relay_parent=8).candidate(B, 10).state(watermarks={B: 10})
    yield trace

    trace = Trace(
        "later_watermark/a-first-watermark",
        "without a last one, a block with messages, the relay parent, and nothing else",
        source="router_profiles 3.8",
        rules={0: ["relaxed_watermark"]},
    )
    trace.open((A, B))
    trace.at(3).candidate(A, send={B: "01"}).at(6).candidate(
        B, 6, error=AHEAD, new_watermark=6, relay_chain_parent_number=5
    )
    trace.candidate(B, 4, error=NO_MESSAGES, new_watermark=4).candidate(C, 0, error=NO_MESSAGES, new_watermark=0)
    trace.candidate(B, 3).candidate(C, 5).state(watermarks={B: 3, C: 5})
    yield trace

    trace = Trace(
        "later_watermark/may-stay",
        "the last one is good with any later relay parent and needs no message there; it prunes nothing",
        source="router_profiles 3.8",
        rules={0: ["watermark_may_stay"]},
    )
    trace.open((A, B))
    trace.at(4).candidate(B).at(5).candidate(A, send={B: "01"}).at(7).candidate(B, 3).candidate(B, 3).state(
        watermarks={B: 3}, digests={B: [[5, [A]]]}, contents={(A, B): [{"sent_at": 5, "data": "01"}]}
    )
    trace.at(8).candidate(B, 2, error=ADVANCE, new_watermark=2, last_watermark=3)
    trace.candidate(B, 4, error=NO_MESSAGES, new_watermark=4)
    trace.candidate(B, 3, relay_parent=2, error=AHEAD, new_watermark=3, relay_chain_parent_number=2)
    trace.candidate(B, 2, relay_parent=2).state(watermarks={B: 2}, digests={B: [[5, [A]]]})
    trace.at(8).candidate(B, 2).candidate(B, 5).state(watermarks={B: 5}, contents={(A, B): None}, digests={B: None})
    trace.at(9).candidate(C, 7, error=NO_MESSAGES, new_watermark=7).candidate(C).state(watermarks={C: 8})
    yield trace

    trace = Trace(
        "later_watermark/strict-then-relaxed-then-staying-then-strict",
        "each rule is judged against the last watermark, whatever rule let it in",
        source="router_profiles 3.8",
        rules={5: ["relaxed_watermark"], 7: ["watermark_may_stay"], 9: []},
    )
    trace.at(4).candidate(A, 3).candidate(A, 3, error=ADVANCE, new_watermark=3, last_watermark=3)
    trace.candidate(A, 3, relay_parent=2, error=ADVANCE, new_watermark=3, last_watermark=3)
    trace.at(5).candidate(A, 3, relay_parent=3)
    trace.candidate(A, 3, relay_parent=2, error=AHEAD, new_watermark=3, relay_chain_parent_number=2)
    trace.candidate(A, 3, error=ADVANCE, new_watermark=3, last_watermark=3)
    trace.at(7).candidate(A, 3).candidate(A, 2, relay_parent=2).candidate(A, 2).state(watermarks={A: 2})
    trace.at(9).candidate(A, 2, error=ADVANCE, new_watermark=2, last_watermark=2)
    trace.candidate(A, 1, relay_parent=1, error=ADVANCE, new_watermark=1, last_watermark=2)
    trace.candidate(A, 3, relay_parent=3).candidate(
        A, 3, relay_parent=3, error=ADVANCE, new_watermark=3, last_watermark=3
    )
    trace.candidate(A, 8).state(watermarks={A: 8})
    yield trace
