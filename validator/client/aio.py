# SPDX-License-Identifier: Apache-2.0
"""The client for asyncio. What waits for Kafka does so in a thread, so the event loop continues."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from validator.client import facade
from validator.client.facade import ASK_S_DEFAULT
from validator.client.records import Record
from validator.client.streams import POLL_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from types import TracebackType

    from validator.client.facade import Client, Configuration, DryRun, Progress
    from validator.client.producer import BlockOnItsWay, Producer
    from validator.client.records import (
        ChannelEvent,
        ChannelHeadroom,
        Dispatch,
        ParaHeadroom,
        Receipt,
        Verdict,
    )
    from validator.client.streams import PluginRecord, Positions, Stream

R = TypeVar("R", bound="Record | PluginRecord")


class AsyncStream(Generic[R]):
    """A `Stream` as an asynchronous iterator.

    Threads only look for records, for at most `POLL_S` seconds at a time; the coroutine itself takes them. So what is cancelled takes none.
    """

    def __init__(self, stream: Stream[R], *, follow: bool) -> None:
        self._stream, self._follow = stream, follow
        self._looking: asyncio.Future[int] | None = None
        """The last look, which may still run if whoever waited for it was cancelled."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await asyncio.to_thread(self._stream.close)

    @property
    def positions(self) -> Positions:
        """Where another stream continues behind the records that were taken."""
        return self._stream.positions

    async def __aiter__(self) -> AsyncIterator[R]:
        while True:
            await self._look(POLL_S, 1)
            if not self._stream.waiting and self._stream.at_end and not self._follow:
                return
            while self._stream.waiting:
                yield self._stream.next()

    async def take(self, count: int, timeout_s: float = 60.0) -> list[R]:
        """Return the next ``count`` records, as `Stream.take` does. If it is cancelled, it takes none."""
        deadline = time.monotonic() + timeout_s
        while self._stream.waiting < count:
            left = deadline - time.monotonic()
            if left <= 0:
                raise await asyncio.to_thread(self._stream.too_few, count, timeout_s)
            await self._look(left, count)
        return [self._stream.next() for _ in range(count)]

    async def _look(self, timeout_s: float, count: int) -> None:
        """Look once in a thread, or wait for the look that a cancelled call has left: two would read the stream at the same time."""
        looking = self._looking
        if looking is None or looking.done():
            looking = self._looking = asyncio.ensure_future(asyncio.to_thread(self._stream.look, timeout_s, count))
            looking.add_done_callback(_seen)
        await asyncio.wait((looking,))  # it continues if this call is cancelled
        looking.result()


def _seen(look: asyncio.Future[int]) -> None:
    """Let asyncio not report the error of a look for which nobody waits: the next look raises it again."""
    if not look.cancelled():
        look.exception()


class AsyncProducer:
    """A `Producer` whose blocks are sent by ``async with``."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    @asynccontextmanager
    async def block(self, number: int, **options: Any) -> AsyncIterator[BlockOnItsWay]:
        """Begin a block, and send it at the end of the statement unless an exception leaves it; options as for `Producer.block`."""
        block = self._producer.block(number, **options)
        yield block
        await asyncio.to_thread(block.end)


class AsyncClient:
    """A `Client` for asyncio; its streams take the same arguments."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._client.close)

    def producer(self, lane: str, *, after: int | None = None) -> AsyncProducer:
        """Return a producer of a lane's blocks, which refuses blocks up to ``after``."""
        return AsyncProducer(self._client.producer(lane, after=after))

    async def progress(self, lane: str) -> Progress:
        """Return where a lane stands, as `Client.progress` does."""
        return await asyncio.to_thread(self._client.progress, lane)

    async def dry_run(
        self, lane: str, record: Mapping[str, Any], kind: str = "candidates", *, timeout_s: float = ASK_S_DEFAULT
    ) -> DryRun:
        """Return what a lane would say to a record now, as `Client.dry_run` does."""
        return await asyncio.to_thread(self._client.dry_run, lane, record, kind, timeout_s=timeout_s)

    async def verdicts(self, *, follow: bool = False, **wanted: Any) -> AsyncStream[Verdict]:
        """Return verdicts."""
        return AsyncStream(await asyncio.to_thread(self._client.verdicts, follow=follow, **wanted), follow=follow)

    async def dispatches(self, *, follow: bool = False, **wanted: Any) -> AsyncStream[Dispatch]:
        """Return upward messages that were processed."""
        return AsyncStream(await asyncio.to_thread(self._client.dispatches, follow=follow, **wanted), follow=follow)

    async def channel_events(self, *, follow: bool = False, **wanted: Any) -> AsyncStream[ChannelEvent]:
        """Return changes in the lives of channels."""
        return AsyncStream(await asyncio.to_thread(self._client.channel_events, follow=follow, **wanted), follow=follow)

    async def headroom(self, *, follow: bool = False, **wanted: Any) -> AsyncStream[ParaHeadroom | ChannelHeadroom]:
        """Return what paras and channels can still send."""
        return AsyncStream(await asyncio.to_thread(self._client.headroom, follow=follow, **wanted), follow=follow)

    async def receipts(self, *, follow: bool = False, **wanted: Any) -> AsyncStream[Receipt]:
        """Return the receipts of blocks."""
        return AsyncStream(await asyncio.to_thread(self._client.receipts, follow=follow, **wanted), follow=follow)

    async def plugin_records(self, topic: str, *, follow: bool = False, **wanted: Any) -> AsyncStream[PluginRecord]:
        """Return the records of a plugin's topic."""
        stream = await asyncio.to_thread(self._client.plugin_records, topic, follow=follow, **wanted)
        return AsyncStream(stream, follow=follow)


async def connect(configuration: Configuration = None) -> AsyncClient:
    """Return a client of the configured Kafka, as `validator.client.connect` does."""
    return AsyncClient(await asyncio.to_thread(facade.connect, configuration))


async def in_memory(configuration: Configuration = None) -> AsyncClient:
    """Return a client whose lanes run in this process, as `validator.client.in_memory` does."""
    return AsyncClient(await asyncio.to_thread(facade.in_memory, configuration))
