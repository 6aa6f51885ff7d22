# SPDX-License-Identifier: Apache-2.0
"""The layout of a lane's pages in its store: paras share a fixed number of slots, so that a save costs what has changed.

A call to the store takes about a millisecond, whatever it carries. With one page per call, a save would take ten seconds for a chain of ten
thousand paras. With everything in one call, a save would write the whole state. So a para's page is in the slot of its id modulo
`PARA_SLOTS`: a chain of today's size has a slot for each para, a very large one has ten paras per slot. Pages that no para owns are in the
slots after these. The head records the store's number of para slots. A store with another number keeps it until it is rewritten completely.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

from validator.core.scale import Reader, Writer, decoding
from validator.lanes.definition import LaneDefinition
from validator.lanes.processor import LaneProcessor

if TYPE_CHECKING:
    from validator.lanes.store import StateBackend

PARA_SLOTS = 1024
"""Slots for the pages of paras, and so the maximum number of store calls that a save needs for them."""

SLOT_BYTES_MAX = 8 * 1024 * 1024
"""Maximum bytes of a slot after the para slots; a lane's waiting records may take many of these."""

HASH_BYTES = 16


@dataclass(slots=True)
class Slots:
    """What is known of a lane's slots in the store, without reading them."""

    sizes: dict[int, int] = field(default_factory=dict)
    hashes: dict[int, bytes] = field(default_factory=dict)
    paras: int = 0
    """Paras that owned pages at the last save."""
    para_slots: int = field(default_factory=lambda: PARA_SLOTS)
    """Slots for the pages of paras in this store."""

    @classmethod
    def of(cls, slots: Mapping[int, bytes], paras: int, para_slots: int) -> Slots:
        """Return what is known of slots that have been read."""
        sizes = {number: len(data) for number, data in slots.items()}
        return cls(sizes, {number: _hash(data) for number, data in slots.items()}, paras, para_slots)

    @property
    def total_bytes(self) -> int:
        return sum(self.sizes.values())

    def hash(self) -> bytes:
        """Return one hash over all slots: the number and hash of each, ascending."""
        total = blake2b(digest_size=HASH_BYTES)
        for number in sorted(self.hashes):
            total.update(number.to_bytes(4, "little") + self.hashes[number])
        return total.digest()

    def unsaved_bytes(self, processor: LaneProcessor) -> int:
        """Estimate how many bytes of para pages a save would write, from the mean page size."""
        in_paras = sum(size for number, size in self.sizes.items() if number < self.para_slots)
        return in_paras * len(processor.lane.rules.changed()) // max(1, self.paras)

    def save(self, processor: LaneProcessor, store: StateBackend, *, everything: bool = False) -> None:
        """Write the pages that have changed since the last save; with ``everything`` write all of them, in `PARA_SLOTS` slots."""
        rules = processor.lane.rules
        owners = rules.owners()
        if everything:
            self.para_slots = PARA_SLOTS
        count = self.para_slots
        changed = {owner % count for owner in (owners if everything else rules.changed())}
        if everything:
            changed.update(number for number in self.sizes if number < count)
        in_slot: dict[int, Writer] = {number: Writer() for number in sorted(changed)}
        for owner in owners:
            out = in_slot.get(owner % count)
            if out is not None and (page := rules.page(owner)) is not None:
                out.u64(owner)
                out.bytes(page)
        for number, out in in_slot.items():
            self._put(store, number, bytes(out.buffer))
        common = _joined(processor.common_pages())
        parts = [common[at : at + SLOT_BYTES_MAX] for at in range(0, len(common), SLOT_BYTES_MAX)]
        for number, part in enumerate(parts, count):
            self._put(store, number, part)
        for number in [number for number in self.sizes if number >= count + len(parts)]:
            self._put(store, number, b"")
        self.paras = len(owners)
        rules.mark_saved()

    def _put(self, store: StateBackend, number: int, data: bytes) -> None:
        if data:
            store.save_slot(number, data)
            self.sizes[number], self.hashes[number] = len(data), _hash(data)
        elif number in self.sizes:
            store.remove_slot(number)
            del self.sizes[number], self.hashes[number]


def load_lane(definition: LaneDefinition, slots: Mapping[int, bytes], para_slots: int) -> tuple[LaneProcessor, Slots]:
    """Return the lane that slots hold, and what is known of them.

    The first ``para_slots`` numbers are for the pages of paras. Raises `core.scale.DecodeError`, `definition.JournalUnreadable`.
    """
    with decoding("a saved page"):
        pages = dict(page for number, data in slots.items() if number < para_slots for page in _pages(data))
        common = Reader(b"".join(slots[number] for number in sorted(slots) if number >= para_slots))
        snapshot = [*common.items(common.bytes), *(pages[owner] for owner in sorted(pages))]
        common.end()
        processor = LaneProcessor.restore(definition, snapshot)
    return processor, Slots.of(slots, len(processor.lane.rules.owners()), para_slots)


def _pages(slot: bytes) -> Iterator[tuple[int, bytes]]:
    reader = Reader(slot)
    while reader.position < len(slot):
        yield reader.u64(), reader.bytes()


def _joined(pages: list[bytes]) -> bytes:
    out = Writer()
    out.compact(len(pages))
    for page in pages:
        out.bytes(page)
    return bytes(out.buffer)


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=HASH_BYTES).digest()
