# SPDX-License-Identifier: Apache-2.0
"""What a change of the Router's state marks: pages to encode again, and headroom to emit again."""

from __future__ import annotations

import pytest

from validator.core.outcomes import ChannelHeadroom, ParaHeadroom
from validator.core.rules import ChainSettings, LaneRules, pages
from validator.core.types import Para, SessionChange
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.invariants import check_invariants
from validator.protocols.router.records import AcceptOpenChannel, Candidate, HorizontalMessage, InitOpenChannel
from validator.protocols.router.rules import ROUTER

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
