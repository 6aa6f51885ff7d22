# SPDX-License-Identifier: Apache-2.0
"""Why a connection is no session, how a session ended, and how often: codes for programs, words for people. Source: 3.3, 5.2."""

from __future__ import annotations

import errno
import re
import ssl
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from validator_channel.errors import FATAL, NOT_FATAL, ErrorCode, quoted
from validator_channel.events import PeerError
from validator_channel.limits import SHOWN_CHARACTERS_MAX
from validator_channel.link import Counts

WORDS: Final[Mapping[str, str]] = {
    ErrorCode.AUTH_FAILED: "a signature of the hello exchange is wrong",
    ErrorCode.BAD_HELLO: "what arrived is no hello of this protocol",
    ErrorCode.BAD_VERSION: "the other end speaks another version of the protocol",
    ErrorCode.DECRYPT_FAILED: "a frame cannot be decrypted: the two ends may have different pre-shared keys (psk_file)",
    ErrorCode.NOT_AUTHORIZED: "the peer is not allowed",
    ErrorCode.SESSION_IN_USE: "the session ID is live already",
    ErrorCode.SESSION_LIMIT: "as many sessions are live as the peer, or all peers together, may have (sessions_max)",
    ErrorCode.SETUP_TIMEOUT: "the session was not set up in time",
    ErrorCode.HANDSHAKE_TIMEOUT: "the handshake took too long",
    ErrorCode.TRANSPORT_LOST: "the connection was lost",
    "DISPLACED": "its place was given to another address, because all places of unfinished handshakes were taken",
}
"""What a code means that comes without a text."""

SILENT: Final = (
    "the other end closed the connection after TLS and gave no reason, as it does when it refuses a peer or its certificate;"
    " its log has the reason"
)
"""What a connector can say of a listener that has refused it: a refused peer is answered nothing. Source: channel_rules 1.2.6."""

CLOSED_DURING_TLS: Final = "the other end closed the connection during TLS, before proving who it is"
"""The reason for an exception of asyncio that has no text."""

TURNED_AWAY: Final[Mapping[str, str]] = {
    "rate": "its address connects too often (connects_per_s)",
    "share": "its address has too many unfinished handshakes",
    "full": "all places of unfinished handshakes are taken (half_open_max)",
    "CRL": "nobody can connect while the CRL is stale, missing or broken",
}
"""Why a connection is closed before TLS."""

_ALERTS: Final[Mapping[str, str]] = {
    "ACCESS_DENIED": "it does not allow this peer",
    "BAD_CERTIFICATE": "it cannot use our certificate",
    "CERTIFICATE_EXPIRED": "our certificate has expired",
    "CERTIFICATE_REQUIRED": "it wants a certificate, and we have sent none",
    "CERTIFICATE_REVOKED": "our certificate is revoked",
    "CERTIFICATE_UNKNOWN": "it does not accept our certificate",
    "DECRYPT_ERROR": "a signature of ours does not match our certificate",
    "HANDSHAKE_FAILURE": "both ends have no common parameters",
    "NO_APPLICATION_PROTOCOL": "it does not speak channel/1",
    "PROTOCOL_VERSION": "it does not speak TLS 1.3",
    "UNKNOWN_CA": "our certificate comes from a CA that it does not know",
    "UNRECOGNIZED_NAME": "it does not know the name that we asked for",
    "UNSUPPORTED_CERTIFICATE": "it cannot use our kind of certificate",
}
"""What an alert of the other end says. Source: RFC 8446 section 6.2."""

_OURS: Final[Mapping[str, str]] = {
    "HTTP_REQUEST": "the other end speaks HTTP and not TLS",
    "NO_APPLICATION_PROTOCOL": "the other end does not speak channel/1",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the other end has no certificate",
    "UNEXPECTED_EOF_WHILE_READING": "the other end closed the connection in the middle of TLS",
    "UNSUPPORTED_PROTOCOL": "the other end does not speak TLS 1.3",
    "WRONG_VERSION_NUMBER": "the other end does not speak TLS",
}
"""What OpenSSL's own reasons mean."""

_ALERT: Final = re.compile(r"(?:TLS|SSL)V[0-9]+_ALERT_(\w+)")


def os_reason(error: OSError) -> str:
    """Return why the system has no connection for us."""
    if error.errno == errno.ECONNREFUSED:
        return "nothing listens there"
    return error.strerror or str(error)


def tls_reason(error: ssl.SSLError) -> str:
    """Return why TLS has failed: what the other end's alert says, or what this side objects to."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate refused: {error.verify_message}"
    reason = error.reason or ""
    alert = _ALERT.fullmatch(reason)
    if alert is None:
        return _OURS.get(reason) or reason.lower().replace("_", " ") or str(error)
    name = alert[1]
    return f"the other end has refused us: {_ALERTS.get(name, 'it gives no reason')} (TLS alert {name.lower()})"


CLEAN: Final = "CLEAN"
"""The end of a session that both sides have left."""
LEFT: Final = "LEFT"
"""The end of a session that this side left before it was ONLINE."""
PEER_ERROR: Final = "PEER_ERROR"
"""The end of a session by an ERROR whose code no ERROR of this protocol has."""
_OF_PEERS: Final = FATAL | NOT_FATAL


class Ending:
    """Collects why a session ends; ``ours`` is the code that this side has found, or empty. What this side finds comes first."""

    def __init__(self) -> None:
        self.ours = ""
        self._peer_error: PeerError | None = None

    def note_ours(self, code: str) -> None:
        """Take a code of this side; the first one counts."""
        self.ours = self.ours or str(code)

    def note_peer_error(self, error: PeerError) -> None:
        """Take an ERROR of the peer; the last one counts."""
        self._peer_error = error

    def code(self, *, is_clean: bool) -> str:
        """Return the code of the end, which no peer can choose freely."""
        if is_clean:
            return CLEAN
        if self.ours or self._peer_error is None:
            return self.ours or LEFT
        return self._peer_error.code if self._peer_error.code in _OF_PEERS else PEER_ERROR

    def fields(self, *, is_clean: bool) -> str:
        """Return what the peer has said of this end as fields of a log line, in quotes and cut; empty if it has not ended the session."""
        error = self._decisive(is_clean=is_clean)
        if error is None:
            return ""
        detail = f" detail={_shown(error.detail)}" if error.detail else ""
        return f" peer_error={_shown(error.code)}{detail}"

    def reason(self, *, is_clean: bool) -> str:
        """Return why there is no session, if the peer has ended it in its words; otherwise empty: the code says it."""
        error = self._decisive(is_clean=is_clean)
        if error is None or (error.code in _OF_PEERS and not error.detail):
            return ""
        words = WORDS.get(error.code) if error.code in _OF_PEERS else None
        detail = f": {_shown(error.detail)}" if error.detail else ""
        return (
            f"{words}; the other end reports{detail}"
            if words
            else f"the other end reports {_shown(error.code)}{detail}"
        )

    def _decisive(self, *, is_clean: bool) -> PeerError | None:
        return None if is_clean or self.ours else self._peer_error


def _shown(text: str) -> str:
    return quoted(text[:SHOWN_CHARACTERS_MAX])


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
