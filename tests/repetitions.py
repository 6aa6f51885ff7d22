# SPDX-License-Identifier: Apache-2.0
"""How many seeds a randomised test runs: fewer in `make test`, all of them in `make test-all`. Both run the same scenarios."""

from __future__ import annotations

import os


def repetitions(quick: int, full: int) -> int:
    """Return ``quick``, or ``full`` if the environment has VALIDATOR_TESTS=all."""
    return full if os.environ.get("VALIDATOR_TESTS") == "all" else quick
