# SPDX-License-Identifier: Apache-2.0
"""The order inside a block: each step sees the effects of earlier steps and none of later ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from validator.core.errors import Violation
from validator.core.execute import Intervals, execute
from validator.core.handlers.upward import FixedWeightDispatcher
from validator.core.outcomes import ChannelEventKind, Executed, InputKind, MessageRange
from validator.core.rules import ChainSettings, LaneRules
from validator.core.types import Block, BlockRecord, DownwardMessage, Enactment, Para, PendingRef, SessionChange
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.records import (
    AcceptOpenChannel,
    Candidate,
    CloseChannel,
    HorizontalMessage,
    InitOpenChannel,
    ScheduleParaCleanup,
)
from validator.protocols.router.rules import ROUTER

CONFIG = HostConfiguration(
    max_upward_message_num_per_candidate=3,
    max_upward_message_size=8,
    max_upward_queue_count=4,
    max_upward_queue_size=32,
    preferred_dispatchable_upward_messages_step_weight=10,
    max_downward_message_size=8,
    hrmp_max_message_num_per_candidate=3,
    hrmp_channel_max_places=2,
    hrmp_channel_max_message_size=8,
    hrmp_channel_max_size=16,
    hrmp_max_parachain_outbound_channels=3,
    hrmp_max_parachain_inbound_channels=3,
    hrmp_sender_deposit=5,
    hrmp_recipient_deposit=5,
    hrmp_open_request_ttl=2,
)


class Chain:
    def __init__(self, enactment: Enactment = Enactment.IMMEDIATE, intervals: Intervals | None = None) -> None:
        paras = [Para(para, balance=100) for para in (1, 2, 3)]
        self.router = ROUTER.at_genesis(
            ChainSettings(
                CONFIG, tuple(paras), enactment=enactment, upward_messages=FixedWeightDispatcher(default_weight=4)
            )
        )
        self.intervals = intervals or Intervals(headroom=1, root=1)
        self.number = 0

    def block(
        self, *, requests: Any = (), downward: Any = (), candidates: Any = (), number: int | None = None, **record: Any
    ) -> Executed:
        parent = self.number
        self.number = parent + 1 if number is None else number
        header = BlockRecord(self.number, parent, len(candidates), len(requests), len(downward), **record)
        return execute(self.router, Block(header, tuple(requests), tuple(downward), tuple(candidates)), self.intervals)

    def open(self, sender: int, recipient: int) -> None:
        requests = (InitOpenChannel(sender, recipient, 2, 8), AcceptOpenChannel(recipient, sender))
        self.block(requests=requests, session_change=SessionChange())

    def candidate(self, para: int, *, processed: int = 0, up: Any = (), send: Any = (), **fields: Any) -> Candidate:
        messages = tuple(HorizontalMessage(recipient, data) for recipient, data in send)
        return Candidate(para, self.number, self.number, tuple(up), processed, messages, **fields)


def kinds_of(executed: Executed) -> list[str | None]:
    return [verdict.violation.kind if verdict.violation else None for verdict in executed.verdicts]


def test_inclusion_runs_before_all_other_steps() -> None:
    """A candidate enacted in step 1 fills the channel that another candidate of the block needs."""
    chain = Chain(Enactment.ON_INCLUSION)
    chain.open(1, 2)
    chain.block(candidates=[chain.candidate(1, send=[(2, b"a" * 8)])])
    executed = chain.block(
        included=(PendingRef(1),),
        candidates=[chain.candidate(1, send=[(2, b"b" * 8)]), chain.candidate(2)],
    )
    assert kinds_of(executed) == [None, None, None]
    executed = chain.block(included=(PendingRef(1),), candidates=[chain.candidate(1, send=[(2, b"")])])
    assert kinds_of(executed) == [None, "OutboundHrmp/CapacityExceeded"]
    assert [verdict.kind for verdict in executed.verdicts] == [InputKind.INCLUSION, InputKind.CANDIDATE]


def test_inclusion_runs_before_timeout() -> None:
    chain = Chain(Enactment.ON_INCLUSION)
    chain.block(candidates=[chain.candidate(1)])
    executed = chain.block(included=(PendingRef(1),), timed_out=(PendingRef(1),))
    assert kinds_of(executed) == [None, "Timeout/CandidateNotPending"]
    chain.block(candidates=[chain.candidate(1)])
    executed = chain.block(timed_out=(PendingRef(1),))
    assert kinds_of(executed) == [None]
    assert chain.router.state.hrmp_watermarks == {1: 0}


def test_requests_run_before_candidates_and_see_each_other() -> None:
    chain = Chain()
    executed = chain.block(
        requests=[InitOpenChannel(1, 2, 1, 1), AcceptOpenChannel(2, 1), CloseChannel(1, (1, 2))],
        candidates=[chain.candidate(1, send=[(2, b"")])],
    )
    assert kinds_of(executed) == [None, None, "CloseHrmpChannelDoesntExist", "OutboundHrmp/NoSuchChannel"]


def test_downward_messages_are_queued_before_candidates_run() -> None:
    chain = Chain()
    executed = chain.block(
        downward=[DownwardMessage(1, b"m")], candidates=[chain.candidate(1), chain.candidate(1, processed=1)]
    )
    assert kinds_of(executed) == [None, "ProcessedDownwardMessages/AdvancementRule", None]


def test_requests_run_before_downward_messages() -> None:
    """The notification of a request gets the lower sequence number."""
    chain = Chain()
    chain.router.state.hrmp_notifications = True
    executed = chain.block(requests=[InitOpenChannel(1, 2, 1, 1)], downward=[DownwardMessage(2, b"m")])
    numbers = [[(ref.recipient, ref.sequence_number) for ref in verdict.messages] for verdict in executed.verdicts]
    assert numbers == [[(2, 1)], [(2, 2)]]


def test_candidates_see_each_other_if_enactment_is_immediate() -> None:
    chain = Chain()
    chain.open(1, 2)
    chain.open(2, 1)
    first = [chain.candidate(1, send=[(2, b"x")]) for _ in range(2)]
    assert kinds_of(chain.block(candidates=first)) == [None, "HrmpWatermark/AdvancementRule"]


def test_candidates_do_not_see_each_other_if_enactment_is_delayed() -> None:
    chain = Chain(Enactment.ON_INCLUSION)
    executed = chain.block(candidates=[chain.candidate(1), chain.candidate(1)])
    assert kinds_of(executed) == [None, None]
    assert not any(verdict.enacted for verdict in executed.verdicts)
    assert executed.receipt.enacted == 0
    assert chain.block(included=(PendingRef(1),)).receipt.enacted == 1


def test_dispatch_runs_after_candidates_and_before_session_change() -> None:
    chain = Chain()
    executed = chain.block(
        candidates=[chain.candidate(2, up=[b"c", b"d"]), chain.candidate(1, up=[b"a", b"b"])],
        session_change=SessionChange(
            outgoing=(1,), new_config=(("preferred_dispatchable_upward_messages_step_weight", 0),)
        ),
    )
    assert [(item.index, item.para_id, item.payload) for item in executed.dispatches] == [
        (0, 1, b"a"),
        (1, 2, b"c"),
        (2, 1, b"b"),
    ]
    assert (executed.receipt.dispatched, executed.receipt.weight_used) == (3, 12)
    assert chain.router.state.needs_dispatch == [2]
    assert chain.block().dispatches == []


def test_session_change_runs_last() -> None:
    chain = Chain()
    executed = chain.block(
        requests=[InitOpenChannel(1, 3, 1, 1), AcceptOpenChannel(3, 1), ScheduleParaCleanup(2)],
        downward=[DownwardMessage(2, b"m")],
        candidates=[chain.candidate(2, processed=1)],
        session_change=SessionChange(outgoing=(2,)),
    )
    assert kinds_of(executed) == [None] * 5
    assert sorted(chain.router.state.paras) == [1, 3]
    assert executed.receipt.session == 1
    assert [event.event for event in executed.channel_events] == [
        ChannelEventKind.REQUESTED,
        ChannelEventKind.CONFIRMED,
        ChannelEventKind.MESSAGES_DROPPED,
        ChannelEventKind.OPENED,
    ]
    assert executed.verdicts[-1].received == (MessageRange(None, 1, 1, 1),)
    assert executed.channel_events[2].dropped == ()
    assert [event.session for event in executed.channel_events] == [0, 0, 1, 1]
    assert [event.index for event in executed.channel_events] == [0, 1, 2, 3]


def test_verdicts_follow_order_of_steps() -> None:
    chain = Chain()
    executed = chain.block(
        included=(PendingRef(1),),
        timed_out=(PendingRef(2),),
        requests=[ScheduleParaCleanup(3)],
        downward=[DownwardMessage(1, b"123456789")],
        candidates=[chain.candidate(2, candidate_hash=b"h" * 32), chain.candidate(2, candidate_hash=b"i" * 32)],
    )
    assert [(verdict.kind, verdict.index, verdict.para_id) for verdict in executed.verdicts] == [
        (InputKind.INCLUSION, 0, 1),
        (InputKind.TIMEOUT, 0, 2),
        (InputKind.REQUEST, 0, 3),
        (InputKind.DOWNWARD, 0, 1),
        (InputKind.CANDIDATE, 0, 2),
        (InputKind.CANDIDATE, 1, 2),
    ]
    assert [verdict.candidate_hash for verdict in executed.verdicts[4:]] == [b"h" * 32, b"i" * 32]
    assert (executed.receipt.accepted, executed.receipt.rejected, executed.receipt.enacted) == (2, 4, 1)


def test_verdict_of_request_names_effective_session() -> None:
    chain = Chain()
    executed = chain.block(requests=[InitOpenChannel(1, 2, 1, 1), AcceptOpenChannel(2, 1), ScheduleParaCleanup(3)])
    sessions = [(verdict.effective_session, verdict.expires_session) for verdict in executed.verdicts]
    assert sessions == [(None, 2), (1, None), (1, None)]


@pytest.mark.parametrize("enactment", Enactment)
def test_verdict_names_sequence_number_and_head_of_message(enactment: Enactment) -> None:
    chain = Chain(enactment)
    chain.open(1, 2)
    executed = chain.block(candidates=[chain.candidate(1, send=[(2, b"x")])])
    if enactment is Enactment.ON_INCLUSION:
        assert executed.verdicts[0].messages == ()
        executed = chain.block(included=(PendingRef(1, 2),))
    (ref,) = executed.verdicts[0].messages
    assert (ref.recipient, ref.sequence_number) == (2, 1)
    assert ref.mqc_head == chain.router.state.hrmp_channels[1, 2].mqc_head


def test_roots_and_headroom_are_emitted_at_their_intervals() -> None:
    chain = Chain(intervals=Intervals(headroom=2, root=3))
    heights = []
    for number in range(1, 8):
        change = SessionChange() if number == 5 else None
        executed = chain.block(session_change=change, downward=[DownwardMessage(1, b"m")])
        heights.append((executed.receipt.state_root is not None, bool(executed.headroom)))
        if executed.receipt.state_root is not None:
            assert executed.receipt.state_root == ROUTER.root_of(chain.router.state)
    assert heights == [
        (False, False),
        (False, True),
        (True, False),
        (False, True),
        (True, True),
        (True, True),
        (False, False),
    ]


def test_zero_intervals_emit_only_at_session_changes() -> None:
    chain = Chain(intervals=Intervals(headroom=0, root=0))
    assert chain.block().receipt.state_root is None
    executed = chain.block(session_change=SessionChange())
    assert executed.receipt.state_root is not None
    assert executed.headroom


def test_headroom_gives_limits_for_next_candidate() -> None:
    chain = Chain()
    chain.open(1, 2)
    chain.block()
    executed = chain.block(downward=[DownwardMessage(3, b"m")], candidates=[chain.candidate(1, send=[(2, b"xyz")])])
    paras = {item.para_id: item for item in executed.headroom if hasattr(item, "para_id")}
    assert sorted(paras) == [1, 2, 3]
    assert paras[3].downward_pending == 1
    assert (paras[1].watermark, paras[2].valid_watermarks) == (2, (3,))
    assert (paras[1].upward_count_left, paras[1].upward_bytes_left) == (4, 32)
    (channel,) = [item for item in executed.headroom if hasattr(item, "sender")]
    assert (channel.places_left, channel.bytes_left, channel.message_size_max) == (1, 13, 8)


def test_unexpected_exception_is_not_a_verdict() -> None:
    class Broken(Exception):
        pass

    def broken(*_: Any) -> None:
        raise Broken

    assert not issubclass(Broken, Violation)
    chain = Chain()
    chain.router = LaneRules(replace(ROUTER, check_candidate=broken), chain.router.state)
    with pytest.raises(Broken):
        chain.block(candidates=[chain.candidate(1)])
