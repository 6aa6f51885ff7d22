# SPDX-License-Identifier: Apache-2.0
"""The features hrmp_notifications and versioned_notifications: what requests queue for the other party, and what is dropped."""

from __future__ import annotations

from collections.abc import Iterator

from validator_simulators.router.model import ZERO_HASH, next_head

from tests.router.trace import WITH_SYSTEM, Trace

S = 1000
A, B, C, T, U = 2000, 2001, 2002, 2003, 2004
COMPACT = {S: "a10f", A: "411f", B: "451f", C: "491f", T: "4d1f", U: "511f"}
VERSION = "hrmp_notification_xcm_version"
PLAIN = ("hrmp_notifications",)
VERSIONED = ("versioned_notifications",)


def asked(origin: int, size: str = "20", places: str = "10") -> str:
    """Return the bytes of 07; size 8 and 4 places unless given, as compact integers."""
    return "07" + COMPACT[origin] + size + places


def accepted(origin: int) -> str:
    """Return the bytes of 08."""
    return "08" + COMPACT[origin]


def closing(initiator: int, sender: int, recipient: int) -> str:
    """Return the bytes of 09."""
    return "09" + COMPACT[initiator] + COMPACT[sender] + COMPACT[recipient]


def scenarios() -> Iterator[Trace]:
    """Yield the scenarios of the group ``later_notifications``."""
    trace = Trace(
        "later_notifications/on-and-off",
        "nothing is sent for what is pending; acceptance and closure of it are sent, until the feature is off again",
        source="router_profiles 3.1",
        rules={3: PLAIN, 8: []},
    )
    trace.at(1).init(A, B).init(A, C)
    trace.at(3).state(dmq={A: None, B: None, C: None})
    trace.at(3).accept(B, A).init(B, C, 2, 7)
    head = next_head(ZERO_HASH, 3, accepted(B))
    trace.state(
        dmq={
            A: [{"sent_at": 3, "msg": accepted(B)}],
            B: None,
            C: [{"sent_at": 3, "msg": asked(B, size="1c", places="08")}],
        },
        dmq_heads={A: head, B: None},
    )
    trace.at(4).candidate(A, error="ProcessedDownwardMessages/AdvancementRule").candidate(A, processed=1)
    trace.session().state(channel_set=["2000->2001"], dmq={A: None}, dmq_heads={A: head})
    trace.at(5).close(B, A, B)
    trace.state(
        dmq={A: [{"sent_at": 5, "msg": closing(B, A, B)}], B: None},
        dmq_heads={A: next_head(head, 5, closing(B, A, B))},
    )
    trace.at(8).init(A, T).state(dmq={T: None}).at(9).session().state(channel_set=[], dmq={B: None})
    yield trace

    trace = Trace(
        "later_notifications/closure-by-the-sender",
        "the recipient gets it",
        source="router_profiles 3.1",
        rules={0: PLAIN},
    )
    trace.open((A, B))
    trace.at(3).close(A, A, B).state(
        dmq={B: [{"sent_at": 1, "msg": asked(A)}, {"sent_at": 3, "msg": closing(A, A, B)}]}
    )
    trace.at(3).candidate(B, processed=1).state(dmq={B: [{"sent_at": 3, "msg": closing(A, A, B)}]})
    yield trace

    trace = Trace(
        "later_notifications/a-request-that-fails-sends-nothing",
        "no message for a request, an acceptance or a closure that is refused",
        source="router_profiles 3.1",
        rules={0: VERSIONED},
        balances={A: 9},
    )
    trace.at(1).init(A, B, error="InsufficientBalance").accept(A, B, error="AcceptHrmpChannelDoesntExist")
    trace.close(A, A, B, error="CloseHrmpChannelDoesntExist").state(dmq={A: None, B: None}, dmq_heads={B: None})
    yield trace

    trace = Trace(
        "later_notifications/versions",
        "versions 0 and 1 put their number before the message, later ones also the length of a list; the configuration of now decides",
        source="router_profiles 3.2",
        rules={0: VERSIONED},
    )
    to_a: list[dict[str, object]] = []

    def more(block: int, msg: str) -> dict[int, list[dict[str, object]]]:
        to_a.append({"sent_at": block, "msg": msg})
        return {A: list(to_a)}

    trace.at(1).init(A, B).state(dmq={B: [{"sent_at": 1, "msg": "00" + asked(A)}]})
    trace.at(2).accept(B, A).session(**{VERSION: 1}).state(dmq=more(2, "00" + accepted(B)))
    trace.at(3).close(B, A, B).state(dmq=more(3, "01" + closing(B, A, B)))
    trace.at(4).init(C, A).session(**{VERSION: 2}).state(dmq=more(4, "01" + asked(C)))
    trace.at(5).init(B, A).session(**{VERSION: 3}).state(dmq=more(5, "0204" + asked(B)))
    trace.at(6).init(T, A, 1, 1).session(**{VERSION: 4}).state(dmq=more(6, "0304" + asked(T, "04", "04")))
    trace.at(7).init(U, A).session(**{VERSION: 5}).state(dmq=more(7, "0404" + asked(U)))
    trace.at(8).init(A, U).accept(U, A).session(**{VERSION: 0}).state(dmq=more(8, "0504" + accepted(U)))
    trace.at(9).close(U, A, U).state(dmq=more(9, "00" + closing(U, A, U)))
    yield trace

    trace = Trace(
        "later_notifications/a-version-adds-to-the-length",
        "one byte of version still fits, version and list do not: dropped without a trace, the request stands",
        source="router_profiles 3.1",
        rules={1: PLAIN, 3: VERSIONED},
        config={"max_downward_message_size": 6, VERSION: 1},
    )
    trace.at(1).init(A, B).state(dmq={B: [{"sent_at": 1, "msg": asked(A)}]})
    trace.at(3).init(B, A).session(**{VERSION: 2}).state(dmq={A: [{"sent_at": 3, "msg": "01" + asked(B)}]})
    trace.at(4).init(A, C).state(dmq={C: None}, dmq_heads={C: None}, open_requests={(A, C): {"confirmed": False}})
    trace.at(4).accept(C, A).state(
        dmq={A: [{"sent_at": 3, "msg": "01" + asked(B)}, {"sent_at": 4, "msg": "0204" + accepted(C)}]}
    )
    trace.at(4).downward(C, "00" * 7, error="ExceedsMaxMessageSize").downward(C, "00" * 6)
    yield trace

    trace = Trace(
        "later_notifications/a-full-queue",
        "a notification counts for the queue's length, and one for a full queue is dropped without a trace",
        source="router_profiles 3.1",
        rules={0: ("hrmp_notifications", "dmq_length_limit")},
        config={"max_downward_message_size": 11_184_811},  # 2 may wait before one is added
    )
    trace.at(1).downward(B, "01").downward(B, "02")
    waiting = [{"sent_at": 1, "msg": "01"}, {"sent_at": 1, "msg": "02"}, {"sent_at": 2, "msg": asked(A)}]
    head = next_head(next_head(next_head(ZERO_HASH, 1, "01"), 1, "02"), 2, asked(A))
    trace.at(2).init(A, B).init(C, B).state(
        dmq={B: waiting}, dmq_heads={B: head}, open_request_set=["2000->2001", "2002->2001"]
    )
    trace.at(2).downward(B, "03", error="ExceedsMaxMessageSize")
    trace.at(3).candidate(B, processed=1)
    trace.at(4).init(U, B).state(
        dmq={B: [*waiting[1:], {"sent_at": 4, "msg": asked(U)}]}, dmq_heads={B: next_head(head, 4, asked(U))}
    )
    yield trace

    trace = Trace(
        "later_notifications/to-a-para-that-is-gone",
        "its queue dangles, until downward messages need a head: then nothing is added and the request stands",
        source="router_profiles 3.1",
        rules={0: PLAIN, 3: ("hrmp_notifications", "downward_needs_head")},
        interpretation=("I-20", "downward message to an unknown para", "accepted, until downward_needs_head holds"),
    )
    trace.at(1).init(A, B).init(A, C).session(A).state(open_requests={(A, B): {"age": 1}})
    trace.at(2).accept(B, A).state(dmq={A: [{"sent_at": 2, "msg": accepted(B)}]})
    trace.at(3).accept(C, A).state(
        dmq={A: [{"sent_at": 2, "msg": accepted(B)}]},
        dmq_heads={A: next_head(ZERO_HASH, 2, accepted(B))},
        open_requests={(A, C): {"confirmed": True}},
    )
    yield trace

    trace = Trace(
        "later_notifications/requests-of-several-parts",
        "each part sends what it sends alone, in the order of the parts; a part that fails takes all of it back",
        source="router_profiles 3.1",
        rules={0: ("versioned_notifications", "force_open_channel", "establish_channel_with_system")},
        paras=WITH_SYSTEM,
        config={VERSION: 2, "hrmp_max_parachain_inbound_channels": 1},
    )
    trace.at(1).force(B, A, 3, 2).state(
        dmq={
            A: [{"sent_at": 1, "msg": "0204" + asked(B, size="08", places="0c")}],
            B: [{"sent_at": 1, "msg": "0204" + accepted(A)}],
        }
    )
    # the last part, the acceptance by 2000, exceeds its one inbound channel
    trace.at(2).establish_with(A, S, error="AcceptHrmpChannelLimitExceeded").state(
        dmq={S: None, A: [{"sent_at": 1, "msg": "0204" + asked(B, size="08", places="0c")}]},
        dmq_heads={S: None},
        open_request_set=["2001->2000"],
    )
    trace.at(3).establish_with(B, S).state(
        dmq={
            S: [{"sent_at": 3, "msg": "0204" + asked(B)}, {"sent_at": 3, "msg": "0204" + accepted(B)}],
            B: [
                {"sent_at": 1, "msg": "0204" + accepted(A)},
                {"sent_at": 3, "msg": "0204" + accepted(S)},
                {"sent_at": 3, "msg": "0204" + asked(S)},
            ],
        }
    )
    yield trace

    trace = Trace(
        "later_notifications/what-sends-nothing",
        "a cancellation, a cleared request, an expiry, changed deposits, a serviced message and the session change are silent",
        source="router_profiles 3.1",
        rules={
            0: (
                *("hrmp_notifications", "cancel_open_request", "clean_open_channel_requests"),
                *("force_open_channel", "poke_channel_deposits", "message_queue"),
            )
        },
        weights={"ee": 101},
    )
    told = [{"sent_at": 1, "msg": asked(A)}]
    trace.at(1).init(A, B).cancel(B, A, B).init(A, C).init(T, U).candidate(C, up=("ee",), processed=1)
    trace.state(dmq={A: None, B: told, U: [{"sent_at": 1, "msg": asked(T)}]})
    trace.at(2).service(C, 0, 0, 101).dispatched((C, "ee")).session(C).state(
        dmq={A: None, C: None, T: None}, open_request_set=["2003->2004"]
    )
    trace.at(3).session().state(dmq={A: None, T: None, U: [{"sent_at": 1, "msg": asked(T)}]}, open_request_set=[])
    trace.at(4).init(A, B).force(A, B).session(hrmp_sender_deposit=12).state(
        dmq={
            A: [{"sent_at": 4, "msg": accepted(B)}],
            B: [*told, {"sent_at": 4, "msg": asked(A)}, {"sent_at": 4, "msg": asked(A)}],
        },
        channel_set=["2000->2001"],
    )
    trace.at(5).poke(A, B).state(
        dmq={A: [{"sent_at": 4, "msg": accepted(B)}]}, balances={A: {"free": 88, "reserved": 12}}
    )
    yield trace
