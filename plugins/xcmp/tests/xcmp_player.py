# SPDX-License-Identifier: Apache-2.0
"""Plays scenarios of the conformance format on the rule set alone, and looks at it in every way after every step."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from validator_xcmp.configuration import MAXIMA, read_configuration
from validator_xcmp.invariants import check_invariants
from validator_xcmp.records import Candidate
from validator_xcmp.rules import Xcmp
from validator_xcmp.traces import read_candidate, read_request, view

from validator.plugin.api import (
    ChainSettings,
    DownwardMessage,
    Effects,
    Enactment,
    Node,
    Para,
    SessionChange,
    Violation,
)

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


def play(scenario: Json) -> list[str]:
    """Play a scenario and return, in words, everything that is not as it expects."""
    return _Player(scenario).run()


class _Player:
    def __init__(self, scenario: Json) -> None:
        self.scenario = scenario
        configuration = read_configuration(Node(scenario["config"], "config"))
        paras = tuple(map(para_of, scenario["genesis_paras"]))
        self.rules = Xcmp.at_genesis(ChainSettings(configuration, paras))
        self.delayed: list[tuple[int, Candidate]] = []
        self.wrong: list[str] = []
        self.block = -1

    def run(self) -> list[str]:
        steps = self.scenario["steps"]
        following = [*(step["block"] for step in steps[1:]), None]
        changes: list[Json] = []
        for at, (step, after) in enumerate(zip(steps, following, strict=True)):
            where, expect = f"step {at} (block {step['block']})", step.get("expect", {})
            self._begin(step["block"])
            if step.get("session_change") is not None:
                changes.append(step["session_change"])
            for key, apply in (
                ("requests", self._request),
                ("downward", self._downward),
                ("candidates", self._candidate),
            ):
                results = [result_of(apply, item) for item in step.get(key, ())]
                if key in expect and results != expect[key]:
                    self.wrong.append(f"{where} {key}: expected {expect[key]}, got {results}")
            if after != step["block"]:
                for change in changes:
                    self.delayed.clear()
                    self.rules.change_session(session_change_of(change))
                changes.clear()
            self._compare(where, expect.get("state", {}))
            check_everything(self.rules)
        final = self.scenario.get("final_state", {})
        state = view(self.rules.state)
        self.wrong += [
            f"final_state {key}: expected {final[key]}, got {state[key]}" for key in final if final[key] != state[key]
        ]
        return self.wrong

    def _begin(self, block: int) -> None:
        if block == self.block:
            return
        self.block = block
        for due, candidate in sorted((each for each in self.delayed if each[0] <= block), key=lambda each: each[0]):
            self.rules.begin_block(due)
            self.rules.enact_candidate(candidate)
        self.delayed = [each for each in self.delayed if each[0] > block]
        self.rules.begin_block(block)

    def _request(self, item: Json) -> Effects:
        return self.rules.apply_request(read_request(Node(item, "request")))

    def _downward(self, item: Json) -> Effects:
        return self.rules.apply_downward(DownwardMessage(item["para_id"], bytes.fromhex(item["msg"])))

    def _candidate(self, item: Json) -> None:
        candidate = read_candidate(Node(item, "candidate"), self.block)
        self.rules.check_candidate(candidate)
        due = item.get("enact_at_block")
        if due is None or due <= self.block:
            self.rules.enact_candidate(candidate)
        else:
            self.delayed.append((due, candidate))

    def _compare(self, where: str, expected: Json) -> None:
        actual = view(self.rules.state)
        for key, value in expected.items():
            name = key.removesuffix("_set")
            found = _names(actual[name]) if key.endswith("_set") else actual[name]
            self.wrong += _differences(sorted(value) if key.endswith("_set") else value, found, f"{where} {key}")


def _names(value: Any) -> list[str]:
    return (
        sorted(f"{item['sender']}->{item['recipient']}" for item in value) if isinstance(value, list) else sorted(value)
    )


def _differences(expected: Any, actual: Any, path: str) -> list[str]:
    """Compare by the rules of the format: objects key by key, null is absent, 0 and [] may be absent, lists whole."""
    if isinstance(expected, dict) and isinstance(actual, dict | None):
        return [
            line
            for key, value in expected.items()
            for line in _differences(value, (actual or {}).get(key), f"{path}.{key}")
        ]
    absent = actual is None and expected in (0, []) and expected is not False
    return [] if absent or expected == actual else [f"{path}: expected {expected}, got {actual}"]
