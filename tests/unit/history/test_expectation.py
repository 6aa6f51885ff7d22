# SPDX-License-Identifier: Apache-2.0
"""Expected records against found ones: every way to disagree, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from validator.errors import UserError
from validator.history import expectation as module
from validator.history.expectation import Expectation, Sort

REFUSED = {"ok": False, "error": {"kind": "R", "idx": 0, "limit": [1, 2]}}


def verdict(block: int = 1, index: int = 0, lane: str = "polkadot", **members: Any) -> dict[str, Any]:
    return {"lane": lane, "block": block, "kind": "candidate", "index": index, **(members or {"ok": True})}


def expecting(*records: dict[str, Any], topic: str = "verdicts") -> Expectation:
    expectation = Expectation(topic)
    for record in records:
        expectation.expect(record)
    return expectation


def test_record_with_more_members_agrees() -> None:
    expectation = expecting(verdict(**REFUSED), verdict(2))
    error = {**REFUSED["error"], "count": 3, "clause": "1.4"}  # type: ignore[dict-item]
    assert expectation.observe(verdict(ok=False, error=error, id="00")) is None
    assert not expectation.complete
    assert expectation.observe(verdict(2, ok=True, error=None)) is None
    assert expectation.complete
    assert list(expectation.missing()) == []
    assert expectation.summary() == {
        "topic": "verdicts", "ok": True, "expected": 2, "agreed": 2,
        "differs": 0, "unexpected": 0, "repeated": 0, "missing": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("found", "other"),
    [
        ({"ok": True}, ["ok", "error"]),
        ({"ok": False, "error": {"kind": "Q", "idx": 0, "limit": [1, 2]}}, ["error"]),
        ({"ok": False, "error": {"kind": "R", "idx": False, "limit": [1, 2]}}, ["error"]),
        ({"ok": False, "error": {"kind": "R", "limit": [1, 2]}}, ["error"]),
        ({"ok": False, "error": {"kind": "R", "idx": 0, "limit": [1]}}, ["error"]),
        ({"ok": False, "error": "R"}, ["error"]),
        ({"ok": 0, "error": {"kind": "R", "idx": 0, "limit": [1, 2]}}, ["ok"]),
    ],
)
def test_difference_has_the_members_that_differ(found: dict[str, Any], other: list[str]) -> None:
    difference = expecting(verdict(**REFUSED)).observe(verdict(**found))
    assert difference is not None
    assert difference.to_json() == {
        "lane": "polkadot", "block": 1, "kind": "candidate", "index": 0, "difference": "differs",
        "expected": {name: REFUSED[name] for name in other}, "found": {name: found.get(name) for name in other},
    }  # fmt: skip


def test_clause_and_page_of_an_error_do_not_count() -> None:
    """An expected error may be a conformance trace's, or have been printed by this version or by another one."""
    error: dict[str, Any] = REFUSED["error"]  # type: ignore[assignment]
    printed = {**error, "clause": "1.4", "rule": "router.md#r"}
    for one, other in ((error, printed), (printed, error), (printed, {**printed, "clause": "1.5", "rule": None})):
        assert expecting(verdict(ok=False, error=one)).observe(verdict(ok=False, error=other)) is None
    difference = expecting(verdict(ok=False, error=printed)).observe(verdict(ok=False, error={**printed, "idx": 1}))
    assert difference is not None
    assert (difference.expected, difference.found) == ({"error": error}, {"error": {**error, "idx": 1}})


def test_records_can_be_missing_unexpected_and_repeated() -> None:
    expectation = expecting(verdict(1), verdict(2), verdict(3))
    observed = [verdict(2), verdict(2), verdict(4), verdict(4), verdict(9, lane="kusama")]
    found = [expectation.observe(record) for record in observed]
    assert [each and each.sort for each in found] == [None, Sort.REPEATED, Sort.UNEXPECTED, Sort.REPEATED, None]
    assert [(each.place["block"], each.sort) for each in expectation.missing()] == [
        (1, Sort.MISSING),
        (3, Sort.MISSING),
    ]
    assert expectation.summary() == {
        "topic": "verdicts", "ok": False, "expected": 3, "agreed": 1,
        "differs": 0, "unexpected": 1, "repeated": 2, "missing": 2,
    }  # fmt: skip


def test_dispatches_have_no_kind_in_their_place() -> None:
    expected = {"lane": "polkadot", "block": 1, "index": 0, "para_id": 7, "payload": "00", "outcome": "ok"}
    assert expecting(expected, topic="dispatches").observe({**expected, "kind": "poll.vote", "weight": 9}) is None
    assert expecting(expected, topic="dispatches").observe({**expected, "outcome": "failed"}) is not None


def test_bad_expectations_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    expectation = expecting(verdict(1))
    with pytest.raises(
        UserError, match="expected one record for each place, found a second one at polkadot/1/candidate/0"
    ):
        expectation.expect(verdict(1, ok=False))
    monkeypatch.setattr(module, "EXPECTED_RECORDS_MAX", 1)
    with pytest.raises(UserError, match="expected at most 1 records, found more"):
        expectation.expect(verdict(2))
