# SPDX-License-Identifier: Apache-2.0
"""Helpers that several tests share: restore a rule set from pages, check it in every way, read inputs of the traces."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from validator_xcmp.rules import XCMP
from validator_xcmp.state import MAXIMA, check_invariants
from validator_xcmp.traces import view

from validator.core.rules import LaneRules
from validator.plugin.protocol_api import ChainSettings, Enactment, Para, SessionChange, Violation

Json = dict[str, Any]

SHARED = Path(__file__).resolve().parents[4] / "shared" / "traces"
"""The folder of the sample traces, a sibling of the checkout."""


def plain(value: Any) -> Any:
    """Return a value after a round trip through JSON."""
    return json.loads(json.dumps(value))


def pages_of(rules: LaneRules) -> list[bytes]:
    """Return all pages of a rule set, as a chain saves them."""
    return [*rules.common_pages(), *filter(None, map(rules.page, rules.owners()))]


def restored(rules: LaneRules, enactment: Enactment = Enactment.IMMEDIATE) -> LaneRules:
    """Return a rule set that is restored from this one's pages."""
    return XCMP.from_pages(pages_of(rules), ChainSettings(None, enactment=enactment))


def check_everything(rules: LaneRules) -> None:
    """Check the invariants, that the pages restore the state, and that the incremental root equals the root from all pages."""
    check_invariants(rules.state)
    other = restored(rules)
    assert pages_of(other) == pages_of(rules)
    check_invariants(other.state)
    assert view(other.state) == view(rules.state)
    assert rules.state_root() == other.state_root() == LaneRules(XCMP, other.state).state_root()


def result_of(apply: Callable[[Any], object], item: Any) -> Json:
    """Return the result of an input in the traces' shape."""
    try:
        apply(item)
    except Violation as violation:
        return plain({"ok": False, "error": {"kind": violation.kind, **violation.details()}})
    return {"ok": True}


def para_of(item: Json) -> Para:
    """Read a para from an object."""
    return Para(item["para_id"], balance=item.get("balance", 0))


def session_change_of(item: Json) -> SessionChange:
    """Read a session change from an object."""
    new_config = item.get("new_config") or {}
    return SessionChange(
        tuple(item.get("outgoing", ())),
        tuple(map(para_of, item.get("onboarding", ()))),
        tuple((name, new_config[name]) for name in MAXIMA if name in new_config),
    )
