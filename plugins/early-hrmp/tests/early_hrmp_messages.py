# SPDX-License-Identifier: Apache-2.0
"""Messages of candidates, watermarks, messages of the relay chain."""

from __future__ import annotations

from collections.abc import Iterator

from early_hrmp_trace import BALANCE, NOBODY, A, B, C, D, E, Trace, balance, channel, hrmp, name, relay

ORDER = "early_hrmp.txt acceptance 1"
SENDING = "early_hrmp.txt acceptance 2"
WATERMARK = "early_hrmp.txt acceptance 3"
ENACTMENT = "early_hrmp.txt enactment"
LANDING = (
    "H-I01",
    "which watermarks may a candidate name",
    "strictly greater than the last one, not above the relay parent number, and either that or the sent_at of a message in the DMQ",
)


def messages() -> Iterator[Trace]:
    """Yield the scenarios of the group ``messages``."""
    yield from _sending()
    yield from _refusals()
    yield from _limits()


def _sending() -> Iterator[Trace]:
    trace = Trace(
        "messages/sent-and-read",
        "a message lies in its recipient's queue with the block of enactment, and is counted in its channel until it is read",
        source=ENACTMENT,
    )
    trace.open((A, B), (A, C)).at(3).candidate(A, 2, {B: "010203", C: ""})
    trace.state(
        dmq={B: [hrmp(3, A, "010203")], C: [hrmp(3, A, "")]},
        channels={(A, B): channel(1, 3), (A, C): channel(1, 0)},
        watermarks={A: 2, B: None},
    )
    trace.at(7).candidate(B, 3).state(dmq={B: None}, channels={(A, B): channel()}, watermarks={A: 2, B: 3})
    trace.state(dmq_set=[str(C)])
    yield trace

    trace = Trace(
        "messages/in-order-of-enactment",
        "a queue holds the messages of all senders in the order in which their candidates came",
        source=f"{ENACTMENT} 2",
    )
    trace.open((A, D), (B, D), (C, D)).at(3).candidate(C, 2, {D: "03"}).candidate(A, 2, {D: "01"})
    trace.at(4).candidate(B, 3, {D: "02"}).candidate(A, 3, {D: "04"})
    trace.state(dmq={D: [hrmp(3, C, "03"), hrmp(3, A, "01"), hrmp(4, B, "02"), hrmp(4, A, "04")]})
    trace.state(channels={(A, D): channel(2, 2), (B, D): channel(1, 1), (C, D): channel(1, 1)})
    yield trace

    trace = Trace(
        "messages/all-of-a-block-at-once",
        "a watermark takes everything of its block and of blocks before it, from whomever, and frees each channel",
        source=f"{ENACTMENT} 1",
    )
    trace.open((A, C), (B, C)).at(3).downward(C, "ff").candidate(A, 2, {C: "01"}).candidate(B, 2, {C: "0202"})
    trace.at(4).candidate(A, 3, {C: "03"}).at(5).candidate(B, 4, {C: "04"}).at(6).candidate(C, 4)
    trace.state(dmq={C: [hrmp(5, B, "04")]}, channels={(A, C): channel(), (B, C): channel(1, 1)})
    yield trace

    trace = Trace(
        "messages/two-candidates-of-a-para-in-a-block",
        "each is checked against what the one before left",
        source="traces FORMAT step",
    )
    trace.open((A, B)).at(5).candidate(A, 3, {B: "01"}, error="Watermark/LandsOnBlockWithNoMessages", new_watermark=3)
    trace.candidate(A, 3, {B: "01"}, relay_parent=3).candidate(A, 4, {B: "02"})
    trace.state(dmq={B: [hrmp(5, A, "01"), hrmp(5, A, "02")]}, watermarks={A: 4}, channels={(A, B): channel(2, 2)})
    yield trace

    trace = Trace(
        "messages/a-candidate-reads-and-sends",
        "one candidate prunes its own queue and fills others",
        source=ENACTMENT,
    )
    trace.open((A, B), (B, A)).at(3).candidate(A, 2, {B: "01"}).at(4).candidate(B, 3, {A: "02"})
    trace.state(dmq={A: [hrmp(4, B, "02")]}, dmq_set=[str(A)], channels={(A, B): channel(), (B, A): channel(1, 1)})
    yield trace


def _refusals() -> Iterator[Trace]:
    trace = Trace(
        "messages/not-sorted",
        "recipients ascend; the whole list is looked at before any message is",
        source=ORDER,
    )
    trace.open((A, C)).at(3)
    trace.candidate(A, 2, {C: "01", B: "02"}, error="Outbound/NotSorted", idx=1)
    trace.candidate(A, 2, {B: "01", D: "02", C: "03"}, error="Outbound/NotSorted", idx=2)
    trace.candidate(A, 2, [(B, A, "01"), (A, D, "02"), (A, C, "03"), (A, B, "04")], error="Outbound/NotSorted", idx=2)
    trace.state(watermarks={A: None}, dmq_set=[])
    yield trace

    trace = Trace(
        "messages/duplicate-recipient",
        "one message a recipient; the first place where recipients do not ascend decides which error it is",
        source=ORDER,
        interpretation=("H-I10", "name of the error for two messages to one recipient", "Outbound/DuplicateRecipient"),
    )
    trace.open((A, B), (A, C)).at(3)
    trace.candidate(A, 2, [(A, B, "01"), (A, B, "02")], error="Outbound/DuplicateRecipient", idx=1, recipient=B)
    trace.candidate(
        A,
        2,
        [(A, B, "01"), (A, C, "02"), (A, C, "02"), (A, B, "03")],
        error="Outbound/DuplicateRecipient",
        idx=2,
        recipient=C,
    )
    trace.candidate(A, 2, [(A, C, "01"), (A, B, "02"), (A, B, "03")], error="Outbound/NotSorted", idx=1)
    trace.candidate(A, 2, {B: "01", C: "01"})
    yield trace

    trace = Trace(
        "messages/sender-mismatch",
        "a message names its candidate's para as its sender, which is looked at before the channel",
        source="xcmp_rules 1.3",
        interpretation=("H-I08", "sender field of HRMP_Message differs from the candidate para", "reject"),
    )
    trace.open((A, B), (C, B)).at(3).candidate(
        A, 2, [(C, B, "01")], error="Outbound/SenderMismatch", idx=0, sender=C, para=A
    )
    trace.candidate(
        A, 2, [(A, B, "01"), (NOBODY, D, "02")], error="Outbound/SenderMismatch", idx=1, sender=NOBODY, para=A
    )
    trace.candidate(A, 2, [(A, D, "01"), (C, E, "02")], error="Outbound/NoSuchChannel", idx=0, channel=name(A, D))
    trace.state(dmq_set=[])
    yield trace

    trace = Trace(
        "messages/no-such-channel", "the channel has to lead from the para to the recipient", source=f"{SENDING}.1"
    )
    trace.open((A, B), (A, C)).at(3).init(A, D).accept(D, 0)
    trace.candidate(B, 2, {A: "01"}, error="Outbound/NoSuchChannel", idx=0, channel=name(B, A))
    trace.candidate(A, 2, {B: "01", D: "02"}, error="Outbound/NoSuchChannel", idx=1, channel=name(A, D))
    trace.candidate(A, 2, {NOBODY: "01"}, error="Outbound/NoSuchChannel", idx=0, channel=name(A, NOBODY))
    trace.candidate(A, 2, {A: "01"}, error="Outbound/NoSuchChannel", idx=0, channel=name(A, A))
    trace.state(dmq_set=[], watermarks={A: None, B: None})
    yield trace

    trace = Trace(
        "messages/sealed-before-full",
        "a sealed channel takes nothing, which is looked at before its room",
        source=f"{SENDING}.1",
        config={"hrmp_channel_max_places": 1},
    )
    trace.open((A, B)).at(3).close(B, A, B).at(3).candidate(A, 2, {B: "01"}).at(4).session()
    trace.at(5).candidate(A, 4, {B: "02"}, error="Outbound/ChannelSealed", idx=0, channel=name(A, B))
    yield trace

    trace = Trace(
        "messages/unknown-para",
        "a candidate of a para that is not registered is refused before anything in it is looked at",
        source="xcmp_rules 2.3",
        interpretation=("H-I12", "candidate of a para that is not registered", "reject"),
    )
    trace.at(3).candidate(NOBODY, 2, error="Candidate/UnknownPara", para=NOBODY)
    trace.candidate(NOBODY, 9, {B: "01", A: "02"}, error="Candidate/UnknownPara", para=NOBODY)
    trace.state(watermarks={NOBODY: None})
    yield trace

    trace = Trace(
        "messages/refused-whole",
        "a refused candidate changes nothing: no message of it is sent, nothing is pruned, the watermark stays",
        source="traces FORMAT, rejected inputs",
    )
    trace.open((A, B), (B, C)).at(3).candidate(A, 2, {B: "01"}).at(4)
    trace.candidate(B, 3, {C: "02", D: "03"}, error="Outbound/NoSuchChannel", idx=1, channel=name(B, D))
    trace.candidate(B, 2, {C: "02"}, error="Watermark/LandsOnBlockWithNoMessages", new_watermark=2)
    trace.state(
        dmq={B: [hrmp(3, A, "01")], C: None}, watermarks={B: None}, channels={(A, B): channel(1, 1), (B, C): channel()}
    )
    yield trace

    trace = Trace(
        "messages/before-the-watermark",
        "messages are looked at before the watermark",
        source="early_hrmp.txt acceptance",
    )
    trace.open((A, B)).at(3).candidate(A, 5, {C: "01"}, error="Outbound/NoSuchChannel", idx=0, channel=name(A, C))
    trace.candidate(A, 5, {B: "01"}, error="Watermark/AheadRelayParent", new_watermark=5, relay_parent_number=2)
    yield trace


def _limits() -> Iterator[Trace]:
    trace = Trace(
        "messages/places",
        "a channel holds as many messages as there are places; one that is read makes room for one",
        source=f"{SENDING}.2",
        config={"hrmp_channel_max_places": 2},
    )
    trace.open((A, B)).at(3).candidate(A, 2, {B: "01"}).at(4).candidate(A, 3, {B: ""})
    trace.at(5).candidate(A, 4, {B: ""}, error="Outbound/CapacityExceeded", idx=0, count=3, limit=2)
    trace.candidate(A, 4).at(6).candidate(B, 3).candidate(A, 5, {B: "03"})
    trace.state(channels={(A, B): channel(2, 1)}, dmq={B: [hrmp(4, A, ""), hrmp(6, A, "03")]})
    yield trace

    trace = Trace(
        "messages/bytes",
        "a channel holds as many bytes of payload as are allowed, and not one more",
        source=f"{SENDING}.2",
        config={"hrmp_channel_max_size": 5},
    )
    trace.open((A, B)).at(3).candidate(
        A, 2, {B: "010203040506"}, error="Outbound/TotalSizeExceeded", idx=0, total_size=6, limit=5
    )
    trace.candidate(A, 2, {B: "010203"}).at(4)
    trace.candidate(A, 3, {B: "040506"}, error="Outbound/TotalSizeExceeded", idx=0, total_size=6, limit=5)
    trace.candidate(A, 3, {B: "0405"}).at(5).candidate(A, 4, {B: ""}).state(channels={(A, B): channel(3, 5)})
    trace.at(6).candidate(B, 3).candidate(A, 5, {B: "070809"}).state(channels={(A, B): channel(3, 5)})
    yield trace

    trace = Trace(
        "messages/places-before-bytes",
        "where a message finds neither place nor bytes, the place is told",
        source=f"{SENDING}.2, xcmp_rules 1.3",
        config={"hrmp_channel_max_places": 1, "hrmp_channel_max_size": 1},
    )
    trace.open((A, B)).at(3).candidate(A, 2, {B: "01"})
    trace.at(4).candidate(A, 3, {B: "0203"}, error="Outbound/CapacityExceeded", idx=0, count=2, limit=1)
    yield trace

    trace = Trace(
        "messages/limits-are-of-a-channel",
        "neither a sender's other channels nor the recipient's other senders take room, and the first message that does not fit is told",
        source=f"{SENDING}.2",
        config={"hrmp_channel_max_places": 1},
    )
    trace.open((A, B), (A, C), (D, B)).at(3).candidate(A, 2, {B: "01"}).candidate(D, 2, {B: "02"})
    trace.at(4).candidate(A, 3, {C: "03"}).state(
        channels={(A, B): channel(1, 1), (A, C): channel(1, 1), (D, B): channel(1, 1)}
    )
    trace.at(5).candidate(B, 3).candidate(
        A, 4, {B: "04", C: "05"}, error="Outbound/CapacityExceeded", idx=1, count=2, limit=1
    )
    yield trace

    trace = Trace(
        "messages/no-other-limits",
        "a message may be as long as its channel is, a candidate may have a message for every channel",
        source="xcmp_rules 1.3",
        paras=dict.fromkeys((A, B, C, D, E), BALANCE),
    )
    trace.open((A, B), (A, C), (A, D), (A, E)).at(3).candidate(A, 2, dict.fromkeys((B, C, D, E), "0a" * 20))
    trace.state(channels={(A, each): channel(1, 20) for each in (B, C, D, E)})
    yield trace

    trace = Trace(
        "messages/limits-change",
        "limits are those of the configuration as it is: they hold from the boundary on, and a smaller one finds a channel over-full",
        source="xcmp_rules 1.3, global configuration",
    )
    trace.open((A, B)).at(3).candidate(A, 2, {B: "01"}).at(4).candidate(A, 3, {B: "02"})
    trace.at(5).candidate(A, 4, {B: "03"}).session(new_config={"hrmp_channel_max_places": 1})
    trace.at(6).candidate(A, 5, {B: "04"}, error="Outbound/CapacityExceeded", idx=0, count=4, limit=1)
    trace.candidate(A, 5).session(new_config={"hrmp_channel_max_places": 9, "hrmp_channel_max_size": 2})
    trace.at(7).candidate(A, 6, {B: ""}, error="Outbound/TotalSizeExceeded", idx=0, total_size=3, limit=2)
    trace.candidate(A, 6).session(new_config={"hrmp_channel_max_size": 4}).at(8).candidate(A, 7, {B: "04"})
    trace.state(channels={(A, B): channel(4, 4)}, balances={A: balance(10)})
    yield trace

    trace = Trace(
        "messages/nothing-allowed",
        "limits of zero allow channels, but no message",
        source=f"{SENDING}.2",
        config={"hrmp_channel_max_places": 0, "hrmp_channel_max_size": 0},
    )
    trace.open((A, B)).at(3).candidate(A, 2, {B: ""}, error="Outbound/CapacityExceeded", idx=0, count=1, limit=0)
    trace.candidate(A, 2)
    yield trace


def watermarks() -> Iterator[Trace]:
    """Yield the scenarios of the group ``watermark``."""
    trace = Trace(
        "watermark/first-one",
        "without a last watermark every landing will do, block 0 included",
        source=f"{WATERMARK}.1",
    )
    trace.at(1).candidate(A, 0).candidate(
        B, 1, error="Watermark/AheadRelayParent", new_watermark=1, relay_parent_number=0
    )
    trace.state(watermarks={A: 0, B: None})
    yield trace

    trace = Trace(
        "watermark/advances-strictly",
        "neither back nor the same again, not even where that is the relay parent",
        source=f"{WATERMARK}.1",
    )
    trace.at(5).candidate(A, 4).candidate(A, 4, error="Watermark/AdvancementRule", new_watermark=4, last_watermark=4)
    trace.at(7).candidate(A, 3, relay_parent=3, error="Watermark/AdvancementRule", new_watermark=3, last_watermark=4)
    trace.candidate(A, 3, relay_parent=2, error="Watermark/AdvancementRule", new_watermark=3, last_watermark=4)
    trace.candidate(A, 5, relay_parent=5).candidate(A, 6).state(watermarks={A: 6})
    yield trace

    trace = Trace(
        "watermark/not-above-the-relay-parent",
        "the candidate's own relay parent is the bound, which need not be the block before; a message above it does not help",
        source="xcmp_rules 1.3",
        interpretation=LANDING,
    )
    trace.open((A, B)).at(3).candidate(A, 2, {B: "01"}).at(9)
    trace.candidate(B, 9, error="Watermark/AheadRelayParent", new_watermark=9, relay_parent_number=8)
    trace.candidate(B, 3, relay_parent=2, error="Watermark/AheadRelayParent", new_watermark=3, relay_parent_number=2)
    trace.candidate(B, 2, relay_parent=2).candidate(B, 3, relay_parent=3).state(watermarks={B: 3}, dmq_set=[])
    yield trace

    trace = Trace(
        "watermark/lands-on-a-message",
        "below the relay parent only blocks whose messages still wait in the para's own queue, of whatever kind",
        source=f"{WATERMARK}.2",
        interpretation=LANDING,
    )
    trace.open((A, B), (A, C)).at(3).candidate(A, 2, {B: "01"}).at(4).downward(B, "ff").at(5).downward(C, "ff")
    trace.candidate(A, 4, {C: "02"}).at(6).candidate(A, 5, {B: "03"}).at(9)
    for block in (2, 5, 7):
        trace.candidate(B, block, error="Watermark/LandsOnBlockWithNoMessages", new_watermark=block)
    trace.candidate(B, 3).state(dmq={B: [relay(4, "ff"), hrmp(6, A, "03")]}).at(10)
    trace.candidate(B, 4).state(dmq={B: [hrmp(6, A, "03")]}, watermarks={B: 4})
    trace.at(11).candidate(B, 5, error="Watermark/LandsOnBlockWithNoMessages", new_watermark=5)
    trace.candidate(B, 8, error="Watermark/LandsOnBlockWithNoMessages", new_watermark=8)
    trace.candidate(B, 10).state(dmq={B: None}, watermarks={B: 10})
    yield trace

    trace = Trace(
        "watermark/not-below-the-first-message-only",
        "a block after the first message that has none itself is no landing",
        source=f"{WATERMARK}.2",
        interpretation=LANDING,
    )
    trace.at(3).downward(A, "01").at(6).downward(A, "02").at(9)
    trace.candidate(A, 4, error="Watermark/LandsOnBlockWithNoMessages", new_watermark=4)
    trace.candidate(A, 6).state(dmq_set=[])
    yield trace

    trace = Trace(
        "watermark/the-relay-parent-passes-messages",
        "a watermark at the relay parent takes all that came up to it; what came in the candidate's own block waits",
        source=f"{ENACTMENT} 1",
    )
    trace.at(3).downward(A, "01").at(5).downward(A, "02").at(7).downward(A, "03").candidate(A, 6)
    trace.state(dmq={A: [relay(7, "03")]}, watermarks={A: 6})
    yield trace

    trace = Trace(
        "watermark/order", "advance, relay parent, landing: the first that is broken is told", source="xcmp_rules 1.3"
    )
    trace.at(5).candidate(A, 4).at(6)
    trace.candidate(A, 4, relay_parent=3, error="Watermark/AdvancementRule", new_watermark=4, last_watermark=4)
    trace.candidate(A, 3, error="Watermark/AdvancementRule", new_watermark=3, last_watermark=4)
    trace.at(9).candidate(A, 9, error="Watermark/AheadRelayParent", new_watermark=9, relay_parent_number=8)
    trace.candidate(A, 6, error="Watermark/LandsOnBlockWithNoMessages", new_watermark=6)
    yield trace


def downward() -> Iterator[Trace]:
    """Yield the scenarios of the group ``downward``."""
    trace = Trace(
        "downward/between-messages",
        "messages of the relay chain stand in the same queue, in the order in which they came, and use no channel",
        source="xcmp_rules 1.3, dmq",
    )
    trace.open((A, B)).at(3).candidate(A, 2, {B: "01"}).at(3).downward(B, "f1").at(4).downward(B, "f2").candidate(
        A, 3, {B: "02"}
    )
    trace.state(
        dmq={B: [hrmp(3, A, "01"), relay(3, "f1"), relay(4, "f2"), hrmp(4, A, "02")]},
        channels={(A, B): channel(2, 2)},
    )
    trace.at(5).candidate(B, 3).state(dmq={B: [relay(4, "f2"), hrmp(4, A, "02")]}, channels={(A, B): channel(1, 1)})
    yield trace

    trace = Trace(
        "downward/no-limits",
        "neither number nor size of the relay chain's messages is limited",
        source="xcmp_rules 1.3",
    )
    trace.at(3).downward(A, "0a" * 100)
    for _ in range(5):
        trace.downward(A, "")
    trace.state(dmq={A: [relay(3, "0a" * 100), *[relay(3, "")] * 5]})
    yield trace

    trace = Trace(
        "downward/not-registered",
        "a para that is not registered yet has a queue, too, and finds it when it comes",
        source="router_rules I-20",
    )
    trace.at(3).downward(NOBODY, "01").session(onboarding={NOBODY: 50}).state(dmq={NOBODY: [relay(3, "01")]})
    trace.at(4).candidate(NOBODY, 3).state(dmq_set=[], watermarks={NOBODY: 3})
    yield trace
