# SPDX-License-Identifier: Apache-2.0
"""Horizontal messages: limits of channels, message queue chains, contents and digests, enactment at once and later."""

from __future__ import annotations

from collections.abc import Iterator

from validator_simulators.router.model import ZERO_HASH, next_head

from tests.router.trace import Trace

A, B, C, T, U = 2000, 2001, 2002, 2003, 2004
LAST = 2**32 - 1
DELAYED = ("delayed_enactment",)


def scenarios() -> Iterator[Trace]:
    """Yield the scenarios of the group ``horizontal``."""
    yield from _heads()
    yield from _limits()
    yield from _contents()
    yield from _delayed()


def _heads() -> Iterator[Trace]:
    trace = Trace(
        "horizontal/mqc-head-of-knock",
        "a link hashes the previous head, the block, and the hash of the message with its length",
        source="router_rules 1.2, first constant",
    )
    trace.open((A, B))
    trace.at(6).candidate(A, send={B: b"knock".hex()}).state(
        channels={(A, B): {"mqc_head": "3bba6404e59c91f51deb2ae78f1273ebe75896850713e13f8c0eba4b0996c483"}}
    )
    yield trace

    trace = Trace(
        "horizontal/mqc-head-of-two-messages",
        "links are chained; the head stays when messages are received",
        source="router_rules 1.2, third constant",
    )
    second = "a964fd3b4f3d3ce92a0e25e576b87590d92bb5cb7031909c7f29050e1f04a375"
    trace.open((A, B))
    trace.at(3).candidate(A, send={B: "010203"}).at(4).candidate(A, send={B: "040506"}).state(
        mqc_heads={B: [[A, second]]},
        contents={(A, B): [{"sent_at": 3, "data": "010203"}, {"sent_at": 4, "data": "040506"}]},
    )
    trace.at(5).candidate(B, 4).state(mqc_heads={B: [[A, second]]}, contents={(A, B): None})
    third = next_head(second, 6, "07")
    trace.at(6).candidate(A, send={B: "07"}).state(mqc_heads={B: [[A, third]]})
    yield trace

    trace = Trace(
        "horizontal/mqc-heads-of-all-senders",
        "every ingress channel has a head, ascending by sender; one without messages has zero",
        source="router_rules 1.2",
    )
    trace.open((T, A), (B, A), (C, A))
    trace.at(3).candidate(C, send={A: "aa"}).state(
        mqc_heads={A: [[B, ZERO_HASH], [C, next_head(ZERO_HASH, 3, "aa")], [T, ZERO_HASH]]}
    )
    yield trace

    trace = Trace(
        "horizontal/a-message-of-64-bytes",
        "the length of 64 bytes takes two bytes in the hash, that of 63 takes one",
        source="router_rules 1.2, compact",
        config={"hrmp_channel_max_message_size": 64, "hrmp_channel_max_size": 127},
    )
    trace.open((A, B), size=64)
    first = next_head(ZERO_HASH, 3, "61" * 63)
    trace.at(3).candidate(A, send={B: "61" * 63}).state(mqc_heads={B: [[A, first]]})
    trace.at(4).candidate(A, send={B: "62" * 64}).state(
        mqc_heads={B: [[A, next_head(first, 4, "62" * 64)]]}, channels={(A, B): {"used_places": 2, "used_bytes": 127}}
    )
    yield trace


def _limits() -> Iterator[Trace]:
    trace = Trace(
        "horizontal/messages-per-candidate",
        "as many messages as configured, not one more",
        source="router_rules 1.3 check_outbound_hrmp 0",
        config={"hrmp_max_message_num_per_candidate": 2, "hrmp_max_parachain_outbound_channels": 3},
    )
    trace.open((A, B), (A, C), (A, T))
    trace.at(3).candidate(
        A, send={B: "", C: "", T: ""}, error="OutboundHrmp/MoreMessagesThanPermitted", sent=3, permitted=2
    )
    trace.candidate(A, send={B: "", T: ""})
    yield trace

    trace = Trace(
        "horizontal/recipients-ascend-strictly",
        "neither twice nor out of order",
        source="router_rules 1.3 check_outbound_hrmp 1",
        interpretation=("I-01", "order and uniqueness of recipients", "enforced"),
    )
    trace.open((A, B), (A, C))
    trace.at(3).candidate(A, send=[(C, "01"), (B, "02")], error="OutboundHrmp/NotSorted", idx=1)
    trace.candidate(A, send=[(B, "01"), (B, "02")], error="OutboundHrmp/NotSorted", idx=1)
    trace.candidate(A, send=[(B, "01"), (C, "02"), (C, "03")], error="OutboundHrmp/NotSorted", idx=2)
    trace.candidate(A, send=[(B, "01"), (C, "02")]).state(digests={B: [[3, [A]]], C: [[3, [A]]]})
    yield trace

    trace = Trace(
        "horizontal/no-such-channel",
        "a channel must be open, in this direction",
        source="verify_outbound_hrmp 1.1",
    )
    trace.open((A, B))
    trace.at(3).init(A, C).accept(C, A)
    trace.at(3).candidate(
        B, send={A: "01"}, error="OutboundHrmp/NoSuchChannel", idx=0, channel_id={"sender": B, "recipient": A}
    )
    trace.candidate(
        A,
        send={B: "01", C: "01"},
        error="OutboundHrmp/NoSuchChannel",
        idx=1,
        channel_id={"sender": A, "recipient": C},
    )
    trace.state(channels={(A, B): {"used_places": 0}}, digests={B: None}, watermarks={A: None, B: None})
    trace.at(3).candidate(A, send={B: "01"})
    trace.at(4).session()
    trace.at(5).candidate(A, send={B: "01", C: "01"})
    yield trace

    trace = Trace(
        "horizontal/message-size",
        "the channel's own limit counts, to the last byte; it may be below the configured one",
        source="verify_outbound_hrmp 1.2",
    )
    trace.open((A, B), size=3)
    trace.at(3).candidate(
        A, send={B: "00" * 4}, error="OutboundHrmp/MaxMessageSizeExceeded", idx=0, msg_size=4, max_size=3
    )
    trace.candidate(A, send={B: "00" * 3}).at(4).candidate(A, send={B: ""}).state(
        channels={(A, B): {"used_places": 2, "used_bytes": 3}}
    )
    yield trace

    trace = Trace(
        "horizontal/bytes-of-a-channel",
        "full to the last byte and not beyond; an empty message still fits into a full channel",
        source="verify_outbound_hrmp 1.3",
    )
    trace.open((A, B))
    trace.at(3).candidate(A, send={B: "00" * 8}).at(4).candidate(A, send={B: "00" * 7})
    trace.at(5).candidate(A, send={B: "00" * 6}, error="OutboundHrmp/TotalSizeExceeded", idx=0, total_size=21, limit=20)
    trace.candidate(A, send={B: "00" * 5}).state(channels={(A, B): {"used_places": 3, "used_bytes": 20}})
    trace.at(6).candidate(A, send={B: "00"}, error="OutboundHrmp/TotalSizeExceeded", idx=0, total_size=21, limit=20)
    trace.candidate(A, send={B: ""}).state(channels={(A, B): {"used_places": 4, "used_bytes": 20}})
    yield trace

    trace = Trace(
        "horizontal/places-of-a-channel",
        "full to the last place and not beyond; receiving makes room",
        source="verify_outbound_hrmp 1.4",
    )
    trace.open((A, B), places=2)
    trace.at(3).candidate(A, send={B: ""}).at(4).candidate(A, send={B: "01"})
    trace.at(5).candidate(A, send={B: ""}, error="OutboundHrmp/CapacityExceeded", idx=0, count=3, limit=2)
    trace.candidate(B, 3).candidate(A, send={B: ""}).state(
        contents={(A, B): [{"sent_at": 4, "data": "01"}, {"sent_at": 5, "data": ""}]},
        channels={(A, B): {"used_places": 2, "used_bytes": 1}},
    )
    yield trace

    trace = Trace(
        "horizontal/a-refused-candidate-changes-nothing",
        "the second message is refused: neither the first nor anything else of the candidate takes effect",
        source="traces FORMAT: a rejected input changes nothing",
    )
    trace.open((A, B), (A, C), size=4)
    trace.at(3).downward(A, "aa")
    trace.at(4).candidate(
        A,
        send={B: "01", C: "00" * 5},
        up=("02",),
        processed=1,
        error="OutboundHrmp/MaxMessageSizeExceeded",
        idx=1,
        msg_size=5,
        max_size=4,
    )
    trace.dispatched().state(
        channels={(A, B): {"used_places": 0, "used_bytes": 0, "mqc_head": ZERO_HASH}},
        contents={(A, B): None},
        digests={B: None},
        watermarks={A: None},
        dmq={A: [{"sent_at": 3, "msg": "aa"}]},
        ump_queues={A: None},
        needs_dispatch=[],
    )
    yield trace


def _contents() -> Iterator[Trace]:
    trace = Trace(
        "horizontal/digest-names-senders-in-order-of-enactment",
        "one entry for a block, its senders in the order in which their candidates took effect",
        source="queue_outbound_hrmp 1.2",
        interpretation=("I-17", "order inside a digest entry", "order of enactment"),
    )
    trace.open((A, T), (B, C), (A, C))
    trace.at(3).candidate(B, send={C: "02"}).candidate(A, send={C: "01", T: "03"}).state(
        digests={C: [[3, [B, A]]], T: [[3, [A]]], A: None},
        contents={(A, C): [{"sent_at": 3, "data": "01"}], (B, C): [{"sent_at": 3, "data": "02"}]},
    )
    trace.at(4).candidate(A, send={C: "04"}).state(digests={C: [[3, [B, A]], [4, [A]]]})
    trace.at(5).candidate(C, 3).state(
        digests={C: [[4, [A]]]}, contents={(A, C): [{"sent_at": 4, "data": "04"}], (B, C): None}
    )
    trace.at(5).candidate(C, 4).state(digests={C: None}, contents={(A, C): None})
    yield trace

    trace = Trace(
        "horizontal/two-candidates-of-a-para-in-a-block",
        "a sender is named once in a digest entry, however many candidates it has in the block",
        source="router_rules 1.11: inner lists unique",
    )
    trace.open((A, B), (B, A))
    trace.at(3).candidate(B, send={A: "aa"})
    trace.at(6).candidate(A, 3, send={B: "01"}).candidate(A, 5, send={B: "02"}).state(
        digests={B: [[6, [A]]], A: None},
        contents={(A, B): [{"sent_at": 6, "data": "01"}, {"sent_at": 6, "data": "02"}], (B, A): None},
        channels={(A, B): {"used_places": 2, "mqc_head": next_head(next_head(ZERO_HASH, 6, "01"), 6, "02")}},
    )
    trace.at(7).candidate(B, 6).state(contents={(A, B): None}, channels={(A, B): {"used_places": 0, "used_bytes": 0}})
    yield trace

    trace = Trace(
        "horizontal/a-sender-keeps-its-place-in-a-digest",
        "a second candidate of the block does not move its para behind others",
        source="router_rules 1.11: inner lists unique",
        interpretation=("I-17", "order inside a digest entry", "order of enactment"),
    )
    trace.open((A, C), (B, C), (C, A))
    trace.at(3).candidate(C, send={A: "aa"})
    trace.at(6).candidate(A, 3, send={C: "01"}).candidate(B, send={C: "02"}).candidate(A, 5, send={C: "03"})
    trace.state(digests={C: [[6, [A, B]]]}, channels={(A, C): {"used_places": 2}, (B, C): {"used_places": 1}})
    yield trace

    trace = Trace(
        "horizontal/para-ids-from-0-to-the-last",
        "an id is a u32 and nothing else: 0 is a recipient, a sender and a para like any other",
        source="router_rules 1.2",
        paras={0: "parachain", 1: "parachain", LAST: "parachain"},
    )
    trace.open((1, 0), (0, LAST), (1, LAST))
    trace.at(3).candidate(1, send={0: "01", LAST: "02"}).candidate(0, send={LAST: "03"}, up=("04",))
    trace.dispatched((0, "04")).state(
        digests={0: [[3, [1]]], LAST: [[3, [1, 0]]]},
        ingress={0: [1], LAST: [0, 1]},
        watermarks={0: 2, 1: 2, LAST: None},
    )
    trace.at(4).candidate(
        0, 3, send=[(0, "")], error="OutboundHrmp/NoSuchChannel", idx=0, channel_id={"sender": 0, "recipient": 0}
    )
    trace.candidate(LAST, 3).candidate(0, 3).cleanup(0).at(4).downward(0, "05")
    trace.at(5).session().state(valid_paras=[1, LAST], channel_set=[f"1->{LAST}"], watermarks={0: None}, dmq={0: None})
    yield trace

    trace = Trace(
        "horizontal/watermark-prunes-without-an-entry-of-its-own",
        "everything sent up to the watermark goes, also where the watermark's own block has no entry",
        source="router_rules 1.4 prune_hrmp",
    )
    trace.open((A, C), (B, C))
    trace.at(3).candidate(A, send={C: "01"}).at(5).candidate(B, send={C: "0202"}).at(7).candidate(A, send={C: "03"})
    trace.at(7).candidate(C, 6).state(
        digests={C: [[7, [A]]]},
        contents={(A, C): [{"sent_at": 7, "data": "03"}], (B, C): None},
        channels={(A, C): {"used_places": 1, "used_bytes": 1}, (B, C): {"used_places": 0, "used_bytes": 0}},
        watermarks={C: 6},
    )
    yield trace

    trace = Trace(
        "horizontal/messages-flow-until-the-channel-is-closed",
        "a channel with a close request takes messages until the session change, which drops what is in it",
        source="router_rules 1.6",
    )
    trace.open((A, B))
    trace.at(3).close(B, A, B)
    trace.at(4).candidate(A, send={B: "01"}).state(contents={(A, B): [{"sent_at": 4, "data": "01"}]})
    trace.at(5).candidate(A, send={B: "02"}).session().state(
        channel_set=[], contents={(A, B): None}, digests={B: [[4, [A]], [5, [A]]]}, mqc_heads={B: None}
    )
    trace.at(6).candidate(
        A, send={B: "03"}, error="OutboundHrmp/NoSuchChannel", idx=0, channel_id={"sender": A, "recipient": B}
    )
    trace.candidate(B, 4).state(digests={B: [[5, [A]]]}, watermarks={B: 4})
    yield trace

    trace = Trace(
        "horizontal/a-channel-opened-again-starts-from-nothing",
        "counters and head of the channel of the same name do not come back",
        source="Session Change 2.2, router_rules 1.10",
    )
    trace.open((A, B))
    trace.at(3).candidate(A, send={B: "0102"}).close(A, A, B)
    trace.at(4).session()
    trace.open((A, B), block=5)
    trace.state(channels={(A, B): {"used_places": 0, "used_bytes": 0, "mqc_head": ZERO_HASH}}, contents={(A, B): None})
    trace.at(7).candidate(A, send={B: "03"}).state(
        mqc_heads={B: [[A, next_head(ZERO_HASH, 7, "03")]]}, digests={B: [[3, [A]], [7, [A]]]}
    )
    trace.at(8).candidate(B, 3).state(contents={(A, B): [{"sent_at": 7, "data": "03"}]}, digests={B: [[7, [A]]]})
    yield trace


def _delayed() -> Iterator[Trace]:
    trace = Trace(
        "horizontal/enacted-later",
        "what is sent, noted and linked carries the block of enactment; until then nothing has happened",
        source="queue_outbound_hrmp",
        needs=DELAYED,
    )
    trace.open((A, B))
    trace.at(3).downward(A, "aa")
    trace.at(4).candidate(A, send={B: "01"}, up=("02",), processed=1, enact_at=7).dispatched().state(
        contents={(A, B): None},
        digests={B: None},
        watermarks={A: None},
        dmq={A: [{"sent_at": 3, "msg": "aa"}]},
        needs_dispatch=[],
    )
    trace.at(7).candidate(B, 4, error="HrmpWatermark/LandsOnBlockWithNoMessages", new_watermark=4)
    trace.dispatched((A, "02")).state(
        contents={(A, B): [{"sent_at": 7, "data": "01"}]},
        digests={B: [[7, [A]]]},
        watermarks={A: 3},
        dmq={A: None},
        mqc_heads={B: [[A, next_head(ZERO_HASH, 7, "01")]]},
    )
    trace.at(8).candidate(B, 7).state(contents={(A, B): None})
    yield trace

    trace = Trace(
        "horizontal/enacted-before-what-the-block-brings",
        "enactment opens its block: a candidate of that block is checked against what it left",
        source="router_rules 1.1",
        needs=DELAYED,
    )
    trace.open((A, B), places=1)
    trace.at(3).candidate(A, send={B: "01"}, enact_at=5)
    trace.at(5).candidate(A, 2, error="HrmpWatermark/AdvancementRule", new_watermark=2, last_watermark=2).candidate(
        A, 4, send={B: ""}, error="OutboundHrmp/CapacityExceeded", idx=0, count=2, limit=1
    )
    trace.state(channels={(A, B): {"used_places": 1}})
    yield trace

    trace = Trace(
        "horizontal/enacted-after-the-channel-is-gone",
        "a message whose channel was closed between acceptance and enactment is skipped, the rest takes effect",
        source="router_rules 1.4",
        needs=DELAYED,
        interpretation=("I-20b", "enactment of a message without a channel", "skipped"),
    )
    trace.open((A, B), (A, C))
    trace.at(3).close(B, A, B)
    trace.at(4).candidate(A, send={B: "01", C: "02"}, up=("03",), enact_at=6)
    trace.at(5).session().state(channel_set=["2000->2002"])
    trace.at(6).dispatched((A, "03")).state(
        contents={(A, B): None, (A, C): [{"sent_at": 6, "data": "02"}]},
        digests={B: None, C: [[6, [A]]]},
        channels={(A, B): None},
        watermarks={A: 3},
    )
    yield trace

    trace = Trace(
        "horizontal/enacted-by-a-smaller-configuration",
        "limits are checked at acceptance alone: a session change in between does not matter",
        source="router_rules 1.4",
        needs=DELAYED,
    )
    trace.open((A, B))
    trace.at(3).candidate(A, send={B: "01" * 8}, up=("02" * 8,), enact_at=5)
    trace.at(4).session(max_upward_message_size=1, max_upward_queue_size=1, hrmp_channel_max_message_size=1)
    trace.at(5).dispatched((A, "02" * 8)).state(channels={(A, B): {"used_places": 1, "used_bytes": 8}})
    yield trace

    trace = Trace(
        "horizontal/several-enacted-in-one-block",
        "in order of acceptance",
        source="router_rules 1.1",
        needs=DELAYED,
    )
    trace.open((A, C), (B, C))
    trace.at(3).candidate(B, send={C: "02"}, enact_at=6)
    trace.at(4).candidate(A, send={C: "01"}, enact_at=6).state(digests={C: None})
    trace.at(6).state(digests={C: [[6, [B, A]]]}, watermarks={A: 3, B: 2})
    yield trace
