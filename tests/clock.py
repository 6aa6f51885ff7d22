# SPDX-License-Identifier: Apache-2.0
"""A clock for whatever takes one, or uses the module ``time``."""

from __future__ import annotations


class Clock:
    """A clock that advances only when it sleeps, or when the test sets ``now_s``."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s

    monotonic = __call__

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
