# SPDX-License-Identifier: Apache-2.0
"""The pages of messages: which wait longest and why, how long each queue's messages wait, and one message's way."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from validator.console.context import ConsoleContext, Missing, Page, Query, number_of
from validator.console.limits import LIST_MAX, ROWS_MAX, VERDICTS_SEARCHED_MAX
from validator.console.verdicts import record_of, why
from validator.errors import UserError
from validator.messages import WAITING, LaneFacts, ParaFacts, age, content_of, end_of, why_waits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from validator.console.journeys import KeptMessage, QueueEnds
    from validator.console.model import Json, LaneModel
    from validator.messages import QueueName

Before: TypeAlias = "Callable[[QueueName, int], int]"

KINDS: Final = ("horizontal", "downward", "upward")
STATUSES: Final = (WAITING, "received", "dispatched", "dropped")


def messages_page(console: ConsoleContext, path: dict[str, str], query: Query) -> Page:
    """Where messages are, and which wait longest."""
    lane = console.lane(path["lane"])
    problem, para = "", None
    try:
        para = number_of(query, "para")
    except UserError as error:
        problem = str(error)
    kind = query.get("kind") if query.get("kind") in KINDS else None
    status = query.get("status") if query.get("status") in STATUSES else WAITING
    kept = lane.messages
    waiting = [each for each in kept.waiting.values() if _is_wanted(each, para, kind)]
    waiting.sort(key=lambda each: (each.queued_at or 0, tuple(map(str, each.queue)), each.number))
    ended = [each for each in reversed(kept.ended.values()) if _is_wanted(each, para, kind) and each.status == status]
    found = waiting if status == WAITING else ended
    rows = found[:ROWS_MAX]
    facts = facts_of(lane, {each.queue.recipient for each in rows if each.status == WAITING})
    before = kept.before()
    queues = _queues(lane, waiting, para, kind)
    return Page(
        "messages.html",
        {
            **console.common("messages", lane),
            "problem": problem,
            "para": para,
            "kind": kind,
            "kinds": KINDS,
            "status": status,
            "statuses": STATUSES,
            "known": bool(kept),
            "waiting": len(waiting),
            "unkept": kept.unkept,
            "oldest": None if not waiting else _age(lane, waiting[0]),
            "outcomes": Counter(each.status for each in kept.ended.values() if _is_wanted(each, para, kind)),
            "rows": [row_of(console, lane, each, facts, before) for each in rows],
            "more": len(found) - len(rows),
            "queues": queues[:LIST_MAX],
            "more_queues": max(0, len(queues) - LIST_MAX),
        },
    )


def message_page(console: ConsoleContext, path: dict[str, str], _query: Query) -> Page:
    """One message's way."""
    lane = console.lane(path["lane"])
    message = lane.messages.get(path["id"])
    if message is None:
        raise Missing(
            f"Message {path['id'][:160]} is not among the {len(lane.messages.waiting):,} that wait and the "
            f"{len(lane.messages.ended):,} newest that ended: `validator message ID` looks at all."
        )
    record = console.model.message(message.value)
    others = _same_journey(console, record)
    return Page(
        "message.html",
        {
            **console.common("messages", lane),
            "message": message,
            "record": record,
            "row": row_of(console, lane, message, facts_of(lane, {message.queue.recipient}), lane.messages.before()),
            "steps": [{**leg, "time_ms": lane.time_of(leg["block"])} for leg in record["legs"]],
            "payload": record["payload"],
            "queue": lane.messages.queues.get(message.ends),
            "others": others,
        },
    )


def _is_wanted(message: KeptMessage, para: int | None, kind: str | None) -> bool:
    return (para is None or para in message.paras) and kind in (None, message.queue.kind)


def _age(lane: LaneModel, message: KeptMessage) -> int | None:
    """Return for how many blocks a message has waited that still waits."""
    if message.queued_at is None or lane.executed_block is None:
        return None
    return max(0, lane.executed_block - message.queued_at)


def row_of(
    console: ConsoleContext, lane: LaneModel, message: KeptMessage, facts: LaneFacts, before: Before
) -> dict[str, Any]:
    """Return a message's row; ``before`` counts what waits in front of it."""
    record = console.model.message(message.value)
    waits = message.status == WAITING
    ahead = before(message.queue, message.number) if waits else 0
    return {
        "id": message.id,
        "lane": lane.name,
        "queue": message.queue,
        "number": message.number,
        "status": message.status,
        "state": {WAITING: "quiet", "dropped": "bad"}.get(message.status, "ok"),
        "age": age(record, lane.executed_block),
        "queued_at": message.queued_at,
        "content": content_of(record),
        "why": why_waits(record, ahead, facts, lambda verdict: why(dict(verdict)).text) if waits else "",
        "end": None if waits else end_of(record),
    }


def facts_of(lane: LaneModel, paras: Iterable[int | None]) -> LaneFacts:
    """Return what is known of a lane and of some paras, from the kept records."""
    facts = LaneFacts(
        lane.executed_block,
        lane.parked["reason"] if lane.parked else None,
        lane.status["last_receipt"] if lane.status else None,
    )
    left = {para for para in paras if para is not None}
    for para in left:
        facts.paras[para] = known = ParaFacts()
        headroom = lane.paras[para].now if para in lane.paras else None
        if headroom is not None:
            known.watermark, known.watermark_block = headroom["watermark"], headroom["block"]
    for verdict in islice(lane.newest(), VERDICTS_SEARCHED_MAX):
        if not left:
            break
        if verdict.kind != "candidate" or verdict.para_id not in left:
            continue
        known = facts.paras[verdict.para_id]
        if verdict.ok:
            known.accepted_block = verdict.block
            left.remove(verdict.para_id)
        elif known.rejected is None:
            known.rejected = record_of(verdict)
    return facts


def _queues(lane: LaneModel, waiting: list[KeptMessage], para: int | None, kind: str | None) -> list[dict[str, Any]]:
    """Return the rows of queues, those first in which most wait."""
    counts = Counter(each.ends for each in waiting)
    oldest: dict[QueueEnds, KeptMessage] = {}
    for message in waiting:
        oldest.setdefault(message.ends, message)
    names = {
        *counts,
        *(ends for ends in lane.messages.queues if (para is None or para in ends[1:]) and kind in (None, ends.kind)),
    }
    rows = []
    for ends in names:
        queue = lane.messages.queues.get(ends)
        rows.append(
            {
                "ends": ends,
                "waiting": counts[ends],
                "oldest": _age(lane, oldest[ends]) if ends in oldest else None,
                "ended": {} if queue is None else queue.ended,
                "half": None if queue is None else queue.wait(0.5),
                "most": None if queue is None else queue.wait(0.95),
            }
        )
    return sorted(rows, key=lambda row: (-row["waiting"], -(row["oldest"] or 0), str(row["ends"])))


def _same_journey(console: ConsoleContext, record: Json) -> list[dict[str, Any]]:
    """Return the rows of the other kept messages of a message's journey, on any lane."""
    if record["journey"] is None:
        return []
    needle = record["journey"].encode()
    found = [
        (lane, message)
        for lane in console.model.lanes.values()
        for message in lane.messages.holding(needle)
        if message.id != record["id"]
    ]
    return [row_of(console, lane, message, LaneFacts(), lambda *_: 0) for lane, message in islice(found, ROWS_MAX)]
