# SPDX-License-Identifier: Apache-2.0
"""Connects to a peer. Source: channel_rules 1.2.6 step 3."""

from __future__ import annotations

import asyncio
import logging

from validator_channel.errors import ErrorCode
from validator_channel.limits import SESSION_MAX, ConnectionLimits, Settings
from validator_channel.net.connection import LOG, Connection, Handler, Terms
from validator_channel.net.outcomes import LEFT, SILENT, Counters
from validator_channel.net.peers import HandshakeFailed, Peer, SessionTable, failure_of
from validator_channel.net.tls import Tls, TlsFiles
from validator_channel.wire import Role, channel_of


async def connect(
    host: str,
    port: int,
    tls: TlsFiles,
    peer: Peer,
    session_id: int,
    handler: Handler,
    settings: Settings | None = None,
    *,
    server_hostname: str | None = None,
    local_address: str | None = None,
    limits: ConnectionLimits | None = None,
    sessions: SessionTable | None = None,
    counters: Counters | None = None,
    log: logging.Logger = LOG,
) -> Connection:
    """Return a connection once its session is ONLINE.

    A TLS 1.3 client has finished before the server has judged its certificate, so nothing is reported before a valid SERVER_HELLO.
    ``server_hostname`` is the DNS name or address that the server's certificate must have, by default ``host``. ``local_address`` is the
    address to connect from. The timeout of the handshake begins with the TCP connection. ``sessions`` is the table that several connectors
    and a listener share.

    Raises ``ValueError`` for a session ID outside 0 to 1023; `TlsError` if the files are broken; `HandshakeFailed` with SESSION_IN_USE if
    the ID is live in the table, then with what ended the handshake or the session before it was ONLINE.
    """
    if not 0 <= session_id <= SESSION_MAX:
        raise ValueError(f"session_id: expected 0 to {SESSION_MAX}, found {session_id}")
    counters = counters if counters is not None else Counters()

    def alarm(text: str) -> None:
        counters.alarms += 1
        log.error("%s", text)

    source = Tls(tls, Role.CONNECTOR, alarm)
    material = source.current()
    peers = {channel_of(peer.peering.remote_peer): peer}
    terms = Terms(
        role=Role.CONNECTOR,
        tls=source,
        registry=lambda: peers,
        handler=handler,
        settings=settings or Settings(),
        limits=limits or ConnectionLimits(),
        sessions=sessions if sessions is not None else SessionTable(),
        counters=counters,
        log=log,
    )
    loop = asyncio.get_running_loop()
    connection = Connection(terms, material, f"{host}:{port}", loop.time(), (peer, session_id))
    if not terms.sessions.claim(connection):
        raise HandshakeFailed(ErrorCode.SESSION_IN_USE, f"session {session_id} of the channel is live")
    try:
        async with asyncio.timeout(terms.settings.handshake_timeout):
            await loop.create_connection(
                lambda: connection,
                host,
                port,
                ssl=material.context,
                server_hostname=server_hostname or host,
                local_addr=(local_address, 0) if local_address is not None else None,
                ssl_handshake_timeout=terms.settings.handshake_timeout,
                ssl_shutdown_timeout=terms.limits.shutdown_timeout,
            )
        failure = await asyncio.shield(connection.settled)
        if failure is not None and failure.code == ErrorCode.TRANSPORT_LOST:
            failure = HandshakeFailed(failure.code, SILENT)
    except (OSError, UnicodeDecodeError) as error:
        failure = failure_of(error)
        connection.fail(failure)
    except BaseException:
        terms.sessions.release(connection)
        connection.drop(LEFT)
        raise
    if failure is not None:
        terms.sessions.release(connection)
        raise failure from None
    return connection
