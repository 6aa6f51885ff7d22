# SPDX-License-Identifier: Apache-2.0
"""Helpers that several tests share: make a rule set, restore it from pages, check it in every way, read inputs of the traces."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from validator_xcmp_network.rules import XCMP_NETWORK
from validator_xcmp_network.state import MAXIMA, check_invariants, read_configuration
from validator_xcmp_network.traces import read_candidate, view

from validator.core.rules import LaneRules, pages
from validator.plugin.protocol_api import ChainSettings, Enactment, Node, Para, SessionChange, Violation

Json = dict[str, Any]

SHARED = Path(__file__).resolve().parents[4] / "shared" / "traces"
"""The folder of the sample traces, a sibling of the checkout."""


def chain_of(paras: tuple[int, ...], channels: list[tuple[int, int]], **config: Any) -> LaneRules:
    """Return the rule set of a chain with fixed channels."""
    setup = read_configuration(Node({"open_channels": [list(pair) for pair in channels], **config}, "config"))
    return XCMP_NETWORK.at_genesis(ChainSettings(setup, tuple(Para(para) for para in paras)))


def judged(rules: LaneRules, block: int, para: int, outbox: Any = (), acks: Any = (), **more: Any) -> Json:
    """Give a chain a candidate and return the result; ``outbox`` has recipients or ``(recipient, root, size)``."""
    messages = [item if isinstance(item, tuple) else (item, "00" * 32, 0) for item in outbox]
    item = {
        "para_id": para,
        "outbox": [{"recipient": recipient, "root": root, "size": size} for recipient, root, size in messages],
        "acks": [list(ack) for ack in acks],
        **more,
    }
    if rules.env.now != block:
        rules.begin_block(block)
    return result_of(rules.apply_candidate, read_candidate(Node(item, "candidate"), block))


def plain(value: Any) -> Any:
    """Return a value after a round trip through JSON."""
    return json.loads(json.dumps(value))


def restored(rules: LaneRules, enactment: Enactment = Enactment.IMMEDIATE) -> LaneRules:
    """Return a rule set that is restored from this one's pages."""
    return XCMP_NETWORK.from_pages(pages(rules), ChainSettings(None, enactment=enactment))


def check_everything(rules: LaneRules) -> None:
    """Check the invariants, that the pages restore the state, and that the incremental root equals the root from all pages."""
    check_invariants(rules.state)
    other = restored(rules)
    assert pages(other) == pages(rules)
    check_invariants(other.state)
    assert view(other.state) == view(rules.state)
    assert rules.state_root() == other.state_root() == LaneRules(XCMP_NETWORK, other.state).state_root()


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
