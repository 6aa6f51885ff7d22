# SPDX-License-Identifier: Apache-2.0
"""One session on one TLS stream: hello exchange, `Session`, flow control and time, in an event loop. Source: channel_rules 1.2, 3.3, 4.3.

Everything here runs in the thread of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, TypeAlias, cast

from validator_channel.errors import Category, ErrorCode, HelloError, LocalError
from validator_channel.events import FREQUENT, Event, PeerError, SessionClosed, SessionError, SessionOnline
from validator_channel.hello import ConnectorHello, ListenerHello, Secured
from validator_channel.limits import ConnectionLimits, Settings
from validator_channel.net.certificates import Identity
from validator_channel.net.outcomes import Counters, Ending
from validator_channel.net.peers import (
    REVOKED,
    HandshakeFailed,
    Peer,
    Registry,
    SessionTable,
    begin_connector,
    begin_listener,
    check_identity,
    failure_of,
)
from validator_channel.net.sockets import TokenBuckets, keep_alive, share_read_buffer
from validator_channel.net.tls import Material, Tls
from validator_channel.session import Session, State
from validator_channel.wire import Role, channel_of, format_channel, format_id

LOG: Final = logging.getLogger("validator_channel")

Handler: TypeAlias = Callable[["Connection", Event], None]
"""Called in the event loop for each event of a session, SessionOnline first and SessionClosed last. A session that never becomes ONLINE is
not reported. An exception of it, of the registry or of ``Peer.topics`` ends the session with INTERNAL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the connections of one listener, or of one call of `connect`, have in common."""

    role: Role
    tls: Tls
    registry: Registry
    handler: Handler
    settings: Settings
    limits: ConnectionLimits
    sessions: SessionTable
    counters: Counters
    peer_rates: TokenBuckets | None = None
    log: logging.Logger = LOG


NEVER: Final = float("inf")
"""A deadline that does not come."""
WRITE_TIMEOUT: Final = "WRITE_TIMEOUT"
"""The code of a connection whose peer does not read."""


EXPIRED: Final = "EXPIRED"
"""The code of a connection whose peer's certificate has ended."""
NO_LONGER_ALLOWED: Final = frozenset({REVOKED, EXPIRED, ErrorCode.NOT_AUTHORIZED})
"""The codes of sessions that this side ends because of who the peer is; its log has a warning, since no message says so to the peer."""


class Connection(asyncio.Protocol):
    """A session and its transport.

    Whatever happens, `_schedule` runs `_take_turn` once in the next turn of the loop; then the output is written in one piece, and the
    timer is set. While the transport is blocked, output waits here, and above ``blocked_bytes`` reading stops too: what a peer that does
    not read can make this side hold is bounded, and after ``write_timeout`` it is dropped.

    ``began_at`` is when the connection was accepted or begun, in seconds of the loop's clock. A connector has a ``target``: the peer and
    the session ID. Calls of the application raise `LocalError` as those of `Session` do, with WRONG_STATE before there is a session.
    """

    secured: Secured
    """Whom the session is with; the keys in it are empty."""
    identity: Identity
    """What the peer's certificate proves."""

    def __init__(
        self,
        terms: Terms,
        material: Material,
        peer_address: str,
        began_at: float,
        target: tuple[Peer, int] | None = None,
    ) -> None:
        self._limits = terms.limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._output: list[bytes] = []
        self._is_blocked = self._is_paused = self._is_closing = False
        self._wants_pause = False
        self._blocked_until = NEVER
        self._timer: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._turn: asyncio.Handle | None = None
        self._is_in_turn = False
        self._has_input = False
        """Whether received frames wait, so that nothing more must be read."""
        self.role = terms.role
        self.peer_address = peer_address
        self.is_online = False
        self.settled: asyncio.Future[HandshakeFailed | None] = self._loop.create_future()
        """Done when the session is ONLINE (None), or will never be."""
        self._terms = terms
        self._material = material
        self._began_at = began_at
        self._target = target
        self._hello: ConnectorHello | ListenerHello | None = None
        self._session: Session | None = None
        self._closed: SessionClosed | None = None
        self._ending = Ending()
        self._lingers = False
        self._expires_at = self._leave_at = NEVER

    # --- what the application reads ---

    def __repr__(self) -> str:
        """Name the connection without any secret."""
        return f"<Connection {self.describe()} {self.state}>"

    def describe(self) -> str:
        """Return the identifiers of the connection for a log line."""
        if self._session is None:
            return f"address={self.peer_address}"
        return (
            f"channel={format_channel(channel_of(self.remote_peer))} session={self.session_id} peer={format_id(self.remote_peer)}"
            f" instance={self.instance_id.hex()} role={self.role.name.lower()} address={self.peer_address}"
        )

    @property
    def is_secured(self) -> bool:
        """Return whether the hello exchange has ended well, so that there are session, identity and keys."""
        return self._session is not None

    @property
    def state(self) -> State:
        if self._session is not None:
            return self._session.state
        return State.OFFLINE if self.settled.done() else State.HANDSHAKE

    @property
    def instance_id(self) -> bytes:
        """Return the 16-byte session instance ID, which differs between sessions also if a session ID is used again."""
        return self.secured.session_instance_id

    @property
    def session_id(self) -> int:
        return self._target[1] if self._target is not None else self.secured.session

    @property
    def local_peer(self) -> int:
        return self._target[0].peering.local_peer if self._target is not None else self.secured.local_peer

    @property
    def remote_peer(self) -> int:
        return self._target[0].peering.remote_peer if self._target is not None else self.secured.remote_peer

    @property
    def is_writable(self) -> bool:
        """Return whether the session is ONLINE and its transport takes bytes; otherwise messages wait in the outbox."""
        return self.state is State.ONLINE and not self._is_blocked

    # --- what the application does ---

    def send(self, topic: int, payload: bytes) -> int:
        """Send an APPLICATION message and return its message ID. Raises `LocalError` as `Session.send`."""
        return self._begin_call().send(topic, payload, self._loop.time())

    def register_topic(self, topic: int, name: str | None = None) -> None:
        """Register a topic. Raises `LocalError` as `Session.register_topic`."""
        self._begin_call().register_topic(topic, name, now=self._loop.time())

    def deregister_topic(self, topic: int) -> None:
        """Take back our registration of a topic. Raises `LocalError` as `Session.deregister_topic`."""
        self._begin_call().deregister_topic(topic, self._loop.time())

    def ack(self, topic: int, index: int) -> None:
        """Acknowledge a message under ``manual_ack``; ignored after the end. Raises `LocalError` as `Session.ack`."""
        self._begin_call().ack(topic, index, self._loop.time())

    def refuse(self, topic: int, index: int, code: ErrorCode) -> None:
        """Refuse a message under ``manual_ack`` with a non-fatal ERROR; ignored after the end. Raises `LocalError` as `Session.refuse`."""
        self._begin_call().refuse(topic, index, code, self._loop.time())

    def consumed(self, count: int = 1) -> None:
        """Free ``count`` places of the inbox: call it once the application is done with a MessageReceived."""
        self._live_session().consumed(count)  # without a turn: there is nothing to write

    def keep_alive(self) -> None:
        """Send a message that the peer must acknowledge. Raises `LocalError` as `Session.keep_alive`."""
        self._begin_call().keep_alive(self._loop.time())

    def leave(self, reason: str | None = None) -> None:
        """Leave once every message is settled. Raises `LocalError` as `Session.leave`."""
        self._begin_call().leave(self._loop.time(), reason)

    def abort(self) -> None:
        """End the session at once with the fatal error INTERNAL. Ignored after the end."""
        if self._session is None:
            self.drop(ErrorCode.INTERNAL)
        else:
            self._begin_call().abort(self._loop.time())

    def drop(self, code: str) -> None:
        """End the connection at once and send nothing; ``code`` is for log and counters. Ignored after the end."""
        self._ending.note_ours(code)
        if self._session is None:
            self.fail(HandshakeFailed(code, "dropped by this side"))
        else:
            self._begin_call().connection_lost(self._loop.time())
            self._abort_transport()

    def fail(self, failure: HandshakeFailed) -> None:
        """End a connection that has no session: close the transport and send nothing."""
        self._hello = None
        self._output.clear()
        self._settle(failure)
        self._abort_transport()

    def add_done_callback(self, done: Callable[[Connection], None]) -> None:
        """Call a function once session and transport have ended."""
        self._lost.add_done_callback(lambda _: done(self))

    async def wait_closed(self) -> SessionClosed:
        """Wait until session and transport have ended, and return the session's last event."""
        await asyncio.shield(self._lost)
        return self._closed or SessionClosed(is_clean=False, undelivered=())

    def _begin_call(self) -> Session:
        self._schedule()
        return self._live_session()

    def _live_session(self) -> Session:
        if self._session is None:
            raise LocalError(ErrorCode.WRONG_STATE)
        return self._session

    # --- reading ---

    def pause_reading(self) -> None:
        """Stop reading from the transport, for moments: answers are not read either, so a long pause ends in an ACK_TIMEOUT.

        The time of a frame that is half read stands still meanwhile.
        """
        self._wants_pause = True
        self._pause_or_resume()

    def resume_reading(self) -> None:
        self._wants_pause = False
        self._pause_or_resume()

    def _pause_or_resume(self) -> None:
        pauses = self._wants_pause or self._has_input or self._waiting_bytes() > self._limits.blocked_bytes
        pauses = pauses and not self._is_closing
        if self._transport is not None and pauses is not self._is_paused:
            self._is_paused = pauses
            self._note_reading()
            if pauses:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _waiting_bytes(self) -> int:
        return sum(map(len, self._output)) if self._is_blocked else 0

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a transport whose TLS handshake is finished: check who the peer is, and begin the hello exchange."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._limits.write_buffer_bytes)
        keep_alive(transport.get_extra_info("socket"), self._limits)
        share_read_buffer(transport, self._limits.read_buffer_bytes)
        self._schedule()
        try:
            tls_object = cast(ssl.SSLObject, transport.get_extra_info("ssl_object"))
            self.identity = check_identity(tls_object, self._terms.tls, self._material)
            if self._target is None:
                self._hello = begin_listener(self._terms.registry, self.identity, self._material)
            else:
                self._hello = connector = begin_connector(
                    *self._target, self._terms.registry, self.identity, self._material
                )
                self._output.append(connector.start())
        except HandshakeFailed as failure:
            self.fail(failure)

    def data_received(self, data: bytes) -> None:
        if self._session is not None:
            self._receive(self._session, data)
        elif self._hello is not None:
            self._receive_hello(self._hello, data)
        self._run_turn()  # at once: another pass of the loop would cost as much as several messages

    def connection_lost(self, error: Exception | None) -> None:
        """Take what had arrived before the end, then end the session."""
        if self._session is None:
            why = "closed before the end of the hello exchange; the peer may have refused our certificate"
            self.fail(failure_of(error) if error is not None else HandshakeFailed(ErrorCode.TRANSPORT_LOST, why))
        else:
            while self._has_input:
                self._receive(self._session, b"")
            self._session.connection_lost(self._loop.time())
        self._forget_transport()
        self._take_turn()

    def eof_received(self) -> bool:
        """Let the transport close itself."""
        return False

    def pause_writing(self) -> None:
        """Keep output back until the transport has written most of what it holds."""
        self._is_blocked = True
        self._blocked_until = self._loop.time() + self._limits.write_timeout
        self._schedule()

    def resume_writing(self) -> None:
        self._is_blocked = False
        self._blocked_until = NEVER
        self._schedule()

    def _forget_transport(self) -> None:
        """Release everything that waits for the transport, which has ended."""
        self._transport = None
        self._output.clear()
        for handle in (self._timer, self._linger):
            if handle is not None:
                handle.cancel()
        if not self._lost.done():
            self._lost.set_result(None)

    # --- the hello exchange ---

    def _receive_hello(self, hello: ConnectorHello | ListenerHello, data: bytes) -> None:
        try:
            answer = hello.receive_data(data)
        except HelloError as error:
            self.fail(failure_of(error))
            return
        except Exception:  # noqa: BLE001 - of the registry
            self._end_failed()
            return
        if answer:
            self._output.append(answer)
        if hello.result is not None:
            self._hello = None
            self._begin_session(hello.result, hello.take_rest())

    def _begin_session(self, secured: Secured, rest: bytes) -> None:
        terms, now = self._terms, self._loop.time()
        if terms.peer_rates is not None and not terms.peer_rates.take(format_id(secured.remote_peer), now):
            self.fail(HandshakeFailed(ErrorCode.SESSION_LIMIT, "too many handshakes of this peer"))
            return
        self.secured = replace(secured, tx_key=b"", rx_key=b"")
        self._session = session = Session(
            self.role,
            channel_of(secured.remote_peer),
            secured.local_peer,
            secured.remote_peer,
            secured.session,
            terms.settings,
            admit=self._admit,
            may_register=self._may_register,
        )
        session.open(self._began_at)
        session.secured(secured.tx_key, secured.rx_key, now)
        terms.counters.handshake_done(now - self._began_at)
        remaining = (self.identity.not_after - datetime.now(UTC)).total_seconds()
        ahead = min(terms.settings.teardown_timeout, remaining / 2)
        self._expires_at = now + remaining
        self._leave_at = min(now + terms.limits.max_session_age, self._expires_at - ahead)
        self._note_reading()
        self._receive(session, rest)

    def _admit(self) -> ErrorCode | None:
        sessions = self._terms.sessions
        if self.role is Role.CONNECTOR:
            return None if sessions.owns(self) else ErrorCode.SESSION_IN_USE
        peer = self._peer()
        return ErrorCode.SESSION_LIMIT if peer is None else sessions.admit(self, peer.sessions_max)

    def _may_register(self, topic: int) -> bool:
        peer = self._peer()
        return peer is not None and peer.topics(topic)

    def _peer(self) -> Peer | None:
        return self._terms.registry().get(channel_of(self.remote_peer))

    def _settle(self, failure: HandshakeFailed | None) -> None:
        if not self.settled.done():
            self.settled.set_result(failure)
            if failure is not None:
                self._terms.counters.handshake_failed(failure.code)

    # --- the session ---

    def _receive(self, session: Session, data: bytes) -> None:
        try:
            self._has_input = session.receive_data(data, self._loop.time(), self._limits.frames_per_turn)
        except Exception:  # noqa: BLE001 - of the registry or `Peer.topics`
            self._has_input = False
            self._end_failed()

    def _take_turn(self) -> None:
        session = self._session
        if session is None:
            return
        self._output += session.data_to_send()  # now, so that the counts are complete when the end is reported
        while (event := session.next_event()) is not None:
            self._report(session, event)
        self._output += session.data_to_send()
        if session.is_closed:
            self._close_transport(lingers=self._lingers)
        elif self._has_input:
            self._receive(session, b"")

    def _note_reading(self) -> None:
        if self._session is not None:
            self._session.set_reading(self._loop.time(), is_reading=not self._is_paused)
            self._schedule()  # which sets the timer

    def _report(self, session: Session, event: Event) -> None:
        if type(event) not in FREQUENT:
            self._note(session, event)
        if self.is_online:
            try:
                self._terms.handler(self, event)
            except Exception:  # noqa: BLE001 - of the handler
                self._end_failed()

    def _note(self, session: Session, event: Event) -> None:
        match event:
            case SessionOnline():
                self.is_online = True
                self._terms.counters.online += 1
                self._settle(None)
            case PeerError():
                self._ending.note_peer_error(event)
            case SessionError():
                self._ending.note_ours(event.code)
                self._lingers = event.category is Category.RUNTIME
            case SessionClosed():
                self._finish(session, event)

    def _end_failed(self) -> None:
        """End the connection after an exception of handler, registry or ``Peer.topics``; call it where that is caught."""
        self._terms.log.exception("the application failed; its session ends: %s", self.describe())
        self.abort()

    def _finish(self, session: Session, closed: SessionClosed) -> None:
        """The session has ended: its ID is free again before the application hears of it."""
        self._closed, terms = closed, self._terms
        terms.sessions.end(self)
        self.add_done_callback(terms.sessions.release)
        end = self._ending.code(is_clean=closed.is_clean)
        self._settle(HandshakeFailed(end, self._ending.reason(is_clean=closed.is_clean)))
        terms.counters.session_ended(end, session.counts)
        terms.log.log(
            logging.WARNING if self._ending.ours in NO_LONGER_ALLOWED else logging.INFO,
            "session ended: %s end=%s seconds=%.1f %s undelivered=%d%s",
            self.describe(),
            end,
            self._loop.time() - self._began_at,
            session.counts.line(),
            len(closed.undelivered),
            self._ending.fields(is_clean=closed.is_clean),
        )

    # --- one turn ---

    def _schedule(self) -> None:
        if self._turn is None and not self._is_in_turn:
            self._turn = self._loop.call_soon(self._run_turn)

    def _run_turn(self) -> None:
        """Process and write. What is called meanwhile belongs to this turn; only received frames may be left for another one."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        self._is_in_turn = True
        try:
            self._take_turn()
            if self._transport is not None:
                self._write()
                self._pause_or_resume()
                self._set_timer()
        finally:
            self._is_in_turn = False
        if self._has_input:
            self._schedule()

    def _write(self) -> None:
        """Write in pieces: a transport that is given everything at once takes it, and does not say that it is blocked.

        While bytes wait for the transport, a due retransmission is counted but not queued behind them.
        """
        while self._output and not self._is_blocked and not self._is_closing and self._transport is not None:
            size = count = 0
            while count < len(self._output) and size < self._limits.write_buffer_bytes:
                size += len(self._output[count])
                count += 1
            data = b"".join(self._output[:count])
            del self._output[:count]
            self._transport.write(data)
        if self._session is not None:
            self._session.set_writable(not self._is_blocked and not self._output)

    def _close_transport(self, *, lingers: bool) -> None:
        """Write the rest and close. To linger is to read and ignore what the peer is still sending, so that no reset destroys our ERROR."""
        if self._is_closing or self._transport is None:
            return
        self._is_closing = True
        self._transport.write(b"".join(self._output))
        self._output.clear()
        if lingers:
            self._linger = self._loop.call_later(self._limits.shutdown_timeout, self._transport.abort)
        else:
            self._transport.close()

    def _abort_transport(self) -> None:
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()
        else:
            self._forget_transport()

    # --- time ---

    def _set_timer(self) -> None:
        """A timer that is too early looks again when it fires: to move it with each message would cost more."""
        deadline = min(self._blocked_until, self._next_deadline())
        if deadline == NEVER or (self._timer is not None and self._timer.when() <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = self._loop.time()
        if self._blocked_until <= now:
            self._blocked_until = NEVER
            self.drop(WRITE_TIMEOUT)
        else:
            self._handle_deadlines(now)
        self._schedule()

    def _next_deadline(self) -> float:
        if self._session is None:
            return NEVER if self.settled.done() else self._began_at + self._terms.settings.handshake_timeout
        if self._session.is_closed:
            return NEVER
        due = self._session.next_deadline()
        return min(self._expires_at, self._leave_at, NEVER if due is None else due)

    def _handle_deadlines(self, now: float) -> None:
        session = self._session
        if session is None:
            if self._next_deadline() <= now:
                self.fail(HandshakeFailed(ErrorCode.HANDSHAKE_TIMEOUT, "the handshake took too long"))
        elif self._expires_at <= now:
            self.drop(EXPIRED)
        else:
            if self._leave_at <= now:
                self._leave_at = NEVER
                with suppress(LocalError):  # WRONG_STATE: it is leaving already
                    session.leave(now, "session age")
            session.handle_timer(now)
