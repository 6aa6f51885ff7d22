# SPDX-License-Identifier: Apache-2.0
"""A batch of a plugin's job is bounded in bytes by the largest record that its topics allow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streaming.run_keyed import EFFECTS_BYTES_MAX, EFFECTS_PER_TRIGGER_MAX, effects_per_trigger
from validator.plugin.job_api import JobContext, open_job

BODIES = open_job(JobContext("xcmp-bodies", chains={"a": {"protocol": "xcmp-network", "limits": {}}}))


def job(*sizes: int) -> Any:
    forms = {f"topic-{size}": SimpleNamespace(bytes_max=size) for size in sizes}
    return SimpleNamespace(effects=tuple(forms), forms=forms)


@pytest.mark.parametrize(
    ("sizes", "configured", "records"),
    [
        ((100,), 200_000, EFFECTS_PER_TRIGGER_MAX),
        ((100,), 7, 7),
        ((100, 1024**2), 200_000, 768),
        ((1024**3,), 200_000, 1),
        ((), 200_000, 96),
    ],
)
def test_batch_has_as_many_records_as_memory_allows(sizes: tuple[int, ...], configured: int, records: int) -> None:
    assert effects_per_trigger(job(*sizes), configured) == records


def test_batch_of_bodies_is_bounded_by_the_largest_part() -> None:
    (largest,) = {BODIES.forms[topic].bytes_max for topic in BODIES.effects}
    records = effects_per_trigger(BODIES, 200_000)
    assert records * largest <= EFFECTS_BYTES_MAX < (records + 1) * largest
    assert records > 3_000
