# SPDX-License-Identifier: Apache-2.0
"""Plays scenarios of the conformance format on the rule set alone, and looks at it in every way after every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from validator_early_hrmp.configuration import MAXIMA, read_configuration
from validator_early_hrmp.invariants import check_invariants
from validator_early_hrmp.records import Candidate
from validator_early_hrmp.rules import EarlyHrmp, state_hash
from validator_early_hrmp.traces import read_candidate, read_request, view

from validator.plugin.api import DownwardMessage, Node, Para, SessionChange, Violation

Json = dict[str, Any]


def play(scenario: Json) -> list[str]:
    """Play a scenario and return, in words, everything that is not as it expects."""
    return Player(scenario).run()


def pages_of(rules: EarlyHrmp) -> list[bytes]:
    """Return the whole of a rule set, as a lane saves it."""
    return [*rules.common_pages(), *filter(None, map(rules.page, rules.owners()))]


def check_encoding(rules: EarlyHrmp) -> None:
    """Check the invariants, that the state is what its pages say, and that the incremental root is the one from scratch."""
    check_invariants(rules.state)
    pages = pages_of(rules)
    restored = EarlyHrmp.from_pages(pages)
    assert pages_of(restored) == pages
    check_invariants(restored.state)
    assert view(restored.state) == view(rules.state)
    assert restored.state_root() == rules.state_root() == state_hash(rules.state)


class Player:
    """One scenario under way."""

    def __init__(self, scenario: Json) -> None:
        self.scenario = scenario
        configuration = read_configuration(Node(scenario["config"], "config"))
        self.rules = EarlyHrmp.at_genesis(configuration, map(_para, scenario["genesis_paras"]))
        self.delayed: list[tuple[int, Candidate]] = []
        self.wrong: list[str] = []
        self.block = -1

    def run(self) -> list[str]:
        """Play all steps; see `play`."""
        steps = self.scenario["steps"]
        following = [step["block"] for step in steps[1:]] + [None]
        changes: list[Json] = []
        for at, (step, after) in enumerate(zip(steps, following, strict=True)):
            where, expect = f"step {at} (block {step['block']})", step.get("expect", {})
            self._begin(step["block"])
            changes += [step["session_change"]] if "session_change" in step else []
            for key, apply in (
                ("requests", self._request),
                ("downward", self._downward),
                ("candidates", self._candidate),
            ):
                results = [_result(lambda item=item, apply=apply: apply(item)) for item in step.get(key, ())]
                if key in expect and results != expect[key]:
                    self.wrong.append(f"{where} {key}: expected {expect[key]}, got {results}")
            if after != step["block"]:
                for change in changes:
                    self.rules.change_session(_session_change(change))
                changes.clear()
            self._compare(where, expect.get("state", {}))
            check_encoding(self.rules)
        self._compare("final_state", self.scenario.get("final_state", {}))
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

    def _request(self, item: Json) -> None:
        self.rules.apply_request(read_request(Node(item, "request")))

    def _downward(self, item: Json) -> None:
        self.rules.apply_downward(DownwardMessage(item["para_id"], bytes.fromhex(item["msg"])))

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
            if key.endswith("_set"):
                if list(actual[key.removesuffix("_set")]) != value:
                    self.wrong.append(f"{where} {key}: expected {value}, got {list(actual[key.removesuffix('_set')])}")
            else:
                self.wrong += _differences(value, actual[key], f"{where} {key}")


def _differences(expected: Any, actual: Any, path: str) -> list[str]:
    """Compare by the rules of the format: objects key by key, null is absent, 0 and [] may be absent, lists whole."""
    if isinstance(expected, dict) and isinstance(actual, dict | None):
        return [
            line
            for key, value in expected.items()
            for line in _differences(value, (actual or {}).get(key), f"{path}.{key}")
        ]
    absent = actual is None and (expected in (0, []) and expected is not False)
    return [] if absent or expected == actual else [f"{path}: expected {expected}, got {actual}"]


def _result(apply: Callable[[], None]) -> Json:
    try:
        apply()
    except Violation as violation:
        return {"ok": False, "error": {"kind": violation.kind, **violation.details()}}
    return {"ok": True}


def _para(item: Json) -> Para:
    return Para(item["para_id"], balance=item.get("balance", 0))


def _session_change(item: Json) -> SessionChange:
    new_config = item.get("new_config", {})
    return SessionChange(
        tuple(item.get("outgoing", ())),
        tuple(map(_para, item.get("onboarding", ()))),
        tuple((name, new_config[name]) for name in MAXIMA if name in new_config),
    )
