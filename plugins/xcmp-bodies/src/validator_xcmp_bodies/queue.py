# SPDX-License-Identifier: Apache-2.0
"""One recipient's ingress queue, with the bodies that are held and those that are still incomplete.

Nothing of a body is kept before the queue lists it, except in the bounded buffer of unlisted parts, which has no bytes by default. A listed
body keeps at most as many bytes as the relay chain says it has, and 32 for each payload. Once it is verified, only the places of its parts
are left. A body that is not listed is early or false (N-I07).

Source: N-02, N-03.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from validator.plugin.protocol_api import BlockNumber, Hash, ParaId
from validator_xcmp_bodies.limits import PAYLOADS_MAX, UNLISTED_PART_OVERHEAD_BYTES, parts_max
from validator_xcmp_bodies.outcomes import (
    BodyPart,
    EventKind,
    Flow,
    Held,
    IngressEvent,
    Outcome,
    QueueStatus,
    RecordOffset,
    Refusal,
    Refused,
    Settings,
    Wanted,
    Watermark,
    duplicate,
    malformed,
    not_expected,
    root_mismatch,
    size_mismatch,
)
from validator_xcmp_bodies.parts import Condensed, join

Name: TypeAlias = tuple[BlockNumber, ParaId]
"""Names an entry, in the order of the queue: block, then sender."""


NOTHING_ACKED: Final = Watermark(0, ())


class Content(NamedTuple):
    """A verified body: the number of its payloads, and the places of its parts in their order."""

    payloads: int
    places: tuple[RecordOffset, ...]


class Kept(NamedTuple):
    """A part that waits for the others."""

    place: RecordOffset
    content: Condensed


@dataclass(slots=True)
class ListedBody:
    """A logical message that is not acknowledged.

    ``due`` is the block from which on its body is requested again as long as it is behind the front (`Queue.front_block`).
    """

    root: Hash
    size: int
    due: BlockNumber
    requests: int = 0
    held: Content | None = None
    parts: int = 0
    """How many parts the incomplete body has; 0 if none has arrived."""
    kept: dict[int, Kept] = field(default_factory=dict)


class Unlisted(NamedTuple):
    """A part of a body that the queue does not list, with the height at which it came."""

    part: BodyPart
    place: RecordOffset
    since: BlockNumber

    @property
    def bytes(self) -> int:
        """What it counts against its sender's buffer."""
        return self.part.content.kept_bytes + UNLISTED_PART_OVERHEAD_BYTES


@dataclass(slots=True)
class Queue:
    """The queue of one recipient. Every method appends what it has to say to ``out``."""

    recipient: ParaId
    settings: Settings
    entries: dict[Name, ListedBody] = field(default_factory=dict)
    order: list[Name] = field(default_factory=list)
    """The names of the entries, ascending."""
    contents: dict[tuple[Hash, int], list[Name]] = field(default_factory=dict)
    """The names of the entries by root and size, ascending: messages with one content share a body."""
    unlisted: list[Unlisted] = field(default_factory=list)
    unlisted_bytes: int = 0
    """Bytes of the parts in ``unlisted``."""
    unlisted_of: dict[ParaId, int] = field(default_factory=dict)
    """The same bytes by sender."""
    watermark: Watermark = NOTHING_ACKED
    alarm: bool = False
    changed: bool = False
    """Whether anything but incomplete bodies has changed since the last `finish`."""
    adopted: dict[Name, Content] = field(default_factory=dict)
    """Bodies that were held before the state was lost: their messages are listed as held, and nothing is said."""
    flows: dict[ParaId, None] = field(default_factory=dict)
    """Senders whose credits have changed since the last `finish`."""

    # --- the queue ---

    def apply(self, event: IngressEvent, out: list[Outcome]) -> None:
        """Apply an event of the relay chain; one that is known already changes nothing."""
        name = event.sent_at, event.sender
        if event.kind is EventKind.QUEUED:
            if name not in self.entries:
                self._list(name, event, out)
        elif name in self.entries:
            self._free(name, out)
            if event.kind is EventKind.ACKNOWLEDGED:
                self._acknowledge(name)
            self._normalise()

    def _list(self, name: Name, event: IngressEvent, out: list[Outcome]) -> None:
        entry = ListedBody(event.root, event.size, event.sent_at + self.settings.wanted_after_blocks)
        self.add(name, entry)
        self._note(event.sender)
        if (adopted := self.adopted.pop(name, None)) is not None:
            entry.held = adopted
            return
        content = next((twin.held for _, twin in self._alike(name, entry) if twin.held is not None), None)
        if content is not None:
            self._hold(name, entry, content, out)
        waited = [each for each in self.unlisted if (each.part.sent_at, each.part.sender) == name]
        if waited:
            self._release([each for each in self.unlisted if (each.part.sent_at, each.part.sender) != name], waited)
            for part, place, _ in sorted(waited, key=_by_place):
                self.offer(part, place, event.block, out)

    def add(self, name: Name, entry: ListedBody) -> None:
        """Add an entry to the queue, without saying anything."""
        self.entries[name] = entry
        insort(self.order, name)
        insort(self.contents.setdefault((entry.root, entry.size), []), name)

    def _free(self, name: Name, out: list[Outcome]) -> None:
        entry = self.entries.pop(name)
        del self.order[bisect_left(self.order, name)]
        alike = self.contents[entry.root, entry.size]
        alike.remove(name)
        if not alike:
            del self.contents[entry.root, entry.size]
        refusal = not_expected(name[1], self.recipient, name[0])
        self._drop(name, entry, refusal, out)
        self._note(name[1])

    def _acknowledge(self, name: Name) -> None:
        block, acked = self.watermark
        sent_at, sender = name
        if sent_at > block:
            self.watermark = Watermark(sent_at, (sender,))
        elif sent_at == block:
            self.watermark = Watermark(block, tuple(sorted({*acked, sender})))

    def _normalise(self) -> None:
        """Move on from a block that is acknowledged completely (N-I02)."""
        block, acked = self.watermark
        at = bisect_left(self.order, (block, 0))
        if acked and (at == len(self.order) or self.order[at][0] != block):
            self.watermark = Watermark(block + 1, ())

    # --- bodies ---

    def offer(self, part: BodyPart, place: RecordOffset, height: BlockNumber, out: list[Outcome]) -> None:
        """Take a part, or refuse its record.

        Refusals in the order in which they are checked (N-31): the body is not listed, the claimed size or root is not the listed one, the
        body is held, the part cannot be one of this body, all its parts together have another size or root.
        """
        name = part.sent_at, part.sender
        entry = self.entries.get(name)
        if entry is None:
            self._buffer(part, place, height, out)
        elif (refusal := self._check(part, entry)) is not None:
            out.append(_refused(refusal, part, place))
        else:
            self._keep(name, entry, part, place, out)

    def _buffer(self, part: BodyPart, place: RecordOffset, height: BlockNumber, out: list[Outcome]) -> None:
        candidate = Unlisted(part, place, height)
        if self.unlisted_of.get(part.sender, 0) + candidate.bytes <= self.settings.unlisted_bytes:
            self.buffer(candidate)
        else:
            out.append(_refused(not_expected(part.sender, self.recipient, part.sent_at), part, place))

    def buffer(self, unlisted: Unlisted) -> None:
        """Keep a part of a body that the queue does not list, without saying anything."""
        self.unlisted.append(unlisted)
        self._count(unlisted, unlisted.bytes)

    def _release(self, rest: list[Unlisted], gone: list[Unlisted]) -> None:
        self.unlisted = rest
        for each in gone:
            self._count(each, -each.bytes)

    def _count(self, unlisted: Unlisted, bytes_: int) -> None:
        sender = unlisted.part.sender
        self.unlisted_bytes += bytes_
        self.unlisted_of[sender] = self.unlisted_of.get(sender, 0) + bytes_
        if not self.unlisted_of[sender]:
            del self.unlisted_of[sender]

    def _check(self, part: BodyPart, entry: ListedBody) -> Refusal | None:
        if part.size != entry.size:
            return size_mismatch(entry.size, part.size)
        if part.root != entry.root:
            return root_mismatch(entry.root)
        if entry.held is not None:
            return duplicate(part.sender, self.recipient, part.sent_at)
        if not 0 <= part.part < part.parts <= parts_max(entry.size):
            return malformed(f"part {part.part} of {part.parts}, expected at most {parts_max(entry.size)} parts")
        return None

    def _keep(self, name: Name, entry: ListedBody, part: BodyPart, place: RecordOffset, out: list[Outcome]) -> None:
        again = duplicate(name[1], self.recipient, name[0])
        there = entry.kept.get(part.part)
        if there is not None and there.content == part.content and entry.parts == part.parts:
            out.append(_refused(again, part, place))
            return
        if entry.parts != part.parts:
            self._drop(name, entry, again, out)  # the sender has cut the body differently
        elif there is not None:
            out.append(self._refused_kept(name, entry, there, again))
        entry.parts = part.parts
        entry.kept[part.part] = Kept(place, part.content)
        actual = sum(each.content.size for each in entry.kept.values())
        payloads = sum(len(each.content.leaves) for each in entry.kept.values())
        if actual > entry.size:
            self._drop(name, entry, size_mismatch(entry.size, actual), out)
        elif payloads > PAYLOADS_MAX:
            self._drop(name, entry, malformed(f"expected at most {PAYLOADS_MAX} payloads, found {payloads}"), out)
        elif len(entry.kept) == entry.parts:
            self._complete(name, entry, out)

    def _complete(self, name: Name, entry: ListedBody, out: list[Outcome]) -> None:
        kept = [entry.kept[number] for number in range(entry.parts)]
        actual = sum(each.content.size for each in kept)
        if actual != entry.size:
            self._drop(name, entry, size_mismatch(entry.size, actual), out)
            return
        found = join(each.content for each in kept)
        if found is None or found.root != entry.root:
            self._drop(name, entry, root_mismatch(entry.root), out)
            return
        content = Content(found.payloads, tuple(each.place for each in kept))
        entry.kept, entry.parts = {}, 0
        self._hold(name, entry, content, out)
        for other, twin in self._alike(name, entry):
            if twin.held is None:
                self._drop(other, twin, duplicate(other[1], self.recipient, other[0]), out)
                self._hold(other, twin, content, out)

    def _alike(self, name: Name, entry: ListedBody) -> list[tuple[Name, ListedBody]]:
        """Return the other entries with the same content, in the queue's order: one body answers all of them."""
        names = self.contents[entry.root, entry.size]
        return [(other, self.entries[other]) for other in names if other != name]

    def _hold(self, name: Name, entry: ListedBody, content: Content, out: list[Outcome]) -> None:
        entry.held = content
        self.changed = True
        sent_at, sender = name
        out.append(Held(self.recipient, sender, sent_at, entry.root, entry.size, content.payloads, content.places))

    def _drop(self, name: Name, entry: ListedBody, refusal: Refusal, out: list[Outcome]) -> None:
        """Drop an incomplete body and refuse the records of its parts."""
        out += [self._refused_kept(name, entry, entry.kept[number], refusal) for number in sorted(entry.kept)]
        entry.kept, entry.parts = {}, 0

    def _refused_kept(self, name: Name, entry: ListedBody, kept: Kept, refusal: Refusal) -> Refused:
        return Refused(refusal, kept.place, name[1], self.recipient, name[0], entry.root)

    # --- the end of a batch ---

    def finish(self, height: BlockNumber, out: list[Outcome]) -> None:
        """Say what a batch has led to at ``height``: unlisted parts that expire, requests, credits, the queue's status."""
        self._expire(height, out)
        self._request(height, out)
        for sender in sorted(self.flows):
            unread = sum(other == sender for _, other in self.order)
            out.append(Flow(sender, self.recipient, self.settings.capacity_messages, unread, self.watermark))
        front = self.order[0] if self.order else None
        alarm = front is not None and height - front[0] >= self.settings.alarm_blocks
        if self.changed or alarm != self.alarm:
            self.alarm = alarm
            out.append(self.status(height))
        self.flows, self.changed = {}, False

    def is_due(self, height: BlockNumber) -> bool:
        """Return whether `finish` would change the queue or say anything at ``height``."""
        oldest = self.order[0][0] if self.order else None
        alarm = oldest is not None and height - oldest >= self.settings.alarm_blocks
        return (
            self.changed
            or bool(self.flows)
            or alarm != self.alarm
            or any(height - each.since >= self.settings.unlisted_blocks for each in self.unlisted)
            or any(self._due(height))
        )

    def status(self, height: BlockNumber) -> QueueStatus:
        """Return the queue's status."""
        front = self.order[0] if self.order else None
        return QueueStatus(
            self.recipient,
            height,
            len(self.order),
            sum(entry.held is None for entry in self.entries.values()),
            self.waiting_bytes,
            front,
            front is not None and self.entries[front].held is not None,
            self.alarm,
            self.watermark,
        )

    @property
    def waiting_bytes(self) -> int:
        """Bytes of parts that wait: those of incomplete bodies and unlisted ones."""
        incomplete = sum(kept.content.kept_bytes for entry in self.entries.values() for kept in entry.kept.values())
        return incomplete + self.unlisted_bytes

    @property
    def is_blank(self) -> bool:
        """Whether nothing is known of the recipient: only unlisted parts have ever named it, and none of them is left."""
        return not (self.entries or self.unlisted or self.alarm or self.adopted or self.watermark != NOTHING_ACKED)

    def _expire(self, height: BlockNumber, out: list[Outcome]) -> None:
        expired = [each for each in self.unlisted if height - each.since >= self.settings.unlisted_blocks]
        if expired:
            blocks = self.settings.unlisted_blocks
            self._release([each for each in self.unlisted if height - each.since < blocks], expired)
            for part, place, _ in sorted(expired, key=_by_place):
                out.append(_refused(not_expected(part.sender, self.recipient, part.sent_at), part, place))

    def _request(self, height: BlockNumber, out: list[Outcome]) -> None:
        """Request the bodies that are due: those at the front, of which the least requested first, then the others in their order."""
        front = self.front_block
        due = list(self._due(height))
        due.sort(key=lambda each: (each[0][0] != front, each[1].requests if each[0][0] == front else 0))
        for name, entry in due[: self.settings.wanted_per_batch_max]:
            entry.requests += 1
            entry.due = height + self._interval(entry)
            self.changed = True
            replicas = entry.requests > self.settings.sender_requests
            out.append(Wanted(self.recipient, name[1], name[0], entry.root, entry.size, entry.requests, replicas))

    @property
    def front_block(self) -> BlockNumber | None:
        """The lowest block of which a body is missing: nothing behind it can be acknowledged before all of it (N-20)."""
        return next((name[0] for name in self.order if self.entries[name].held is None), None)

    def _due(self, height: BlockNumber) -> Iterator[tuple[Name, ListedBody]]:
        front = self.front_block
        for name in self.order:
            entry = self.entries[name]
            if entry.held is None and self._due_from(entry, is_front=name[0] == front) <= height:
                yield name, entry

    def _due_from(self, entry: ListedBody, *, is_front: bool) -> BlockNumber:
        """Return when a body is requested again; at the front the wait is never longer than the first one."""
        if is_front and entry.requests:
            return entry.due - self._interval(entry) + self.settings.wanted_after_blocks
        return entry.due

    def _interval(self, entry: ListedBody) -> int:
        """Return the blocks from the last request of a body behind the front to its next one: twice as many each time."""
        interval = self.settings.wanted_after_blocks << min(entry.requests, 32)
        return min(interval, max(self.settings.wanted_interval_blocks_max, self.settings.wanted_after_blocks))

    def _note(self, sender: ParaId) -> None:
        self.flows[sender] = None
        self.changed = True


def _by_place(unlisted: Unlisted) -> RecordOffset:
    return unlisted.place


def _refused(refusal: Refusal, part: BodyPart, place: RecordOffset) -> Refused:
    return Refused(refusal, place, part.sender, part.recipient, part.sent_at, part.root)
