# SPDX-License-Identifier: Apache-2.0
"""Nothing that a stranger has written reaches a terminal or a pipe raw."""

from __future__ import annotations

import json

import pytest

from validator.cli import rows
from validator.cli.common import say
from validator.cli.job_log import log_printer
from validator.cli.main import app
from validator.cli.visible import printable, printable_lines
from validator.errors import UserError

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
        "lane": HOSTILE, "kind": HOSTILE, "error": {"kind": HOSTILE, "field": HOSTILE}, "ok": False, "clause": HOSTILE,
        "event": HOSTILE, "reason": HOSTILE, "detail": HOSTILE, "topic": HOSTILE, "failure": HOSTILE, "outcome": HOSTILE,
        "payload": "00", "state_root": HOSTILE, "runtime_digest": HOSTILE, "root": HOSTILE, "valid_watermarks": [], "valid": True,
    }  # fmt: skip
    numbers = (
        "block", "index", "para_id", "session", "sender", "recipient", "weight", "accepted", "rejected", "enacted", "dispatched",
        "weight_used", "partition", "offset", "upward_count_left", "upward_bytes_left", "downward_pending", "watermark",
        "sender_reserved", "sender_returned", "recipient_reserved", "recipient_returned", "sent_at", "size",
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
