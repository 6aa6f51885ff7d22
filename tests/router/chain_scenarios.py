# SPDX-License-Identifier: Apache-2.0
"""Requests of governance, the least balance of an account, and what the chain does where this program chose otherwise."""

from __future__ import annotations

from collections.abc import Iterator

from tests.router.trace import NOT_IN_FORCE, Trace

A, B, C, D = 2000, 2001, 2002, 2004
FULL = {"free": 100, "reserved": 0}
FORCED = ["forced_requests"]
NO_TTL = ["forced_requests", "no_ttl", "clean_open_channel_requests"]
CHAIN = ["as_the_chain"]
CLEANING = ["as_the_chain", "clean_open_channel_requests", "no_ttl"]
PAGES = ["as_the_chain", "message_queue"]


def scenarios() -> Iterator[Trace]:
    """Yield the scenarios of the group ``chain``."""
    yield from _forced()
    yield from _least_balance()
    yield from _parties()
    yield from _what_stays()


def _forced() -> Iterator[Trace]:
    trace = Trace(
        "chain/open-at-once",
        "force_process_open opens what is confirmed; unconfirmed requests stay and do not age",
        source="chain_2026 3.16",
        rules={0: FORCED},
    )
    trace.at(1).init(A, B).accept(B, A).init(A, C).forced("force_process_open").state(
        channel_set=["2000->2001"],
        open_requests={(A, B): None, (A, C): {"age": 0, "confirmed": False}},
        open_request_count={A: 1},
        accepted_request_count={B: None},
    )
    trace.candidate(A, send={B: "aa"}).forced("force_process_open").state(open_requests={(A, C): {"age": 0}})
    yield trace

    trace = Trace(
        "chain/close-at-once",
        "force_process_close closes what is to be closed and returns both deposits",
        source="chain_2026 3.16",
        rules={3: FORCED},
    )
    trace.open((A, B), (B, A))
    trace.at(3).close(A, A, B).forced("force_process_close").state(
        channel_set=["2001->2000"],
        close_request_set=[],
        balances={A: {"free": 94, "reserved": 6}, B: {"free": 90, "reserved": 10}},
    )
    trace.forced("force_process_close").state(channel_set=["2001->2000"])
    yield trace

    trace = Trace(
        "chain/clean-up",
        "force_clean closes every channel of a para; queues, watermark and requests stay, and counts stay what the requests are",
        source="chain_2026 3.16",
        rules={0: NO_TTL},
        interpretation=(
            "PR-17",
            "counts of requests of a para that is cleaned up by force",
            "as the requests: they stay",
        ),
    )
    trace.open((A, B), (B, A), (B, C))
    trace.at(3).init(A, C).init(D, A).accept(A, D).downward(A, "dd").candidate(B, send={A: "aa"})
    trace.at(4).close(A, A, B).forced("force_clean", para_id=A).state(
        channel_set=["2001->2002"],
        close_request_set=["2000->2001"],
        open_request_set=["2000->2002", "2004->2000"],
        open_request_count={A: 1, D: 1},
        accepted_request_count={A: 1},
        digests={A: [[3, [B]]]},
        dmq={A: [{"sent_at": 3, "msg": "dd"}]},
        contents={(B, A): None},
    )
    trace.forced("force_clean", para_id=2999)
    trace.at(5).candidate(A, 3, processed=1).state(dmq={A: None}, digests={A: None}, watermarks={A: 3})
    trace.at(6).session().state(channel_set=["2001->2002", "2004->2000"], close_request_set=[])
    yield trace

    trace = Trace(
        "chain/cleaned-up-before-enactment",
        "a message that was accepted before its channel went is skipped at its enactment",
        source="chain_2026 3.16",
        rules={0: FORCED},
        needs=("delayed_enactment",),
    )
    trace.open((A, B)).at(3).candidate(A, send={B: "aa"}, enact_at=5)
    trace.at(4).forced("force_clean", para_id=B).state(channel_set=[])
    trace.at(5).state(digests={B: None}, watermarks={A: 2}, contents={(A, B): None})
    yield trace

    trace = Trace(
        "chain/forced-before-their-time",
        "without the feature the requests of governance do not exist",
        source="chain_2026 3.16",
        rules={2: FORCED},
    )
    trace.at(1)
    for kind, arguments in (("force_process_open", {}), ("force_process_close", {}), ("force_clean", {"para_id": A})):
        trace.forced(kind, error=NOT_IN_FORCE, **arguments)
    trace.at(2).forced("force_process_open").forced("force_process_close").forced("force_clean", para_id=A)
    yield trace


def _least_balance() -> Iterator[Trace]:
    trace = Trace(
        "chain/a-deposit-leaves-the-existential-deposit",
        "one unit less than deposit and existential deposit is not enough, exactly as much is; it may change with a session",
        source="chain_2026 3.17",
        config={"existential_deposit": 5},
        balances={A: 15, B: 11, C: 14, D: 10},
    )
    trace.at(1).init(C, A, error="InsufficientBalance").init(A, B).accept(B, A)
    trace.state(balances={A: {"free": 5, "reserved": 10}, B: {"free": 5, "reserved": 6}})
    trace.session(existential_deposit=0)
    trace.at(2).init(C, A).init(D, A).state(balances={D: {"free": 0, "reserved": 10}})
    yield trace

    trace = Trace(
        "chain/nothing-to-reserve-nothing-to-keep",
        "a request without a deposit does not look at the existential deposit",
        source="chain_2026 3.17",
        rules={0: ["system_channels_without_deposits", "poke_channel_deposits"]},
        paras={1000: "parachain", A: "parachain"},
        config={"existential_deposit": 5},
        balances={1000: 0, A: 0},
    )
    trace.at(1).init(A, 1000).accept(1000, A)
    trace.at(2).session().at(3).poke(A, 1000).state(balances={para: {"free": 0, "reserved": 0} for para in (A, 1000)})
    yield trace


def _parties() -> Iterator[Trace]:
    trace = Trace(
        "chain/a-para-that-goes-is-no-recipient",
        "a para that is scheduled for offboarding is not valid as recipient, and a confirmed request with it opens nothing",
        source="chain_2026 3.18",
        rules={0: [*CHAIN, *FORCED]},
    )
    trace.at(1).init(A, B).accept(B, A).cleanup(B).init(C, B, error="OpenHrmpChannelInvalidRecipient")
    trace.forced("force_process_open").state(
        channel_set=[],
        open_request_set=[],
        open_request_count={A: None},
        accepted_request_count={B: None},
        balances={A: {"free": 90, "reserved": 10}, B: {"free": 94, "reserved": 6}},
    )
    trace.session().state(balances={A: {"free": 90, "reserved": 10}, B: {"free": 94, "reserved": 6}})
    yield trace

    trace = Trace(
        "chain/the-order-of-the-chain",
        "the recipient is looked at before sizes, and a request before a channel",
        source="chain_2026 3.18",
        rules={0: CHAIN},
    )
    trace.at(1).init(A, A, 0, 0, error="OpenHrmpChannelToSelf")
    trace.init(A, 2999, 0, 0, error="OpenHrmpChannelInvalidRecipient")
    trace.init(A, B, 0, 9, error="OpenHrmpChannelZeroCapacity")
    trace.init(A, B, 5, 0, error="OpenHrmpChannelCapacityExceedsLimit")
    trace.init(A, B, 4, 0, error="OpenHrmpChannelZeroMessageSize")
    trace.init(A, B, 4, 9, error="OpenHrmpChannelMessageSizeExceedsLimit")
    trace.init(A, B).init(A, B, error="OpenHrmpChannelAlreadyRequested")
    yield trace

    trace = Trace(
        "chain/cleanup-once",
        "a second cleanup is refused, and that of an unknown para does nothing",
        source="chain_2026 3.18",
        rules={3: CHAIN},
    )
    trace.at(1).cleanup(A).cleanup(A).cleanup(2999).state(outgoing_paras=[A, 2999]).at(2).session()
    trace.at(3).cleanup(B).cleanup(B, error="CannotOffboard").cleanup(2998).state(outgoing_paras=[B])
    yield trace


def _what_stays() -> Iterator[Trace]:
    trace = Trace(
        "chain/a-lost-place",
        "a sender whose recipient goes does not get its place back until it goes itself",
        source="chain_2026 3.18",
        rules={0: CLEANING},
        config={"hrmp_max_parachain_outbound_channels": 2},
    )
    trace.at(1).init(A, B).init(A, C).accept(C, A).session(B)
    trace.state(open_request_set=[], channel_set=["2000->2002"], open_request_count={A: 1}, balances={A: {"free": 90}})
    trace.at(2).init(A, D, error="OpenHrmpChannelLimitExceeded")
    trace.at(3).session(A, onboarding=[(B, "parachain", 0), (A, "parachain", 0)]).state(open_request_count={A: None})
    trace.at(4).init(A, D).init(A, B).state(open_request_count={A: 2})
    yield trace

    trace = Trace(
        "chain/counts-forgotten-by-force",
        "force_clean forgets the para's counts although its requests stay; they fall to zero and no further",
        source="chain_2026 3.18",
        rules={0: [*CHAIN, *FORCED, "no_ttl"]},
    )
    trace.at(1).init(A, B).init(C, A).accept(A, C).forced("force_clean", para_id=A).state(
        open_request_set=["2000->2001", "2002->2000"],
        open_request_count={A: None, C: 1},
        accepted_request_count={A: None},
    )
    trace.init(A, D).init(B, A).accept(A, B).state(open_request_count={A: 1}, accepted_request_count={A: 1})
    trace.accept(B, A).session().state(
        channel_set=["2000->2001", "2001->2000", "2002->2000"],
        open_request_set=["2000->2004"],
        open_request_count={A: None},
        accepted_request_count={A: None},
    )
    yield trace

    trace = Trace(
        "chain/watermark-and-digests-stay",
        "they hold when the para returns; a digest has a sender once for each of its candidates",
        source="chain_2026 3.18",
        rules={0: CHAIN},
    )
    trace.open((B, A), (C, A)).at(3).candidate(A)
    trace.candidate(B, send={A: "b1"}).candidate(C, send={A: "c1"}).candidate(B, 3, relay_parent=3, send={A: "b2"})
    trace.state(digests={A: [[3, [B, C, B]]]})
    trace.at(4).session(A).state(digests={A: [[3, [B, C, B]]]}, watermarks={A: 2}, contents={(B, A): None})
    trace.at(5).session(onboarding=[(A, "parachain", 0)])
    trace.at(6).candidate(A, 2, error="HrmpWatermark/AdvancementRule", new_watermark=2, last_watermark=2)
    trace.candidate(A, 3).state(digests={A: None}, watermarks={A: 3})
    yield trace

    trace = Trace(
        "chain/swept-pages-stay",
        "what waits of a para that goes is passed over, stays counted and can be serviced; page numbers go on",
        source="chain_2026 3.18",
        rules={0: PAGES},
        config={"preferred_dispatchable_upward_messages_step_weight": 0},
    )
    trace.at(1).candidate(A, up=("a1", "a2")).session(A).state(
        ump_queues={A: None},
        ump_queue_size={A: [2, 2]},
        ready_ring=[],
        ump_overweight={A: [{"page": 0, "index": 0, "msg": "a1"}, {"page": 0, "index": 1, "msg": "a2"}]},
    )
    trace.at(2).service(A, 0, 1, 100).session(onboarding=[(A, "parachain", 0)]).dispatched((A, "a2"))
    trace.at(3).candidate(A, up=("a3", "a4", "a5")).cleanup(A, error="CannotOffboard").state(
        ump_queues={A: ["a3", "a4", "a5"]}, ump_queue_size={A: [4, 4]}, ready_ring=[A]
    )
    trace.candidate(A, 3, relay_parent=3, up=("a6",), error="UpwardMessages/CapacityExceeded", count=5, limit=4)
    trace.at(4).service(A, 1, 0, 100, error="Queued").service(A, 0, 0, 100).dispatched((A, "a1"))
    yield trace
