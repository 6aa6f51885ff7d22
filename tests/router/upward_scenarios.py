# SPDX-License-Identifier: Apache-2.0
"""Upward messages: limits of a candidate and of the queue, and the rounds that dispatch them."""

from __future__ import annotations

from collections.abc import Iterator

from tests.router.trace import Trace

A, B, C = 2000, 2001, 2002
STEP_WEIGHT = "preferred_dispatchable_upward_messages_step_weight"
NO_DISPATCH = {STEP_WEIGHT: 0}


def scenarios() -> Iterator[Trace]:
    """Yield the scenarios of the group ``upward``."""
    yield from _limits()
    yield from _rounds()
    yield from _pointer()


def _limits() -> Iterator[Trace]:
    trace = Trace(
        "upward/messages-per-candidate",
        "as many messages as configured, not one more",
        source="check_upward_messages 1",
    )
    trace.at(1).candidate(
        A, up=("01", "02", "03", "04"), error="UpwardMessages/MoreMessagesThanPermitted", sent=4, permitted=3
    )
    trace.candidate(A, up=("01", "02", "03")).dispatched((A, "01"), (A, "02"), (A, "03"))
    yield trace

    trace = Trace(
        "upward/message-size",
        "a message as long as configured, or empty, is queued; the first that is longer is told",
        source="check_upward_messages 2",
        config=NO_DISPATCH,
    )
    trace.at(1).candidate(A, up=("01", "00" * 9), error="UpwardMessages/MessageSize", idx=1, msg_size=9, max_size=8)
    trace.candidate(A, up=("", "00" * 8)).state(ump_queues={A: ["", "00" * 8]}, ump_queue_size={A: [2, 8]})
    yield trace

    trace = Trace(
        "upward/count-of-the-queue",
        "pending and new messages together, empty ones too",
        source="check_upward_messages 3",
        config=NO_DISPATCH,
    )
    trace.at(1).candidate(A, up=("01", "")).at(2).candidate(
        A, up=("", "", ""), error="UpwardMessages/CapacityExceeded", count=5, limit=4
    )
    trace.candidate(A, up=("", "")).state(ump_queue_size={A: [4, 1]})
    trace.at(3).candidate(A, up=("",), error="UpwardMessages/CapacityExceeded", count=5, limit=4)
    trace.candidate(A).candidate(B, up=("",)).state(ump_queue_size={A: [4, 1], B: [1, 0]}, needs_dispatch=[A, B])
    yield trace

    trace = Trace(
        "upward/bytes-of-the-queue",
        "pending and new bytes together",
        source="check_upward_messages 3",
        config=NO_DISPATCH,
    )
    trace.at(1).candidate(A, up=("00" * 8, "00" * 5)).at(2).candidate(
        A, up=("00" * 8,), error="UpwardMessages/TotalSizeExceeded", total_size=21, limit=20
    )
    trace.candidate(A, up=("00" * 7,)).at(3).candidate(
        A, up=("00",), error="UpwardMessages/TotalSizeExceeded", total_size=21, limit=20
    )
    trace.candidate(A, up=("",)).state(ump_queue_size={A: [4, 20]})
    yield trace

    trace = Trace(
        "upward/no-exception-for-a-single-message",
        "a message within the size limit that is larger than a whole queue is refused, though the queue is empty",
        source="router_rules 1.3",
        config={"max_upward_queue_size": 4},
        interpretation=("I-19", "comment: a queue may contain only a single message", "refused"),
    )
    trace.at(1).candidate(A, up=("00" * 5,), error="UpwardMessages/TotalSizeExceeded", total_size=5, limit=4)
    trace.candidate(A, up=("00" * 4,)).dispatched((A, "00" * 4))
    yield trace

    trace = Trace(
        "upward/a-smaller-configuration-and-a-full-queue",
        "a queue that is over a lowered limit refuses even a candidate that adds nothing, until it is dispatched",
        source="router_rules 1.3: pending + new > limit",
        config=NO_DISPATCH,
    )
    trace.at(1).candidate(A, up=("01", "02", "03")).candidate(B, up=("01", "0203"))
    trace.at(2).session(max_upward_queue_count=2, max_upward_queue_size=2).state(ump_queue_size={A: [3, 3], B: [2, 3]})
    trace.at(3).candidate(A, error="UpwardMessages/CapacityExceeded", count=3, limit=2)
    trace.candidate(B, error="UpwardMessages/TotalSizeExceeded", total_size=3, limit=2).candidate(C)
    trace.at(4).session(**{STEP_WEIGHT: 100})
    trace.at(5).dispatched((A, "01"), (B, "01"), (A, "02"), (B, "0203"), (A, "03"))
    trace.at(6).candidate(A).candidate(B, up=("01", "02"))
    yield trace


def _rounds() -> Iterator[Trace]:
    trace = Trace(
        "upward/round-robin-in-ascending-order",
        "one message a para and turn, ascending ids whatever the order of candidates, first in first out inside a para",
        source="process_pending_upward_messages",
    )
    trace.at(1).candidate(C, up=("c1",)).candidate(A, up=("a1", "a2", "a3")).candidate(B, up=("b1", "b2"))
    trace.dispatched((A, "a1"), (B, "b1"), (C, "c1"), (A, "a2"), (B, "b2"), (A, "a3")).state(
        ump_queues={A: None, B: None, C: None},
        ump_queue_size={A: None, B: None, C: None},
        needs_dispatch=[],
        next_dispatch_round_start_with=None,
    )
    trace.at(2).dispatched()
    yield trace

    trace = Trace(
        "upward/one-round-a-block",
        "steps of one block share the round after the last of them",
        source="router_rules 1.1",
    )
    trace.at(1).candidate(B, up=("b1",)).state(needs_dispatch=[B], ump_queue_size={B: [1, 1]})
    trace.at(1).candidate(A, up=("a1",)).dispatched((A, "a1"), (B, "b1"))
    yield trace

    trace = Trace(
        "upward/budget-of-zero",
        "nothing is dispatched, and the pointer is on the first para that waits",
        source="router_rules 1.5",
        config=NO_DISPATCH,
        interpretation=("I-04", "a budget of zero", "nothing is dispatched"),
        default_weight=0,
    )
    trace.at(1).candidate(B, up=("b1",)).dispatched().state(needs_dispatch=[B], next_dispatch_round_start_with=B)
    trace.at(2).candidate(A, up=("a1",)).dispatched().state(needs_dispatch=[A, B], next_dispatch_round_start_with=B)
    trace.at(3).session(**{STEP_WEIGHT: 1}).dispatched()
    trace.at(4).dispatched((B, "b1"), (A, "a1")).state(needs_dispatch=[], next_dispatch_round_start_with=None)
    yield trace

    trace = Trace(
        "upward/a-heavy-message-ends-the-round",
        "the budget is looked at before a message is taken: a message heavier than all of it is processed",
        source="process_pending_upward_messages 2.4",
        weights={"aa": 1000, "bb": 99, "cc": 1},
    )
    trace.at(1).candidate(A, up=("aa", "a2")).candidate(B, up=("bb", "cc", "b3"))
    trace.dispatched((A, "aa")).state(needs_dispatch=[A, B], next_dispatch_round_start_with=B)
    trace.at(2).dispatched((B, "bb"), (A, "a2")).state(needs_dispatch=[B], next_dispatch_round_start_with=B)
    trace.at(3).dispatched((B, "cc"), (B, "b3")).state(needs_dispatch=[], next_dispatch_round_start_with=None)
    yield trace

    trace = Trace(
        "upward/budget-used-to-the-last-unit",
        "a round ends when the budget is used up exactly, not one message later; one unit less and it goes on",
        source="process_pending_upward_messages 2.4",
        weights={"a1": 60, "b1": 40, "a2": 59, "b2": 40},
    )
    trace.at(1).candidate(A, up=("a1", "a2")).candidate(B, up=("b1", "b2", "b3"))
    trace.dispatched((A, "a1"), (B, "b1")).state(next_dispatch_round_start_with=A)
    trace.at(2).dispatched((A, "a2"), (B, "b2"), (B, "b3")).state(next_dispatch_round_start_with=None)
    yield trace

    trace = Trace(
        "upward/weightless-messages-never-end-a-round",
        "messages of weight zero are dispatched as long as there are any",
        source="router_rules 1.5",
        config={STEP_WEIGHT: 1},
        default_weight=0,
    )
    trace.at(1).candidate(A, up=("a1", "a2", "a3")).candidate(B, up=("b1",)).dispatched(
        (A, "a1"), (B, "b1"), (A, "a2"), (A, "a3")
    )
    yield trace

    trace = Trace(
        "upward/a-handler-that-fails",
        "the message is consumed and costs its weight, the round goes on",
        source="process_pending_upward_messages: this function does not fail",
        weights={"bad0": 100},
        failing=("bad0", "bad1"),
    )
    trace.at(1).candidate(A, up=("bad1", "a2")).candidate(B, up=("bad0", "b2")).dispatched((A, "bad1"), (B, "bad0"))
    trace.state(ump_queues={A: ["a2"], B: ["b2"]}, next_dispatch_round_start_with=A)
    trace.at(2).dispatched((A, "a2"), (B, "b2"))
    yield trace

    trace = Trace(
        "upward/dispatch-comes-before-the-session-change",
        "the round of the block uses the configuration before the change and still serves a para that leaves with it",
        source="router_rules 1.1",
    )
    trace.at(1).candidate(A, up=("a1",)).candidate(B, up=("b1",)).session(A, **{STEP_WEIGHT: 0})
    trace.dispatched((A, "a1"), (B, "b1")).state(valid_paras=[B, C, 2003, 2004])
    trace.at(2).candidate(B, up=("b2",)).dispatched().state(needs_dispatch=[B])
    yield trace


def _pointer() -> Iterator[Trace]:
    one_a_round = {STEP_WEIGHT: 1}
    trace = Trace(
        "upward/next-round-starts-after-the-last-served",
        "the pointer is on the para after the last one served, and wraps around",
        source="router_rules 1.5",
        config=one_a_round,
        interpretation=("I-03", "where the next round starts", "after the last para served"),
    )
    trace.at(1).candidate(A, up=("a1", "a2")).candidate(B, up=("b1", "b2")).candidate(C, up=("c1",))
    trace.dispatched((A, "a1")).state(needs_dispatch=[A, B, C], next_dispatch_round_start_with=B)
    trace.at(2).dispatched((B, "b1")).state(needs_dispatch=[A, B, C], next_dispatch_round_start_with=C)
    trace.at(3).dispatched((C, "c1")).state(needs_dispatch=[A, B], next_dispatch_round_start_with=A)
    trace.at(4).dispatched((A, "a2")).state(needs_dispatch=[B], next_dispatch_round_start_with=B)
    trace.at(5).dispatched((B, "b2")).state(needs_dispatch=[], next_dispatch_round_start_with=None)
    yield trace

    trace = Trace(
        "upward/pointer-after-the-first-is-served-out",
        "a para that is served out gives its turn to the one that takes its place",
        source="router_rules 1.5",
        config=one_a_round,
    )
    trace.at(1).candidate(A, up=("a1",)).candidate(B, up=("b1",)).candidate(C, up=("c1", "c2"))
    trace.dispatched((A, "a1")).state(needs_dispatch=[B, C], next_dispatch_round_start_with=B)
    trace.at(2).candidate(A, up=("a2",)).dispatched((B, "b1")).state(
        needs_dispatch=[A, C], next_dispatch_round_start_with=C
    )
    trace.at(3).dispatched((C, "c1")).state(next_dispatch_round_start_with=A)
    trace.at(4).dispatched((A, "a2")).at(5).dispatched((C, "c2"))
    yield trace

    trace = Trace(
        "upward/pointer-on-a-para-that-leaves",
        "the pointer is reset if its para is offboarded, and the next round starts from the beginning",
        source="Session Change 1",
        config=one_a_round,
        interpretation=("I-09", "which pointer is reset", "the one that names the outgoing para"),
    )
    trace.at(1).candidate(A, up=("a1", "a2")).candidate(B, up=("b1",)).candidate(C, up=("c1",))
    trace.dispatched((A, "a1")).session(B).state(
        needs_dispatch=[A, C], next_dispatch_round_start_with=None, ump_queues={B: None}, ump_queue_size={B: None}
    )
    trace.at(2).dispatched((A, "a2")).state(next_dispatch_round_start_with=C)
    trace.at(3).dispatched((C, "c1"))
    yield trace

    trace = Trace(
        "upward/pointer-when-another-para-leaves",
        "offboarding of another para leaves the pointer where it is",
        source="Session Change 1",
        config=one_a_round,
        interpretation=("I-09", "which pointer is reset", "the one that names the outgoing para"),
    )
    trace.at(1).candidate(A, up=("a1", "a2")).candidate(B, up=("b1",)).candidate(C, up=("c1",))
    trace.dispatched((A, "a1")).session(A, C).state(
        needs_dispatch=[B], next_dispatch_round_start_with=B, ump_queues={A: None, C: None}
    )
    trace.at(2).dispatched((B, "b1")).state(next_dispatch_round_start_with=None)
    yield trace

    trace = Trace(
        "upward/an-empty-list-does-not-ask-for-dispatch",
        "a candidate without upward messages does not enter the round",
        source="router_rules 1.4 enact_upward_messages",
        config=NO_DISPATCH,
    )
    trace.at(1).candidate(A).state(needs_dispatch=[], ump_queues={A: None}, ump_queue_size={A: None})
    trace.candidate(B, up=("b1",)).state(needs_dispatch=[B])
    yield trace
