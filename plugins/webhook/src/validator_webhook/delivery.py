# SPDX-License-Identifier: Apache-2.0
"""One subscription in service: takes its records in order, and delivers one after the other until each is there, or it is parked."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final, Protocol

from validator_webhook.config import Definition
from validator_webhook.reading import Batch, Entry
from validator_webhook.records import ACTIVE, PARKED, Partition, Position
from validator_webhook.schedule import Again, Answer, Delivered, Failure, Outcome, Park, Step, follow_up, words
from validator_webhook.signing import Secrets, identity

LOG: Final = logging.getLogger("validator_webhook")


@dataclass(slots=True, kw_only=True)
class Subscription:
    """A subscription and its state; all of it is kept on Kafka except its secrets and what is counted."""

    id: str
    uid: str
    definition: Definition
    source: str
    created_ms: int
    secrets: Secrets = field(repr=False)
    state: str = ACTIVE
    since_ms: int = 0
    reason: str | None = None
    at: str | None = None
    lane: str = ""
    """The lane of the record at which it is parked, else the one that it wants."""
    next: dict[Partition, int] = field(default_factory=dict)
    """By partition, the offset of the first record that may not have been delivered."""
    failing_since_ms: int | None = None
    delivered: int = 0
    removed: int = 0
    """Offsets that retention has removed before they were delivered."""
    failed: Counter[str] = field(default_factory=Counter)
    """Failed attempts by kind."""
    failures: int = 0
    """Failed attempts in a row."""
    last_failure: str | None = None
    waiting_since_s: float | None = None
    """When the first attempt at the present record began, by the monotonic clock."""
    changed: bool = False
    """Whether the position has changed since it was kept."""

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(self.definition.topics)

    @property
    def position(self) -> Position:
        return Position(dict(self.next), self.failing_since_ms)

    def moved(self, following: Mapping[Partition, int]) -> None:
        """Continue behind what was delivered or is not wanted."""
        if any(self.next.get(place) != offset for place, offset in following.items()):
            self.next.update(following)
            self.changed = True


class Source(Protocol):
    """Where a subscription's records come from."""

    async def next(self, subscription: Subscription) -> Batch:
        """Return what comes after the position, waiting for it."""


class Poster(Protocol):
    """What makes an attempt."""

    async def post(self, url: str, headers: list[tuple[str, str]], body: bytes) -> Outcome:
        """Return what became of it."""


@dataclass(slots=True, kw_only=True)
class Clocks:
    """Time and chance, in one place."""

    chance: Callable[[], float]
    """Returns a number from 0 to 1."""
    wall_s: Callable[[], float] = time.time
    monotonic_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def now_ms(self) -> int:
        return int(self.wall_s() * 1000)


class Courier:
    """Delivers the records of one subscription until it is parked or the transport ends.

    ``parked`` keeps that it is parked, durably. ``ending`` is set when no further attempt should begin.
    """

    def __init__(
        self,
        subscription: Subscription,
        source: Source,
        poster: Poster,
        clocks: Clocks,
        park_after_s: float,
        parked: Callable[[Subscription], Awaitable[None]],
        ending: asyncio.Event,
    ) -> None:
        self._subscription, self._source, self._poster, self._clocks = subscription, source, poster, clocks
        self._park_after_s, self._parked, self._ending = park_after_s, parked, ending

    async def run(self) -> None:
        """Deliver, until the subscription is parked or ``ending``."""
        subscription = self._subscription
        while not self._ending.is_set():
            batch = await self._source.next(subscription)
            if batch.removed:
                subscription.removed += batch.removed
                LOG.warning(
                    "%s: retention has removed %d offsets before they were delivered", subscription.id, batch.removed
                )
            for entry in batch.entries:
                if not await self._deliver(entry):
                    return
                subscription.moved({entry.place: entry.offset + 1})
            subscription.moved(batch.next)

    async def _deliver(self, entry: Entry) -> bool:
        """Return whether the receiver has the record."""
        subscription = self._subscription
        subscription.waiting_since_s = self._clocks.monotonic_s()
        try:
            while not self._ending.is_set():
                outcome = await self._attempt(entry)
                step = self._step(outcome)
                self._note(outcome, is_delivered=isinstance(step, Delivered))
                match step:
                    case Delivered():
                        return True
                    case Park():
                        await self._park(entry, outcome)
                        return False
                    case Again(pause_s):
                        await self._pause(pause_s)
            return False
        finally:
            subscription.waiting_since_s = None

    async def _attempt(self, entry: Entry) -> Outcome:
        subscription = self._subscription
        at = datetime.fromtimestamp(self._clocks.wall_s(), UTC)
        name = identity(*entry.place, entry.offset, subscription.uid)
        return await self._poster.post(
            subscription.definition.url, subscription.secrets.headers(name, at, entry.body), entry.body
        )

    def _step(self, outcome: Outcome) -> Step:
        subscription, now_ms = self._subscription, self._clocks.now_ms()
        since_ms = now_ms if subscription.failing_since_ms is None else subscription.failing_since_ms
        failing_s = max(0, now_ms - since_ms) / 1000
        chance = self._clocks.chance()
        return follow_up(outcome, subscription.failures + 1, failing_s, self._park_after_s, chance, now_ms / 1000)

    def _note(self, outcome: Outcome, *, is_delivered: bool) -> None:
        """Count an attempt, and keep since when attempts have failed."""
        subscription = self._subscription
        if is_delivered:
            if subscription.failures:
                LOG.info("%s: delivers again, after %d failed attempts", subscription.id, subscription.failures)
            subscription.delivered += 1
            subscription.failures, subscription.last_failure = 0, None
            if subscription.failing_since_ms is not None:
                subscription.failing_since_ms, subscription.changed = None, True
            return
        subscription.failures += 1
        subscription.failed[outcome.kind if isinstance(outcome, Failure) else "status"] += 1
        subscription.last_failure = words(outcome)
        if subscription.failing_since_ms is None:
            subscription.failing_since_ms, subscription.changed = self._clocks.now_ms(), True
            LOG.warning("%s: %s; it is tried again", subscription.id, subscription.last_failure)

    async def _park(self, entry: Entry, outcome: Outcome) -> None:
        subscription, now_ms = self._subscription, self._clocks.now_ms()
        if isinstance(outcome, Answer) and outcome.status == HTTPStatus.GONE:
            why = words(outcome)
        else:
            failing_s = (now_ms - (subscription.failing_since_ms or now_ms)) / 1000
            why = f"attempts have failed for {failing_s:.0f} s, the last one: {words(outcome)}"
        subscription.state, subscription.since_ms, subscription.reason = PARKED, now_ms, why
        subscription.at = "/".join(map(str, (*entry.place, entry.offset)))
        subscription.lane = str(entry.record.get("lane") or "")
        LOG.error("%s: PARKED at %s: %s", subscription.id, subscription.at, why)
        await self._parked(subscription)

    async def _pause(self, seconds: float) -> None:
        """Wait, but no longer than until the transport ends."""
        ends = asyncio.ensure_future(self._ending.wait())
        sleeps = asyncio.ensure_future(self._clocks.sleep(seconds))
        try:
            await asyncio.wait((ends, sleeps), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ends.cancel()
            sleeps.cancel()
