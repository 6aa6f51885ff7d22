# SPDX-License-Identifier: Apache-2.0
"""One profile for every property: the same examples in every run, unless HYPOTHESIS_PROFILE=explore asks for new and more of them."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}

settings.register_profile("ci", derandomize=True, database=None, print_blob=True, **_COMMON)
settings.register_profile(
    "explore", max_examples=2_000, phases=(Phase.generate, Phase.target, Phase.shrink, Phase.explain), **_COMMON
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def examples(ci: int) -> settings:
    """Return settings with this many examples, or as many as the profile says where that explores."""
    return settings() if os.environ.get("HYPOTHESIS_PROFILE") == "explore" else settings(max_examples=ci)
