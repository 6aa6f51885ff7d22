# SPDX-License-Identifier: Apache-2.0
"""What a lane says of one block, gathered from its records in whatever order topics are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from validator_relay_chain.storage import ChannelId


class Refusal(NamedTuple):
    """A refused input: the rule and its numbers."""

    para_id: int
    kind: str
    details: dict[str, Any]

    def text(self) -> str:
        """Return rule and numbers as one line."""
        numbers = ", ".join(f"{name} {value}" for name, value in self.details.items())
        return f"{self.kind}{': ' if numbers else ''}{numbers}"


class Head(NamedTuple):
    """The head of a queue's chain after a message. ``sender`` is None for a downward queue."""

    sender: int | None
    recipient: int
    mqc_head: bytes


@dataclass
class LaneBlock:
    """A lane's side of a block. Each list is in the order of the inputs."""

    candidates: dict[int, Refusal | int] = field(default_factory=dict)
    """By index, the para of an accepted candidate, or the refusal."""
    inclusions: dict[int, Refusal | int] = field(default_factory=dict)
    timeouts: dict[int, Refusal | int] = field(default_factory=dict)
    heads: dict[tuple[int, int, int], Head] = field(default_factory=dict)
    """By kind (0 inclusion, 1 downward, 2 candidate), index and place of the message."""
    verdicts: int = 0
    expected: int | None = None
    """Verdicts of the block, as its receipt says."""
    receipt_round: int | None = None
    opened: list[ChannelId] = field(default_factory=list)
    closed: list[ChannelId] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether the receipt and all verdicts are there."""
        return self.expected is not None and self.verdicts >= self.expected

    def take_verdict(self, verdict: Mapping[str, Any]) -> None:
        """Add a verdict, decoded by fastavro."""
        self.verdicts += 1
        kind, index, para = verdict["kind"], verdict["index"], verdict["para_id"]
        error = verdict["error"]
        outcome: Refusal | int = para
        if error is not None:
            details = {each["name"]: _plain(each["value"]) for each in error["details"]}
            outcome = Refusal(para, error["kind"], details)
        where = {"candidate": self.candidates, "inclusion": self.inclusions, "timeout": self.timeouts}.get(kind)
        if where is not None:
            where[index] = outcome
        order = _HEADS.get(kind)
        if order is not None:
            for at, message in enumerate(verdict["messages"]):
                sender = None if kind == "downward" else para
                self.heads[order, index, at] = Head(sender, message["recipient"], message["mqc_head"])

    def take_receipt(self, receipt: Mapping[str, Any], round_: int) -> None:
        """Add the receipt, which was read in a round."""
        self.expected = receipt["accepted"] + receipt["rejected"]
        self.receipt_round = round_

    def take_channel_event(self, event: Mapping[str, Any]) -> None:
        """Add a channel that opened or closed."""
        where = {"opened": self.opened, "closed": self.closed}.get(event["event"])
        if where is not None:
            where.append((event["sender"], event["recipient"]))

    # --- kept in the cursor ---

    def to_json(self) -> dict[str, Any]:
        """Return the block in plain values."""
        return {
            "outcomes": [[_outcome(index, each) for index, each in found.items()] for found in self._lists()],
            "heads": [[*place, head.sender, head.recipient, head.mqc_head.hex()] for place, head in self.heads.items()],
            "verdicts": self.verdicts,
            "expected": self.expected,
            "receipt_round": self.receipt_round,
            "opened": self.opened,
            "closed": self.closed,
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> LaneBlock:
        """Return the block again."""
        candidates, inclusions, timeouts = (
            {index: para if kind is None else Refusal(para, kind, details) for index, para, kind, details in outcomes}
            for outcomes in plain["outcomes"]
        )
        heads = {
            (kind, index, at): Head(sender, recipient, bytes.fromhex(head))
            for kind, index, at, sender, recipient, head in plain["heads"]
        }
        return cls(
            candidates,
            inclusions,
            timeouts,
            heads,
            plain["verdicts"],
            plain["expected"],
            plain["receipt_round"],
            [(sender, recipient) for sender, recipient in plain["opened"]],
            [(sender, recipient) for sender, recipient in plain["closed"]],
        )

    def _lists(self) -> tuple[dict[int, Refusal | int], ...]:
        return self.candidates, self.inclusions, self.timeouts


_HEADS = {"inclusion": 0, "downward": 1, "candidate": 2}
"""Verdicts whose messages were queued, in the order of execution."""


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def _outcome(index: int, outcome: Refusal | int) -> list[Any]:
    return [index, outcome, None, None] if isinstance(outcome, int) else [index, *outcome]
