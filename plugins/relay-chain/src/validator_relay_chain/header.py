# SPDX-License-Identifier: Apache-2.0
"""Headers of blocks: read from a node's JSON, and hashed here instead of trusting the node."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from validator.plugin.api import DecodeError, Reader, Writer
from validator_relay_chain.errors import BadAnswer
from validator_relay_chain.hashing import blake2b_256

RUNTIME_UPDATED: Final = b"\x08"
"""The log item `RuntimeEnvironmentUpdated`: the blocks after this one run under other code."""

OTHER_LOG: Final = 0
ENGINE_LOGS: Final = (4, 5, 6)
"""Kinds of log items that name a consensus engine: `Consensus`, `Seal`, `PreRuntime`."""
ENGINE_BYTES: Final = 4

LOGS_MAX: Final = 64
"""Log items of a header; a relay chain's has about four."""


def from_hex(value: Any, what: str, size: int | None = None) -> bytes:
    """Return the bytes of a hex text with 0x. Raises `BadAnswer` for anything else, then for another size."""
    if not isinstance(value, str) or value[:2] != "0x":
        raise BadAnswer(f"{what}: expected hex with 0x, found {shown(value)}")
    try:
        data = bytes.fromhex(value[2:])
    except ValueError:
        raise BadAnswer(f"{what}: expected hex with 0x, found {shown(value)}") from None
    if size is not None and len(data) != size:
        raise BadAnswer(f"{what}: expected {size} bytes, found {len(data)}")
    return data


def to_hex(data: bytes) -> str:
    """Return hex with 0x."""
    return "0x" + data.hex()


def shown(value: Any) -> str:
    """Return the beginning of what a node has answered."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _log(reader: Reader) -> bytes:
    """Return an item of a digest in SCALE."""
    start = reader.position
    kind = reader.u8()
    if kind in ENGINE_LOGS:
        reader.take(ENGINE_BYTES)
    elif kind not in (OTHER_LOG, *RUNTIME_UPDATED):
        raise DecodeError(f"expected an item of a digest, found kind {kind}")
    if kind not in RUNTIME_UPDATED:
        reader.bytes()
    return reader.data[start : reader.position]


@dataclass(frozen=True)
class Header:
    """The header of a block."""

    number: int
    parent_hash: bytes
    state_root: bytes
    """The root of the storage after this block."""
    extrinsics_root: bytes
    logs: tuple[bytes, ...]
    """The items of the digest, each in SCALE."""

    @classmethod
    def from_json(cls, value: Any) -> Header:
        """Return the header that a node returns. Raises `BadAnswer` for the first field that is wrong."""
        if not isinstance(value, dict):
            raise BadAnswer(f"header: expected an object, found {shown(value)}")
        number = value.get("number")
        try:
            height = int(number, 16) if isinstance(number, str) and number[:2] == "0x" else -1
        except ValueError:
            height = -1
        if not 0 <= height < 2**32:
            raise BadAnswer(f"header: number: expected a block number in hex with 0x, found {shown(number)}")
        digest = value.get("digest")
        logs = digest.get("logs") if isinstance(digest, dict) else None
        if not isinstance(logs, list) or len(logs) > LOGS_MAX:
            raise BadAnswer(f"header: digest: expected at most {LOGS_MAX} logs, found {shown(digest)}")
        return cls(
            height,
            from_hex(value.get("parentHash"), "header: parentHash", 32),
            from_hex(value.get("stateRoot"), "header: stateRoot", 32),
            from_hex(value.get("extrinsicsRoot"), "header: extrinsicsRoot", 32),
            tuple(from_hex(log, "header: digest: log") for log in logs),
        )

    @classmethod
    def decode(cls, raw: bytes) -> Header:
        """Return the header of its SCALE encoding. Raises `BadAnswer`."""
        reader = Reader(raw)
        try:
            parent_hash, number = reader.hash(), reader.compact()
            state_root, extrinsics_root = reader.hash(), reader.hash()
            logs = tuple(_log(reader) for _ in range(reader.count()))
            reader.end()
        except DecodeError as error:
            raise BadAnswer(f"header: {error}") from error
        if number >= 2**32 or len(logs) > LOGS_MAX:
            raise BadAnswer(
                f"header: expected a u32 as number and at most {LOGS_MAX} logs, found {number} and {len(logs)}"
            )
        return cls(number, parent_hash, state_root, extrinsics_root, logs)

    def encode(self) -> bytes:
        """Return the header in SCALE."""
        out = Writer()
        out.hash(self.parent_hash)
        out.compact(self.number)
        out.hash(self.state_root)
        out.hash(self.extrinsics_root)
        out.compact(len(self.logs))
        for log in self.logs:
            out.buffer += log
        return bytes(out.buffer)

    def to_json(self) -> dict[str, Any]:
        """Return the header as a node returns it."""
        return {
            "parentHash": to_hex(self.parent_hash),
            "number": hex(self.number),
            "stateRoot": to_hex(self.state_root),
            "extrinsicsRoot": to_hex(self.extrinsics_root),
            "digest": {"logs": [to_hex(log) for log in self.logs]},
        }

    @cached_property
    def hash(self) -> bytes:
        """The block's hash: BLAKE2b-256 of the header in SCALE."""
        return blake2b_256(self.encode())

    @property
    def is_simulated(self) -> bool:
        """Whether the block has no state root, as those that chopsticks makes."""
        return not any(self.state_root)

    @property
    def updates_runtime(self) -> bool:
        """Whether the blocks after this one run under other code."""
        return RUNTIME_UPDATED in self.logs
