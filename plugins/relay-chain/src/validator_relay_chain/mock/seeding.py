# SPDX-License-Identifier: Apache-2.0
"""Storage made up next to a recorded run, which has only events: what a lane needs to join it, and what the run's candidates lead to.

The candidates, inclusions and the pending candidates of the first block are real. Channels, downward messages and lifecycles are what the
caller gives. Pending candidates are there after the first block alone, where a lane joins.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from validator.plugin.api import Reader
from validator_relay_chain import keys
from validator_relay_chain.block import ChainBlock, Receipt, decode_block, read_block
from validator_relay_chain.candidates import BackedCandidate
from validator_relay_chain.header import to_hex
from validator_relay_chain.layout import DESCRIPTOR_BYTES
from validator_relay_chain.metadata import Runtime
from validator_relay_chain.mock.recording import RecordedBlock, Recording
from validator_relay_chain.mock.state import PARACHAIN, MadeState, pending_storage

VOTE_BYTES: Final = 65
SIGNATURE_BYTES: Final = 64


def make_up_storage(recording: Recording, runtime: Runtime, first: int, state: MadeState) -> None:
    """Make up storage after block ``first`` and all later ones of a recording, beginning with ``state``.

    Paras with candidates become parachains. A channel that a candidate uses must be in ``state``.
    """
    start = decoded(recording, runtime, first)
    pending = {_receipt(each): each for each in start.candidates}
    blocks = [decoded(recording, runtime, number) for number in range(first + 1, recording.last + 1)]
    for block in (start, *blocks):
        for candidate in block.candidates:
            state.lifecycles.setdefault(candidate.para_id, PARACHAIN)
    before = state.storage()
    waiting: dict[bytes, bytes] = {}
    for descriptor, commitments in _raw_candidates(recording.blocks[recording.canonical[first]], runtime.enter):
        waiting |= pending_storage(descriptor, commitments, first)
    recording.put_storage(first, _hex(before | waiting))
    recording.put_storage(first + 1, _hex(dict.fromkeys(waiting)))
    for block in blocks:
        for receipt in block.included:
            if receipt in pending:
                state.include(block.number, pending.pop(receipt))
        pending |= {_receipt(each): each for each in block.candidates}
        after = state.storage()
        gone = dict.fromkeys(before.keys() - after.keys())
        changed = {key: value for key, value in after.items() if before.get(key) != value}
        recording.put_storage(block.number, _hex(gone | changed))
        before = after


def decoded(recording: Recording, runtime: Runtime, number: int) -> ChainBlock:
    """Return a recorded block."""
    block = recording.blocks[recording.canonical[number]]
    events = block.storage[to_hex(keys.SYSTEM_EVENTS)]
    return decode_block(read_block(block.body, events, bytes.fromhex(block.hash[2:])), runtime)


def _receipt(candidate: BackedCandidate) -> Receipt:
    return Receipt(candidate.para_id, candidate.relay_parent, candidate.commitments_hash)


def _hex(values: dict[bytes, bytes] | dict[bytes, bytes | None] | dict[bytes, None]) -> dict[str, str | None]:
    return {to_hex(key): None if value is None else to_hex(value) for key, value in sorted(values.items())}


def _raw_candidates(block: RecordedBlock, enter: bytes) -> Iterator[tuple[bytes, bytes]]:
    assert block.body is not None
    for extrinsic in block.body["block"]["extrinsics"]:
        reader = Reader(bytes.fromhex(extrinsic[2:]))
        reader.compact()
        if reader.data[reader.position + 1 : reader.position + 1 + len(enter)] != enter:
            continue
        reader.take(1 + len(enter))
        for _ in range(reader.count()):
            _skip_bits(reader)
            reader.take(4 + SIGNATURE_BYTES)
        for _ in range(reader.count()):
            descriptor = reader.take(DESCRIPTOR_BYTES)
            start = reader.position
            reader.items(reader.bytes)
            for _ in range(reader.count()):
                reader.u32()
                reader.bytes()
            reader.option(reader.bytes)
            reader.bytes()
            reader.take(4 + 4)
            yield descriptor, reader.data[start : reader.position]
            reader.take(reader.count() * VOTE_BYTES)
            _skip_bits(reader)


def _skip_bits(reader: Reader) -> None:
    reader.take((reader.compact() + 7) // 8)
