# SPDX-License-Identifier: Apache-2.0
"""Metadata in every version that nodes give: as `state_getMetadata` has it, or in a version that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from relay_world import FIRST, SPEC, Collected, World, busy_chain, metadata
from validator_relay_chain.block import decode_block, read_block
from validator_relay_chain.errors import RpcFault, UndecodableBlock
from validator_relay_chain.metadata import Runtime
from validator_simulators.relay_chain import Fault, FaultKind, MockNode

from validator.plugin.api import Reader, Writer

pytestmark = pytest.mark.usefixtures("speech")

NOT_DEPRECATED, NOTHING = b"\x00", b"\x00"
A_NOTE = b"\x02" + b"\x10note" + b"\x01\x08v1"
"""Deprecated, with a note, since v1."""


class Copy:
    """Reads parts of metadata V14 and writes them again; `add` writes what V16 has besides."""

    def __init__(self, raw: bytes) -> None:
        self.reader, self.written = Reader(raw), bytearray()

    def take(self, read: Callable[[], object]) -> object:
        """Copy what a method of the reader reads."""
        start = self.reader.position
        found = read()
        self.written += self.reader.data[start : self.reader.position]
        return found

    def add(self, raw: bytes) -> None:
        self.written += raw

    def many(self, each: Callable[[], object]) -> None:
        count = self.take(self.reader.compact)
        assert isinstance(count, int)
        for _ in range(count):
            each()

    def maybe(self, each: Callable[[], object]) -> None:
        if self.take(self.reader.u8):
            each()

    def compact(self) -> None:
        self.take(self.reader.compact)

    def text(self) -> None:
        self.take(self.reader.bytes)

    def texts(self) -> None:
        self.many(self.text)

    def registry(self) -> None:
        self.many(self._type)

    def _type(self) -> None:
        self.compact()
        self.texts()
        self.many(lambda: (self.text(), self.maybe(self.compact)))
        kind = self.take(self.reader.u8)
        if kind == 0:
            self.many(self._field)
        elif kind == 1:
            self.many(lambda: (self.text(), self.many(self._field), self.take(self.reader.u8), self.texts()))
        elif kind == 3:
            self.take(self.reader.u32)
            self.compact()
        elif kind == 4:
            self.many(self.compact)
        elif kind == 5:
            self.take(self.reader.u8)
        elif kind == 7:
            self.compact()
            self.compact()
        else:
            self.compact()
        self.texts()

    def _field(self) -> None:
        self.maybe(self.text)
        self.compact()
        self.maybe(self.text)
        self.texts()

    def pallet(self) -> None:
        self.text()
        self.maybe(lambda: (self.text(), self.many(self._entry)))
        self.maybe(lambda: (self.compact(), self.add(b"\x04\x03" + A_NOTE)))
        self.maybe(lambda: (self.compact(), self.add(b"\x04\x07\x01")))
        self.many(self._constant)
        self.maybe(lambda: (self.compact(), self.add(NOTHING)))
        self.add(b"\x04\x0cAcc\x00\x04\x08of")
        self.add(b"\x04" + bytes(32) + b"\x0cfun" + b"\x04\x08in\x00" + b"\x00" + b"\x00" + A_NOTE)
        self.take(self.reader.u8)
        self.add(b"\x04\x0cdoc" + b"\x01")

    def _entry(self) -> None:
        self.text()
        self.take(self.reader.u8)
        if self.take(self.reader.u8) == 0:
            self.compact()
        else:
            self.many(lambda: self.take(self.reader.u8))
            self.compact()
            self.compact()
        self.text()
        self.texts()
        self.add(A_NOTE)

    def _constant(self) -> None:
        self.text()
        self.compact()
        self.text()
        self.texts()
        self.add(NOT_DEPRECATED)


def v16_of(v14: bytes) -> bytes:
    """Return metadata V16 with the types and pallets of metadata V14, by paritytech/frame-metadata, src/v16.rs."""
    copy = Copy(v14)
    copy.take(lambda: copy.reader.take(4))
    copy.reader.u8()
    copy.add(b"\x10")
    copy.registry()
    copy.many(copy.pallet)
    out = Writer()
    out.buffer += b"\x08\x04\x05" + b"\x00\x00\x00"  # versions, then the types of address, call and signature
    out.buffer += b"\x04\x04\x08\x00\x04" + b"\x04\x0cext\x00\x04"  # extensions by version, then extensions
    out.buffer += b"\x04\x0cApi" + b"\x04\x08do\x04\x04x\x00\x00\x00" + A_NOTE + b"\x00" + b"\x08" + NOT_DEPRECATED
    out.buffer += b"\x00\x00\x00" + b"\x04\x0ckey\x00\x04\x01"  # outer enums, then a custom value
    return bytes(copy.written) + bytes(out.buffer)


@pytest.fixture
def node() -> Iterator[MockNode]:
    with MockNode(busy_chain(FIRST + 12).recording) as node:
        yield node


def test_v16_says_what_v14_says() -> None:
    old, new = Runtime("polkadot", SPEC, metadata()), Runtime("polkadot", SPEC, v16_of(metadata()))
    assert (new.items, new.enter, new._calls) == (old.items, old.enter, old._calls)
    assert new.unread == old.unread
    recording = busy_chain(FIRST + 12).recording
    block = recording.blocks[recording.canonical[FIRST + 10]]
    raw = read_block(
        block.body, next(v for k, v in block.storage.items() if k.startswith("0x26aa")), bytes.fromhex(block.hash[2:])
    )
    assert decode_block(raw, new) == decode_block(raw, old)


@pytest.mark.parametrize("cut", [-1, 1])
def test_v16_is_read_to_its_last_byte(cut: int) -> None:
    raw = v16_of(metadata())
    spoiled = raw[:cut] if cut < 0 else raw + bytes(cut)
    with pytest.raises(UndecodableBlock, match="runtime polkadot 9430: its metadata does not decode"):
        Runtime("polkadot", SPEC, spoiled)


@pytest.mark.parametrize("kept", ["v16", "v14 at version", "v16 at version", "v15 refused"])
def test_chain_is_followed_whatever_metadata_its_nodes_give(kept: str, node: MockNode, tmp_path: Path) -> None:
    found, old = node.recording.metadata, metadata()
    found["9430"], asked = {
        "v16": (v16_of(old), 0),
        "v14 at version": (b"meta\x11" + bytes(9), 3),
        "v16 at version": (b"meta\x11" + bytes(9), 1),
        "v15 refused": (old, 3),
    }[kept]
    if kept == "v14 at version":
        found["9430.v14"] = old
    if kept == "v16 at version":
        found["9430.v16"] = v16_of(old)
    if kept == "v15 refused":
        node.order(Fault(FaultKind.NO_METHOD, "state_getMetadata", count=None))
    world, out = World([node.url], tmp_path, to_block=FIRST + 12), Collected()
    world.follow(out, world.seed())
    assert out.blocks() == list(range(FIRST, FIRST + 13))
    assert node.requests["state_call"] == asked


def test_metadata_that_nobody_reads_is_named(node: MockNode, tmp_path: Path) -> None:
    node.recording.metadata["9430"] = b"meta\x11" + bytes(9)
    with pytest.raises(
        UndecodableBlock, match="expected metadata V14, V15 or V16, found bytes that begin with 0x6d65746111"
    ):
        World([node.url], tmp_path).seed()
    for method in ("state_getMetadata", "state_call"):
        node.order(Fault(FaultKind.NO_METHOD, method, count=None))
    with pytest.raises(RpcFault, match="the node does not offer it"):
        World([node.url], tmp_path).seed()
