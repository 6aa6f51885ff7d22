# SPDX-License-Identifier: Apache-2.0
"""Topics and their messages: registration, windows, acknowledgement, retransmission, refusal. Source: channel_rules 1.2.8 to 1.2.12.

Nothing here knows the states of a session; `Session` decides when each of these may happen.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from validator_channel.errors import ErrorCode, Fault, LocalError
from validator_channel.events import (
    Event,
    MessageDelivered,
    MessageReceived,
    MessageRejected,
    TopicClosed,
    TopicOpen,
    TopicRefused,
    TopicRequested,
    Undelivered,
)
from validator_channel.limits import FRAME_BYTES_MIN, REFUSALS_MAX, Settings
from validator_channel.link import Link, Received
from validator_channel.wire import (
    ACKNOWLEDGEMENT,
    INDEX_STEP,
    LAST_INDEX,
    MAIN,
    Join,
    Kind,
    Registration,
    Role,
    frame_bytes,
    read_deregistration,
    read_registration,
    write_error,
    write_registration,
)


class StaleBudget:
    """Allows ``limit`` frames within any ``period`` seconds, and holds the time of each."""

    def __init__(self, limit: int, period: float) -> None:
        self._limit = limit
        self._period = period
        self._times: deque[float] = deque()

    def spend(self, now: float) -> bool:
        """Count a frame and return whether it is within the budget; one that is ``period`` seconds old counts no more."""
        while self._times and now - self._times[0] >= self._period:
            self._times.popleft()
        if len(self._times) >= self._limit:
            return False
        self._times.append(now)
        return True


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


Queued = tuple[Topic, Outgoing]


class RetransmissionTimers:
    """The messages in flight by their deadlines.

    Messages that were transmitted equally often wait equally long, and time never goes back: the order of their transmissions is the order
    of their deadlines. So there is one queue for each number of transmissions.
    """

    def __init__(self) -> None:
        self._queues: dict[int, OrderedDict[tuple[int, int], Queued]] = {}

    def start(self, topic: Topic, message: Outgoing) -> None:
        """Take a message whose ``transmissions`` and ``deadline`` are set."""
        queue = self._queues.get(message.transmissions)
        if queue is None:
            queue = self._queues[message.transmissions] = OrderedDict()
        queue[topic.id, message.index] = (topic, message)

    def stop(self, topic: Topic, message: Outgoing) -> None:
        del self._queues[message.transmissions][topic.id, message.index]

    def next_deadline(self) -> float | None:
        """Return when the first message is due, in seconds, or None."""
        firsts = [next(iter(queue.values()))[1] for queue in self._queues.values() if queue]
        return min([message.deadline for message in firsts], default=None)

    def due(self, now: float) -> list[Queued]:
        """Return the messages that are due, by (deadline, topic, index)."""
        expired: list[Queued] = []
        for queue in self._queues.values():
            expired += takewhile(lambda entry: entry[1].deadline <= now, queue.values())
        return sorted(expired, key=lambda entry: (entry[1].deadline, entry[0].id, entry[1].index))


class TopicTable:
    """All topic records; `main` is the first of at most ``max_topics``.

    ``may_register`` says whether the peer may register a topic. ``report`` takes the events.
    """

    def __init__(
        self, role: Role, max_topics: int, may_register: Callable[[int], bool], report: Callable[[Event], None]
    ) -> None:
        self._role = role
        self._max_topics = max_topics
        self._may_register = may_register
        self._report = report
        self.main = new_topic(MAIN, role)
        self._records = {MAIN: self.main}
        self.get = self._records.get
        """The record of a topic, or None."""

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._records.values())

    # --- what the application asks for ---

    def prepare_registration(self, topic: int, name: str | None) -> bytes | None:
        """Return the plaintext that registers a topic, or None if this side has registered it.

        Raises `LocalError`: BAD_PAYLOAD for a topic outside 0 to 4194303 or a bad name, TOPIC_LIMIT, TOPIC_CONFLICT.
        """
        plaintext = _written(Registration(topic, name))
        record = self._records.get(topic)
        if record is None and self._is_full:
            raise LocalError(ErrorCode.TOPIC_LIMIT)
        if record is not None and record.conflicts(name):
            raise LocalError(ErrorCode.TOPIC_CONFLICT)
        return None if record is not None and record.is_mine else plaintext

    def prepare_deregistration(self, topic: int) -> bytes:
        """Return the plaintext that deregisters a topic.

        Raises `LocalError`: BAD_PAYLOAD for a topic outside 0 to 4194303, TOPIC_RESERVED for `main`, UNKNOWN_TOPIC for a topic that this
        side has not registered.
        """
        plaintext = _written(Registration(topic))
        if topic == MAIN:
            raise LocalError(ErrorCode.TOPIC_RESERVED)
        record = self._records.get(topic)
        if record is None or not record.is_mine:
            raise LocalError(ErrorCode.UNKNOWN_TOPIC)
        return plaintext

    def set_mine(self, topic: int, name: str | None, index: int) -> None:
        """Set our flag; the TOPIC_REGISTER with this index must be acknowledged before the topic opens."""
        record = self._record(topic)
        record.is_mine, record.is_confirmed, record.my_name, record.registered_at = True, False, name, index

    def clear_mine(self, topic: int) -> None:
        """Clear our flag, and report TopicClosed if the topic was open."""
        record = self._record(topic)
        record.is_mine, record.is_confirmed, record.my_name, record.registered_at = False, False, None, None
        self._report_change(record)

    # --- what the peer answers ---

    def confirm(self, topic: int, index: int) -> None:
        """Take the acknowledgement of a TOPIC_REGISTER, unless a later call has superseded it."""
        record = self._record(topic)
        if record.registered_at == index:
            record.is_confirmed = True
            self._report_change(record)

    def refuse(self, topic: int, index: int, code: str) -> None:
        """Take the refusal of a TOPIC_REGISTER: clear our flag, unless a later call has superseded it, and report TopicRefused."""
        if self._record(topic).registered_at == index:
            self.clear_mine(topic)
        self._report(TopicRefused(topic, code))

    # --- what the peer asks for ---

    def register_by_peer(self, plaintext: bytes) -> ErrorCode | None:
        """Take a TOPIC_REGISTER and return the code of its refusal, or None.

        The codes in the order of their checks: BAD_PAYLOAD, NOT_AUTHORIZED, TOPIC_LIMIT, TOPIC_CONFLICT. `main` needs no authorisation.
        """
        try:
            topic, name = read_registration(plaintext)
        except ValueError:
            return ErrorCode.BAD_PAYLOAD
        if topic != MAIN and not self._may_register(topic):
            return ErrorCode.NOT_AUTHORIZED
        if topic not in self._records and self._is_full:
            return ErrorCode.TOPIC_LIMIT
        record = self._record(topic)
        if record.conflicts(name):
            return ErrorCode.TOPIC_CONFLICT
        is_request = not record.is_peers and not record.is_mine
        record.is_peers, record.peer_name = True, name or record.peer_name
        if is_request:
            self._report(TopicRequested(topic, name))
        self._report_change(record)
        return None

    def deregister_by_peer(self, plaintext: bytes) -> ErrorCode | None:
        """Take a TOPIC_DEREGISTER and return the code of its refusal, or None.

        The codes in the order of their checks: BAD_PAYLOAD, TOPIC_RESERVED, UNKNOWN_TOPIC.
        """
        try:
            topic = read_deregistration(plaintext)
        except ValueError:
            return ErrorCode.BAD_PAYLOAD
        if topic == MAIN:
            return ErrorCode.TOPIC_RESERVED
        record = self._records.get(topic)
        if record is None or not record.is_peers:
            return ErrorCode.UNKNOWN_TOPIC
        record.is_peers, record.peer_name = False, None
        self._report_change(record)
        return None

    # --- records ---

    @property
    def _is_full(self) -> bool:
        return len(self._records) >= self._max_topics

    def _record(self, topic: int) -> Topic:
        record = self._records.get(topic)
        if record is None:
            record = self._records[topic] = new_topic(topic, self._role)
        return record

    def _report_change(self, record: Topic) -> None:
        if record.may_send != record.was_open:
            record.was_open = record.may_send
            self._report(TopicOpen(record.id) if record.may_send else TopicClosed(record.id))


def _written(registration: Registration) -> bytes:
    try:
        return write_registration(registration)
    except ValueError:
        raise LocalError(ErrorCode.BAD_PAYLOAD) from None


_ACKNOWLEDGE, _APPLICATION = Kind.ACKNOWLEDGE, Kind.APPLICATION  # for every message, see `session`


class Delivery:
    """The messages of one session in both directions.

    ``now`` is the time of the current call in seconds, ``peer`` what the peer's JOIN_SESSION announced. While ``is_writable`` is False a
    retransmission is counted but not queued.
    """

    def __init__(
        self,
        role: Role,
        link: Link,
        settings: Settings,
        may_register: Callable[[int], bool],
        report: Callable[[Event], None],
    ) -> None:
        self.now = 0.0
        self.peer = Join(window=1, max_frame=FRAME_BYTES_MIN)
        self.is_writable = True
        self.topics = TopicTable(role, settings.max_topics, may_register, report)
        self._link = link
        self._settings = settings
        self._report = report
        self._budget = StaleBudget(settings.stale_limit, settings.stale_period)
        self.timers = RetransmissionTimers()
        self._unconsumed: deque[int] = deque()
        self._unconsumed_bytes = 0

    # --- sending ---

    def check_room(self, topic: Topic) -> None:
        """Check that a topic takes one more message.

        Raises `LocalError`: INDEX_EXHAUSTED, where the last index of `main` is kept back for LEAVE_SESSION; OUTBOX_FULL.
        """
        if not topic.outbox.has_index(reserved=int(topic.id == MAIN)):
            raise LocalError(ErrorCode.INDEX_EXHAUSTED)
        is_waiting = len(topic.outbox.in_flight) >= self._in_flight_max
        if is_waiting and len(topic.outbox.waiting) >= self._settings.outbox_limit:
            raise LocalError(ErrorCode.OUTBOX_FULL)

    def check_size(self, payload: bytes) -> None:
        """Check that both sides accept the frame of a payload. Raises `LocalError` with PAYLOAD_TOO_LARGE."""
        if frame_bytes(Kind.APPLICATION, len(payload)) > min(self._settings.max_frame, self.peer.max_frame):
            raise LocalError(ErrorCode.PAYLOAD_TOO_LARGE)

    def send(self, topic: Topic, kind: Kind, plaintext: bytes, subject: int = MAIN) -> int:
        """Give a message its index, transmit it if the window allows, and return the index. Raises `Fault` with COUNTER_EXHAUSTED."""
        index = topic.outbox.append(kind, plaintext, subject)
        self.transmit_waiting(topic)
        return index

    def transmit_waiting(self, topic: Topic) -> None:
        """Transmit the messages that wait, as far as the window allows. Raises `Fault` with COUNTER_EXHAUSTED."""
        while topic.outbox.waiting and len(topic.outbox.in_flight) < self._in_flight_max:
            self._transmit(topic, topic.outbox.start_next())

    def retransmit(self, topic: Topic, message: Outgoing) -> bool:
        """Transmit a message again, or return False if its retries are exhausted. Raises `Fault` with COUNTER_EXHAUSTED."""
        if message.transmissions > self._settings.max_retries:
            return False
        self.timers.stop(topic, message)
        self._transmit(topic, message)
        return True

    def is_drained(self) -> bool:
        return all(topic.outbox.is_empty for topic in self.topics)

    def undelivered(self) -> tuple[Undelivered, ...]:
        """Return the APPLICATION messages that are not settled, by topic and index."""
        return tuple(
            Undelivered(topic.id, message.index, message.plaintext)
            for topic in sorted(self.topics, key=lambda each: each.id)
            for message in sorted(topic.outbox.unsettled(), key=lambda each: each.index)
            if message.kind is Kind.APPLICATION
        )

    @property
    def _in_flight_max(self) -> int:
        return min(self._settings.max_inflight, self.peer.window)

    def _transmit(self, topic: Topic, message: Outgoing) -> None:
        message.transmissions += 1
        message.deadline = self.now + self._settings.interval(message.transmissions)
        self.timers.start(topic, message)
        if self.is_writable or message.transmissions == 1:
            self._link.send(message.kind, topic.id, message.index, message.plaintext)

    # --- answers of the peer ---

    def settle(self, answer: Received) -> tuple[Topic, Outgoing] | None:
        """Settle the message that an ACKNOWLEDGE or a non-fatal ERROR answers; None if it is settled already.

        Raises `Fault`: BAD_ACK for a message that was never transmitted, LIMIT_EXCEEDED. Source: 1.2.9, 1.2.11.
        """
        topic = self.topics.get(answer.topic)
        if topic is None or not topic.outbox.was_transmitted(answer.index):
            raise fault(ErrorCode.BAD_ACK, answer)
        message = topic.outbox.settle(answer.index)
        if message is None:
            self.spend(answer)
            return None
        self.timers.stop(topic, message)
        return topic, message

    def report_accepted(self, topic: Topic, message: Outgoing) -> None:
        """Take the acknowledgement of a message: MessageDelivered, or TopicOpen where a TOPIC_REGISTER was missing."""
        if message.kind is _APPLICATION:
            self._report(MessageDelivered(topic.id, message.index))
        elif message.kind is Kind.TOPIC_REGISTER:
            self.topics.confirm(message.subject, message.index)

    def report_refused(self, topic: Topic, message: Outgoing, code: str) -> None:
        """Take the refusal of a message: MessageRejected or TopicRefused; that of a TOPIC_DEREGISTER only settles it."""
        if message.kind is Kind.APPLICATION:
            self._report(MessageRejected(topic.id, message.index, code))
        elif message.kind is Kind.TOPIC_REGISTER and message.subject != MAIN:
            self.topics.refuse(message.subject, message.index, code)

    # --- messages of the peer ---

    def spend(self, message: Received) -> None:
        """Charge a tolerated frame to the budget. Raises `Fault` with LIMIT_EXCEEDED, which names no message."""
        self._link.counts.stale += 1
        if not self._budget.spend(self.now):
            raise Fault(ErrorCode.LIMIT_EXCEEDED, is_answered=message.kind is not Kind.ERROR)

    def hold(self, topic: Topic, message: Received) -> bool:
        """Hold a message until its turn; False if it is beyond the window or held already.

        One that exceeds ``held_bytes`` of the session before its turn is forgotten: the peer transmits it again.
        """
        inbox = topic.inbox
        if not inbox.hold(message, self._settings.window):
            return False
        if message.index != inbox.expected and self._held_bytes() > self._settings.held_bytes:
            inbox.drop(message.index)
        return True

    def _held_bytes(self) -> int:
        return sum(topic.inbox.held_bytes for topic in self.topics)

    def answer_again(self, topic: Topic, message: Received) -> None:
        """Repeat the answer to a duplicate: the same ERROR, or ACKNOWLEDGE; none while a manual one is pending. Source: 1.2.8 step b."""
        if message.index in topic.inbox.unacknowledged:
            return
        code = topic.inbox.refusal(message.index)
        if code is None:
            self._link.send(_ACKNOWLEDGE, topic.id, message.index, ACKNOWLEDGEMENT)
        else:
            self.send_error(code, topic.id, message.index)

    def acknowledge(self, topic: Topic, message: Received) -> None:
        """Consume the index whose turn it is, and acknowledge its message."""
        topic.inbox.take_first()
        self._link.send(_ACKNOWLEDGE, topic.id, message.index, ACKNOWLEDGEMENT)

    def deliver(self, topic: Topic, message: Received) -> None:
        """Deliver the message whose turn it is: an APPLICATION message or a request about a topic. Source: 1.2.8 step h, 1.2.10."""
        if message.kind is _APPLICATION:
            self.deliver_application(topic, message)
            return
        take = self.topics.register_by_peer if message.kind is Kind.TOPIC_REGISTER else self.topics.deregister_by_peer
        self._answer(topic, message, take(message.plaintext))

    def deliver_application(self, topic: Topic, message: Received) -> None:
        """Deliver the APPLICATION message whose turn it is; if the inbox is full, it is as if it had never been received.

        A peer that has as many unacknowledged messages as its window allows must not send another one, so under ``manual_ack`` that is
        dropped as one beyond the window is. Raises `Fault` with LIMIT_EXCEEDED. Source: 1.2.8 steps f and h, 1.2.12.
        """
        if not topic.may_receive:
            self._answer(topic, message, ErrorCode.TOPIC_CLOSED)
            return
        inbox, settings, index, payload = topic.inbox, self._settings, message.index, message.plaintext
        if len(inbox.unacknowledged) >= settings.window:
            inbox.drop(index)
            self.spend(message)
            return
        if len(self._unconsumed) >= settings.inbox_limit or self._unconsumed_bytes > settings.inbox_bytes:
            inbox.drop(index)
            return
        inbox.take_first()
        if settings.manual_ack:
            inbox.unacknowledged.add(index)
        else:
            self._link.send(_ACKNOWLEDGE, topic.id, index, ACKNOWLEDGEMENT)
        self._unconsumed.append(len(payload))
        self._unconsumed_bytes += len(payload)
        self._report(MessageReceived(topic.id, index, payload))

    def consume(self, count: int) -> None:
        """Free places of the inbox."""
        while count > 0 and self._unconsumed:
            self._unconsumed_bytes -= self._unconsumed.popleft()
            count -= 1

    def acknowledge_manually(self, topic: int, index: int) -> None:
        """Acknowledge a delivered message.

        Raises `LocalError`: UNKNOWN_TOPIC, then WRONG_STATE for a message that does not wait for its acknowledgement. Source: 1.2.9.
        """
        self._take_unacknowledged(topic, index)
        self._link.send(_ACKNOWLEDGE, topic, index, ACKNOWLEDGEMENT)

    def refuse_manually(self, topic: int, index: int, code: ErrorCode) -> None:
        """Refuse a delivered message with a non-fatal code, which is repeated for a duplicate. Raises as `acknowledge_manually`."""
        self._take_unacknowledged(topic, index).inbox.refuse(index, code)
        self.send_error(code, topic, index)

    def _take_unacknowledged(self, topic: int, index: int) -> Topic:
        record = self.topics.get(topic)
        if record is None:
            raise LocalError(ErrorCode.UNKNOWN_TOPIC)
        if index not in record.inbox.unacknowledged:
            raise LocalError(ErrorCode.WRONG_STATE)
        record.inbox.unacknowledged.remove(index)
        return record

    def send_error(self, code: ErrorCode, topic: int, index: int) -> None:
        """Send a non-fatal ERROR about a message."""
        self._link.counts.refused[code] += 1
        self._link.send(Kind.ERROR, topic, index, write_error(code, is_fatal=False))

    def _answer(self, topic: Topic, message: Received, code: ErrorCode | None) -> None:
        if code is None:
            self.acknowledge(topic, message)
            return
        topic.inbox.take_first()
        topic.inbox.refuse(message.index, code)
        self.send_error(code, topic.id, message.index)


def fault(code: ErrorCode, message: Received) -> Fault:
    """Return a fatal error about a message; one about an ERROR is not answered."""
    return Fault(code, (message.topic, message.index), is_answered=message.kind is not Kind.ERROR)
