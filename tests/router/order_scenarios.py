# SPDX-License-Identifier: Apache-2.0
"""Inputs that break two rules at once: the rule that is checked first is reported."""

from __future__ import annotations

from collections.abc import Iterator

from tests.router.trace import Trace

A, B, C, T, U = 2000, 2001, 2002, 2003, 2004
STRANGER = 2999


def scenarios() -> Iterator[Trace]:
    """Yield the scenarios of the group ``order``."""
    trace = Trace(
        "order/init-open-channel-arguments",
        "self, places, message size, recipient: each broken together with every later one",
        source="hrmp_init_open_channel 1 to 4",
        interpretation=("I-14", "sizes before or after the recipient's validity", "the order of router.txt"),
    )
    trace.at(1).init(A, A, 0, 0, error="OpenHrmpChannelToSelf").init(A, A, 5, 9, error="OpenHrmpChannelToSelf")
    trace.init(STRANGER, STRANGER, error="OpenHrmpChannelToSelf")
    trace.at(2).init(A, STRANGER, 0, 0, error="OpenHrmpChannelZeroCapacity")
    trace.init(A, STRANGER, 0, 9, error="OpenHrmpChannelZeroCapacity")
    trace.at(3).init(A, STRANGER, 5, 0, error="OpenHrmpChannelCapacityExceedsLimit")
    trace.init(A, STRANGER, 5, 9, error="OpenHrmpChannelCapacityExceedsLimit")
    trace.at(4).init(A, STRANGER, 4, 0, error="OpenHrmpChannelZeroMessageSize")
    trace.init(A, STRANGER, 4, 9, error="OpenHrmpChannelMessageSizeExceedsLimit")
    trace.init(A, STRANGER, 4, 8, error="OpenHrmpChannelInvalidRecipient").init(A, B, 4, 8)
    yield trace

    trace = Trace(
        "order/init-open-channel-against-the-state",
        "recipient, channel exists, request exists, limit, balance",
        source="hrmp_init_open_channel 4 to 8",
        config={"hrmp_max_parachain_outbound_channels": 1},
        balances={A: 10, B: 10, C: 9},
    )
    trace.at(1).init(A, T).init(B, U).accept(T, A)
    trace.at(2).session(U).state(channel_set=["2000->2003"], open_request_set=["2001->2004"])
    trace.at(3).init(B, U, error="OpenHrmpChannelInvalidRecipient")  # requested already, too
    trace.init(A, T, error="OpenHrmpChannelAlreadyExists")  # at the limit, too
    trace.init(A, STRANGER, error="OpenHrmpChannelInvalidRecipient")  # at the limit, too
    trace.at(3).init(A, B, error="OpenHrmpChannelLimitExceeded")  # and cannot pay
    trace.init(A, T, 5, error="OpenHrmpChannelCapacityExceedsLimit").init(
        A, T, 1, 9, error="OpenHrmpChannelMessageSizeExceedsLimit"
    )
    trace.at(4).init(C, STRANGER, error="OpenHrmpChannelInvalidRecipient").init(C, A, error="InsufficientBalance")
    yield trace

    trace = Trace(
        "order/init-open-channel-requested-before-limit",
        "a request that is there already is told before the limit that it has used up",
        source="hrmp_init_open_channel 6 to 8",
        balances={T: 10},
    )
    trace.at(1).init(T, A).init(T, A, error="OpenHrmpChannelAlreadyRequested")
    trace.init(T, B, error="OpenHrmpChannelLimitExceeded")
    yield trace

    trace = Trace(
        "order/accept-open-channel",
        "request exists, not confirmed, limit, balance",
        source="hrmp_accept_open_channel",
        config={"hrmp_max_parachain_inbound_channels": 1},
        balances={A: 6, B: 5},
    )
    trace.at(1).init(C, A).init(T, A).accept(A, C)
    trace.at(2).accept(A, U, error="AcceptHrmpChannelDoesntExist")  # limit reached and nothing left to pay with
    trace.accept(A, C, error="AcceptHrmpChannelAlreadyConfirmed").accept(A, T, error="AcceptHrmpChannelLimitExceeded")
    trace.at(3).accept(B, U, error="AcceptHrmpChannelDoesntExist").init(C, B).accept(B, C, error="InsufficientBalance")
    yield trace

    trace = Trace(
        "order/close-channel",
        "authority before existence before repetition",
        source="hrmp_close_channel",
    )
    trace.open((A, B), (T, A))
    trace.at(3).close(T, A, C, error="CloseHrmpChannelUnauthorized").close(A, A, B)
    trace.close(C, A, B, error="CloseHrmpChannelUnauthorized").close(B, A, B, error="CloseHrmpChannelAlreadyUnderway")
    trace.close(A, A, C, error="CloseHrmpChannelDoesntExist").close(T, T, A)
    yield trace

    yield from _candidates()


def _candidates() -> Iterator[Trace]:
    trace = Trace(
        "order/groups-of-a-candidate",
        "downward, upward, watermark, outbound",
        source="router_rules 1.1",
        interpretation=("I-13", "order of the four groups", "that of the code: downward, upward, watermark, outbound"),
    )
    large = "00" * 9
    trace.at(3).downward(A, "01")
    trace.at(4).candidate(
        A, 4, up=(large,), send={B: "01"}, error="ProcessedDownwardMessages/AdvancementRule"
    ).candidate(
        A,
        4,
        processed=2,
        up=(large,),
        error="ProcessedDownwardMessages/Underflow",
        processed_downward_messages=2,
        dmq_length=1,
    )
    trace.at(4).candidate(A, processed=0, send={B: "01"}, error="ProcessedDownwardMessages/AdvancementRule")
    trace.at(4).candidate(
        A,
        4,
        processed=1,
        up=("01", large),
        send={B: "01"},
        error="UpwardMessages/MessageSize",
        idx=1,
        msg_size=9,
        max_size=8,
    )
    trace.at(4).candidate(
        A, processed=1, up=(large,), send={B: "01"}, error="UpwardMessages/MessageSize", idx=0, msg_size=9, max_size=8
    )
    trace.at(4).candidate(
        A,
        4,
        processed=1,
        up=("01",),
        send={B: "01"},
        error="HrmpWatermark/AheadRelayParent",
        new_watermark=4,
        relay_chain_parent_number=3,
    )
    trace.at(4).candidate(
        A,
        processed=1,
        up=("01",),
        send={B: "01"},
        error="OutboundHrmp/NoSuchChannel",
        idx=0,
        channel_id={"sender": A, "recipient": B},
    )
    trace.at(4).candidate(A, processed=1, up=("01",)).dispatched((A, "01"))
    yield trace

    trace = Trace(
        "order/upward-messages",
        "number, then every size, then the queue's count, then its bytes",
        source="check_upward_messages 1 to 3",
        interpretation=("I-18", "count or bytes of the queue first", "count"),
        config={"preferred_dispatchable_upward_messages_step_weight": 0},
    )
    nine, eight = "00" * 9, "00" * 8
    trace.at(1).candidate(A, up=(eight, eight))
    trace.at(2).candidate(
        A, up=(nine, "", "", ""), error="UpwardMessages/MoreMessagesThanPermitted", sent=4, permitted=3
    )
    trace.candidate(A, up=("", "", nine), error="UpwardMessages/MessageSize", idx=2, msg_size=9, max_size=8)
    trace.candidate(A, up=(nine, nine), error="UpwardMessages/MessageSize", idx=0, msg_size=9, max_size=8)
    trace.at(2).candidate(A, up=(eight, "", ""), error="UpwardMessages/CapacityExceeded", count=5, limit=4)
    trace.candidate(A, up=(eight, ""), error="UpwardMessages/TotalSizeExceeded", total_size=24, limit=20)
    trace.candidate(A, up=("00" * 4, "")).state(ump_queue_size={A: [4, 20]})
    yield trace

    trace = Trace(
        "order/watermark",
        "advancement is checked before the relay parent, and before the landing",
        source="check_hrmp_watermark 1 to 3",
    )
    trace.at(9).candidate(A)
    trace.at(12).candidate(
        A, 8, relay_parent=5, error="HrmpWatermark/AdvancementRule", new_watermark=8, last_watermark=8
    )
    trace.candidate(A, 7, relay_parent=11, error="HrmpWatermark/AdvancementRule", new_watermark=7, last_watermark=8)
    trace.candidate(
        A, 9, relay_parent=8, error="HrmpWatermark/AheadRelayParent", new_watermark=9, relay_chain_parent_number=8
    )
    trace.candidate(A, 9, relay_parent=11, error="HrmpWatermark/LandsOnBlockWithNoMessages", new_watermark=9)
    trace.candidate(A, 9, relay_parent=9)
    yield trace

    trace = Trace(
        "order/outbound-messages",
        "number first; then for each message in turn order, channel, size, bytes, places",
        source="verify_outbound_hrmp, router_rules 1.3",
        interpretation=("I-01", "number, order and uniqueness of horizontal messages", "enforced"),
    )
    nine, eight, five = "00" * 9, "00" * 8, "00" * 5
    trace.open((A, B), (A, C))
    trace.at(3).candidate(
        A,
        send=[(C, nine), (B, nine), (B, ""), (A, "")],
        error="OutboundHrmp/MoreMessagesThanPermitted",
        sent=4,
        permitted=3,
    )
    trace.candidate(A, send=[(C, ""), (A, "")], error="OutboundHrmp/NotSorted", idx=1)
    trace.candidate(A, send=[(B, ""), (B, nine)], error="OutboundHrmp/NotSorted", idx=1)
    trace.candidate(
        A,
        send=[(A, nine), (A, "")],
        error="OutboundHrmp/NoSuchChannel",
        idx=0,
        channel_id={"sender": A, "recipient": A},
    )
    trace.candidate(
        A, send=[(B, nine), (T, "")], error="OutboundHrmp/MaxMessageSizeExceeded", idx=0, msg_size=9, max_size=8
    )
    trace.at(4).candidate(A, send={B: eight}).at(5).candidate(A, send={B: five}).at(6).candidate(A, send={B: five})
    trace.at(7).candidate(A, send={B: nine}, error="OutboundHrmp/MaxMessageSizeExceeded", idx=0, msg_size=9, max_size=8)
    trace.candidate(A, send={B: "00"}).at(8).candidate(
        A, send={B: eight}, error="OutboundHrmp/TotalSizeExceeded", idx=0, total_size=27, limit=20
    )
    trace.candidate(A, send={B: nine}, error="OutboundHrmp/MaxMessageSizeExceeded", idx=0, msg_size=9, max_size=8)
    trace.candidate(A, send={B: ""}, error="OutboundHrmp/CapacityExceeded", idx=0, count=5, limit=4)
    trace.candidate(
        A, send=[(B, ""), (C, nine)], error="OutboundHrmp/CapacityExceeded", idx=0, count=5, limit=4
    ).candidate(A, send={C: eight})
    yield trace
