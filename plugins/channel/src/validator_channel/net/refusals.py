# SPDX-License-Identifier: Apache-2.0
"""One log line for each refused connection, within limits: strangers must not fill the log. Source: channel_rules 3.3 "log flood"."""

from __future__ import annotations

import logging

from validator_channel.ids import format_id
from validator_channel.net.handshake import HandshakeFailed
from validator_channel.net.identity import Identity
from validator_channel.net.limits import (
    REFUSALS_ADDRESSES_MAX,
    REFUSALS_BURST,
    REFUSALS_OF_ADDRESS_BURST,
    REFUSALS_OF_ADDRESS_PER_S,
    REFUSALS_PER_S,
    SHOWN_CHARACTERS_MAX,
    SHOWN_PEERS_MAX,
)
from validator_channel.net.rates import TokenBucket, TokenBuckets
from validator_channel.net.reasons import TURNED_AWAY
from validator_channel.printing import printable


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
