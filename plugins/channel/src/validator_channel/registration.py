# SPDX-License-Identifier: Apache-2.0
"""The topic records of a session, and their registration by both sides. Source: channel_rules 1.2.10."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from validator_channel.errors import ErrorCode, LocalError
from validator_channel.events import Event, TopicClosed, TopicOpen, TopicRefused, TopicRequested
from validator_channel.ids import MAIN, Role
from validator_channel.payloads import Registration, read_deregistration, read_registration, write_registration
from validator_channel.topics import Topic, new_topic


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
