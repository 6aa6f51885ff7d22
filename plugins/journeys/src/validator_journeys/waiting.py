# SPDX-License-Identifier: Apache-2.0
"""The state machine of a lane's queues: facts in, steps of messages out. Everything that decides about a message stands here.

A block is applied once, when its receipt has come; by then all its facts are there (`Waiting.add`). Each message is named by its number in
its queue, so the order of facts inside a block matters in one case only: a channel that closes and opens there. A message of this block
belongs to the channel that closes if the closing drops its number; else it belongs to the one that opens. Received messages belong to the
channel that was there when the block began, since no para receives a message of a channel in the block that queues it.

A message ends once: received, dispatched or dropped. Messages whose queueing was not seen end without content. Upward messages have no
numbers in the records, so they are numbered here, for each para from 1 in the order of enactment. A dispatch ends the first message of its
para with the same payload hash, since messages that were set aside are dispatched later than those behind them; one that nobody saw is
numbered 0, -1 and so on.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from validator.plugin.protocol_api import Hash
from validator_journeys.content import Content
from validator_journeys.facts import (
    BlockFact,
    CandidateFact,
    DispatchFact,
    EventFact,
    Fact,
    Pending,
    Place,
    Range,
    Ref,
    Source,
    VerdictFact,
    decode_fact,
)
from validator_journeys.identity import Identity, Kind
from validator_journeys.plain import decode_plain, encode_plain

CHUNK_MESSAGES: Final = 64
"""Messages of a queue whose numbers share a chunk, which is stored together."""
AHEAD_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of facts of blocks that are not applied yet. Above, inputs of the farthest blocks are dropped: their messages have no content."""


class Channels(StrEnum):
    """Where the messages of paras to each other wait."""

    OWN_QUEUES = "own queues"
    """Each channel has its queue and its numbers."""
    RECIPIENTS_QUEUE = "recipient's queue"
    """All that goes to a para waits in one queue, whoever sent it (early HRMP)."""
    ELSEWHERE = "elsewhere"
    """Not on the relay chain."""


class By(NamedTuple):
    """The input that did something to a message: the kind and index of its verdict or dispatch, and the candidate's hash if it has one."""

    kind: str
    index: int  # type: ignore[assignment]  # shadows tuple.index
    candidate_hash: Hash | None = None


class Queued(NamedTuple):
    """Where a message was queued. ``sender`` is the para that sent it, None for one of the relay chain; ``content`` None is unknown."""

    block: int
    by: By
    sender: int | None
    mqc_head: Hash | None
    content: Content | None


class Fate(StrEnum):
    """What became of a message."""

    RECEIVED = "received"
    DISPATCHED = "dispatched"
    DROPPED = "dropped"


class End(NamedTuple):
    """The end of a message. ``detail`` is the outcome of a dispatch, or why it was dropped; ``by`` is None for a channel event."""

    fate: Fate
    block: int
    by: By | None = None
    detail: str | None = None


class Step(NamedTuple):
    """A message that was queued (``end`` is None) or that ended (``queued`` is None if nobody saw it queued)."""

    identity: Identity
    queued: Queued | None
    end: End | None = None
    content: Content | None = None
    """Of a message that ended without its queueing, if its end has the payload."""


QueueName: TypeAlias = tuple[int | None, int | None]
"""Sender and recipient; None is the relay chain."""


@dataclass(slots=True)
class Queue:
    """The messages that wait in a queue, by number, ascending. Each is kept as bytes (`pack`), about 0.2 KiB with its place here."""

    opened_at: int = 0
    waiting: dict[int, bytes] = field(default_factory=dict)
    numbered: int = 0
    """Of an upward queue: the number of the last message."""
    unseen: int = 0
    """Of an upward queue: messages that ended unseen."""


class Kept(NamedTuple):
    """A candidate that waits for its inclusion; ``messages`` None: its record was not seen."""

    backed_at: int
    candidate_hash: Hash | None
    messages: CandidateFact | None


_VERDICTS: Final = {
    Source.VERDICT_OF_INCLUSION: "inclusion",
    Source.VERDICT_OF_TIMEOUT: "timeout",
    Source.VERDICT_OF_REQUEST: "request",
    Source.VERDICT_OF_DOWNWARD: "downward",
    Source.VERDICT_OF_CANDIDATE: "candidate",
}
_DISPATCH: Final = "dispatch"
OPENED: Final = "opened"
CLOSED: Final = "closed"
OFFBOARDED: Final = "offboarded"
OVERSIZED: Final = "oversized"


class Waiting:
    """What waits in the queues of a lane. ``touched_*`` say what has changed since it was last stored."""

    def __init__(self, lane: str, channels: Channels) -> None:
        self.lane = lane
        self.channels = channels
        self.height = -1
        """The last block that was applied."""
        self.queues: dict[QueueName, Queue] = {}
        self.pending: dict[int, list[Kept]] = {}
        self.ahead: dict[int, dict[tuple[int, int], bytes]] = {}
        """By block that is not applied yet, facts by source and index (`ahead_bytes` of all)."""
        self.ahead_bytes = 0
        self.dropped_inputs = 0
        """Since the state was restored."""
        self._farthest: list[int] = []
        """A heap of the negative numbers of blocks that are, or were, ahead."""
        self.touched_chunks: dict[QueueName, set[int]] = defaultdict(set)
        """By queue; a queue whose own numbers have changed is there too."""
        self.touched_pending: set[int] = set()
        self.touched_ahead: set[int] = set()

    def add(self, place: Place, fact: bytes) -> None:
        """Keep a fact until its block is applied; one of an earlier block, or a second one for its place, changes nothing."""
        block, source, index = place
        if block <= self.height:
            return
        facts = self.ahead.get(block)
        if facts is None:
            facts = self.ahead[block] = {}
            heapq.heappush(self._farthest, -block)
        if (source, index) not in facts:
            facts[source, index] = fact
            self.ahead_bytes += len(fact)
            self.touched_ahead.add(block)
            if self.ahead_bytes > AHEAD_BYTES_MAX:
                self._drop_farthest_inputs()

    def keep_ahead(self, block: int, facts: dict[tuple[int, int], bytes]) -> None:
        """Take the stored facts of a block."""
        self.ahead[block] = facts
        self.ahead_bytes += sum(map(len, facts.values()))
        heapq.heappush(self._farthest, -block)

    def _drop_farthest_inputs(self) -> None:
        """Drop inputs, the farthest block's first, until facts fit. The facts of outputs stay: the receipt of their block comes next."""
        passed = []
        while self.ahead_bytes > AHEAD_BYTES_MAX and self._farthest:
            block = -heapq.heappop(self._farthest)
            facts = self.ahead.get(block)
            if facts is None:
                continue
            inputs = [place for place in facts if place[0] <= Source.DOWNWARD]
            for place in inputs:
                self.ahead_bytes -= len(facts.pop(place))
            self.dropped_inputs += len(inputs)
            self.touched_ahead.add(block)
            if facts:
                passed.append(-block)
            else:
                del self.ahead[block]
        for each in passed:
            heapq.heappush(self._farthest, each)

    def _take_ahead(self, block: int) -> dict[tuple[int, int], bytes] | None:
        facts = self.ahead.pop(block, None)
        if facts is not None:
            self.ahead_bytes -= sum(map(len, facts.values()))
            self.touched_ahead.add(block)
        return facts

    def apply(self, block: int) -> list[Step]:
        """Apply a block whose facts are complete, and return the steps of its messages; an earlier block changes nothing."""
        if block <= self.height:
            return []
        self.height = block
        for earlier in [each for each in self.ahead if each < block]:  # inputs of blocks that the lane passed over
            self._take_ahead(earlier)
        facts = self._take_ahead(block)
        if facts is None:
            return []
        decoded = {
            (Source(source), index): decode_fact(Source(source), facts[source, index])
            for source, index in sorted(facts)
        }
        return _Application(self, block, decoded).run()

    def adopt(self, remembered: Waiting) -> None:
        """Take the queues of which records of an earlier process are on Kafka as these records say they are.

        This state has seen the same blocks again, perhaps not from the first one: it may lack messages and openings.
        """
        for name, theirs in remembered.queues.items():
            own = self.queues.get(name, Queue())
            theirs.opened_at = max(theirs.opened_at, own.opened_at)
            self.queues[name] = theirs
            self.touched_chunks[name] |= {number // CHUNK_MESSAGES for number in (*own.waiting, *theirs.waiting)}

    def oldest(self) -> int | None:
        """Return the block in which the message that has waited longest was queued."""
        firsts = (next(iter(queue.waiting.values()), None) for queue in self.queues.values())
        return min((unpack(first).block for first in firsts if first is not None), default=None)

    def identity(self, name: QueueName, number: int, opened_at: int, sender: int | None) -> Identity:
        """Return the identity of a queue's message that ``sender`` sent."""
        source, recipient = name
        if recipient is None:
            return Identity(self.lane, Kind.UPWARD, source, None, opened_at, number)
        kind = Kind.DOWNWARD if sender is None else Kind.HORIZONTAL
        return Identity(self.lane, kind, sender, recipient, opened_at, number)

    def each(self) -> Iterator[tuple[Identity, Queued]]:
        """Yield every message that waits."""
        for name, queue in self.queues.items():
            for number, packed in queue.waiting.items():
                queued = unpack(packed)
                yield self.identity(name, number, queue.opened_at, queued.sender), queued


Leaves: TypeAlias = tuple[Range, End]


class _Application:
    """One block's facts applied to what waits."""

    def __init__(self, waiting: Waiting, block: int, facts: Mapping[tuple[Source, int], Fact]) -> None:
        self.waiting = waiting
        self.block = block
        self.facts = facts
        self.steps: list[Step] = []
        self._queued: dict[QueueName, list[tuple[int, Queued]]] = defaultdict(list)
        self._received: dict[QueueName, list[Leaves]] = defaultdict(list)
        self._new_upward: dict[int, dict[int, Queued]] = defaultdict(dict)
        """By para, upward messages of this block."""
        self._channel_events: dict[QueueName, list[EventFact]] = defaultdict(list)
        self._of_paras: list[EventFact] = []

    def run(self) -> list[Step]:
        """Apply all facts, once; what a session change does to paras comes last, as in the block."""
        self._verdicts()
        oversized = self._events()
        self._drop_oversized(oversized)
        self._dispatches()
        self._settle()
        for event in self._of_paras:
            self._drop_of_para(event)
        return self.steps

    # --- what facts say ---

    def _verdicts(self) -> None:
        lists = self.facts.get((Source.BLOCK, 0), BlockFact())
        assert isinstance(lists, BlockFact)
        for (source, index), fact in self.facts.items():
            if not isinstance(fact, VerdictFact):
                continue
            by = By(_VERDICTS[source], index, fact.candidate_hash)
            match source:
                case Source.VERDICT_OF_INCLUSION:
                    self._enact(fact, by, self._take_pending(fact, lists.included[index : index + 1]))
                case Source.VERDICT_OF_TIMEOUT:
                    self._take_pending(fact, lists.timed_out[index : index + 1])
                case Source.VERDICT_OF_CANDIDATE:
                    found = self.facts.get((Source.CANDIDATE, index))
                    messages = _without_signals(found, fact) if isinstance(found, CandidateFact) else None
                    if fact.enacted:
                        self._enact(fact, by, messages)
                    else:
                        kept = Kept(self.block, fact.candidate_hash, messages)
                        self.waiting.pending.setdefault(fact.para, []).append(kept)
                        self.waiting.touched_pending.add(fact.para)
                case Source.VERDICT_OF_DOWNWARD:
                    content = self.facts.get((Source.DOWNWARD, index))
                    self._queue_downward(fact.messages, by, content if isinstance(content, Content) else None)
                case _:
                    self._queue_downward(fact.messages, by)

    def _take_pending(self, fact: VerdictFact, named: Sequence[Pending]) -> CandidateFact | None:
        """Remove the pending candidate that a verdict is about: by its hash if it has one, else as the block record names it."""
        kept = self.waiting.pending.get(fact.para, [])
        named_at = named[0].backed_at if named else None
        at = next(
            (
                at
                for at, (backed_at, candidate_hash, _) in enumerate(kept)
                if candidate_hash == fact.candidate_hash and (candidate_hash or named_at in (None, backed_at))
            ),
            None,
        )
        if at is None:
            return None  # it was backed before the job began
        taken = kept.pop(at)
        if not kept:
            del self.waiting.pending[fact.para]
        self.waiting.touched_pending.add(fact.para)
        return taken.messages

    def _enact(self, fact: VerdictFact, by: By, messages: CandidateFact | None) -> None:
        para = fact.para
        for taken in fact.received:
            self._received[taken.sender, para].append((taken, End(Fate.RECEIVED, self.block, by)))
        upward, horizontal = messages or CandidateFact()
        queue = self._queue((para, None)) if upward else None
        for content in upward:
            assert queue is not None
            queue.numbered += 1
            queued = Queued(self.block, by, para, None, content)
            self._put((para, None), queue.numbered, queued)
            self._new_upward[para][queue.numbered] = queued
        contents = iter(horizontal)
        for ref in fact.messages:  # a message whose channel is gone was skipped
            found = next((content for recipient, content in contents if recipient == ref.recipient), None)
            own = self.waiting.channels is Channels.OWN_QUEUES
            name = (para if own else None), ref.recipient
            self._queued[name].append((ref.number, Queued(self.block, by, para, ref.mqc_head, found)))

    def _queue_downward(self, refs: Sequence[Ref], by: By, content: Content | None = None) -> None:
        for ref in refs:
            queued = Queued(self.block, by, None, ref.mqc_head, content)
            self._queued[None, ref.recipient].append((ref.number, queued))

    def _events(self) -> list[EventFact]:
        """Sort channel events by what they are about, and return those about oversized messages."""
        oversized = []
        for fact in self.facts.values():
            if not isinstance(fact, EventFact):
                continue
            if fact.sender != fact.recipient:
                if self.waiting.channels is Channels.OWN_QUEUES:
                    self._channel_events[fact.sender, fact.recipient].append(fact)
            elif fact.reason == OVERSIZED:
                oversized.append(fact)
            else:
                self._of_paras.append(fact)
        return oversized

    def _dispatches(self) -> None:
        for (source, index), fact in self.facts.items():
            if source is Source.DISPATCH and isinstance(fact, DispatchFact):
                by = By(_DISPATCH, index)
                self._end_dispatched(fact, End(Fate.DISPATCHED, self.block, by, fact.outcome))
                self._queue_downward(fact.messages, by)

    def _end_dispatched(self, fact: DispatchFact, end: End) -> None:
        name = fact.para, None
        queue = self._queue(name)
        for number, packed in queue.waiting.items():
            if fact.content.hash not in packed:
                continue  # a hundred times as fast as unpacking each message that was set aside
            content = unpack(packed).content
            if content is not None and content.hash == fact.content.hash:
                self._end(name, queue, number, end)
                return
        self._end_unseen(name, queue, end, fact.content)

    # --- ends ---

    def _drop_oversized(self, events: list[EventFact]) -> None:
        """Drop upward messages that no page can hold, each by its size.

        Each range has one message, and has places in an enactment, or in the queue when pages came into force. All messages of that
        size that the para queues in this block (or all that wait, if pages come into force) are dropped, so sizes name the same messages.
        """
        for event in events:
            name = event.sender, None
            queue = self._queue(name)
            end = End(Fate.DROPPED, self.block, None, event.reason)
            new = self._new_upward[event.sender]
            for dropped in event.dropped:
                sizes = {number: queued.content.size for number, queued in new.items() if queued.content is not None}
                number = next((each for each, size in sizes.items() if size == dropped.size), None)
                if number is None:
                    number = next(
                        (each for each, packed in queue.waiting.items() if _size(packed) == dropped.size), None
                    )
                if number is None:
                    self._end_unseen(name, queue, end)
                else:
                    self._end(name, queue, number, end)
                    new.pop(number, None)

    def _settle(self) -> None:
        """Queue and end the numbered messages of the block, queue by queue."""
        names = dict.fromkeys((*self._queued, *self._received, *self._channel_events))
        for name in names:
            queued, received = self._queued[name], self._received[name]
            for event in self._channel_events[name]:
                if event.event == OPENED:
                    self._close(name, received, "reopened")
                    self.waiting.queues[name] = Queue(self.block)
                    self.waiting.touched_chunks[name].add(0)
                else:
                    queued = self._queue_up_to(name, queued, max((each.last for each in event.dropped), default=None))
                    self._close(name, received, event.reason, event.dropped)
                received = []
            for number, each in queued:
                self._put(name, number, each)
            for leaves in received:
                self._leave(name, *leaves)

    def _queue_up_to(
        self, name: QueueName, queued: list[tuple[int, Queued]], last: int | None
    ) -> list[tuple[int, Queued]]:
        """Queue the messages that a closing drops, up to the number ``last``; return the others."""
        before = -(2**63)
        for at, (number, each) in enumerate(queued):
            if last is None or not before < number <= last:
                return queued[at:]
            self._put(name, number, each)
            before = number
        return []

    def _close(
        self, name: QueueName, received: Sequence[Leaves], reason: str | None, dropped: Sequence[Range] = ()
    ) -> None:
        """End all messages of a channel and forget it: those that were received, then all others as dropped."""
        for leaves in received:
            self._leave(name, *leaves)
        end = End(Fate.DROPPED, self.block, None, reason)
        for each in dropped:
            self._leave(name, each, end)
        queue = self.waiting.queues.get(name)
        if queue is not None:
            self._drop_all(name, queue, end)
            del self.waiting.queues[name]
            self.waiting.touched_chunks[name].add(0)

    def _drop_of_para(self, event: EventFact) -> None:
        """Drop messages of a para's queues with the relay chain; if it is offboarded, its downward messages are numbered from 1 again."""
        para = event.sender
        end = End(Fate.DROPPED, self.block, None, event.reason)
        for each in event.dropped:
            if each.sender is None:
                self._leave((None, para), each, end)
                continue
            queue = self._queue((para, None))
            count = each.last - each.first + 1
            for _ in range(count - len(queue.waiting)):
                self._end_unseen((para, None), queue, end)
            for number in list(queue.waiting)[:count]:
                self._end((para, None), queue, number, end)
        if event.reason == OFFBOARDED:
            name = None, para
            queue = self._queue(name)
            self._drop_all(name, queue, end)
            queue.opened_at = self.block

    def _leave(self, name: QueueName, leaving: Range, end: End) -> None:
        queue = self._queue(name)
        for number in range(leaving.first, leaving.last + 1):
            self._end(name, queue, number, end)

    def _drop_all(self, name: QueueName, queue: Queue, end: End) -> None:
        for number in list(queue.waiting):
            self._end(name, queue, number, end)

    # --- one message ---

    def _queue(self, name: QueueName) -> Queue:
        self.waiting.touched_chunks.setdefault(name, set())  # its numbers may change
        return self.waiting.queues.setdefault(name, Queue())

    def _put(self, name: QueueName, number: int, queued: Queued) -> None:
        queue = self._queue(name)
        queue.waiting[number] = pack(queued)
        self.waiting.touched_chunks[name].add(number // CHUNK_MESSAGES)
        self.steps.append(Step(self.waiting.identity(name, number, queue.opened_at, queued.sender), queued))

    def _end(self, name: QueueName, queue: Queue, number: int, end: End) -> None:
        packed = queue.waiting.pop(number, None)
        if packed is None:
            identity = self.waiting.identity(name, number, queue.opened_at, name[0])
            self.steps.append(Step(identity, None, end))
            return
        queued = unpack(packed)
        self.waiting.touched_chunks[name].add(number // CHUNK_MESSAGES)
        self.steps.append(Step(self.waiting.identity(name, number, queue.opened_at, queued.sender), queued, end))

    def _end_unseen(self, name: QueueName, queue: Queue, end: End, content: Content | None = None) -> None:
        identity = self.waiting.identity(name, -queue.unseen, queue.opened_at, name[0])
        queue.unseen += 1
        self.steps.append(Step(identity, None, end, content))


def _without_signals(messages: CandidateFact, verdict: VerdictFact) -> CandidateFact:
    """Return a candidate's messages without its separator and the entries behind it.

    Records do not say whether rules with signals are in force. Without signals in the verdict, a payload without bytes is taken for the
    separator if it is the last one: if it was a message, it ends unseen, while a message that never was would wait forever.
    """
    upward = messages.upward
    at = next((at for at, content in enumerate(upward) if content.size == 0), None)
    if at is None or not (verdict.signals or at == len(upward) - 1):
        return messages
    return messages._replace(upward=upward[:at])


# --- a waiting message as bytes ---


def pack(queued: Queued) -> bytes:
    """Return a waiting message as bytes."""
    return encode_plain(queued)


def unpack(packed: bytes) -> Queued:
    """Return the waiting message of bytes."""
    block, by, sender, mqc_head, content = decode_plain(packed)
    return Queued(block, By(*by), sender, mqc_head, None if content is None else Content(*content))


def _size(packed: bytes) -> int | None:
    content = unpack(packed).content
    return None if content is None else content.size
