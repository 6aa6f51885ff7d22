# SPDX-License-Identifier: Apache-2.0
"""Blocks that are kept, with the storage that was read after them, and a chain that asks nodes only for what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from validator_relay_chain import keys
from validator_relay_chain.block import RawBlock
from validator_relay_chain.header import Header, to_hex
from validator_relay_chain.reading import Value, Version
from validator_relay_chain.source import Chain


@dataclass(slots=True)
class Kept:
    """A block with what is known of the storage after it."""

    raw: RawBlock
    version: Version | None = None
    """Of the runtime in the state after the block."""
    values: dict[bytes, Value] = field(default_factory=dict)
    proofs: dict[bytes, bool] = field(default_factory=dict)
    """By key of a value, whether it is proven; False if no node gave a proof when one was asked for."""
    keys: dict[bytes, list[bytes]] = field(default_factory=dict)
    """By prefix, all keys of a storage item."""

    def to_record(self) -> dict[str, Any]:
        """Return the record of the block."""
        assert self.version is not None
        return {
            "header": self.raw.header.encode(),
            "extrinsics": self.raw.extrinsics,
            "events": self.raw.events,
            "are_events_proven": self.raw.are_events_proven,
            "spec_name": self.version.spec_name,
            "spec_version": self.version.spec_version,
            "extrinsics_version": self.version.extrinsics_version,
            "values": [
                {"key": key, "value": self.values[key], "proof": _PROOFS[self.proofs.get(key)]}
                for key in sorted(self.values)
            ],
            "keys": [{"prefix": prefix, "keys": self.keys[prefix]} for prefix in sorted(self.keys)],
        }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Kept:
        """Return the block of a record. Raises `BadAnswer` for bytes that are no header."""
        raw = RawBlock(
            Header.decode(record["header"]),
            tuple(record["extrinsics"]),
            record["events"],
            record["are_events_proven"],
        )
        values = record["values"]
        return cls(
            raw,
            Version(record["spec_name"], record["spec_version"], record["extrinsics_version"]),
            {each["key"]: each["value"] for each in values},
            {each["key"]: each["proof"] == "PROVEN" for each in values if each["proof"] != "NOT_ASKED"},
            {each["prefix"]: each["keys"] for each in record["keys"]},
        )


_PROOFS: Final = {None: "NOT_ASKED", True: "PROVEN", False: "NOT_OFFERED"}


class Blocks(Protocol):
    """Where a `KeptChain` looks for blocks."""

    def find(self, block_hash: bytes) -> Kept | None:
        """Return a block, or None."""

    def hashes(self, numbers: Sequence[int]) -> list[bytes] | None:
        """Return the hashes of blocks, or None unless all are kept."""

    def last_after(self, number: int) -> Header | None:
        """Return the header of the last block of those that follow a block without a gap, or None."""

    def path_of(self, number: int) -> Path | None:
        """Return the file that a block is in, or None."""

    def header(self, block_hash: bytes) -> Header | None:
        """Return the header of a block, which need not be kept itself, or None."""

    def version(self, block_hash: bytes) -> Version | None:
        """Return the version of the runtime in the state after a block, which need not be kept itself, or None."""

    def add(self, raw: RawBlock) -> None:
        """Take a block that a node gave."""

    def add_header(self, header: Header) -> None:
        """Take a header that a node gave."""

    def note(self, kept: Kept, answer: Mapping[str, Any]) -> None:
        """Keep an answer in JSON by which a block has grown."""


class KeptChain(Chain):
    """A chain of which some blocks are kept: nodes are asked only for what is missing, and what they answer is added."""

    def __init__(self, *given: Any, blocks: Blocks, **named: Any) -> None:
        super().__init__(*given, **named)
        self.blocks = blocks

    def kept_after(self, number: int) -> Header | None:
        """Return the last header of the blocks after ``number`` that no node is needed for, or None."""
        return self.blocks.last_after(number)

    def kept_in(self, number: int) -> Path | None:
        """Return the file that has a block, or None."""
        return self.blocks.path_of(number)

    def hashes_at(self, numbers: Sequence[int]) -> list[bytes] | None:
        """Return the hashes of blocks; None if no node answers for several blocks at once."""
        return self.blocks.hashes(numbers) or super().hashes_at(numbers)

    def header(self, block_hash: bytes) -> Header:
        """Return the header with a hash."""
        found = self.blocks.header(block_hash)
        if found is None:
            found = super().header(block_hash)
            self.blocks.add_header(found)
        return found

    def block(self, block_hash: bytes) -> RawBlock:
        """Return the block with a hash, and its events."""
        kept = self.blocks.find(block_hash)
        if kept is not None:
            return RawBlock(self._note(kept.raw.header), *_body(kept.raw))
        raw = super().block(block_hash)
        self.blocks.add(raw)
        return raw

    def value(self, key: bytes, block_hash: bytes) -> Value:
        """Return a value after a block, or None if there is none."""
        if self.blocks.find(block_hash) is None:
            return super().value(key, block_hash)
        return self.values([key], block_hash)[key]

    def values(self, wanted: Sequence[bytes], block_hash: bytes) -> dict[bytes, Value]:
        """Return values after a block, by key; None where there is none."""
        kept = self.blocks.find(block_hash)
        if kept is None:
            return super().values(wanted, block_hash)
        missing = [key for key in wanted if key not in kept.values]
        if missing:
            found = super().values(missing, block_hash)
            kept.values.update(found)
            self.blocks.note(kept, {"values": {to_hex(key): _hex(value) for key, value in found.items()}})
        return {key: kept.values[key] for key in wanted}

    def keys_of(self, prefix: bytes, block_hash: bytes) -> Iterator[list[bytes]]:
        """Yield the keys of a storage item after a block, ascending: all at once of a block that is kept."""
        kept = self.blocks.find(block_hash)
        if kept is None:
            yield from super().keys_of(prefix, block_hash)
            return
        if prefix not in kept.keys:
            found = [key for page in super().keys_of(prefix, block_hash) for key in page]
            kept.keys[prefix] = found
            self.blocks.note(kept, {"prefix": to_hex(prefix), "keys": [to_hex(key) for key in found]})
        yield kept.keys[prefix]

    def proven(self, wanted: Sequence[bytes], header: Header) -> dict[bytes, Value] | None:
        """Return values after a block as its state root proves them; None if no node gives proofs."""
        kept = self.blocks.find(header.hash)
        if kept is None:
            return super().proven(wanted, header)
        if list(wanted) == [keys.SYSTEM_EVENTS] and kept.raw.are_events_proven:
            return {keys.SYSTEM_EVENTS: kept.raw.events}
        if all(key in kept.proofs for key in wanted):
            are_proven = all(kept.proofs[key] for key in wanted)
            return {key: kept.values[key] for key in wanted} if are_proven else None
        found = super().proven(wanted, header)
        known = {key: kept.values[key] for key in wanted if key in kept.values} if found is None else found
        kept.values.update(known)
        kept.proofs.update(dict.fromkeys(known, found is not None))
        self.blocks.note(
            kept, {"proven": found is not None, "values": {to_hex(key): _hex(known[key]) for key in known}}
        )
        return found

    def version(self, block_hash: bytes) -> Version:
        """Return the version of the runtime in the state after a block: it executes the next one."""
        return self.blocks.version(block_hash) or super().version(block_hash)


def _body(raw: RawBlock) -> tuple[tuple[bytes, ...], bytes, bool]:
    return raw.extrinsics, raw.events, raw.are_events_proven


def _hex(value: Value) -> str | None:
    return None if value is None else to_hex(value)
