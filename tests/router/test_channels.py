# SPDX-License-Identifier: Apache-2.0
"""The open channels, kept by recipient."""

from __future__ import annotations

import pytest

from validator.protocols.router.state import HrmpChannel, HrmpChannels


def channel() -> HrmpChannel:
    return HrmpChannel(0, 0, limit_used_places=8, limit_used_bytes=64, limit_message_size=16)


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
