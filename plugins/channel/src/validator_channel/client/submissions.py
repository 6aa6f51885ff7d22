# SPDX-License-Identifier: Apache-2.0
"""Records on their way to a gateway: sent in the order in which they were submitted, and again after a reconnect until they are settled."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from validator_channel.application import SUBMIT_TOPICS, Welcome
from validator_channel.client.errors import Refused
from validator_channel.errors import ErrorCode, LocalError
from validator_channel.ids import format_id, unpack_message_id
from validator_channel.net.connection import Connection


@dataclass(frozen=True, slots=True)
class Receipt:
    """An acknowledged record: Kafka has it. ``attempts`` is 1 unless it was submitted again after a reconnect."""

    topic: str
    message: str
    """The message ID, 32 hex digits."""
    session_instance: str
    """The session in which it was acknowledged, 32 hex digits."""
    attempts: int


@dataclass(slots=True)
class _Pending:
    topic: str
    payload: bytes = field(repr=False)
    result: asyncio.Future[Receipt]
    attempts: int = 0
    message_id: int = 0


class Submissions:
    """The records that are not settled, at most ``pending_max``; equal ones are one."""

    def __init__(self, pending_max: int) -> None:
        self._room = asyncio.Semaphore(pending_max)
        self._pending: dict[tuple[str, bytes], _Pending] = {}
        self._to_send: deque[_Pending] = deque()
        self._in_flight: dict[tuple[int, int], _Pending] = {}
        self._connection: Connection | None = None
        self._welcome: Welcome | None = None
        self._open: set[int] = set()

    def __len__(self) -> int:
        return len(self._pending)

    async def submit(self, topic: str, payload: bytes) -> Receipt:
        """Send a record and wait until it is settled. Raises `Refused`, or what `fail` was given."""
        pending = self._pending.get((topic, payload))
        if pending is None:
            await self._room.acquire()
            pending = _Pending(topic, payload, asyncio.get_running_loop().create_future())
            pending.result.add_done_callback(lambda _: self._room.release())
            self._pending[topic, payload] = pending
            self._to_send.append(pending)
            self.pump()
        return await asyncio.shield(pending.result)

    # --- the session ---

    def begin(self, connection: Connection, welcome: Welcome) -> None:
        """A session may be used, or what it may do has changed: what it may not submit is refused."""
        self._connection, self._welcome = connection, welcome
        self.pump()

    def end(self) -> None:
        """The session has ended: everything that is not settled is sent again in the next one, in its old order."""
        self._connection = self._welcome = None
        self._open.clear()
        self._in_flight.clear()
        self._to_send = deque(self._pending.values())

    def opened(self, topic: int) -> None:
        """A topic may be used."""
        self._open.add(topic)
        self.pump()

    def closed(self, topic: int) -> None:
        """A topic may not be used any more."""
        self._open.discard(topic)

    def acknowledged(self, topic: int, index: int) -> None:
        """The gateway has a record, or has refused it before."""
        pending = self._in_flight.pop((topic, index), None)
        if pending is not None and self._connection is not None:
            instance = self._connection.instance_id.hex()
            self._settle(pending, Receipt(pending.topic, format_id(pending.message_id), instance, pending.attempts))
        self.pump()

    def refused(self, topic: int, index: int, error: Refused) -> None:
        """The gateway has refused a record."""
        pending = self._in_flight.pop((topic, index), None)
        if pending is not None:
            self._settle(pending, error)
        self.pump()

    def fail(self, error: Exception) -> None:
        """Give up every record."""
        for pending in tuple(self._pending.values()):
            self._settle(pending, error)
        self._to_send.clear()

    def pump(self) -> None:
        """Send what the session takes; a topic that is not open yet does not hold up the others."""
        held: deque[_Pending] = deque()
        while self._to_send and self._connection is not None and self._welcome is not None:
            pending = self._to_send.popleft()
            if pending.topic not in self._welcome.submit:
                self._settle(pending, Refused(f"{pending.topic}: not granted to this peer"))
            elif any(each.topic == pending.topic for each in held) or not self._send(self._connection, pending):
                held.append(pending)
        held.extend(self._to_send)
        self._to_send = held

    def _send(self, connection: Connection, pending: _Pending) -> bool:
        """Send a record; False if it has to wait."""
        topic = SUBMIT_TOPICS[pending.topic]
        if topic not in self._open:
            return False
        try:
            message_id = connection.send(topic, pending.payload)
        except LocalError as error:
            if error.code is not ErrorCode.PAYLOAD_TOO_LARGE:
                return False
            text = f"{pending.topic}: {len(pending.payload)} bytes do not fit into a frame of this session"
            self._settle(pending, Refused(text, error.code))
            return True
        pending.attempts += 1
        pending.message_id = message_id
        self._in_flight[topic, unpack_message_id(message_id).index] = pending
        return True

    def _settle(self, pending: _Pending, result: Receipt | Exception) -> None:
        self._pending.pop((pending.topic, pending.payload), None)
        if pending.result.done():
            return
        if isinstance(result, Receipt):
            pending.result.set_result(result)
        else:
            pending.result.set_exception(result)
            pending.result.exception()  # nobody may be waiting any more
