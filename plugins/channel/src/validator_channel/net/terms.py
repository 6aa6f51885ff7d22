# SPDX-License-Identifier: Apache-2.0
"""What several connections have in common."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from validator_channel.events import Event
from validator_channel.ids import Role
from validator_channel.limits import Settings
from validator_channel.net.counters import Counters
from validator_channel.net.limits import ConnectionLimits
from validator_channel.net.peers import Registry
from validator_channel.net.rates import TokenBuckets
from validator_channel.net.sessions import SessionTable
from validator_channel.net.tls import Tls

if TYPE_CHECKING:
    from validator_channel.net.connection import Connection

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
