# SPDX-License-Identifier: Apache-2.0
"""What became of the messages of a demo, from the lane's output alone; for a deployment, the job `journeys` follows them."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Json = dict[str, Any]

OF_CANDIDATES = frozenset({"candidate", "inclusion"})
"""Kinds of verdicts whose messages come from their para; those of others come from the relay chain."""


class Step(NamedTuple):
    """A message was queued or ended in a block; ``sender`` None is the relay chain, or a queue that all senders share."""

    block: int
    sender: int | None
    recipient: int
    number: int
    what: str
    by: str


@dataclass
class Messages:
    """Collects steps in any order of topics, and joins them at the end."""

    queued: list[Step] = field(default_factory=list)
    ended: list[Step] = field(default_factory=list)
    dispatched: int = 0

    def observe(self, topic: str, record: Json) -> None:
        """Take a record of an output topic in JSON."""
        match topic:
            case "verdicts":
                by = f"{record['kind']} {record['index']}"
                sender = record["para_id"] if record["kind"] in OF_CANDIDATES else None
                self._queue(record, sender, by)
                self._end(record["block"], record["para_id"], record.get("received", ()), "received", by)
            case "dispatches":
                self.dispatched += 1
                self._queue(record, None, f"dispatch {record['index']}")
            case "channel-events":
                is_para = (
                    record["sender"] == record["recipient"]
                )  # its upward messages have it as their sender, and no numbers
                dropped = [each for each in record.get("dropped", ()) if not is_para or each["sender"] is None]
                self._end(record["block"], record["recipient"], dropped, "dropped", record["event"])

    def _queue(self, record: Json, sender: int | None, by: str) -> None:
        for each in record.get("messages", ()):
            step = Step(record["block"], sender, each["recipient"], each["sequence_number"], "queued", by)
            self.queued.append(step)

    def _end(self, block: int, recipient: int, ranges: Any, what: str, by: str) -> None:
        for each in ranges:
            for number in range(each["first"], each["last"] + 1):
                self.ended.append(Step(block, each["sender"], recipient, number, what, by))

    def summary(self) -> Json:
        """Return the counts, and as ``example`` one message's way, one that waited for long if there is one."""
        waiting: dict[tuple[int, int], list[Step]] = defaultdict(list)
        for queued in sorted(self.queued, key=lambda each: each.block):
            waiting[queued.recipient, queued.number].append(queued)
        ways: list[tuple[Step, Step]] = []
        for end in sorted(self.ended, key=lambda each: each.block):
            steps = waiting[end.recipient, end.number]
            earlier = [each for each in steps if each.block <= end.block]
            same = [each for each in earlier if each.sender == end.sender]
            step = next(iter(same or (earlier if end.sender is None else ())), None)
            if step is not None:
                steps.remove(step)
                ways.append((step, end))
        ends = Counter(end.what for end in self.ended)
        horizontal = [way for way in ways if way[0].sender is not None and way[1].what == "received"]
        example = max(horizontal or ways, key=lambda way: (way[1].block - way[0].block, way[0].block), default=None)
        return {
            "queued": len(self.queued),
            "received": ends["received"],
            "dropped": ends["dropped"],
            "waiting": sum(map(len, waiting.values())),
            "dispatched": self.dispatched,
            "example": None if example is None else _way(*example),
        }


def _way(queued: Step, ended: Step) -> str:
    sender = "the relay chain" if queued.sender is None else f"para {queued.sender}"
    blocks = ended.block - queued.block
    waited = "in the same block" if not blocks else f"{blocks} block{'s' if blocks > 1 else ''} later"
    return (
        f"message {queued.number} from {sender} to para {queued.recipient}: queued by {queued.by} of block {queued.block}, {ended.what} by "
        f"{ended.by} of block {ended.block}, {waited}"
    )
