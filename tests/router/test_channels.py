# SPDX-License-Identifier: Apache-2.0
"""The open channels, kept by recipient, and the marks of their headroom."""

from __future__ import annotations

import pytest

from validator.core.types import ParaKind
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.records import Candidate, HorizontalMessage
from validator.protocols.router.rules import Router
from validator.protocols.router.state import HrmpChannel, HrmpChannels, RouterState, add_channel


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


def test_channel_is_marked_once_in_each_round() -> None:
    router = Router(ring(4))
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
