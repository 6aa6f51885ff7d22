# SPDX-License-Identifier: Apache-2.0
"""Nothing that a stranger has written reaches a terminal or a pipe raw."""

from __future__ import annotations

import ast
import json
import re
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Group
from rich.table import Table
from rich.text import Text

from validator.cli import compare, rows, rules, state
from validator.cli.common import say
from validator.cli.job_log import log_printer
from validator.cli.main import app
from validator.cli.table import PlainTable, VisibleConsole, cells, print_table
from validator.errors import UserError
from validator.history import expectation
from validator.history.expectation import Difference
from validator.plugin.protocol_api import StateSection
from validator.plugin.rule_pages import RuleEntry, Sort
from validator.visible import printable, printable_lines

if TYPE_CHECKING:
    from rich.console import RenderableType

ROOT = Path(__file__).resolve().parents[2]

HOSTILE = "\x1b]0;owned\x07\u202egnp\u200b\r\n\x9b2J\ud800"
SHOWN = r"\x1b]0;owned\x07\u202egnp\u200b\r\n\x9b2J\ud800"


def is_visible(text: str) -> bool:
    return all(char.isprintable() for char in text)


def test_what_is_not_visible_is_escaped() -> None:
    assert printable(HOSTILE) == SHOWN
    assert printable("sender→recipient ✔ …") == "sender→recipient ✔ …"
    assert printable_lines("one\ntwo\x1b\r") == "one\ntwo\\x1b\\r"


@pytest.mark.parametrize("topic", rows.ROWS)
def test_every_cell_of_every_topic_is_visible(topic: str) -> None:
    fields = {
        "lane": HOSTILE, "kind": HOSTILE, "error": {"kind": HOSTILE, "field": HOSTILE, "clause": HOSTILE}, "ok": False,
        "event": HOSTILE, "reason": HOSTILE, "detail": HOSTILE, "topic": HOSTILE, "failure": HOSTILE, "outcome": HOSTILE,
        "payload": "00", "waiting_for": HOSTILE,
        "state_root": HOSTILE, "runtime_digest": HOSTILE, "root": HOSTILE, "valid_watermarks": [], "valid": True,
    }  # fmt: skip
    numbers = (
        "block", "index", "para_id", "session", "sender", "recipient", "weight", "accepted", "rejected", "enacted", "dispatched",
        "weight_used", "partition", "offset", "upward_count_left", "upward_bytes_left", "downward_pending", "watermark",
        "sender_reserved", "sender_returned", "recipient_reserved", "recipient_returned", "sent_at", "size", "executed_block",
    )  # fmt: skip
    cells = rows.ROWS[topic]({**dict.fromkeys(numbers, 1), **fields})
    assert any("owned" in cell for cell in cells)
    assert all(map(is_visible, cells))


def test_lines_for_the_user_are_visible(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"one {HOSTILE}")
    log_printer(as_json=False)({"event": "failed", "reason": HOSTILE})
    shown = capsys.readouterr().err
    assert is_visible(shown.replace("\n", ""))
    assert shown.count("owned") == 2


def test_error_line_is_visible(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object) -> None:
        raise UserError(f"found {HOSTILE}")

    monkeypatch.setattr("validator.cli.main._load", fail)
    with pytest.raises(SystemExit):
        app(["lanes"])
    shown = capsys.readouterr().err
    assert "owned" in shown
    assert is_visible(shown.replace("\n", ""))


def test_json_escapes_what_is_not_visible() -> None:
    assert is_visible(json.dumps({"detail": HOSTILE}))


# --- tables -------------------------------------------------------------------------------------------------------------------------------

MARKUP = "[bold]x[/bold] [link=http://a]y[/link] :smile:"


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(shown: RenderableType) -> str:
    """Return what a terminal gets, without the escape sequences of the product's own styles."""
    file = Terminal()
    VisibleConsole(file=file, force_terminal=True, width=400, color_system="standard").print(shown)
    return re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())


@pytest.mark.parametrize("text", [HOSTILE, MARKUP], ids=["control", "markup"])
def test_a_table_shows_text_as_text(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("a", text, title=text)
    table.add_row(text, *cells([text]))
    group = Group(table, Text(text), text)
    print_table(group)
    piped, shown = capsys.readouterr().out, on_terminal(group)
    for output in (piped, shown):
        assert all(map(is_visible, output.split("\n")))
        assert "owned" in output or MARKUP in output


@pytest.mark.parametrize("text", [HOSTILE, MARKUP], ids=["control", "markup"])
def test_a_cell_is_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    for table in (state._table(("a", "b"), [(text, text)]), state._table(("a",), [(text,)], left=("a",))):
        print_table(table)
        assert len(capsys.readouterr().out.splitlines()) == 2
    lines = PlainTable(("a", "b")).lines([(text, text)])
    assert len(lines.split("\n")) == 3
    assert all(map(is_visible, lines.split("\n")))


def test_a_section_of_a_plugin_is_visible(capsys: pytest.CaptureFixture[str]) -> None:
    section = StateSection(
        HOSTILE, facts=((HOSTILE, HOSTILE),), columns=("a",), rows=((HOSTILE,),), left=("a",), text=HOSTILE
    )
    print_table(Group(*state._shown([section])))
    shown = capsys.readouterr().out
    assert shown.count("owned") == 5
    assert all(map(is_visible, shown.split("\n")))


def test_a_rule_of_a_plugin_is_visible(capsys: pytest.CaptureFixture[str]) -> None:
    entry = RuleEntry(
        protocol=HOSTILE, name=HOSTILE, sort=Sort.ERROR, group=HOSTILE, title=HOSTILE, text=HOSTILE, clauses=(HOSTILE,), sources=(HOSTILE,),
        fields=(((HOSTILE, HOSTILE),),), rules=(HOSTILE,), reference=HOSTILE,
    )  # fmt: skip
    rules._list([entry], as_json=False)
    rules._print_entries([entry], as_json=False)
    piped = capsys.readouterr().out
    rendered = on_terminal(Group(*rules._rendered(entry)))
    for output in (piped, rendered):
        assert "owned" in output
        assert all(map(is_visible, output.split("\n")))


def test_a_difference_is_visible() -> None:
    difference = Difference(
        {"lane": HOSTILE, "block": 1}, expectation.Sort.DIFFERS, {"detail": HOSTILE}, {"detail": HOSTILE}
    )
    assert is_visible(compare._line(difference))


def test_only_one_module_makes_a_console() -> None:
    """Every other console would read markup and print control characters."""
    made = []
    for folder in (ROOT / "validator", ROOT / "plugins" / "xcmp-bodies" / "src", ROOT / "streaming"):
        for path in folder.rglob("*.py"):
            calls = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
            names = [node.func.id for node in calls if isinstance(node.func, ast.Name)]
            made += [path.name] if "Console" in names else []
    assert made == []
