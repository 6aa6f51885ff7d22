# SPDX-License-Identifier: Apache-2.0
"""People read words for what is missing or has no limit, and nothing that a stranger has written reaches a terminal or a pipe raw."""

from __future__ import annotations

import ast
import json
import re
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tests.tidy.tree import ROOT
from validator.ask.plain_view import _sections, _whole
from validator.cli import compare, rows, rules, state
from validator.cli.common import say
from validator.cli.job_log import log_printer
from validator.cli.main import app
from validator.cli.rows import ROWS, why
from validator.cli.table import PlainTable, VisibleConsole, cells, print_table
from validator.codec.json_form import without_never
from validator.core.limits import U32_MAX
from validator.errors import UserError
from validator.history import expectation
from validator.history.expectation import Difference
from validator.plugin.protocol_api import StateSection
from validator.plugin.rule_pages import RuleEntry, Sort
from validator.protocols.router.configuration import PRESETS
from validator.protocols.router.state import HrmpChannel, RouterState
from validator.protocols.router.state_view import channel_sections, para_sections
from validator.visible import printable, printable_lines

if TYPE_CHECKING:
    from rich.console import RenderableType


SENTINELS = ("None", "null", str(U32_MAX), f"{U32_MAX:,}")


def least(kind: Any) -> Any:
    """Return the JSON value of a schema's type with nothing in it that may be left out."""
    if isinstance(kind, list):
        return None if "null" in kind else least(kind[0])
    if isinstance(kind, str):
        return {"string": "a", "boolean": True, "long": 7, "bytes": "00"}.get(kind, 7)
    match kind["type"]:
        case "record":
            return {field["name"]: least(field["type"]) for field in kind["fields"]}
        case "array":
            return []
        case "enum":
            return kind["symbols"][0]
        case "fixed":
            return "00" * kind["size"]
    return least(kind["type"])


def records() -> list[tuple[str, dict[str, Any]]]:
    found = []
    for path in sorted((ROOT / "avro").glob("*.avsc")):
        schema = json.loads(path.read_text(encoding="utf-8"))
        if schema.get("topic") in ROWS:
            found.append((schema["topic"], least(schema)))
    return found


def row_text(topic: str, record: dict[str, Any]) -> str:
    return "  ".join(ROWS[topic](record))


def test_record_with_nothing_optional_has_no_sentinel_in_its_row() -> None:
    seen = set()
    for topic, record in records():
        if topic == "verdicts":
            record |= {"ok": True, "kind": "candidate"}
        text = row_text(topic, record)
        assert not any(sentinel in text for sentinel in SENTINELS), (topic, text)
        seen.add(topic)
    assert seen == set(ROWS)


def test_headroom_without_a_limit_says_so() -> None:
    found = dict.fromkeys(
        ("upward_count_left", "upward_bytes_left", "places_left", "bytes_left", "message_size_max"), U32_MAX
    )
    texts = [row_text(topic, record | {"valid": True, "open": True} | {k: v for k, v in found.items() if k in record})
             for topic, record in records() if topic == "headroom"]  # fmt: skip
    assert len(texts) == 2
    assert all("any number of bytes" in text for text in texts)
    assert not any(sentinel in text for text in texts for sentinel in SENTINELS)


def test_full_channel_is_full_in_its_headroom() -> None:
    (record,) = (record for topic, record in records() if "places_left" in record)
    assert "full: 0 places, 7 bytes" in row_text("headroom", record | {"open": True, "places_left": 0})
    assert "full" not in row_text("headroom", record | {"open": True})


def test_request_that_never_expires_names_no_session() -> None:
    (record,) = (record for topic, record in records() if topic == "verdicts")
    record |= {"ok": True, "kind": "request"}
    assert "expires at session 9" in row_text("verdicts", record | {"expires_session": 9})
    assert "expires" not in row_text("verdicts", without_never(record | {"expires_session": U32_MAX + 4}))
    assert "expires at" in row_text("verdicts", without_never(record | {"expires_session": U32_MAX - 1}))


def test_error_has_words_for_its_values() -> None:
    error = {
        "kind": "A/B",
        "expected": None,
        "channel": {"sender": 1, "recipient": None},
        "at": [1, None],
        "paid": False,
    }
    assert why(error) == "A/B  expected none, channel 1→none, at [1, none], paid no"


def channel(used: int, places: int = 10, size: int = 10) -> HrmpChannel:
    return HrmpChannel(
        sender_deposit=0, recipient_deposit=0, limit_used_places=places, limit_used_bytes=size, limit_message_size=U32_MAX,
        used_places=used, used_bytes=used,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("used", "places", "size", "word"),
    [
        (0, 10, 10, ""),
        (7, 10, 10, ""),
        (8, 10, 10, "nearly full"),
        (10, 10, 20, "full"),
        (10, 20, 10, "full"),
        (9, U32_MAX, 10, "nearly full"),
    ],
)
def test_channel_is_full_when_nothing_fits(used: int, places: int, size: int, word: str) -> None:
    state = RouterState(PRESETS["minimal"])
    state.hrmp_channels[1, 2] = channel(used, places, size)
    state.hrmp_egress_channels_index[1] = [2]
    (shown,) = (each for each in para_sections(state, 1, None) if each.title.startswith("outbound"))
    assert shown.rows[0][-1] == word
    left = dict(channel_sections(state, (1, 2))[0].facts)["left"]
    assert left.split(", ")[2:] == ([word] if word else [])
    texts = [*shown.rows[0], *(value for each in channel_sections(state, (1, 2)) for _, value in each.facts)]
    assert not any(sentinel in text for text in texts for sentinel in SENTINELS)


def test_view_of_a_protocol_without_one_has_words() -> None:
    whole = _whole(3, {"next": None})
    assert ("next", "none") in whole[0].facts
    (section,) = _sections({"watermarks": {"1": None}}) or []
    assert list(section.rows) == [("1", "none")]


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
        "state_root": HOSTILE, "runtime_digest": HOSTILE, "root": HOSTILE, "valid_watermarks": [], "valid": True, "dropped": [],
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
