# SPDX-License-Identifier: Apache-2.0
"""The open channels, kept by recipient, and looking them up ahead of a block's candidates."""

from __future__ import annotations

import pytest

from validator.core.rules import LaneRules
from validator.core.types import ParaKind
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.records import Candidate, HorizontalMessage
from validator.protocols.router.rules import RECIPIENTS_MIN, ROUTER, look_up_channels
from validator.protocols.router.state import HrmpChannel, HrmpChannels, RouterState, add_channel
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
