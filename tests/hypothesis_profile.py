# SPDX-License-Identifier: Apache-2.0
"""One profile for every property: the same examples in every run, unless HYPOTHESIS_PROFILE=explore asks for new and more of them."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.repetitions import repetitions

settings.register_profile(
    "ci",
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("explore", settings.get_profile("ci"), derandomize=False, max_examples=2_000)


def load() -> None:
    """Load the profile that the environment asks for."""
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def examples(full: int) -> settings:
    """Return settings with this many examples, half of them in `make test`, or as many as the profile says where that explores."""
    if os.environ.get("HYPOTHESIS_PROFILE") == "explore":
        return settings()
    return settings(max_examples=repetitions(full // 2, full))
