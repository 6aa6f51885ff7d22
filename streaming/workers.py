# SPDX-License-Identifier: Apache-2.0
"""What every Python worker of the job does before it works."""

from __future__ import annotations

import gc
import os
import resource
import sys
from collections.abc import Iterable

from validator.lanes.definition import LaneDefinition
from validator.plugin.runtime import Epoch, RuntimePlan
from validator.plugin.watchdog import end_what_hangs

_THRESHOLDS = (100_000, 50, 1_000_000)

_tuned = False
_bounded = False
_checked: dict[str, tuple[RuntimePlan, tuple[Epoch, ...]]] = {}


def tune_garbage_collector() -> None:
    """Keep the cyclic collector away from what it would only walk through.

    A batch makes some hundred thousand records that all live until its end, and a lane's state may be millions of objects that live for
    ever: Python's defaults walk over all of them again and again (measured: 15 of 57 us a candidate). Reference counting frees records as
    ever; young cycles are still collected, at longer intervals; the oldest generation practically never.
    """
    global _tuned
    if not _tuned:
        gc.freeze()
        gc.set_threshold(*_THRESHOLDS)
        _tuned = True


def check_plugins(definitions: Iterable[LaneDefinition]) -> None:
    """Look, once in a worker's life, whether it has the plugins of the driver. Raises `UserError`: `LaneDefinition.check`."""
    for definition in definitions:
        wanted = (definition.plan, definition.epochs)
        if _checked.get(definition.name) != wanted:
            definition.check()
            _checked[definition.name] = wanted


def bound_worker(memory_bytes: int) -> None:
    """Bound what plugins may take of a worker, once in its life: memory, and time that no signal can end.

    Beyond ``memory_bytes`` of data an allocation raises `MemoryError` in whoever asks for it, instead of the system killing what it likes.
    Linux counts private memory that may be written; elsewhere the limit may mean nothing.
    """
    global _bounded
    if _bounded:
        return
    _bounded = True
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    folder = os.environ.get("PYTHON_FAULTHANDLER_DIR")  # what is written there Spark tells when the worker dies
    traceback = sys.stderr if folder is None else open(f"{folder}/{os.getpid()}", "a", encoding="utf-8")  # noqa: PTH123, SIM115
    end_what_hangs(traceback)
