# SPDX-License-Identifier: Apache-2.0
"""The state of handlers: bytes by plugin and key, in pages next to those of paras.

A key's hash decides which of `BUCKETS` pages holds it, so saving and hashing cost only what has changed. The owners of these pages follow
those of paras: `FIRST_OWNER` plus the bucket. State belongs to a plugin's name, not to its version: a new version continues with the state
of the old one.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final, TypeVar

from validator.core.handlers.errors import ContextError
from validator.core.limits import HANDLER_STATE_BYTES_MAX
from validator.core.scale import DecodeError, Encoding

K = TypeVar("K")
V = TypeVar("V")

BUCKETS: Final = 1024
FIRST_OWNER: Final = 2**32
"""The owner of the first bucket's page: one more than the greatest para id."""

PAGE: Final = Encoding("handler state encoding", 0x81)
"""Version 1; the highest bit distinguishes these pages from those of paras."""


class HandlerStates:
    """The keyed states of all plugins of one lane. Invariant: `bytes_used` is the sum of a plugin's key and value lengths, never zero."""

    def __init__(self) -> None:
        self._buckets: dict[int, dict[tuple[str, bytes], bytes]] = {}
        self.bytes_used: dict[str, int] = {}
        self.touched: dict[int, None] = {}
        """Owners whose pages have changed since the last look; derived, not part of the state."""

    def get(self, plugin: str, key: bytes) -> bytes | None:
        """Return a value, or None if there is none."""
        return self._buckets.get(_bucket(plugin, key), {}).get((plugin, key))

    def put(self, plugin: str, key: bytes, value: bytes | None) -> None:
        """Set a value, or remove it with None. Raises `ContextError`, and changes nothing, if the plugin would exceed its limit."""
        number = _bucket(plugin, key)
        bucket = self._buckets.get(number, {})
        before = bucket.get((plugin, key))
        if value is None and before is None:
            return
        size = self.bytes_used.get(plugin, 0)
        size -= 0 if before is None else len(key) + len(before)
        size += 0 if value is None else len(key) + len(value)
        if size > HANDLER_STATE_BYTES_MAX and value is not None:
            raise ContextError(f"expected at most {HANDLER_STATE_BYTES_MAX} bytes of state, found {size}")
        if value is None:
            del bucket[plugin, key]
        else:
            bucket[plugin, key] = value
        _keep(self._buckets, number, bucket)
        _keep(self.bytes_used, plugin, size)
        self.touched[FIRST_OWNER + number] = None

    def entries(self, plugin: str | None = None) -> Iterator[tuple[str, bytes, bytes]]:
        """Yield plugin, key and value of all entries, or of one plugin's, ordered by plugin and key."""
        for name, key in sorted(each for bucket in self._buckets.values() for each in bucket):
            if plugin is None or name == plugin:
                yield name, key, self._buckets[_bucket(name, key)][name, key]

    def owners(self) -> list[int]:
        """Return the owners of pages, ascending."""
        return sorted(FIRST_OWNER + number for number in self._buckets)

    def page(self, owner: int) -> bytes | None:
        """Return the canonical encoding of a bucket, or None if it is empty."""
        bucket = self._buckets.get(owner - FIRST_OWNER)
        if not bucket:
            return None
        out = PAGE.begin()
        out.u64(owner)
        out.compact(len(bucket))
        for (plugin, key), value in sorted(bucket.items()):
            out.bytes(plugin.encode())
            out.bytes(key)
            out.bytes(value)
        return bytes(out.buffer)

    def load(self, page: bytes) -> int:
        """Load a page that `page` returned, and return its owner. Raises `DecodeError`."""
        reader = PAGE.read(page)
        owner = reader.u64()
        for _ in range(reader.compact()):
            try:
                plugin, key, value = reader.bytes().decode(), reader.bytes(), reader.bytes()
            except UnicodeDecodeError as error:
                raise DecodeError(f"a plugin's name: {error}") from None
            if FIRST_OWNER + _bucket(plugin, key) != owner:
                raise DecodeError(f"key {key.hex()} of {plugin} lies in the page of owner {owner}")
            try:
                self.put(plugin, key, value)
            except ContextError as error:
                raise DecodeError(f"{plugin}: {error}") from None
        reader.end()
        if self.page(owner) != page and page[0] == PAGE.version:
            raise DecodeError(f"the page of owner {owner} is not in canonical form")
        self.touched.clear()
        return owner


def owner_of(page: bytes) -> int:
    """Return the owner of a page. Raises `DecodeError`."""
    return PAGE.read(page).u64()


def is_handler_page(page: bytes) -> bool:
    """Return whether a page holds handler state rather than a para's state."""
    return page[:1] >= b"\x80"


def _bucket(plugin: str, key: bytes) -> int:
    digest = blake2b(plugin.encode() + b"\x00" + key, digest_size=2).digest()
    return int.from_bytes(digest, "little") % BUCKETS


def _keep(mapping: dict[K, V], key: K, value: V) -> None:
    if value:
        mapping[key] = value
    else:
        mapping.pop(key, None)
