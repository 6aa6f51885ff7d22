# SPDX-License-Identifier: Apache-2.0
"""Fetches blocks ahead of their decoding, a few at once, and gives them in order."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Self

from validator_relay_chain.block import RawBlock
from validator_relay_chain.block_reads import read_heads_and_lists
from validator_relay_chain.reading import Value
from validator_relay_chain.source import Chain


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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    @contextmanager
    def blocks(self, wanted: Iterable[Wanted], para_ids: Sequence[int]) -> Iterator[Iterator[Fetched]]:
        """Yield an iterator of the wanted blocks in their order; it raises what fetching a block raised. What is left is given up."""
        under_way: deque[Future[Fetched]] = deque()
        run = _Run()
        try:
            yield self._in_order(iter(wanted), para_ids, under_way, run)
        finally:
            run.failed = -1
            for future in under_way:
                future.cancel()

    def _in_order(
        self, wanted: Iterator[Wanted], para_ids: Sequence[int], under_way: deque[Future[Fetched]], run: _Run
    ) -> Iterator[Fetched]:
        for each in wanted:
            under_way.append(self._threads.submit(self._fetch, each, para_ids, run))
            if len(under_way) >= 2 * self._at_once:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()

    def _fetch(self, wanted: Wanted, para_ids: Sequence[int], run: _Run) -> Fetched:
        if wanted.number > run.failed:
            raise CancelledError  # an earlier block failed: nobody asks for this one
        try:
            return self._fetched(wanted, para_ids)
        except BaseException:
            run.failed = min(run.failed, wanted.number)
            raise

    def _fetched(self, wanted: Wanted, para_ids: Sequence[int]) -> Fetched:
        block_hash = self._chain.hash_at(wanted.number) if wanted.hash is None else wanted.hash
        raw = self._chain.block(block_hash)
        return Fetched(raw, *read_heads_and_lists(self._chain, para_ids, block_hash))
