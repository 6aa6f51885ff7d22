# SPDX-License-Identifier: Apache-2.0
"""The nodes of one chain: calls are repeated after growing pauses, and a spare takes over from a node that fails.

One node is in use at a time. A call that fails is repeated with it; after `CALLS_PER_NODE_MAX` failures in a row the next node is used. A
node whose answer contradicts a hash is left at once. Before the first answer of any node the attempts are few, so that a wrong address
ends in an error; afterwards there is no end to them.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import urlsplit

from validator_relay_chain.connection import Connection, Open, Wire
from validator_relay_chain.errors import (
    BadAnswer,
    FollowError,
    NodeError,
    NotKnownHere,
    RpcFault,
    StatePruned,
    Unreachable,
    WrongChain,
    reason_of,
)
from validator_relay_chain.header import from_hex, to_hex
from validator_relay_chain.limits import (
    ANSWER_S_MAX,
    CALLS_PER_NODE_MAX,
    CONNECT_S_MAX,
    NODES_MAX,
    PAUSE_JITTER,
    PAUSE_S_MAX,
    PAUSE_S_MIN,
    START_ROUNDS_MAX,
    UNKNOWN_ROUNDS_MAX,
    URL_CHARACTERS_MAX,
)

T = TypeVar("T")

METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602


class Stopped(FollowError):
    """The follower was asked to stop while it waited for a node."""


class Time(Protocol):
    """Clock, pauses and randomness of a pool."""

    def now(self) -> float:
        """Return seconds of a clock that never goes back."""

    def pause(self, seconds: float) -> bool:
        """Wait, and return whether the follower should stop."""

    def share(self) -> float:
        """Return a random number from 0 to 1."""


class RealTime:
    """The clock of this machine; an event ends its pauses."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._random = random.Random()  # noqa: S311 - spreads repeated calls, no secret

    def now(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def pause(self, seconds: float) -> bool:
        """Wait, at most until the event is set."""
        return self._stop.wait(seconds)

    def share(self) -> float:
        """Return a random number from 0 to 1."""
        return self._random.random()


def check_url(url: str) -> str:
    """Return an address of a node. Raises ``ValueError`` unless it is ``ws://`` or ``wss://`` with a host."""
    parts = urlsplit(url)
    if len(url) > URL_CHARACTERS_MAX or parts.scheme not in ("ws", "wss") or not parts.hostname:
        raise ValueError(f"node: expected an address ws://HOST:PORT or wss://HOST, found {url[:80]!r}")
    return url


@dataclass(slots=True)
class _Node:
    url: str
    failures: int = 0
    """Failed calls in a row."""
    not_before_s: float = 0.0
    is_wrong: bool = field(default=False)
    """Whether it follows another chain."""


class NodePool:
    """Calls nodes of one chain. Any thread may use it.

    ``genesis`` is the hash of block 0 that nodes must have; None takes that of the first node that answers. ``tell`` gets a line about each
    trouble and each change of the node. Raises ``ValueError`` for no address, too many, or one that is not of a WebSocket.
    """

    def __init__(
        self,
        urls: Sequence[str],
        time_: Time,
        *,
        genesis: bytes | None = None,
        tell: Callable[[str], None] = lambda _: None,
        open_: Open = Connection,
        answer_s_max: float = ANSWER_S_MAX,
    ) -> None:
        if not 1 <= len(urls) <= NODES_MAX:
            raise ValueError(f"nodes: expected 1 to {NODES_MAX} addresses, found {len(urls)}")
        self._nodes = [_Node(check_url(url)) for url in dict.fromkeys(urls)]
        self._time, self._tell, self._open = time_, tell, open_
        self._answer_s_max = answer_s_max
        self.genesis = genesis
        self._lock = threading.RLock()
        self._at = 0
        self._wire: Wire | None = None
        self._answered = False
        self._attempts = 0
        self.answers = 0
        """Calls that were answered."""
        self.failures: Counter[str] = Counter()
        """Calls that failed, by reason."""

    @property
    def troubles(self) -> int:
        """How many calls failed."""
        return self.failures.total()

    @property
    def url(self) -> str:
        """The address of the node in use."""
        return self._nodes[self._at].url

    @property
    def size(self) -> int:
        """How many nodes there are."""
        return len(self._nodes)

    def call(self, method: str, *params: Any) -> Any:
        """Return the result of a call, which may be None. Raises as `ask`."""
        return self.ask(lambda result: result, method, *params)

    def ask(self, read: Callable[[Any], T], method: str, *params: Any) -> T:
        """Return ``read`` of a call's result, or repeat the call.

        ``read`` raises `NotKnownHere` for a null, and `BadAnswer` for an answer that cannot be right: both are the node's trouble. Raises
        `StatePruned` if no node has the state; `NotKnownHere` if all say null again and again; `RpcFault` for a call that nodes refuse as
        such; `WrongChain` if no node is left; before the first answer, whatever the last node's error was; `Stopped`.
        """
        refused: set[str] = set()
        unknown = 0
        while True:
            node, wire = self._connected()
            try:
                value = read(wire.call(method, params, self._answer_s_max))
            except (StatePruned, RpcFault) as error:
                is_final = isinstance(error, StatePruned) or error.code in (METHOD_NOT_FOUND, INVALID_PARAMS)
                if is_final:
                    refused.add(node.url)
                    if refused >= {each.url for each in self._nodes if not each.is_wrong}:
                        raise
                self._fail(node, wire, error, leave=is_final)
            except BadAnswer as error:
                self._fail(node, wire, BadAnswer(_at(node, str(error))), leave=True)
            except NotKnownHere as error:
                self._fail(node, wire, error)
                unknown += 1
                if unknown >= UNKNOWN_ROUNDS_MAX * CALLS_PER_NODE_MAX * len(self._nodes):
                    raise
            except NodeError as error:
                self._fail(node, wire, error, drop=isinstance(error, Unreachable))
            else:
                self._succeed(node)
                return value

    def blame(self, error: NodeError) -> None:
        """Leave the node in use because of what several of its answers say together."""
        with self._lock:
            node, wire = self._nodes[self._at], self._wire
        self._fail(node, wire, type(error)(_at(node, str(error))), leave=True)

    def head(self, timeout_s: float) -> Any | None:
        """Return the next finalised head in JSON, or None if none arrives in time. Raises as `ask`."""
        node, wire = self._connected()
        try:
            found = wire.head(timeout_s)
        except NodeError as error:
            self._fail(node, wire, error, drop=True)
            return None
        if found is not None:
            self._succeed(node)
        return found

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    # --- nodes ---

    def _connected(self) -> tuple[_Node, Wire]:
        """Return the node in use and its connection, after the pause that it needs."""
        while True:
            with self._lock:
                node = self._nodes[self._at]
                wait_s = node.not_before_s - self._time.now()
                if wait_s <= 0 and self._wire is not None:
                    return node, self._wire
                if wait_s <= 0:
                    self._connect(node)
                    continue
            if self._time.pause(wait_s):
                raise Stopped("asked to stop")

    def _connect(self, node: _Node) -> None:
        if self._time.pause(0):
            raise Stopped("asked to stop")
        try:
            wire = self._open(node.url)
        except NodeError as error:
            self._fail(node, None, error)
            return
        try:
            genesis = from_hex(wire.call("chain_getBlockHash", (0,), CONNECT_S_MAX), "genesis", 32)
        except NodeError as error:
            wire.close()
            self._fail(node, None, error)
            return
        if self.genesis is None:
            self.genesis = genesis
        if genesis != self.genesis:
            wire.close()
            self._exclude(node, genesis)
            return
        self._wire = wire

    def _exclude(self, node: _Node, genesis: bytes) -> None:
        expected = to_hex(self.genesis or b"")
        error = WrongChain(f"{node.url}: expected the chain with genesis {expected}, found {to_hex(genesis)}")
        node.is_wrong = True
        if all(each.is_wrong for each in self._nodes):
            raise error
        self._tell(f"{error}; it is not used")
        self._next()

    def _succeed(self, node: _Node) -> None:
        self._answered = True
        node.failures = 0
        self.answers += 1

    def _fail(
        self, node: _Node, wire: Wire | None, error: NodeError, *, leave: bool = False, drop: bool = False
    ) -> None:
        with self._lock:
            if wire is not None and wire is not self._wire:
                return  # somebody else has seen to it
            self.failures[reason_of(error)] += 1
            self._attempts += 1
            if not self._answered and self._attempts >= START_ROUNDS_MAX * len(self._nodes):
                raise error
            node.failures += 1
            seconds = min(PAUSE_S_MAX, PAUSE_S_MIN * 2 ** min(node.failures - 1, 16))
            seconds *= 1 - PAUSE_JITTER * self._time.share()
            node.not_before_s = self._time.now() + seconds
            if drop or leave:
                self._disconnect()
            if leave or node.failures % CALLS_PER_NODE_MAX == 0 or not self._answered:
                self._next()
            left = self._nodes[self._at]
            how = f"again in {seconds:.1f} s" if left is node else f"{left.url} takes over"
            self._tell(f"{error}; {how}")

    def _next(self) -> None:
        """Use the next node that follows this chain; the only one stays."""
        for step in range(1, len(self._nodes) + 1):
            at = (self._at + step) % len(self._nodes)
            if not self._nodes[at].is_wrong:
                if at != self._at:
                    self._disconnect()
                self._at = at
                return

    def _disconnect(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            threading.Thread(target=wire.close, daemon=True).start()  # closing may wait for the node


def _at(node: _Node, text: str) -> str:
    return text if text.startswith(node.url) else f"{node.url}: {text}"


def known(what: str) -> Callable[[Any], Any]:
    """Return a reader for `NodePool.ask` that takes anything but null, which means that this node does not know ``what``."""

    def read(result: Any) -> Any:
        if result is None:
            raise NotKnownHere(f"{what} is not known here")
        return result

    return read
