# SPDX-License-Identifier: Apache-2.0
"""The table of live sessions: which session IDs are taken, and who may take one more. Source: channel_rules R6, 1.2.7, 3.3."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import Protocol

from validator_channel.errors import ErrorCode
from validator_channel.ids import Role, channel_of
from validator_channel.net.limits import SESSION_IDS, ListenerLimits


class LiveSession(Protocol):
    """What the table knows of a session."""

    @property
    def role(self) -> Role:
        """Return which end this side is."""

    @property
    def local_peer(self) -> int:
        """Return this side's peer ID."""

    @property
    def remote_peer(self) -> int:
        """Return the peer ID of the other end."""

    @property
    def session_id(self) -> int:
        """Return the session ID."""

    @property
    def is_online(self) -> bool:
        """Return whether the session has been ONLINE."""

    def drop(self, code: str) -> None:
        """End the session at once and send nothing."""


class SessionTable:
    """The live sessions of this process, by channel and session ID; give one table to its listener and to its connectors.

    Both peers of a channel may connect to each other at once and choose the same session ID. Then the session whose connector has the
    smaller peer ID goes ahead: each side refuses or gives up the other one, so at most one of them becomes ONLINE.

    A session that has ended counts toward the limits until its transport has ended, too; its ID is free at once.
    """

    def __init__(self, sessions_max: int | None = None) -> None:
        self._max = ListenerLimits().sessions if sessions_max is None else sessions_max
        self._live: dict[tuple[int, int], LiveSession] = {}
        self._closing: dict[int, LiveSession] = {}
        """Sessions that have ended and whose transports have not, by identity."""
        self._of_channel: Counter[int] = Counter()
        self._used: dict[int, dict[int, int]] = {}
        self._clock = count(1)

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[LiveSession]:
        return iter(tuple(self._live.values()))

    def admit(self, session: LiveSession, sessions_max: int) -> ErrorCode | None:
        """Enter a session whose JOIN_SESSION has arrived at the listener, or return why the peer is refused.

        SESSION_IN_USE comes before SESSION_LIMIT, which is ``sessions_max`` of the peer or the limit of the table.
        """
        key = _key(session)
        other = self._live.get(key)
        if other is session:
            return None
        if other is not None:
            if not _goes_ahead(session, other):
                return ErrorCode.SESSION_IN_USE
            self.release(other)
            other.drop(ErrorCode.SESSION_IN_USE)
        if self._of_channel[key[0]] >= sessions_max or len(self._live) + len(self._closing) >= self._max:
            return ErrorCode.SESSION_LIMIT
        self._enter(key, session)
        return None

    def claim(self, session: LiveSession) -> bool:
        """Enter a session that this side is about to connect. Return False if its ID is taken."""
        key = _key(session)
        if key in self._live:
            return False
        self._enter(key, session)
        return True

    def owns(self, session: LiveSession) -> bool:
        """Return whether a session is the one that holds its ID."""
        return self._live.get(_key(session)) is session

    def end(self, session: LiveSession) -> None:
        """Free the ID of a session that has ended; `release` follows when its transport has ended. One not in the table is ignored."""
        if self._free(session):
            self._closing[id(session)] = session

    def release(self, session: LiveSession) -> None:
        """Remove a session; one that is not in the table is ignored."""
        if self._free(session) or self._closing.pop(id(session), None) is not None:
            channel = channel_of(session.remote_peer)
            self._of_channel[channel] -= 1
            if not self._of_channel[channel]:
                del self._of_channel[channel]

    def choose(self, channel: int) -> int | None:
        """Return the free session ID of a channel that was used longest ago, or None if all are live. Source: R6.

        IDs that this process has not used come first, in an order that begins anywhere, since earlier processes are not remembered.
        """
        used = self._used.get(channel, {})
        start = random.SystemRandom().randrange(SESSION_IDS)
        order = ((start + step) % SESSION_IDS for step in range(SESSION_IDS))
        free = (each for each in order if (channel, each) not in self._live)
        return min(free, key=lambda each: used.get(each, 0), default=None)

    def _free(self, session: LiveSession) -> bool:
        """Free the ID of a session, and return whether it was taken."""
        key = _key(session)
        if self._live.get(key) is not session:
            return False
        del self._live[key]
        self._used[key[0]][key[1]] = next(self._clock)
        return True

    def _enter(self, key: tuple[int, int], session: LiveSession) -> None:
        self._live[key] = session
        self._of_channel[key[0]] += 1
        self._used.setdefault(key[0], {})[key[1]] = next(self._clock)


def _goes_ahead(incoming: LiveSession, other: LiveSession) -> bool:
    """Return whether an incoming session displaces our own attempt to connect with the same session ID."""
    is_own_attempt = other.role is Role.CONNECTOR and not other.is_online
    return is_own_attempt and incoming.remote_peer < incoming.local_peer


def _key(session: LiveSession) -> tuple[int, int]:
    return channel_of(session.remote_peer), session.session_id
