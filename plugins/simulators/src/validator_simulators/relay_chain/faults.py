# SPDX-License-Identifier: Apache-2.0
"""Faults that a mock node has to order: what a real node, or the network before it, does wrong.

A fault counts the requests that it applies to, and strikes some of them. A plan holds several; the first that strikes wins.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from threading import Lock
from typing import Any, Final

OVERSIZED_BYTES: Final = 20 * 1024 * 1024
"""Bytes of an oversized answer, unless the fault says otherwise: over the 15 MiB that public nodes cut off at."""


class FaultKind(StrEnum):
    """What goes wrong with an answer."""

    CUT = "cut"
    """The connection breaks instead of the answer, without a closing handshake."""
    SILENT = "silent"
    """No answer, ever."""
    DELAY = "delay"
    """The answer comes ``value`` seconds late."""
    REORDER = "reorder"
    """The answer to the next request overtakes this one."""
    STALE = "stale"
    """The node believes that the head is ``value`` blocks lower: in answers on heads, and in notifications."""
    RATE_LIMIT = "rate-limit"
    """Error -32999, as public nodes answer."""
    PRUNED = "pruned"
    """Error 4003: the node has discarded the state."""
    ERROR = "error"
    """Error -32603."""
    NO_METHOD = "no-method"
    """Error -32601: the node does not offer the method."""
    REFUSED = "refused"
    """Error -32000, as a proxy answers that allows other methods only."""
    NO_HEADER = "no-header"
    """Error -32603: the block is not in the node's database."""
    TOO_BIG = "too-big"
    """Error -32008 instead of every result that has more than ``value`` characters."""
    FEW_KEYS = "few-keys"
    """Error 4002 for a request for more than ``value`` keys."""
    NULL = "null"
    """The result is null."""
    WRONG_HEADER = "wrong-header"
    """A header with another state root, whose hash is therefore another one."""
    WRONG_ANSWER = "wrong-answer"
    """One digit of the result is another."""
    TRUNCATED = "truncated"
    """The answer ends in the middle, and is no JSON."""
    OVERSIZED = "oversized"
    """The result has ``value`` bytes."""


RATE_LIMITED: Final = (-32_999, "RPC rate limit exceeded")
INTERNAL: Final = (-32_603, "Internal error")
NO_METHOD: Final = (-32_601, "Method not found")
DISCARDED: Final = (4_003, "Client error: UnknownBlock: State already discarded for block")
REFUSED: Final = (-32_000, "Server error")
NO_HEADER: Final = (-32_603, "Client error: UnknownBlock: Header was not found in the database")
TOO_BIG: Final = (-32_008, "Response is too big")
FEW_KEYS: Final = (4_002, "count exceeds maximum value")

ERRORS: Final = {
    FaultKind.RATE_LIMIT: RATE_LIMITED,
    FaultKind.PRUNED: DISCARDED,
    FaultKind.ERROR: INTERNAL,
    FaultKind.NO_METHOD: NO_METHOD,
    FaultKind.REFUSED: REFUSED,
    FaultKind.NO_HEADER: NO_HEADER,
    FaultKind.TOO_BIG: TOO_BIG,
    FaultKind.FEW_KEYS: FEW_KEYS,
}
"""Faults that are answers with a code and a message."""

DEFAULT_VALUES: Final = {
    FaultKind.DELAY: 1.0,
    FaultKind.STALE: 10,
    FaultKind.OVERSIZED: OVERSIZED_BYTES,
    FaultKind.FEW_KEYS: 100,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, and which requests it strikes: ``count`` of them after the first ``after`` that have ``method``; None means all.

    Raises ``ValueError`` for a negative ``after`` or ``value``, then for a ``count`` below 1.
    """

    kind: FaultKind
    method: str | None = None
    after: int = 0
    count: int | None = 1
    value: float | None = None

    def __post_init__(self) -> None:
        if self.after < 0 or (self.value is not None and self.value < 0):
            raise ValueError(f"fault {self.kind}: expected numbers from 0, found {self}")
        if self.count is not None and self.count < 1:
            raise ValueError(f"fault {self.kind}: expected a count of at least 1, found {self.count}")

    @property
    def amount(self) -> float:
        """Return ``value``, or the kind's default."""
        return DEFAULT_VALUES.get(self.kind, 0) if self.value is None else self.value

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Read ``KIND[:METHOD[:AFTER[:COUNT[:VALUE]]]]``; an empty part keeps its default, and the count ``all`` means all.

        Raises ``ValueError`` that says what was expected.
        """
        kind, method, after, count, value, *rest = [*text.split(":"), *[""] * 5]
        if any(rest):
            raise ValueError(f"fault: expected KIND[:METHOD[:AFTER[:COUNT[:VALUE]]]], found {text!r}")
        try:
            known = FaultKind(kind)
        except ValueError:
            raise ValueError(f"fault: expected one of {', '.join(FaultKind)}, found {kind!r}") from None
        try:
            return cls(
                known, method or None, int(after or 0), None if count == "all" else int(count or 1),
                float(value) if value else None,
            )  # fmt: skip
        except ValueError as error:
            raise ValueError(f"fault {text!r}: {error}") from None


@dataclass
class FaultPlan:
    """The faults of a node, with how many requests each has seen. Any thread may add one."""

    faults: list[Fault] = field(default_factory=list)
    _seen: list[int] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def order(self, fault: Fault) -> None:
        """Add a fault; it counts from now on."""
        with self._lock:
            self.faults.append(fault)

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            self.faults.clear()
            self._seen.clear()

    def strike(self, *methods: str) -> Fault | None:
        """Count a request, by each of its names, and return the fault that strikes it."""
        with self._lock:
            self._seen += [0] * (len(self.faults) - len(self._seen))
            struck = None
            for index, fault in enumerate(self.faults):
                if fault.kind is FaultKind.STALE or fault.method not in (None, *methods):
                    continue
                seen = self._seen[index]
                self._seen[index] += 1
                due = seen >= fault.after and (fault.count is None or seen < fault.after + fault.count)
                if struck is None and due:
                    struck = fault
            return struck

    def staleness(self) -> int:
        """Return how many blocks the node lags."""
        with self._lock:
            return max((int(fault.amount) for fault in self.faults if fault.kind is FaultKind.STALE), default=0)


def is_spared(fault: Fault, params: Sequence[Any], result: Any) -> bool:
    """Return whether an answer is small enough for a fault that strikes large ones only."""
    if fault.kind is FaultKind.TOO_BIG:
        return len(json.dumps(result)) <= fault.amount
    return fault.kind is FaultKind.FEW_KEYS and isinstance(params[1], int) and params[1] <= fault.amount


def spoiled(kind: FaultKind, result: Any) -> Any:
    """Return the result of a request as a lying node gives it."""
    if kind is FaultKind.NULL:
        return None
    if kind is FaultKind.WRONG_HEADER and not isinstance(result, str):
        return _with_other_root(copy.deepcopy(result))
    return _with_other_digit(copy.deepcopy(result))[0]


def _with_other_root(result: Any) -> Any:
    header = (
        result.get("block", result).get("header", result.get("block", result)) if isinstance(result, dict) else None
    )
    if not isinstance(header, dict) or "stateRoot" not in header:
        return result
    header["stateRoot"] = _other_digit(header["stateRoot"])
    return result


def _with_other_digit(value: Any) -> tuple[Any, bool]:
    """Change the last string of hex digits in a result, and say whether there was one."""
    if isinstance(value, str) and value.startswith("0x") and len(value) > 2:
        return _other_digit(value), True
    if isinstance(value, dict | list):
        places = list(value) if isinstance(value, dict) else list(range(len(value)))
        for place in reversed(places):
            value[place], done = _with_other_digit(value[place])
            if done:
                return value, True
    return value, False


def _other_digit(text: str) -> str:
    return f"{text[:-1]}{int(text[-1], 16) ^ 1:x}"
