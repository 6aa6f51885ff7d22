# SPDX-License-Identifier: Apache-2.0
"""The layout that all pages share: a version byte, then the owner. An owner without content has no page.

The headroom page is separate from the state's pages. It lists the paras and channels whose headroom has changed since it
was last emitted, so that a restored lane emits them.
"""

from __future__ import annotations

from collections.abc import Iterable

from validator.core.hashing import blake2b_256
from validator.core.scale import Encoding, Writer
from validator.core.state import Touched
from validator.core.types import Hash, ParaId


class PageLayout(Encoding):
    """The first bytes of a protocol's pages: the version, and the owner if there is one."""

    __slots__ = ()

    def owned(self, para: ParaId, content: Writer) -> bytes | None:
        """Return a para's page, or None if the content is all zeros: the para owns nothing."""
        if not any(content.buffer):
            return None
        return bytes((self.version,)) + para.to_bytes(4, "little") + bytes(content.buffer)

    def owner_of(self, page: bytes) -> ParaId:
        """Return the owner of a page. Raises `DecodeError`."""
        return self.read(page).u32()

    def hashes(self, pages: Iterable[bytes]) -> dict[int, Hash]:
        """Return, by owner, the hashes of the pages that need no re-encoding. Raises `DecodeError`."""
        return {self.owner_of(page): blake2b_256(page) for page in pages if page[0] == self.version}

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
