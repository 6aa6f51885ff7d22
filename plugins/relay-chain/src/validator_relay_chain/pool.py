# SPDX-License-Identifier: Apache-2.0
"""The nodes of one chain: calls are repeated after growing pauses, and a spare takes over from a node that fails.

One node is in use at a time. What follows from a failure is a matter of its class (`errors`): a call is repeated
with the node, after `CALLS_PER_NODE_MAX` failures in a row or at once the next node is used, and the call is given up when every node has
failed often enough in ways that have an end. Before the first answer of any node the attempts are few, so that a wrong address ends in an
error. Each failure is a line with its cause; pauses are `PAUSE_S_MAX` at most, so whatever is waited for has a line a minute.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any, Final, NoReturn, TypeVar
from urllib.parse import urlsplit

from validator_relay_chain.connection import Connection, Open, Wire
from validator_relay_chain.errors import (
    BadAnswer,
    FollowError,
    NodeError,
    NotKnownHere,
    NotOffered,
    Overflow,
    RpcFault,
    TooMuch,
    Unreachable,
    WrongChain,
    passing_first,
    reason_of,
)
from validator_relay_chain.header import from_hex, to_hex
from validator_relay_chain.limits import (
    ANSWER_S_MAX,
    CALLS_PER_NODE_MAX,
    CONNECT_S_MAX,
    NODES_MAX,
    PAUSE_ENDING_S_MAX,
    PAUSE_JITTER,
    PAUSE_S_MAX,
    PAUSE_S_MIN,
    START_ROUNDS_MAX,
    UNOFFERED_S,
    URL_CHARACTERS_MAX,
)
from validator_relay_chain.modern import ModernConnection


def open_wire(url: str) -> Wire:
    """Connect to a node, whichever methods it has. Raises `NodeError`.

    Those of `chain_*` and `state_*` come first, with heads that are asked for if it does not notify of them, then those of `chainHead_v1`
    and `archive_v1`.
    """
    refusals: list[RpcFault] = []
    for open_ in (
        partial(Connection, url),
        partial(Connection, url, is_subscribed=False),
        partial(ModernConnection, url),
    ):
        try:
            return open_()
        except RpcFault as error:
            refusals.append(error)
    refusal = passing_first(refusals)
    raise refusal.saying(f"{refusal}; the node offers neither chain_* and state_* nor chainHead_v1 or archive_v1")


T = TypeVar("T")

STOP_LOOK_S: Final = 0.2
"""Seconds after which a pause notices a request to stop."""

Call = Callable[..., Any]
"""A method and its parameters; returns the result. Raises `NodeError`."""


class Stopped(FollowError):
    """The follower was asked to stop while it waited for a node."""


class Clock:
    """Monotonic seconds, pauses and randomness. ``is_stopping`` ends pauses, `STOP_LOOK_S` after it says so at most."""

    def __init__(self, is_stopping: Callable[[], bool] = lambda: False) -> None:
        self._is_stopping = is_stopping
        self._random = random.Random()  # noqa: S311 - spreads repeated calls, no secret

    def now(self) -> float:
        """Return seconds of a clock that never goes back."""
        return time.monotonic()

    def pause(self, seconds: float) -> bool:
        """Wait, and return whether the follower should stop."""
        deadline = time.monotonic() + seconds
        while not self._is_stopping():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(left, STOP_LOOK_S))
        return True

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


class _Attempts:
    """What each node has said to one request that failed so far."""

    def __init__(self, began_s: float, *, is_optional: bool = False) -> None:
        self._began_s, self._is_optional = began_s, is_optional
        self._spent: dict[str, Fraction] = {}
        """By node, the share of its failures after which it is not asked any more."""
        self._said: dict[str, NodeError] = {}

    def note(self, node: _Node, error: NodeError) -> None:
        """Note a failure."""
        if error.each_max is not None:
            self._spent[node.url] = self._spent.get(node.url, Fraction()) + Fraction(1, error.each_max)
            self._said[node.url] = error

    def end(self, nodes: Sequence[_Node], now_s: float) -> NodeError | None:
        """Return why the request is given up, or None if it is not."""
        left = [each.url for each in nodes if not each.is_wrong]
        if not left or any(self._spent.get(url, 0) < 1 for url in left):
            return None
        said = [self._said[url] for url in left]
        patience_s = 0.0 if self._is_optional else max(each.patience_s for each in said)
        if now_s - self._began_s < patience_s:
            return None
        worst = min(said, key=lambda each: isinstance(each, RpcFault))
        others = "; ".join(str(each) for each in said if each is not worst)
        return worst.saying(f"{worst}; {others}") if others else worst


class NodePool:
    """Calls nodes of one chain. Any thread may use it.

    ``genesis`` is the hash of block 0 that nodes must have; None takes that of the first node that answers. ``tell`` gets a line about each
    trouble and each change of the node. Raises ``ValueError`` for no address, too many, or one that is not of a WebSocket.
    """

    def __init__(
        self,
        urls: Sequence[str],
        clock: Clock,
        *,
        genesis: bytes | None = None,
        tell: Callable[[str], None] = lambda _: None,
        open_: Open = open_wire,
        answer_s_max: float = ANSWER_S_MAX,
    ) -> None:
        if not 1 <= len(urls) <= NODES_MAX:
            raise ValueError(f"nodes: expected 1 to {NODES_MAX} addresses, found {len(urls)}")
        self._nodes = [_Node(check_url(url)) for url in dict.fromkeys(urls)]
        self._clock, self.tell, self._open = clock, tell, open_
        self._answer_s_max = answer_s_max
        self.genesis = genesis
        self._lock = threading.RLock()
        self._at = 0
        self._wire: Wire | None = None
        self._answered = False
        """Whether any node has answered in any way: an error is an answer, too."""
        self._attempts = 0
        self._unoffered: dict[str, float] = {}
        """What no node offers, and until when that is not asked again."""
        self.answers = 0
        """Calls that were answered."""
        self.failures: Counter[str] = Counter()
        """Calls that failed, by reason."""

    @property
    def url(self) -> str:
        """The address of the node in use."""
        return self._nodes[self._at].url

    @property
    def size(self) -> int:
        """How many nodes there are."""
        return len(self._nodes)

    def call(self, method: str, *params: Any) -> Any:
        """Return the result of a call, which may be None. Raises as `use`."""
        return self.ask(lambda result: result, method, *params)

    def ask(
        self,
        read: Callable[[Any], T],
        method: str,
        *params: Any,
        is_optional: bool = False,
        is_divisible: bool = False,
    ) -> T:
        """Return ``read`` of a call's result, or repeat the call. Raises as `use`."""
        return self.use(
            lambda call: read(call(method, *params)),
            optional=method if is_optional else None,
            is_divisible=is_divisible,
        )

    def use(self, work: Callable[[Call], T], *, optional: str | None = None, is_divisible: bool = False) -> T:
        """Return the result of some work with one node, or repeat it, with another one if need be.

        ``work`` raises `NotKnownHere` for a null, and `BadAnswer` for an answer that cannot be right: both are the node's trouble. The work
        is given up, with what the nodes said, once each has failed as often as its error says. ``optional`` names what can be done
        without: `NotOffered` is raised as soon as no node has it, then for `UNOFFERED_S` without asking, and a line says so once. `TooMuch`
        is raised at once if the work ``is_divisible``. Also raises, before the first answer, whatever the last node's error was;
        `WrongChain` if no node is left; `Stopped`.
        """
        if optional is not None and self._clock.now() < self._unoffered.get(optional, 0.0):
            raise NotOffered(0, f"{optional}: no node offers it")
        attempts, began_at = _Attempts(self._clock.now(), is_optional=optional is not None), self._at
        while True:
            try:
                node, wire = self._connected(attempts)
                try:
                    value = work(lambda method, *params, wire=wire: wire.call(method, params, self._answer_s_max))
                except NodeError as error:
                    named = error.saying(_at(node, str(error)))
                    if is_divisible and isinstance(error, TooMuch):
                        self._divide(wire, error)
                        raise named from error
                    self._attempted(attempts, node, wire, named)
                    continue
            except NodeError as error:
                is_halved = is_divisible and isinstance(error, TooMuch)
                if optional is None or is_halved or isinstance(error, BadAnswer | WrongChain | Unreachable):
                    raise
                self._go_without(optional, error, began_at)
            self._succeed(node)
            return value

    def blame(self, error: NodeError) -> None:
        """Leave the node in use because of what several of its answers say together."""
        with self._lock:
            node, wire = self._nodes[self._at], self._wire
        self._fail(node, wire, error.saying(_at(node, str(error))), is_left=True)

    def head(self, timeout_s: float) -> Any | None:
        """Return the next finalised head in JSON, or None if none arrives in time. Raises as `use`."""
        node, wire = self._connected(_Attempts(self._clock.now()))
        try:
            found = wire.head(timeout_s)
        except NodeError as error:
            self._fail(node, wire, error, is_left=error.is_left, is_lost=isinstance(error, Unreachable | Overflow))
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

    def _connected(self, attempts: _Attempts) -> tuple[_Node, Wire]:
        """Return the node in use and its connection, after the pause that it needs."""
        while True:
            with self._lock:
                node = self._nodes[self._at]
                wait_s = node.not_before_s - self._clock.now()
                if wait_s <= 0 and self._wire is not None:
                    return node, self._wire
                if wait_s <= 0:
                    self._connect(node, attempts)
                    continue
            if self._clock.pause(wait_s):
                raise Stopped("asked to stop")

    def _connect(self, node: _Node, attempts: _Attempts) -> None:
        if self._clock.pause(0):
            raise Stopped("asked to stop")
        wire = None
        try:
            wire = self._open(node.url)
            genesis = from_hex(wire.call("chain_getBlockHash", (0,), CONNECT_S_MAX), "genesis", 32)
        except NodeError as error:
            if wire is not None:
                wire.close()
            self._attempted(attempts, node, None, error.saying(_at(node, str(error))))
            return
        if self.genesis is None:
            self.genesis = genesis
        if genesis != self.genesis:
            wire.close()
            self._exclude(node, genesis)
            return
        self._wire = wire

    def _attempted(self, attempts: _Attempts, node: _Node, wire: Wire | None, error: NodeError) -> None:
        """Prepare another attempt after a failed one. Raises why there is none."""
        attempts.note(node, error)
        end = attempts.end(self._nodes, self._clock.now())
        if end is not None:
            raise end from error
        self._fail(node, wire, error, is_left=error.is_left, is_lost=isinstance(error, Unreachable | Overflow))

    def _divide(self, wire: Wire, error: TooMuch) -> None:
        """Note that a request is to be halved; a connection for which it was too large is replaced."""
        with self._lock:
            self.failures[reason_of(error)] += 1
            if isinstance(error, Overflow) and wire is self._wire:
                self._disconnect()

    def _go_without(self, optional: str, error: NodeError, began_at: int) -> NoReturn:
        """Note that no node has something optional, and use the node again that was in use before. Raises `NotOffered`."""
        with self._lock:
            is_said = optional in self._unoffered
            self._unoffered[optional] = self._clock.now() + UNOFFERED_S
            if self._at != began_at and not self._nodes[began_at].is_wrong:
                self._disconnect()
                self._at = began_at
        if not is_said:
            self.tell(f"{error}; it is done without")
        raise NotOffered(0, str(error)) from error

    def _exclude(self, node: _Node, genesis: bytes) -> None:
        expected = to_hex(self.genesis or b"")
        error = WrongChain(f"{node.url}: expected the chain with genesis {expected}, found {to_hex(genesis)}")
        node.is_wrong = True
        if all(each.is_wrong for each in self._nodes):
            raise error
        self.tell(f"{error}; it is not used")
        self._next()

    def _succeed(self, node: _Node) -> None:
        self._answered = True
        node.failures = 0
        self.answers += 1

    def _fail(
        self, node: _Node, wire: Wire | None, error: NodeError, *, is_left: bool = False, is_lost: bool = False
    ) -> None:
        with self._lock:
            if wire is not None and wire is not self._wire:
                return  # somebody else has seen to it
            self.failures[reason_of(error)] += 1
            self._attempts += 1
            self._answered = self._answered or not isinstance(error, Unreachable | BadAnswer)
            if not self._answered and self._attempts >= START_ROUNDS_MAX * len(self._nodes):
                raise error
            if is_lost or is_left:
                self._disconnect()
            elif self._clock.now() < node.not_before_s:
                return  # calls that were under way together fail together: one pause is enough
            node.failures += 1
            longest_s = PAUSE_S_MAX if error.each_max is None else PAUSE_ENDING_S_MAX
            seconds = min(longest_s, PAUSE_S_MIN * 2 ** min(node.failures - 1, 16))
            seconds *= 1 - PAUSE_JITTER * self._clock.share()
            node.not_before_s = self._clock.now() + seconds
            if is_left or node.failures % CALLS_PER_NODE_MAX == 0 or not self._answered:
                self._next()
            left = self._nodes[self._at]
            how = f"again in {seconds:.1f} s" if left is node else f"{left.url} takes over"
            self.tell(f"{error}; {how}")

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
