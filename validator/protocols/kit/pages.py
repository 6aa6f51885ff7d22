# SPDX-License-Identifier: Apache-2.0
"""The layout that pages share: a version byte, the owner, and nothing at all for an owner that has nothing.

The headroom page, beside the pages of the state, holds whose headroom has changed since it was last emitted.
A restored lane has to emit it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from validator.core.hashing import blake2b_256
from validator.core.rules import OrderedSet
from validator.core.scale import Reader, Upgrade, Writer, upgraded
from validator.core.types import ChannelId, Hash, ParaId


@dataclass(slots=True)
class Touched:
    """What has changed since it was last read: derived, not part of the state."""

    pages: OrderedSet = field(default_factory=dict)
    """Paras whose page of the state encoding has changed."""
    paras: OrderedSet = field(default_factory=dict)
    """Paras whose own headroom has changed."""
    channels: dict[ChannelId, None] = field(default_factory=dict)
    """Channels whose headroom has changed."""


class PageLayout(NamedTuple):
    """How a protocol's pages begin.

    ``version`` is the first byte of every page; ``upgrades`` maps each older version to the function that upgrades a page by one version.
    ``name`` names the encoding in errors.
    """

    version: int
    upgrades: Mapping[int, Upgrade]
    name: str

    def begin(self) -> Writer:
        """Return a page without an owner, to be written on."""
        out = Writer()
        out.u8(self.version)
        return out

    def owned(self, para: ParaId, content: Writer) -> bytes | None:
        """Return a para's page, None if nothing but zeros were written: it has nothing."""
        if not any(content.buffer):
            return None
        return bytes((self.version,)) + para.to_bytes(4, "little") + bytes(content.buffer)

    def read(self, page: bytes) -> Reader:
        """Return a reader after the version byte of a page of the current version. Raises `DecodeError`."""
        return upgraded(page, self.version, self.upgrades, self.name)

    def owner_of(self, page: bytes) -> ParaId:
        """Return whose page it is. Raises `DecodeError`."""
        return self.read(page).u32()

    def is_current(self, page: bytes) -> bool:
        """Say whether encoding what a page holds gives that page again."""
        return page[0] == self.version

    def hashes(self, pages: Iterable[bytes]) -> dict[int, Hash]:
        """Return by owner the hashes of those pages that need not be encoded again. Raises `DecodeError`."""
        return {self.owner_of(page): blake2b_256(page) for page in pages if self.is_current(page)}

    def headroom_page(self, touched: Touched, *, channels: bool = True) -> bytes:
        """Encode whose headroom has changed: paras, then channels unless the protocol's have none."""
        out = self.begin()
        out.compact(len(touched.paras))
        for para in sorted(touched.paras):
            out.u32(para)
        if channels:
            out.compact(len(touched.channels))
            for sender, recipient in sorted(touched.channels):
                out.u32(sender)
                out.u32(recipient)
        return bytes(out.buffer)

    def read_headroom_page(self, page: bytes, *, channels: bool = True) -> Touched:
        """Return what `headroom_page` encoded. Raises `DecodeError`."""
        reader = self.read(page)
        touched = Touched(paras=dict.fromkeys(reader.items(reader.u32)))
        if channels:
            touched.channels = dict.fromkeys(reader.items(lambda: (reader.u32(), reader.u32())))
        reader.end()
        return touched
