# SPDX-License-Identifier: Apache-2.0
"""Spark's JVM keeps no socket of a batch that is done: Spark 4.2.0 kept one for each batch and state partition."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.streaming.harness import Stream, wait_until
from tests.streaming.reference import ON_INCLUSION, definition

SETTLED, BATCHES = 5, 30
"""Batches before the first count, and before the last one."""

SPARE = 10
"""Sockets that come and go: far fewer than the batches between both counts."""


def sockets(pid: int) -> int:
    """Return how many sockets a process has open."""
    found = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found += str(link.readlink()).startswith("socket:")
        except FileNotFoundError:  # closed since
            continue
    return found


@pytest.mark.spark
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts sockets in Linux's /proc")
def test_jvm_keeps_no_socket_of_a_batch(stream: Callable[..., Stream]) -> None:
    running = stream({ON_INCLUSION.lane: definition(ON_INCLUSION)}, records_per_trigger=1)
    gateway = running.spark.sparkContext._gateway
    assert gateway is not None
    running.produce([("candidates", b"polkadot", b"garbage %d" % at) for at in range(BATCHES + 5)])
    running.start()

    def counted(batch: int) -> int:
        wait_until(
            lambda: (running.query.lastProgress or {"batchId": -1})["batchId"] >= batch, f"batch {batch}", Path("none")
        )
        return sockets(gateway.proc.pid)

    before = counted(SETTLED)
    assert counted(BATCHES) - before <= SPARE
