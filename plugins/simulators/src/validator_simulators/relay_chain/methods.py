# SPDX-License-Identifier: Apache-2.0
"""The methods of a mock node: what each answers from a recording, and the errors that a node gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from validator_simulators.relay_chain.faults import DISCARDED, NO_METHOD
from validator_simulators.relay_chain.recording import Json, RecordedBlock, Recording

KEYS_PER_PAGE_MAX: Final = 1_000
"""Keys that one `state_getKeysPaged` returns at most, as a node has it."""
KEYS_PER_QUERY_MAX: Final = 10_000
"""Keys of one `state_queryStorageAt` or `state_getReadProof`."""

INVALID_PARAMS: Final = -32_602


class RpcError(Exception):
    """An answer with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Methods:
    """Answers requests. ``finalised`` returns the hash of the finalised head, as the node reports it."""

    def __init__(self, recording: Recording, finalised: Callable[[], str]) -> None:
        self._recording = recording
        self._finalised = finalised

    def answer(self, method: str, params: list[Any]) -> Any:
        """Return the result of a request. Raises `RpcError`."""
        found = TABLE.get(method)
        if found is None:
            raise RpcError(*NO_METHOD)
        try:
            return found(self, *params)
        except (TypeError, ValueError) as error:
            raise RpcError(INVALID_PARAMS, f"Invalid params: {error}") from None

    # --- chain ---

    def block_hash(self, number: int | str | list[Any] | None = None) -> Any:
        """`chain_getBlockHash`: of a number, a list of them, or of the finalised head, which is the best one here."""
        if isinstance(number, list):
            return [self.block_hash(each) for each in number]
        if number is None:
            return self._finalised()
        value = int(number, 16) if isinstance(number, str) else number
        return self._recording.genesis if value == 0 else self._recording.canonical.get(value)

    def header(self, hash_: str | None = None) -> Json | None:
        """`chain_getHeader`."""
        block = self._block(hash_)
        return None if block is None else block.header

    def block(self, hash_: str | None = None) -> Json | None:
        """`chain_getBlock`."""
        block = self._block(hash_)
        return None if block is None else block.body

    def finalised_head(self) -> str:
        """`chain_getFinalizedHead`."""
        return self._finalised()

    # --- state ---

    def storage(self, key: str, at: str | None = None) -> str | None:
        """`state_getStorage`."""
        return self._recording.value(self._state(at), key)

    def query_storage(self, keys: list[str], at: str | None = None) -> list[Json]:
        """`state_queryStorageAt`."""
        block = self._state(at)
        _check_keys(keys)
        return [{"block": block.hash, "changes": [[key, self._recording.value(block, key)] for key in keys]}]

    def keys_paged(self, prefix: str, count: int, start: str | None = None, at: str | None = None) -> list[str]:
        """`state_getKeysPaged`: the keys after ``start``."""
        if not 0 <= count <= KEYS_PER_PAGE_MAX:
            raise ValueError(f"count exceeds maximum value. value: {count}, max: {KEYS_PER_PAGE_MAX}")
        keys = self._recording.keys(self._state(at), prefix)
        return [key for key in keys if not start or key > start][:count]

    def all_keys(self, prefix: str, at: str) -> list[str]:
        """Return all keys below a prefix."""
        return self._recording.keys(self._state(at), prefix)

    def read_proof(self, keys: list[str], at: str | None = None) -> Json:
        """`state_getReadProof`: recorded nodes, or nodes of a made-up storage."""
        block = self._state(at)
        _check_keys(keys)
        proof = self._recording.proof(block, keys)
        if proof is None:
            raise RpcError(*NO_METHOD)  # no proof can be made up: the state root is real
        return {"at": block.hash, "proof": proof}

    def runtime_version(self, at: str | None = None) -> Json:
        """`state_getRuntimeVersion`."""
        return self._recording.runtime_version(self._state(at))

    def metadata(self, at: str | None = None) -> str:
        """`state_getMetadata`, which is version 14 unless a recording has no other."""
        version = self._recording.spec_version(self._state(at))
        found = self._recording.metadata_of(version)
        if found is None:
            raise RpcError(*DISCARDED)
        return f"0x{found.hex()}"

    def call(self, name: str, data: str, at: str | None = None) -> str:
        """`state_call`: metadata in a version of the format alone."""
        if name != "Metadata_metadata_at_version":
            raise RpcError(*NO_METHOD)
        version = int.from_bytes(bytes.fromhex(data[2:]), "little")
        found = self._recording.metadata_at(self._recording.spec_version(self._state(at)), version)
        return "0x00" if found is None else f"0x01{_compact(len(found)).hex()}{found.hex()}"

    # --- system ---

    def chain(self) -> str:
        """`system_chain`."""
        return self._recording.chain

    def properties(self) -> Json:
        """`system_properties`."""
        return {"ss58Format": 0, "tokenDecimals": 10, "tokenSymbol": "DOT"}

    def health(self) -> Json:
        """`system_health`."""
        return {"peers": 40, "isSyncing": False, "shouldHavePeers": True}

    def methods(self) -> Json:
        """`rpc_methods`: the recorded list, or what is here."""
        return {"methods": self._recording.methods or sorted((*TABLE, *SUBSCRIPTIONS))}

    def _block(self, hash_: str | None) -> RecordedBlock | None:
        return self._recording.at(self._finalised() if hash_ is None else hash_)

    def _state(self, hash_: str | None) -> RecordedBlock:
        block = self._block(hash_)
        if block is None:
            raise RpcError(DISCARDED[0], f"{DISCARDED[1]} {hash_}")
        return block


TABLE: Final[dict[str, Callable[..., Any]]] = {
    "chain_getBlock": Methods.block,
    "chain_getBlockHash": Methods.block_hash,
    "chain_getFinalizedHead": Methods.finalised_head,
    "chain_getHeader": Methods.header,
    "rpc_methods": Methods.methods,
    "state_call": Methods.call,
    "state_getKeysPaged": Methods.keys_paged,
    "state_getMetadata": Methods.metadata,
    "state_getReadProof": Methods.read_proof,
    "state_getRuntimeVersion": Methods.runtime_version,
    "state_getStorage": Methods.storage,
    "state_queryStorageAt": Methods.query_storage,
    "system_chain": Methods.chain,
    "system_health": Methods.health,
    "system_properties": Methods.properties,
}
"""What a node answers from the recording."""

Subscription: TypeAlias = tuple[str, str]

SUBSCRIPTIONS: Final[dict[str, Subscription]] = {
    "chain_subscribeFinalizedHeads": ("chain_finalizedHead", "chain_unsubscribeFinalizedHeads"),
}
"""By method, the notifications that follow and the method that ends them."""


def _check_keys(keys: Any) -> None:
    if not isinstance(keys, list) or len(keys) > KEYS_PER_QUERY_MAX:
        raise ValueError(f"expected a list of at most {KEYS_PER_QUERY_MAX} keys")


def _compact(value: int) -> bytes:
    if value < 1 << 6:
        return bytes((value << 2,))
    if value < 1 << 14:
        return (value << 2 | 1).to_bytes(2, "little")
    return (value << 2 | 2).to_bytes(4, "little")
