# SPDX-License-Identifier: Apache-2.0
"""Builds what a lane and its chain say of blocks, as records and as datums."""

from __future__ import annotations

from typing import Any

from validator_relay_chain.oracle.facts import BlockFacts, CandidateFact
from validator_relay_chain.oracle.judge import Disagreement, Judge

LANE = "polkadot"
DIGEST = bytes(32)


def head(number: int) -> bytes:
    return number.to_bytes(32, "big")


def refusal(kind: str, **details: int) -> dict[str, Any]:
    listed = [{"name": name, "value": value} for name, value in details.items()]
    return {"kind": kind, "clause": "", "details": listed}


def verdict(
    block: int,
    kind: str = "candidate",
    index: int = 0,
    para_id: int = 2000,
    *,
    error: dict[str, Any] | None = None,
    messages: list[tuple[int, bytes]] | None = None,
    lane: str = LANE,
) -> dict[str, Any]:
    return {
        "lane": lane,
        "block": block,
        "kind": kind,
        "index": index,
        "para_id": para_id,
        "outcome": "accepted" if error is None else "rejected",
        "error": error,
        "enacted": True,
        "messages": [
            {"recipient": recipient, "sequence_number": 1, "mqc_head": mqc_head}
            for recipient, mqc_head in messages or []
        ],
        "runtime_digest": DIGEST,
        "id": bytes(16),
    }


def receipt(block: int, verdicts: int, *, lane: str = LANE) -> dict[str, Any]:
    return {
        "lane": lane,
        "block": block,
        "parent_number": block - 1,
        "session": 0,
        "accepted": verdicts,
        "rejected": 0,
        "enacted": 0,
        "dispatched": 0,
        "weight_used": 0,
        "runtime_digest": DIGEST,
        "state_root": None,
    }


def channel_event(block: int, event: str, sender: int, recipient: int) -> dict[str, Any]:
    none = bytes(16)
    return {
        "lane": LANE, "block": block, "index": 0, "event": event, "sender": sender, "recipient": recipient,
        "sender_reserved": none, "sender_returned": none, "recipient_reserved": none, "recipient_returned": none,
        "session": 1, "reason": None, "runtime_digest": DIGEST,
    }  # fmt: skip


def channel_room(block: int, sender: int, recipient: int, places: int, size: int) -> dict[str, Any]:
    return {
        "lane": LANE, "block": block, "sender": sender, "recipient": recipient, "open": True, "places_left": places,
        "bytes_left": size, "message_size_max": 100,
    }  # fmt: skip


def para_room(block: int, para_id: int, downward: int, watermark: int | None) -> dict[str, Any]:
    return {
        "lane": LANE, "block": block, "para_id": para_id, "valid": True, "upward_count_left": 1, "upward_bytes_left": 1,
        "downward_pending": downward, "watermark": watermark, "valid_watermarks": [],
    }  # fmt: skip


def facts(block: int, **fields: Any) -> BlockFacts:
    given = {"backed": 0, **fields}
    for name in ("included", "timed_out"):
        given[name] = tuple(
            each if isinstance(each, CandidateFact) else CandidateFact(each, known=True) for each in given.get(name, ())
        )
    return BlockFacts(LANE, block, head(block), **given)


def execute(judge: Judge, block: int, *verdicts: dict[str, Any]) -> None:
    """Give a judge the verdicts and the receipt of a block."""
    for each in verdicts:
        judge.take("verdicts", each)
    judge.take("receipts", receipt(block, len(verdicts)))


def settle(judge: Judge) -> None:
    """Let everything that waits be settled: later blocks come in later rounds."""
    later = 10_000 + 10 * judge.round
    for _ in range(3):
        judge.end_round()
        later += 1
        execute(judge, later)
    judge.end_round()


def judged(judge: Judge, given: BlockFacts) -> list[Disagreement]:
    """Return the disagreements of a block, settled if there are any."""
    found = judge.compare(given)
    if found is None:
        settle(judge)
        found = judge.compare(given)
    assert found is not None
    return found


def kinds(found: list[Disagreement]) -> list[tuple[str, str]]:
    return [(each.difference.kind, each.difference.reason.value) for each in found]
