# SPDX-License-Identifier: Apache-2.0
"""How often a test repeats itself with other seeds: `make test` a part of what `make test-all` does, and never another scenario."""

from __future__ import annotations

import os


def repetitions(quick: int, full: int) -> int:
    """Return ``quick``, or ``full`` if the environment has VALIDATOR_TESTS=all."""
    return full if os.environ.get("VALIDATOR_TESTS") == "all" else quick
