# SPDX-License-Identifier: Apache-2.0
"""The operator of bodies once more, naively: whole payloads instead of hashes, lists instead of indexes, no limits of memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

PARTS_MAX = 12
"""The tests cut bodies into small parts, and let the operator take that many."""


def b2(data: bytes) -> bytes:
    return blake2b(data, digest_size=32).digest()


def compact(value: int) -> bytes:
    for mode, size in ((0, 1), (1, 2), (2, 4)):
        if value < 1 << (8 * size - 2):
            return (value << 2 | mode).to_bytes(size, "little")
    raise ValueError(value)


def tree(leaves: list[bytes]) -> bytes:
    """RFC 9162 2.1.1, as it is written there."""
    if not leaves:
        return b2(b"")
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return b2(b"\x01" + tree(leaves[:split]) + tree(leaves[split:]))


def root(payloads: list[bytes]) -> bytes:
    leaves = [b2(b"\x00xcmp/msg\x01" + compact(len(payload)) + payload) for payload in payloads]
    return b2(b"\x02xcmp/msg\x01" + len(leaves).to_bytes(4, "little") + tree(leaves))


def payloads_of(parts: list[Any]) -> list[bytes] | None:
    """Join the pieces; a fragment and the rest of its payload must be neighbours."""
    payloads: list[bytes] = []
    is_open = False
    for pieces, continued, continues in parts:
        if continued != is_open:
            return None
        for at, piece in enumerate(pieces):
            if at == 0 and continued:
                payloads[-1] += bytes(piece)
            else:
                payloads.append(bytes(piece))
        is_open = continues
    return None if is_open else payloads


@dataclass
class Message:
    recipient: int
    sender: int
    sent_at: int
    root: bytes
    size: int
    asked: int
    """The block of the last request; before the first one, that of the message."""
    requests: int = 0
    held: tuple[int, tuple[Any, ...]] | None = None
    parts: int = 0
    kept: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def place(self) -> tuple[int, int]:
        return self.sent_at, self.sender


class Model:
    """All queues in one list. Outcomes are plain tuples that begin with their kind."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.height = 0
        self.messages: list[Message] = []
        self.acked: dict[int, set[tuple[int, int]]] = {}
        self.out: list[tuple[Any, ...]] = []
        self.unlisted: list[tuple[Any, Any, Any, int]] = []

    def queue(self, recipient: int) -> list[Message]:
        return sorted((each for each in self.messages if each.recipient == recipient), key=lambda each: each.place)

    def find(self, recipient: int, sender: int, sent_at: int) -> Message | None:
        return next((each for each in self.queue(recipient) if each.place == (sent_at, sender)), None)

    def event(self, event: Any) -> None:
        self.height = max(self.height, event.block)
        there = self.find(event.recipient, event.sender, event.sent_at)
        if event.kind == "queued" and there is None:
            message = Message(event.recipient, event.sender, event.sent_at, event.root, event.size, event.sent_at)
            for twin in self.queue(event.recipient):
                if twin.held and (twin.root, twin.size) == (message.root, message.size):
                    message.held = twin.held
            self.messages.append(message)
            if message.held:
                self.say_held(message)
            mine = [
                each
                for each in self.unlisted
                if (each[0].recipient, each[0].sent_at, each[0].sender)
                == (message.recipient, message.sent_at, message.sender)
            ]
            self.unlisted = [each for each in self.unlisted if each not in mine]
            for claim, part, place, _ in sorted(mine, key=lambda each: each[2]):
                self.offer(claim, part, place)
        elif event.kind != "queued" and there is not None:
            self.messages.remove(there)
            self.drop(there, "Body/NotExpected")
            if event.kind == "acknowledged":
                self.acked.setdefault(event.recipient, set()).add(there.place)

    def say_held(self, message: Message) -> None:
        assert message.held
        self.out.append(("held", message.recipient, message.sender, message.sent_at, *message.held))

    def drop(self, message: Message, kind: str) -> None:
        self.out += [("refused", kind, message.kept[number][1]) for number in sorted(message.kept)]
        message.kept, message.parts = {}, 0

    def offer(self, claim: Any, part: Any, place: Any) -> None:
        """``claim`` has sender, recipient, sent_at, root, size, part, parts."""
        message = self.find(claim.recipient, claim.sender, claim.sent_at)
        if message is None:
            bytes_of = [
                self.cost(each[1])
                for each in self.unlisted
                if (each[0].sender, each[0].recipient) == (claim.sender, claim.recipient)
            ]
            if sum(bytes_of) + self.cost(part) <= self.settings.unlisted_bytes:
                self.unlisted.append((claim, part, place, self.height))
            else:
                self.out.append(("refused", "Body/NotExpected", place))
        elif claim.size != message.size:
            self.out.append(("refused", "Body/SizeMismatch", place))
        elif claim.root != message.root:
            self.out.append(("refused", "Body/RootMismatch", place))
        elif message.held:
            self.out.append(("refused", "Body/Duplicate", place))
        elif claim.parts > PARTS_MAX:
            self.out.append(("refused", "Body/Malformed", place))
        else:
            self.keep(message, claim, part, place)

    def cost(self, part: Any) -> int:
        pieces, continued, continues = part
        whole = len(pieces) - continued - (continues and len(pieces) > continued)
        ends = [*pieces[:1] * continued, *pieces[-1:] * (continues and len(pieces) > continued)]
        return 32 * whole + sum(map(len, ends)) + 256

    def keep(self, message: Message, claim: Any, part: Any, place: Any) -> None:
        if message.parts == claim.parts and message.kept.get(claim.part, (None,))[0] == part:
            self.out.append(("refused", "Body/Duplicate", place))
            return
        if message.parts != claim.parts:
            self.drop(message, "Body/Duplicate")
        elif claim.part in message.kept:
            self.out.append(("refused", "Body/Duplicate", message.kept[claim.part][1]))
        message.parts = claim.parts
        message.kept[claim.part] = part, place
        size = sum(len(piece) for kept, _ in message.kept.values() for piece in kept.pieces)
        if size > message.size or (len(message.kept) == message.parts and size != message.size):
            self.drop(message, "Body/SizeMismatch")
        elif len(message.kept) == message.parts:
            ordered = [message.kept[number] for number in range(message.parts)]
            payloads = payloads_of([kept for kept, _ in ordered])
            if payloads is None or root(payloads) != message.root:
                self.drop(message, "Body/RootMismatch")
                return
            message.held, message.kept, message.parts = (len(payloads), tuple(at for _, at in ordered)), {}, 0
            self.say_held(message)
            for twin in self.queue(message.recipient):
                if not twin.held and (twin.root, twin.size) == (message.root, message.size):
                    self.drop(twin, "Body/Duplicate")
                    twin.held = message.held
                    self.say_held(twin)

    def finish(self) -> list[tuple[Any, ...]]:
        recipients = sorted({each.recipient for each in self.messages} | {each[0].recipient for each in self.unlisted})
        for recipient in recipients:
            old = [
                each
                for each in self.unlisted
                if each[0].recipient == recipient and self.height - each[3] >= self.settings.unlisted_blocks
            ]
            self.unlisted = [each for each in self.unlisted if each not in old]
            self.out += [("refused", "Body/NotExpected", each[2]) for each in sorted(old, key=lambda each: each[2])]
            missing = [each for each in self.queue(recipient) if not each.held]
            front = [each for each in missing if each.sent_at == missing[0].sent_at]
            front.sort(key=lambda each: each.requests)
            behind = [each for each in missing if each not in front]
            due = [each for each in front if self.height - each.asked >= self.settings.wanted_after_blocks]
            due += [each for each in behind if self.height - each.asked >= self.wait(each)]
            for message in due[: self.settings.wanted_per_batch_max]:
                message.asked = self.height
                message.requests += 1
                replicas = message.requests > self.settings.sender_requests
                self.out.append(("wanted", recipient, *message.place[::-1], message.requests, replicas))
        out, self.out = self.out, []
        return out

    def wait(self, message: Message) -> int:
        """Blocks between two requests behind the front: k at first, then twice as many each time, up to the maximum."""
        first = self.settings.wanted_after_blocks
        if not message.requests:
            return first
        return max(first, min(first * 2**message.requests, self.settings.wanted_interval_blocks_max))

    def unread(self, sender: int, recipient: int) -> int:
        return sum(each.sender == sender for each in self.queue(recipient))

    def has_acked(self, recipient: int, block: int, sender: int) -> bool:
        return (block, sender) in self.acked.get(recipient, set())
