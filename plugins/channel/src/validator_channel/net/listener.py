# SPDX-License-Identifier: Apache-2.0
"""Accepts peers: an accept loop with limits, a check of live sessions at intervals, and a drained end. Source: channel_rules 3.2, 3.3.

asyncio gives no hook before the end of the TLS handshake, so the loop accepts sockets itself.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Final

from validator_channel.errors import ErrorCode, LocalError, printable
from validator_channel.limits import (
    REFUSALS_ADDRESSES_MAX,
    REFUSALS_BURST,
    REFUSALS_FLUSH_S,
    REFUSALS_OF_ADDRESS_BURST,
    REFUSALS_OF_ADDRESS_PER_S,
    REFUSALS_PER_S,
    SHOWN_CHARACTERS_MAX,
    SHOWN_PEERS_MAX,
    ListenerLimits,
    Settings,
)
from validator_channel.net.certificates import Identity
from validator_channel.net.connection import EXPIRED, LOG, Connection, Handler, Terms
from validator_channel.net.outcomes import CLEAN, LEFT, TURNED_AWAY, Counters
from validator_channel.net.peers import REVOKED, HandshakeFailed, Registry, SessionTable, failure_of
from validator_channel.net.sockets import TokenBucket, TokenBuckets, address_key, listen, shown_address
from validator_channel.net.tls import Tls, TlsError, TlsFiles
from validator_channel.wire import Role, channel_of, format_id

SHARE: Final = "share"
"""Why a connection is turned away: its address has its share."""
FULL: Final = "full"
"""Why a connection is turned away or ended: no place is left, and its address has the most."""


class HalfOpen:
    """The tasks of half-open connections, by address and from the oldest on; at most ``total``, and ``share`` of one address.

    One address cannot keep another one out: when all places are taken, the oldest connection of the address with the most gives up its
    place, unless that is the address that asks.
    """

    def __init__(self, total: int, share: int) -> None:
        self._total = total
        self._share = share
        self._tasks: dict[str, dict[asyncio.Task[None], None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._tasks.values()))

    def tasks(self) -> list[asyncio.Task[None]]:
        return [task for tasks in self._tasks.values() for task in tasks]

    def make_room(self, address: str) -> str | None:
        """Return why one more connection of an address is turned away, or None; that may cancel the task of another address."""
        mine = len(self._tasks.get(address, ()))
        if mine >= self._share:
            return SHARE
        if len(self) < self._total:
            return None
        most, tasks = max(self._tasks.items(), key=lambda each: len(each[1]))
        if len(tasks) <= mine:
            return FULL
        oldest = next(iter(tasks))
        self._remove(most, oldest)
        oldest.cancel()
        return None

    def add(self, address: str, task: asyncio.Task[None]) -> None:
        """Enter a task until it is done."""
        self._tasks.setdefault(address, {})[task] = None
        task.add_done_callback(lambda done: self._remove(address, done))

    def _remove(self, address: str, task: asyncio.Task[None]) -> None:
        tasks = self._tasks.get(address)
        if tasks is not None:
            tasks.pop(task, None)
            if not tasks:
                del self._tasks[address]


class RefusalLog:
    """Writes lines for refused connections; ``now`` is in seconds of a monotonic clock.

    What is above the rate of an address, or of all addresses together, is counted, and the next line has the count.
    """

    def __init__(self, log: logging.Logger, now: float) -> None:
        self._log = log
        self._of_address = TokenBuckets(REFUSALS_OF_ADDRESS_PER_S, REFUSALS_OF_ADDRESS_BURST, REFUSALS_ADDRESSES_MAX)
        self._of_all = TokenBucket(REFUSALS_PER_S, REFUSALS_BURST, now)
        self.suppressed = 0
        """Refusals since the last line that have no line."""

    def turned_away(self, key: str, address: str, why: str, now: float) -> None:
        """Note a connection that was closed before TLS; ``key`` is what its address is limited under."""
        self._note(key, f"address={address}: {TURNED_AWAY.get(why, why)}", now)

    def failed(self, key: str, address: str, identity: Identity | None, failure: HandshakeFailed, now: float) -> None:
        """Note a handshake that has failed, with what is known of the peer: its certificate, and the ID that its hello claimed."""
        known = "" if identity is None else _peers(identity)
        claimed = "" if failure.claimed is None else f" claims={format_id(failure.claimed)}"
        reason = printable(failure.reason[:SHOWN_CHARACTERS_MAX]) or "no reason"
        self._note(key, f"address={address}{known}{claimed}: {reason} ({printable(failure.code)})", now)

    def flush(self, now: float) -> None:
        """Write how many refusals have no line, if there are any and the rate allows a line."""
        if self.suppressed and not self._of_all.take(now):
            self._log.warning("refused %d more connections, without a line for each", self.suppressed)
            self.suppressed = 0

    def _note(self, key: str, text: str, now: float) -> None:
        if not self._of_address.take(key, now) or self._of_all.take(now):
            self.suppressed += 1
            return
        more = f"; {self.suppressed} more before it have no line" if self.suppressed else ""
        self.suppressed = 0
        self._log.warning("refused a connection: %s%s", text, more)


def _peers(identity: Identity) -> str:
    names = sorted(map(format_id, identity.peers))
    shown = ",".join(names[:SHOWN_PEERS_MAX]) + (",..." if len(names) > SHOWN_PEERS_MAX else "")
    return f" certificate={shown or 'of no peer'}"


DISPLACED: Final = "DISPLACED"
"""The code of a half-open connection that had to give up its place."""
DRAINED: Final = "DRAINED"
"""The code of a session that had not left when the listener's time to drain was over."""
_ENDED_BY_US: Final = frozenset({DRAINED, LEFT, CLEAN})
"""Codes of connections that ended before they were ONLINE although nobody refused them; an ERROR of the peer never has one of them."""
RECHECKED_PER_TURN: Final = 256
"""Sessions that a check looks at per turn of the event loop."""


class Listener:
    """Serves the peers of a registry on one port.

    ``registry`` returns the peers of now, by channel ID; it is called for each connection and each check, so it must be quick. Give
    ``sessions`` to share the table of live sessions with connectors of the same process. Raises `TlsError` if the files are broken.
    """

    def __init__(
        self,
        tls: TlsFiles,
        registry: Registry,
        handler: Handler,
        settings: Settings | None = None,
        limits: ListenerLimits | None = None,
        *,
        sessions: SessionTable | None = None,
        log: logging.Logger = LOG,
        counters: Counters | None = None,
    ) -> None:
        self.limits = limits or ListenerLimits()
        self.counters = counters if counters is not None else Counters()
        self.sessions = sessions if sessions is not None else SessionTable(self.limits.sessions_max)
        self._log = log
        self._registry = registry
        self._tls = Tls(tls, Role.LISTENER, self._alarm)
        self._terms = Terms(
            role=Role.LISTENER,
            tls=self._tls,
            registry=registry,
            handler=handler,
            settings=settings or Settings(),
            limits=self.limits.connection,
            sessions=self.sessions,
            counters=self.counters,
            peer_rates=self._buckets(),
            log=log,
        )
        self._address_rates = self._buckets()
        self._half_open = HalfOpen(self.limits.half_open_max, self.limits.half_open_per_address)
        self._connections: set[Connection] = set()
        self._sockets: list[socket.socket] = []
        self._loops: list[asyncio.Task[None]] = []

    @property
    def port(self) -> int:
        """Return the port. Raises ``IndexError`` before `start`."""
        return int(self._sockets[0].getsockname()[1])

    @property
    def half_open(self) -> int:
        """Return the number of connections that are not ONLINE yet, or have failed to be and are not closed."""
        return len(self._half_open)

    async def start(self, host: str | None, port: int) -> None:
        """Listen on every address of a host (None: all of this machine) and accept; port 0 picks a free one. Raises ``OSError``."""
        self._sockets = await listen(host, port, self.limits.backlog)
        self._refusals = RefusalLog(self._log, asyncio.get_running_loop().time())
        self._loops = [asyncio.create_task(self._accept(each)) for each in self._sockets]
        self._loops.append(asyncio.create_task(self._poll()))

    async def recheck(self) -> None:
        """End the sessions that are no longer allowed; call it when registry or CRL have changed. It also runs at intervals."""
        self._tls.refresh()
        for at, connection in enumerate(tuple(self._connections)):
            if not at % RECHECKED_PER_TURN:
                await asyncio.sleep(0)
            if connection.is_secured and (code := self._objection(connection)) is not None:
                connection.drop(code)

    async def close(self, drain_s: float = 0.0) -> None:
        """Stop accepting, leave every session, and after ``drain_s`` seconds end those that are left."""
        await _cancel(self._loops)
        await _cancel(self._half_open.tasks())
        for listening in self._sockets:
            listening.close()
        connections = tuple(self._connections)
        for connection in connections:
            with suppress(LocalError):  # WRONG_STATE: it is leaving already
                connection.leave("the listener closes")
        ends = [asyncio.ensure_future(connection.wait_closed()) for connection in connections]
        if ends:
            await asyncio.wait(ends, timeout=max(0.0, drain_s))
        for connection in connections:
            connection.drop(DRAINED)
        await asyncio.gather(*ends)

    # --- accepting ---

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except ConnectionError:
                continue
            except OSError as error:
                self._alarm(f"accepting pauses: {error.strerror}")
                await asyncio.sleep(self.limits.accept_pause)
                continue
            try:
                self._admit(accepted, str(address[0]), shown_address(address))
            except Exception:  # noqa: BLE001 - a connection that cannot begin must not end the others
                self._log.exception("a connection could not begin")
                self.counters.alarms += 1
                accepted.close()
            await asyncio.sleep(0)  # sock_accept does not yield while connections wait

    def _admit(self, accepted: socket.socket, host: str, address: str) -> None:
        """Begin a handshake, or close the connection at once: that costs no cryptography."""
        now = asyncio.get_running_loop().time()
        key = address_key(host)
        why = "rate" if not self._address_rates.take(key, now) else self._half_open.make_room(key)
        try:
            material = self._tls.current()
        except TlsError:
            why = "CRL"
        if why is not None:
            self.counters.turned_away[why] += 1
            self._refusals.turned_away(key, address, why, now)
            accepted.close()
            return
        self.counters.accepted += 1
        connection = Connection(self._terms, material, address, now)
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)
        connection.settled.add_done_callback(partial(self._settled, connection, key))
        handshake = asyncio.create_task(self._shake_hands(connection, accepted, material.context, now))
        self._half_open.add(key, handshake)

    def _settled(self, connection: Connection, key: str, settled: asyncio.Future[HandshakeFailed | None]) -> None:
        failure = None if settled.cancelled() else settled.result()
        if failure is not None and failure.code not in _ENDED_BY_US:
            identity = getattr(connection, "identity", None)
            self._refusals.failed(key, connection.peer_address, identity, failure, asyncio.get_running_loop().time())

    async def _shake_hands(
        self, connection: Connection, accepted: socket.socket, context: ssl.SSLContext, began_at: float
    ) -> None:
        """Hold a half-open place until the session is ONLINE or the transport has ended: a refused peer may be slow to close it."""
        loop = asyncio.get_running_loop()
        timeout = self._terms.settings.handshake_timeout
        try:
            await loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=context,
                ssl_handshake_timeout=max(0.001, began_at + timeout - loop.time()),
                ssl_shutdown_timeout=self.limits.connection.shutdown_timeout,
            )
            if await asyncio.shield(connection.settled) is not None:
                await connection.wait_closed()
        except Exception as error:  # noqa: BLE001 - whatever ends a handshake ends one connection
            connection.fail(failure_of(error))
        except BaseException:
            connection.drop(DISPLACED)
            raise

    # --- live sessions ---

    async def _poll(self) -> None:
        for at in count(1):
            await asyncio.sleep(self.limits.poll_interval)
            if not at % max(1, round(REFUSALS_FLUSH_S / self.limits.poll_interval)):
                self._refusals.flush(asyncio.get_running_loop().time())
            try:
                await self.recheck()
            except Exception:  # noqa: BLE001 - a registry that fails once must not end the checks
                self._log.exception("the check of live sessions failed")
                self.counters.alarms += 1

    def _objection(self, connection: Connection) -> str | None:
        """Return why a session is no longer allowed, or None."""
        peer = self._registry().get(channel_of(connection.remote_peer))
        if peer is None or not peer.peering.is_allowed or not peer.accepts(connection.identity):
            return ErrorCode.NOT_AUTHORIZED
        if (peer.peering.local_peer, peer.peering.remote_peer) != (connection.local_peer, connection.remote_peer):
            return ErrorCode.NOT_AUTHORIZED
        if self._tls.is_revoked(connection.identity):
            return REVOKED
        return EXPIRED if connection.identity.not_after <= datetime.now(UTC) else None

    def _alarm(self, text: str) -> None:
        self.counters.alarms += 1
        self._log.error("%s", text)

    def _buckets(self) -> TokenBuckets:
        return TokenBuckets(self.limits.connects_per_s, self.limits.connects_burst, self.limits.addresses)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
