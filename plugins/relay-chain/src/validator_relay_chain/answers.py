# SPDX-License-Identifier: Apache-2.0
"""What a node's answer means: the one place that decides which `NodeError` an answer is, whatever number the node uses.

Nodes, versions and proxies disagree on numbers, so texts count first. Sources: polkadot-sdk, substrate/client/rpc-api/src/*/error.rs and
sp-blockchain's errors; jsonrpsee, types/src/error.rs; polkadot-js/api issues 2629, 5579, 5923; substrate 11842; chopsticks 961.
"""

from __future__ import annotations

import re
from typing import Any, Final

from websockets.exceptions import ConnectionClosed, PayloadTooBig

from validator_relay_chain.errors import (
    NodeError,
    NotKnownHere,
    Overflow,
    RateLimited,
    RpcFault,
    StatePruned,
    TooMuch,
    Unreachable,
    Unwilling,
)
from validator_relay_chain.limits import ERROR_CHARACTERS_MAX

RATE_CODES: Final = frozenset({-32999, -32005, 429})
RATE_TEXTS: Final = ("rate limit", "too many requests", "rate exceeded")
"""Refused for a while, by nodes or the proxies before them."""
BUSY_STATUS: Final = frozenset({429, 503})
"""HTTP statuses of a node or proxy that has too many requests or clients."""

LARGE_CODES: Final = frozenset({-32702, -32007, -32008})
LARGE_TEXTS: Final = ("is too big", "too large", "oversized", "count exceeds maximum")
"""Too much at once: bytes of the answer or of the request, or keys of a page."""
LARGE_CLOSE_CODE: Final = 1009
"""With which a WebSocket is closed because a message is too large, by either end."""

STATE_TEXTS: Final = ("state already discarded", "unknownblock: state", "state is not available", "state not available")
"""The state of the block is gone."""

UNKNOWN_TEXTS: Final = ("header was not found", "header not found", "block not found", "unknown block", "unknownblock")
UNKNOWN_BLOCK: Final = re.compile(r"\bblock (0x[0-9a-f]+|[0-9]+) not found")
"""The block is not known here, or not yet: the node may be behind."""

NEVER_CODES: Final = frozenset({-32601, -32602})
NEVER_TEXTS: Final = (
    "method not found",
    "unsafe to be called",
    "not allowed",
    "not whitelisted",
    "not supported",
    "forbidden",
)
"""The node does not offer the method, or not with such parameters: asking again does not help."""


def fault(where: str, error: Any) -> NodeError:
    """Return what an error means that a node has answered. ``where`` names node and method."""
    given = error.get("code") if isinstance(error, dict) else None
    code = given if type(given) is int else None
    data = error.get("data") if isinstance(error, dict) else None
    text = str(error.get("message")) if isinstance(error, dict) else str(error)
    if isinstance(data, str) and data not in text:
        text = f"{text}: {data}"
    said = text.lower()
    text = shown(text)
    if code in RATE_CODES or _has(said, RATE_TEXTS):
        return RateLimited(f"{where}: the node limits the rate of calls: {text}")
    if _has(said, STATE_TEXTS):
        return StatePruned(
            f"{where}: the node has discarded the state of this block, an archive node is needed: {text}"
        )
    if code in LARGE_CODES or _has(said, LARGE_TEXTS):
        return TooMuch(f"{where}: it is more than the node gives at once: {text}")
    if _has(said, UNKNOWN_TEXTS) or UNKNOWN_BLOCK.search(said):
        return NotKnownHere(f"{where}: the block is not known here: {text}")
    if code in NEVER_CODES or _has(said, NEVER_TEXTS):
        return RpcFault(code or 0, f"{where}: the node does not offer it: error {code}: {text}")
    return Unwilling(code or 0, f"{where}: the node answers with error {code}: {text}")


def lost(url: str, error: Exception) -> NodeError:
    """Return what it means that a connection was lost."""
    closes = (error.sent, error.rcvd) if isinstance(error, ConnectionClosed) else ()
    if isinstance(error, PayloadTooBig) or any(each is not None and each.code == LARGE_CLOSE_CODE for each in closes):
        return Overflow(f"{url}: a message is too large for the connection: {reason(error)}")
    return Unreachable(f"{url}: the connection is lost: {reason(error)}")


def turned_away(url: str, status: int) -> NodeError:
    """Return what an HTTP status instead of a WebSocket means."""
    kind = RateLimited if status in BUSY_STATUS else Unreachable
    return kind(f"{url}: HTTP status {status} instead of a WebSocket")


def reason(error: BaseException) -> str:
    """Return the first line of an error."""
    text = str(error).strip().splitlines()
    return shown(text[0] if text else type(error).__name__)


def shown(text: str) -> str:
    """Return the beginning of a text that a node may have written, so that it stays one line and moves no cursor."""
    return "".join(each if each.isprintable() else " " for each in text[:ERROR_CHARACTERS_MAX])


def _has(text: str, parts: tuple[str, ...]) -> bool:
    return any(part in text for part in parts)
