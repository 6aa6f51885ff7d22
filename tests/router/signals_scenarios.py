# SPDX-License-Identifier: Apache-2.0
"""Signals of candidates behind the first empty upward message."""

from __future__ import annotations

from collections.abc import Iterator

from tests.router.trace import Trace

A, B = 2000, 2001
ONE = ["ump_signals"]
BOTH = ["approved_peer_signal"]
QUEUED = ["ump_signals", "message_queue"]
SELECT = "000102"
PEER = "0108aabb"
LONGEST = "010101" + "aa" * 64
"""A peer's id of 64 bytes, whose length takes two."""


def scenarios() -> Iterator[Trace]:
    """Yield the scenarios of the group ``signals``."""
    yield from _one_signal()
    yield from _two_signals()


def _one_signal() -> Iterator[Trace]:
    trace = Trace(
        "signals/only-messages-count",
        "separator and signal are no messages: number, sizes and room are those of what precedes them",
        source="chain_2026 3.14",
        rules={0: ONE},
        config={"preferred_dispatchable_upward_messages_step_weight": 0},
    )
    trace.at(1).candidate(A, up=("a1", "a2", "a3", "", SELECT)).state(
        ump_queues={A: ["a1", "a2", "a3"]}, ump_queue_size={A: [3, 3]}
    )
    trace.candidate(
        B,
        up=("b1", "b2", "b3", "b4", "", SELECT),
        error="UpwardMessages/MoreMessagesThanPermitted",
        sent=4,
        permitted=3,
    )
    trace.candidate(B, up=("", SELECT + "ff" * 20)).state(ump_queue_size={B: None})
    yield trace

    trace = Trace(
        "signals/nothing-behind-the-separator",
        "a separator alone is legal; only the first empty entry separates, so a second one is an entry behind it",
        source="chain_2026 3.14",
        rules={0: ONE},
        config={"preferred_dispatchable_upward_messages_step_weight": 0},
    )
    trace.at(1).candidate(A, up=("a1", "")).candidate(B, up=("",)).state(ump_queues={A: ["a1"], B: None})
    trace.at(2).candidate(A, up=("a1", "", ""), error="UmpSignals/Undecodable", idx=0)
    trace.candidate(A, up=("", "", ""), error="UmpSignals/TooMany", count=2, limit=1)
    yield trace

    trace = Trace(
        "signals/what-a-signal-is",
        "selector and offset are one byte each; bytes behind a whole signal mean nothing; a peer's approval is none yet",
        source="chain_2026 3.14",
        rules={0: ONE},
    )
    trace.at(1)
    for wrong in ("00", "0001", "01", PEER, "ff0102", ""):
        trace.candidate(A, up=("", wrong), error="UmpSignals/Undecodable", idx=0)
    trace.candidate(A, up=("", "00ffff00"))
    trace.candidate(B, up=("", SELECT, SELECT), error="UmpSignals/TooMany", count=2, limit=1)
    trace.candidate(B, up=("", "ff", "ff"), error="UmpSignals/TooMany", count=2, limit=1)
    yield trace

    trace = Trace(
        "signals/come-first",
        "signals are checked before everything else of a candidate",
        source="chain_2026 3.14",
        rules={0: ONE},
    )
    trace.at(1).downward(A, "dd")
    trace.at(2).candidate(A, 0, up=("", "ff"), send=[(9, "aa")], error="UmpSignals/Undecodable", idx=0)
    trace.candidate(A, 0, up=("", SELECT), error="ProcessedDownwardMessages/AdvancementRule")
    trace.candidate(A, up=("", SELECT), processed=1)
    yield trace

    trace = Trace(
        "signals/a-para-that-goes-may-signal",
        "a para that is scheduled for offboarding may send no upward message, but it may signal",
        source="chain_2026 3.14",
        rules={0: QUEUED},
    )
    trace.at(1).cleanup(A).candidate(A, up=("", SELECT))
    trace.at(2).candidate(A, up=("a1", "", SELECT), error="UpwardMessages/IsOffboarding")
    trace.candidate(B, up=("b1", "", SELECT)).dispatched((B, "b1"))
    yield trace

    trace = Trace(
        "signals/by-height",
        "before the feature an empty entry is a message like any other; what waits stays a message",
        source="chain_2026 3.14",
        rules={2: ONE},
        config={"preferred_dispatchable_upward_messages_step_weight": 0},
        needs=("delayed_enactment",),
    )
    trace.at(1).candidate(A, up=("a1", "", "a2")).candidate(B, up=("b1", "", SELECT), enact_at=2)
    trace.state(ump_queue_size={A: [3, 2], B: None})
    trace.at(2).state(ump_queues={A: ["a1", "", "a2"], B: ["b1"]})
    yield trace


def _two_signals() -> Iterator[Trace]:
    trace = Trace(
        "signals/one-of-each-kind",
        "a core and a peer, in any order; a peer has at most 64 bytes, and its length the shortest encoding",
        source="chain_2026 3.15",
        rules={0: BOTH},
    )
    trace.at(1).candidate(A, up=("", SELECT, PEER)).candidate(B, up=("b1", "", LONGEST, SELECT))
    trace.at(2).candidate(A, up=("", "0100")).candidate(B, up=("", PEER + "00"))
    trace.at(3)
    for wrong in ("01", "0108aa", LONGEST[:-2], "010501" + "aa" * 65, "010900aabb", "0300"):
        trace.candidate(A, up=("", wrong), error="UmpSignals/Undecodable", idx=0)
        trace.candidate(A, up=("", SELECT, wrong), error="UmpSignals/Undecodable", idx=1)
    trace.candidate(A, up=("", LONGEST))
    yield trace

    trace = Trace(
        "signals/twice-the-same-kind",
        "a kind may occur once, whatever it says",
        source="chain_2026 3.15",
        rules={0: BOTH},
    )
    trace.at(1).candidate(A, up=("", SELECT, "000000"), error="UmpSignals/Duplicate", idx=1)
    trace.candidate(A, up=("", PEER, "0100"), error="UmpSignals/Duplicate", idx=1)
    trace.candidate(A, up=("", SELECT, PEER))
    yield trace

    trace = Trace(
        "signals/undecodable-before-too-many",
        "the first two entries are decoded in turn before a third one is noticed",
        source="chain_2026 3.15",
        rules={0: BOTH},
    )
    trace.at(1).candidate(A, up=("", "ff", PEER, SELECT), error="UmpSignals/Undecodable", idx=0)
    trace.candidate(A, up=("", SELECT, "ff", PEER), error="UmpSignals/Undecodable", idx=1)
    trace.candidate(A, up=("", SELECT, SELECT, "ff"), error="UmpSignals/Duplicate", idx=1)
    trace.candidate(A, up=("", SELECT, PEER, "ff"), error="UmpSignals/TooMany", count=3, limit=2)
    trace.candidate(A, up=("", PEER, SELECT))
    yield trace
