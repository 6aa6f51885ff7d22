# SPDX-License-Identifier: Apache-2.0
"""The end of `validator follow`: a block that was not compared is no success."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from validator_relay_chain import command
from validator_relay_chain.command import Closed, End
from validator_relay_chain.oracle.judge import COUNTED

from validator.config import Config
from validator.errors import UserError

LANE = "polkadot"
LAST = 12

Said = pytest.CaptureFixture[str]


def agreement(block: int, skipped: int = 0) -> dict[str, Any]:
    counts = {**dict.fromkeys(COUNTED, 3), "skipped": skipped}
    return {"lane": LANE, "block": block, **counts, "disagreements": {}, "last_ours": None}


@pytest.fixture
def config(tmp_path: Path) -> Config:
    chain = {"to_block": LAST, "folder": str(tmp_path)}
    return Config.model_validate({"transports": {"relay-chain": {"chains": {LANE: chain}}}})


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "JUDGED_S_MAX", 0.2)
    monkeypatch.setattr(command, "LOOK_S", 0.01)
    monkeypatch.setattr(command, "begin_of", lambda *_: 4)
    monkeypatch.setattr(command, "executed_blocks", lambda _: {LANE: LAST})


def closed(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
    found: dict[str, Any] | Exception | None,
    end: End = End.LAST_BLOCK,
    *,
    judge: bool = True,
    skipped: int = 0,
) -> Closed:
    def said(*_: object) -> dict[str, Any] | None:
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(command, "_agreement", said)
    return command.close(config, LANE, end, threading.Event() if judge else None, skipped, patience_s=0.1)


def test_last_block_that_is_compared_is_success(config: Config, monkeypatch: pytest.MonkeyPatch, capsys: Said) -> None:
    assert closed(config, monkeypatch, agreement(LAST)) is Closed.WHOLE
    assert f"compared with the chain up to block {LAST}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (None, "8 blocks not compared with the chain, 5 to 12"),
        (agreement(LAST - 1), "1 block not compared with the chain, 12 to 12"),
        (agreement(LAST, skipped=3), "2 blocks left out: the chain's facts of them are missing"),
        (UserError("Kafka does not answer"), "what the judge says cannot be read: Kafka does not answer"),
    ],
)
def test_block_that_is_not_compared_is_said_and_no_success(
    config: Config, monkeypatch: pytest.MonkeyPatch, capsys: Said, found: Any, line: str
) -> None:
    assert closed(config, monkeypatch, found, skipped=1) is Closed.NOT_COMPARED
    assert f"lane {LANE}: {line}" in capsys.readouterr().err


def test_blocks_that_an_earlier_run_left_out_are_no_failure_of_this_one(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert closed(config, monkeypatch, agreement(LAST, skipped=3), skipped=3) is Closed.WHOLE


def test_lane_that_executes_nothing_is_not_compared(
    config: Config, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    monkeypatch.setattr(command, "executed_blocks", lambda _: {LANE: 7})
    assert closed(config, monkeypatch, agreement(7)) is Closed.NOT_COMPARED
    said = capsys.readouterr().err
    assert "does the job run?" in said
    assert "5 blocks not compared with the chain, 8 to 12" in said


def test_judge_that_has_ended_is_named(config: Config, monkeypatch: pytest.MonkeyPatch, capsys: Said) -> None:
    ended = threading.Event()
    ended.set()
    monkeypatch.setattr(command, "_agreement", lambda *_: agreement(7))
    assert command.close(config, LANE, End.LAST_BLOCK, ended, 0, patience_s=0.1) is Closed.NOT_COMPARED
    assert "the judge has ended, its lines say why" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("end", "judge", "expected"),
    [
        (End.LAST_BLOCK, False, Closed.WHOLE),
        (End.SIGNAL, True, Closed.WHOLE),
        (End.RULES, True, Closed.RULES),
    ],
)
def test_nobody_waits_for_a_comparison_that_is_not_wanted_or_goes_on_later(
    config: Config, monkeypatch: pytest.MonkeyPatch, end: End, judge: bool, expected: Closed
) -> None:
    assert closed(config, monkeypatch, None, end, judge=judge) is expected
