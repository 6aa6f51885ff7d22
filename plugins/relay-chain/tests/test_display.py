# SPDX-License-Identifier: Apache-2.0
"""What `validator follow` says while it works, and at its end."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator

import pytest
from rich.console import Console
from validator_relay_chain.display import LINE_S, LOG, Display, Followed, LaneDisplay, LogLines
from validator_relay_chain.oracle.records import describe_briefly

JUDGED = "compared up to block 9: 30 candidates agree"


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lane(clock: Clock) -> Iterator[LaneDisplay]:
    with LogLines():
        yield LaneDisplay("polkadot", 9, None, lambda: JUDGED, clock)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records]


def test_every_block_at_the_head_has_a_line(lane: LaneDisplay, caplog: pytest.LogCaptureFixture) -> None:
    lane.show(Followed(10, 3, 2, target=10, head=10))
    lane.show(Followed(11, 1, 1, target=12, head=12))
    assert said(caplog) == [
        f"lane polkadot: block 10, at the finalised head: 3 candidates, 2 included; {JUDGED}",
        f"lane polkadot: block 11, 1 behind the finalised head: 1 candidate, 1 included; {JUDGED}",
    ]


def test_a_lane_that_catches_up_says_so_from_time_to_time(
    lane: LaneDisplay, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(10, 51):
        clock.now += LINE_S / 10
        lane.show(Followed(number, 2, 2, target=1_009, head=2_009))
    assert len(said(caplog)) == 5
    assert (
        "block 30 of 1009, 1979 behind the finalised head: 2 candidates, 2 included; 1.0 blocks/s, 16 min left; "
        in said(caplog)[2]
    )


def test_the_end_has_a_summary(lane: LaneDisplay, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    lane.end()
    clock.now = 120.0
    for number in (10, 11):
        lane.show(Followed(number, 3, 2, target=11, head=14))
    lane.end()
    assert said(caplog)[0] == f"lane polkadot: no block was followed; {JUDGED}"
    assert said(caplog)[-1] == (
        f"lane polkadot: followed 2 blocks, 10 to 11, with 6 candidates in 2 min; 3 behind the finalised head; {JUDGED}"
    )


def test_a_terminal_gets_a_bar_and_lines_go_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    console = Console(stderr=True, force_terminal=True, width=200, _environ={})
    with LogLines(), Display(console) as display:
        shown = display.lane("polkadot", 9, lambda: JUDGED)
        shown.show(Followed(10, 3, 2, target=11, head=11))
        assert sys.stderr is not screen  # rich writes what comes here above the bar
        LOG.log(logging.WARNING, "lane polkadot: something")
    text = screen.getvalue()
    assert "lane polkadot: something" in text
    assert "block 10, 1 behind the finalised head: 3 candidates, 2 included" in text


@pytest.mark.parametrize(
    ("disagreements", "words"),
    [({}, "30 candidates agree"), ({"ours": 0, "downward-order": 2}, "disagreements 2 downward-order")],
)
def test_what_the_judge_says_is_short(disagreements: dict[str, int], words: str) -> None:
    said = describe_briefly({"block": 9, "candidates": 30, "disagreements": disagreements})
    assert said == f"compared up to block 9: {words}"
    assert describe_briefly(None) == "nothing compared with the chain yet"
