# SPDX-License-Identifier: Apache-2.0
"""Keeps the cyclic garbage collector from scanning what it cannot free."""

from __future__ import annotations

import gc
from typing import Final

BATCHES_MAX: Final = 500
"""Batches after which garbage among what was frozen is freed."""

THRESHOLDS: Final = (100_000, 50, 1_000_000)

_batches = 0


def tune() -> None:
    """Set the collector for a process that executes batches, and exclude what is in memory now.

    A batch creates some hundred thousand records that live until its end, and a lane's state may be millions of permanent objects. With
    Python's defaults the collector scans all of them repeatedly (measured: 15 of 57 us per candidate). Reference counting still frees
    records. Young cycles are collected at longer intervals, the oldest generation practically never: whoever executes a batch collects
    everything after it.
    """
    gc.set_threshold(*THRESHOLDS)
    gc.freeze()


def freeze_survivors() -> None:
    """Exclude what has survived a batch, or each one would scan the lanes (a third of a second for a million channels).

    By then the next batch may have its first objects, some of which are cyclic garbage after it (measured: 83): every `BATCHES_MAX` batches
    all is collected.
    """
    global _batches
    _batches += 1
    if _batches % BATCHES_MAX == 0:
        gc.unfreeze()
        gc.collect()
    gc.freeze()
