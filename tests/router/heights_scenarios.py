# SPDX-License-Identifier: Apache-2.0
"""Rules by height: which entry of a chain's list holds, kinds of requests that are not in force, names that every profile keeps."""

from __future__ import annotations

from collections.abc import Iterator

from tests.router.trace import NOT_IN_FORCE, WITH_SYSTEM, Trace

S, R = 1000, 1001
A, B, C, T, U = 2000, 2001, 2002, 2003, 2004
STRANGER = 2999
FULL = {"free": 100, "reserved": 0}
ASKED_BY_A = "07" + "411f" + "20" + "10"  # compact: 2000; 8 bytes a message; 4 places


def scenarios() -> Iterator[Trace]:
    """Yield the scenarios of the group ``heights``."""
    trace = Trace(
        "heights/every-later-request-before-and-after-its-rules",
        "a kind that does not hold is refused before its arguments are looked at; it holds from the named block on",
        source="router_profiles 1",
        rules={4: "router/2025-07"},
        paras=WITH_SYSTEM,
        interpretation=("PR-01", "the first block of new rules", "the block that the list names, from its start on"),
    )
    for block in (1, 3):
        trace.at(block)
        trace.cancel(A, A, S, error=NOT_IN_FORCE).cancel(STRANGER, A, S, error=NOT_IN_FORCE)
        trace.force(A, S, error=NOT_IN_FORCE).force(A, A, 0, 0, error=NOT_IN_FORCE)
        trace.establish(S, R, error=NOT_IN_FORCE).establish(A, A, error=NOT_IN_FORCE)
        trace.establish_with(A, R, error=NOT_IN_FORCE).establish_with(A, B, error=NOT_IN_FORCE)
        trace.poke(A, S, error=NOT_IN_FORCE).service(A, 0, 0, 10, error=NOT_IN_FORCE)
        trace.state(open_request_set=[], open_request_count={A: 0}, ready_ring=None, ump_overweight=None)
    trace.at(4).force(A, S).establish(S, R).establish_with(A, R)
    trace.cancel(A, A, S, error="OpenHrmpChannelAlreadyConfirmed").poke(A, S, error="OpenHrmpChannelDoesntExist")
    trace.service(A, 0, 0, 10, error="NoPage").init(A, B).cancel(A, A, B)
    trace.state(
        open_request_set=["1000->1001", "1001->2000", "2000->1000", "2000->1001"],
        open_request_count={S: 1, R: 1, A: 2},
        accepted_request_count={S: 1, R: 2, A: 1},
        balances={S: FULL, R: FULL, A: FULL},
        ready_ring=[],
        ump_overweight=dict.fromkeys((A, B, C)),
    )
    trace.at(5).session().state(channel_set=["1000->1001", "1001->2000", "2000->1000", "2000->1001"])
    trace.at(6).poke(A, S).poke(S, A, error="OpenHrmpChannelDoesntExist")
    yield trace

    trace = Trace(
        "heights/service-holds-with-its-queue",
        "servicing a message is refused until message_queue holds",
        source="router_profiles 1",
        rules={2: ["message_queue"]},
        weights={"aa": 500},
    )
    trace.at(1).service(A, 0, 0, 500, error=NOT_IN_FORCE)
    trace.at(2).candidate(A, up=("aa",)).dispatched().state(ump_overweight={A: [{"page": 0, "index": 0, "msg": "aa"}]})
    trace.at(3).service(A, 0, 0, 500).dispatched((A, "aa"))
    yield trace

    trace = Trace(
        "heights/entries-replace-each-other",
        "an entry holds as a whole: what only the entry before names is off again, and an empty one ends everything",
        source="router_profiles 1",
        rules={2: ["cancel_open_request", "hrmp_notifications"], 4: ["no_ttl"], 6: []},
    )
    trace.at(1).init(A, B).cancel(A, A, B, error=NOT_IN_FORCE).state(dmq={B: None})
    trace.at(2).init(A, C).state(dmq={B: None, C: [{"sent_at": 2, "msg": ASKED_BY_A}]})
    trace.at(3).cancel(A, A, C).state(open_request_set=["2000->2001"])
    trace.at(4).init(A, C).cancel(A, A, C, error=NOT_IN_FORCE).state(dmq={C: [{"sent_at": 2, "msg": ASKED_BY_A}]})
    trace.at(5).session().state(open_requests={(A, B): {"age": 0}, (A, C): {"age": 0}})
    trace.at(6).session().state(open_requests={(A, B): {"age": 1}, (A, C): {"age": 1}})
    trace.at(7).session().state(open_request_set=[], open_request_count={A: 0}, balances={A: FULL})
    yield trace

    trace = Trace(
        "heights/profiles-by-name",
        "a profile's name stands for its features; the list may return to the first profile",
        source="router_profiles 2",
        rules={0: "router/2020-11", 3: "router/2021-02", 5: "router/seed"},
        config={"hrmp_notification_xcm_version": 3},
    )
    trace.at(0).init(A, B).state(dmq={B: [{"sent_at": 0, "msg": ASKED_BY_A}]})
    trace.at(2).init(A, C).state(dmq={C: [{"sent_at": 2, "msg": ASKED_BY_A}]})
    trace.at(3).init(A, T).state(dmq={T: [{"sent_at": 3, "msg": "0304" + ASKED_BY_A}]})
    trace.at(5).init(B, U).state(
        dmq={U: None}, open_request_set=["2000->2001", "2000->2002", "2000->2003", "2001->2004"]
    )
    yield trace
    yield _every_profile()

    trace = Trace(
        "heights/a-switch-between-named-blocks",
        "entries whose blocks nothing names hold from their block on, and only the last one counts",
        source="router_profiles 1",
        rules={3: ["cancel_open_request"], 5: ["hrmp_notifications"]},
    )
    trace.at(2).init(A, B)
    trace.at(9).cancel(A, A, B, error=NOT_IN_FORCE).init(A, C)
    trace.state(dmq={C: [{"sent_at": 9, "msg": ASKED_BY_A}]}, open_request_set=["2000->2001", "2000->2002"])
    yield trace

    trace = Trace(
        "heights/features-that-change-the-same-step",
        "the session change of a block follows the block's own rules",
        source="router_profiles 1",
        rules={3: ["no_ttl"], 4: []},
        config={"hrmp_open_request_ttl": 5},
    )
    trace.at(1).init(A, B)
    trace.at(2).session().state(open_requests={(A, B): {"age": 1}})
    trace.at(3).session().state(open_requests={(A, B): {"age": 1}})
    trace.at(4).session().state(open_requests={(A, B): {"age": 2}})
    yield trace

    trace = Trace(
        "heights/cleanup-twice-and-of-a-stranger",
        "under every profile a para may be scheduled twice, and one that nobody knows may be, too",
        source="router_profiles 4",
        rules={1: "router/2025-07"},
        interpretation=("PR-15", "scheduling a para twice, or an unknown one", "good, and listed once"),
    )
    trace.at(1).cleanup(A).cleanup(A).cleanup(STRANGER).state(outgoing_paras=[A, STRANGER], valid_paras=[A, B, C, T, U])
    trace.at(2).session().state(outgoing_paras=[], valid_paras=[B, C, T, U])
    yield trace

    trace = Trace(
        "heights/names-by-meaning-in-every-profile",
        "also under a profile whose chain swapped the two names",
        source="router_profiles 4",
        rules={0: "router/2020-11"},
        interpretation=("PR-16", "which of two names says that a request exists", "by meaning"),
    )
    trace.at(1).init(A, B).init(A, B, error="OpenHrmpChannelAlreadyRequested").accept(B, A)
    trace.at(2).session().at(3).init(A, B, error="OpenHrmpChannelAlreadyExists")
    yield trace


def _every_profile() -> Trace:
    """Go through all profiles, a block each, and show what each brings in its block and not before."""
    names = ("2020-11", "2021-02", "2021-09", "2022-10", "2023-04", "2023-05", "2023-06", "2023-07", "2023-08")
    leaver = 2005
    trace = Trace(
        "heights/every-profile-in-its-turn",
        "each profile brings its features in its first block, and none of them holds in the block before",
        source="router_profiles 2",
        rules={at: f"router/{name}" for at, name in enumerate((*names, "2024-05", "2024-12", "2025-07"), 1)},
        paras={**WITH_SYSTEM, C: "parachain", U: "parathread", leaver: "parachain"},
        config={"max_downward_message_size": 20_000_000},  # 1 may wait before one is added
    )
    again = "HrmpWatermark/AdvancementRule"
    trace.at(0).init(A, B).state(dmq={B: None})
    trace.at(1).init(A, C).state(dmq={C: [{"sent_at": 1, "msg": ASKED_BY_A}]})
    trace.at(2).init(A, leaver).cancel(A, A, C, error=NOT_IN_FORCE).state(
        dmq={leaver: [{"sent_at": 2, "msg": "00" + ASKED_BY_A}]}
    )
    trace.at(3).cancel(A, A, C).force(A, B, error=NOT_IN_FORCE).session(leaver).state(
        open_request_set=["2000->2001"], open_requests={(A, B): {"age": 0}}, balances={A: {"free": 90, "reserved": 10}}
    )
    trace.at(4).force(A, B, error="OpenHrmpChannelAlreadyRequested").downward(U, "01").downward(U, "02").downward(
        U, "03"
    )
    trace.at(5).downward(U, "04", error="ExceedsMaxMessageSize")
    trace.candidate(R, 4).candidate(R, 4, error=again, new_watermark=4, last_watermark=4)
    trace.at(6).force(A, B, error="OpenHrmpChannelAlreadyRequested").candidate(R, 5).candidate(R, 5)
    trace.at(7).force(A, B).service(A, 0, 0, 1, error=NOT_IN_FORCE).state(ready_ring=None)
    trace.at(8).service(A, 0, 0, 1, error="NoPage").init(T, A).init(T, B, error="OpenHrmpChannelLimitExceeded")
    trace.downward(R, "aa").candidate(R, 7, error="ProcessedDownwardMessages/AdvancementRule")
    trace.at(9).init(T, B).candidate(R, 7, relay_parent=7).establish(S, R, error=NOT_IN_FORCE)
    trace.poke(A, B, error=NOT_IN_FORCE).establish_with(A, S, error=NOT_IN_FORCE)
    trace.at(10).establish(S, R).poke(A, B, error="OpenHrmpChannelDoesntExist").establish_with(A, S)
    trace.downward(STRANGER, "bb").state(balances={S: FULL, A: {"free": 90, "reserved": 10}})
    trace.at(11).downward(STRANGER, "cc", error="Unroutable")
    trace.candidate(R, 7, processed=1, error=again, new_watermark=7, last_watermark=7)
    trace.at(12).candidate(R, 7, processed=1).state(watermarks={R: 7})
    return trace
