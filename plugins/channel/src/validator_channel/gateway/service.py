# SPDX-License-Identifier: Apache-2.0
"""The gateway as a whole: starts the readers and the listener, looks after the registry, and ends in order."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from validator_channel.errors import printable
from validator_channel.events import Event
from validator_channel.gateway.bridge import Bridge
from validator_channel.gateway.config import GatewayConfig
from validator_channel.gateway.feeds import FeedHub
from validator_channel.gateway.intake import Intake
from validator_channel.gateway.measures import Counters
from validator_channel.gateway.readers import LiveReader, SliceReader
from validator_channel.gateway.registry import PeerPolicy, RegistryFile, changes
from validator_channel.limits import CHANGES_SHOWN_MAX, MARK_S, STOP_POLL_S
from validator_channel.net.connection import Connection
from validator_channel.net.listener import Listener
from validator_channel.net.outcomes import Counters as NetCounters
from validator_channel.net.peers import Peer

if TYPE_CHECKING:
    from validator.plugin.api import TransportContext

LOG = logging.getLogger("validator_channel")


class Gateway:
    """A gateway between ``kafka`` and the peers of its registry; `run` works until ``kafka.stopping``.

    Raises `ConfigError` and `TlsError` for files that cannot be used.
    """

    def __init__(self, kafka: TransportContext, config: GatewayConfig) -> None:
        self._kafka = kafka
        self._config = config
        self._limits = config.limits
        self.registry = RegistryFile(Path(config.registry))
        self.counters = Counters()
        self.net_counters = NetCounters()
        self.port = 0
        """The port on which it listens."""
        self._peers: Mapping[int, Peer] = {}

    async def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serve peers until the gateway has to stop, then let their sessions end in order.

        Raises `TlsError`, ``OSError`` if it cannot listen, and whatever reading from Kafka raises.
        """
        loop = asyncio.get_running_loop()
        failed: asyncio.Future[None] = loop.create_future()

        def fail(error: BaseException) -> None:
            if not failed.done():
                failed.set_exception(error)

        self._listener = Listener(
            self._config.tls_files(),
            lambda: self._peers,
            self._handle,
            self._config.session.settings(),
            self._config.listener_limits(),
            log=LOG,
            counters=self.net_counters,
        )
        self._intake = Intake(self._kafka, self._limits, self.counters, _wall_ms, fail)
        live = LiveReader(self._kafka, fail, self._alarm)
        slices = SliceReader(self._kafka, fail, self._alarm)
        self._hub = FeedHub(live.ends, slices.read, self._limits, self.counters)
        self._bridge = Bridge(lambda: self.registry.peers, self._intake, self._hub, self.counters)
        self._set_peers()
        live.start(self._hub.take_live)
        slices.start(self._hub.take_slice)
        chores = asyncio.ensure_future(self._look_after())
        try:
            host, port = self._config.address()
            try:
                await self._listener.start(host, port)
            except OSError as error:
                raise OSError(f"listen: {host}:{port}: {error.strerror or error}") from None
            self.port = self._listener.port
            LOG.info("listening on %s port %d for %d peers", host, self.port, len(self.registry.peers))
            on_ready()
            await self._until_stopped(failed, chores)
        finally:
            chores.cancel()
            await self._drain()
            for worker in (live, slices):
                worker.stop()
                await loop.run_in_executor(None, worker.join)
            self._report()

    def _handle(self, connection: Connection, event: Event) -> None:
        self._bridge.handle(connection, event)

    async def _until_stopped(self, failed: asyncio.Future[None], chores: asyncio.Future[None]) -> None:
        while not self._kafka.stopping:
            done, _ = await asyncio.wait((failed, chores), timeout=STOP_POLL_S, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()

    async def _drain(self) -> None:
        """Take nothing more, acknowledge what Kafka confirms in time, then leave all sessions."""
        self._intake.stop()
        self._bridge.stop()
        began_at = time.monotonic()
        try:
            await asyncio.wait_for(self._intake.idle.wait(), self._limits.drain_s / 2)
        except TimeoutError:
            self._alarm(f"{self.counters.in_kafka} records are not confirmed by Kafka; their peers keep them")
        await self._listener.close(max(0.1, self._limits.drain_s - (time.monotonic() - began_at)))

    # --- what is done from time to time ---

    async def _look_after(self) -> None:
        now = time.monotonic()
        mark_at, report_at = now + MARK_S, now + self._limits.report_s
        while True:
            await asyncio.sleep(min(self._limits.registry_poll_s, MARK_S, self._limits.report_s))
            before = self.registry.peers
            if self.registry.poll():
                await self._registry_changed(before)
            now = time.monotonic()
            if now >= mark_at:
                mark_at = now + MARK_S
                self._hub.mark()
            if now >= report_at:
                report_at = now + self._limits.report_s
                self._report()

    async def _registry_changed(self, before: Mapping[int, PeerPolicy]) -> None:
        problems = self.registry.problems
        self.counters.registry_broken = int(bool(problems))
        for problem in problems:
            self._alarm(f"the registry stays as it was: {problem}")
        if not problems:
            self.counters.registry_reloads += 1
            LOG.info("the registry has changed: %d peers", len(self.registry.peers))
            changed = changes(before, self.registry.peers)
            for line in changed[:CHANGES_SHOWN_MAX]:
                LOG.info("the registry has changed: %s", line)
            if len(changed) > CHANGES_SHOWN_MAX:
                LOG.info("the registry has changed: %d more peers", len(changed) - CHANGES_SHOWN_MAX)
            self._set_peers()
            self._bridge.apply_policies()
            await self._listener.recheck()

    def _set_peers(self) -> None:
        self._peers = {channel: policy.for_transport() for channel, policy in self.registry.peers.items()}

    def _alarm(self, text: str) -> None:
        self.counters.alarms += 1
        LOG.warning("%s", printable(text))

    def _report(self) -> None:
        net = " ".join(f"{name}={count}" for name, count in self.net_counters.snapshot().items() if count)
        LOG.info("counted: %s net: %s", self.counters.line(), net or "nothing yet")


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
