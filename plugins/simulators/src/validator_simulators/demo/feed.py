# SPDX-License-Identifier: Apache-2.0
"""Feeds a simulated relay chain into the input topics block by block, as a live chain would: paced, and out of order."""

from __future__ import annotations

import threading
import time
from random import Random
from typing import TYPE_CHECKING, Any, Final

from validator.cli.command_api import RecordSender, input_encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from validator_simulators import Simulation
    from validator_simulators.demo.comparison import Comparison

FIRST_BLOCKS: Final = 10
"""Blocks sent without pacing: the first batch of a new job is slow whatever it contains."""

_WINDOW_BLOCKS: Final = 3
"""Blocks whose records are shuffled together, since the topics of a live feed are never in step."""


class Feed(threading.Thread):
    """Sends the chain's records and registers their expected results with the comparison.

    The first `FIRST_BLOCKS` are sent at once. The others wait for `go` and are then sent at ``blocks_per_s``. ``sent_at`` holds, for blocks
    after `go`, the `time.monotonic` at which a block's last record was sent. ``failure`` is the error that ended the feed early.
    """

    def __init__(
        self, simulation: Simulation, kafka: Mapping[str, Any], prefix: str, comparison: Comparison, *, blocks_per_s: float,
        on_block: Callable[[int], None],
    ) -> None:  # fmt: skip
        super().__init__(name="feed", daemon=True)
        self.go = threading.Event()
        self.done = threading.Event()
        self.blocks_sent = 0
        self.sent_at: dict[int, float] = {}
        self.failure: BaseException | None = None
        self._simulation = simulation
        self._encoded = input_encoder(simulation.chain()["protocol"])
        self._sender = RecordSender(kafka, prefix)
        self._comparison = comparison
        self._blocks_per_s = blocks_per_s
        self._on_block = on_block
        self._halt = threading.Event()
        self._shuffle = Random(simulation.settings.seed)  # noqa: S311 - an order of sending, no secret

    def stop(self) -> None:
        """End the feed early."""
        self._halt.set()
        self.go.set()
        self.join()

    def run(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - the follower raises it
            self.failure = error
        finally:
            self.done.set()

    def _run(self) -> None:
        lane = self._simulation.settings.lane
        failing = frozenset(self._simulation.chain().get("ump_failing_messages", ()))
        window: list[tuple[int, str, dict[str, Any]]] = []
        due: float | None = None
        for count, block in enumerate(self._simulation.blocks(), start=1):
            self._comparison.expect_block(lane, block.block, block.expected, block.dispatched, failing)
            window += [(block.block, kind, record) for kind, record in block.records]
            if count % _WINDOW_BLOCKS and count < self._simulation.settings.blocks:
                continue
            self._send(window, timed=due is not None)
            self.blocks_sent = count
            self._on_block(block.block)
            window = []
            if count < FIRST_BLOCKS:
                continue
            self.go.wait()
            due = (due or time.monotonic()) + _WINDOW_BLOCKS / self._blocks_per_s
            if self._halt.wait(max(0.0, due - time.monotonic())):
                return
        self._sender.flush()

    def _send(self, window: list[tuple[int, str, dict[str, Any]]], *, timed: bool) -> None:
        self._shuffle.shuffle(window)
        for block, kind, record in window:
            self._sender.send(kind, record["lane"].encode(), self._encoded(kind, record))
            self._comparison.records_sent += 1
            if timed:
                self.sent_at[block] = time.monotonic()
        self._sender.flush()
