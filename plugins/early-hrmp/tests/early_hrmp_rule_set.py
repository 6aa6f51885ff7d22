# SPDX-License-Identifier: Apache-2.0
"""Helpers that several tests share: save a rule set and check it in every way."""

from __future__ import annotations

from typing import Any

from validator_early_hrmp.rules import EARLY_HRMP
from validator_early_hrmp.state import check_invariants
from validator_early_hrmp.traces import view

from validator.core.rules import LaneRules

Json = dict[str, Any]


def pages_of(rules: LaneRules) -> list[bytes]:
    """Return the whole of a rule set, as a lane saves it."""
    return [*rules.common_pages(), *filter(None, map(rules.page, rules.owners()))]


def check_encoding(rules: LaneRules) -> None:
    """Check the invariants, that the state is what its pages say, and that the incremental root is the one from scratch."""
    check_invariants(rules.state)
    pages = pages_of(rules)
    restored = EARLY_HRMP.from_pages(pages)
    assert pages_of(restored) == pages
    check_invariants(restored.state)
    assert view(restored.state) == view(rules.state)
    assert restored.state_root() == rules.state_root() == EARLY_HRMP.root_of(rules.state)
