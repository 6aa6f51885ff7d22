# SPDX-License-Identifier: Apache-2.0
"""What the conversion of a block needs of the chain besides the block."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from validator.plugin.api import DecodeError
from validator_relay_chain import keys
from validator_relay_chain.errors import BadAnswer, NotKnownHere, ParentUnknown, StatePruned
from validator_relay_chain.header import Header, to_hex
from validator_relay_chain.metadata import Runtime
from validator_relay_chain.rules import decode_configuration
from validator_relay_chain.source import Chain
from validator_relay_chain.storage import (
    HASH_BYTES,
    Channel,
    ChannelId,
    OpenRequest,
    Queued,
    Value,
    decode_channel,
    decode_channels,
    decode_hash,
    decode_open_request,
    sent_since,
)

T = TypeVar("T")


class BlockReads:
    """What one block needs besides itself; methods raise `NodeError`.

    ``heads``, ``lists`` and values of ``queues``, by key, are those that were read with the block.
    """

    def __init__(
        self,
        chain: Chain,
        header: Header,
        heads: Mapping[int, Value],
        lists: tuple[Value, Value],
        queues: Mapping[bytes, Value],
        runtime: Runtime,
    ) -> None:
        self._chain, self._header, self._heads, self._runtime = chain, header, dict(heads), runtime
        self._lists, self._queues = lists, queues

    def heads(self, para_ids: Iterable[int]) -> dict[int, bytes]:
        """Return the heads of downward queues after the block; paras without one are left out."""
        wanted = list(para_ids)
        missing = [para for para in wanted if para not in self._heads]
        if missing:
            self._heads |= read_heads(self._chain, missing, self._header.hash)
        found = {para: self._heads[para] for para in wanted}
        return {
            para: head if len(head) == HASH_BYTES else _hash(head, para)
            for para, head in found.items()
            if head is not None
        }

    def queue(self, para_id: int) -> tuple[Queued, ...]:
        """Return a downward queue after the block, at least as far back as the block's own messages."""
        return self._queue(para_id, self._values)

    def proven_downward(self, para_id: int) -> tuple[bytes | None, tuple[Queued, ...]] | None:
        """Return the head of a downward queue after the block and the queue, both proven; None if no node proves it."""
        key = keys.para_key(keys.DMP_HEADS, para_id)
        proven = self._chain.proven([key], self._header)
        if proven is None:
            return None
        head = proven[key]
        return None if head is None else _hash(head, para_id), self._queue(para_id, self._proven)

    def _values(self, wanted: Sequence[bytes]) -> Mapping[bytes, Value]:
        if all(key in self._queues for key in wanted):
            return self._queues
        return self._chain.values(wanted, self._header.hash)

    def _proven(self, wanted: Sequence[bytes]) -> Mapping[bytes, Value]:
        found = self._chain.proven(wanted, self._header)
        if found is None:
            raise BadAnswer(f"block {self._header.number}: expected a proof of a downward queue, found none")
        return found

    def _queue(self, para_id: int, read: Callable[[Sequence[bytes]], Mapping[bytes, Value]]) -> tuple[Queued, ...]:
        try:
            return sent_since(para_id, self._header.number, read, has_pages=self._runtime.has_downward_pages)
        except DecodeError as error:
            raise BadAnswer(f"block {self._header.number}: downward queue of para {para_id}: {error}") from error

    def request_lists(self) -> tuple[frozenset[ChannelId], frozenset[ChannelId]]:
        """Return the channels of the lists of open and of close requests."""
        open_, closing = map(self.requests_in, self._lists)
        return open_, closing

    def requests_in(self, raw: Value) -> frozenset[ChannelId]:
        """Return the channels of a list of requests."""
        return frozenset() if raw is None else frozenset(self._decoded("a list of requests", decode_channels, raw))

    def open_request(self, channel: ChannelId) -> OpenRequest | None:
        """Return a request to open after the block."""
        raw = self._chain.value(keys.channel_key(keys.HRMP_OPEN_REQUESTS, *channel), self._header.hash)
        return None if raw is None else self._decoded("a request", decode_open_request, raw)

    def channels(self, wanted: Collection[ChannelId] | None = None) -> dict[ChannelId, Channel]:
        """Return the channels after the block, all of them or those among ``wanted``."""
        if wanted is None:
            asked = [key for page in self._chain.keys_of(keys.HRMP_CHANNELS, self._header.hash) for key in page]
        else:
            asked = [keys.channel_key(keys.HRMP_CHANNELS, *channel) for channel in sorted(wanted)]
        found = self._chain.values(asked, self._header.hash) if asked else {}
        return {
            self._decoded("the key of a channel", keys.channel_of, key): self._decoded("a channel", decode_channel, raw)
            for key, raw in found.items()
            if raw is not None
        }

    def _decoded(self, what: str, decode: Callable[[bytes], T], raw: bytes) -> T:
        try:
            return decode(raw)
        except (DecodeError, ValueError) as error:
            raise BadAnswer(f"block {self._header.number}: {what}: {error}") from error

    def lifecycles(self) -> dict[int, int]:
        """Return the lifecycle of every para after the block."""
        return read_lifecycles(self._chain, self._header.hash)

    def configuration(self) -> dict[str, int]:
        """Return the Router's limits after the block, in the layout of the runtime that executed it: migrations run in the next one.

        The value is proven where the node can, so that a node cannot pass another one for it. Raises `UndecodableBlock`.
        """
        raw = self._chain.value(keys.ACTIVE_CONFIG, self._header.hash)
        values, _ = self._chain.checked({keys.ACTIVE_CONFIG: raw}, self._header)
        return decode_configuration(values[keys.ACTIVE_CONFIG], self._runtime)

    def header_number(self, block_hash: bytes) -> int:
        """Return the number of an older block, the relay parent of a candidate. Raises `ParentUnknown`."""
        try:
            return self._chain.number_of(block_hash)
        except (NotKnownHere, StatePruned) as error:
            raise ParentUnknown(
                f"block {self._header.number}: the relay parent of a candidate is block {to_hex(block_hash)}, whose header no node has: "
                f"a node that keeps the headers of all blocks is needed, not a light client ({error})"
            ) from error


def read_heads(chain: Chain, para_ids: Iterable[int], block_hash: bytes) -> dict[int, Value]:
    """Return the heads of downward queues after a block; None where there is none."""
    wanted = {keys.para_key(keys.DMP_HEADS, para): para for para in para_ids}
    return {wanted[key]: value for key, value in chain.values(list(wanted), block_hash).items()}


def read_heads_and_lists(
    chain: Chain, para_ids: Iterable[int], block_hash: bytes
) -> tuple[dict[int, Value], tuple[Value, Value]]:
    """Return the heads of downward queues and the lists of open and of close requests after a block, in one answer."""
    wanted = {keys.para_key(keys.DMP_HEADS, para): para for para in para_ids}
    lists = (keys.HRMP_OPEN_REQUESTS_LIST, keys.HRMP_CLOSE_REQUESTS_LIST)
    found = chain.values([*wanted, *lists], block_hash)
    return {para: found[key] for key, para in wanted.items()}, (found[lists[0]], found[lists[1]])


def read_lifecycles(chain: Chain, block_hash: bytes) -> dict[int, int]:
    """Return the lifecycle of every para after a block."""
    found: dict[int, int] = {}
    for page in chain.keys_of(keys.PARA_LIFECYCLES, block_hash):
        for key, raw in chain.values(page, block_hash).items():
            if raw is None or len(raw) != 1:
                raise BadAnswer(f"lifecycle of para {keys.para_of(key)}: expected one byte")
            found[keys.para_of(key)] = raw[0]
    return found


def _hash(raw: bytes, para_id: int) -> bytes:
    try:
        return decode_hash(raw)
    except DecodeError as error:
        raise BadAnswer(f"head of the downward queue of para {para_id}: {error}") from error
