# SPDX-License-Identifier: Apache-2.0
"""The feature message_queue: pages, the ring and its rounds, messages that are set aside, and queues from before the switch."""

from __future__ import annotations

from collections.abc import Iterator

from tests.router.message_queue_limits_scenarios import acceptance, offboarding, switches
from tests.router.trace import Trace

A, B, C, T, U = 2000, 2001, 2002, 2003, 2004
STEP_WEIGHT = "preferred_dispatchable_upward_messages_step_weight"
HEAP = "message_queue_heap_size"
NO_ROUND = {STEP_WEIGHT: 0}
ON = ["message_queue"]


def scenarios() -> Iterator[Trace]:
    """Yield the scenarios of the group ``message_queue``."""
    yield from _rounds()
    yield from _set_aside()
    yield from _service()
    yield from _pages()
    yield from acceptance()
    yield from offboarding()
    yield from switches()


def _rounds() -> Iterator[Trace]:
    trace = Trace(
        "message_queue/paras-in-order-of-arrival",
        "the ring is in the order in which paras began to wait; each is served until its next message does not fit",
        source="router_profiles 3.9",
        rules={0: ON},
        default_weight=40,
    )
    trace.at(1).candidate(C, up=("c1", "c2", "c3")).candidate(A, up=("a1",)).candidate(B, up=("b1",))
    trace.state(ready_ring=[C, A, B], needs_dispatch=[A, B, C], next_dispatch_round_start_with=C)
    trace.at(1).dispatched((C, "c1"), (C, "c2")).state(
        ready_ring=[A, B, C],
        needs_dispatch=[A, B, C],
        next_dispatch_round_start_with=A,
        ump_queues={A: ["a1"], B: ["b1"], C: ["c3"]},
        ump_queue_size={A: [1, 1], B: [1, 1], C: [1, 1]},
        ump_overweight=dict.fromkeys((A, B, C)),
    )
    trace.at(2).dispatched((A, "a1"), (B, "b1")).state(ready_ring=[C], next_dispatch_round_start_with=C)
    trace.at(3).dispatched((C, "c3")).state(
        ready_ring=[],
        needs_dispatch=[],
        next_dispatch_round_start_with=None,
        ump_queues=dict.fromkeys((A, B, C)),
        ump_queue_size=dict.fromkeys((A, B, C)),
    )
    trace.at(4).dispatched()
    yield trace

    trace = Trace(
        "message_queue/a-lighter-message-of-the-next-para",
        "a message that does not fit ends its para's turn, not the round; the budget is used to the last unit",
        source="router_profiles 3.9",
        rules={0: ON},
        weights={"a1": 60, "a2": 41, "b1": 40, "c1": 1, "c2": 0},
    )
    trace.at(1).candidate(A, up=("a1", "a2")).candidate(B, up=("b1",)).candidate(C, up=("c2", "c1", "c2"))
    trace.dispatched((A, "a1"), (B, "b1"), (C, "c2")).state(ready_ring=[C, A], ump_queues={A: ["a2"], C: ["c1", "c2"]})
    trace.at(2).dispatched((C, "c1"), (C, "c2"), (A, "a2")).state(ready_ring=[])
    yield trace

    trace = Trace(
        "message_queue/the-head-moves-on-first",
        "each round begins with the para after the one that it began with before, also if that one still waits; who joins is last",
        source="router_profiles 3.9",
        rules={0: ON},
        default_weight=100,
    )
    trace.at(1).candidate(A, up=("a1", "a2")).candidate(B, up=("b1", "b2"))
    trace.dispatched((A, "a1")).state(ready_ring=[B, A])
    trace.at(2).candidate(C, up=("c1",)).dispatched((B, "b1")).state(ready_ring=[A, C, B])
    trace.at(3).candidate(A, up=("a3",)).dispatched((A, "a2")).state(ready_ring=[C, B, A], ump_queues={A: ["a3"]})
    trace.at(4).dispatched((C, "c1")).state(ready_ring=[B, A])
    trace.at(5).candidate(C, up=("c2",)).dispatched((B, "b2")).state(ready_ring=[A, C])
    trace.at(6).dispatched((A, "a3")).at(7).dispatched((C, "c2")).state(ready_ring=[], needs_dispatch=[])
    yield trace

    trace = Trace(
        "message_queue/the-head-leaves",
        "a para that is served out leaves the ring; if the head had moved on to it, the next one is the head",
        source="router_profiles 3.9",
        rules={0: ON},
        weights={"b1": 20, "a1": 20, "c1": 70, "a2": 20},
    )
    trace.at(1).candidate(B, up=("b1",)).candidate(A, up=("a1",)).candidate(C, up=("c1",)).candidate(T, up=("aa", "ab"))
    # 20 + 20, 70 does not fit, 10 + 10
    trace.dispatched((B, "b1"), (A, "a1"), (T, "aa"), (T, "ab")).state(ready_ring=[C], next_dispatch_round_start_with=C)
    trace.at(2).candidate(A, up=("a2",)).dispatched((C, "c1"), (A, "a2")).state(ready_ring=[])
    yield trace

    trace = Trace(
        "message_queue/a-ring-of-one",
        "one para alone stays the head as long as it waits",
        source="router_profiles 3.9",
        rules={0: ON},
        default_weight=60,
    )
    trace.at(1).candidate(T, up=("01", "02")).dispatched((T, "01")).state(
        ready_ring=[T], next_dispatch_round_start_with=T
    )
    trace.at(2).candidate(A, up=("03",)).dispatched((T, "02")).state(ready_ring=[A])
    yield trace

    trace = Trace(
        "message_queue/one-round-a-block",
        "after everything else in the block, its candidates included, and before the session change",
        source="router_profiles 4",
        rules={0: ON},
        default_weight=100,
        interpretation=("PR-10", "when the queue is served", "one round in each block, after its candidates"),
    )
    trace.at(1).candidate(A, up=("a1",)).state(ump_queues={A: ["a1"]})
    trace.at(1).candidate(B, up=("b1",)).dispatched((A, "a1")).session(A, **{STEP_WEIGHT: 0}).state(
        valid_paras=[B, C, T, U], ready_ring=[B]
    )
    trace.at(2).dispatched().state(ump_queues={B: ["b1"]})
    yield trace

    trace = Trace(
        "message_queue/a-budget-of-zero",
        "nothing is served, not even what weighs nothing; nothing is set aside and the head stays",
        source="router_profiles 4",
        rules={0: ON},
        config=NO_ROUND,
        weights={"00": 0, "ee": 1000},
        interpretation=("PR-08", "a budget of zero", "nothing is served, nothing set aside"),
    )
    trace.at(1).candidate(B, up=("00", "ee")).candidate(A, up=("a1",)).dispatched().state(
        ready_ring=[B, A], ump_overweight=dict.fromkeys((A, B, C)), ump_queues={A: ["a1"], B: ["00", "ee"]}
    )
    trace.at(2).dispatched().session(**{STEP_WEIGHT: 10}).state(ready_ring=[B, A])
    trace.at(3).dispatched((B, "00"), (A, "a1")).state(
        ready_ring=[], ump_overweight={B: [{"page": 0, "index": 1, "msg": "ee"}]}
    )
    yield trace

    trace = Trace(
        "message_queue/a-handler-that-fails",
        "its message is consumed and uses its weight, in a round as in a request",
        source="router_profiles 3.9",
        rules={0: ON},
        weights={"bad0": 100, "bad1": 101},
        failing=("bad0", "bad1"),
    )
    trace.at(1).candidate(A, up=("bad1", "bad0", "a1")).dispatched((A, "bad0")).state(
        ump_queues={A: ["a1"]}, ump_overweight={A: [{"page": 0, "index": 0, "msg": "bad1"}]}
    )
    trace.at(2).service(A, 0, 0, 101).dispatched((A, "bad1"), (A, "a1")).state(ump_queue_size={A: None})
    trace.at(3).service(A, 0, 0, 101, error="NoPage")
    yield trace


def _set_aside() -> Iterator[Trace]:
    trace = Trace(
        "message_queue/heavier-than-the-whole-budget",
        "one unit above the budget is set aside and uses nothing; it counts on, but its para leaves the ring without it",
        source="router_profiles 3.9",
        rules={0: ON},
        weights={"ee": 101, "ef": 100},
    )
    trace.at(1).candidate(A, up=("ee", "ef", "a1")).candidate(B, up=("ee",))
    trace.dispatched((A, "ef")).state(
        ready_ring=[A],
        ump_queues={A: ["a1"], B: None},
        ump_queue_size={A: [2, 2], B: [1, 1]},
        ump_overweight={A: [{"page": 0, "index": 0, "msg": "ee"}], B: [{"page": 0, "index": 0, "msg": "ee"}]},
    )
    trace.at(2).dispatched((A, "a1")).state(
        ready_ring=[], needs_dispatch=[], ump_queues={A: None}, ump_queue_size={A: [1, 1]}
    )
    trace.at(3).session(**{STEP_WEIGHT: 1000}).at(4).candidate(A, up=("ee",)).dispatched((A, "ee")).state(
        ump_overweight={A: [{"page": 0, "index": 0, "msg": "ee"}], B: [{"page": 0, "index": 0, "msg": "ee"}]}
    )
    yield trace

    trace = Trace(
        "message_queue/set-aside-with-nothing-left-of-the-budget",
        "a message above the budget is passed over also where the round has used everything, one that would fit another time waits",
        source="router_profiles 3.9",
        rules={0: ON},
        weights={"ee": 101, "ef": 100},
    )
    trace.at(1).candidate(A, up=("ef",)).candidate(B, up=("ee", "b1", "ee"))
    trace.dispatched((A, "ef")).state(
        ready_ring=[B], ump_queues={B: ["b1", "ee"]}, ump_overweight={B: [{"page": 0, "index": 0, "msg": "ee"}]}
    )
    trace.at(2).dispatched((B, "b1")).state(
        ready_ring=[],
        ump_overweight={B: [{"page": 0, "index": 0, "msg": "ee"}, {"page": 0, "index": 2, "msg": "ee"}]},
        ump_queue_size={B: [2, 2]},
    )
    trace.at(3).candidate(B, up=("b2", "ee")).dispatched((B, "b2")).state(
        ump_overweight={
            B: [
                {"page": 0, "index": 0, "msg": "ee"},
                {"page": 0, "index": 2, "msg": "ee"},
                {"page": 1, "index": 1, "msg": "ee"},
            ]
        }
    )
    yield trace


def _service() -> Iterator[Trace]:
    trace = Trace(
        "message_queue/order-of-servicing",
        "page, message, passed, processed, weight: each broken together with what comes later",
        source="router_profiles 3.9",
        rules={0: ON},
        weights={"ee": 101, "ef": 100, "ff": 500},
    )
    trace.at(1).candidate(A, up=("ee", "a1", "ff")).candidate(C, up=("ee", "ef", "c1"))
    # 10, and 100 does not fit any more
    trace.dispatched((A, "a1")).state(
        ready_ring=[C],
        ump_queues={C: ["ef", "c1"]},
        ump_overweight={
            A: [{"page": 0, "index": 0, "msg": "ee"}, {"page": 0, "index": 2, "msg": "ff"}],
            C: [{"page": 0, "index": 0, "msg": "ee"}],
        },
    )
    trace.at(2)
    trace.service(A, 1, 9, 0, error="NoPage").service(2999, 0, 0, 0, error="NoPage").service(B, 0, 0, 0, error="NoPage")
    trace.service(A, 0, 3, 0, error="NoMessage").service(C, 0, 3, 0, error="NoMessage")  # C still waits in this page
    trace.service(C, 0, 1, 0, error="Queued").service(C, 0, 2, 0, error="Queued")
    trace.service(A, 0, 1, 0, error="AlreadyProcessed").service(A, 0, 0, 100, error="InsufficientWeight")
    trace.service(C, 0, 0, 100, error="InsufficientWeight")
    trace.service(A, 0, 2, 500).service(C, 0, 0, 101).service(C, 0, 0, 101, error="AlreadyProcessed")
    trace.service(A, 0, 2, 500, error="AlreadyProcessed").service(A, 0, 0, 2**64 - 1)
    trace.service(A, 0, 0, 101, error="NoPage").service(A, 0, 2, 500, error="NoPage")
    trace.dispatched((A, "ff"), (C, "ee"), (A, "ee"), (C, "ef")).state(
        ump_overweight=dict.fromkeys((A, B, C)), ump_queue_size={A: None, C: [1, 1]}, ready_ring=[C]
    )
    trace.at(3).service(C, 0, 1, 0, error="AlreadyProcessed").dispatched((C, "c1"))
    trace.at(4).service(C, 0, 1, 0, error="NoPage")
    yield trace

    trace = Trace(
        "message_queue/serviced-messages-and-the-rest-of-their-page",
        "a page goes with its last unprocessed message, whether the round or a request processes it",
        source="router_profiles 3.9",
        rules={0: ON},
        weights={"ee": 101, "ef": 100},
    )
    trace.at(1).candidate(A, up=("ee", "ef", "a1")).dispatched((A, "ef"))
    trace.at(2).service(A, 0, 0, 101).dispatched((A, "ee"), (A, "a1")).state(
        ump_queue_size={A: None}, ump_overweight=dict.fromkeys((A, B, C))
    )
    trace.at(3).service(A, 0, 0, 101, error="NoPage").candidate(A, up=("ee",)).state(
        ump_overweight={A: None}, ump_queues={A: ["ee"]}
    )
    trace.at(3).dispatched().state(ump_overweight={A: [{"page": 1, "index": 0, "msg": "ee"}]})
    trace.at(4).candidate(A, up=("a2",)).dispatched((A, "a2")).state(ump_queue_size={A: [1, 1]})
    trace.at(5).service(A, 2, 0, 1, error="NoPage").service(A, 1, 0, 101).dispatched((A, "ee"))
    trace.at(6).service(A, 1, 0, 101, error="NoPage")
    yield trace

    trace = Trace(
        "message_queue/servicing-without-rounds",
        "a budget of zero serves nothing, but what was set aside may still be asked for",
        source="router_profiles 3.9",
        rules={0: ON},
        weights={"ee": 101, "a1": 100},
    )
    trace.at(1).candidate(A, up=("ee", "a1", "a2")).dispatched((A, "a1")).session(**{STEP_WEIGHT: 0})
    trace.at(2).service(A, 0, 2, 10, error="Queued").service(A, 0, 0, 101).dispatched((A, "ee")).state(
        ump_queues={A: ["a2"]}, ump_queue_size={A: [1, 1]}, ready_ring=[A]
    )
    yield trace


def _pages() -> Iterator[Trace]:
    trace = Trace(
        "message_queue/what-fits-into-a-page",
        "a message takes its length and five bytes; a page is full to the last byte, then the next one begins",
        source="router_profiles 3.9",
        rules={0: ON},
        config={**NO_ROUND, HEAP: 20},
    )
    trace.at(1).candidate(A, up=("00" * 8, "0102", "")).candidate(B, up=("00" * 8, "010203"))
    trace.at(2).service(A, 0, 1, 0, error="Queued").service(A, 0, 2, 0, error="NoMessage")
    trace.service(A, 1, 0, 0, error="Queued").service(A, 1, 1, 0, error="NoMessage").service(A, 2, 0, 0, error="NoPage")
    trace.service(B, 0, 1, 0, error="NoMessage").service(B, 1, 0, 0, error="Queued")
    trace.state(ready_ring=[A, B], ump_queue_size={A: [3, 10], B: [2, 11]}, ump_queues={A: ["00" * 8, "0102", ""]})
    trace.at(2).session(**{STEP_WEIGHT: 100})
    trace.at(3).dispatched((A, "00" * 8), (A, "0102"), (A, ""), (B, "00" * 8), (B, "010203")).state(
        ump_queue_size=dict.fromkeys((A, B))
    )
    yield trace

    trace = Trace(
        "message_queue/a-processed-message-keeps-its-room",
        "what a page's processed messages took is not free again, so that the third begins the next page",
        source="router_profiles 3.9",
        rules={0: ON},
        config={HEAP: 20},
        weights={"00" * 8: 60, "0102": 60, "": 101},
    )
    trace.at(1).candidate(A, up=("00" * 8, "0102")).dispatched((A, "00" * 8))
    trace.at(2).candidate(A, up=("",)).dispatched((A, "0102")).state(
        ump_overweight={A: [{"page": 1, "index": 0, "msg": ""}]}, ump_queue_size={A: [1, 0]}, ready_ring=[]
    )
    trace.at(3).candidate(A, up=("", "0102")).dispatched((A, "0102")).state(
        ump_overweight={A: [{"page": 1, "index": 0, "msg": ""}, {"page": 2, "index": 0, "msg": ""}]}
    )
    yield trace

    trace = Trace(
        "message_queue/longer-than-a-page",
        "a message that no page holds is dropped silently; alone it does not bring its para into the ring",
        source="router_profiles 3.9",
        rules={0: ON},
        config={**NO_ROUND, HEAP: 12},
    )
    trace.at(1).candidate(A, up=("00" * 8,)).candidate(B, up=("00" * 8, "00" * 7, "01")).candidate(C, up=("00" * 7,))
    trace.state(
        ready_ring=[B, C],
        ump_queues={A: None, B: ["00" * 7, "01"], C: ["00" * 7]},
        ump_queue_size={A: None, B: [2, 8], C: [1, 7]},
        watermarks={A: 0},
    )
    trace.at(2).service(B, 0, 1, 0, error="NoMessage").service(B, 1, 0, 0, error="Queued")
    yield trace

    trace = Trace(
        "message_queue/a-smaller-page-from-now-on",
        "the size of now decides whether a message fits; a page that is fuller stays as it is",
        source="router_profiles 3.9",
        rules={0: ON},
        config={**NO_ROUND, HEAP: 30},
    )
    trace.at(1).candidate(A, up=("00" * 8,)).session(**{HEAP: 19})
    trace.at(2).candidate(A, up=("0102",)).session(**{HEAP: 25})
    trace.at(3).candidate(A, up=("01", "")).state(ump_queue_size={A: [4, 11]})
    trace.at(4).service(A, 0, 1, 0, error="NoMessage").service(A, 1, 2, 0, error="Queued").service(
        A, 2, 0, 0, error="NoPage"
    )
    yield trace

    trace = Trace(
        "message_queue/the-default-page",
        "where the configuration does not say, a page has 65536 bytes; a change of the session may set it",
        source="router_profiles 2",
        rules={0: ON},
        config={**NO_ROUND, "max_upward_message_size": 70_000, "max_upward_queue_size": 200_000},
    )
    trace.at(1).candidate(A, up=("00" * 2000, "01")).session(**{HEAP: 2005})
    trace.at(2).candidate(B, up=("00" * 2000, "01")).candidate(C, up=("00" * 2001, "01"))
    trace.at(3).service(A, 0, 1, 0, error="Queued").service(B, 0, 1, 0, error="NoMessage").service(
        B, 1, 0, 0, error="Queued"
    )
    trace.service(C, 0, 0, 0, error="Queued").service(C, 0, 1, 0, error="NoMessage")
    trace.state(ump_queue_size={A: [2, 2001], B: [2, 2001], C: [1, 1]})
    yield trace
