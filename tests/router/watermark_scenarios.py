# SPDX-License-Identifier: Apache-2.0
"""Watermarks: how far they may advance and where they may land."""

from __future__ import annotations

from collections.abc import Iterator

from tests.router.trace import Trace

A, B, C = 2000, 2001, 2002


def scenarios() -> Iterator[Trace]:
    """Yield the scenarios of the group ``watermark``."""
    trace = Trace(
        "watermark/first-one",
        "without a last watermark any landing will do, block 0 included",
        source="check_hrmp_watermark 1",
    )
    trace.at(1).candidate(A, 0).candidate(
        B, 1, error="HrmpWatermark/AheadRelayParent", new_watermark=1, relay_chain_parent_number=0
    )
    trace.state(watermarks={A: 0, B: None})
    yield trace

    trace = Trace(
        "watermark/advances-strictly",
        "neither back nor the same again, not even where that is the relay parent",
        source="check_hrmp_watermark 1",
        interpretation=("I-12", "watermark == last watermark == relay parent", "refused"),
    )
    trace.at(5).candidate(A, 4)
    trace.at(5).candidate(A, 4, error="HrmpWatermark/AdvancementRule", new_watermark=4, last_watermark=4)
    trace.at(7).candidate(
        A, 3, relay_parent=3, error="HrmpWatermark/AdvancementRule", new_watermark=3, last_watermark=4
    )
    trace.candidate(A, 4, relay_parent=4, error="HrmpWatermark/AdvancementRule", new_watermark=4, last_watermark=4)
    trace.candidate(A, 5, relay_parent=5).candidate(A, 6).state(watermarks={A: 6})
    yield trace

    trace = Trace(
        "watermark/not-ahead-of-the-relay-parent",
        "the relay parent is the candidate's own, which need not be the block before",
        source="check_hrmp_watermark 2",
    )
    trace.at(9).candidate(
        A, 9, error="HrmpWatermark/AheadRelayParent", new_watermark=9, relay_chain_parent_number=8
    ).candidate(
        A, 7, relay_parent=6, error="HrmpWatermark/AheadRelayParent", new_watermark=7, relay_chain_parent_number=6
    )
    trace.candidate(A, 6, relay_parent=6).candidate(A, 8).state(watermarks={A: 8})
    yield trace

    trace = Trace(
        "watermark/lands-on-blocks-with-messages",
        "below the relay parent only blocks in which somebody sent to this para; other paras' digests do not count",
        source="check_hrmp_watermark 3",
    )
    trace.open((A, B), (A, C), (C, B))
    trace.at(3).candidate(A, send={B: "01"}).at(5).candidate(C, send={B: "02"}).at(6).candidate(A, send={C: "03"})
    trace.at(9).candidate(B, 4, error="HrmpWatermark/LandsOnBlockWithNoMessages", new_watermark=4)
    trace.candidate(B, 6, error="HrmpWatermark/LandsOnBlockWithNoMessages", new_watermark=6)
    trace.candidate(B, 3).state(digests={B: [[5, [C]]]})
    trace.at(9).candidate(B, 5).state(digests={B: None}, watermarks={B: 5})
    trace.at(9).candidate(B, 7, error="HrmpWatermark/LandsOnBlockWithNoMessages", new_watermark=7).candidate(B, 8)
    yield trace

    trace = Trace(
        "watermark/a-passed-block-is-no-landing-any-more",
        "entries up to the watermark are gone; nothing below it can be landed on again",
        source="prune_hrmp 1",
    )
    trace.open((A, B))
    trace.at(3).candidate(A, send={B: "01"}).at(4).candidate(A, send={B: "02"}).at(6).candidate(B, 5)
    trace.at(7).candidate(B, 3, error="HrmpWatermark/AdvancementRule", new_watermark=3, last_watermark=5)
    trace.candidate(B, 6).state(digests={B: None}, contents={(A, B): None}, watermarks={B: 6})
    yield trace

    trace = Trace(
        "watermark/in-the-block-of-the-message",
        "a message of this block cannot be acknowledged in it; in the next one its block is the relay parent",
        source="check_hrmp_watermark 2 and 3",
    )
    trace.open((A, B))
    trace.at(3).candidate(A, send={B: "01"}).candidate(
        B, 3, error="HrmpWatermark/AheadRelayParent", new_watermark=3, relay_chain_parent_number=2
    ).candidate(B, 2).state(contents={(A, B): [{"sent_at": 3, "data": "01"}]})
    trace.at(4).candidate(B, 3).state(contents={(A, B): None}, digests={B: None})
    yield trace

    trace = Trace(
        "watermark/is-forgotten-with-its-para",
        "offboarding removes the watermark and the digests; the para starts anew when it comes back",
        source="router_rules 1.8",
        interpretation=("I-08", "watermark and digests of an offboarded para", "removed"),
    )
    trace.open((A, B))
    trace.at(3).candidate(A, send={B: "01"}).candidate(B, 2)
    trace.at(9).candidate(B, 8).candidate(A, send={B: "02"}).session(B).state(watermarks={B: None}, digests={B: None})
    trace.at(10).session(onboarding=[(B, "parachain", 0)])
    trace.at(11).candidate(B, 3, error="HrmpWatermark/LandsOnBlockWithNoMessages", new_watermark=3)
    trace.candidate(B, 5, relay_parent=5).state(watermarks={A: 8, B: 5})
    yield trace
