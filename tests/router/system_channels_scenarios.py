# SPDX-License-Identifier: Apache-2.0
"""Channels with system paras: no deposits, channels that are opened at once, and deposits that are brought up to date."""

from __future__ import annotations

from collections.abc import Iterator

from tests.router.trace import WITH_SYSTEM, Trace

S, R = 1000, 1001
A, B, T = 2000, 2001, 2003
LAST_SYSTEM = 1999
STRANGER = 2999
FULL = {"free": 100, "reserved": 0}
EMPTY = {"free": 0, "reserved": 0}
NOT_AUTHORIZED = "ChannelCreationNotAuthorized"


def scenarios() -> Iterator[Trace]:
    """Yield the scenarios of the group ``system_channels``."""
    yield from _deposits()
    yield from _system_channel()
    yield from _with_system()
    yield from _poke()


def _deposits() -> Iterator[Trace]:
    free = ["system_channels_without_deposits"]
    trace = Trace(
        "system_channels/no-deposits-with-a-system-para",
        "nothing is taken if either party's id is below 2000, not even from an empty account",
        source="router_profiles 3.12",
        rules={0: free},
        paras={0: "parachain", LAST_SYSTEM: "parachain", A: "parachain", B: "parachain"},
        balances={0: 0, LAST_SYSTEM: 0, A: 0},
        interpretation=("PR-13", "whose id decides over deposits", "either party's"),
    )
    trace.at(1).init(A, LAST_SYSTEM).accept(LAST_SYSTEM, A).init(LAST_SYSTEM, A).accept(A, LAST_SYSTEM).init(
        0, LAST_SYSTEM
    )
    trace.init(A, B, error="InsufficientBalance").init(B, A).accept(A, B, error="InsufficientBalance").accept(
        LAST_SYSTEM, 0
    )
    trace.state(
        open_requests={(A, LAST_SYSTEM): {"sender_deposit": 0}, (B, A): {"sender_deposit": 10}},
        balances={B: {"free": 90, "reserved": 10}},
    )
    trace.at(2).session().state(
        channels={
            (0, LAST_SYSTEM): {"sender_deposit": 0, "recipient_deposit": 0},
            (A, LAST_SYSTEM): {"sender_deposit": 0, "recipient_deposit": 0},
            (LAST_SYSTEM, A): {"sender_deposit": 0, "recipient_deposit": 0},
        }
    )
    trace.at(3).close(A, A, LAST_SYSTEM).session().state(
        balances={A: EMPTY, LAST_SYSTEM: EMPTY}, channels={(A, LAST_SYSTEM): None}
    )
    yield trace

    trace = Trace(
        "system_channels/deposits-from-before-the-switch",
        "who asked before keeps its deposit in the channel, who accepts after leaves none; each gets back what it left",
        source="router_profiles 3.12",
        rules={2: free},
        paras=WITH_SYSTEM,
        interpretation=("PR-05", "which deposits a new channel records", "what each party really left"),
    )
    trace.at(1).init(A, S).init(S, B).accept(B, S)
    trace.at(2).accept(S, A).init(S, A).accept(A, S).session().state(
        channels={
            (A, S): {"sender_deposit": 10, "recipient_deposit": 0},
            (S, B): {"sender_deposit": 10, "recipient_deposit": 6},
            (S, A): {"sender_deposit": 0, "recipient_deposit": 0},
        },
        balances={A: {"free": 90, "reserved": 10}, S: {"free": 90, "reserved": 10}, B: {"free": 94, "reserved": 6}},
    )
    trace.at(3).close(S, A, S).close(B, S, B).close(A, S, A).session().state(balances={A: FULL, S: FULL, B: FULL})
    yield trace

    trace = Trace(
        "system_channels/deposits-after-the-feature",
        "once it is off, who accepts leaves a deposit although the request has none",
        source="router_profiles 3.12",
        rules={0: free, 2: []},
        paras=WITH_SYSTEM,
        interpretation=("PR-05", "which deposits a new channel records", "what each party really left"),
    )
    trace.at(1).init(A, S).at(2).accept(S, A).session().state(
        channels={(A, S): {"sender_deposit": 0, "recipient_deposit": 6}},
        balances={A: FULL, S: {"free": 94, "reserved": 6}},
    )
    trace.at(3).session(A).state(channel_set=[], balances={A: FULL, S: FULL})
    yield trace

    trace = Trace(
        "system_channels/a-free-request-that-ends",
        "expired, cancelled or cleared: nothing was left and nothing comes back from other deposits",
        source="router_profiles 3.12",
        rules={0: [*free, "cancel_open_request", "clean_open_channel_requests"]},
        paras=WITH_SYSTEM,
    )
    trace.at(1).init(A, B).accept(B, A).init(A, S).init(A, R).session()
    trace.at(2).cancel(A, A, S).session().state(open_request_set=[], balances={A: {"free": 90, "reserved": 10}})
    trace.at(3).init(A, S).accept(S, A).session(S).state(
        open_request_set=[], accepted_request_count={S: 0}, balances={A: {"free": 90, "reserved": 10}, S: FULL}
    )
    yield trace


def _system_channel() -> Iterator[Trace]:
    trace = Trace(
        "system_channels/between-system-paras",
        "of the greatest size, confirmed at once; deposits are taken where nothing says otherwise",
        source="router_profiles 3.12",
        rules={0: ["establish_system_channel"]},
        paras={S: "parachain", R: "parachain", LAST_SYSTEM: "parachain", A: "parachain"},
    )
    trace.at(1).establish(S, A, error=NOT_AUTHORIZED).establish(A, S, error=NOT_AUTHORIZED)
    trace.establish(LAST_SYSTEM, 2000, error=NOT_AUTHORIZED).establish(S, LAST_SYSTEM).state(
        open_requests={
            (S, LAST_SYSTEM): {
                "confirmed": True,
                "sender_deposit": 10,
                "limit_used_places": 4,
                "limit_message_size": 8,
                "limit_used_bytes": 20,
            }
        },
        open_request_count={S: 1},
        accepted_request_count={LAST_SYSTEM: 1},
        balances={S: {"free": 90, "reserved": 10}, LAST_SYSTEM: {"free": 94, "reserved": 6}},
    )
    trace.at(2).session(hrmp_channel_max_places=2, hrmp_channel_max_message_size=3).state(
        channels={(S, LAST_SYSTEM): {"sender_deposit": 10, "recipient_deposit": 6, "limit_used_places": 4}}
    )
    trace.at(3).establish(LAST_SYSTEM, S).state(
        open_requests={(LAST_SYSTEM, S): {"limit_used_places": 2, "limit_message_size": 3}}
    )
    yield trace

    trace = Trace(
        "system_channels/order-of-establishing",
        "both system paras, then the checks of asking and of accepting; a request that exists is not cleared",
        source="router_profiles 3.12",
        rules={0: ["establish_system_channel", "hrmp_notifications"]},
        paras={S: "parachain", R: "parathread", 1002: "parachain", A: "parachain"},
        balances={1002: 5},
    )
    trace.at(1).establish(A, A, error=NOT_AUTHORIZED).establish(A, STRANGER, error=NOT_AUTHORIZED)
    trace.establish(S, S, error="OpenHrmpChannelToSelf").establish(S, 1003, error="OpenHrmpChannelInvalidRecipient")
    trace.establish(1002, S, error="InsufficientBalance").establish(S, 1002, error="InsufficientBalance").state(
        open_request_set=[],
        open_request_count={S: 0},
        balances={S: FULL, 1002: {"free": 5, "reserved": 0}},
        dmq={1002: None},
    )
    trace.at(2).init(S, R).establish(S, R, error="OpenHrmpChannelAlreadyRequested").state(
        open_requests={(S, R): {"confirmed": False}}
    )
    trace.at(2).accept(R, S).init(A, R).establish(S, R, error="OpenHrmpChannelAlreadyRequested")
    trace.at(3).session(hrmp_channel_max_places=0).at(4).establish(S, 1002, error="OpenHrmpChannelZeroCapacity")
    trace.session(hrmp_channel_max_places=4, hrmp_channel_max_message_size=0)
    trace.at(5).establish(S, 1002, error="OpenHrmpChannelZeroMessageSize").session(hrmp_channel_max_message_size=8)
    trace.at(6).establish(S, R, error="OpenHrmpChannelAlreadyExists")
    yield trace

    trace = Trace(
        "system_channels/the-recipient-has-no-place",
        "the second part fails: the first leaves nothing, no message either",
        source="router_profiles 1",
        rules={0: ["establish_system_channel", "hrmp_notifications"]},
        paras={S: "parachain", R: "parathread", A: "parachain"},
    )
    trace.at(1).init(A, R).accept(R, A).establish(S, R, error="AcceptHrmpChannelLimitExceeded").state(
        open_request_set=["2000->1001"],
        open_request_count={S: 0},
        accepted_request_count={R: 1},
        balances={S: FULL, R: {"free": 94, "reserved": 6}},
        dmq={S: None, R: [{"sent_at": 1, "msg": "07411f2010"}]},
    )
    trace.at(2).establish(R, S).state(open_request_set=["1001->1000", "2000->1001"])
    yield trace


def _with_system() -> Iterator[Trace]:
    on = "establish_channel_with_system"
    trace = Trace(
        "system_channels/both-directions-at-once",
        "two confirmed requests of the size for system channels; each party leaves both of its deposits",
        source="router_profiles 3.12",
        rules={0: [on]},
        paras=WITH_SYSTEM,
        config={"hrmp_system_channel_max_places": 2, "hrmp_system_channel_max_message_size": 3},
    )
    request = {
        "confirmed": True,
        "sender_deposit": 10,
        "limit_used_places": 2,
        "limit_message_size": 3,
        "limit_used_bytes": 20,
    }
    trace.at(1).establish_with(A, S).state(
        open_requests={(A, S): request, (S, A): request},
        open_request_count={A: 1, S: 1},
        accepted_request_count={A: 1, S: 1},
        balances={A: {"free": 84, "reserved": 16}, S: {"free": 84, "reserved": 16}},
    )
    trace.at(2).session().state(channel_set=["1000->2000", "2000->1000"], open_request_set=[])
    trace.at(3).establish_with(S, R).session().state(
        channel_set=["1000->1001", "1000->2000", "1001->1000", "2000->1000"]
    )
    yield trace

    trace = Trace(
        "system_channels/sizes-that-are-not-set",
        "the sizes of any channel stand in; a change of the session sets them, and zero is a size that asking refuses",
        source="router_profiles 2",
        rules={0: [on, "system_channels_without_deposits"]},
        paras=WITH_SYSTEM,
    )
    trace.at(1).establish_with(A, S).state(
        open_requests={
            (A, S): {"limit_used_places": 4, "limit_message_size": 8, "sender_deposit": 0},
            (S, A): {"limit_used_places": 4, "limit_message_size": 8, "sender_deposit": 0},
        },
        balances={A: FULL, S: FULL},
    )
    trace.at(1).session(hrmp_system_channel_max_places=5)
    trace.at(2).establish_with(B, S, error="OpenHrmpChannelCapacityExceedsLimit")
    trace.session(hrmp_system_channel_max_places=0, hrmp_system_channel_max_message_size=9)
    trace.at(3).establish_with(B, S, error="OpenHrmpChannelZeroCapacity").session(hrmp_system_channel_max_places=1)
    trace.at(4).establish_with(B, S, error="OpenHrmpChannelMessageSizeExceedsLimit")
    trace.session(hrmp_system_channel_max_message_size=0)
    trace.at(5).establish_with(B, S, error="OpenHrmpChannelZeroMessageSize")
    trace.session(hrmp_system_channel_max_message_size=1)
    trace.at(6).establish_with(B, S).state(open_requests={(B, S): {"limit_used_places": 1, "limit_message_size": 1}})
    yield trace

    trace = Trace(
        "system_channels/only-the-target-must-be-a-system-para",
        "the target is looked at first; whoever asks may be anything",
        source="router_profiles 3.12",
        rules={0: [on]},
        paras=WITH_SYSTEM,
    )
    trace.at(1).establish_with(A, B, error=NOT_AUTHORIZED).establish_with(S, A, error=NOT_AUTHORIZED)
    trace.establish_with(A, A, error=NOT_AUTHORIZED).establish_with(A, 2000 + 999, error=NOT_AUTHORIZED)
    trace.establish_with(A, LAST_SYSTEM, error="OpenHrmpChannelInvalidRecipient")
    trace.establish_with(S, S, error="OpenHrmpChannelToSelf").establish_with(T, S).establish_with(S, R)
    trace.establish_with(A, R)
    yield trace

    trace = Trace(
        "system_channels/all-four-parts-or-none",
        "each part may fail: asking, accepting, asking back, accepting back; nothing stays of those before",
        source="router_profiles 1",
        rules={0: [on, "hrmp_notifications"]},
        paras={S: "parachain", R: "parathread", 1002: "parachain", A: "parachain", B: "parachain", T: "parathread"},
        balances={A: 15, 1002: 15},
        config={"hrmp_max_parachain_inbound_channels": 2},
    )
    nothing = {
        "open_request_count": {A: 0, B: 1},
        "accepted_request_count": {A: 0, R: 1},
        "balances": {A: {"free": 15, "reserved": 0}, 1002: {"free": 15, "reserved": 0}, S: FULL},
        "dmq": {A: None, S: None, 1002: None, R: [{"sent_at": 1, "msg": "07451f2010"}]},
        "dmq_heads": {A: None, S: None, 1002: None},
        "open_request_set": ["2001->1001"],
    }
    trace.at(1).init(B, R).accept(R, B)
    trace.at(2).establish_with(A, R, error="AcceptHrmpChannelLimitExceeded").state(**nothing)
    # 15 pays for asking and not for accepting back, on either side
    trace.at(3).establish_with(A, S, error="InsufficientBalance").state(**nothing)
    trace.at(4).establish_with(B, 1002, error="InsufficientBalance").state(**nothing)
    trace.at(5).init(S, B).establish_with(B, S, error="OpenHrmpChannelAlreadyRequested").state(
        open_request_set=["1000->2001", "2001->1001"],
        open_requests={(S, B): {"confirmed": False}},
        open_request_count={B: 1, S: 1},
        accepted_request_count={S: 0},
        dmq={S: None},
    )
    trace.at(6).init(R, T).establish_with(T, R, error="AcceptHrmpChannelLimitExceeded")
    trace.at(7).establish_with(T, S).state(open_request_count={T: 1, S: 2})
    yield trace


def _poke() -> Iterator[Trace]:
    poke = ["poke_channel_deposits"]
    trace = Trace(
        "system_channels/deposits-brought-up-to-date",
        "the difference is reserved or comes back, on each side by itself; the channel returns what it holds then",
        source="router_profiles 3.12",
        rules={0: poke},
        paras=WITH_SYSTEM,
    )
    trace.open((A, B)).session(hrmp_sender_deposit=25, hrmp_recipient_deposit=2)
    trace.at(3).poke(A, B).state(
        channels={(A, B): {"sender_deposit": 25, "recipient_deposit": 2}},
        balances={A: {"free": 75, "reserved": 25}, B: {"free": 98, "reserved": 2}},
    )
    trace.at(3).poke(A, B).close(A, A, B).session(hrmp_sender_deposit=0).state(
        channel_set=[], balances={A: FULL, B: FULL}
    )
    trace.open((B, T), block=4)
    trace.session(hrmp_sender_deposit=100, hrmp_recipient_deposit=9)
    trace.at(6).close(B, B, T).poke(B, T).state(
        channels={(B, T): {"sender_deposit": 100, "recipient_deposit": 9}}, close_request_set=["2001->2003"]
    )
    trace.state(balances={B: {"free": 0, "reserved": 100}, T: {"free": 91, "reserved": 9}})
    yield trace

    trace = Trace(
        "system_channels/no-such-channel-to-poke",
        "a request is no channel, the other direction is another one, and the channel is looked at before any balance",
        source="router_profiles 3.12",
        rules={0: poke},
        paras=WITH_SYSTEM,
    )
    trace.at(1).init(A, B).accept(B, A).poke(A, B, error="OpenHrmpChannelDoesntExist")
    trace.at(2).session().at(3).poke(B, A, error="OpenHrmpChannelDoesntExist").poke(
        A, STRANGER, error="OpenHrmpChannelDoesntExist"
    )
    trace.poke(A, B).close(B, A, B).session().at(4).poke(A, B, error="OpenHrmpChannelDoesntExist")
    yield trace

    trace = Trace(
        "system_channels/a-poke-that-cannot-be-paid",
        "one unit is missing on one side: neither side changes, also where the other one would get something back",
        source="router_profiles 1",
        rules={0: poke},
        paras=WITH_SYSTEM,
        balances={A: 34, B: 20},
    )
    trace.open((A, B)).session(hrmp_sender_deposit=35, hrmp_recipient_deposit=1)
    same = {
        "channels": {(A, B): {"sender_deposit": 10, "recipient_deposit": 6}},
        "balances": {A: {"free": 24, "reserved": 10}, B: {"free": 14, "reserved": 6}},
    }
    trace.at(3).poke(A, B, error="InsufficientBalance").state(**same).session(
        hrmp_sender_deposit=5, hrmp_recipient_deposit=21
    )
    trace.at(4).poke(A, B, error="InsufficientBalance").state(**same).session(
        hrmp_sender_deposit=34, hrmp_recipient_deposit=20
    )
    trace.at(5).poke(A, B).state(
        channels={(A, B): {"sender_deposit": 34, "recipient_deposit": 20}},
        balances={A: {"free": 0, "reserved": 34}, B: {"free": 0, "reserved": 20}},
    )
    yield trace

    trace = Trace(
        "system_channels/a-system-channel-is-poked",
        "both deposits come back, whether new ones would be free or not; a channel that holds nothing stays as it is",
        source="router_profiles 3.12",
        rules={0: poke, 4: [*poke, "system_channels_without_deposits"]},
        paras=WITH_SYSTEM,
    )
    trace.open((A, S), (S, A), (S, R))
    trace.at(3).poke(A, S).state(
        channels={
            (A, S): {"sender_deposit": 0, "recipient_deposit": 0},
            (S, A): {"sender_deposit": 10, "recipient_deposit": 6},
        },
        balances={A: {"free": 94, "reserved": 6}, S: {"free": 80, "reserved": 20}},
    )
    trace.at(4).poke(A, S).poke(S, A).poke(S, R).state(balances={A: FULL, S: FULL, R: FULL})
    trace.at(5).session(R).state(channel_set=["1000->2000", "2000->1000"], balances={S: FULL, R: FULL})
    yield trace
