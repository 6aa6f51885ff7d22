# SPDX-License-Identifier: Apache-2.0
"""The newer methods of a mock node, `chainHead_v1` and `archive_v1`, answered from what the older ones know.

Each request has an older name, the question that it is: faults and counts of requests know it by both.
Source: paritytech/json-rpc-interface-spec, src/api.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from typing import Any, Final

from validator_relay_chain.header import Header, to_hex

from validator.plugin.api import Writer
from validator_simulators.relay_chain.faults import NO_METHOD
from validator_simulators.relay_chain.methods import Methods, RpcError
from validator_simulators.relay_chain.recording import Json, Recording

FINALISED_MAX: Final = 32
"""Last finalised blocks that `chainHead_v1_follow` begins with."""
PINNED_MAX: Final = 512
"""Blocks that a client of `chainHead_v1` may keep, as a node has it; with more the subscription stops."""
ITEMS_PER_EVENT: Final = 16
"""Keys of one event of `chainHead_v1_storage`, after which the client must continue."""

NOT_PINNED: Final = (-32_801, "Invalid block hash")
FOLLOW_EVENT: Final = "chainHead_v1_followEvent"
STORAGE_EVENT: Final = "archive_v1_storageEvent"
FOLLOW: Final = "chainHead_v1_follow"


class Speech(StrEnum):
    """A group of methods."""

    OLD = "old"
    """`chain_*`, `state_*`, `system_*`."""
    ARCHIVE = "archive"
    """`archive_v1`."""
    HEAD = "head"
    """`chainHead_v1` and `chainSpec_v1`."""


@dataclass
class Follow:
    """A subscription of `chainHead_v1`."""

    id: str
    last: int
    """The number of the last block that was reported as final."""
    pinned: set[str] = field(default_factory=set)
    waiting: dict[str, list[Json]] = field(default_factory=dict)
    """By operation, the events that follow once the client continues."""


Reply = tuple[Any, list[Json]]
"""A result, and the notifications that follow it."""


def speech_of(method: str) -> Speech:
    """Return the group that a method is one of."""
    if method.startswith("archive_v1_"):
        return Speech.ARCHIVE
    return Speech.HEAD if method.startswith(("chainHead_v1_", "chainSpec_v1_")) else Speech.OLD


def question_of(method: str, params: list[Any]) -> str:
    """Return the older method that asks the same; the method itself if there is none."""
    kind = method.rpartition("_")[2]
    if kind == "storage":
        items = next((each for each in params if isinstance(each, list)), [])
        if any(item.get("type") == "descendantsHashes" for item in items):
            return "state_getKeysPaged"
        return "state_getStorage" if len(items) == 1 else "state_queryStorageAt"
    if kind == "call":
        functions = {"Core_version": "state_getRuntimeVersion", "Metadata_metadata": "state_getMetadata"}
        return next((functions[each] for each in params if each in functions), "state_call")
    return _QUESTIONS.get(kind, method)


_QUESTIONS: Final = {
    "header": "chain_getHeader",
    "body": "chain_getBlock",
    "genesisHash": "chain_getBlockHash",
    "hashByHeight": "chain_getBlockHash",
    "finalizedHeight": "chain_getFinalizedHead",
    "follow": "chain_subscribeFinalizedHeads",
}


class Modern:
    """Answers the newer methods. ``finalised`` returns the hash of the finalised head, as the node reports it."""

    def __init__(self, recording: Recording, methods: Methods, finalised: Callable[[], str]) -> None:
        self._recording, self._methods, self._finalised = recording, methods, finalised
        self._ids = count(1)

    # --- the head ---

    def begin(self) -> tuple[Follow, Json]:
        """Return a new subscription and its first event."""
        head = self._finalised()
        path = list(self._path(head, max(self._recording.first, self._number(head) - FINALISED_MAX + 1)))
        follow = Follow(f"follow{next(self._ids)}", self._number(head), set(path))
        return follow, _event(FOLLOW_EVENT, follow.id, {"event": "initialized", "finalizedBlockHashes": path})

    def move(self, follow: Follow) -> list[Json]:
        """Return the events after the finalised head has moved: none if it went back, ``stop`` if too many blocks are pinned."""
        head = self._finalised()
        path = list(self._path(head, follow.last + 1))
        if not path:
            return []
        follow.last = self._number(head)
        follow.pinned |= set(path)
        if len(follow.pinned) > PINNED_MAX:
            return [_event(FOLLOW_EVENT, follow.id, {"event": "stop"})]
        events: list[Json] = []
        for hash_ in path:
            parent = (self._recording.blocks[hash_].header or {}).get("parentHash")
            events.append({"event": "newBlock", "blockHash": hash_, "parentBlockHash": parent, "newRuntime": None})
        events.append({"event": "bestBlockChanged", "bestBlockHash": head})
        events.append({"event": "finalized", "finalizedBlockHashes": path, "prunedBlockHashes": []})
        return [_event(FOLLOW_EVENT, follow.id, event) for event in events]

    def _number(self, hash_: str) -> int:
        return self._recording.blocks[hash_].number

    def _path(self, head: str, first: int) -> Iterable[str]:
        """Return the hashes of the blocks from a number to a head, oldest first."""
        found = []
        block = self._recording.at(head)
        while block is not None and block.number >= first:
            found.append(block.hash)
            block = self._recording.at((block.header or {}).get("parentHash", ""))
        return reversed(found)

    # --- requests ---

    def payload(self, follow: Follow | None, method: str, params: list[Any]) -> Any:
        """Return what a request is about, before it is wrapped. Raises `RpcError`."""
        group, _, kind = method.rpartition("_")
        if group == "chainHead_v1":
            if follow is None or not params or params[0] != follow.id:
                return None
            return self._of_pinned(follow, kind, params[1:])
        if kind == "genesisHash":
            return self._methods.answer("chain_getBlockHash", [0])
        if kind == "finalizedHeight":
            return self._number(self._finalised())
        if kind == "hashByHeight":
            found = self._methods.answer("chain_getBlockHash", params)
            return [] if found is None else [found]
        return self._of_block(kind, params)

    def _of_pinned(self, follow: Follow, kind: str, params: list[Any]) -> Any:
        if kind == "unpin":
            gone = set([params[0]] if isinstance(params[0], str) else params[0])
            if not gone <= follow.pinned:
                raise RpcError(*NOT_PINNED)
            follow.pinned -= gone
            return None
        if kind in ("continue", "stopOperation"):
            return self._until_waiting(follow, params[0], follow.waiting.pop(params[0], []))
        if params[0] not in follow.pinned:
            raise RpcError(*NOT_PINNED)
        return self._of_block(kind, params)

    def _of_block(self, kind: str, params: list[Any]) -> Any:
        hash_, *rest = params
        if kind == "header":
            found = self._methods.answer("chain_getHeader", [hash_])
            return None if found is None else to_hex(Header.from_json(found).encode())
        if kind == "body":
            found = self._methods.answer("chain_getBlock", [hash_])
            return None if found is None else found["block"]["extrinsics"]
        if kind == "call":
            return self._call(hash_, *rest)
        if kind == "storage":
            return self._storage(hash_, rest[0])
        raise RpcError(*NO_METHOD)

    def _call(self, hash_: str, function: str, data: str) -> str:
        if function == "Core_version":
            return to_hex(_version(self._methods.answer("state_getRuntimeVersion", [hash_])))
        if function == "Metadata_metadata":
            out = Writer()
            out.bytes(bytes.fromhex(self._methods.answer("state_getMetadata", [hash_])[2:]))
            return to_hex(bytes(out.buffer))
        found: str = self._methods.answer("state_call", [function, data, hash_])
        return found

    def _storage(self, hash_: str, items: list[Json]) -> list[Json]:
        found = []
        for item in items:
            if item["type"] == "descendantsHashes":
                found += [{"key": key, "hash": f"0x{'00' * 32}"} for key in self._methods.all_keys(item["key"], hash_)]
            else:
                value = self._methods.answer("state_getStorage", [item["key"], hash_])
                found += [] if value is None else [{"key": item["key"], "value": value}]
        return found

    # --- answers ---

    def reply(self, follow: Follow | None, method: str, payload: Any) -> Reply:
        """Return the result of a request and what follows, from its payload, which a fault may have spoiled."""
        group, _, kind = method.rpartition("_")
        if group == "archive_v1" and kind == "storage":
            id_ = f"storage{next(self._ids)}"
            events = [{"event": "storage", **item} for item in payload or ()]
            return id_, [_event(STORAGE_EVENT, id_, each) for each in [*events, {"event": "storageDone"}]]
        if group == "archive_v1" and kind == "call":
            return None if payload is None else {"success": True, "value": payload}, []
        if kind == "continue":
            return None, payload or []
        if group != "chainHead_v1" or kind not in ("body", "call", "storage"):
            return payload, []
        if follow is None:
            return {"result": "limitReached"}, []
        id_ = f"operation{next(self._ids)}"
        events = [_event(FOLLOW_EVENT, follow.id, {**each, "operationId": id_}) for each in _operation(kind, payload)]
        return {"result": "started", "operationId": id_}, self._until_waiting(follow, id_, events)

    def _until_waiting(self, follow: Follow, id_: str, events: list[Json]) -> list[Json]:
        """Return the events of an operation up to the one after which the client must continue; keep the others."""
        for at, event in enumerate(events):
            if event["params"]["result"]["event"] == "operationWaitingForContinue":
                follow.waiting[id_] = events[at + 1 :]
                return events[: at + 1]
        return events


def _operation(kind: str, payload: Any) -> list[Json]:
    """Return the events of an operation, without its id."""
    if payload is None:
        return [{"event": "operationInaccessible"}]
    if kind == "body":
        return [{"event": "operationBodyDone", "value": payload}]
    if kind == "call":
        return [{"event": "operationCallDone", "output": payload}]
    events: list[Json] = []
    for start in range(0, len(payload), ITEMS_PER_EVENT):
        events += [{"event": "operationWaitingForContinue"}] if start else []
        events.append({"event": "operationStorageItems", "items": payload[start : start + ITEMS_PER_EVENT]})
    return [*events, {"event": "operationStorageDone"}]


def _event(method: str, id_: str, result: Json) -> Json:
    return {"jsonrpc": "2.0", "method": method, "params": {"subscription": id_, "result": result}}


def _version(given: Json) -> bytes:
    """Return a runtime's version in SCALE, as the runtime gives it."""
    out = Writer()
    out.bytes(str(given["specName"]).encode())
    out.bytes(str(given.get("implName", "")).encode())
    for name in ("authoringVersion", "specVersion", "implVersion"):
        out.u32(int(given.get(name, 0)))
    apis = given.get("apis", [])
    out.compact(len(apis))
    for id_, version in apis:
        out.buffer += bytes.fromhex(id_[2:])
        out.u32(version)
    out.u32(int(given.get("transactionVersion", 0)))
    out.u8(int(given.get("systemVersion") or given.get("stateVersion") or 0))
    return bytes(out.buffer)
