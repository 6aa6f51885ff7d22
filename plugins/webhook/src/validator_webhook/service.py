# SPDX-License-Identifier: Apache-2.0
"""The transport as a whole: loads the subscriptions, lets a courier run for each, keeps their positions, and ends in order."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, TypeVar

from validator.plugin.api import Measure, TransportContext
from validator_webhook import figures, records
from validator_webhook.addresses import check_url
from validator_webhook.config import MADE, Configuration, Definition
from validator_webhook.delivery import Clocks, Courier, Subscription
from validator_webhook.limits import COMMIT_S, DRAIN_S, POLL_S, SUBSCRIPTIONS_MAX
from validator_webhook.listener import Listener
from validator_webhook.reading import Batch, Behind, Recent
from validator_webhook.records import ACTIVE, PARKED, REMOVED, SUBSCRIPTIONS, Position, decode_position
from validator_webhook.sending import CheckedNetwork, Names, Sender
from validator_webhook.signing import Secrets, parse_secrets, parse_token, read_text
from validator_webhook.subscriptions import (
    CONFIGURATION,
    HTTP,
    NotNow,
    activate,
    newest,
    of_configuration,
    of_http,
    park,
    shown,
    to_record,
)

LOG: Final = logging.getLogger("validator_webhook")
T = TypeVar("T")


class Service:
    """Webhooks between ``context`` and receivers; `run` works until ``context.stopping``.

    ``chance`` is the one source of jitter. Raises ``ValueError``: a secret or token that cannot be read, certificates that cannot be used.
    """

    def __init__(
        self,
        context: TransportContext,
        config: Configuration,
        *,
        clocks: Clocks | None = None,
        names: Names | None = None,
    ) -> None:
        self._context, self._config = context, config
        self._clocks = clocks or Clocks(chance=random.SystemRandom().random)
        self._names = names or Names()
        self._master = self._secrets("secret", config.secret_file, config.secret_env)
        self._token = parse_token(read_text("token", config.token_file, config.token_env)) if config.listens else None
        self._own_secrets = {
            name: parse_secrets(
                f"subscriptions.{name}", read_text(f"subscriptions.{name}: secret", each.secret_file, each.secret_env)
            )
            for name, each in config.subscriptions.items()
        }
        self._tls = _tls(config.ca_file)
        self.subscriptions: dict[str, Subscription] = {}
        """Those that are active or parked."""
        self.port = 0
        """The port on which it listens."""
        self._couriers: dict[str, asyncio.Task[None]] = {}
        self._senders: dict[str, Sender] = {}
        self._seen: dict[str, tuple[Recent, int]] = {}
        """By subscription, up to which entry it has looked at the recent records."""
        self._recent: Recent | None = None
        self._behind = Behind(context)
        self._kafka = ThreadPoolExecutor(1, "commits")
        self._slices = ThreadPoolExecutor(1, "slices")

    # --- from start to end ---

    async def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serve until the transport has to stop. Raises what reading and writing Kafka raises, and ``OSError`` if it cannot listen."""
        loop = self._loop = asyncio.get_running_loop()
        self._failed: asyncio.Future[None] = loop.create_future()
        self._ending, self._arrived, self._keeping = asyncio.Event(), asyncio.Event(), asyncio.Lock()
        self._is_called = False
        listener = None
        try:
            await self._load()
            self._context.measure(self.measures)
            if self._token is not None:
                listener = Listener(self, self._token, self._config.address)
                self.port = await listener.start()
            for subscription in list(self.subscriptions.values()):
                self._start(subscription)
            LOG.info(
                "%d subscriptions, %d of them parked",
                len(self.subscriptions),
                sum(map(_is_parked, self.subscriptions.values())),
            )
            on_ready()
            await self._until_stopped()
        finally:
            if listener is not None:
                await listener.stop()
            await self._drain()

    async def _until_stopped(self) -> None:
        keeps = asyncio.ensure_future(self._keep_from_time_to_time())
        try:
            while not self._context.stopping:
                done, _ = await asyncio.wait((self._failed, keeps), timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    each.result()
            self._ending.set()
            self._news()
            if self._couriers:
                await asyncio.wait(self._couriers.values(), timeout=DRAIN_S)
            await self.keep()
        finally:
            keeps.cancel()

    async def _drain(self) -> None:
        """End everything; what is under way is delivered again."""
        self._ending.set()
        self._news()
        couriers = list(self._couriers.values())
        for courier in couriers:
            courier.cancel()
        await asyncio.gather(*couriers, return_exceptions=True)
        for sender in self._senders.values():
            await sender.close()
        if self._recent is not None:
            await self._in(self._kafka, self._recent.stop)
        for executor in (self._kafka, self._slices):
            executor.shutdown(wait=False, cancel_futures=True)

    async def _load(self) -> None:
        """Restore the subscriptions, and take those of the configuration."""
        kept = await self._in(self._slices, self._kept)
        now_ms = self._clocks.now_ms()
        changed: list[Subscription] = []
        for name, record in kept.items():
            if record["source"] == HTTP and record["state"] != REMOVED:
                if self._master is None:
                    raise ValueError(
                        f"secret_file: subscription {name} was made over HTTP: expected the secret from which its own is derived"
                    )
                self.subscriptions[name] = of_http(record, self._position(name) or Position({}), self._master)
            elif (
                record["source"] == CONFIGURATION
                and name not in self._config.subscriptions
                and record["state"] != REMOVED
            ):
                gone = of_http(
                    record, self._position(name) or Position({}), self._own_secrets.get(name) or Secrets((b"",))
                )
                gone.state, gone.since_ms = REMOVED, now_ms
                changed.append(gone)
        for name, configured in self._config.subscriptions.items():
            subscription, is_changed = of_configuration(
                name, configured, self._own_secrets[name], kept.get(name), self._position(name), now_ms, _uid
            )
            if subscription.state == REMOVED:  # it was taken out of the configuration, and is back
                activate(subscription, now_ms)
                is_changed = True
            self.subscriptions[name] = subscription
            await self._begin(subscription)
            if is_changed:
                changed.append(subscription)
        if len(self.subscriptions) > SUBSCRIPTIONS_MAX:
            raise ValueError(
                f"subscriptions: expected at most {SUBSCRIPTIONS_MAX} with those made over HTTP, found {len(self.subscriptions)}"
            )
        for subscription in self.subscriptions.values():
            why = await self._objection(subscription.definition)
            if why is not None and subscription.source == CONFIGURATION:
                raise ValueError(f"subscriptions.{subscription.id}: {why}")
            if why is not None and subscription.state == ACTIVE:
                park(subscription, why, now_ms)
                changed.append(subscription)
        await self.keep(changed)
        await self._read_topics()

    def _kept(self) -> dict[str, Any]:
        reader = self._context.reader([SUBSCRIPTIONS])
        found = []
        while True:
            record = reader.receive(POLL_S)
            if record is not None:
                found.append(records.decode(record.value))
            elif reader.positions() == reader.ends() or self._context.stopping:
                break
        reader.close()
        return dict(newest(found))

    def _position(self, name: str) -> Position | None:
        cursor = self._context.cursor(name)
        return None if cursor is None else decode_position(name, cursor)

    async def _begin(self, subscription: Subscription) -> None:
        """Give topics that are new to a subscription their first position."""
        new = subscription.topics - {topic for topic, _ in subscription.next}
        if new:
            try:
                subscription.moved(
                    await self._in(self._slices, self._behind.starts, new, subscription.definition.start)
                )
            except ValueError:
                return  # `_objection` says so
        subscription.changed = True

    async def _objection(self, definition: Definition) -> str | None:
        """Return why a definition cannot be served, in one line: its URL, or a topic that nobody can read."""
        try:
            check_url(definition.url, allow_http=self._config.allow_http, allowed=self._config.allowed)
            await self._in(self._slices, self._behind.starts, frozenset(definition.topics), "now")
        except ValueError as error:
            return str(error)
        return None

    # --- what requests do ---

    async def create(self, definition: Definition) -> Subscription:
        """Make a subscription. Raises ``ValueError`` for what is wrong with it, `NotNow` if there are too many."""
        assert self._master is not None
        if (why := await self._objection(definition)) is not None:
            raise ValueError(why)
        if len(self.subscriptions) >= SUBSCRIPTIONS_MAX:
            raise NotNow(f"there are {SUBSCRIPTIONS_MAX} subscriptions already: remove one")
        uid, now_ms = _uid(), self._clocks.now_ms()
        subscription = Subscription(
            id=MADE + uid,
            uid=uid,
            definition=definition,
            source=HTTP,
            created_ms=now_ms,
            since_ms=now_ms,
            secrets=self._master.derived(uid),
        )
        self.subscriptions[subscription.id] = subscription  # counted from here on
        await self._begin(subscription)
        await self.keep([subscription])
        await self._read_topics()
        self._start(subscription)
        LOG.info("%s: made over HTTP", subscription.id)
        return subscription

    async def remove(self, name: str) -> None:
        """Remove a subscription. Raises ``KeyError``, and `NotNow` for one of the configuration."""
        subscription = self.subscriptions[name]
        if subscription.source == CONFIGURATION:
            raise NotNow(f"{name} is part of the configuration: take it out there")
        del self.subscriptions[name]
        await self._stop(name)
        subscription.state, subscription.since_ms, subscription.next = REMOVED, self._clocks.now_ms(), {}
        subscription.reason = subscription.at = None
        await self.keep([subscription])
        await self._read_topics()
        LOG.info("%s: removed over HTTP", name)

    async def resume(self, name: str, *, skip: bool) -> Subscription:
        """Let a parked subscription continue where it stopped, or behind that record. Raises ``KeyError``, ``ValueError``, `NotNow`."""
        subscription = self.subscriptions[name]
        if subscription.state != PARKED:
            raise NotNow(f"{name} is not parked")
        if (why := await self._objection(subscription.definition)) is not None:
            raise ValueError(why)
        if subscription.state != PARKED:
            raise NotNow(f"{name} is being resumed already")
        if skip and subscription.at is not None:
            topic, partition, offset = subscription.at.rsplit("/", 2)
            subscription.moved({(topic, int(partition)): int(offset) + 1})
        activate(subscription, self._clocks.now_ms())
        await self._stop(name)
        await self.keep([subscription])
        self._start(subscription)
        LOG.info("%s: resumed%s", name, " behind the record at which it was parked" if skip else "")
        return subscription

    def shown(self, subscription: Subscription) -> dict[str, Any]:
        return shown(subscription, self._waiting(subscription))

    # --- couriers ---

    def _start(self, subscription: Subscription) -> None:
        if subscription.state != ACTIVE or self._ending.is_set():
            return
        network = CheckedNetwork(self._names.resolve, self._config.allowed)
        sender = self._senders[subscription.id] = Sender(network, self._tls, self._config.timeout_seconds)
        courier = Courier(
            subscription,
            self,
            sender,
            self._clocks,
            self._config.park_after_seconds,
            lambda each: self.keep([each]),
            self._ending,
        )
        task = self._couriers[subscription.id] = asyncio.ensure_future(courier.run())
        task.add_done_callback(self._ended)

    async def _stop(self, name: str) -> None:
        courier, sender = self._couriers.pop(name, None), self._senders.pop(name, None)
        self._seen.pop(name, None)
        if courier is not None:
            courier.cancel()
            await asyncio.gather(courier, return_exceptions=True)
        if sender is not None:
            await sender.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)

    # --- records ---

    async def next(self, subscription: Subscription) -> Batch:
        """Return what comes after a subscription's position, waiting for it; nothing once the transport ends."""
        topics, wanted = subscription.topics, subscription.definition.wanted
        while not self._ending.is_set():
            recent, arrived = self._recent, self._arrived
            before, seen = self._seen.get(subscription.id, (None, 0))
            taken = (
                None
                if recent is None
                else recent.take(topics, subscription.next, seen if before is recent else None, wanted)
            )
            if taken is None:
                batch = await self._in(self._slices, self._behind.read, topics, dict(subscription.next), wanted)
                if batch.entries or batch.removed or batch.next != subscription.next:
                    return batch
                await self._clocks.sleep(POLL_S)  # the reader of recent records is about to be replaced
                continue
            batch, seen = taken
            assert recent is not None
            self._seen[subscription.id] = recent, seen
            if batch.entries:
                return batch
            subscription.moved(batch.next)
            await arrived.wait()
        return Batch([], {})

    async def _read_topics(self) -> None:
        """Read the topics that anybody wants, from where they were read before."""
        async with self._keeping:
            topics = frozenset(topic for each in self.subscriptions.values() for topic in each.topics)
            before = self._recent
            if before is not None and before.topics == topics:
                return
            self._recent = (
                None
                if not topics
                else await self._in(self._kafka, self._recent_of, topics, {} if before is None else before.next)
            )
            if before is not None:
                await self._in(self._kafka, before.stop)
            self._news()

    def _recent_of(self, topics: frozenset[str], starts: dict[records.Partition, int]) -> Recent:
        def failed(error: BaseException) -> None:
            self._loop.call_soon_threadsafe(self._fail, error)

        return Recent(self._context, topics, starts, self._changed, failed)

    def _changed(self) -> None:
        """Records have arrived. Any thread may call it."""
        if not self._is_called:
            self._is_called = True
            self._loop.call_soon_threadsafe(self._news)

    def _news(self) -> None:
        self._is_called = False
        arrived, self._arrived = self._arrived, asyncio.Event()
        arrived.set()

    # --- keeping ---

    async def keep(self, changed: Iterable[Subscription] = ()) -> None:
        """Keep the records about some subscriptions and all positions that have changed, all or nothing. Raises what `commit` does."""
        async with self._keeping:
            written = {each.id: each for each in changed}
            moved = {each.id: each for each in self.subscriptions.values() if each.changed} | written
            if not moved:
                return
            for each in moved.values():
                each.changed = False
            records_ = [
                (SUBSCRIPTIONS, *self._context.encode(SUBSCRIPTIONS, to_record(each))) for each in written.values()
            ]
            cursors = {name: each.position.encode() for name, each in moved.items()}
            await self._in(self._kafka, self._context.commit, records_, cursors)

    async def _keep_from_time_to_time(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_S)
            await self.keep()

    # --- figures ---

    def _waiting(self, subscription: Subscription) -> int:
        ends = {} if self._recent is None else self._recent.next
        return sum(
            max(0, end - subscription.next.get(place, 0))
            for place, end in ends.items()
            if place[0] in subscription.topics
        )

    def measures(self) -> Iterator[Measure]:
        """Yield the values of all metrics; another thread may call it."""
        now_s = self._clocks.monotonic_s()
        for each in list(self.subscriptions.values()):
            yield from figures.values(each, self._waiting(each), now_s)

    # --- small ---

    def _in(self, executor: ThreadPoolExecutor, call: Callable[..., T], *arguments: Any) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(executor, call, *arguments)

    def _secrets(self, name: str, file: str | None, variable: str | None) -> Secrets | None:
        return None if file is None and variable is None else parse_secrets(name, read_text(name, file, variable))


def _is_parked(subscription: Subscription) -> bool:
    return subscription.state == PARKED


def _uid() -> str:
    return token_hex(6)


def _tls(ca_file: str | None) -> ssl.SSLContext:
    """Return what verifies receivers' certificates. Raises ``ValueError``."""
    if ca_file is not None and not Path(ca_file).is_file():
        raise ValueError(f"ca_file: expected a file, found none at {ca_file}")
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"ca_file: {ca_file}: {error}") from None
