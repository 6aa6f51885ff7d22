# SPDX-License-Identifier: Apache-2.0
"""Later rules for downward messages: the length of a queue, who must process when, and recipients without a head."""

from __future__ import annotations

from collections.abc import Iterator

from validator_simulators.router.model import ZERO_HASH, next_head

from tests.router.trace import Trace

A, B = 2000, 2001
STRANGER = 2999
SIZE = "max_downward_message_size"
FULL = "ExceedsMaxMessageSize"
MUST = "ProcessedDownwardMessages/AdvancementRule"
TOO_MANY = "ProcessedDownwardMessages/Underflow"


def scenarios() -> Iterator[Trace]:
    """Yield the scenarios of the group ``later_downward``."""
    yield from _length()
    yield from _relay_parent()
    yield from _head()


def _length() -> Iterator[Trace]:
    trace = Trace(
        "later_downward/length-of-a-queue",
        "33554432 by the size, rounded down, may wait before one is added; each para has its own queue",
        source="router_profiles 3.7",
        rules={0: ["dmq_length_limit"]},
        config={SIZE: 8_388_609},  # 3.99999 times
    )
    trace.at(1).downward(A, "").downward(A, "01").downward(A, "02").downward(A, "03").downward(A, "04", error=FULL)
    head = ZERO_HASH
    for msg in ("", "01", "02", "03"):
        head = next_head(head, 1, msg)
    trace.downward(B, "05").state(
        dmq={A: [{"sent_at": 1, "msg": msg} for msg in ("", "01", "02", "03")], B: [{"sent_at": 1, "msg": "05"}]},
        dmq_heads={A: head},
    )
    trace.at(2).candidate(A, processed=1).at(3).downward(A, "06").downward(A, "", error=FULL)
    trace.session(**{SIZE: 8_388_608})  # exactly 4 times
    trace.at(4).downward(A, "07").downward(A, "08", error=FULL)
    yield trace

    trace = Trace(
        "later_downward/limits-of-zero",
        "a size above 32 MiB and a size of zero both leave room for one message, if it is not too long",
        source="router_profiles 3.7",
        rules={0: ["dmq_length_limit"]},
        config={SIZE: 33_554_433},
    )
    trace.at(1).downward(A, "0102").downward(A, "", error=FULL).session(**{SIZE: 0})
    trace.at(2).downward(B, "01", error=FULL).downward(B, "").downward(B, "", error=FULL)
    trace.session(**{SIZE: 33_554_432})
    trace.state(dmq={A: [{"sent_at": 1, "msg": "0102"}], B: [{"sent_at": 2, "msg": ""}]})
    trace.at(3).downward(A, "03").downward(A, "04", error=FULL).downward(B, "05").downward(B, "06", error=FULL)
    yield trace

    trace = Trace(
        "later_downward/a-longer-queue-stays",
        "what waits when the limit begins stays; there is room again once it is shorter, and without limit once it is off",
        source="router_profiles 3.7",
        rules={3: ["dmq_length_limit"], 6: []},
        config={SIZE: 20_000_000},  # 1 may wait
    )
    trace.at(1).downward(A, "01").downward(A, "02").at(2).downward(A, "03").downward(A, "04")
    waiting = [
        {"sent_at": 1, "msg": "01"},
        {"sent_at": 1, "msg": "02"},
        {"sent_at": 2, "msg": "03"},
        {"sent_at": 2, "msg": "04"},
    ]
    trace.at(3).downward(A, "05", error=FULL).state(dmq={A: waiting})
    trace.at(4).candidate(A, processed=2).at(5).downward(A, "06", error=FULL).candidate(A, processed=1)
    trace.at(5).downward(A, "07").state(dmq={A: [waiting[3], {"sent_at": 5, "msg": "07"}]})
    trace.at(5).downward(A, "08", error=FULL)
    trace.at(6).downward(A, "08").downward(A, "09")
    yield trace


def _relay_parent() -> Iterator[Trace]:
    trace = Trace(
        "later_downward/what-the-relay-parent-had-seen",
        "a candidate must process only if the first message was queued by its relay parent; it may process younger ones",
        source="router_profiles 3.10",
        rules={0: ["dmp_by_relay_parent"]},
    )
    trace.at(5).downward(A, "01").at(7).downward(A, "02").downward(A, "03")
    trace.at(8).candidate(A, 5, relay_parent=5, error=MUST).candidate(A, 6, relay_parent=6, error=MUST)
    trace.candidate(A, 3, relay_parent=3, processed=4, error=TOO_MANY, processed_downward_messages=4, dmq_length=3)
    trace.candidate(A, 3, relay_parent=3).candidate(A, 4, relay_parent=4, processed=2)
    trace.state(dmq={A: [{"sent_at": 7, "msg": "03"}]}, watermarks={A: 4})
    trace.at(9).candidate(A, 6, relay_parent=6).candidate(A, 7, relay_parent=7, error=MUST)
    trace.candidate(A, 7, relay_parent=7, processed=1).candidate(A)
    trace.at(10).candidate(A, processed=1, error=TOO_MANY, processed_downward_messages=1, dmq_length=0)
    yield trace

    trace = Trace(
        "later_downward/the-first-message-decides",
        "one old message in front of younger ones must be processed; then the younger one is the first",
        source="router_profiles 3.10",
        rules={0: ["dmp_by_relay_parent"]},
    )
    trace.at(2).downward(A, "01").at(6).downward(A, "02")
    trace.at(7).candidate(A, 3, relay_parent=3, error=MUST).candidate(A, 3, relay_parent=3, processed=1)
    trace.at(7).candidate(A, 4, relay_parent=4).state(dmq={A: [{"sent_at": 6, "msg": "02"}]})
    yield trace

    trace = Trace(
        "later_downward/messages-queued-under-older-rules",
        "before and after the feature any waiting message must be processed",
        source="router_profiles 3.10",
        rules={4: ["dmp_by_relay_parent"], 6: []},
    )
    trace.at(3).downward(A, "01").candidate(A, 1, relay_parent=1, error=MUST)
    trace.at(4).candidate(A, 1, relay_parent=1)
    trace.at(6).candidate(A, 2, relay_parent=2, error=MUST).candidate(A, 2, relay_parent=2, processed=1)
    yield trace


def _head() -> Iterator[Trace]:
    trace = Trace(
        "later_downward/recipients-need-a-head",
        "a para takes messages from its onboarding to the session change that offboards it",
        source="router_profiles 3.13",
        rules={0: ["downward_needs_head"]},
    )
    trace.at(1).downward(STRANGER, "01", error="Unroutable").downward(A, "02")
    trace.session(onboarding=[(STRANGER, "parathread", 0)]).state(dmq={STRANGER: None}, dmq_heads={STRANGER: None})
    trace.at(2).downward(STRANGER, "03").cleanup(A).downward(A, "04")
    trace.at(3).downward(A, "05").session().state(dmq={A: None, STRANGER: [{"sent_at": 2, "msg": "03"}]})
    trace.at(4).downward(A, "06", error="Unroutable").downward(B, "07").state(dmq={A: None}, dmq_heads={A: None})
    yield trace

    trace = Trace(
        "later_downward/queues-of-strangers",
        "a queue from before stays and grows no more, until its para comes or the feature is off",
        source="router_profiles 3.13",
        rules={2: ["downward_needs_head"], 6: []},
        interpretation=("I-20", "downward message to an unknown para", "accepted, until downward_needs_head holds"),
    )
    waiting = [{"sent_at": 1, "msg": "01"}]
    trace.at(1).downward(STRANGER, "01").downward(3000, "02")
    trace.at(2).downward(STRANGER, "03", error="Unroutable").state(
        dmq={STRANGER: waiting}, dmq_heads={STRANGER: next_head(ZERO_HASH, 1, "01")}
    )
    trace.at(3).session(onboarding=[(STRANGER, "parachain", 0)])
    trace.at(4).downward(STRANGER, "04").state(dmq={STRANGER: [*waiting, {"sent_at": 4, "msg": "04"}]})
    trace.at(5).candidate(STRANGER, error=MUST).candidate(STRANGER, processed=2).downward(
        3000, "05", error="Unroutable"
    )
    trace.at(6).downward(3000, "06").state(dmq={3000: [{"sent_at": 1, "msg": "02"}, {"sent_at": 6, "msg": "06"}]})
    yield trace

    trace = Trace(
        "later_downward/order-of-the-checks",
        "size, length of the queue, head",
        source="router_profiles 3.13",
        rules={2: ["dmq_length_limit", "downward_needs_head"]},
        config={SIZE: 5},
    )
    trace.at(1).downward(STRANGER, "01").downward(3000, "02").downward(3000, "03").session(**{SIZE: 33_554_432})
    trace.at(2).downward(STRANGER, "04", error="Unroutable").downward(3000, "05", error=FULL)
    trace.session(**{SIZE: 5})
    trace.at(3).downward(STRANGER, "00" * 6, error=FULL).downward(STRANGER, "00" * 5, error="Unroutable")
    trace.downward(A, "00" * 6, error=FULL).downward(A, "00" * 5)
    yield trace
