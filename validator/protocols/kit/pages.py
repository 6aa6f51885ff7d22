# SPDX-License-Identifier: Apache-2.0
"""The layout that all pages share: a version byte, then the owner. An owner without content has no page.

The headroom page is separate from the state's pages. It lists the paras and channels whose headroom has changed since it
was last emitted, so that a restored lane emits them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from validator.core.hashing import blake2b_256
from validator.core.outcomes import ChannelHeadroom, ParaHeadroom
from validator.core.rules import OrderedSet
from validator.core.scale import Reader, Upgrade, Writer, upgraded
from validator.core.types import ChannelId, Hash, ParaId


@dataclass(slots=True)
class Touched:
    """Change marks since the last read. They are derived, not part of the state."""

    pages: OrderedSet = field(default_factory=dict)
    """Paras whose page of the state encoding has changed."""
    paras: OrderedSet = field(default_factory=dict)
    """Paras whose own headroom has changed."""
    channels: dict[ChannelId, None] = field(default_factory=dict)
    """Channels whose headroom has changed."""
    round: int = 0
    """How often headroom was taken. A channel that remembers the round of its mark need not be marked, and looked up, again in it."""

    def take_headroom(
        self, para: Callable[[ParaId], ParaHeadroom], channel: Callable[[ChannelId], ChannelHeadroom]
    ) -> list[ParaHeadroom | ChannelHeadroom]:
        """Return the headroom of the marked paras, then of the marked channels, each ascending, and clear their marks."""
        headroom: list[ParaHeadroom | ChannelHeadroom] = [*map(para, sorted(self.paras))]
        headroom += map(channel, sorted(self.channels))
        self.paras.clear()
        self.channels.clear()
        self.round += 1
        return headroom


class PageLayout(NamedTuple):
    """The first bytes of a protocol's pages.

    ``version`` is the first byte of every page; ``upgrades`` maps each older version to the function that upgrades a page by one version.
    Errors call the encoding ``name``. A page that needs nothing of the newest version may be written in one of those of ``older``, so that
    states which know nothing new keep their bytes.
    """

    version: int
    upgrades: Mapping[int, Upgrade]
    name: str
    older: tuple[int, ...] = ()

    def begin(self) -> Writer:
        """Return a writer for a page without an owner; it holds the version byte."""
        out = Writer()
        out.u8(self.version)
        return out

    def owned(self, para: ParaId, content: Writer) -> bytes | None:
        """Return a para's page, or None if the content is all zeros: the para owns nothing."""
        if not any(content.buffer):
            return None
        return bytes((self.version,)) + para.to_bytes(4, "little") + bytes(content.buffer)

    def read(self, page: bytes) -> Reader:
        """Upgrade a page to the current version and return a reader after its version byte. Raises `DecodeError`."""
        return upgraded(page, self.version, self.upgrades, self.name)

    def owner_of(self, page: bytes) -> ParaId:
        """Return the owner of a page. Raises `DecodeError`."""
        return self.read(page).u32()

    def is_current(self, page: bytes) -> bool:
        """Return whether the page has a version that is written: decoding and encoding it returns the same bytes."""
        return page[0] == self.version or page[0] in self.older

    def hashes(self, pages: Iterable[bytes]) -> dict[int, Hash]:
        """Return, by owner, the hashes of the pages that need no re-encoding. Raises `DecodeError`."""
        return {self.owner_of(page): blake2b_256(page) for page in pages if self.is_current(page)}

    def headroom_page(self, touched: Touched, *, channels: bool = True) -> bytes:
        """Encode the owners whose headroom has changed: paras, then channels if the protocol has headroom for them."""
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
        """Decode a `headroom_page`. Raises `DecodeError`."""
        reader = self.read(page)
        touched = Touched(paras=dict.fromkeys(reader.items(reader.u32)))
        if channels:
            touched.channels = dict.fromkeys(reader.items(lambda: (reader.u32(), reader.u32())))
        reader.end()
        return touched
