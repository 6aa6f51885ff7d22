# SPDX-License-Identifier: Apache-2.0
"""Fetches blocks ahead of their decoding, a few at once, and gives them in order."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple, ParamSpec, Self, TypeVar

from validator.plugin.api import DecodeError
from validator_relay_chain.block import RawBlock
from validator_relay_chain.block_reads import read_heads_and_lists
from validator_relay_chain.errors import FollowError
from validator_relay_chain.source import Chain
from validator_relay_chain.storage import Value, sent_since

P = ParamSpec("P")
T = TypeVar("T")


class Wanted(NamedTuple):
    """A block to fetch: its hash, or only its number, which the node's best chain turns into a hash."""

    number: int
    hash: bytes | None = None


class Fetched(NamedTuple):
    """A block, and the heads of downward queues after it."""

    raw: RawBlock
    heads: dict[int, Value]
    lists: tuple[Value, Value]
    """Of requests to open and of requests to close, after the block."""
    queues: dict[bytes, Value]
    """Values of the downward queues whose heads it has moved, by key, as far as they were read ahead."""


@dataclass(slots=True)
class Ahead:
    """What is known when blocks are asked for, so that more can be read with them. It may change while they are fetched."""

    heads: Mapping[int, Value]
    """Heads of downward queues before the first block, by para."""
    para_ids: Sequence[int]
    """Paras whose heads are read."""
    has_pages: bool
    """Whether downward queues are read in pages."""


@dataclass
class _Run:
    """Blocks that are fetched for one iterator."""

    failed: float = math.inf
    """The lowest block that failed. Later ones that have not begun are not fetched any more."""


class Fetcher:
    """Threads that fetch blocks. Use it in ``with``: leaving it waits for calls that are under way."""

    def __init__(self, chain: Chain, at_once: int) -> None:
        self._chain, self._at_once = chain, at_once
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="fetch")
        self._others = ThreadPoolExecutor(at_once, thread_name_prefix="read")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._threads, self._others):
            each.shutdown(wait=True, cancel_futures=True)

    @contextmanager
    def blocks(self, wanted: Iterable[Wanted], ahead: Ahead) -> Iterator[Iterator[Fetched]]:
        """Yield an iterator of the wanted blocks in their order; it raises what fetching a block raised. What is left is given up."""
        under_way: deque[Future[Fetched]] = deque()
        run = _Run()
        try:
            yield self._in_order(iter(wanted), ahead, under_way, run)
        finally:
            run.failed = -1
            for future in under_way:
                future.cancel()

    def submit(self, do: Callable[P, T], *given: P.args, **named: P.kwargs) -> Future[T]:
        """Do something else in a thread, now and not after the blocks that are to be fetched."""
        return self._others.submit(do, *given, **named)

    def _in_order(
        self, wanted: Iterator[Wanted], ahead: Ahead, under_way: deque[Future[Fetched]], run: _Run
    ) -> Iterator[Fetched]:
        before: Future[Mapping[int, Value]] = Future()
        before.set_result(ahead.heads)
        for each in wanted:
            heads: Future[Mapping[int, Value]] = Future()
            under_way.append(self._threads.submit(self._fetch, each, ahead, before, heads, run))
            before = heads
            if len(under_way) >= 2 * self._at_once:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()

    def _fetch(
        self,
        wanted: Wanted,
        ahead: Ahead,
        before: Future[Mapping[int, Value]],
        heads: Future[Mapping[int, Value]],
        run: _Run,
    ) -> Fetched:
        try:
            if wanted.number > run.failed:
                raise CancelledError  # an earlier block failed: nobody asks for this one
            return self._fetched(wanted, ahead, before, heads)
        except BaseException:
            run.failed = min(run.failed, wanted.number)
            raise
        finally:
            heads.cancel()  # nobody waits for what did not come

    def _fetched(
        self, wanted: Wanted, ahead: Ahead, before: Future[Mapping[int, Value]], after: Future[Mapping[int, Value]]
    ) -> Fetched:
        block_hash = self._chain.hash_at(wanted.number) if wanted.hash is None else wanted.hash
        raw = self._chain.block(block_hash)
        heads, lists = read_heads_and_lists(self._chain, ahead.para_ids, block_hash)
        after.set_result(heads)
        return Fetched(raw, heads, lists, self._queues(raw, heads, before, has_pages=ahead.has_pages))

    def _queues(
        self, raw: RawBlock, heads: Mapping[int, Value], before: Future[Mapping[int, Value]], *, has_pages: bool
    ) -> dict[bytes, Value]:
        """Read the downward queues whose heads the block has moved; what fails here is read again where it is needed.

        The heads of the block before are waited for: it was begun before this one.
        """
        header, found = raw.header, dict[bytes, Value]()

        def read(wanted: Sequence[bytes]) -> Mapping[bytes, Value]:
            values = self._chain.values(wanted, header.hash)
            found.update(values)
            return values

        with suppress(FollowError, DecodeError, CancelledError):
            known = before.result()
            for para in sorted(para for para, head in heads.items() if head != known.get(para)):
                sent_since(para, header.number, read, has_pages=has_pages)
        return found
