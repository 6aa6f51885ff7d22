# SPDX-License-Identifier: Apache-2.0
"""How full ingress queues are, against what was sent and acknowledged, on fixed channels."""

from __future__ import annotations

from network_trace import R1, A, B, C
from network_world import chain_of, judged

from validator.plugin.protocol_api import DownwardMessage, LevelChoice

ALL = LevelChoice(None, 100, 100)


def test_channels_are_as_full_as_what_is_not_acknowledged() -> None:
    rules = chain_of((A, B, C), [(A, B), (C, B), (B, A)], max_channel_messages=4)
    assert rules.levels(0, ALL).channels == ()
    assert judged(rules, 5, A, [(B, R1, 7)])["ok"]
    assert judged(rules, 5, C, [(B, R1, 9)])["ok"]
    assert judged(rules, 6, A, [(B, R1, 11)])["ok"]
    rules.apply_downward(DownwardMessage(C, b"relay"))
    found = rules.levels(9, ALL)
    assert [each[:7] for each in found.channels] == [(A, B, 2, 18, 4, None, 5), (C, B, 1, 9, 4, None, 5)]
    assert {each[7:] for each in found.channels} == {(None, None)}
    assert [(each.para_id, each.watermark_lag) for each in found.paras] == [(A, 0), (B, 5), (C, 0)]
    assert found.paras[2][6:10] == (1, 5, 6, 1)
    for level in found.channels:
        left = rules.channel_headroom((level.sender, level.recipient))
        assert level.messages is not None
        assert level.messages_max == level.messages + left.places_left
    assert judged(rules, 7, B, acks=[(5, A)])["ok"]
    found = rules.levels(9, ALL)
    assert [each[:4] for each in found.channels] == [(A, B, 1, 11), (C, B, 1, 9)]
    assert found.paras[1].watermark_lag == 4
    assert judged(rules, 8, B, acks=[(5, C), (6, A)])["ok"]
    assert rules.levels(9, ALL).channels == ()
    assert rules.levels(9, ALL).paras[1].watermark_lag == 0
