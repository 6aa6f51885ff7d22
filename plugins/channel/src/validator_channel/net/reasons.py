# SPDX-License-Identifier: Apache-2.0
"""Why a connection did not become a session, in plain words. Codes are for programs; these texts are for people."""

from __future__ import annotations

import errno
import re
import ssl
from collections.abc import Mapping
from typing import Final

from validator_channel.errors import ErrorCode

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
