# SPDX-License-Identifier: Apache-2.0
"""A peer of a gateway in one event loop: connects, connects again, submits, watches. Nothing is lost or doubled by a lost session."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from random import Random, SystemRandom
from typing import Any, Self

from validator_channel.application import (
    SUBMIT_TOPICS,
    TOPIC_NAMES,
    WATCH_TOPICS,
    After,
    RefusedMessage,
    Watch,
    Watching,
    Welcome,
    read_main,
    read_watched,
    write_main,
)
from validator_channel.client.config import ClientConfig
from validator_channel.client.errors import ClientClosed, NotConnected, Refused
from validator_channel.client.limits import ClientLimits
from validator_channel.client.status import Status, explain
from validator_channel.client.submissions import Receipt, Submissions
from validator_channel.client.watching import Replaced, Watcher, WatchEvent
from validator_channel.errors import LocalError
from validator_channel.events import (
    Event,
    MessageDelivered,
    MessageReceived,
    MessageRejected,
    PeerError,
    SessionClosed,
    SessionError,
    SessionOnline,
    TopicClosed,
    TopicOpen,
    TopicRefused,
)
from validator_channel.ids import MAIN, unpack_message_id
from validator_channel.limits import Settings
from validator_channel.net.connection import Connection
from validator_channel.net.connector import connect
from validator_channel.net.counters import Counters
from validator_channel.net.handshake import HandshakeFailed
from validator_channel.net.reasons import WORDS
from validator_channel.net.sessions import SessionTable
from validator_channel.net.sockets import shown_address
from validator_channel.net.tls import TlsError
from validator_channel.printing import printable
from validator_channel.strict_json import encode_json

LOG = logging.getLogger("validator_channel.client")
SETTINGS = Settings(manual_ack=True, teardown_timeout=3.0)
"""A session of a client. Messages are acknowledged once there is room for them; a gateway that leaves has acknowledged what it will."""


class ChannelClient:
    """A peer of a gateway; use it with ``async with``, inside of which it stays connected.

    ``random`` spreads the pauses between attempts. ``on_event`` is called with each event of each session, ``on_status`` with each new
    `status`, for those who show them.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        settings: Settings = SETTINGS,
        limits: ClientLimits | None = None,
        random: Random | None = None,
        counters: Counters | None = None,
        on_event: Callable[[Connection, Event], None] = lambda _connection, _event: None,
        on_status: Callable[[Status], None] = lambda _: None,
        log: logging.Logger = LOG,
    ) -> None:
        self.counters = counters if counters is not None else Counters()
        self.welcome: Welcome | None = None
        """What the gateway of the present session allows; None while there is none."""
        self._config = config
        self._settings = settings
        self._limits = limits or ClientLimits()
        self._random = random or SystemRandom()
        self.status = Status("")
        """Which gateway is tried or connected, and what the last failure was."""
        self._on_event = on_event
        self._on_status = on_status
        self._log = log
        self._sessions = SessionTable()
        self._connection: Connection | None = None
        self._watchers: dict[str, Watcher] = {}
        self._ready = asyncio.Event()
        self._failure: Exception | None = None
        self._was_welcome = False
        self._end = ""
        self._is_closing = False
        self._supervisor: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Begin to connect. A record that is submitted meanwhile waits."""
        self._submissions = Submissions(self._limits.pending_max)
        self._supervisor = asyncio.create_task(self._stay_connected())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leave the session once everything in flight is settled, within the session's ``teardown_timeout``."""
        self._is_closing = True
        assert self._supervisor is not None
        connection = self._connection
        if connection is None:
            self._supervisor.cancel()
        else:
            with suppress(LocalError):  # it is leaving already
                connection.leave("the client closes")
        with suppress(asyncio.CancelledError):
            await self._supervisor
        self._fail(ClientClosed("the client was closed before the gateway had acknowledged the record"))

    @property
    def pending(self) -> int:
        """Return the number of records that are not settled."""
        return len(self._submissions)

    async def ready(self) -> Welcome:
        """Wait for a session and return what it may do.

        Raises `NotConnected`; `TlsError` if our files are broken from the start. Every call that waits does.
        """
        while self.welcome is None:
            if self._failure is not None:
                raise self._failure
            self._ready.clear()
            await self._ready.wait()
        return self.welcome

    async def submit(self, topic: str, record: Mapping[str, Any] | bytes) -> Receipt:
        """Submit a record in JSON form, or its bytes, and return once Kafka has it.

        Records of one topic keep their order. A record that is submitted twice is written once, also over a reconnect. If this is
        cancelled, the record may be delivered all the same. Raises ``ValueError`` for an unknown topic; `Refused`; `NotConnected`;
        `ClientClosed`.
        """
        if topic not in SUBMIT_TOPICS:
            raise ValueError(f"topic: expected one of {', '.join(SUBMIT_TOPICS)}, found {topic!r}")
        if self._failure is not None:
            raise self._failure
        payload = record if isinstance(record, bytes) else encode_json(dict(record))
        return await self._submissions.submit(topic, payload)

    async def watch(self, topic: str, after: After = None) -> AsyncGenerator[WatchEvent]:
        """Yield the records of a topic after a position; ``after`` None begins with the first one that is kept, ``"end"`` with the next.

        Each record comes once and in the order of its partition, over any number of sessions. A topic has one watch: a new one ends the
        one before. Raises ``ValueError`` for an unknown topic; `Refused`; `NotConnected`; `ClientClosed`.
        """
        if topic not in WATCH_TOPICS:
            raise ValueError(f"topic: expected one of {', '.join(WATCH_TOPICS)}, found {topic!r}")
        if self._failure is not None:
            raise self._failure
        if topic in self._watchers:
            self._watchers[topic].fail(Replaced())
        watcher = self._watchers[topic] = Watcher(topic, after, self._limits.queue_max)
        try:
            self._request(watcher)
            while True:
                yield await watcher.take()
        except Replaced:
            return
        finally:
            if self._watchers.get(topic) is watcher:
                del self._watchers[topic]
                self._unwatch(topic)

    # --- staying connected ---

    async def _stay_connected(self) -> None:
        failures = 0
        while not self._is_closing:
            host, port = self._config.gateways[failures % len(self._config.gateways)]
            place = shown_address((host, port))
            self._set_status(replace(self.status, gateway=place, pause_s=0.0))
            was_welcome, code, why = await self._one_session(host, port)
            failures = 0 if was_welcome else failures + 1
            if self._limits.attempts_max is not None and failures >= self._limits.attempts_max:
                self._fail(NotConnected(f"{place}: {why}", code))
                return
            if not self._is_closing:
                pause_s = self._limits.pause_s(max(1, failures), self._random)
                self._note_failure(Status(place, failures=failures, failure=why, pause_s=pause_s))
                await asyncio.sleep(pause_s)

    def _note_failure(self, status: Status) -> None:
        """Show why there is no session; the log has a warning if that is news."""
        is_news = status.failure != self.status.failure
        self._log.log(
            logging.WARNING if is_news else logging.INFO,
            "no session with %s: %s",
            status.gateway,
            printable(status.failure or ""),
        )
        self._set_status(status)

    def _set_status(self, status: Status) -> None:
        self.status = status
        self._on_status(status)

    async def _one_session(self, host: str, port: int) -> tuple[bool, str | None, str]:
        """Run a session to its end; return whether the gateway has welcomed it, and what ended it: a code, if there is one, and a line."""
        session_id = self._sessions.choose(self._config.gateway >> 64)
        try:
            connection = await connect(
                host,
                port,
                self._config.tls,
                self._config.gateway_peer(),
                0 if session_id is None else session_id,
                self._handle,
                self._settings,
                server_hostname=self._config.server_name,
                sessions=self._sessions,
                counters=self.counters,
                log=self._log,
            )
        except (HandshakeFailed, TlsError, OSError) as error:
            if isinstance(error, TlsError) and not self._was_welcome:
                self._fail(error)  # our own files; once a session was there, they may be in the middle of a rotation
                self._is_closing = True
            if isinstance(error, HandshakeFailed):
                return False, error.code, explain(self._config, error)
            return False, None, str(error)
        keeping_alive = asyncio.create_task(self._keep_alive(connection))
        try:
            await connection.wait_closed()
        except asyncio.CancelledError:
            connection.drop("LEFT")
            raise
        finally:
            keeping_alive.cancel()
        was_welcome, self.welcome = self.welcome is not None, None
        self._was_welcome = self._was_welcome or was_welcome
        words = WORDS.get(self._end)
        return was_welcome, self._end, f"the session has ended: {self._end}" + (f": {words}" if words else "")

    async def _keep_alive(self, connection: Connection) -> None:
        with suppress(LocalError):
            while True:
                await asyncio.sleep(self._limits.keep_alive_s)
                connection.keep_alive()

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._submissions.fail(error)
        for watcher in self._watchers.values():
            watcher.fail(error)
        self._ready.set()

    # --- events of a session ---

    def _handle(self, connection: Connection, event: Event) -> None:
        self._on_event(connection, event)
        match event:
            case SessionOnline():
                self._connection, self._end = connection, "LEFT"
            case MessageReceived():
                self._receive(connection, event)
            case MessageDelivered(topic, index):
                self._submissions.acknowledged(topic, index)
            case MessageRejected(topic, index, code):
                self._submissions.refused(topic, index, Refused(f"{TOPIC_NAMES.get(topic, topic)}: {code}", code))
            case TopicOpen(topic):
                self._submissions.opened(topic)
            case TopicClosed(topic) | TopicRefused(topic, _):
                self._submissions.closed(topic)
            case SessionError(_, code) | PeerError(code):
                self._end = str(code)
            case SessionClosed():
                self._connection = None
                self.status = replace(self.status, is_online=False)
                self._submissions.end()
                for watcher in self._watchers.values():
                    watcher.end()
            case _:
                pass

    def _receive(self, connection: Connection, message: MessageReceived) -> None:
        connection.consumed()
        watcher = self._watchers.get(TOPIC_NAMES.get(message.topic, ""))
        try:
            if message.topic == MAIN:
                self._receive_on_main(connection, message.payload)
            elif watcher is not None:
                watcher.receive(read_watched(message.payload), lambda: connection.ack(message.topic, message.index))
                return
        except ValueError as error:
            self._log.warning("the gateway has sent what is not understood: %s", error)
        connection.ack(message.topic, message.index)

    def _receive_on_main(self, connection: Connection, payload: bytes) -> None:
        match read_main(payload, tokens_max=None):
            case Welcome() as welcome:
                self._welcomed(connection, welcome)
            case Watching(topic, index, after):
                if topic in self._watchers and self._watchers[topic].index == index:
                    self._watchers[topic].begin(after)
            case RefusedMessage(topic, index, error):
                if topic != MAIN:
                    self._submissions.refused(topic, index, Refused(error))
                for watcher in self._watchers.values():
                    if topic == MAIN and watcher.index == index:
                        watcher.fail(Refused(error))
            case _:
                pass

    def _welcomed(self, connection: Connection, welcome: Welcome) -> None:
        """Register what may be submitted, and ask for what is watched; a later welcome may allow more or less."""
        is_first, self.welcome = self.welcome is None, welcome
        if is_first:
            self._set_status(replace(self.status, is_online=True, pause_s=0.0))
        for topic in welcome.submit:
            if SUBMIT_TOPICS.get(topic) == welcome.submit[topic]:
                connection.register_topic(welcome.submit[topic], topic)
        self._submissions.begin(connection, welcome)
        for watcher in self._watchers.values():
            if is_first:
                self._request(watcher)
            else:
                self._check_granted(watcher, welcome)
        self._ready.set()

    def _request(self, watcher: Watcher) -> None:
        """Ask for a topic, if there is a session; otherwise the next one does."""
        if self._connection is None or self.welcome is None or watcher.error is not None:
            return
        if not self._check_granted(watcher, self.welcome):
            return
        with suppress(LocalError):  # the session is ending; the next one asks again
            self._connection.register_topic(WATCH_TOPICS[watcher.topic], watcher.topic)
            message_id = self._connection.send(MAIN, write_main(Watch(watcher.topic, watcher.after)))
            watcher.index = unpack_message_id(message_id).index

    @staticmethod
    def _check_granted(watcher: Watcher, welcome: Welcome) -> bool:
        is_granted = welcome.watch.get(watcher.topic) == WATCH_TOPICS[watcher.topic]
        if not is_granted:
            watcher.fail(Refused(f"watch: {watcher.topic!r} is not granted to this peer"))
        return is_granted

    def _unwatch(self, topic: str) -> None:
        if self._connection is not None and self.welcome is not None:
            with suppress(LocalError):  # the session is ending, or the topic was not registered
                self._connection.deregister_topic(WATCH_TOPICS[topic])
