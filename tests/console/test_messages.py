# SPDX-License-Identifier: Apache-2.0
"""The pages of messages: what waits, why, how long queues wait, and one message's way, live and found by any of its hashes."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING

import pytest

from tests.console.records import verdict
from validator.console import journeys
from validator.console.journeys import KeptMessages
from validator.messages import WAITING

if TYPE_CHECKING:
    from tests.console.conftest import Web
    from validator.console.journeys import KeptMessage

PAGE = "/lanes/polkadot/messages"


def one(web: Web, status: str, kind: str = "horizontal") -> KeptMessage:
    kept = web.lane.messages
    return next(
        each
        for each in (*kept.waiting.values(), *kept.ended.values())
        if (each.status, each.queue.kind) == (status, kind)
    )


def test_page_lists_what_waits_longest_first_with_why(web: Web) -> None:
    text = web.get(PAGE)
    waiting = web.lane.messages.waiting
    blocks = sorted(each.queued_at or 0 for each in waiting.values())
    rows = re.findall(r'href="/lanes/polkadot/messages/([^"]+)"', text)
    assert [waiting[each].queued_at for each in rows] == blocks[:100]
    assert f"{len(waiting)} messages wait" in text
    assert f"<dd>{60 - blocks[0]} blocks</dd>" in text
    assert text.count("has not received it") + text.count("was rejected") + text.count("has not dispatched") >= len(
        rows
    )
    assert 'aria-current="page">Messages' in text


def test_filters(web: Web) -> None:
    message = one(web, WAITING)
    para = message.queue.recipient
    shown = re.findall(rf'href="{PAGE}/([^"]+)"', web.get(f"{PAGE}?para={para}&kind=horizontal"))
    expected = [
        each.id for each in web.lane.messages.waiting.values() if para in each.paras and each.queue.kind == "horizontal"
    ]
    assert sorted(shown) == sorted(expected)
    dropped = web.get(f"{PAGE}?status=dropped")
    assert "Dropped, newest first" in dropped
    assert "dropped in block" in dropped
    assert "para: expected a number" in web.get(f"{PAGE}?para=x")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(WAITING, "horizontal"), ("received", "horizontal"), ("received", "downward"), ("dispatched", "upward")],
)
def test_page_of_a_message_shows_its_way(web: Web, status: str, kind: str) -> None:
    message = one(web, status, kind)
    record = web.model.message(message.value)
    text = web.get(f"{PAGE}/{message.id}")
    assert message.id in text
    assert record["payload_hash"] in text
    for leg in record["legs"]:
        assert f"block={leg['block']}&amp;view=every" in text
        if leg["by"] not in (None, "dispatch"):
            assert f"/verdicts/{leg['block']}/{leg['by']}/{leg['index']}" in text
    if status == WAITING:
        assert "It has waited for" in text


def test_page_counts_what_waits_before_it(web: Web) -> None:
    waiting = web.lane.messages.waiting.values()
    last = max(waiting, key=lambda each: each.number)
    before = sum(each.queue == last.queue and each.number < last.number for each in waiting)
    assert before > 1
    assert f" {before} messages of the same queue are before it." in web.get(f"{PAGE}/{last.id}")


def test_message_that_the_console_does_not_keep(web: Web) -> None:
    answer = web.client.get(f"{PAGE}/polkadot.horizontal.1.2.3.4")
    assert answer.status_code == 404
    assert "`validator message ID` looks at all" in unescape(answer.text)


@pytest.mark.parametrize("name", ["id", "payload_hash", "bare"])
def test_search_finds_messages(web: Web, name: str) -> None:
    message = one(web, "received", "horizontal")
    record = web.model.message(message.value)
    wanted = {"id": message.id, "payload_hash": record["payload_hash"], "bare": record["payload_hash"][2:]}[name]
    answer = web.client.get("/find", params={"q": wanted, "lane": "polkadot"})
    assert answer.status_code == 303
    found = web.lane.messages.get(answer.headers["location"].rpartition("/")[2])
    assert found is not None
    assert web.model.message(found.value)["payload_hash"] == record["payload_hash"]


def test_lane_without_messages_says_how_to_follow_them(web: Web) -> None:
    web.model.take([verdict("westend", 1, 0)])
    assert "[jobs.journeys]" in web.get("/lanes/westend/messages")
    assert ">Messages<" not in web.get("/lanes/westend").partition("</nav>")[0]


def test_memory_is_bounded(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journeys, "WAITING_MAX", 3)
    monkeypatch.setattr(journeys, "ENDED_MAX", 5)
    monkeypatch.setattr(journeys, "QUEUES_MAX", 2)
    kept = KeptMessages()
    all_of = [*web.lane.messages.waiting.values(), *web.lane.messages.ended.values()]
    for each in all_of:
        kept.take(web.model.message(each.value), each.value)
    assert (len(kept.waiting), len(kept.ended), len(kept.queues)) == (3, 5, 2)
    assert kept.unkept == len(web.lane.messages.waiting) - 3
    again = next(iter(kept.ended.values()))
    ended = sum(queue.ended.total() for queue in kept.queues.values())
    kept.take(web.model.message(again.value), again.value)
    assert sum(queue.ended.total() for queue in kept.queues.values()) == ended, "a record that comes twice counts once"
