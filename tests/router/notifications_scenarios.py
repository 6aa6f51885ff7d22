# SPDX-License-Identifier: Apache-2.0
"""Downward notifications of channel requests, a switch of a chain (I-11)."""

from __future__ import annotations

from collections.abc import Iterator

from validator_simulators.router.model import ZERO_HASH, next_head

from tests.router.trace import Trace

NEEDS = ("hrmp_notifications",)
PARAS = {63: "parachain", 64: "parachain", 16383: "parachain", 16384: "parachain"}


def scenarios() -> Iterator[Trace]:
    """Yield the scenarios of the group ``notifications``."""
    trace = Trace(
        "notifications/request-acceptance-closure",
        "the recipient is told of a request, the sender of its acceptance, the other end of a closure: compact integers of one, "
        "two and four bytes",
        source="router_rules 1.6",
        needs=NEEDS,
        paras=PARAS,
        config={"hrmp_channel_max_message_size": 64, "max_downward_message_size": 16},
    )
    opened = "07" + "fc" + "0101" + "10"  # 63; 64 bytes a message; 4 places
    trace.at(1).init(63, 16384, 4, 64).state(
        dmq={16384: [{"sent_at": 1, "msg": opened}], 63: None}, dmq_heads={16384: next_head(ZERO_HASH, 1, opened)}
    )
    trace.at(2).accept(16384, 63).state(dmq={63: [{"sent_at": 2, "msg": "08" + "02000100"}]})
    trace.at(3).session().state(channel_set=["63->16384"])
    closed = "09" + "02000100" + "fc" + "02000100"  # initiator, sender, recipient
    trace.at(4).close(16384, 63, 16384).state(
        dmq={63: [{"sent_at": 2, "msg": "0802000100"}, {"sent_at": 4, "msg": closed}]}
    )
    trace.at(5).candidate(63, error="ProcessedDownwardMessages/AdvancementRule").candidate(63, processed=2)
    yield trace

    trace = Trace(
        "notifications/closure-by-the-sender",
        "the recipient is told",
        source="router_rules 1.6",
        needs=NEEDS,
        paras=PARAS,
    )
    trace.open((64, 16383))
    trace.at(3).candidate(16383, processed=1).candidate(64, processed=1).state(dmq={64: None, 16383: None})
    trace.at(4).close(64, 64, 16383).state(
        dmq={16383: [{"sent_at": 4, "msg": "09" + "0101" + "0101" + "fdff"}], 64: None}
    )
    yield trace

    trace = Trace(
        "notifications/refused-requests-tell-nobody",
        "only a request that succeeds is told",
        source="router_rules 1.6",
        needs=NEEDS,
        paras=PARAS,
        balances={63: 0},
    )
    trace.at(1).init(63, 64, error="InsufficientBalance").accept(64, 63, error="AcceptHrmpChannelDoesntExist")
    trace.close(63, 63, 64, error="CloseHrmpChannelDoesntExist").state(dmq={63: None, 64: None}, dmq_heads={64: None})
    yield trace

    trace = Trace(
        "notifications/too-long-for-the-queue",
        "a notification over the limit of downward messages is dropped silently, the request succeeds",
        source="router_rules 1.6",
        needs=NEEDS,
        paras=PARAS,
        config={"max_downward_message_size": 3},
    )
    trace.at(1).init(63, 64).state(open_request_set=["63->64"], dmq={64: None}, dmq_heads={64: None})
    trace.at(1).accept(64, 63).state(dmq={63: [{"sent_at": 1, "msg": "080101"}]})
    yield trace

    trace = Trace(
        "notifications/none-where-the-chain-has-none",
        "without the switch a request puts nothing into anybody's queue",
        source="router.txt",
        interpretation=("I-11", "downward notifications", "only where a chain has them"),
        paras=PARAS,
    )
    trace.open((63, 64))
    trace.at(3).close(63, 63, 64).state(dmq={63: None, 64: None}, dmq_heads={63: None, 64: None})
    yield trace
