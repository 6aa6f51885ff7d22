# SPDX-License-Identifier: Apache-2.0
"""The demo's comparison must find every kind of difference; otherwise its agreement means nothing."""

from __future__ import annotations

from typing import Any

import pytest
from validator_simulators.demo.comparison import Comparison

GOOD: dict[str, Any] = {"lane": "x", "block": 1, "kind": "candidate", "index": 0, "ok": True}
BAD: dict[str, Any] = {**GOOD, "index": 1, "ok": False, "error": {"kind": "UpwardMessages/MessageSize", "idx": 2}}
PAYLOAD = "0a0b"


def emitted(verdict: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a verdict as the job emits it, with more fields than the model knows."""
    error = {"error": {**verdict["error"], "msg_size": 9, "max_size": 8, "clause": "1.4"}} if "error" in verdict else {}
    return {**verdict, "para_id": 5, "enacted": True, **error, **more}


def dispatch(**more: Any) -> dict[str, Any]:
    return {"lane": "x", "block": 1, "index": 0, "para_id": 5, "payload": PAYLOAD, "outcome": "ok", **more}


def status(**more: int) -> dict[str, Any]:
    parts = {"accepted": 2, "rejected": 1, "duplicate": 0, "dead": 0, "waiting": 0, "consumed": 3}
    return {"lane": "x", **parts, **more}


@pytest.fixture
def comparison() -> Comparison:
    compared = Comparison(records_sent=3)
    compared.expect_block("x", 1, [GOOD, BAD], [[5, PAYLOAD]], frozenset())
    return compared


def observe(comparison: Comparison, *records: tuple[str, dict[str, Any]]) -> None:
    for topic, record in records:
        comparison.observe(topic, record)


ALL = (("verdicts", emitted(GOOD)), ("verdicts", emitted(BAD)), ("dispatches", dispatch()), ("lanes", status()))


def test_matching_records_have_no_problems(comparison: Comparison) -> None:
    assert not comparison.complete()
    observe(comparison, *ALL)
    assert comparison.complete()
    assert comparison.problems() == []
    assert (comparison.agreed, comparison.disagreed, comparison.verdicts, comparison.dispatches_agreed) == (2, 0, 2, 1)
    assert comparison.rejected == {"UpwardMessages/MessageSize": 1}


@pytest.mark.parametrize(
    ("place", "record"),
    [
        (0, ("verdicts", emitted({**GOOD, "ok": False, "error": {"kind": "UpwardMessages/MessageSize"}}))),
        (1, ("verdicts", emitted({**GOOD, "index": 1}))),
        (1, ("verdicts", emitted({**BAD, "error": {"kind": "UpwardMessages/CapacityExceeded", "idx": 2}}))),
        (1, ("verdicts", emitted({**BAD, "error": {"kind": "UpwardMessages/MessageSize", "idx": 3}}))),
        (1, ("verdicts", emitted({**BAD, "error": {"kind": "UpwardMessages/MessageSize"}}))),
        (2, ("dispatches", dispatch(para_id=6))),
        (2, ("dispatches", dispatch(payload="0a0c"))),
        (2, ("dispatches", dispatch(outcome="failed"))),
    ],
)
def test_different_record_is_disagreement(
    comparison: Comparison, place: int, record: tuple[str, dict[str, Any]]
) -> None:
    observe(comparison, *ALL[:place], record, *ALL[place + 1 :])
    assert comparison.complete()
    assert comparison.disagreed == 1
    assert len(comparison.problems()) == 1


@pytest.mark.parametrize("extra", [("verdicts", emitted({**GOOD, "index": 2})), ("dispatches", dispatch(index=1))])
def test_unexpected_record_is_disagreement(comparison: Comparison, extra: tuple[str, dict[str, Any]]) -> None:
    observe(comparison, *ALL, extra)
    assert comparison.disagreed == 1
    assert len(comparison.problems()) == 1


@pytest.mark.parametrize(
    ("left_out", "problem"),
    [(0, "1 verdicts are missing, the first: x/1/candidate/0"), (2, "1 dispatches are missing")],
)
def test_absent_record_is_missing(comparison: Comparison, left_out: int, problem: str) -> None:
    observe(comparison, *ALL[:left_out], *ALL[left_out + 1 :])
    assert not comparison.complete()
    assert comparison.problems() == [problem]


def test_repeated_record_is_disagreement_only_if_it_differs(comparison: Comparison) -> None:
    observe(comparison, *ALL, ALL[0], ALL[2])
    assert (comparison.repeated, comparison.verdicts, comparison.problems()) == (2, 2, [])
    observe(comparison, ("verdicts", emitted(GOOD, enacted=False)))
    assert comparison.disagreed == 1


@pytest.mark.parametrize(
    ("counts", "problem"),
    [
        ({"accepted": 1}, "lane x: consumed 3, but accepted + rejected + duplicate + dead + waiting is 2"),
        ({"consumed": 4, "duplicate": 1}, "3 records were sent, but the lanes consumed 4"),
    ],
)
def test_inconsistent_counts_are_reported(comparison: Comparison, counts: dict[str, int], problem: str) -> None:
    observe(comparison, *ALL[:3], ("lanes", status(**counts)))
    assert comparison.problems() == [problem]


def test_waiting_lane_is_not_complete(comparison: Comparison) -> None:
    observe(comparison, *ALL[:3], ("lanes", status(accepted=1, waiting=1)))
    assert not comparison.complete()


def test_dead_letter_is_problem(comparison: Comparison) -> None:
    observe(comparison, *ALL, ("dead-letters", {"reason": "LATE", "detail": "block 1 is passed"}))
    assert comparison.problems() == ["dead letter LATE: block 1 is passed"]


def test_number_of_kept_differences_is_limited() -> None:
    compared = Comparison()
    for index in range(50):
        compared.observe("verdicts", emitted({**GOOD, "index": index}))
    assert compared.disagreed == 50
    assert len(compared.problems()) == 20
