# SPDX-License-Identifier: Apache-2.0
"""Reads recorded raw blocks: the candidates of their inherent and the inclusions of their events, in the form of `recorded.blocks`.

Only what these blocks contain is decoded: SCALE as in the runtime's `ParachainsInherentData` and `ParaInclusion` events.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b

from tests.realdata.recorded import DATA, Json
from validator.core.scale import Reader

FOLDER = DATA / "rpc" / "polkadot"

PARA_INHERENT = bytes.fromhex("043600")
"""Version of the extrinsic, then pallet and call of `ParaInherent.enter`."""

PARA_INCLUSION = 53
"""The pallet's index in events."""

INCLUDED = 1
"""The event's index in the pallet."""

DESCRIPTOR_BYTES = 4 + 7 * 32 + 64
"""A candidate's descriptor: para id, seven hashes or keys, a signature."""


@cache
def raw_blocks(file: str, chain: str = "polkadot") -> dict[int, Json]:
    """Return the blocks of a file below `FOLDER` by number."""
    with gzip.open(FOLDER / file, "rt", encoding="utf-8") as lines:
        read = [json.loads(line) for line in lines]
    numbers = {bytes.fromhex(block["chain_getBlockHash"][2:]): block["number"] for block in read}
    for block in read:
        header = block["chain_getHeader"]
        if header is not None:
            numbers.setdefault(bytes.fromhex(header["parentHash"][2:]), block["number"] - 1)
    found = {}
    for block in read:
        number = block["number"]
        candidates = [
            {
                "chain": chain,
                "relay_block": number,
                **candidate,
                "relay_parent_number": numbers.get(candidate["parent"]),
            }
            for candidate in _candidates(block)
        ]
        events = [
            {"event": "Included", "para": para, "commitments_hash": commitments}
            for para, commitments in _inclusions(block)
        ]
        found[number] = {
            "number": number,
            "hash": block["chain_getBlockHash"].removeprefix("0x"),
            "candidates": candidates,
            "events": events,
        }
    return found


def _candidates(block: Json) -> Iterator[Json]:
    for extrinsic in block["chain_getBlock"]["block"]["extrinsics"]:
        reader = Reader(bytes.fromhex(extrinsic[2:]))
        reader.compact()  # length
        if reader.data[reader.position : reader.position + 3] != PARA_INHERENT:
            continue
        reader.take(3)
        for _ in range(reader.compact()):  # bitfields, each with its validator and signature
            reader.take((reader.compact() + 7) // 8)
            reader.take(4 + 64)
        for _ in range(reader.compact()):
            yield _candidate(reader)


def _candidate(reader: Reader) -> Json:
    descriptor = reader.take(DESCRIPTOR_BYTES)
    start = reader.position
    upward = [payload.hex() for payload in reader.items(reader.bytes)]
    horizontal = [
        {"recipient": recipient, "data": data.hex()}
        for recipient, data in reader.items(lambda: (reader.u32(), reader.bytes()))
    ]
    reader.option(reader.bytes)  # new validation code
    reader.bytes()  # head data
    processed, watermark = reader.u32(), reader.u32()
    commitments = reader.data[start : reader.position]
    for _ in range(reader.compact()):  # validity votes: implicit or explicit, with a signature
        reader.take(1 + 64)
    reader.take((reader.compact() + 7) // 8)  # validators
    return {
        "para": int.from_bytes(descriptor[:4], "little"),
        "parent": bytes(descriptor[4:36]),
        "upward_messages": upward,
        "horizontal_messages": horizontal,
        "processed_downward_messages": processed,
        "hrmp_watermark": watermark,
        "commitments_hash": blake2b(commitments, digest_size=32).hexdigest(),
    }


def _inclusions(block: Json) -> Iterator[tuple[int, str]]:
    (events,) = block["state_getStorage"].values()
    reader = Reader(bytes.fromhex(events[2:]))
    for _ in range(reader.compact()):
        reader.take(5)  # phase: an extrinsic's index
        pallet, event = reader.take(2)
        assert pallet == PARA_INCLUSION, f"an event of pallet {pallet}"
        descriptor = reader.take(DESCRIPTOR_BYTES)
        commitments = reader.take(32)
        reader.bytes()  # head data
        reader.take(4 if event == 2 else 8)  # core; group, unless it timed out
        reader.items(lambda: reader.take(32))  # topics
        if event == INCLUDED:
            yield int.from_bytes(descriptor[:4], "little"), bytes(commitments).hex()
