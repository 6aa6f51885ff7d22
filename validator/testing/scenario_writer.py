# SPDX-License-Identifier: Apache-2.0
"""A concise way to write conformance scenarios: every call adds an input together with its expected result.

>>> from validator.testing import ScenarioWriter, suite_text
>>> class Scenario(ScenarioWriter):
...     protocol = "mine"
...     base_config = {"candidates_per_session_max": 1}
...     base_paras = {2000: 0}
...
...     def candidate(self, para: int, error: str | None = None, **fields: object) -> "Scenario":
...         return self.add("candidates", {"para_id": para}, error, fields)
>>> scenario = Scenario("limits/one-candidate", "one candidate a session", source="mine.txt 3")
>>> scenario = scenario.at(1).candidate(2000).candidate(2000, "TooManyCandidates", limit=1)
>>> scenario.json["steps"][0]["expect"]["candidates"][1]
{'ok': False, 'error': {'kind': 'TooManyCandidates', 'limit': 1}}
>>> print(suite_text([scenario.json]).splitlines()[1][:34])
{"id": "mine/limits/one-candidate"
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

__all__ = ["ScenarioWriter", "suite_text"]

Json = dict[str, Any]

STEP_ORDER = ("requests", "downward", "candidates", "session_change")
"""The order in which a step applies its entries."""


class ScenarioWriter:
    """One scenario under construction, in ``json``; `at` starts a step and the other methods add to it. Subclass it once per protocol."""

    protocol: ClassVar[str]
    base_config: ClassVar[Mapping[str, Any]] = {}
    """The limits of every scenario. Choose them small, so that all are reached, and different, so that none can be mistaken for another."""
    base_paras: ClassVar[Mapping[int, int]] = {}
    """The genesis paras and their balances, unless a scenario names others."""

    def __init__(
        self,
        identifier: str,
        rule: str,
        *,
        source: str,
        paras: Mapping[int, int] | None = None,
        balances: Mapping[int, int] | None = None,
        config: Mapping[str, Any] | None = None,
        needs: Iterable[str] = (),
        interpretation: tuple[str, str, str] | None = None,
    ) -> None:
        """Begin a scenario.

        ``identifier`` is group and name, separated by a slash. ``rule`` is what the scenario shows, and ``source`` the clause of the
        specification that says so. ``paras`` replaces ``base_paras``; ``balances`` and ``config`` override single entries of ``base_paras``
        and ``base_config``. ``needs`` are the features without which the scenario is skipped. ``interpretation`` is number, question and
        answer if the specification leaves the rule open.
        """
        group, _, name = identifier.partition("/")
        genesis = {**(self.base_paras if paras is None else paras), **(balances or {})}
        self.json: Json = {
            "id": f"{self.protocol}/{identifier}",
            "name": name.replace("-", "_"),
            "group": group,
            "source": source,
            "rule": rule,
            "protocol": self.protocol,
            "needs": list(needs),
            "config": {**self.base_config, **(config or {})},
            "genesis_paras": [{"para_id": para, "balance": balance} for para, balance in genesis.items()],
        }
        if interpretation is not None:
            number, question, chosen = interpretation
            self.json["interpretation"] = [{"id": number, "question": question, "chosen": chosen, "alternatives": []}]
        self.json["steps"] = []

    @property
    def step(self) -> Json:
        """The step under construction."""
        step: Json = self.json["steps"][-1]
        return step

    def at(self, block: int) -> Self:
        """Start a step."""
        self.json["steps"].append({"block": block})
        return self

    def add(self, key: str, item: Json, error: str | None = None, fields: Mapping[str, Any] | None = None) -> Self:
        """Add an entry to the step's ``requests``, ``downward`` or ``candidates``: accepted, or rejected with ``error`` and its fields."""
        later = [other for other in STEP_ORDER[STEP_ORDER.index(key) + 1 :] if other in self.step]
        assert not later, f"{self.json['id']}: {key} come before {later[0]} in a step: start a new step"
        self.step.setdefault(key, []).append(item)
        result = {"ok": True} if error is None else {"ok": False, "error": {"kind": error, **(fields or {})}}
        self.step.setdefault("expect", {}).setdefault(key, []).append(result)
        return self

    def downward(self, para: int, msg: str, error: str | None = None, /, **fields: Any) -> Self:
        """Queue a downward message of the relay chain, in hex."""
        return self.add("downward", {"para_id": para, "msg": msg}, error, fields)

    def session(
        self,
        *,
        outgoing: Iterable[int] = (),
        onboarding: Mapping[int, int] | None = None,
        new_config: Mapping[str, Any] | None = None,
    ) -> Self:
        """End the session with this block; ``onboarding`` maps paras to balances."""
        change: Json = {}
        if leaving := list(outgoing):
            change["outgoing"] = leaving
        if onboarding:
            change["onboarding"] = [{"para_id": para, "balance": balance} for para, balance in onboarding.items()]
        if new_config:
            change["new_config"] = dict(new_config)
        self.step["session_change"] = change
        return self

    def state(self, **keys: Any) -> Self:
        """Expect these parts of the state after the step; keys may be paras, or pairs of paras for channels."""
        expect = self.step.setdefault("expect", {}).setdefault("state", {})
        expect.update({key: _named(value) for key, value in keys.items()})
        return self


def suite_text(scenarios: Iterable[Json]) -> str:
    """Return the file of a group of scenarios (`ScenarioWriter.json`): one line for each scenario's head and one for each step."""
    parts = []
    for scenario in scenarios:
        head = json.dumps({key: value for key, value in scenario.items() if key != "steps"})
        steps = ",\n  ".join(json.dumps(step) for step in scenario["steps"])
        parts.append(f'{head[:-1]}, "steps": [\n  {steps}\n]}}')
    return "[\n" + ",\n".join(parts) + "\n]\n"


def _named(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            f"{key[0]}->{key[1]}" if isinstance(key, tuple) else str(key): _named(member)
            for key, member in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_named(item) for item in value]
    return value
