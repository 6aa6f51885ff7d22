# SPDX-License-Identifier: Apache-2.0
"""The metrics of a followed chain say how far the lane is, what its nodes do, and what the judge found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from validator_relay_chain.errors import (
    BadAnswer,
    BodyMissing,
    Garbled,
    Inaccessible,
    NodeError,
    NotKnownHere,
    Overflow,
    RateLimited,
    RpcFault,
    StatePruned,
    TooMuch,
    Unreachable,
    Unwilling,
    reason_of,
)
from validator_relay_chain.figures import FOLLOWED, JUDGED, KINDS, WITH_REASON, ChainFigures, Figures, JudgeFigures
from validator_relay_chain.oracle import compare

from validator.metrics.own import checked, exported
from validator.metrics.report import TRANSPORT
from validator.plugin.api import PluginMetric

LANE = "polkadot"


def values(figures: Figures, declared: tuple[PluginMetric, ...]) -> dict[tuple[str, ...], float]:
    """Return the values of the lane, checked as the product does."""
    metrics = exported("x", TRANSPORT, declared)
    names = {metric.name: name for name, metric in metrics.items()}
    found = {}
    for name, (lane, *labels), value in checked(metrics, figures.measures()):
        assert lane == LANE
        found[names[name], *labels] = value
    return found


def test_follower_says_how_far_it_is_and_when_the_head_moved() -> None:
    now = [10.0]
    figures = Figures()
    lane = ChainFigures(figures, LANE, 5, lambda: now[0])
    assert values(figures, FOLLOWED) == {
        ("finalised_block",): 5, ("head_timestamp_seconds",): 10.0, ("followed_block",): 5, ("blocks_behind",): 0,
    }  # fmt: skip
    now[0] = 16.0
    lane.heard(9)
    now[0] = 22.0
    lane.heard(9)
    lane.followed(6, 12)
    lane.failed({"rate-limited": 3})
    assert values(figures, FOLLOWED) == {
        ("finalised_block",): 9, ("head_timestamp_seconds",): 16.0, ("followed_block",): 6, ("blocks_behind",): 3,
        ("node_requests_total",): 12, ("node_retries_total", "rate-limited"): 3,
    }  # fmt: skip


def test_series_of_disagreements_are_there_before_the_first_one() -> None:
    figures = Figures()
    judge = JudgeFigures(figures, LANE)
    assert values(figures, JUDGED)["disagreements_total", "DownwardHead", "ours"] == 0
    counted = dict.fromkeys(("blocks", "candidates", "inclusions", "heads", "counters", "channels", "skipped"), 4)
    judge.judged({"block": 9, **counted}, [("DownwardHead", "ours"), ("Watermark", "downward-order")])
    judge.judged(None, [("DownwardHead", "ours")])
    now = values(figures, JUDGED)
    assert now["disagreements_total", "DownwardHead", "ours"] == 2
    assert now["disagreements_total", "Watermark", "downward-order"] == 1
    assert now["compared_block",] == 9
    assert now["compared_total", "heads"] == 4


def test_every_kind_that_the_comparison_has_begins_with_a_series() -> None:
    source = Path(compare.__file__).read_text(encoding="utf-8")
    kinds = set(
        re.findall(
            r'"((?:Candidate|Candidates|Channel|Channels|Downward)(?:[A-Z][a-z]+)+|Watermark|NotDecoded)"', source
        )
    )
    kinds |= {f"{what}{how}" for what in ("Inclusion", "Timeout") for how in ("Missing", "Refused")}
    assert {*KINDS, *WITH_REASON} == kinds


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RateLimited("x"), "rate-limited"),
        (StatePruned("x"), "pruned"),
        (Unreachable("x"), "unreachable"),
        (NotKnownHere("x"), "not-known"),
        (BadAnswer("x"), "wrong-answer"),
        (BodyMissing("x"), "no-body"),
        (Garbled("x"), "wrong-answer"),
        (TooMuch("x"), "too-much"),
        (Overflow("x"), "too-much"),
        (Inaccessible("x"), "inaccessible"),
        (RpcFault(5, "x"), "refused"),
        (Unwilling(5, "x"), "refused"),
    ],
)
def test_reason_of_a_retry(error: NodeError, reason: str) -> None:
    assert reason_of(error) == reason
