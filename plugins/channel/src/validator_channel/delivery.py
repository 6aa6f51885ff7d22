# SPDX-License-Identifier: Apache-2.0
"""Delivery of messages in a session: windows, acknowledgement, retransmission, refusal. Source: channel_rules 1.2.8 to 1.2.12.

It knows topics and messages but not the states; `Session` decides when each of these may happen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from validator_channel.budget import StaleBudget
from validator_channel.errors import ErrorCode, Fault, LocalError
from validator_channel.events import Event, MessageDelivered, MessageReceived, MessageRejected, Undelivered
from validator_channel.ids import MAIN, Role
from validator_channel.limits import FRAME_BYTES_MIN, Settings
from validator_channel.link import Link
from validator_channel.payloads import ACKNOWLEDGEMENT, Join, write_error
from validator_channel.registration import TopicTable
from validator_channel.timers import RetransmissionTimers
from validator_channel.topics import Outgoing, Received, Topic
from validator_channel.wire import Kind, frame_bytes

_ACKNOWLEDGE, _APPLICATION = Kind.ACKNOWLEDGE, Kind.APPLICATION  # for every message, see `machine`


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
        self._timers = RetransmissionTimers()
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

    def due(self) -> list[tuple[Topic, Outgoing]]:
        """Return the messages whose timer has expired, by (deadline, topic, index). Source: 1.2.12."""
        return self._timers.due(self.now)

    def retransmit(self, topic: Topic, message: Outgoing) -> bool:
        """Transmit a message again, or return False if its retries are exhausted. Raises `Fault` with COUNTER_EXHAUSTED."""
        if message.transmissions > self._settings.max_retries:
            return False
        self._timers.stop(topic, message)
        self._transmit(topic, message)
        return True

    def next_deadline(self) -> float | None:
        """Return when the first message in flight is due, in seconds, or None."""
        return self._timers.next_deadline()

    def is_drained(self) -> bool:
        """Return whether every message of every topic is settled."""
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
        self._timers.start(topic, message)
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
        self._timers.stop(topic, message)
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
