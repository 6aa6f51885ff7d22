# SPDX-License-Identifier: Apache-2.0
"""A peer of a gateway in one event loop: connects, connects again, submits, watches. Nothing is lost or doubled by a lost session."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from random import Random, SystemRandom
from typing import Any, Self

from validator_channel.application import (
    SUBMIT_TOPICS,
    TOPIC_NAMES,
    WATCH_TOPICS,
    After,
    Position,
    RefusedMessage,
    Watch,
    Watched,
    Watching,
    Welcome,
    read_main,
    read_watched,
    write_main,
)
from validator_channel.client.config import ClientConfig
from validator_channel.errors import ErrorCode, LocalError, printable
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
from validator_channel.limits import SHOWN_PEERS_MAX, ClientLimits, Settings
from validator_channel.net.certificates import MALFORMED, FileError, load_certificates, peers_of
from validator_channel.net.connection import Connection
from validator_channel.net.connector import connect
from validator_channel.net.outcomes import SILENT, WORDS, Counters
from validator_channel.net.peers import HandshakeFailed, SessionTable
from validator_channel.net.sockets import shown_address
from validator_channel.net.tls import TlsError
from validator_channel.wire import MAIN, encode_json, format_id, unpack_message_id


class Refused(Exception):
    """The gateway has refused a record or a watch; ``error`` says why, ``code`` is set if the protocol itself refused the message."""

    def __init__(self, error: str, code: str | None = None) -> None:
        super().__init__(error)
        self.error = error
        self.code = code


class NotConnected(Exception):
    """The client has given up connecting; the text says what the last attempt met, ``code`` is its code, as in `HandshakeFailed`."""

    def __init__(self, text: str, code: str | None = None) -> None:
        super().__init__(text)
        self.code = code


class ClientClosed(Exception):
    """The client was closed before the gateway had acknowledged the record, which it may have or not."""


@dataclass(frozen=True, slots=True)
class Status:
    """The gateway that is tried or that there is a session with.

    ``failures`` are the attempts in a row that came to nothing; ``failure`` says in one line what ended the last attempt or session.
    ``pause_s`` are the seconds until the next attempt, 0 while one is under way.
    """

    gateway: str
    is_online: bool = False
    failures: int = 0
    failure: str | None = None
    pause_s: float = 0.0


def explain(config: ClientConfig, failure: HandshakeFailed) -> str:
    """Return why an attempt has failed: what the protocol says, and for a refusal without a reason what is odd about our own files."""
    if failure.reason != SILENT:
        return str(failure)
    return "; ".join([str(failure), *_oddities(config)])


def _oddities(config: ClientConfig) -> list[str]:
    try:
        leaf = load_certificates(config.tls.certificate)[0]
        authorities = load_certificates(config.tls.ca)
        peers = peers_of(leaf)
    except (FileError, *MALFORMED):  # they may be in the middle of a rotation
        return []
    found = []
    if config.peer not in peers:
        names = ", ".join(sorted(map(format_id, peers))[:SHOWN_PEERS_MAX]) or "no peer"
        found.append(f"our certificate is of {names}, we are {format_id(config.peer)}")
    if leaf.not_valid_before_utc > datetime.now(UTC):
        found.append(f"our certificate begins at {leaf.not_valid_before_utc:%FT%TZ}, in the future")
    if all(leaf.issuer != each.subject for each in authorities):
        found.append(f"our certificate is not of the CA in {config.tls.ca}")
    return found


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


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A record of a watched topic; ``after`` is the position to name in order to continue behind it.

    ``record`` is None, and ``error`` says why, for a record that is too large for the session.
    """

    topic: str
    partition: int
    offset: int
    record: Mapping[str, Any] | None = field(repr=False)
    error: str | None
    after: Position


class Replaced(Exception):
    """Another watch of the same topic has begun."""


class Watcher:
    """The records of a topic for one reader.

    A record is acknowledged when it is in the queue, which holds ``queue_max``; the others wait with the gateway. What it has not
    acknowledged is sent again in the next session, which continues after `position`.
    """

    def __init__(self, topic: str, after: After, queue_max: int) -> None:
        self.topic = topic
        self.index: int | None = None
        """The index on `main` of the request in the present session."""
        self.error: Exception | None = None
        self._begin = after
        self._position: dict[int, int] | None = dict(after) if isinstance(after, Mapping) else None
        self._queue_max = queue_max
        self._queue: deque[WatchEvent] = deque()
        self._waiting: deque[tuple[Watched, Callable[[], None]]] = deque()
        self._is_active = False
        self._changed = asyncio.Event()

    @property
    def after(self) -> After:
        """Return where the next session continues."""
        return self._begin if self._position is None else self._position

    def begin(self, after: Position) -> None:
        """The gateway sends records after a position from now on."""
        self._is_active = True
        if self._position is None:
            self._position = dict(after)

    def end(self) -> None:
        """The session has ended."""
        self._is_active = False
        self.index = None
        self._waiting.clear()

    def fail(self, error: Exception) -> None:
        """Let the reader get an exception after the records that are queued."""
        self.error = self.error or error
        self._changed.set()

    def receive(self, watched: Watched, acknowledge: Callable[[], None]) -> None:
        """Take a record; one that belongs to an earlier request is ignored."""
        if not self._is_active:
            acknowledge()
            return
        self._waiting.append((watched, acknowledge))
        self._admit()

    async def take(self) -> WatchEvent:
        """Return the next record. Raises what `fail` was given."""
        while not self._queue:
            if self.error is not None:
                raise self.error
            self._changed.clear()
            await self._changed.wait()
        event = self._queue.popleft()
        self._admit()
        return event

    def _admit(self) -> None:
        while self._waiting and len(self._queue) < self._queue_max:
            watched, acknowledge = self._waiting.popleft()
            assert self._position is not None
            self._position[watched.partition] = watched.offset
            if watched.record is not None or watched.error is not None:
                place = watched.partition, watched.offset
                self._queue.append(WatchEvent(self.topic, *place, watched.record, watched.error, dict(self._position)))
                self._changed.set()
            acknowledge()


LOG = logging.getLogger("validator_channel.client")
SETTINGS = Settings(manual_ack=True, teardown_timeout=3.0)
"""A session of a client. Messages are acknowledged once there is room for them; a gateway that leaves has acknowledged what it will."""


def pause_s(limits: ClientLimits, failures: int, random: Random) -> float:
    """Return the seconds before the next attempt after a number of failures in a row, up to half of them random."""
    longest = min(limits.pause_s_max, limits.pause_s_min * 2.0 ** min(failures - 1, 32))
    return longest * (0.5 + random.random() / 2)


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

        Records of one topic keep their order. A record that is submitted twice is judged once, also over a reconnect; a copy that comes
        long after the verdict is a dead letter. If this is cancelled, the record may be delivered all the same. Raises ``ValueError`` for
        an unknown topic; `Refused`; `NotConnected`; `ClientClosed`.
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
                wait_s = pause_s(self._limits, max(1, failures), self._random)
                self._note_failure(Status(place, failures=failures, failure=why, pause_s=wait_s))
                await asyncio.sleep(wait_s)

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
