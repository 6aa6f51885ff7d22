# SPDX-License-Identifier: Apache-2.0
"""What the gateway keeps for one session of a peer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from validator_channel.application import MainMessage, RefusedMessage, write_main
from validator_channel.errors import ErrorCode, LocalError
from validator_channel.gateway.policy import PeerPolicy
from validator_channel.ids import MAIN, format_id, pack_message_id, unpack_message_id
from validator_channel.net.connection import Connection
from validator_channel.net.rates import TokenBucket

if TYPE_CHECKING:
    from validator_channel.gateway.feed import Feed

Then = Callable[[], None]

_OVER: frozenset[ErrorCode] = frozenset({ErrorCode.WRONG_STATE, ErrorCode.INDEX_EXHAUSTED})
"""Errors after which nothing can be sent any more."""


class Refusal(NamedTuple):
    """Why a record is refused: because its peer may not submit it, or because of what it is."""

    error: str
    is_unauthorised: bool


@dataclass(slots=True)
class Submission:
    """A record that a peer has submitted: topic ID and name, index, bytes, and when it came, in seconds of the loop's clock.

    ``is_paid`` says that it has had its token. Once it was read, it has a ``refusal``, or it is ``encoded``: key and value for Kafka.
    """

    topic: int
    name: str
    index: int
    payload: bytes = field(repr=False)
    received_at: float
    is_paid: bool = False
    refusal: Refusal | None = None
    encoded: tuple[bytes, bytes] | None = field(default=None, repr=False)
    record_hash: str = ""


class PeerSession:
    """A session that is online, with its records on the way to Kafka and its feeds by topic ID.

    A message that is refused is acknowledged only once the peer has the refusal, so a peer that has an acknowledgement and no refusal knows
    that the record was accepted. ``bucket`` is for the records of all sessions of the peer, ``requests`` for this one's messages on `main`.
    """

    def __init__(self, connection: Connection, policy: PeerPolicy, bucket: TokenBucket, requests: TokenBucket) -> None:
        self.connection = connection
        self.policy = policy
        self.bucket = bucket
        self.requests = requests
        self.waiting: deque[Submission] = deque()
        self.waiting_bytes = 0
        self.is_scheduled = self.is_paused = self.is_closed = False
        self.open_topics: set[int] = set()
        self.feeds: dict[int, Feed] = {}
        self._outgoing: deque[tuple[bytes, Then]] = deque()
        self._in_flight: dict[int, Then] = {}
        """By index on `main`, what to do when the peer has the message."""

    def message_id(self, submission: Submission) -> str:
        """Return the ID of a record's message."""
        channel, session = self.policy.channel, self.connection.session_id
        return format_id(pack_message_id(channel, session, submission.topic, submission.index))

    def tell(self, message: MainMessage, then: Then = lambda: None) -> None:
        """Send a message on `main`, as soon as there is room; ``then`` is called when the peer has it."""
        self._outgoing.append((write_main(message), then))
        self._send()

    def refuse(self, topic: int, index: int, error: str) -> None:
        """Refuse a message of the peer; it is acknowledged when the peer has the refusal."""
        self.tell(RefusedMessage(topic, index, error), lambda: self.connection.ack(topic, index))

    def main_settled(self, index: int) -> None:
        """The peer has one of our messages on `main`."""
        self._in_flight.pop(index)()
        self._send()

    def close(self) -> None:
        """The session has ended."""
        self.is_closed = True
        self.waiting.clear()
        self._outgoing.clear()
        self._in_flight.clear()

    def _send(self) -> None:
        while self._outgoing and not self.is_closed:
            payload, then = self._outgoing[0]
            try:
                message_id = self.connection.send(MAIN, payload)
            except LocalError as error:
                if error.code in _OVER:
                    self._outgoing.clear()
                return
            self._outgoing.popleft()
            self._in_flight[unpack_message_id(message_id).index] = then
