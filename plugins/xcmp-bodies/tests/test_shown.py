# SPDX-License-Identifier: Apache-2.0
"""Messages are a table on a terminal, a line each without one; an alarm is said when it begins and when it ends."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console
from validator_xcmp_bodies.alarms import BEGINS, ENDS, Alarms
from validator_xcmp_bodies.cli import COLUMNS, Message, show_messages
from validator_xcmp_bodies.follow import Delivery
from validator_xcmp_bodies.outcomes import Held, Watermark


def messages(count: int) -> Iterator[Message]:
    for sender in range(1, count + 1):
        held = Held(2, 1000 + sender, 5, bytes(32), 3, 1, ())
        yield Delivery(held, ((5, 1000 + sender),), Watermark(5, (1000 + sender,))), [b"abc"]


@pytest.mark.parametrize("follow", [True, False])
def test_a_terminal_gets_a_table(follow: bool) -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=140, height=6, highlight=False)
    show_messages("polkadot", messages(4), as_json=False, follow=follow, console=console)
    last = text.getvalue().rpartition(COLUMNS[0])[2]
    assert [str(sender) in last for sender in (1001, 1002, 1003, 1004)] == [not follow, True, True, True]
    assert "acked at it" in last


def test_a_pipe_gets_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    show_messages("polkadot", messages(2), as_json=False, follow=True)
    printed = capsys.readouterr().out.splitlines()
    assert printed[1] == (
        "5/1002: 1 payloads, 3 bytes, root 0000000000000000; acknowledge 1: everything below 5 and 1002 at it"
    )
    assert len(printed) == 2


def status(recipient: int, alarm: bool, height: int) -> dict[str, Any]:
    front = {"sent_at": 5, "sender": 1, "held": False} if alarm else None
    return {"lane": "polkadot", "recipient": recipient, "alarm": alarm, "height": height, "front": front}


def test_an_alarm_is_said_once_when_it_begins_and_once_when_it_ends() -> None:
    alarms = Alarms()
    said = []
    for recipient, alarm, height in ((2, False, 6), (2, True, 8), (3, True, 8), (2, True, 9), (2, False, 10)):
        alarms.apply(status(recipient, alarm, height))
        said += [(each["event"], each["recipient"], each["height"]) for each in alarms.news()]
    assert said == [(BEGINS, 2, 8), (BEGINS, 3, 8), (ENDS, 2, 10)]


def test_an_alarm_names_the_front_and_its_age() -> None:
    alarms = Alarms()
    alarms.apply(status(2, alarm=True, height=8))
    (event,) = alarms.news()
    assert (event["level"], event["front"], event["age_blocks"], event["missing"]) == ("warning", "5/1", 3, True)
