# SPDX-License-Identifier: Apache-2.0
"""The feature message_queue: acceptance, offboarding, and queues from before the switch."""

from __future__ import annotations

from collections.abc import Iterator

from tests.router.trace import Trace

A, B, C, T, U = 2000, 2001, 2002, 2003, 2004
STEP_WEIGHT = "preferred_dispatchable_upward_messages_step_weight"
HEAP = "message_queue_heap_size"
NO_ROUND = {STEP_WEIGHT: 0}
ON = ["message_queue"]


def acceptance() -> Iterator[Trace]:
    """Yield the scenarios of what a candidate may add."""
    trace = Trace(
        "message_queue/order-of-acceptance",
        "offboarding, number, places of the queue, then size and bytes message by message",
        source="router_profiles 3.9",
        rules={0: ON},
        config=NO_ROUND,
        interpretation=("I-18", "count or bytes first", "places of the queue first, then each message"),
    )
    long = "00" * 9
    trace.at(1).cleanup(C).candidate(C, up=(long,) * 5, error="UpwardMessages/IsOffboarding").candidate(C)
    trace.candidate(A, up=(long,) * 5, error="UpwardMessages/MoreMessagesThanPermitted", sent=5, permitted=3)
    trace.candidate(A, up=("01", "02"))
    trace.at(2).candidate(A, up=("", long, ""), error="UpwardMessages/CapacityExceeded", count=5, limit=4)
    trace.candidate(A, up=("", long), error="UpwardMessages/MessageSize", idx=1, msg_size=9, max_size=8)
    trace.candidate(A, up=("00" * 8, "00" * 8)).state(ump_queue_size={A: [4, 18]})
    trace.at(2).candidate(B, up=("00" * 8, "00" * 6))
    trace.at(3).candidate(B, up=("00" * 7, long), error="UpwardMessages/TotalSizeExceeded", total_size=21, limit=20)
    trace.candidate(B, up=("00" * 6, long), error="UpwardMessages/MessageSize", idx=1, msg_size=9, max_size=8)
    trace.candidate(B, up=(long, "00" * 7), error="UpwardMessages/MessageSize", idx=0, msg_size=9, max_size=8)
    trace.candidate(B, up=("00" * 6, "01"), error="UpwardMessages/TotalSizeExceeded", total_size=21, limit=20)
    trace.candidate(B, up=("00" * 6, "")).state(ump_queue_size={B: [4, 20]})
    trace.at(4).candidate(B, up=("",), error="UpwardMessages/CapacityExceeded", count=5, limit=4).candidate(B)
    yield trace

    trace = Trace(
        "message_queue/what-was-set-aside-takes-room",
        "messages set aside count for both limits until they are processed",
        source="router_profiles 3.9",
        rules={0: ON},
        config={"max_upward_queue_count": 3},
        weights={"00" * 8: 101, "0102": 101, "ff": 100},
    )
    trace.at(1).candidate(A, up=("00" * 8, "0102")).dispatched().state(
        ump_queue_size={A: [2, 10]}, ump_queues={A: None}
    )
    trace.at(2).candidate(A, up=("ff", ""), error="UpwardMessages/CapacityExceeded", count=4, limit=3)
    trace.candidate(A, up=("ff",)).dispatched((A, "ff"))
    trace.at(3).service(A, 0, 1, 101).candidate(
        A, up=("00" * 8, "01" * 5), error="UpwardMessages/TotalSizeExceeded", total_size=21, limit=20
    )
    trace.candidate(A, up=("03" * 8, "01" * 4)).dispatched((A, "0102"), (A, "03" * 8), (A, "01" * 4))
    trace.state(ump_queue_size={A: [1, 8]})
    yield trace

    trace = Trace(
        "message_queue/a-queue-above-lowered-limits",
        "too many messages refuse even a candidate without any; too many bytes only refuse a candidate that has one",
        source="router_profiles 3.9",
        rules={0: ON},
        config=NO_ROUND,
    )
    trace.at(1).candidate(A, up=("01", "02", "03")).candidate(B, up=("01", "0203"))
    trace.session(max_upward_queue_count=2, max_upward_queue_size=2)
    trace.at(2).candidate(A, error="UpwardMessages/CapacityExceeded", count=3, limit=2).candidate(B)
    trace.session(max_upward_queue_count=3)
    trace.at(3).candidate(A).candidate(B, up=("",), error="UpwardMessages/TotalSizeExceeded", total_size=3, limit=2)
    yield trace


def offboarding() -> Iterator[Trace]:
    """Yield the scenarios of paras that leave."""
    trace = Trace(
        "message_queue/no-cleanup-with-unprocessed-messages",
        "a para whose messages wait or were set aside cannot be scheduled; once they are processed it can, twice as well",
        source="router_profiles 3.9",
        rules={0: ON},
        weights={"ee": 101, "ef": 100},
    )
    trace.at(1).candidate(A, up=("ef", "ee", "a1")).dispatched((A, "ef"))
    trace.at(2).cleanup(A, error="CannotOffboard").cleanup(B).dispatched((A, "a1"))
    trace.at(3).cleanup(A, error="CannotOffboard").service(A, 0, 1, 101).cleanup(A).cleanup(A).state(
        outgoing_paras=[A, B]
    )
    trace.candidate(A, up=("a2",), error="UpwardMessages/IsOffboarding").candidate(A)
    trace.candidate(B, up=("",), error="UpwardMessages/IsOffboarding")
    trace.at(4).session().state(valid_paras=[C, T, U])
    yield trace

    trace = Trace(
        "message_queue/messages-go-with-their-para",
        "waiting ones, those set aside, the pages and the place in the ring; who returns begins with page 0",
        source="router_profiles 4",
        rules={0: ON},
        weights={"ee": 101, "ef": 100},
        interpretation=("PR-09", "what an outgoing para leaves in the queue", "nothing"),
    )
    trace.at(1).candidate(A, up=("ee", "a1")).candidate(B, up=("ee", "ef", "b1")).candidate(C, up=("ef",))
    trace.dispatched((A, "a1")).state(ready_ring=[B, C], next_dispatch_round_start_with=B)
    trace.at(2).candidate(T, up=("ef",)).dispatched((B, "ef")).session(A, B).state(
        ready_ring=[C, T],
        needs_dispatch=[C, T],
        next_dispatch_round_start_with=C,
        ump_queues={A: None, B: None},
        ump_queue_size={A: None, B: None},
        ump_overweight=dict.fromkeys((A, B, C)),
    )
    trace.at(3).service(A, 0, 0, 101, error="NoPage").service(B, 0, 0, 101, error="NoPage").dispatched((C, "ef"))
    trace.session(onboarding=[(A, "parachain", 0), (B, "parachain", 0)])
    trace.at(4).candidate(A, up=("ee",)).dispatched((T, "ef")).state(
        ump_overweight={A: [{"page": 0, "index": 0, "msg": "ee"}]}, ump_queue_size={A: [1, 1]}
    )
    trace.at(5).service(A, 0, 0, 101).dispatched((A, "ee"))
    yield trace

    trace = Trace(
        "message_queue/enacted-after-the-cleanup-was-scheduled",
        "accepted before, enacted after: the messages wait, a second cleanup is refused for them, and the session change drops them",
        source="router_profiles 3.9",
        needs=("delayed_enactment",),
        rules={0: ON},
        config=NO_ROUND,
    )
    trace.at(1).candidate(A, up=("a1",), enact_at=3).at(2).cleanup(A)
    trace.at(3).cleanup(A, error="CannotOffboard").state(ready_ring=[A], outgoing_paras=[A], ump_queue_size={A: [1, 1]})
    trace.at(4).cleanup(B).session().state(
        ready_ring=[], ump_queues={A: None}, ump_queue_size={A: None}, valid_paras=[C, T, U]
    )
    yield trace

    trace = Trace(
        "message_queue/the-head-is-offboarded",
        "the next para in the ring is the head",
        source="router_profiles 3.9",
        rules={0: ON},
        config=NO_ROUND,
    )
    trace.at(1).candidate(C, up=("c1",)).candidate(A, up=("a1",)).candidate(B, up=("b1",)).session(
        C, **{STEP_WEIGHT: 10}
    )
    trace.state(ready_ring=[A, B], next_dispatch_round_start_with=A)
    trace.at(2).dispatched((A, "a1")).state(ready_ring=[B])
    yield trace


def switches() -> Iterator[Trace]:
    """Yield the scenarios of the switch of waiting messages."""
    one_a_round = {STEP_WEIGHT: 10}
    moved = ("PR-07", "queues from before the switch", "they move over, in the order of the next old round")
    trace = Trace(
        "message_queue/takes-over-half-served-queues",
        "the ring begins where the next old round would have, and goes on in ascending order; a served message does not come back",
        source="router_profiles 3.9",
        rules={3: ON},
        config=one_a_round,
        interpretation=moved,
    )
    trace.at(1).candidate(C, up=("c1",)).candidate(A, up=("a1", "a2")).candidate(B, up=("b1", "b2"))
    trace.dispatched((A, "a1")).state(next_dispatch_round_start_with=B, ready_ring=None, ump_overweight=None)
    trace.at(2).dispatched((B, "b1")).state(needs_dispatch=[A, B, C], next_dispatch_round_start_with=C, ready_ring=None)
    trace.at(3).state(
        ready_ring=[C, A, B],
        needs_dispatch=[A, B, C],
        next_dispatch_round_start_with=C,
        ump_queues={A: ["a2"], B: ["b2"], C: ["c1"]},
        ump_queue_size={A: [1, 1], B: [1, 1], C: [1, 1]},
        ump_overweight=dict.fromkeys((A, B, C)),
    )
    trace.at(3).service(A, 0, 0, 10, error="Queued").service(A, 0, 1, 10, error="NoMessage").dispatched((C, "c1"))
    trace.state(ready_ring=[A, B], next_dispatch_round_start_with=A)
    trace.at(4).dispatched((A, "a2")).at(5).dispatched((B, "b2")).state(
        ready_ring=[], next_dispatch_round_start_with=None
    )
    yield trace

    trace = Trace(
        "message_queue/takes-over-without-a-pointer",
        "where the old pointer was reset, the ring begins with the lowest para",
        source="router_profiles 3.9",
        rules={2: ON},
        config=one_a_round,
        interpretation=moved,
    )
    trace.at(1).candidate(C, up=("c1",)).candidate(B, up=("b1",)).candidate(A, up=("a1", "a2")).dispatched((A, "a1"))
    trace.session(B).state(next_dispatch_round_start_with=None, needs_dispatch=[A, C])
    trace.at(2).state(ready_ring=[A, C], next_dispatch_round_start_with=A)
    trace.at(2).dispatched((A, "a2")).state(ready_ring=[C])
    yield trace

    trace = Trace(
        "message_queue/takes-over-into-pages",
        "old queues fill pages from 0 on; a message that no page holds is dropped, and a para with nothing else has no place",
        source="router_profiles 3.9",
        rules={3: ON},
        config={**NO_ROUND, HEAP: 12},
        interpretation=moved,
    )
    trace.at(1).candidate(A, up=("00" * 7, "00" * 8, "01")).candidate(B, up=("00" * 8,)).candidate(C, up=("", ""))
    trace.at(2).state(needs_dispatch=[A, B, C], ump_queue_size={A: [3, 16], B: [1, 8], C: [2, 0]})
    trace.at(3).service(A, 0, 1, 0, error="NoMessage").service(A, 1, 0, 0, error="Queued").service(
        A, 2, 0, 0, error="NoPage"
    )
    trace.service(B, 0, 0, 0, error="NoPage").service(C, 0, 1, 0, error="Queued")
    trace.state(
        ready_ring=[A, C],
        needs_dispatch=[A, C],
        next_dispatch_round_start_with=A,
        ump_queues={A: ["00" * 7, "01"], B: None, C: ["", ""]},
        ump_queue_size={A: [2, 8], B: None, C: [2, 0]},
    )
    yield trace

    trace = Trace(
        "message_queue/takes-over-messages-above-the-budget",
        "what an old round would have served in spite of its weight is set aside by the first new one",
        source="router_profiles 3.9",
        rules={2: ON},
        config=one_a_round,
        weights={"ee": 11},
    )
    trace.at(1).candidate(A, up=("ee", "ee", "a1")).dispatched((A, "ee")).state(next_dispatch_round_start_with=A)
    trace.at(2).dispatched((A, "a1")).state(
        ump_overweight={A: [{"page": 0, "index": 0, "msg": "ee"}]}, ready_ring=[], ump_queue_size={A: [1, 1]}
    )
    trace.at(3).service(A, 0, 0, 11).dispatched((A, "ee"))
    yield trace

    trace = Trace(
        "message_queue/enacted-after-the-switch",
        "accepted under the old rules, enacted under those of its block: it joins the ring behind what moved over",
        source="router_profiles 1",
        needs=("delayed_enactment",),
        rules={4: ON},
        config={**NO_ROUND, HEAP: 12},
    )
    trace.at(1).candidate(B, up=("b1",))
    trace.at(3).candidate(A, up=("a1", "00" * 8), enact_at=4).candidate(C, up=("c1",), enact_at=5)
    trace.state(ready_ring=None, needs_dispatch=[B])
    trace.at(4).state(ready_ring=[B, A], ump_queues={A: ["a1"], B: ["b1"]}, ump_queue_size={A: [1, 1], B: [1, 1]})
    trace.at(5).state(ready_ring=[B, A, C], next_dispatch_round_start_with=B)
    yield trace

    trace = Trace(
        "message_queue/checks-before-and-after-the-switch",
        "order of the checks, offboarding and cleanup follow the rules of the block",
        source="router_profiles 1",
        rules={3: ON},
        config=NO_ROUND,
    )
    long = "00" * 9
    trace.at(1).candidate(A, up=("01", "02")).cleanup(A).cleanup(B)
    trace.at(2).candidate(A, up=("", "", long), error="UpwardMessages/MessageSize", idx=2, msg_size=9, max_size=8)
    trace.candidate(B, up=("03",))
    trace.at(3).candidate(A, up=("", "", long), error="UpwardMessages/IsOffboarding").cleanup(A, error="CannotOffboard")
    trace.candidate(A).candidate(C, up=("04",)).state(outgoing_paras=[A, B], ready_ring=[A, B, C])
    trace.at(4).cleanup(T).session().state(
        valid_paras=[C, U], ready_ring=[C], ump_queue_size={A: None, B: None, C: [1, 1]}
    )
    yield trace
