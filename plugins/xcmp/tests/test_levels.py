# SPDX-License-Identifier: Apache-2.0
"""What is known of channels whose messages travel elsewhere: whether the newest one is unread, and since when."""

from __future__ import annotations

from validator_xcmp.records import Candidate
from validator_xcmp.rules import XCMP
from validator_xcmp.state import XcmpConfiguration

from validator.core.rules import LaneRules
from validator.plugin.protocol_api import ChainSettings, DownwardMessage, LaneLevel, LevelChoice, Para, SessionChange
from validator.protocols.kit import AcceptOpenChannelFrom, InitOpenChannel

ALL = LevelChoice(None, 100, 100)
CONFIGURATION = XcmpConfiguration(
    xcmp_channel_capacity=8,
    xcmp_max_outbound_channels=4,
    xcmp_open_request_ttl=2,
    xcmp_condemned_sessions=2,
)


def chain() -> LaneRules:
    """Return a chain in block 1 with channels from para 1 to 2 and from 3 to 2."""
    rules = XCMP.at_genesis(ChainSettings(CONFIGURATION, tuple(Para(para, balance=100) for para in (1, 2, 3))))
    rules.begin_block(1)
    for sender in (1, 3):
        rules.apply_request(InitOpenChannel(sender, 2))
        rules.apply_request(AcceptOpenChannelFrom(2, sender))
    assert rules.levels(1, ALL).lane == LaneLevel(confirmed=2)
    rules.apply_request(InitOpenChannel(2, 1))
    rules.change_session(SessionChange())
    return rules


def candidate(para: int, relay_parent: int, watermark: tuple[int, int], bitfield: str = "") -> Candidate:
    root = bytes(31) + b"\1" if bitfield else None
    return Candidate(para, relay_parent, watermark, bitfield, root)


def test_channel_says_since_when_its_newest_message_is_unread() -> None:
    rules = chain()
    assert rules.levels(1, ALL).lane == LaneLevel(unconfirmed=1, expiring=1, oldest_age=1)
    assert [each[:7] for each in rules.levels(1, ALL).channels] == [
        (1, 2, None, None, 8, None, None),
        (3, 2, None, None, 8, None, None),
    ]
    rules.begin_block(4)
    rules.apply_downward(DownwardMessage(2, b"relay"))
    rules.apply_candidate(candidate(1, 3, (3, 0), "1"))
    rules.begin_block(6)
    rules.apply_candidate(candidate(3, 5, (5, 0), "1"))
    found = rules.levels(9, ALL)
    assert [(each.sender, each.oldest) for each in found.channels] == [(1, 4), (3, 6)]
    assert [(each.para_id, each.watermark_lag) for each in found.paras] == [(1, 0), (2, 6), (3, 0)]
    assert found.paras[1][6:10] == (1, 5, 4, 1)
    rules.begin_block(7)
    rules.apply_candidate(candidate(2, 6, (4, 1)))
    found = rules.levels(9, ALL)
    assert [(each.sender, each.oldest) for each in found.channels] == [(1, None), (3, 6)]
    assert found.paras[1].watermark_lag == 5
    assert found.paras[1].downward_messages == 0
