# SPDX-License-Identifier: Apache-2.0
"""How full queues are, against what was sent, read, requested and closed."""

from __future__ import annotations

from early_hrmp_world import CONFIGURATION, candidate, chain, lived, open_channels
from validator_early_hrmp.records import CloseChannel

from validator.plugin.protocol_api import DownwardMessage, LaneLevel, LevelChoice, SessionChange
from validator.protocols.kit import AcceptOpenChannel, InitOpenChannel

ALL = LevelChoice(None, 100, 100)


def test_queue_and_channels_are_as_full_as_what_was_sent_and_not_read() -> None:
    rules = chain(1, 2, 3)
    open_channels(rules, (1, 2), (3, 2))
    rules.begin_block(4)
    rules.apply_downward(DownwardMessage(2, b"relay"))
    rules.apply_candidate(candidate(1, 3, p2="0203"))
    rules.begin_block(6)
    rules.apply_candidate(candidate(1, 5, p2="04"))
    rules.apply_candidate(candidate(3, 5, p2="050607"))
    found = rules.levels(9, ALL)
    para = found.paras[1]
    assert (para.para_id, para.downward_messages, para.downward_bytes, para.downward_sent) == (2, 4, 11, 4)
    assert (para.downward_oldest, para.watermark_lag) == (4, 6)
    assert (para.upward_messages, para.upward_messages_max) == (0, 0)
    one, other = found.channels
    assert one[:7] == (1, 2, 2, 3, CONFIGURATION.hrmp_channel_max_places, CONFIGURATION.hrmp_channel_max_size, 4)
    assert other[:7] == (3, 2, 1, 3, CONFIGURATION.hrmp_channel_max_places, CONFIGURATION.hrmp_channel_max_size, 6)
    assert one[7:] == (None, None)
    for level in found.channels:
        left = rules.channel_headroom((level.sender, level.recipient))
        assert level.messages is not None
        assert level.messages_max == level.messages + left.places_left
    rules.begin_block(7)
    rules.apply_candidate(candidate(2, 4))
    found = rules.levels(9, ALL)
    assert (found.paras[1].downward_messages, found.paras[1].watermark_lag) == (2, 5)
    assert [(each.messages, each.oldest) for each in found.channels] == [(1, 6), (1, 6)]
    rules.begin_block(8)
    rules.apply_candidate(candidate(2, 7))
    found = rules.levels(9, ALL)
    assert (found.paras[1].downward_oldest, found.paras[1].watermark_lag) == (None, 0)
    assert [(each.messages, each.oldest) for each in found.channels] == [(0, None), (0, None)]


def test_messages_of_an_earlier_channel_of_the_same_paras_do_not_count() -> None:
    rules = lived()
    (channel,) = (each for each in rules.levels(5, ALL).channels if (each.sender, each.recipient) == (1, 2))
    assert (channel.messages, channel.bytes, channel.oldest) == (1, 2, 4)


def test_requests_are_counted_by_what_becomes_of_them() -> None:
    rules = chain(1, 2, 3)
    open_channels(rules, (1, 2))
    rules.apply_request(InitOpenChannel(2, 1))
    rules.apply_request(InitOpenChannel(2, 3))
    rules.apply_request(AcceptOpenChannel(3, 1))
    rules.apply_request(CloseChannel(1, 1, 2))
    assert rules.levels(1, ALL).lane == LaneLevel(unconfirmed=1, confirmed=1, closing=1)
    rules.change_session(SessionChange())
    assert rules.levels(1, ALL).lane == LaneLevel(unconfirmed=1, expiring=1, oldest_age=1)


def test_only_wanted_paras_and_their_channels_have_levels() -> None:
    rules = chain(1, 2, 3)
    open_channels(rules, (1, 2), (2, 3), (3, 2))
    found = rules.levels(1, LevelChoice((3,), 10, 1))
    assert [each.para_id for each in found.paras] == [3]
    assert [(each.sender, each.recipient) for each in found.channels] == [(2, 3)]
    assert found.left_out == 1
