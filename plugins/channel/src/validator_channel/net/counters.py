# SPDX-License-Identifier: Apache-2.0
"""What the transport counts, for metrics; what would flood a log is a number here. Source: channel_rules 3.3 "log flood", 5.2."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from validator_channel.counts import Counts
from validator_channel.errors import ErrorCode
from validator_channel.net.ends import CLEAN, LEFT, PEER_ERROR


@dataclass(slots=True)
class Counters:
    """Totals since the start; every key is from a fixed set, so that no peer can make the tables grow.

    ``turned_away``: connections closed before TLS, by reason (rate, share, full, CRL). ``handshakes_failed``: by error code, or ALPN,
    CERTIFICATE, KEY_TYPE, REVOKED, TLS. ``ended``: sessions by how they ended; an ERROR of a peer whose code is none of the protocol is
    PEER_ERROR. ``frames``: of the sessions that have ended.
    """

    accepted: int = 0
    turned_away: Counter[str] = field(default_factory=Counter)
    handshakes_ok: int = 0
    handshake_us_total: int = 0
    """Microseconds from the connection to the session, of these handshakes."""
    handshakes_failed: Counter[str] = field(default_factory=Counter)
    online: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    alarms: int = 0
    frames: Counts = field(default_factory=Counts)

    def handshake_done(self, seconds: float) -> None:
        """Count a handshake that led to a session, and the time since its connection."""
        self.handshakes_ok += 1
        self.handshake_us_total += round(seconds * 1e6)

    def handshake_failed(self, code: str) -> None:
        """Count a connection that did not become a session that is ONLINE."""
        self.handshakes_failed[_known(code)] += 1

    def session_ended(self, end: str, counts: Counts) -> None:
        """Count the end of a session and its frames."""
        self.ended[_known(end)] += 1
        self.frames.add(counts)

    def snapshot(self) -> dict[str, int]:
        """Return all totals under flat names, sorted."""
        flat = {
            "accepted": self.accepted,
            "handshakes_ok": self.handshakes_ok,
            "online": self.online,
            "alarms": self.alarms,
        }
        for name in ("turned_away", "handshakes_failed", "ended"):
            flat.update({f"{name}.{key}": count for key, count in getattr(self, name).items()})
        flat.update(self.frames.flat())
        return dict(sorted(flat.items()))


def _known(code: str) -> str:
    """Return a code of ours; what a peer invents is one key."""
    return code if code in _CODES else "OTHER"


_CODES = frozenset(ErrorCode) | {
    *(CLEAN, LEFT, PEER_ERROR, "TLS", "ALPN", "CERTIFICATE", "KEY_TYPE", "REVOKED"),
    *("EXPIRED", "WRITE_TIMEOUT", "DRAINED", "DISPLACED"),
}
