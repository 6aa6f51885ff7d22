# SPDX-License-Identifier: Apache-2.0
"""Where messages between chains are, and why one waits: from records in JSON of the topic `journeys` and of the topics of lanes.

The job `journeys` of the distribution `validator-journeys` writes the topic. A message waits in a queue; `why_waits` says in a sentence
which rule or whose inaction holds it there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from validator.hexadecimal import bare
from validator.sentences import count, plural

Json: TypeAlias = Mapping[str, Any]

JOURNEYS: Final = "journeys"
WAITING: Final = "waiting"


class QueueName(NamedTuple):
    """The queue of a message; None is the relay chain, ``opened_at`` the block in which its numbers began."""

    lane: str
    kind: str
    sender: int | None
    recipient: int | None
    opened_at: int | None


def queue_of(message: Json) -> QueueName:
    """Return the queue that a message is or was in."""
    return QueueName(*(message[name] for name in QueueName._fields))


def queued_at(message: Json) -> int | None:
    """Return the block in which a message was queued, None if nobody saw it."""
    return next((leg["block"] for leg in message["legs"] if leg["step"] == "queued"), None)


def ended_at(message: Json) -> int | None:
    """Return the block in which a message ended, None if it waits."""
    return None if message["status"] == WAITING else message["legs"][-1]["block"]


def age(message: Json, executed_block: int | None) -> int | None:
    """Return for how many blocks a message waits or has waited; None if that is not known."""
    if message["status"] != WAITING:
        waited: int | None = message["waits_blocks"]
        return waited
    since = queued_at(message)
    return None if since is None or executed_block is None else max(0, executed_block - since)


DROPPED: Final = {
    "requested": "its channel was closed on request",
    "offboarded": "a para at one of its ends was offboarded",
    "oversized": "no page of the message queue can hold it",
}
"""Why a message is dropped, by the reason of the channel event."""


def end_of(message: Json) -> str:
    """Return in words how a message ended."""
    last = message["legs"][-1]
    detail = DROPPED.get(last["detail"], last["detail"]) if last["step"] == "dropped" else last["detail"]
    return f"{last['step']} in block {count(last['block'])}" + (f": {detail}" if detail else "")


def ends_of(message: Json) -> str:
    """Return who sent a message to whom, such as ``2000→2004``."""
    sender, recipient = message["sender"], message["recipient"]
    return f"{'relay' if sender is None else sender}→{'relay' if recipient is None else recipient}"


def quantile(waits: Collection[int], share: float) -> int | None:
    """Return how many blocks a share of messages have waited at most, None without a wait."""
    return sorted(waits)[int(share * (len(waits) - 1))] if waits else None


def before_each(numbers: Iterable[tuple[QueueName, int]]) -> Callable[[QueueName, int], int]:
    """Return a function that counts the messages of a queue before a number; ``numbers`` has all that wait."""
    queues: dict[QueueName, list[int]] = {}
    for queue, number in numbers:
        queues.setdefault(queue, []).append(number)
    for found in queues.values():
        found.sort()
    return lambda queue, number: bisect_left(queues.get(queue, ()), number)


def holds(message: Json, digest: str) -> bool:
    """Return whether a hash in hex with ``0x`` is one of a message: of its payload, its queue's head, an XCM, or its journey."""
    payload = message["payload"] or {"messages": ()}
    ids = (each["id"] for each in payload["messages"])
    return digest in (message["payload_hash"], message["mqc_head"], *ids) or bare(digest) == message["journey"]


def content_of(message: Json) -> str:
    """Describe in few words what a message holds: the instructions of its XCMs, or its form and size."""
    payload = message["payload"]
    if payload is None:
        return "not seen"
    names = ", ".join(instruction for each in payload["messages"] for instruction in each["instructions"])
    return names or f"{payload['form']}, {plural(message['size'], 'byte')}"


@dataclass(slots=True)
class ParaFacts:
    """The last that is known of a para's candidates: the last accepted one's block, and a later one's verdict if it was rejected.

    ``watermark`` holds after ``watermark_block``.
    """

    accepted_block: int | None = None
    rejected: Json | None = None
    watermark: int | None = None
    watermark_block: int | None = None


@dataclass(slots=True)
class LaneFacts:
    """The last that is known of a lane, from records of `verdicts`, `headroom` and `lanes` in the order of their blocks."""

    executed_block: int | None = None
    parked: str | None = None
    """Why the lane is parked."""
    receipt: Json | None = None
    """Of the last executed block."""
    paras: dict[int, ParaFacts] = field(default_factory=dict)

    def take(self, topic: str, record: Json) -> None:
        """Note what a record of the lane says."""
        match topic:
            case "verdicts" if record["kind"] == "candidate":
                para = self._para(record["para_id"])
                if record["ok"]:
                    para.accepted_block, para.rejected = record["block"], None
                else:
                    para.rejected = record
            case "headroom" if "para_id" in record:
                para = self._para(record["para_id"])
                para.watermark, para.watermark_block = record["watermark"], record["block"]
            case "lanes" if "executed_block" in record:
                self.executed_block, self.receipt = record["executed_block"], record["last_receipt"]
            case "lanes" if "state" in record:
                self.parked = record["reason"] if record["state"] == "parked" else None

    def _para(self, para: int) -> ParaFacts:
        return self.paras.setdefault(para, ParaFacts())


def why_waits(message: Json, ahead: int, lane: LaneFacts, why: Callable[[Json], str]) -> str:
    """Return in sentences why a message waits; ``ahead`` messages of its queue are before it.

    ``why`` returns in a sentence why a verdict rejects its candidate (`validator.sentences.why_of`).
    """
    if lane.parked is not None:
        return f"Lane {message['lane']} is parked, so nothing moves: {lane.parked}"
    before = (
        "" if not ahead else f" {plural(ahead, 'message')} of the same queue {'is' if ahead == 1 else 'are'} before it."
    )
    if message["recipient"] is None:
        return _dispatch(message, lane) + before
    return _receipt(message, lane, why) + before


def _dispatch(message: Json, lane: LaneFacts) -> str:
    said = f"The relay chain has not dispatched it yet; it takes messages of para {message['sender']} in order, within a block's weight."
    if lane.receipt is None:
        return said
    last = lane.receipt
    return (
        f"{said} Its last round, in block {count(last['block'])}, dispatched {plural(last['dispatched'], 'message')} and spent weight "
        f"{count(last['weight_used'])}."
    )


def _receipt(message: Json, lane: LaneFacts, why: Callable[[Json], str]) -> str:
    recipient = message["recipient"]
    para, since = lane.paras.get(recipient, ParaFacts()), queued_at(message)
    if para.rejected is not None:
        verdict = para.rejected
        return (
            f"The last candidate of para {recipient}, in block {count(verdict['block'])}, was rejected: {why(verdict)}"
        )
    if para.accepted_block is None:
        return f"Para {recipient} has not received it: no candidate of the para is among the last verdicts."
    if since is not None and para.accepted_block <= since:
        when = "since" if para.accepted_block < since else "after"
        return (
            f"Para {recipient} has not received it: the para has had no candidate {when} block {count(since)}, in which the message was "
            f"queued. Its last one was in block {count(para.accepted_block)}."
        )
    last = f"Para {recipient} has not received it, though a candidate of the para was accepted in block {count(para.accepted_block)}"
    if message["sender"] is None:
        return f"{last}: a candidate says how many downward messages it takes, from the front of the queue."
    watermark = None if (para.watermark_block or 0) < para.accepted_block else para.watermark
    if watermark is not None and since is not None and watermark < since:
        return f"{last}: its watermark is {count(watermark)}, and must reach {count(since)}, in which the message was queued."
    return f"{last}: the para receives messages up to its watermark, which must reach the block in which the message was queued."
