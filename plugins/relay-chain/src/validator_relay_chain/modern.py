# SPDX-License-Identifier: Apache-2.0
"""The second wire: nodes that speak only the newer JSON-RPC, `chainHead_v1` and `archive_v1`.

It answers the plugin's questions, the methods `chain_*` and `state_*`, with what the node offers: the rest sees no difference.
`archive_v1` knows every block; without it, as with light clients, only the last finalised blocks are known, which `chainHead_v1` pins.
Neither proves storage. Results of some requests arrive as events (`Operation`).
Source: paritytech/json-rpc-interface-spec, src/api.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from validator.plugin.api import DecodeError, Reader
from validator_relay_chain.connection import HeadPoll, JsonRpc
from validator_relay_chain.errors import (
    BadAnswer,
    Inaccessible,
    NodeError,
    NotKnownHere,
    RateLimited,
    RpcFault,
    StatePruned,
    TooMuch,
    Unreachable,
    Unwilling,
    fault,
    passing_first,
)
from validator_relay_chain.header import Header, from_hex, to_hex
from validator_relay_chain.limits import (
    ANSWER_BYTES_MAX,
    CONNECT_S_MAX,
    HASHES_PER_EVENT_MAX,
    KEY_LISTS_MAX,
    KEYS_MAX,
    OPERATIONS_MAX,
    PINNED_MAX,
)


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


NO_METHOD: Final = -32601
NOT_PINNED: Final = -32801
"""The block was not reported, or is not kept any more."""
FOLLOW_EVENT: Final = "chainHead_v1_followEvent"
STORAGE_EVENT: Final = "archive_v1_storageEvent"
HASH_CHARACTERS: Final = 66


class ModernConnection(JsonRpc):
    """A WebSocket to a node of `chainHead_v1` or `archive_v1`. Raises `NodeError`; `RpcFault` if the node offers neither."""

    def __init__(self, url: str) -> None:
        self._finalised: deque[str] = deque()
        """The last finalised blocks, oldest first, which the node keeps for this connection."""
        self._unpin: deque[str] = deque()
        """Blocks that the node need not keep any more."""
        self._heads: deque[str] = deque(maxlen=1)
        self._operations: dict[str, Operation] = {}
        self._slots = Slots()
        self._keys: OrderedDict[tuple[str, str], list[str]] = OrderedDict()
        self._subscription: str | None = None
        self._has_archive = True
        self._refusals: list[RpcFault] = []
        self._poll = HeadPoll(self.call)
        super().__init__(url)
        try:
            self._has_archive = self._offered("archive_v1_finalizedHeight") is not None
            found = self._offered("chainHead_v1_follow", not self._has_archive)
            if found is not None and not isinstance(found, str):
                raise BadAnswer(f"{url}: chainHead_v1_follow: expected a text, found another form")
            self._subscription = found
            if found is None and not self._has_archive:
                raise passing_first(self._refusals)
        except BaseException:
            self.close()
            raise

    def _offered(self, method: str, *params: Any) -> Any | None:
        """Return the result of a request, or None if the node refuses it."""
        try:
            return self.request(method, params, CONNECT_S_MAX)
        except RpcFault as error:
            self._refusals.append(error)
            return None

    # --- what the rest of the plugin asks ---

    def call(self, method: str, params: Sequence[Any], timeout_s: float) -> Any:
        """Return the result of a call of `chain_*` or `state_*`. Raises `NodeError`."""
        answer = _ANSWERS.get(method)
        if answer is None:
            raise RpcFault(
                NO_METHOD,
                f"{self.url}: {method}: the node speaks chainHead_v1 and archive_v1 only, which have no such call",
            )
        self._release()
        return answer(self, timeout_s, *params)

    def head(self, timeout_s: float) -> Any | None:
        """Return the last finalised head, in JSON, or None if no other one arrives in time. Raises `NodeError`."""
        if self._subscription is None:
            return self._poll.head(timeout_s)
        with self._news:
            self._news.wait_for(lambda: self._heads or self._failure is not None, timeout_s)
            if self._failure is not None:
                raise self._failure
            if not self._heads:
                return None
            found = self._heads.popleft()
        self._release()
        return self._header(CONNECT_S_MAX, found)

    def _release(self) -> None:
        with self._news:
            gone = list(self._unpin)
            self._unpin.clear()
        if gone:
            self.post("chainHead_v1_unpin", (self._subscription, gone))

    # --- events ---

    def notified(self, method: str, params: Mapping[str, Any]) -> None:
        """Take an event: of the chain, or of an operation."""
        event = params.get("result")
        if not isinstance(event, dict):
            return
        if method == STORAGE_EVENT:
            self._operation(params.get("subscription")).take(f"{self.url}: archive_v1_storage", event)
        elif method == FOLLOW_EVENT and "operationId" in event:
            self._operation(event["operationId"]).take(f"{self.url}: chainHead_v1", event)
        elif method == FOLLOW_EVENT:
            self._followed(event)

    def _followed(self, event: Mapping[str, Any]) -> None:
        if event.get("event") == "stop":
            raise Unreachable(f"{self.url}: chainHead_v1_follow: the node has stopped to report its chain")
        if event.get("event") not in ("initialized", "finalized"):
            return
        finalised = self._hashes(event.get("finalizedBlockHashes"))
        self._unpin += self._hashes(event.get("prunedBlockHashes", []))
        self._finalised += finalised
        while len(self._finalised) > (1 if self._has_archive else PINNED_MAX):
            self._unpin.append(self._finalised.popleft())
        if finalised:
            self._heads.append(finalised[-1])

    def _hashes(self, given: Any) -> list[str]:
        is_list = isinstance(given, list) and len(given) <= HASHES_PER_EVENT_MAX
        if not is_list or not all(isinstance(each, str) and len(each) == HASH_CHARACTERS for each in given):
            raise BadAnswer(
                f"{self.url}: chainHead_v1_follow: expected at most {HASHES_PER_EVENT_MAX} hashes, found another form"
            )
        return list(given)

    def _operation(self, id_: Any) -> Operation:
        """Return an operation, whose events may arrive before its id."""
        if not isinstance(id_, str):
            raise BadAnswer(f"{self.url}: expected the id of an operation, found another form")
        if id_ not in self._operations and len(self._operations) >= 4 * OPERATIONS_MAX:
            raise BadAnswer(f"{self.url}: expected events of operations that were asked for, found others")
        return self._operations.setdefault(id_, Operation())

    # --- blocks ---

    def _block_hash(self, timeout_s: float, number: int | list[int]) -> str | None:
        if isinstance(number, list):
            return None  # one at a time: whoever fetches several blocks at once asks for several hashes at once
        if number == 0:
            method = "archive_v1_genesisHash" if self._has_archive else "chainSpec_v1_genesisHash"
            return self.request(method, (), timeout_s)  # type: ignore[no-any-return]
        if not self._has_archive:
            return self._recent_hash(timeout_s, number)
        found = self.request("archive_v1_hashByHeight", (number,), timeout_s)
        if not isinstance(found, list):
            raise BadAnswer(f"{self.url}: archive_v1_hashByHeight: expected a list of hashes, found another form")
        if len(found) > 1:
            raise NotKnownHere(f"{self.url}: block {number} is not finalised yet: there are {len(found)} of them")
        return found[0] if found else None

    def _recent_hash(self, timeout_s: float, number: int) -> str | None:
        head = self._header(timeout_s, self._finalised_head(timeout_s))
        if head is None:
            raise NotKnownHere(f"{self.url}: the finalised head is not known here")
        last = Header.from_json(head)
        with self._news:
            known = list(self._finalised)
        at = known.index(to_hex(last.hash)) + number - last.number if to_hex(last.hash) in known else -1
        if number > last.number:
            return None
        if not 0 <= at < len(known):
            raise self._too_old(f"block {number}")
        return known[at]

    def _too_old(self, what: str) -> StatePruned:
        return StatePruned(
            f"{self.url}: {what} is not among the last blocks, and a node without archive_v1 knows no others: an archive node is needed"
        )

    def _finalised_head(self, timeout_s: float) -> str:
        if self._subscription is None:
            height = self.request("archive_v1_finalizedHeight", (), timeout_s)
            found = self.request("archive_v1_hashByHeight", (height,), timeout_s)
            if not isinstance(found, list) or len(found) != 1:
                raise BadAnswer(
                    f"{self.url}: archive_v1_hashByHeight: expected one finalised block, found another form"
                )
            return found[0]  # type: ignore[no-any-return]
        with self._news:
            self._news.wait_for(lambda: self._finalised or self._failure is not None, timeout_s)
            if self._failure is not None:
                raise self._failure
            if not self._finalised:
                raise Unreachable(f"{self.url}: chainHead_v1_follow: no finalised block within {timeout_s:g} s")
            return self._finalised[-1]

    def _header(self, timeout_s: float, block_hash: str) -> Any:
        if self._has_archive:
            found = self.request("archive_v1_header", (block_hash,), timeout_s)
        else:
            found = self._pinned("chainHead_v1_header", timeout_s, block_hash)
        return None if found is None else Header.decode(from_hex(found, "header")).to_json()

    def _block(self, timeout_s: float, block_hash: str) -> Any:
        header = self._header(timeout_s, block_hash)
        if header is None:
            return None
        if self._has_archive:
            body = self.request("archive_v1_body", (block_hash,), timeout_s)
        else:
            with self._running(1, "chainHead_v1_body", timeout_s, block_hash) as found:
                body = found.value
        return None if body is None else {"block": {"header": header, "extrinsics": body}, "justifications": None}

    # --- storage ---

    def _value(self, timeout_s: float, key: str, block_hash: str) -> Any:
        return self._values(timeout_s, [key], block_hash).get(key)

    def _query(self, timeout_s: float, keys: list[str], block_hash: str) -> Any:
        found: dict[str, Any] = {}
        step = len(keys) if self._has_archive else OPERATIONS_MAX
        for start in range(0, len(keys), max(step, 1)):
            found |= self._values(timeout_s, keys[start : start + step], block_hash)
        return [{"block": block_hash, "changes": [[key, found.get(key)] for key in keys]}]

    def _values(self, timeout_s: float, keys: list[str], block_hash: str) -> dict[str, Any]:
        items = [{"key": key, "type": "value"} for key in keys]
        return {item["key"]: item.get("value") for item in self._items(timeout_s, items, block_hash)}

    def _keys_paged(self, timeout_s: float, prefix: str, count: int, start: str | None, block_hash: str) -> list[str]:
        """Return a page of keys. The node lists all at once, so the list is kept until its last page."""
        with self._news:
            keys = self._keys.get((prefix, block_hash))
        if keys is None or start is None:
            asked = [{"key": prefix, "type": "descendantsHashes"}]
            keys = sorted({item["key"] for item in self._items(timeout_s, asked, block_hash)})
            with self._news:
                self._keys[prefix, block_hash] = keys
                while len(self._keys) > KEY_LISTS_MAX:
                    self._keys.popitem(last=False)
        return [key for key in keys if start is None or key > start][:count]

    def _items(self, timeout_s: float, items: list[dict[str, str]], block_hash: str) -> list[Mapping[str, Any]]:
        if not self._has_archive:
            with self._running(len(items), "chainHead_v1_storage", timeout_s, block_hash, items, None) as found:
                return found.items
        id_ = self.request("archive_v1_storage", (block_hash, items, None), timeout_s)
        return self._finished("archive_v1_storage", id_, timeout_s).items

    # --- runtimes ---

    def _runtime_call(self, timeout_s: float, name: str, data: str, block_hash: str) -> Any:
        if not self._has_archive:
            with self._running(1, "chainHead_v1_call", timeout_s, block_hash, name, data) as found:
                return found.value
        answer = self.request("archive_v1_call", (block_hash, name, data), timeout_s)
        if answer is None:
            return None
        if not isinstance(answer, dict) or answer.get("success") is not True:
            error = answer.get("error") if isinstance(answer, dict) else answer
            raise RpcFault(0, f"{self.url}: archive_v1_call {name}: expected success, found {str(error)[:200]!r}")
        return answer.get("value")

    def _version(self, timeout_s: float, block_hash: str) -> Any:
        """Return the runtime's version, which the runtime itself gives in SCALE."""
        found = self._runtime_call(timeout_s, "Core_version", "0x", block_hash)
        reader = Reader(from_hex(found, "Core_version"))
        try:
            name, _ = reader.bytes().decode(), reader.bytes()
            _, version, _ = reader.u32(), reader.u32(), reader.u32()
            reader.items(lambda: (reader.take(8), reader.u32()))
            rest = reader.data[reader.position :]
        except (DecodeError, UnicodeDecodeError) as error:
            raise BadAnswer(f"{self.url}: Core_version: {error}") from error
        return {"specName": name, "specVersion": version, "systemVersion": rest[4] if len(rest) > 4 else 0}

    def _metadata(self, timeout_s: float, block_hash: str) -> Any:
        reader = Reader(from_hex(self._runtime_call(timeout_s, "Metadata_metadata", "0x", block_hash), "metadata"))
        try:
            return to_hex(reader.bytes())
        except DecodeError as error:
            raise BadAnswer(f"{self.url}: Metadata_metadata: {error}") from error

    # --- operations ---

    def _pinned(self, method: str, timeout_s: float, block_hash: str, *params: Any) -> Any:
        try:
            found = self.request(method, (self._subscription, block_hash, *params), timeout_s)
        except RpcFault as error:
            if error.code == NOT_PINNED:
                raise self._too_old(f"block {block_hash}") from error
            raise
        return found

    @contextmanager
    def _running(self, count: int, method: str, timeout_s: float, block_hash: str, *params: Any) -> Iterator[Operation]:
        """Yield a finished operation of `chainHead_v1`, which counts as ``count`` of those that a node accepts at once."""
        with self._news:
            if not self._news.wait_for(lambda: self._failure is not None or self._slots.take(count), timeout_s):
                raise Unreachable(
                    f"{self.url}: {method}: no place among {OPERATIONS_MAX} operations within {timeout_s:g} s"
                )
            if self._failure is not None:
                raise self._failure
        try:
            answer = self._pinned(method, timeout_s, block_hash, *params)
            if not isinstance(answer, dict) or answer.get("result") != "started" or answer.get("discardedItems"):
                raise self._refused(method, count)
            yield self._finished(method, answer.get("operationId"), timeout_s)
        finally:
            with self._news:
                self._slots.give(count)
                self._news.notify_all()

    def _refused(self, method: str, count: int) -> NodeError:
        """Return why an operation did not start. If it is alone, there is no limit, and the node has lost the subscription."""
        with self._news:
            is_alone = self._slots.left == OPERATIONS_MAX - count
        if is_alone:
            return Unreachable(f"{self.url}: {method}: the node has forgotten that it reports its chain")
        return RateLimited(f"{self.url}: {method}: the node accepts no more operations now")

    def _finished(self, method: str, id_: Any, timeout_s: float) -> Operation:
        with self._news:
            operation = self._operation(id_)
        try:
            while True:
                with self._news:
                    is_told = self._news.wait_for(
                        lambda: operation.is_done or operation.is_waiting or self._failure is not None, timeout_s
                    )
                    if operation.failure is not None:
                        raise operation.failure
                    if operation.is_done:
                        return operation
                    if self._failure is not None:
                        raise self._failure
                    if not is_told:
                        raise Unreachable(f"{self.url}: {method}: no result within {timeout_s:g} s")
                    operation.is_waiting = False
                self.post("chainHead_v1_continue", (self._subscription, id_))
        finally:
            with self._news:
                self._operations.pop(id_, None)


_ANSWERS: Final[dict[str, Callable[..., Any]]] = {
    "chain_getBlock": ModernConnection._block,
    "chain_getBlockHash": ModernConnection._block_hash,
    "chain_getFinalizedHead": ModernConnection._finalised_head,
    "chain_getHeader": ModernConnection._header,
    "state_call": ModernConnection._runtime_call,
    "state_getKeysPaged": ModernConnection._keys_paged,
    "state_getMetadata": ModernConnection._metadata,
    "state_getRuntimeVersion": ModernConnection._version,
    "state_getStorage": ModernConnection._value,
    "state_queryStorageAt": ModernConnection._query,
}
