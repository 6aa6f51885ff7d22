# SPDX-License-Identifier: Apache-2.0
"""The transport of a connection: one write per turn of the loop, flow control both ways, one timer. Source: channel_rules 3.3, 4.3."""

from __future__ import annotations

import asyncio
from typing import Final, cast

from validator_channel.net.limits import ConnectionLimits
from validator_channel.net.sockets import keep_alive, share_read_buffer

NEVER: Final = float("inf")
"""A deadline that does not come."""
WRITE_TIMEOUT: Final = "WRITE_TIMEOUT"
"""The code of a connection whose peer does not read."""


class Stream(asyncio.Protocol):
    """The part of a `Connection` that does not know the protocol.

    Whatever happens, `_schedule` runs `_take_turn` once in the next turn of the loop; then the output is written in one piece, and the
    timer is set. While the transport is blocked, output waits here, and above ``blocked_bytes`` reading stops too: what a peer that does
    not read can make this side hold is bounded, and after ``write_timeout`` it is dropped.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
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

    # --- what a connection adds ---

    def drop(self, code: str) -> None:
        """End the connection at once."""
        raise NotImplementedError

    def _take_turn(self) -> None:
        """Process what waits, and append to ``_output``."""
        raise NotImplementedError

    def _note_reading(self) -> None:
        """Take that ``_is_paused`` has changed."""
        raise NotImplementedError

    def _next_deadline(self) -> float:
        raise NotImplementedError

    def _handle_deadlines(self, now: float) -> None:
        raise NotImplementedError

    # --- reading ---

    def pause_reading(self) -> None:
        """Stop reading from the transport, for moments: answers are not read either, so a long pause ends in an ACK_TIMEOUT.

        The time of a frame that is half read stands still meanwhile.
        """
        self._wants_pause = True
        self._pause_or_resume()

    def resume_reading(self) -> None:
        """Read from the transport again."""
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
        """Take a transport whose TLS handshake is finished."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._limits.write_buffer_bytes)
        keep_alive(transport.get_extra_info("socket"), self._limits)
        share_read_buffer(transport, self._limits.read_buffer_bytes)

    def eof_received(self) -> bool:
        """Let the transport close itself."""
        return False

    def pause_writing(self) -> None:
        """Keep output back until the transport has written most of what it holds."""
        self._is_blocked = True
        self._blocked_until = self._loop.time() + self._limits.write_timeout
        self._schedule()

    def resume_writing(self) -> None:
        """Write what was kept back."""
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
        """Write in pieces: a transport that is given everything at once takes it, and does not say that it is blocked."""
        while self._output and not self._is_blocked and not self._is_closing and self._transport is not None:
            size = count = 0
            while count < len(self._output) and size < self._limits.write_buffer_bytes:
                size += len(self._output[count])
                count += 1
            data = b"".join(self._output[:count])
            del self._output[:count]
            self._transport.write(data)

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

    # --- the timer ---

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
