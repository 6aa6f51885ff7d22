# SPDX-License-Identifier: Apache-2.0
"""What the tests of schedules share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def small_heap() -> Iterator[None]:
    """Exclude what other tests have left from garbage collections: each lane that is parked starts one."""
    gc.freeze()
    yield
    gc.unfreeze()
