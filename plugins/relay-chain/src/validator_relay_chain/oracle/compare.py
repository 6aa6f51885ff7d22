# SPDX-License-Identifier: Apache-2.0
"""The comparison of one block: the lane's side, the chain's side, what is known from the blocks before, and why both sides differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

from validator_relay_chain.limits import CAUSES_MAX
from validator_relay_chain.oracle.facts import BlockFacts, CandidateFact, ChannelFact
from validator_relay_chain.oracle.lane_block import LaneBlock, Refusal
from validator_relay_chain.rules import CONFIGURATION
from validator_relay_chain.storage import ChannelId


class Reason(StrEnum):
    """Who is to be asked about a disagreement."""

    OURS = "ours"
    """No known reason explains it: decoding, the seed, the rules or the node are wrong."""
    WATERMARK_REPEATED = "watermark-repeated"
    """Chains since 2023 allow a watermark that repeats the last one; the profile of the lane does not."""
    DOWNWARD_ORDER = "downward-order"
    """The chain queues downward messages before candidates and asks when each was sent; the lane takes them after candidates."""
    UPWARD_DISPATCH = "upward-dispatch"
    """The chain dispatches upward messages in another order and with weights that no event has."""
    CHANNELS_WITHOUT_EVENT = "channels-without-event"
    """A channel opened or closed without an event, and storage alone shows it."""
    DOWNWARD_RESET = "downward-reset"
    """Something other than messages has changed a downward queue, and no record brings it to a lane."""
    NOT_DECODED = "not-decoded"
    """Something of the chain could not be decoded, and the lane continues without it."""


KNOWN: Final = {
    "HrmpWatermark/AdvancementRule": Reason.WATERMARK_REPEATED,
    "ProcessedDownwardMessages/AdvancementRule": Reason.DOWNWARD_ORDER,
    "UpwardMessages/CapacityExceeded": Reason.UPWARD_DISPATCH,
    "UpwardMessages/TotalSizeExceeded": Reason.UPWARD_DISPATCH,
}
"""Rules that refuse what a chain accepts for a known reason, if the numbers of the refusal agree (`reason_of`)."""

DOWNWARD_BLOCKS_MAX: Final = 4
"""Blocks in which the relay parent of a candidate can be older than a downward message: the chain then asks for no progress."""


def reason_of(kind: str, details: Mapping[str, object], blocks_since_downward: int | None) -> Reason:
    """Return the reason of a refused candidate, from the rule it broke and its numbers.

    ``blocks_since_downward`` is how long ago its para last got a downward message, as far as that is known.
    """
    reason = KNOWN.get(kind, Reason.OURS)
    if reason is Reason.WATERMARK_REPEATED and details.get("new_watermark") != details.get("last_watermark"):
        return Reason.OURS
    if reason is Reason.DOWNWARD_ORDER and (
        blocks_since_downward is None or blocks_since_downward > DOWNWARD_BLOCKS_MAX
    ):
        return Reason.OURS
    return reason


T = TypeVar("T")

Queue = tuple[int | None, int]
"""Sender and recipient of a queue; the sender of a downward queue is None."""


class Difference(NamedTuple):
    """A point in which both sides differ."""

    kind: str
    para_id: int | None
    recipient: int | None
    lane_says: str
    chain_says: str
    reason: Reason
    follows_block: int | None = None


class Cause(NamedTuple):
    """An earlier disagreement about a para."""

    block: int
    reason: Reason


Subject = tuple[str, int | None, int]
"""Kind of a difference, sender and recipient of the queue."""


class Room(NamedTuple):
    """Places and bytes left in a channel."""

    places_left: int
    bytes_left: int


class ParaRoom(NamedTuple):
    """What the lane says of a para: waiting downward messages, watermark."""

    downward: int
    watermark: int | None


@dataclass
class Known:
    """What is known of queues and paras: heads from the lane's verdicts, rooms from its headroom, causes of later differences.

    The lane emits headroom for what has changed since the last emission, so what it said of a channel before holds at every block
    with some headroom.
    """

    heads: dict[Queue, bytes | None] = field(default_factory=dict)
    rooms: dict[ChannelId, list[tuple[int, Room]]] = field(default_factory=dict)
    """By channel, the block of the headroom and what it says: the last one that was compared, and later ones."""
    paras: dict[int, list[tuple[int, ParaRoom]]] = field(default_factory=dict)
    emitted: set[int] = field(default_factory=set)
    """Blocks with headroom that are not compared yet."""
    downward: dict[int, int] = field(default_factory=dict)
    """By para, the block of its last downward message."""
    causes: dict[int, Cause] = field(default_factory=dict)
    """By para, the first disagreement that makes later ones."""
    standing: dict[Subject, tuple[str, str]] = field(default_factory=dict)
    """Differences in storage that were reported, with both sides: they are reported again once a side has changed."""
    limits_unread: int | None = None
    """The first block since which the chain's limits could not be decoded."""
    reset: set[int] = field(default_factory=set)
    """Paras whose downward queue is another one than the lane's, which was said: what differs is not reported until both heads agree."""

    def take_headroom(self, record: Mapping[str, Any]) -> None:
        """Add a record of headroom."""
        block = record["block"]
        self.emitted.add(block)
        if "places_left" in record:
            room = Room(record["places_left"], record["bytes_left"])
            self.rooms.setdefault((record["sender"], record["recipient"]), []).append((block, room))
        else:
            said = ParaRoom(record["downward_pending"], record["watermark"])
            self.paras.setdefault(record["para_id"], []).append((block, said))

    def take(
        self,
        facts: BlockFacts,
        block: LaneBlock,
        found: Iterable[Difference],
        compared: Collection[Subject],
        standing: Mapping[Subject, tuple[str, str]],
    ) -> None:
        """Learn from a block that was compared: what was found, what of storage was compared, and which differences stand."""
        self.heads |= heads_of(block)
        for channel in facts.channels:
            self.heads[channel.sender, channel.recipient] = channel.mqc_head
        self.reset |= {each.para_id for each in facts.downward_resets}
        for queue in facts.downward:
            if queue.para_id not in self.reset:
                self.heads[None, queue.para_id] = queue.mqc_head
        if facts.opened is not None:
            self._forget_gone(facts)
        self.limits_unread = self.limits_unread_at(facts)
        self._note_downward(facts.block, block)
        self._prune(facts.block)
        self.reset -= {each[2] for each in compared if each[0] == "DownwardHead" and each not in standing}
        for subject in compared:
            self.standing.pop(subject, None)
        self.standing |= standing
        for each in found:
            for para in (each.para_id, each.recipient if each.reason is Reason.CHANNELS_WITHOUT_EVENT else None):
                if para is not None and para not in self.causes and len(self.causes) < CAUSES_MAX:
                    self.causes[para] = Cause(each.follows_block or facts.block, each.reason)

    def limits_unread_at(self, facts: BlockFacts) -> int | None:
        """Return the block since which the chain's limits could not be decoded, or None after one that has decoded ones."""
        if CONFIGURATION in facts.unread:
            return facts.block if self.limits_unread is None else self.limits_unread
        return None if facts.session_ends else self.limits_unread

    def forget(self, block: LaneBlock) -> None:
        """Forget the heads that a block which was not compared has moved."""
        for queue in heads_of(block):
            self.heads.pop(queue, None)

    def _forget_gone(self, facts: BlockFacts) -> None:
        """Forget the heads of queues that are gone after a session: one that is there again later begins without a head."""
        there: set[Queue] = {(each.sender, each.recipient) for each in facts.channels}
        there |= {(None, each.para_id) for each in facts.downward}
        self.heads = {queue: head for queue, head in self.heads.items() if queue in there}
        self.reset -= {para for para in self.reset if (None, para) not in there}

    def _prune(self, number: int) -> None:
        """Forget the headroom that only blocks up to ``number`` needed."""
        self.emitted = {block for block in self.emitted if block > number}
        for rooms in self.rooms.values():
            del rooms[: _passed(rooms, number)]
        for paras in self.paras.values():
            del paras[: _passed(paras, number)]

    def _note_downward(self, number: int, block: LaneBlock) -> None:
        for head in block.heads.values():
            if head.sender is None:
                self.downward[head.recipient] = number

    def to_json(self) -> dict[str, Any]:
        """Return the state in plain values."""
        return {
            "heads": [[*queue, None if head is None else head.hex()] for queue, head in self.heads.items()],
            "rooms": [[*channel, said] for channel, said in self.rooms.items()],
            "paras": [[para, said] for para, said in self.paras.items()],
            "emitted": sorted(self.emitted),
            "downward": list(self.downward.items()),
            "causes": [[para, *cause] for para, cause in self.causes.items()],
            "standing": [[*subject, *sides] for subject, sides in self.standing.items()],
            "limits_unread": self.limits_unread,
            "reset": sorted(self.reset),
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Known:
        """Return the state again."""
        return cls(
            {(sender, to): None if head is None else bytes.fromhex(head) for sender, to, head in plain["heads"]},
            {(sender, to): [(block, Room(*room)) for block, room in said] for sender, to, said in plain["rooms"]},
            {para: [(block, ParaRoom(*room)) for block, room in said] for para, said in plain["paras"]},
            set(plain["emitted"]),
            dict(plain["downward"]),
            {para: Cause(block, Reason(reason)) for para, block, reason in plain["causes"]},
            {(kind, sender, to): (lane, chain) for kind, sender, to, lane, chain in plain["standing"]},
            plain["limits_unread"],
            set(plain["reset"]),
        )


def heads_of(block: LaneBlock) -> dict[Queue, bytes | None]:
    """Return the last head of each queue that a block has moved, in the order of execution; a channel that closed has none."""
    moved = (head for _, head in sorted(block.heads.items()))
    return {(head.sender, head.recipient): head.mqc_head for head in moved} | dict.fromkeys(block.closed)


@dataclass
class Comparison:
    """The comparison of one block; `counts` says how much was compared."""

    facts: BlockFacts
    block: LaneBlock
    known: Known
    counts: Counter[str] = field(default_factory=Counter)
    compared: set[Subject] = field(default_factory=set)
    """What of storage was compared."""
    standing: dict[Subject, tuple[str, str]] = field(default_factory=dict)
    """Differences in storage, reported before or not."""

    def differences(self) -> list[Difference]:
        """Return the points in which both sides differ: what has no event, candidates, inclusions, storage, what nobody could decode."""
        return [
            *self._without_event(),
            *self._resets(),
            *self._candidates(),
            *self._pending(),
            *self._heads(),
            *self._rooms(),
            *self._session(),
            *self._unread(),
        ]

    def _without_event(self) -> Iterator[Difference]:
        """Yield the channels that the lane learnt of from storage alone."""
        for each in self.facts.without_event:
            chain = f"{'opened' if each.opened else 'closed'}, found in {each.source}"
            sides = "no event", chain, Reason.CHANNELS_WITHOUT_EVENT
            yield Difference("ChannelWithoutEvent", each.sender, each.recipient, *sides)

    def _resets(self) -> Iterator[Difference]:
        """Yield the downward queues that something other than messages has changed, once for each para."""
        for each in self.facts.downward_resets:
            if each.para_id not in self.known.reset:
                sides = _shown(self.known.heads.get((None, each.para_id))), _shown(each.mqc_head)
                yield Difference("DownwardReset", each.para_id, None, *sides, Reason.DOWNWARD_RESET)

    def _unread(self) -> Iterator[Difference]:
        """Yield what could not be decoded, once for as long as it stays so."""
        found = self.facts.unread
        subject: Subject = ("NotDecoded", None, 0)
        if found or self.facts.session_ends:
            self.compared.add(subject)
        if not found:
            return
        sides = "continues without it", ", ".join(found)
        self.standing[subject] = sides
        if self.known.standing.get(subject) != sides:
            yield Difference("NotDecoded", None, None, *sides, Reason.NOT_DECODED)

    def _candidates(self) -> Iterator[Difference]:
        outcomes = self.block.candidates
        self.counts["candidates"] += len(outcomes)
        if len(outcomes) != self.facts.backed:
            yield Difference(
                "CandidatesMissing",
                None,
                None,
                f"{len(outcomes)} candidates",
                f"{self.facts.backed} backed",
                Reason.OURS,
            )
        for _, outcome in sorted(outcomes.items()):
            if isinstance(outcome, Refusal):
                yield self._refused("CandidateRefused", outcome, "backed", self._reason(outcome))

    def _pending(self) -> Iterator[Difference]:
        for what, outcomes, listed in (
            ("Inclusion", self.block.inclusions, self.facts.included),
            ("Timeout", self.block.timeouts, self.facts.timed_out),
        ):
            said = "included" if what == "Inclusion" else "timed out"
            expected = [each for each in listed if each.known]
            self.counts["inclusions"] += len(expected)
            if len(outcomes) != len(expected):
                yield Difference(
                    f"{what}Missing", None, None, _paras(outcomes.values()), f"{said}: {_paras(expected)}", Reason.OURS
                )
            for _, outcome in sorted(outcomes.items()):
                if isinstance(outcome, Refusal):
                    yield self._refused(f"{what}Refused", outcome, said, Reason.OURS)

    def _refused(self, kind: str, refusal: Refusal, said: str, reason: Reason) -> Difference:
        cause = self._cause(refusal.para_id)
        if reason is Reason.OURS and cause is not None:
            return Difference(kind, refusal.para_id, None, refusal.text(), said, cause.reason, cause.block)
        if reason is Reason.OURS and self.known.limits_unread is not None:
            since = self.known.limits_unread
            return Difference(kind, refusal.para_id, None, refusal.text(), said, Reason.NOT_DECODED, since)
        return Difference(kind, refusal.para_id, None, refusal.text(), said, reason)

    def _reason(self, refusal: Refusal) -> Reason:
        last = self.known.downward.get(refusal.para_id)
        since = None if last is None else self.facts.block - last
        return reason_of(refusal.kind, refusal.details, since)

    def _cause(self, *paras: int) -> Cause | None:
        """Return what makes differences of paras: an earlier disagreement, or a channel of this block without an event."""
        is_late = any({each.sender, each.recipient}.intersection(paras) for each in self.facts.without_event)
        cause = Cause(self.facts.block, Reason.CHANNELS_WITHOUT_EVENT) if is_late else None
        return next((self.known.causes[each] for each in paras if each in self.known.causes), cause)

    # --- storage ---

    def _heads(self) -> Iterator[Difference]:
        known = self.known.heads | heads_of(self.block)
        sampled: list[tuple[str, Queue, bytes | None]] = [
            ("ChannelHead", (each.sender, each.recipient), each.mqc_head) for each in self.facts.channels
        ]
        sampled += [("DownwardHead", (None, each.para_id), each.mqc_head) for each in self.facts.downward]
        for kind, queue, chain in sampled:
            if queue in known:
                self.counts["heads"] += 1
                yield from self._stored(kind, queue, _shown(known[queue]), _shown(chain))

    def _rooms(self) -> Iterator[Difference]:
        if self.facts.block not in self.known.emitted:
            return  # between two emissions of headroom
        for channel in self.facts.channels:
            queue = channel.sender, channel.recipient
            room = _last(self.known.rooms.get(queue, ()), self.facts.block)
            if room is not None:
                self.counts["counters"] += 1
                yield from self._stored("ChannelRoom", queue, _left(room), _left(_room(channel)))
        for kind, para, chain in self._of_paras():
            said = _last(self.known.paras.get(para, ()), self.facts.block)
            if said is not None:
                self.counts["counters"] += 1
                own = said.downward if kind == "DownwardCount" else said.watermark
                yield from self._stored(kind, (None, para), str(own), str(chain))

    def _stored(self, kind: str, queue: Queue, lane_says: str, chain_says: str) -> Iterator[Difference]:
        """Compare two values of storage; yield a difference that is new."""
        subject = (kind, *queue)
        self.compared.add(subject)
        if lane_says == chain_says:
            return
        self.standing[subject] = lane_says, chain_says
        if kind in ("DownwardHead", "DownwardCount") and self._is_reset(queue[1]):
            return
        if self.known.standing.get(subject) != (lane_says, chain_says):
            yield self._differs(kind, queue, lane_says, chain_says)

    def _is_reset(self, para_id: int) -> bool:
        """Return whether a downward queue is another one than the lane's, which was said."""
        return para_id in self.known.reset or any(each.para_id == para_id for each in self.facts.downward_resets)

    def _of_paras(self) -> Iterator[tuple[str, int, int]]:
        for each in self.facts.downward:
            if each.messages is not None:
                yield "DownwardCount", each.para_id, each.messages
        yield from (("Watermark", each.para_id, each.watermark) for each in self.facts.watermarks)

    def _session(self) -> Iterator[Difference]:
        if not self.facts.session_ends:
            return
        for kind, own, chain in (
            ("ChannelsOpened", self.block.opened, self.facts.opened),
            ("ChannelsClosed", self.block.closed, self.facts.closed),
        ):
            if chain is None:
                continue
            self.counts["channels"] += len(set(own) | set(chain))
            for channel in sorted(set(own) ^ set(chain)):
                yield self._differs(kind, channel, *(("yes", "no") if channel in own else ("no", "yes")))

    def _differs(self, kind: str, queue: Queue, lane_says: str, chain_says: str) -> Difference:
        """Return a difference in a queue; one that follows from an earlier one of its ends has its reason."""
        para, other = (queue[1], None) if queue[0] is None else queue
        cause = self._cause(*(each for each in queue if each is not None))
        if cause is None:
            return Difference(kind, para, other, lane_says, chain_says, Reason.OURS)
        return Difference(kind, para, other, lane_says, chain_says, cause.reason, cause.block)


def _passed(said: Iterable[tuple[int, object]], number: int) -> int:
    """Return how many of the first values hold for no block after ``number``."""
    return max(0, sum(block <= number for block, _ in said) - 1)


def _last(said: Iterable[tuple[int, T]], number: int) -> T | None:
    """Return what was said last up to a block. Records of one key come in the order of blocks."""
    found = None
    for block, each in said:
        if block <= number:
            found = each
    return found


def _paras(outcomes: Iterable[Refusal | int | CandidateFact]) -> str:
    paras = (each if isinstance(each, int) else each.para_id for each in outcomes)
    return " ".join(map(str, paras)) or "none"


def _shown(head: bytes | None) -> str:
    return "none" if head is None else f"0x{head.hex()}"


def _room(channel: ChannelFact) -> Room:
    return Room(channel.places_left, channel.bytes_left)


def _left(room: Room) -> str:
    return f"{room.places_left} places, {room.bytes_left} bytes left"
