# SPDX-License-Identifier: Apache-2.0
"""What several tests do with a rule set: make it again of its pages, look at it in every way, read inputs of the traces."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from validator_xcmp.configuration import MAXIMA
from validator_xcmp.invariants import check_invariants
from validator_xcmp.rules import Xcmp
from validator_xcmp.traces import view

from validator.plugin.protocol_api import ChainSettings, Enactment, Para, SessionChange, Violation

Json = dict[str, Any]

SHARED = Path(__file__).resolve().parents[4] / "shared" / "traces"
"""Where the sample traces are, beside a checkout."""


def plain(value: Any) -> Any:
    """Return a value as it comes out of JSON."""
    return json.loads(json.dumps(value))


def pages_of(rules: Xcmp) -> list[bytes]:
    """Return the whole of a rule set, as a chain saves it."""
    return [*rules.common_pages(), *filter(None, map(rules.page, rules.owners()))]


def restored(rules: Xcmp, enactment: Enactment = Enactment.IMMEDIATE) -> Xcmp:
    """Return the rule set that is made from the pages of this one."""
    return Xcmp.from_pages(pages_of(rules), ChainSettings(None, enactment=enactment))


def check_everything(rules: Xcmp) -> None:
    """Check the invariants, that the state is what its pages say, and that the root from touched pages is the one from all pages."""
    check_invariants(rules.state)
    other = restored(rules)
    assert pages_of(other) == pages_of(rules)
    check_invariants(other.state)
    assert view(other.state) == view(rules.state)
    assert rules.state_root() == other.state_root() == Xcmp(other.state).state_root()


def result_of(apply: Callable[[Any], object], item: Any) -> Json:
    """Return what comes of an input in the shape of the traces."""
    try:
        apply(item)
    except Violation as violation:
        return plain({"ok": False, "error": {"kind": violation.kind, **violation.details()}})
    return {"ok": True}


def para_of(item: Json) -> Para:
    """Return a para that an object describes."""
    return Para(item["para_id"], balance=item.get("balance", 0))


def session_change_of(item: Json) -> SessionChange:
    """Return the session change of an object."""
    new_config = item.get("new_config") or {}
    return SessionChange(
        tuple(item.get("outgoing", ())),
        tuple(map(para_of, item.get("onboarding", ()))),
        tuple((name, new_config[name]) for name in MAXIMA if name in new_config),
    )
