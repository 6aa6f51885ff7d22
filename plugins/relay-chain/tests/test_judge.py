# SPDX-License-Identifier: Apache-2.0
"""The judge finds what a lane and its chain differ in, says who is to blame, and takes nothing that is late for a difference."""

from __future__ import annotations

import json
from typing import Any

import pytest
from oracle_world import (
    LANE,
    channel_event,
    channel_room,
    execute,
    facts,
    head,
    judged,
    kinds,
    para_room,
    receipt,
    refusal,
    settle,
    verdict,
)
from validator_relay_chain.limits import DISAGREEMENTS_MAX, TEXT_CHARACTERS_MAX, WAITING_BLOCKS_MAX
from validator_relay_chain.oracle.facts import BlockFacts, CandidateFact, ChannelFact, DownwardFact, WatermarkFact
from validator_relay_chain.oracle.judge import Judge


@pytest.fixture
def judge() -> Judge:
    return Judge(LANE)


def test_equal_sides_are_counted(judge: Judge) -> None:
    execute(judge, 5, verdict(5, index=0), verdict(5, index=1, para_id=2004), verdict(5, "inclusion", para_id=2000))
    assert judge.front == 5
    assert judge.compare(facts(5, backed=2, included=[2000, CandidateFact(2030, known=False)])) == []
    assert judge.agreement() == {
        "lane": LANE, "block": 5, "blocks": 1, "candidates": 2, "inclusions": 1, "heads": 0, "counters": 0, "channels": 0,
        "skipped": 0, "disagreements": {}, "last_ours": None,
    }  # fmt: skip


def test_block_without_all_verdicts_is_no_front(judge: Judge) -> None:
    judge.take("verdicts", verdict(5))
    assert judge.front is None
    judge.take("receipts", receipt(5, 2))
    assert judge.front is None
    judge.take("verdicts", verdict(5, index=1))
    assert judge.front == 5


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (refusal("HrmpWatermark/AdvancementRule", new_watermark=4, last_watermark=4), "watermark-repeated"),
        (refusal("HrmpWatermark/AdvancementRule", new_watermark=3, last_watermark=4), "ours"),
        (refusal("UpwardMessages/CapacityExceeded", count=9, limit=8), "upward-dispatch"),
        (refusal("UpwardMessages/TotalSizeExceeded", total=9, limit=8), "upward-dispatch"),
        (refusal("OutboundHrmp/NoSuchChannel", idx=0), "ours"),
        (refusal("ProcessedDownwardMessages/Underflow", dmq_length=0), "ours"),
        (refusal("ProcessedDownwardMessages/AdvancementRule", dmq_length=1), "ours"),
    ],
)
def test_refused_candidate_has_a_reason(judge: Judge, error: dict[str, Any], reason: str) -> None:
    execute(judge, 5, verdict(5, error=error))
    (found,) = judged(judge, facts(5, backed=1))
    assert kinds([found]) == [("CandidateRefused", reason)]
    assert found.difference.lane_says.startswith(error["kind"])
    assert found.difference.chain_says == "backed"
    assert judge.disagreements == {reason: 1}
    assert judge.last_ours == (5 if reason == "ours" else None)


@pytest.mark.parametrize(("later", "reason"), [(1, "downward-order"), (4, "downward-order"), (5, "ours")])
def test_downward_message_shortly_before_explains_missing_progress(judge: Judge, later: int, reason: str) -> None:
    execute(judge, 5, verdict(5, "downward", messages=[(2000, head(1))]))
    assert judge.compare(facts(5)) == []
    execute(
        judge, 5 + later, verdict(5 + later, error=refusal("ProcessedDownwardMessages/AdvancementRule", dmq_length=1))
    )
    assert kinds(judged(judge, facts(5 + later, backed=1))) == [("CandidateRefused", reason)]


def test_candidates_and_inclusions_that_are_missing(judge: Judge) -> None:
    execute(judge, 5, verdict(5))
    found = judged(judge, facts(5, backed=2, included=[2000], timed_out=[2004]))
    assert kinds(found) == [("CandidatesMissing", "ours"), ("InclusionMissing", "ours"), ("TimeoutMissing", "ours")]
    assert (found[1].difference.lane_says, found[1].difference.chain_says) == ("none", "included: 2000")


def test_inclusion_of_a_refused_candidate_follows_from_it(judge: Judge) -> None:
    error = refusal("HrmpWatermark/AdvancementRule", new_watermark=4, last_watermark=4)
    execute(judge, 5, verdict(5, error=error))
    judged(judge, facts(5, backed=1))
    execute(judge, 6, verdict(6, "inclusion", error=refusal("Inclusion/CandidateNotPending")))
    (found,) = judged(judge, facts(6, included=[2000]))
    assert kinds([found]) == [("InclusionRefused", "watermark-repeated")]
    assert found.difference.follows_block == 5
    execute(judge, 7, verdict(7, "timeout", para_id=2004, error=refusal("Inclusion/CandidateNotPending")))
    assert kinds(judged(judge, facts(7, timed_out=[2004]))) == [("TimeoutRefused", "ours")]


def channel(mqc_head: bytes | None, places: int = 10, size: int = 100) -> ChannelFact:
    return ChannelFact(2000, 2004, places, size, mqc_head)


def test_head_is_compared_with_the_last_message_of_the_block(judge: Judge) -> None:
    messages = [(2004, head(1)), (2004, head(2))]
    execute(judge, 5, verdict(5, "inclusion", messages=messages))
    assert judge.compare(facts(5, included=[2000], channels=(channel(head(2)),))) == []
    assert judge.counts["heads"] == 1


def test_head_that_differs_is_told_with_both_sides(judge: Judge) -> None:
    execute(judge, 5, verdict(5, "inclusion", messages=[(2004, head(1))]))
    (found,) = judged(judge, facts(5, included=[2000], channels=(channel(head(9)),)))
    assert found.to_json(LANE) == {
        "lane": LANE, "block": 5, "block_hash": head(5).hex(), "index": 0, "kind": "ChannelHead", "para_id": 2000,
        "recipient": 2004, "lane_says": f"0x{head(1).hex()}", "chain_says": f"0x{head(9).hex()}", "reason": "ours",
        "follows_block": None,
    }  # fmt: skip


def test_head_that_moves_on_the_chain_alone_is_found(judge: Judge) -> None:
    execute(judge, 5)
    assert judge.compare(facts(5, channels=(channel(head(1)),), downward=(DownwardFact(2000, 0, None),))) == []
    assert judge.counts["heads"] == 0  # the first look has nothing to compare with
    execute(judge, 6)
    found = judged(judge, facts(6, channels=(channel(head(2)),), downward=(DownwardFact(2000, 0, head(3)),)))
    assert kinds(found) == [("ChannelHead", "ours"), ("DownwardHead", "ours")]
    assert found[1].difference.lane_says == "none"


def test_downward_head_is_compared(judge: Judge) -> None:
    execute(judge, 5, verdict(5, "downward", messages=[(2000, head(1))]))
    assert judge.compare(facts(5, downward=(DownwardFact(2000, 1, head(1)),))) == []
    assert judge.counts["heads"] == 1


def test_rooms_are_compared_where_the_lane_emits_them(judge: Judge) -> None:
    judge.take("headroom", channel_room(4, 2000, 2004, 10, 100))
    judge.take("headroom", para_room(6, 2000, 2, 5))
    judge.take("headroom", channel_room(8, 2000, 2004, 7, 70))
    for number in (4, 5, 6, 8):
        execute(judge, number)
    said = {
        "channels": (channel(None),), "downward": (DownwardFact(2000, 2, None),), "watermarks": (WatermarkFact(2000, 5),),
    }  # fmt: skip
    assert judge.compare(facts(4, **said)) == []
    assert judge.counts["counters"] == 1  # no headroom of a para yet
    assert judge.compare(facts(5, **said)) == []
    assert judge.counts["counters"] == 1  # no headroom after block 5
    assert judge.compare(facts(6, **said)) == []
    assert judge.counts["counters"] == 4  # the channel as of block 4, and the para
    found = judged(judge, facts(8, **said | {"watermarks": (WatermarkFact(2000, 6),)}))
    assert kinds(found) == [("ChannelRoom", "ours"), ("Watermark", "ours")]
    assert (found[0].difference.lane_says, found[0].difference.chain_says) == (
        "7 places, 70 bytes left", "10 places, 100 bytes left",
    )  # fmt: skip


def test_difference_that_stands_is_reported_once_until_a_side_changes(judge: Judge) -> None:
    reported = []
    for number, mark in ((5, 4), (6, 4), (7, 4), (8, 3), (9, 5), (10, 4)):
        judge.take("headroom", para_room(number, 2000, 0, 5))
        execute(judge, number)
        found = judged(judge, facts(number, watermarks=(WatermarkFact(2000, mark),)))
        reported += [(each.block, each.difference.chain_says) for each in found]
        judge = Judge.from_json(LANE, json.loads(json.dumps(judge.to_json())))
    assert reported == [(5, "4"), (8, "3"), (10, "4")]
    assert judge.disagreements == {"ours": 3}


def test_channels_of_a_session_are_compared(judge: Judge) -> None:
    execute(judge, 5)
    judge.take("channel-events", channel_event(5, "opened", 2000, 2004))
    judge.take("channel-events", channel_event(5, "closed", 2000, 2030))
    judge.take("channel-events", channel_event(5, "requested", 2000, 2031))
    given = facts(5, session_ends=True, opened=((2000, 2004),), closed=((2000, 2030),))
    assert judge.compare(given) == []
    assert judge.counts["channels"] == 2
    execute(judge, 6)
    judge.take("channel-events", channel_event(6, "opened", 2000, 2032))
    found = judged(judge, facts(6, session_ends=True, opened=((2000, 2033),), closed=None))
    assert [(each.difference.kind, each.difference.recipient, each.difference.chain_says) for each in found] == [
        ("ChannelsOpened", 2032, "no"), ("ChannelsOpened", 2033, "yes"),
    ]  # fmt: skip


def test_difference_waits_until_it_is_settled_and_may_vanish(judge: Judge) -> None:
    execute(judge, 5)
    given = facts(5, session_ends=True, opened=((2000, 2004),), closed=())
    assert judge.compare(given) is None
    judge.end_round()  # its ends were asked for before the receipt was read: another topic may end behind them
    assert judge.compare(given) is None
    judge.take("channel-events", channel_event(5, "opened", 2000, 2004))
    assert judge.compare(given) == []


def test_difference_of_the_last_block_is_settled_without_a_later_one(judge: Judge) -> None:
    """The round after the receipt's has read all that the block's transaction wrote."""
    execute(judge, 5)
    judge.end_round()
    assert judge.compare(facts(5, backed=1)) is None
    judge.end_round()
    found = judge.compare(facts(5, backed=1))
    assert found is not None
    assert [each.difference.kind for each in found] == ["CandidatesMissing"]


def test_state_survives_a_restart_at_any_point(judge: Judge) -> None:
    def restarted(of: Judge) -> Judge:
        return Judge.from_json(LANE, json.loads(json.dumps(of.to_json())))

    def story(kill: bool) -> tuple[list[Any], Any]:
        one, told = Judge(LANE), []
        steps: list[Any] = [
            lambda: execute(one, 5, verdict(5, error=refusal("OutboundHrmp/NoSuchChannel", idx=0))),
            lambda: one.take("headroom", channel_room(5, 2000, 2004, 7, 70)),
            lambda: one.take("headroom", para_room(5, 2000, 2, None)),
            lambda: execute(one, 6, verdict(6, "downward", messages=[(2000, head(1))])),
            lambda: one.end_round(),  # noqa: PLW0108 - a restart makes another one
            lambda: one.take("channel-events", channel_event(6, "closed", 2000, 2004)),
            lambda: settle(one),
            lambda: told.append(one.compare(facts(5, backed=1, channels=(channel(head(1)),)))),
            lambda: told.append(one.compare(facts(6, downward=(DownwardFact(2000, 1, head(2)),)))),
        ]
        for step in steps:
            step()
            if kill:
                one = restarted(one)
        return told, one.to_json()

    assert story(kill=True) == story(kill=False)
    told, _ = story(kill=True)
    assert [kinds(each) for each in told] == [
        [("CandidateRefused", "ours"), ("ChannelRoom", "ours")], [("DownwardHead", "ours")],
    ]  # fmt: skip


def test_block_whose_facts_are_missing_is_skipped_and_its_heads_are_forgotten(judge: Judge) -> None:
    execute(judge, 5, verdict(5, "inclusion", messages=[(2004, head(1))]))
    assert judge.compare(facts(5, included=[2000])) == []
    execute(judge, 6, verdict(6, "inclusion", messages=[(2004, head(2))]))
    judge.skip(6)
    execute(judge, 7)
    assert judge.compare(facts(7, channels=(channel(head(9)),))) == []
    assert (judge.counts["skipped"], judge.counts["blocks"], judge.last_block) == (1, 2, 7)


def test_records_of_blocks_that_were_compared_are_left_out(judge: Judge) -> None:
    execute(judge, 5)
    assert judge.compare(facts(5)) == []
    judge.take("verdicts", verdict(5))
    judge.take("verdicts", verdict(4))
    assert judge.front is None
    execute(judge, 6)
    assert judge.front == 6


def test_waiting_blocks_are_bounded(judge: Judge) -> None:
    for number in range(WAITING_BLOCKS_MAX):
        execute(judge, number)
    assert not judge.is_crowded
    execute(judge, WAITING_BLOCKS_MAX)
    assert judge.is_crowded


def test_disagreements_and_their_texts_are_bounded(judge: Judge) -> None:
    error = refusal("OutboundHrmp/" + "x" * 2 * TEXT_CHARACTERS_MAX)
    count = DISAGREEMENTS_MAX + 1
    execute(judge, 5, *(verdict(5, index=index, error=error) for index in range(count)))
    found = judged(judge, facts(5, backed=count))
    assert len(found) == DISAGREEMENTS_MAX
    assert judge.disagreements == {"ours": count}
    assert len(found[0].to_json(LANE)["lane_says"]) == TEXT_CHARACTERS_MAX


def test_facts_are_the_same_after_a_record() -> None:
    from validator_relay_chain.oracle import records

    given = facts(
        5, backed=2, included=[2000, CandidateFact(2030, known=False)], timed_out=[2004], session_ends=True,
        opened=((1, 2),), closed=(), channels=(channel(head(1)), channel(None)), downward=(DownwardFact(7, 1, head(2)),),
        watermarks=(WatermarkFact(7, 4),),
    )  # fmt: skip
    form = next(each.form for each in records.own_topics() if each.topic.name == records.FACTS)
    from validator.codec.json_form import encode_json

    value = encode_json(form.format.schema, given.to_json())
    assert form.key_of(value) == LANE.encode()
    assert BlockFacts.from_datum(records.decode(records.FACTS, value)) == given
