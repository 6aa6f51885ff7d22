# SPDX-License-Identifier: Apache-2.0
"""Fetches the blocks of a range, with what their conversion reads of storage, in any order of ranges and in any process.

What is read follows from the block and the one before it alone: a lane's state is not needed, so ranges are independent.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from typing import Final, NamedTuple

from validator.plugin.api import DecodeError
from validator_relay_chain import keys
from validator_relay_chain.archive import Blocks, Ends, Kept, KeptChain, Range, write_range
from validator_relay_chain.block import RawBlock
from validator_relay_chain.block_reads import BlockReads, read_heads
from validator_relay_chain.config import ChainSource
from validator_relay_chain.errors import BadAnswer, NotKnownHere, UndecodableBlock
from validator_relay_chain.fetch import Ahead, Fetched, Fetcher, Wanted
from validator_relay_chain.header import Header, from_hex, to_hex
from validator_relay_chain.limits import BLAMES_MAX, HASHES_PER_CALL
from validator_relay_chain.metadata import MetadataCache, Runtime
from validator_relay_chain.oracle.gather import read_sample
from validator_relay_chain.pool import Clock, NodePool, Stopped
from validator_relay_chain.storage import Value, sent_since


class Work(NamedTuple):
    """What every process that fetches ranges of a chain has to know. It can be pickled."""

    source: ChainSource
    in_flight: int

    @property
    def genesis(self) -> bytes:
        """The hash of block 0."""
        return from_hex(self.source.genesis, "genesis", 32)


class RangeFetcher:
    """Fetches ranges of one chain, one at a time. ``tell`` gets lines about the nodes; ``stop`` ends pauses and fetching."""

    def __init__(self, work: Work, stop: threading.Event, tell: Callable[[str], None]) -> None:
        self._work, self._stop, self._tell = work, stop, tell
        rpc = work.source.rpc
        first = os.getpid() % len(rpc)  # processes spread over the nodes
        self._pool = NodePool((*rpc[first:], *rpc[:first]), Clock(stop.is_set), genesis=work.genesis, tell=tell)
        self._under_way = Blocks()
        """The blocks of the range that is being read."""
        self._chain = KeptChain(self._pool, MetadataCache(work.source.metadata_folder), blocks=self._under_way)

    def fetch(self, wanted: Range) -> None:
        """Write the file of a range. Raises `FollowError`, and `Stopped` if it is to stop.

        A node whose blocks do not follow each other is left, and the range begun again, `BLAMES_MAX` times for each node.
        """
        for left in reversed(range(BLAMES_MAX * self._pool.size)):
            try:
                self._fetch(wanted)
            except (BadAnswer, NotKnownHere) as error:
                if not left:
                    raise
                self._pool.blame(BadAnswer(str(error)))
            else:
                return
            finally:
                self._under_way.kept.clear()

    def close(self) -> None:
        """Close the connection."""
        self._pool.close()

    def _fetch(self, wanted: Range) -> None:
        parent, last = (self._chain.hash_at(number) for number in (wanted.first - 1, wanted.last))
        ends = Ends(parent, last, self._chain.version(parent))
        write_range(self._work.source.blocks_folder, wanted, self._work.genesis, ends, self._blocks(wanted, ends))

    def _blocks(self, wanted: Range, ends: Ends) -> Iterator[Kept]:
        """Yield the blocks of a range in order, with all that is read with them.

        A block waits until the next one is read: at the end of a session that reads something of its parent.
        """
        chain, (parent, last, version) = self._chain, ends
        runtime = chain.runtime(parent, version=version)
        paras = {keys.para_of(key) for item in (keys.PARA_LIFECYCLES, keys.DMP_HEADS)
                 for page in chain.keys_of(item, parent) for key in page}  # fmt: skip
        ahead = Ahead(read_heads(chain, paras, parent), sorted(paras), runtime.has_downward_pages)
        reading: deque[tuple[Kept, Future[None]]] = deque()
        before = _Before(parent)
        with Fetcher(chain, self._work.in_flight) as fetcher:
            with fetcher.blocks(self._wanted(wanted), ahead) as blocks:
                for fetched in blocks:
                    if self._stop.is_set():
                        raise Stopped("asked to stop")
                    step = self._step(before, fetched, runtime, ahead, wanted)
                    kept = self._under_way.kept[step.header.hash]
                    reading.append((kept, fetcher.submit(step.read, chain)))
                    before = _Before(step.header.hash, fetched.lists)
                    if step.header.updates_runtime:
                        version = chain.version(step.header.hash)
                        runtime = chain.runtime(step.header.hash, version=version)
                        ahead.has_pages = runtime.has_downward_pages
                    kept.version = version
                    if len(reading) > 2 * self._work.in_flight:
                        yield self._first_of(reading)
            if before.hash != last:
                raise BadAnswer(f"block {wanted.last}: expected {to_hex(last)}, found {to_hex(before.hash)}")
            while reading:
                yield self._first_of(reading)

    def _first_of(self, reading: deque[tuple[Kept, Future[None]]]) -> Kept:
        """Return the first block once it and the next one are read."""
        kept, read = reading.popleft()
        read.result()
        if reading:
            reading[0][1].result()
        self._under_way.kept.pop(kept.raw.header.parent_hash, None)
        return kept

    def _wanted(self, wanted: Range) -> Iterator[Wanted]:
        numbers = range(wanted.first, wanted.last + 1)
        for at in range(0, len(numbers), HASHES_PER_CALL):
            part = numbers[at : at + HASHES_PER_CALL]
            yield from map(Wanted, part, self._chain.hashes_at(part) or repeat(None))

    def _step(self, before: _Before, fetched: Fetched, runtime: Runtime, ahead: Ahead, wanted: Range) -> _Step:
        header = fetched.raw.header
        if header.parent_hash != before.hash:
            raise BadAnswer(
                f"block {header.number}: expected a child of {to_hex(before.hash)}, found one of {to_hex(header.parent_hash)}"
            )
        ends_session = _ends_session(fetched.raw, runtime)
        reads = BlockReads(self._chain, header, fetched.heads, fetched.lists, fetched.queues, runtime)
        if ends_session:
            ahead.para_ids = sorted({*ahead.para_ids, *reads.lifecycles()})
        is_edge = header.number in (wanted.first, wanted.last)
        every = self._work.source.compare_every_blocks
        is_sampled = every > 0 and (is_edge or ends_session or header.number % every == 0)
        return _Step(
            header, before, fetched.lists, reads, runtime, tuple(ahead.para_ids),
            is_edge=is_edge, ends_session=ends_session, is_sampled=is_sampled,
        )  # fmt: skip


class _Before(NamedTuple):
    """A block's parent."""

    hash: bytes
    lists: tuple[Value, Value] | None = None
    """Of requests to open and to close, unless it is in another range."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A block, and what is to be read with it."""

    header: Header
    before: _Before
    lists: tuple[Value, Value]
    reads: BlockReads
    runtime: Runtime
    para_ids: tuple[int, ...]
    is_edge: bool
    """Whether it is the first or the last block of its range."""
    ends_session: bool
    is_sampled: bool

    def read(self, chain: KeptChain) -> None:
        """Read what is missing: the chain keeps it. What does not decode is left to the conversion, which says so. Raises `NodeError`."""
        self._read_queues(chain)
        if self.lists != self.before.lists:
            self._read_requests()
        if self.is_edge or self.ends_session:
            self.reads.channels()
        if self.ends_session:
            with suppress(UndecodableBlock):
                self.reads.configuration()
        if self.is_sampled:
            read_sample(chain, self.header, self.para_ids, self.runtime.unread, ends_session=self.ends_session)

    def _read_queues(self, chain: KeptChain) -> None:
        """Read the downward queues whose heads the block has moved, unless they were read with it: a session may bring paras."""
        kept, has_pages = chain.blocks.find(self.header.hash), self.runtime.has_downward_pages
        items = (keys.DMP_QUEUES, keys.DMP_META) if has_pages else (keys.DMP_QUEUES,)
        before, after = (read_heads(chain, self.para_ids, each) for each in (self.before.hash, self.header.hash))
        for para in self.para_ids:
            is_read = kept is not None and all(keys.para_key(item, para) in kept.values for item in items)
            if before[para] == after[para] or is_read:
                continue
            with suppress(DecodeError):
                sent_since(
                    para,
                    self.header.number,
                    lambda wanted: chain.values(wanted, self.header.hash),
                    has_pages=has_pages,
                )

    def _read_requests(self) -> None:
        """Read the requests to open that there are, and the channels of those that are gone."""
        open_, _ = self.reads.request_lists()
        for channel in sorted(open_):
            self.reads.open_request(channel)
        if self.before.lists is not None:
            self.reads.channels(self.reads.requests_in(self.before.lists[0]) - open_)


def _ends_session(raw: RawBlock, runtime: Runtime) -> bool:
    """Return whether a session begins in a block; a block whose events do not decode is taken for one."""
    try:
        events = runtime.lane_events(raw.events)
    except UndecodableBlock:
        return True
    return any(each.pallet == "Session" and each.name == "NewSession" for each in events)


_FETCHERS: Final[dict[Work, RangeFetcher]] = {}
"""Of this process: connections and metadata stay from one range to the next."""


def fetch_range(work: Work, wanted: Range, stop: threading.Event, tell: Callable[[str], None]) -> None:
    """Write the file of a range with what this process has of an earlier one. Raises `FollowError`."""
    fetcher = _FETCHERS.get(work)
    if fetcher is None:
        fetcher = _FETCHERS[work] = RangeFetcher(work, stop, tell)
    fetcher.fetch(wanted)
