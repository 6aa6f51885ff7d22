# SPDX-License-Identifier: Apache-2.0
"""Compares what a lane says with what its relay chain did, block by block. No I/O, no clock.

Records of a lane come from several topics, each in its own order, so a difference may be a record that has not been read yet. What the
judge finds equal is final. A difference is reported only once it is *settled*: everything that the lane wrote with the block has been read.
Rounds make that certain. A caller asks where topics end, open transactions included, and ends the round once it has read up to there. A
lane writes all of a block in one transaction, and commits it when Kafka has all of it. So ends that are asked for after the block's receipt
was read are behind all of it: the round after the receipt's has read it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from validator_relay_chain.limits import (
    DISAGREEMENTS_MAX,
    LINE_CHARACTERS_MAX,
    TEXT_CHARACTERS_MAX,
    WAITING_BLOCKS_MAX,
)
from validator_relay_chain.oracle.compare import Comparison, Difference, Known, Reason
from validator_relay_chain.oracle.facts import BlockFacts
from validator_relay_chain.oracle.lane_block import LaneBlock

COUNTED: Final = ("blocks", "candidates", "inclusions", "heads", "counters", "channels", "skipped")


class Disagreement(NamedTuple):
    """A settled difference, with its place."""

    block: int
    block_hash: bytes
    place: int
    difference: Difference

    def to_json(self, lane: str) -> dict[str, Any]:
        """Return the record of topic `relay-chain.disagreements` in JSON form."""
        found = self.difference
        return {
            "lane": lane,
            "block": self.block,
            "block_hash": self.block_hash.hex(),
            "index": self.place,
            "kind": found.kind,
            "para_id": found.para_id,
            "recipient": found.recipient,
            "lane_says": found.lane_says[:TEXT_CHARACTERS_MAX],
            "chain_says": found.chain_says[:TEXT_CHARACTERS_MAX],
            "reason": found.reason.value,
            "follows_block": found.follows_block,
        }

    def describe(self) -> str:
        """Return the disagreement in a line."""
        found = self.difference
        about = "" if found.para_id is None else f", para {found.para_id}"
        about += "" if found.recipient is None else f" to {found.recipient}"
        sides = (
            f"the lane says {found.lane_says[:LINE_CHARACTERS_MAX]}, the chain {found.chain_says[:LINE_CHARACTERS_MAX]}"
        )
        return f"block {self.block}{about}: {found.kind}: {sides} ({found.reason.value})"


@dataclass
class Judge:
    """The comparison of one lane. `take` adds records; `judged` compares as many blocks as it can."""

    lane: str
    known: Known = field(default_factory=Known)
    counts: Counter[str] = field(default_factory=Counter)
    disagreements: Counter[str] = field(default_factory=Counter)
    last_block: int | None = None
    last_ours: int | None = None
    round: int = 0
    _waiting: dict[int, LaneBlock] = field(default_factory=dict)

    # --- what the lane says ---

    def take(self, topic: str, record: Mapping[str, Any]) -> None:
        """Add a record of the lane, decoded by fastavro."""
        if topic == "headroom":
            self.known.take_headroom(record)
            return
        number = record["block"]
        if self.last_block is not None and number <= self.last_block:
            return  # a lane that starts over emits nothing twice, so this is another lane's past
        block = self._waiting.setdefault(number, LaneBlock())
        if topic == "verdicts":
            block.take_verdict(record)
        elif topic == "channel-events":
            block.take_channel_event(record)
        elif topic == "receipts":
            block.take_receipt(record, self.round)

    def end_round(self) -> None:
        """Say that everything has been read up to ends, open transactions included, that were asked for after the previous round."""
        self.round += 1

    # --- comparing ---

    @property
    def front(self) -> int | None:
        """The block that is compared next, if the lane has executed it and all of its verdicts are there."""
        number = min(self._waiting, default=None)
        return number if number is not None and self._waiting[number].is_complete else None

    @property
    def is_crowded(self) -> bool:
        """Whether too many blocks wait: the front is then skipped."""
        return len(self._waiting) > WAITING_BLOCKS_MAX

    def compare(self, facts: BlockFacts) -> list[Disagreement] | None:
        """Compare the front with the chain's facts of that block; return None if a difference is not settled."""
        block = self._waiting[facts.block]
        comparison = Comparison(facts, block, self.known)
        found = comparison.differences()
        if found and not self._is_settled(block):
            return None
        del self._waiting[facts.block]
        self.last_block = facts.block
        self.counts.update(comparison.counts)
        self.counts["blocks"] += 1
        self.known.take(facts, block, found, comparison.compared, comparison.standing)
        self.disagreements.update(each.reason.value for each in found)
        if any(each.reason is Reason.OURS for each in found):
            self.last_ours = facts.block
        return [
            Disagreement(facts.block, facts.block_hash, place, each)
            for place, each in enumerate(found[:DISAGREEMENTS_MAX])
        ]

    def skip(self, number: int) -> None:
        """Leave the front out: the chain's facts are missing."""
        block = self._waiting.pop(number)
        self.known.forget(block)
        self.last_block = number
        self.counts["skipped"] += 1

    def skip_facts(self) -> None:
        """Note facts of a block that the lane has not executed: it joined later."""
        self.counts["skipped"] += 1

    def agreement(self) -> dict[str, Any] | None:
        """Return the record of topic `relay-chain.agreement` in JSON form; None if nothing was compared yet."""
        if self.last_block is None:
            return None
        return {
            "lane": self.lane,
            "block": self.last_block,
            **{name: self.counts[name] for name in COUNTED},
            "disagreements": dict(sorted(self.disagreements.items())),
            "last_ours": self.last_ours,
        }

    def _is_settled(self, block: LaneBlock) -> bool:
        assert block.receipt_round is not None
        return block.receipt_round + 2 <= self.round

    # --- kept in the cursor ---

    def to_json(self) -> dict[str, Any]:
        """Return the state in plain values."""
        return {
            "known": self.known.to_json(),
            "counts": dict(self.counts),
            "disagreements": dict(self.disagreements),
            "last_block": self.last_block,
            "last_ours": self.last_ours,
            "round": self.round,
            "waiting": {str(number): block.to_json() for number, block in self._waiting.items()},
        }

    @classmethod
    def from_json(cls, lane: str, plain: Mapping[str, Any]) -> Judge:
        """Return the judge again."""
        waiting = {int(number): LaneBlock.from_json(block) for number, block in plain["waiting"].items()}
        return cls(
            lane,
            Known.from_json(plain["known"]),
            Counter(plain["counts"]),
            Counter(plain["disagreements"]),
            plain["last_block"],
            plain["last_ours"],
            plain["round"],
            waiting,
        )
