# SPDX-License-Identifier: Apache-2.0
"""`validator.messages`: why a message waits, in the words of the lane's last records."""

from __future__ import annotations

from typing import Any

import pytest

from validator.messages import (
    LaneFacts,
    QueueName,
    age,
    before_each,
    end_of,
    ended_at,
    ends_of,
    holds,
    quantile,
    queue_of,
    queued_at,
    why_waits,
)

ERROR = {"kind": "HrmpWatermark/Behind", "clause": "x"}


def message(**changes: Any) -> dict[str, Any]:
    return {
        "lane": "polkadot", "kind": "horizontal", "sender": 2000, "recipient": 2004, "opened_at": 17, "number": 5, "status": "waiting",
        "payload_hash": "0xaa", "mqc_head": "0xbb", "payload": {"messages": [{"id": "0xcc"}]}, "journey": "dd", "waits_blocks": None,
        "legs": [{"step": "queued", "block": 117}],
    } | changes  # fmt: skip


def verdict(block: int, *, ok: bool = True, para: int = 2004, kind: str = "candidate") -> tuple[str, dict[str, Any]]:
    return "verdicts", {"kind": kind, "block": block, "para_id": para, "ok": ok, "error": None if ok else ERROR}


def watermark(block: int, at: int | None) -> tuple[str, dict[str, Any]]:
    return "headroom", {"para_id": 2004, "block": block, "watermark": at}


def facts(*records: tuple[str, dict[str, Any]]) -> LaneFacts:
    lane = LaneFacts()
    for topic, record in records:
        lane.take(topic, record)
    return lane


def said(about: dict[str, Any], lane: LaneFacts, ahead: int = 0) -> str:
    return why_waits(about, ahead, lane, lambda rejected: f"because of {rejected['error']['kind']}")


NOT_RECEIVED = "Para 2004 has not received it"
ACCEPTED = f"{NOT_RECEIVED}, though a candidate of the para was accepted in block 120"
OF_RELAY = {"kind": "downward", "sender": None}
TO_RELAY = {"kind": "upward", "sender": 2000, "recipient": None}
RECEIPT = {"block": 120, "dispatched": 2, "weight_used": 1_000_000}


@pytest.mark.parametrize(
    ("about", "records", "words"),
    [
        ({}, [("lanes", {"state": "parked", "reason": "a bug"})], "Lane polkadot is parked, so nothing moves: a bug"),
        ({}, [], f"{NOT_RECEIVED}: no candidate of the para is among the last verdicts."),
        ({}, [verdict(120, para=1), verdict(120, kind="request")], f"{NOT_RECEIVED}: no candidate of the para is among the last verdicts."),
        ({}, [verdict(95)], (f"{NOT_RECEIVED}: the para has had no candidate since block 117, in which the message was queued. "
            "Its last one was in block 95.")),
        ({}, [verdict(117)], (f"{NOT_RECEIVED}: the para has had no candidate after block 117, in which the message was queued. "
            "Its last one was in block 117.")),
        ({}, [verdict(95), verdict(1_120, ok=False)],
            "The last candidate of para 2004, in block 1,120, was rejected: because of HrmpWatermark/Behind"),
        ({}, [verdict(118, ok=False), verdict(120), watermark(120, 115)],
            f"{ACCEPTED}: its watermark is 115, and must reach 117, in which the message was queued."),
        ({}, [verdict(120), watermark(119, 115)],
            f"{ACCEPTED}: the para receives messages up to its watermark, which must reach the block in which the message was queued."),
        (OF_RELAY, [verdict(120), watermark(120, 115)],
            f"{ACCEPTED}: a candidate says how many downward messages it takes, from the front of the queue."),
        (TO_RELAY, [], "The relay chain has not dispatched it yet; it takes messages of para 2000 in order, within a block's weight."),
        (TO_RELAY, [("lanes", {"executed_block": 120, "last_receipt": RECEIPT})],
            ("The relay chain has not dispatched it yet; it takes messages of para 2000 in order, within a block's weight. "
            "Its last round, in block 120, dispatched 2 messages and spent weight 1,000,000.")),
    ],
)  # fmt: skip
def test_reason(about: dict[str, Any], records: list[tuple[str, dict[str, Any]]], words: str) -> None:
    assert said(message(**about), facts(*records)) == words


def test_messages_before_it_are_counted() -> None:
    assert said(message(), facts(), 1).endswith(" 1 message of the same queue is before it.")
    assert said(message(), facts(), 1200).endswith(" 1,200 messages of the same queue are before it.")


def test_lane_that_runs_again_is_not_parked() -> None:
    parked = [("lanes", {"state": state, "reason": "a bug"}) for state in ("parked", "running")]
    assert "parked" not in said(message(), facts(*parked))


def test_what_a_message_says_of_itself() -> None:
    assert queue_of(message()) == QueueName("polkadot", "horizontal", 2000, 2004, 17)
    assert [ends_of(message(**each)) for each in ({}, OF_RELAY, TO_RELAY)] == ["2000→2004", "relay→2004", "2000→relay"]
    ended = message(status="received", waits_blocks=3, legs=[*message()["legs"], {"step": "received", "block": 120}])
    assert (queued_at(message()), ended_at(message()), age(message(), 130), age(message(), None)) == (
        117,
        None,
        13,
        None,
    )
    assert (ended_at(ended), age(ended, 130)) == (120, 3)
    unseen = message(legs=[])
    assert (queued_at(unseen), age(unseen, 130)) == (None, None)


@pytest.mark.parametrize("digest", ["0xaa", "0xbb", "0xcc", "0xdd"])
def test_hashes_of_a_message(digest: str) -> None:
    assert holds(message(), digest)
    assert not holds(message(payload=None, payload_hash=None, mqc_head=None, journey=None), digest)


@pytest.mark.parametrize(
    ("step", "detail", "words"),
    [
        ("received", None, "received in block 1,120"),
        ("dispatched", "out_of_weight", "dispatched in block 1,120: out_of_weight"),
        ("dropped", "requested", "dropped in block 1,120: its channel was closed on request"),
        ("dropped", "oversized", "dropped in block 1,120: no page of the message queue can hold it"),
        ("dropped", "a later reason", "dropped in block 1,120: a later reason"),
    ],
)
def test_end_in_words(step: str, detail: str | None, words: str) -> None:
    legs = [*message()["legs"], {"step": step, "block": 1_120, "detail": detail}]
    assert end_of(message(status=step, legs=legs)) == words


def test_messages_before_a_number_are_those_of_its_queue() -> None:
    one, other = queue_of(message()), queue_of(message(sender=2001))
    before = before_each([(one, 7), (one, 3), (other, 1), (one, 5)])
    assert [before(one, number) for number in (3, 5, 7, 9)] == [0, 1, 2, 3]
    assert (before(other, 1), before(QueueName("kusama", "upward", 1, None, None), 4)) == (0, 0)


def test_quantile_of_waits() -> None:
    assert [quantile([5, 1, 9, 3], share) for share in (0, 0.5, 0.95, 1)] == [1, 3, 5, 9]
    assert quantile([], 0.5) is None
