# SPDX-License-Identifier: Apache-2.0
"""Operations of `chainHead_v1` and `archive_v1`: requests whose results arrive as events.

Source: paritytech/json-rpc-interface-spec, src/api/chainHead_v1_follow.md and archive_v1_storage.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from validator_relay_chain.answers import fault
from validator_relay_chain.errors import BadAnswer, Inaccessible, NodeError, RpcFault, TooMuch, Unwilling
from validator_relay_chain.limits import ANSWER_BYTES_MAX, KEYS_MAX, OPERATIONS_MAX


@dataclass
class Operation:
    """What has arrived of an operation."""

    items: list[Mapping[str, Any]] = field(default_factory=list)
    """Of storage."""
    value: Any = None
    """Of a body or a call."""
    is_done: bool = False
    is_waiting: bool = False
    """Whether the node waits for a request to continue."""
    failure: NodeError | None = None
    characters: int = 0

    def take(self, where: str, event: Mapping[str, Any]) -> None:
        """Take an event of the operation. An event of another kind is ignored."""
        match event.get("event"):
            case "storage":
                self._add(where, [event])
            case "operationStorageItems":
                items = event.get("items")
                self._add(where, items if isinstance(items, list) else [None])
            case "operationBodyDone":
                self.value, self.is_done = event.get("value"), True
            case "operationCallDone":
                self.value, self.is_done = event.get("output"), True
            case "operationWaitingForContinue":
                self.is_waiting = True
            case "storageDone" | "operationStorageDone":
                self.is_done = True
            case "operationInaccessible":
                self._fail(Inaccessible(f"{where}: the node cannot get at it now"))
            case "operationError":
                error = fault(where, {"message": event.get("error")})
                self._fail(RpcFault(error.code, str(error)) if isinstance(error, Unwilling) else error)
            case "storageError":
                self._fail(fault(where, {"message": event.get("error")}))

    def _add(self, where: str, items: list[Any]) -> None:
        for item in items:
            if not isinstance(item, dict) or not isinstance(item.get("key"), str):
                self._fail(BadAnswer(f"{where}: expected storage items with a key, found another form"))
                return
            self.characters += len(item["key"]) + len(str(item.get("value") or ""))
            self.items.append(item)
        if self.characters > 2 * ANSWER_BYTES_MAX or len(self.items) > KEYS_MAX:
            self._fail(TooMuch(f"{where}: more than {ANSWER_BYTES_MAX} bytes or {KEYS_MAX} items arrived"))

    def _fail(self, error: NodeError) -> None:
        self.failure, self.is_done = self.failure or error, True


class Slots:
    """How many operations a node accepts at once. Use it with the lock of whoever waits for them."""

    def __init__(self) -> None:
        self.left = OPERATIONS_MAX

    def take(self, count: int) -> bool:
        """Take places for some operations, if there are as many."""
        if count > self.left:
            return False
        self.left -= count
        return True

    def give(self, count: int) -> None:
        """Give places back."""
        self.left += count
