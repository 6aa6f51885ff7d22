# SPDX-License-Identifier: Apache-2.0
"""The Router's state: channels, open requests, pending candidates, and what a change marks to encode and emit again."""

from __future__ import annotations

import pytest

from validator.core.outcomes import ChannelHeadroom, ParaHeadroom
from validator.core.rules import ChainSettings, LaneRules, pages
from validator.core.types import Enactment, Para, ParaKind, PendingRef, SessionChange
from validator.protocols.kit import InclusionCandidateNotPending, TimeoutCandidateNotPending
from validator.protocols.kit.requests import OpenRequest, OpenRequests
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.invariants import check_invariants
from validator.protocols.router.records import AcceptOpenChannel, Candidate, HorizontalMessage, InitOpenChannel
from validator.protocols.router.rules import RECIPIENTS_MIN, ROUTER, look_up_channels
from validator.protocols.router.state import HrmpChannel, HrmpChannels, RouterState, add_channel
from validator.protocols.router.state_view import _bytes
from validator.protocols.router.traces import view


def channel() -> HrmpChannel:
    return HrmpChannel(0, 0, limit_used_places=8, limit_used_bytes=64, limit_message_size=16)


def ring(paras: int) -> RouterState:
    """Return a state in which each para has a channel to the next one."""
    state = RouterState(HostConfiguration(hrmp_max_message_num_per_candidate=3))
    for para in range(paras):
        state.paras[para] = ParaKind.PARACHAIN
        add_channel(state, (para, (para + 1) % paras), channel())
    return state


def sends(para: int, *recipients: int) -> Candidate:
    return Candidate(para, 1, 1, (), 0, tuple(HorizontalMessage(each, b"data") for each in recipients))


def test_channels_are_a_mapping_without_empty_rows() -> None:
    one, other = channel(), channel()
    channels = HrmpChannels({(1, 2): one, (3, 2): other})
    assert list(channels) == [(1, 2), (3, 2)]
    assert channels[3, 2] is other
    assert len(channels) == 2
    assert (2, 1) not in channels
    for missing in ((2, 1), (2, 2)):
        with pytest.raises(KeyError):
            channels[missing]
        with pytest.raises(KeyError):
            del channels[missing]
    assert channels.pop((1, 2)) is one
    assert channels == {(3, 2): other}
    del channels[3, 2]
    assert channels.inbound == {}


def test_channels_of_large_chain_are_looked_up() -> None:
    state = ring(RECIPIENTS_MIN)
    found = look_up_channels(state, [sends(7, 8), sends(9), sends(9, 8, 10, RECIPIENTS_MIN)])
    assert found[0] is state.hrmp_channels[7, 8]
    assert found[2] is state.hrmp_channels[9, 10]
    assert [each is None for each in found] == [False, True, False, True]


def test_channels_of_small_chain_are_not_looked_up() -> None:
    assert look_up_channels(ring(RECIPIENTS_MIN - 1), [sends(7, 8)]) == []


def test_look_ahead_changes_nothing() -> None:
    router = LaneRules(ROUTER, ring(RECIPIENTS_MIN))
    router.begin_block(2)
    before, root = view(router.state), router.state_root()
    look_up_channels(router.state, [sends(7, 8), sends(9, 8)])
    assert (view(router.state), router.state_root()) == (before, root)


def test_channel_is_marked_once_in_each_round() -> None:
    router = LaneRules(ROUTER, ring(4))
    router.begin_block(2)
    router.take_headroom()
    for para in (1, 2):
        router.apply_candidate(sends(para, para + 1))
    assert list(router.state.touched.channels) == [(1, 2), (2, 3)]
    router.take_headroom()
    assert not router.state.touched.channels
    router.begin_block(3)
    router.apply_candidate(Candidate(2, 2, 2))
    assert list(router.state.touched.channels) == [(1, 2)]


def requested(sender: int, recipient: int) -> OpenRequest:
    return OpenRequest(sender, recipient, sender_deposit=5)


def test_requests_are_listed_indexed_and_counted() -> None:
    requests = OpenRequests()
    first, second, third = requested(1, 2), requested(1, 3), requested(2, 3)
    for each in (first, second, third):
        requests.add(each)
    assert (len(requests), list(requests), requests[1]) == (3, [first, second, third], second)
    assert requests.by_channel == {(1, 2): first, (1, 3): second, (2, 3): third}
    assert requests.counts == {1: 2, 2: 1}
    assert [requests.index(each) for each in (first, second, third)] == [0, 1, 2]
    assert list(requests.broken_invariants(())) == []


def test_forgotten_request_leaves_index_counts_and_list() -> None:
    requests = OpenRequests()
    first, second = requested(1, 2), requested(2, 3)
    requests.add(first)
    requests.add(second)
    requests.forget(first)
    assert list(requests.broken_invariants(())), "the list still has it"
    requests.keep([second])
    assert (list(requests), requests.by_channel, requests.counts) == ([second], {(2, 3): second}, {2: 1})
    assert list(requests.broken_invariants(())) == []


def test_each_broken_invariant_is_reported() -> None:
    requests = OpenRequests()
    requests.add(requested(1, 2))
    (both,) = requests.broken_invariants([(1, 2)])
    assert both == "channel 1->2 is both open and requested"
    requests.counts[1] = 2
    (counts,) = requests.broken_invariants(())
    assert counts == "counts is {1: 2}, the open requests are 1->2"
    requests.counts[1] = 1
    requests.by_channel.clear()
    (index,) = requests.broken_invariants(())
    assert index == "by_channel has nothing, the open requests are 1->2"


@pytest.mark.parametrize(
    ("count", "text"),
    [(9_999, "9,999 bytes"), (10_000, "10 kB"), (9_999_499, "9,999 kB"), (10_000_000, "10 MB"), (12_600_000, "13 MB")],
)
def test_sizes_have_their_unit(count: int, text: str) -> None:
    assert _bytes(count) == text


@pytest.fixture
def router() -> LaneRules:
    """Return a Router in which para 7 has pending candidates from blocks 3 and 5."""
    router = ROUTER.at_genesis(
        ChainSettings(
            HostConfiguration(),
            (
                Para(7),
                Para(8),
            ),
            enactment=Enactment.ON_INCLUSION,
        )
    )
    for block, watermark in ((3, 2), (5, 4)):
        router.begin_block(block)
        effects = router.apply_candidate(Candidate(7, block - 1, watermark, candidate_hash=bytes([block]) * 32))
        assert not effects.enacted
    router.begin_block(6)
    assert router.state.hrmp_watermarks == {}
    return router


def test_reference_without_block_includes_oldest(router: LaneRules) -> None:
    assert router.apply_inclusion(PendingRef(7)).candidate_hash == bytes([3]) * 32
    assert router.state.hrmp_watermarks == {7: 2}
    assert router.apply_inclusion(PendingRef(7)).candidate_hash == bytes([5]) * 32
    with pytest.raises(InclusionCandidateNotPending):
        router.apply_inclusion(PendingRef(7))
    assert router.state.pending_candidates == {}


def test_reference_with_block_includes_that_candidate(router: LaneRules) -> None:
    assert router.apply_inclusion(PendingRef(7, 5)).enacted
    assert router.state.hrmp_watermarks == {7: 4}
    assert [pending.backed_at for pending in router.state.pending_candidates[7]] == [3]


def test_timeout_drops_candidate_without_effect(router: LaneRules) -> None:
    effects = router.apply_timeout(PendingRef(7, 3))
    assert not effects.enacted
    assert effects.candidate_hash == bytes([3]) * 32
    assert router.state.hrmp_watermarks == {}
    with pytest.raises(TimeoutCandidateNotPending):
        router.apply_timeout(PendingRef(7, 3))


@pytest.mark.parametrize("ref", [PendingRef(8), PendingRef(7, 4), PendingRef(99, 3)])
def test_reference_to_nothing_pending_is_refused(router: LaneRules, ref: PendingRef) -> None:
    before = pages(router)
    with pytest.raises(InclusionCandidateNotPending) as inclusion:
        router.apply_inclusion(ref)
    with pytest.raises(TimeoutCandidateNotPending) as timeout:
        router.apply_timeout(ref)
    assert inclusion.value.details() == timeout.value.details() == {"para_id": ref.para_id}
    assert pages(router) == before


def test_pending_candidates_survive_session_change_and_offboarding(router: LaneRules) -> None:
    router.change_session(SessionChange(outgoing=(7,)))
    router = ROUTER.from_pages(pages(router), ChainSettings(enactment=Enactment.ON_INCLUSION))
    router.begin_block(8)
    assert router.apply_inclusion(PendingRef(7, 3)).enacted
    assert router.state.hrmp_watermarks == {7: 2}
    check_invariants(router.state)


CONFIG = HostConfiguration(
    max_upward_message_num_per_candidate=2,
    max_upward_message_size=8,
    max_upward_queue_count=4,
    max_upward_queue_size=32,
    preferred_dispatchable_upward_messages_step_weight=1,
    hrmp_max_message_num_per_candidate=1,
    hrmp_channel_max_places=4,
    hrmp_channel_max_message_size=8,
    hrmp_channel_max_size=32,
    hrmp_max_parachain_outbound_channels=1,
    hrmp_max_parachain_inbound_channels=1,
)
SENT = {2: b"one", 3: b"two", 4: b"three"}
"""By block, the message from para 1 to para 2."""


def with_messages() -> LaneRules:
    """Return a Router in block 5, whose channel 1->2 holds what was sent; roots and headroom are taken."""
    router = ROUTER.at_genesis(ChainSettings(CONFIG, (Para(1), Para(2))))
    router.begin_block(1)
    router.apply_request(InitOpenChannel(1, 2, 4, 8))
    router.apply_request(AcceptOpenChannel(2, 1))
    router.change_session(SessionChange())
    for block, data in SENT.items():
        router.begin_block(block)
        router.apply_candidate(Candidate(1, block - 1, block - 1, (), 0, (HorizontalMessage(2, data),)))
    router.begin_block(5)
    router.state_root()
    router.take_headroom()
    return router


def prune(router: LaneRules, watermark: int) -> None:
    """Let para 2 receive what was sent up to the watermark."""
    router.apply_candidate(Candidate(2, router.env.now - 1, watermark, (), 0, ()))


def test_partial_prune_leaves_head_of_last_pruned_message() -> None:
    router = with_messages()
    prune(router, 2)
    channel = router.state.hrmp_channels[1, 2]
    assert channel.pruned_head != channel.mqc_head
    check_invariants(router.state)
    assert router.state_root() == ROUTER.root_of(router.state)
    restored = ROUTER.from_pages(pages(router), router.settings)
    assert restored.state.hrmp_channels == router.state.hrmp_channels
    assert restored.state.hrmp_channel_contents == router.state.hrmp_channel_contents
    check_invariants(restored.state)


def test_partial_prunes_lead_to_same_root_as_one() -> None:
    at_once, in_steps = with_messages(), with_messages()
    prune(at_once, 3)
    for watermark in (2, 3):
        prune(in_steps, watermark)
    assert at_once.state_root() == in_steps.state_root()


def test_prune_emits_headroom_of_channel() -> None:
    router = with_messages()
    prune(router, 2)
    para, channel = router.take_headroom()
    assert isinstance(para, ParaHeadroom)
    assert (para.para_id, para.watermark, para.valid_watermarks) == (2, 2, (3, 4))
    assert channel == ChannelHeadroom(1, 2, open=True, places_left=2, bytes_left=24, message_size_max=8)
    prune(router, 4)
    assert router.take_headroom()[1:] == [
        ChannelHeadroom(1, 2, open=True, places_left=4, bytes_left=32, message_size_max=8)
    ]


def test_headroom_is_emitted_once_for_each_change() -> None:
    router = with_messages()
    assert router.take_headroom() == []
    prune(router, 2)
    assert len(router.take_headroom()) == 2
    assert router.take_headroom() == []


def test_dispatch_emits_headroom_of_para() -> None:
    router = with_messages()
    router.apply_candidate(Candidate(1, 4, 4, (b"upward", b"again"), 0, ()))
    (before,) = router.take_headroom()
    assert isinstance(before, ParaHeadroom)
    assert (before.upward_count_left, before.upward_bytes_left) == (2, 21)
    router.dispatch()
    (after,) = router.take_headroom()
    assert isinstance(after, ParaHeadroom)
    assert (after.para_id, after.upward_count_left, after.upward_bytes_left) == (1, 3, 27)


@pytest.mark.parametrize(
    ("changed", "emitted"),
    [
        (("max_upward_queue_count", 9), [(1, 9, 32), (2, 9, 32)]),
        (("max_upward_queue_size", 7), [(1, 4, 7), (2, 4, 7)]),
        (("max_upward_queue_size", 32), []),
        (("hrmp_channel_max_places", 9), []),
    ],
)
def test_new_upward_limits_emit_headroom_of_every_para(
    changed: tuple[str, int], emitted: list[tuple[int, int, int]]
) -> None:
    router = with_messages()
    router.change_session(SessionChange(new_config=(changed,)))
    paras = [item for item in router.take_headroom() if isinstance(item, ParaHeadroom)]
    assert [(item.para_id, item.upward_count_left, item.upward_bytes_left) for item in paras] == emitted
