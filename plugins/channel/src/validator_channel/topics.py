# SPDX-License-Identifier: Apache-2.0
"""Topic records: registration by both sides, what is sent and what is received in order. Source: channel_rules 1.2.8 to 1.2.12."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from validator_channel.errors import ErrorCode
from validator_channel.ids import INDEX_STEP, LAST_INDEX, MAIN, Role
from validator_channel.limits import REFUSALS_MAX
from validator_channel.wire import Kind


@dataclass(slots=True)
class Outgoing:
    """A message of ours from its index to its acknowledgement; it is sealed again for each transmission.

    ``subject`` is the topic that a TOPIC_REGISTER or TOPIC_DEREGISTER names. ``deadline`` is in seconds.
    """

    index: int
    kind: Kind
    plaintext: bytes = field(repr=False)
    subject: int
    transmissions: int = 0
    deadline: float = 0.0


class Outbox:
    """What one topic sends: messages in flight, and behind them those that wait."""

    def __init__(self, role: Role) -> None:
        self._parity = int(role)
        self._last_index = LAST_INDEX[role]
        self.next_index = int(role)
        self.waiting: deque[Outgoing] = deque()
        self.in_flight: dict[int, Outgoing] = {}

    @property
    def is_empty(self) -> bool:
        """Return whether every message is settled."""
        return not self.in_flight and not self.waiting

    def has_index(self, *, reserved: int) -> bool:
        """Return whether an index is left, when the last ``reserved`` ones are kept back."""
        return self.next_index <= self._last_index - reserved * INDEX_STEP

    def append(self, kind: Kind, plaintext: bytes, subject: int) -> int:
        """Give a message the next index, let it wait, and return the index."""
        index = self.next_index
        self.next_index += INDEX_STEP
        self.waiting.append(Outgoing(index, kind, plaintext, subject))
        return index

    def start_next(self) -> Outgoing:
        """Move the first waiting message into flight and return it."""
        message = self.waiting.popleft()
        self.in_flight[message.index] = message
        return message

    def was_transmitted(self, index: int) -> bool:
        """Return whether an index is ours and has been on the wire."""
        first_unsent = self.waiting[0].index if self.waiting else self.next_index
        return index % INDEX_STEP == self._parity and index < first_unsent

    def settle(self, index: int) -> Outgoing | None:
        """Take a message out of flight; None if it is settled already."""
        return self.in_flight.pop(index, None)

    def unsettled(self) -> Iterator[Outgoing]:
        """Yield the messages in flight and those that wait."""
        yield from self.in_flight.values()
        yield from self.waiting


@dataclass(slots=True)  # not frozen: that would triple the time to make one, and every frame makes one
class Received:
    """A message of the peer whose tag is verified; ``is_fresh`` is the answer of the replay window."""

    kind: Kind
    topic: int
    index: int
    plaintext: bytes = field(repr=False)
    is_fresh: bool


class Inbox:
    """What one topic receives: messages are held until their turn.

    ``expected`` is the index whose turn it is, ``held`` what has come before its turn, by index, and ``held_bytes`` its size.
    ``unacknowledged`` holds the delivered messages that wait for a manual acknowledgement.
    """

    def __init__(self, role: Role) -> None:
        self.expected = int(role.other)
        self.held_bytes = 0
        self.unacknowledged: set[int] = set()
        self.held: dict[int, Received] = {}
        self._refusals: OrderedDict[int, ErrorCode] = OrderedDict()

    def hold(self, message: Received, window: int) -> bool:
        """Hold a message. Return False if it is beyond the window or held already. Source: 1.2.8 steps f to h."""
        if (message.index - self.expected) // INDEX_STEP >= window or message.index in self.held:
            return False
        self.held[message.index] = message
        self.held_bytes += len(message.plaintext)
        return True

    def first(self) -> Received | None:
        """Return the message whose turn it is, or None."""
        return self.held.get(self.expected)

    def take_first(self) -> None:
        """Consume the index whose turn it is; its message need not be held."""
        if self.held:
            self.drop(self.expected)
        self.expected += INDEX_STEP

    def drop(self, index: int) -> None:
        """Forget a message, as if it had never been received; it need not be held."""
        message = self.held.pop(index, None)
        if message is not None:
            self.held_bytes -= len(message.plaintext)

    def refuse(self, index: int, code: ErrorCode) -> None:
        """Remember the error that answered a message; only the latest ones are kept. Source: 1.2.8 step b."""
        self._refusals[index] = code
        if len(self._refusals) > REFUSALS_MAX:
            self._refusals.popitem(last=False)

    def refusal(self, index: int) -> ErrorCode | None:
        """Return the error that answered a message, or None if an acknowledgement did."""
        return self._refusals.get(index)


@dataclass(slots=True)
class Topic:
    """The record of a topic; it lives until the session ends.

    Each side has a flag and a name, which it forgets with the flag. ``registered_at`` is the index of our latest TOPIC_REGISTER, None
    when it is superseded.
    """

    id: int
    outbox: Outbox
    inbox: Inbox
    is_mine: bool = False
    is_confirmed: bool = False
    is_peers: bool = False
    my_name: str | None = None
    peer_name: str | None = None
    registered_at: int | None = None
    was_open: bool = False

    @property
    def may_send(self) -> bool:
        """Return whether our flag is set and acknowledged, and the peer's flag is set. Source: 1.2.10."""
        return self.is_mine and self.is_confirmed and self.is_peers

    @property
    def may_receive(self) -> bool:
        """Return whether both flags are set. Source: 1.2.10."""
        return self.is_mine and self.is_peers

    def conflicts(self, name: str | None) -> bool:
        """Return whether a name differs from one that either side has registered."""
        return name is not None and any(name != each for each in (self.my_name, self.peer_name) if each is not None)


def new_topic(topic: int, role: Role) -> Topic:
    """Return a fresh record; that of `main` has both flags from the start, and its name."""
    record = Topic(topic, Outbox(role), Inbox(role))
    if topic == MAIN:
        record.is_mine = record.is_confirmed = record.is_peers = record.was_open = True
        record.my_name = record.peer_name = "main"
    return record
