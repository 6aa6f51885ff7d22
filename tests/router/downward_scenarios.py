# SPDX-License-Identifier: Apache-2.0
"""Downward messages: queueing, heads, and what candidates must process."""

from __future__ import annotations

from collections.abc import Iterator

from validator_simulators.router.model import ZERO_HASH, next_head

from tests.router.trace import Trace

A, B = 2000, 2001
STRANGER = 2999


def scenarios() -> Iterator[Trace]:
    """Yield the scenarios of the group ``downward``."""
    trace = Trace(
        "downward/mqc-heads-of-the-fixtures",
        "heads are chained over queueing blocks, from zero",
        source="router_rules 1.2, second and fourth constant",
    )
    trace.at(0).downward(B, "010203").state(
        dmq_heads={A: None, B: "434f8579a2297dfea851bf6be33093c83a78b655a53ae141a7894494c0010589"}
    )
    trace.at(2).downward(A, "010203").at(3).downward(A, "040506").state(
        dmq_heads={A: "88dc00db8cc9d22aa62b87807705831f164387dfa49f80a8600ed1cbe1704b6b"},
        dmq={A: [{"sent_at": 2, "msg": "010203"}, {"sent_at": 3, "msg": "040506"}]},
    )
    trace.at(4).candidate(A, processed=2).state(
        dmq={A: None}, dmq_heads={A: "88dc00db8cc9d22aa62b87807705831f164387dfa49f80a8600ed1cbe1704b6b"}
    )
    yield trace

    trace = Trace(
        "downward/message-size",
        "a message as long as configured, or empty, is queued; one byte more is refused and leaves the head alone",
        source="queue_downward_message 1",
    )
    trace.at(1).downward(A, "00" * 17, error="ExceedsMaxMessageSize").state(dmq={A: None}, dmq_heads={A: None})
    head = next_head(next_head(ZERO_HASH, 1, "00" * 16), 1, "")
    trace.at(1).downward(A, "00" * 16).downward(A, "").state(
        dmq={A: [{"sent_at": 1, "msg": "00" * 16}, {"sent_at": 1, "msg": ""}]}, dmq_heads={A: head}
    )
    yield trace

    trace = Trace(
        "downward/some-must-be-processed",
        "a candidate processes at least one message where any waits, and never more than wait",
        source="check_processed_downward_messages",
    )
    trace.at(1).candidate(
        A, processed=1, error="ProcessedDownwardMessages/Underflow", processed_downward_messages=1, dmq_length=0
    ).candidate(A)
    trace.at(2).downward(A, "01").downward(A, "02").downward(A, "03")
    trace.at(3).candidate(A, error="ProcessedDownwardMessages/AdvancementRule").candidate(
        A, processed=4, error="ProcessedDownwardMessages/Underflow", processed_downward_messages=4, dmq_length=3
    )
    trace.candidate(
        A,
        processed=2**32 - 1,
        error="ProcessedDownwardMessages/Underflow",
        processed_downward_messages=2**32 - 1,
        dmq_length=3,
    )
    trace.candidate(A, processed=1).state(dmq={A: [{"sent_at": 2, "msg": "02"}, {"sent_at": 2, "msg": "03"}]})
    trace.at(4).candidate(A, processed=2).candidate(B).state(dmq={A: None})
    trace.at(5).candidate(A)
    yield trace

    trace = Trace(
        "downward/comes-before-the-candidates-of-its-block",
        "a message queued in the block is in the queue that its candidates are checked against",
        source="traces FORMAT, Step",
    )
    trace.at(3).downward(A, "01").candidate(A, error="ProcessedDownwardMessages/AdvancementRule").candidate(
        A, processed=1
    )
    trace.state(dmq={A: None}, watermarks={A: 2})
    yield trace

    trace = Trace(
        "downward/to-an-unknown-para",
        "the recipient is not checked; what waits for an id waits for the para that gets it",
        source="router_rules 1.6",
        interpretation=("I-20", "downward message to an unknown para", "accepted"),
    )
    trace.at(1).downward(STRANGER, "01").state(
        dmq={STRANGER: [{"sent_at": 1, "msg": "01"}]}, dmq_heads={STRANGER: next_head(ZERO_HASH, 1, "01")}
    )
    trace.at(2).session(onboarding=[(STRANGER, "parathread", 0)])
    trace.at(3).candidate(STRANGER, error="ProcessedDownwardMessages/AdvancementRule").candidate(STRANGER, processed=1)
    yield trace

    trace = Trace(
        "downward/queue-and-head-go-with-the-para",
        "offboarding removes both; a para that comes back has a chain that starts from zero",
        source="Session Change 1, router_rules 1.8",
    )
    trace.at(1).downward(A, "01").downward(B, "02").cleanup(A)
    trace.at(2).session().state(dmq={A: None, B: [{"sent_at": 1, "msg": "02"}]}, dmq_heads={A: None})
    trace.at(3).session(onboarding=[(A, "parachain", 0)])
    trace.at(4).downward(A, "03").state(dmq_heads={A: next_head(ZERO_HASH, 4, "03")})
    yield trace

    trace = Trace(
        "downward/processed-at-enactment",
        "messages queued between acceptance and enactment wait behind those that are processed",
        source="prune_dmq",
        needs=("delayed_enactment",),
    )
    trace.at(1).downward(A, "01").at(2).candidate(A, processed=1, enact_at=4).at(3).downward(A, "02")
    trace.at(4).state(dmq={A: [{"sent_at": 3, "msg": "02"}]})
    yield trace

    trace = Trace(
        "downward/processed-after-the-queue-is-gone",
        "enactment drops at most what is there",
        source="router_rules 1.4 prune_dmq",
        needs=("delayed_enactment",),
    )
    trace.at(1).downward(A, "01").downward(A, "02").at(2).candidate(A, processed=2, enact_at=5)
    trace.at(3).session(A, onboarding=[(A, "parachain", 0)]).state(dmq={A: None}, valid_paras=[A, B, 2002, 2003, 2004])
    trace.at(4).downward(A, "03").at(5).state(dmq={A: None}, watermarks={A: 1})
    yield trace
