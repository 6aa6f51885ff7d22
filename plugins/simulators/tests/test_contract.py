# SPDX-License-Identifier: Apache-2.0
"""The contract of simulated chains, and their point of `validator plugins check`."""

from __future__ import annotations

import pytest
from validator_simulators import contract


def test_simulation_is_compared_with_the_rules_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "CHECK_SECONDS_MAX", 0)
    monkeypatch.setattr(contract, "CHECK_BLOCKS", 5)
    assert contract.check_simulation("early-hrmp", None) == "1 chain of 5 blocks"


def test_model_that_disagrees_is_found_with_the_first_verdict_that_differs() -> None:
    verdict = {"index": 0, "ok": False, "error": {"kind": "A", "para_id": 5}}
    plain = {**verdict, "error": {"kind": "A"}}
    assert contract.disagreement([verdict], [verdict], ()) is None
    assert contract.disagreement([plain], [verdict], ["A"]) is None, "the rules leave the fields of this error open"
    emitted = {**verdict, "error": {"kind": "A", "para_id": 5, "clause": "1.4"}, "enacted": False}
    assert contract.disagreement([verdict], [emitted], ()) is None, "a model has no clauses"
    wrong = {**verdict, "error": {"kind": "A", "para_id": 6}}
    for expected, found, open_kinds in (
        ([plain], [verdict], ()),
        ([wrong], [verdict], ["A"]),
        ([verdict] * 2, [verdict], ()),
        ([], [verdict], ["A"]),
    ):
        assert "the model expects" in str(contract.disagreement(expected, found, open_kinds))


def test_protocol_without_simulation_is_not_compared() -> None:
    with pytest.raises(contract.NotApplicable, match="it has no simulation"):
        contract.check_simulation("absent", None)
