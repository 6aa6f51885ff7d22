# SPDX-License-Identifier: Apache-2.0
"""Output of the rule set other than its state: effects, headroom, changed pages."""

from __future__ import annotations

from dataclasses import fields

import pytest
from early_hrmp_world import CONFIGURATION, candidate, chain, lived, open_channels
from validator_early_hrmp.errors import CandidateUnknownPara, OutboundNoSuchChannel
from validator_early_hrmp.records import Candidate, CloseChannel
from validator_early_hrmp.rules import EARLY_HRMP
from validator_early_hrmp.state import MAXIMA, EarlyHrmpConfiguration

from validator.core.rules import pages
from validator.plugin.protocol_api import (
    HEADROOM_WATERMARKS_MAX,
    ChannelEvent,
    ChannelEventKind,
    ChannelHeadroom,
    DownwardMessage,
    Effects,
    Enactment,
    ParaHeadroom,
    PendingRef,
    SessionChange,
    message_hash,
    mqc_link,
)
from validator.protocols.kit import (
    AcceptOpenChannel,
    InclusionCandidateNotPending,
    InitOpenChannel,
    TimeoutCandidateNotPending,
)


def test_limits_are_in_encoding_order() -> None:
    assert tuple(MAXIMA) == tuple(field.name for field in fields(EarlyHrmpConfiguration))


def test_effects_name_session_that_makes_them_effective() -> None:
    rules = chain(1, 2)
    assert rules.apply_request(InitOpenChannel(1, 2)) == Effects(expires_session=2)
    assert rules.apply_request(AcceptOpenChannel(2, 0)) == Effects(effective_session=1)
    rules.change_session(SessionChange())
    assert rules.apply_request(CloseChannel(1, 1, 2)) == Effects(effective_session=2)


def test_effects_give_queue_positions_of_messages() -> None:
    rules = chain(1, 2, 3)
    open_channels(rules, (1, 2), (1, 3))
    rules.begin_block(4)
    (relay,) = rules.apply_downward(DownwardMessage(2, b"a")).messages
    to_2, to_3 = rules.apply_candidate(candidate(1, 3, p2="0102", p3="")).messages
    head = mqc_link(bytes(32), 4, message_hash(b"a"))
    assert tuple(relay) == (2, 1, head)
    assert tuple(to_2) == (2, 2, mqc_link(head, 4, message_hash(b"\x01\x02")))
    assert tuple(to_3) == (3, 1, mqc_link(bytes(32), 4, message_hash(b"")))
    rules.begin_block(5)
    rules.apply_candidate(candidate(2, 4))
    assert rules.apply_downward(DownwardMessage(2, b"")).messages[0].sequence_number == 3


def test_pending_candidate_is_enacted_on_inclusion() -> None:
    rules = chain(1, 2, enactment=Enactment.ON_INCLUSION)
    open_channels(rules, (1, 2))
    for block in (2, 3, 4):
        rules.begin_block(block)
        made = candidate(1, block - 1, p2=f"0{block}")._replace(candidate_hash=bytes([block]) * 32)
        assert rules.apply_candidate(made) == Effects(enacted=False)
    rules = EARLY_HRMP.from_pages(pages(rules), rules.settings)
    rules.begin_block(5)
    effects = rules.apply_inclusion(PendingRef(1, 3))
    assert effects.enacted
    assert effects.candidate_hash == bytes([3]) * 32
    assert [each.recipient for each in effects.messages] == [2]
    assert rules.apply_timeout(PendingRef(1)) == Effects(enacted=False, candidate_hash=bytes([2]) * 32)
    with pytest.raises(InclusionCandidateNotPending):
        rules.apply_inclusion(PendingRef(1, 3))
    with pytest.raises(TimeoutCandidateNotPending):
        rules.apply_timeout(PendingRef(2))
    assert rules.state.downward_queues[2] == {5: [(1, 1, b"\x03")]}
    assert rules.apply_inclusion(PendingRef(1)).candidate_hash == bytes([4]) * 32
    assert rules.state.pending_candidates == {}


def test_events_state_deposits_and_reasons() -> None:
    rules = chain(1, 2, 3)
    open_channels(rules, (1, 2))
    rules.apply_request(InitOpenChannel(1, 3))
    kind = ChannelEventKind
    assert rules.env.events.events == [
        ChannelEvent(1, 0, kind.REQUESTED, 1, 2, 10, 0, 0),
        ChannelEvent(1, 1, kind.CONFIRMED, 1, 2, 0, 7, 0),
        ChannelEvent(1, 2, kind.OPENED, 1, 2, 0, 0, 1),
        ChannelEvent(1, 3, kind.REQUESTED, 1, 3, 10, 0, 1),
    ]
    rules.begin_block(2)
    rules.apply_candidate(candidate(1, 1, p2="01"))
    rules.apply_request(CloseChannel(2, 1, 2))
    rules.change_session(SessionChange())
    assert rules.env.events.events == [
        ChannelEvent(2, 0, kind.CLOSE_REQUESTED, 1, 2, 0, 0, 1),
        ChannelEvent(2, 1, kind.SEALED, 1, 2, 0, 0, 2, "requested"),
    ]
    rules.begin_block(3)
    rules.apply_candidate(candidate(2, 2))
    rules.change_session(SessionChange())
    assert rules.env.events.events == [
        ChannelEvent(3, 0, kind.REQUEST_EXPIRED, 1, 3, -10, 0, 3, "expired"),
        ChannelEvent(3, 1, kind.CLOSED, 1, 2, -10, -7, 3, "drained"),
    ]


def test_headroom_is_emitted_only_for_changes() -> None:
    rules = chain(1, 2, 3)
    open_channels(rules, (1, 2), (1, 3))
    assert rules.take_headroom() == [
        *[ParaHeadroom(para, valid=True) for para in (1, 2, 3)],
        *[ChannelHeadroom(1, to, open=True, places_left=3, bytes_left=20, message_size_max=20) for to in (2, 3)],
    ]
    assert rules.take_headroom() == []
    rules.begin_block(2)
    rules.apply_candidate(candidate(1, 1, p2="0102"))
    assert rules.take_headroom() == [
        ParaHeadroom(1, valid=True, watermark=1),
        ParaHeadroom(2, valid=True, downward_pending=1, valid_watermarks=(2,)),
        ChannelHeadroom(1, 2, open=True, places_left=2, bytes_left=18, message_size_max=18),
    ]
    rules.change_session(SessionChange(new_config=(("hrmp_channel_max_places", 0), ("hrmp_channel_max_size", 1))))
    assert rules.take_headroom() == [
        ChannelHeadroom(1, to, open=True, bytes_left=left, message_size_max=left) for to, left in ((2, 0), (3, 1))
    ]
    rules.change_session(SessionChange(new_config=(("hrmp_open_request_ttl", 9),)))
    assert rules.take_headroom() == []
    rules.change_session(SessionChange(outgoing=(3,)))
    assert rules.take_headroom() == [ParaHeadroom(3, valid=False), ChannelHeadroom(1, 3, open=False)]


def test_blocks_at_or_below_watermark_are_no_valid_watermarks() -> None:
    rules = chain(1)
    rules.begin_block(4)
    rules.apply_candidate(Candidate(1, 6, 6))
    for block in (5, 6, 7):
        rules.begin_block(block)
        rules.apply_downward(DownwardMessage(1, b""))
    (headroom,) = rules.take_headroom()
    assert headroom == ParaHeadroom(1, valid=True, downward_pending=3, watermark=6, valid_watermarks=(7,))


def test_number_of_emitted_watermarks_is_limited() -> None:
    rules = chain(1)
    for block in range(2, 4 + HEADROOM_WATERMARKS_MAX):
        rules.begin_block(block)
        rules.apply_downward(DownwardMessage(1, b""))
    (headroom,) = rules.take_headroom()
    assert isinstance(headroom, ParaHeadroom)
    assert headroom.valid_watermarks == tuple(range(2, 2 + HEADROOM_WATERMARKS_MAX))


def test_only_touched_pages_are_encoded() -> None:
    rules = chain(*range(1, 50))
    open_channels(rules, (1, 2), (3, 4))
    rules.state_root()
    rules.mark_saved()
    rules.begin_block(2)
    rules.apply_candidate(candidate(1, 1, p2="01"))
    assert sorted(rules.changed()) == [1, 2]
    rules.mark_saved()
    with pytest.raises(OutboundNoSuchChannel):
        rules.apply_candidate(candidate(2, 2, p1="01"))
    with pytest.raises(CandidateUnknownPara):
        rules.apply_candidate(candidate(99, 2))
    rules.apply_request(InitOpenChannel(5, 6))
    assert sorted(rules.changed()) == [5]
    rules.mark_saved()
    rules.change_session(SessionChange())
    assert sorted(rules.changed()) == []
    rules.change_session(SessionChange(outgoing=(4,)))
    assert sorted(rules.changed()) == [3, 4, 5]
    assert rules.state_root() == EARLY_HRMP.root_of(rules.state)


def test_different_states_have_different_roots() -> None:
    roots = {lived().state_root()}
    for change in ("paras", "watermarks", "session", "limits", "age", "instance", "queue"):
        rules = lived()
        state = rules.state
        if change == "paras":
            del state.paras[3]
        elif change == "watermarks":
            state.dmq_watermarks[3] += 1
        elif change == "session":
            state.session_index += 1
        elif change == "limits":
            state.configuration = EarlyHrmpConfiguration()
        elif change == "age":
            state.open_requests[1].age += 1
        elif change == "instance":
            state.channels[1, 2].instance -= 1
        else:
            state.downward_queues[2][4].reverse()
        roots.add(EARLY_HRMP.root_of(state))
    assert len(roots) == 8


def test_dispatch_returns_nothing() -> None:
    assert chain(1).dispatch() == []
    assert chain(1).state.configuration == CONFIGURATION
