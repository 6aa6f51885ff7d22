# SPDX-License-Identifier: Apache-2.0
"""A made-up chain whose downward queues move into pages in the middle, and the metadata of its later runtime."""

from __future__ import annotations

from functools import cache

from relay_world import FIRST, SPEC, empty_chain, metadata, runtime
from validator_relay_chain import layout
from validator_simulators.relay_chain.made import MadeCandidate, MadeChain

from validator.plugin.api import Reader, Writer

UPGRADE = FIRST + 8
"""The block after which queues have pages; the next one executes under the new runtime."""
MIGRATED = FIRST + 14
"""The block in which the migration has moved the last message."""
LAST = FIRST + 22
PAGED = SPEC + 1


@cache
def paged_metadata() -> bytes:
    """Return the shipped metadata with the items of 2026 in place of ``Dmp.DownwardMessageQueues``."""
    types = runtime()._types
    tuples = (each for each, found in types.items() if len(found["def"].get("tuple", ())) == 2)
    meta = next(each for each in tuples if layout.shape(types, each) == "(u64,u64)")
    page = next(each for each, found in types.items() if found["path"][-1:] == ["InboundDownwardMessage"])
    raw = metadata()
    name = Writer()
    name.bytes(b"DownwardMessageQueues")
    pallet = Writer()
    pallet.bytes(b"Dmp")
    at = raw.index(bytes(name.buffer))
    count_at = raw.rindex(bytes(pallet.buffer), 0, at) + len(pallet.buffer)
    entry = Reader(raw)
    entry.position = at + len(name.buffer)
    entry.u8()  # modifier
    assert entry.u8() == 1, "a map"
    hashers = entry.bytes()
    key = entry.compact()
    entry.compact()
    entry.bytes()  # default
    entry.items(entry.bytes)  # docs
    counted = Reader(raw)
    counted.position = count_at
    count = counted.compact()
    out = Writer()
    out.buffer += raw[:count_at]
    out.compact(count + 1)
    out.buffer += raw[counted.position : at]
    for item, hashed, value in (
        (b"DownwardMessageQueueMeta", hashers, meta),
        (b"DownwardMessageQueuePages", b"\x02\x05", page),  # Blake2_128Concat, Twox64Concat
    ):
        out.bytes(item)
        out.u8(0)
        out.u8(1)
        out.bytes(hashed)
        out.compact(key)
        out.compact(value)
        out.bytes(b"")
        out.compact(0)
    out.buffer += raw[entry.position :]
    return bytes(out.buffer)


def paged_chain(*, with_pages: bool = True) -> MadeChain:
    """Return a chain in which downward messages wait before, during and after the move into pages; without it for comparison."""
    chain = empty_chain()
    state = chain.state
    chain.add(downward=[*((2004, b"early %d" % at) for at in range(10)), (2000, b"x")])
    while chain.number < LAST:
        number = chain.number + 1
        is_paged = with_pages and chain.number >= UPGRADE
        if is_paged and not state.has_pages:
            state.has_pages = True
            state.next_pages[1000] = 3  # a para that was gone has left dead pages behind
            state.dead_pages[1000] = {}
        if is_paged and number > UPGRADE + 1:
            for para in (2000, 2004):
                waiting = state.downward.get(para)
                if waiting:
                    state.migrate(para, len(waiting) if number == MIGRATED else 1)
        downward = (
            [(2004, b"to 2004 %d" % number), (2004, b"again")] if number % 2 else [(2000, b"to 2000 %d" % number)]
        )
        if number % 5 == 0:
            downward.append((1000, b"to 1000 %d" % number))
        pending = sorted(chain._pending)
        processed = 2 if number % 3 == 0 else 1
        backed = [MadeCandidate(2004, chain.parent, number - 1, processed_downward_messages=processed)]
        chain.add(backed=backed, included=pending, downward=downward, upgrade_to=PAGED if number == UPGRADE else None)
    chain.recording.put_metadata(str(PAGED), paged_metadata() if with_pages else metadata())
    return chain
