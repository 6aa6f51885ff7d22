# SPDX-License-Identifier: Apache-2.0
"""Tables in a pipe have headings and one whole row a line; on a terminal they fit its width and keep their words."""

from __future__ import annotations

from collections import Counter
from io import StringIO
from typing import Any, Final

import pytest
from rich.table import Table

from validator.cli.dead_letters import _print
from validator.cli.rows import COLUMNS, NUMBERS, ROWS, shortened
from validator.cli.state import _shown
from validator.cli.table import FittedTable, PlainTable, VisibleConsole, print_table, several
from validator.config import Config
from validator.plugin.protocol_api import StateSection

LONG = "a detail that is much longer than a terminal is wide, " * 4


def table() -> Table:
    made = Table("name", "detail", box=None)
    made.add_row("one", LONG)
    made.add_row("two", several(["first", "second"]))
    return made


def test_pipe_gets_whole_rows(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    print_table(table())
    headings, one, two = capsys.readouterr().out.splitlines()
    assert headings.split() == ["name", "detail"]
    assert one.split(maxsplit=1) == ["one", LONG.rstrip()]
    assert two.split(maxsplit=1) == ["two", "first, second"]


def test_terminal_gets_rows_that_fit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "dumb")
    print_table(table())
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split() for line in lines[-2:]] == [["two", "first"], ["second"]]


def test_columns_are_aligned_and_only_become_wider() -> None:
    plain = PlainTable(("name", "count"), numbers={"count"})
    assert plain.lines([("a", "1"), ("longer", "10")]) == "name    count\na           1\nlonger     10\n"
    assert plain.lines([("b", "2")]) == "b           2\n"
    assert plain.lines([("the longest", "3")]) == "the longest      3\n"
    assert plain.lines([("c", "4")]) == "c                4\n"


def test_row_with_another_number_of_cells_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        PlainTable(("name", "count")).lines([("a",)])


HASH: Final = f"0x{'7e' * 32}"
PAYLOAD: Final = f"0x{'ab' * 100}"
RECEIPT: Final[dict[str, Any]] = {
    "lane": "polkadot", "block": 17844553, "parent_number": 17844552, "session": 12, "accepted": 27, "rejected": 3, "enacted": 10,
    "dispatched": 1, "weight_used": 100000000000, "state_root": HASH, "runtime_digest": HASH,
}  # fmt: skip
DISPATCH: Final[dict[str, Any]] = {
    "lane": "polkadot", "block": 1, "index": 7, "para_id": 3397, "payload": PAYLOAD, "weight": 5, "outcome": "ok", "failure": None,
}  # fmt: skip
LETTER: Final[dict[str, Any]] = {
    "place": "0/0", "timestamp_ms": 0, "lane": "polkadto", "reason": "UNKNOWN_LANE", "topic": "validator.downward-messages", "partition": 0,
    "offset": 0, "block": 17844553, "index": 0, "attempt": 1, "replayed": None, "detail": "lane 'polkadto' is not configured",
}  # fmt: skip


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "80")


def printed(table: FittedTable, width: int) -> list[str]:
    text = StringIO()
    VisibleConsole(file=text, width=width).print(table)
    return [line.rstrip() for line in text.getvalue().splitlines()]


def test_pipe_gets_every_cell_in_full() -> None:
    assert ROWS["receipts"](RECEIPT)[-2:] == (HASH, HASH)
    assert f"100 bytes {PAYLOAD}" in ROWS["dispatches"](DISPATCH)
    headroom = {
        "lane": "a", "block": 1, "para_id": 1, "valid": True, "upward_count_left": 1, "upward_bytes_left": 1, "downward_pending": 0,
        "watermark": 1, "valid_watermarks": list(range(100, 150)),
    }  # fmt: skip
    assert "148, 149" in ROWS["headroom"](headroom)[-1]


def test_receipt_on_80_columns_has_whole_headings_and_a_line_for_the_rest() -> None:
    headings = COLUMNS["receipts"]
    row = shortened(headings, ROWS["receipts"](RECEIPT))
    names, numbers, *below = printed(FittedTable(headings, [row], NUMBERS), 80)
    assert names.split() == ["lane", "block", "session", "accepted", "rejected", "enacted", "dispatched"]
    assert numbers.split() == ["polkadot", "17844553", "12", "27", "3", "10", "1"]
    assert " ".join(below).split() == [
        "weight:",
        "100000000000",
        "state",
        "root:",
        f"{HASH[:16]}…",
        "runtime:",
        f"{HASH[:16]}…",
    ]


def test_dead_letters_on_80_columns_have_whole_words(terminal: None, capsys: pytest.CaptureFixture[str]) -> None:
    _print([LETTER], Counter({"UNKNOWN_LANE": 1}), Config())
    names, first, *below, counted = capsys.readouterr().out.splitlines()
    assert names.split() == ["place", "time", "lane", "reason", "block", "index", "attempt"]
    assert first.split()[0] == "0/0"
    assert first.split()[-7:] == ["polkadto", "UNKNOWN_LANE", "17844553", "0", "1", "of", "3"]
    assert [line.strip() for line in below] == [
        "read from: validator.downward-messages[0]@0",
        "detail: lane 'polkadto' is not configured",
    ]
    assert counted == "1 dead letter: 1 UNKNOWN_LANE"


def test_last_column_wraps_next_to_the_others_if_it_keeps_its_words() -> None:
    names, *rows = printed(FittedTable(("lane", "detail"), [("polkadot", "word " * 30)]), 60)
    assert names.split() == ["lane", "detail"]
    assert len(rows) > 1
    assert all("word word word" in row for row in rows)


@pytest.mark.parametrize("width", [40, 80, 300])
def test_live_table_has_a_line_for_each_row(width: int) -> None:
    table = FittedTable(COLUMNS["receipts"], [ROWS["receipts"](RECEIPT)] * 3, NUMBERS, one_line=True)
    lines = printed(table, width)
    assert len(lines) == 4
    assert lines[0].split()[:2] == ["lane", "block"]
    assert lines[1].split()[:2] == ["polkadot", "17844553"]


SECTION: Final = StateSection(
    "contents",
    columns=("number", "sent at", "bytes", "payload", "MQC head"),
    rows=[("1", "2", "100", PAYLOAD, HASH)],
    left=("payload", "MQC head"),
)


def test_state_in_a_pipe_has_whole_payloads_and_heads(capsys: pytest.CaptureFixture[str]) -> None:
    for part in _shown([SECTION]):
        print_table(part)
    assert capsys.readouterr().out.splitlines()[-1].split() == ["1", "2", "100", PAYLOAD, HASH]


def test_state_on_a_terminal_has_whole_heads(terminal: None, capsys: pytest.CaptureFixture[str]) -> None:
    for part in _shown([SECTION]):
        print_table(part)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert f"MQC head: {HASH}" in lines
    assert max(map(len, lines)) <= 80
    assert PAYLOAD not in "".join(lines)
    assert f"payload: {PAYLOAD[:66]}…" in lines


@pytest.mark.parametrize(
    ("outcome", "failure", "words"),
    [
        ("ok", None, ""),
        ("no_handler", None, "no handler"),
        ("out_of_weight", None, "out of weight"),
        ("failed", "transfer: no such account", "failed: transfer: no such account"),
    ],
)
def test_outcome_of_a_dispatch_is_in_words(outcome: str, failure: str | None, words: str) -> None:
    row = ROWS["dispatches"](DISPATCH | {"outcome": outcome, "failure": failure})
    assert dict(zip(COLUMNS["dispatches"], row, strict=True))["outcome"] == words
