# SPDX-License-Identifier: Apache-2.0
"""Why a relay chain cannot be followed, and which failure a node's answer is: the one place that decides, whatever number the node uses.

Each error is one line that names the node, what was expected and what was found. Nodes, versions and proxies disagree on numbers of errors,
so texts count first. Sources: polkadot-sdk, substrate/client/rpc-api/src/*/error.rs and sp-blockchain's errors; jsonrpsee,
types/src/error.rs; polkadot-js/api issues 2629, 5579, 5923; substrate 11842; chopsticks 961.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Self

from websockets.exceptions import ConnectionClosed, PayloadTooBig

from validator_relay_chain.limits import (
    CALLS_PER_NODE_MAX,
    ERROR_CHARACTERS_MAX,
    REFUSED_S_MAX,
    UNKNOWN_PER_NODE_MAX,
    WRONG_PER_NODE_MAX,
)


class FollowError(Exception):
    """The root of what is expected to go wrong."""


class NodeError(FollowError):
    """A node failed to answer a call. The class says what follows (`fault`, `lost` and `turned_away` say which class an answer has).

    *Passing*: asked again after a growing pause, and of a spare, without end. *Not here*: a spare is asked, then the call is given up.
    *Too much*: the request is halved; one that cannot be is asked of a spare, then given up. *Never*: a spare is asked, then the call is
    given up.
    """

    each_max: ClassVar[int | None] = None
    """How often each node may fail so before the call is given up; None is no end."""
    patience_s: ClassVar[float] = 0.0
    """Seconds for which the call is asked again at least."""
    is_left: ClassVar[bool] = False
    """Whether a spare is asked at once."""

    def saying(self, text: str) -> Self:
        """Return the same error with another text."""
        new = self.__class__.__new__(self.__class__)
        new.__dict__.update(self.__dict__)
        new.args = (text,)
        return new


# --- passing ---


class Unreachable(NodeError):
    """No connection, a connection that was dropped, or no answer in time."""


class RateLimited(NodeError):
    """The node refuses calls for a while."""


class Inaccessible(NodeError):
    """The node cannot get at the data now: a light client that asks its peers, for example."""


class BadAnswer(NodeError):
    """The node's answer contradicts a hash, the order of blocks, or the protocol."""

    each_max: ClassVar[int | None] = WRONG_PER_NODE_MAX
    patience_s = REFUSED_S_MAX
    is_left = True


class Garbled(BadAnswer):
    """What arrives is no JSON-RPC: a proxy or the network spoils it, whatever was asked."""

    each_max = None


# --- not here ---


class NotKnownHere(NodeError):
    """The node answers null: it does not know the block, or not yet. The block may exist."""

    each_max = UNKNOWN_PER_NODE_MAX


class StatePruned(NodeError):
    """The node does not have the state of this block any more: only an archive node does."""

    each_max = 1
    is_left = True


class BodyMissing(NodeError):
    """The node has the header of a block, and not its extrinsics: they were pruned, or never fetched by a warp sync."""

    each_max = CALLS_PER_NODE_MAX
    is_left = True


# --- too much ---


class TooMuch(NodeError):
    """The answer, or the request, is larger than node, proxy or `limits.ANSWER_BYTES_MAX` allow."""

    each_max = 1
    is_left = True


class Overflow(TooMuch):
    """A message is too large for the connection, which is lost, and with it every call under way."""

    each_max = CALLS_PER_NODE_MAX


# --- never ---


class WrongChain(NodeError):
    """The node follows a chain with another genesis."""

    is_left = True


class RpcFault(NodeError):
    """The node does not offer the call. ``code`` is a number of JSON-RPC."""

    each_max = 1
    is_left = True

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Unwilling(RpcFault):
    """The node answers with an error that says nothing of why: passing if another attempt succeeds, never if none does."""

    each_max = CALLS_PER_NODE_MAX
    patience_s = REFUSED_S_MAX
    is_left = False


def passing_first(refusals: Sequence[RpcFault]) -> RpcFault:
    """Return the refusal that another attempt may not meet, or the first one."""
    return next((each for each in refusals if isinstance(each, Unwilling)), refusals[0])


class NotOffered(RpcFault):
    """No node offers something that can be done without."""


class UndecodableBlock(FollowError):
    """A block does not decode with the metadata of its runtime."""


class ChainContradiction(FollowError):
    """What a block says contradicts itself or what was followed so far: the lane must not continue."""


class ParentUnknown(FollowError):
    """No node has the header of a block on which a candidate builds, so nobody knows its number."""


class Simulated(FollowError):
    """A block has no state root: a simulator made it."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"block {number}: expected a state root, found zeros: a simulator such as chopsticks made this block, and nothing proves its "
            "storage; follow it with --simulator (simulator = true in the configuration), which believes the heads of downward queues"
        )


class RulesWanted(FollowError):
    """The next block runs under rules that the lane's configuration lacks."""


class SeedError(FollowError):
    """A state to begin with cannot be read, or contradicts the block's state root."""


REASONS: Final[tuple[tuple[type[NodeError], str], ...]] = (
    (RateLimited, "rate-limited"),
    (BodyMissing, "no-body"),
    (StatePruned, "pruned"),
    (Unreachable, "unreachable"),
    (NotKnownHere, "not-known"),
    (BadAnswer, "wrong-answer"),
    (TooMuch, "too-much"),
    (Inaccessible, "inaccessible"),
)
"""Why a request is repeated; the node's own errors are the rest."""

OTHER: Final = "refused"


def reason_of(error: NodeError) -> str:
    """Return why a request is repeated, as the metric names it."""
    return next((name for kind, name in REASONS if isinstance(error, kind)), OTHER)


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
