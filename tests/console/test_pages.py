# SPDX-License-Identifier: Apache-2.0
"""Every page, through the web application, without Kafka."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from unittest.mock import ANY
from urllib.parse import quote

import pytest

from tests.console.conftest import Web
from tests.console.records import HOSTILE, START_MS, dead_letter, verdict
from validator.codec.json_form import shown_json
from validator.console import app as app_module
from validator.console import verdicts
from validator.console.app import PAGES, STILL
from validator.console.context import ConsoleContext
from validator.console.names import LaneLink
from validator.console.rendering import clock, grouped, parts
from validator.core.types import BlockNumber
from validator.job.lag import Lag
from validator.kafka.reader import TopicRecord
from validator.lanes.auditing import AuditFault, fault_record

LINK = "/lanes/polkadot"
CAPACITY = "OutboundHrmp/CapacityExceeded"


class Outline(HTMLParser):
    """Checks that elements are closed, and collects what assistive programs need."""

    VOID = frozenset({"meta", "link", "input", "br", "hr", "img", "path", "rect", "circle", "wbr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.named_by: list[str] = []
        self.hrefs: list[str] = []
        self.headings = 0
        self.bad: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        fields = dict(attrs)
        self.headings += tag == "h1"
        self.ids += [fields["id"] or ""] if "id" in fields else []
        self.named_by += [fields["aria-labelledby"] or ""] if "aria-labelledby" in fields else []
        self.hrefs += [fields["href"] or ""] if tag == "a" else []
        self.bad += [f"{tag} {name}" for name in fields if name == "style" or name.startswith("on")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def paths(web: Web) -> dict[str, str]:
    """Return an address for each page."""
    full = web.rejected(CAPACITY)
    ends = next(ends for ends, channel in web.lane.channels.items() if channel.messages)
    return {
        "/": "/",
        "/lanes/{lane}": LINK,
        "/lanes/{lane}/verdicts": f"{LINK}/verdicts",
        "/lanes/{lane}/verdicts/{block:int}/{kind}/{index:int}": f"{LINK}/verdicts/{full.block}/{full.kind}/{full.index}",
        "/lanes/{lane}/channels": f"{LINK}/channels",
        "/lanes/{lane}/channels/{sender:int}/{recipient:int}": f"{LINK}/channels/{ends[0]}/{ends[1]}",
        "/lanes/{lane}/paras": f"{LINK}/paras",
        "/lanes/{lane}/paras/{para:int}": f"{LINK}/paras/{full.para_id}",
        "/lanes/{lane}/paras/{para:int}/state": f"{LINK}/paras/{full.para_id}/state",
        "/lanes/{lane}/messages": f"{LINK}/messages",
        "/lanes/{lane}/messages/{id}": f"{LINK}/messages/{next(iter(web.lane.messages.waiting))}",
        "/lanes/{lane}/runtime": f"{LINK}/runtime",
        "/dead-letters": "/dead-letters",
        "/rules": f"/rules?name={CAPACITY}",
    }


def test_every_page_is_well_formed_and_its_links_work(web: Web) -> None:
    known = paths(web)
    assert set(known) == {path for path, _ in PAGES} - {"/dead-letters/{partition:int}/{offset:int}"}
    hrefs: set[str] = set()
    for path in known.values():
        text = web.get(path)
        outline = Outline(text)
        assert outline.open == [], path
        assert outline.headings == 1, path
        assert outline.bad == [], path
        assert len(set(outline.ids)) == len(outline.ids), path
        assert set(outline.named_by) <= set(outline.ids), path
        assert "<style" not in text
        assert len(re.findall("<script", text)) == 1
        hrefs.update(href for href in outline.hrefs if href.startswith("/"))
    samples = {re.sub(r"\d+", "1", href).partition("?")[0]: href for href in sorted(hrefs)}
    assert len(samples) > 10
    for href in samples.values():
        if not href.startswith("/dead-letters/"):  # without Kafka there is nothing to read them from
            assert web.client.get(href).status_code == 200, href


def test_a_part_of_every_live_page_is_what_the_page_shows(web: Web) -> None:
    for pattern, page in PAGES:
        if page in STILL:
            continue
        path = paths(web)[pattern]
        text = web.get(path)
        names = re.findall(r'data-part="(\w+)"', text)
        assert web.app.live_page(path) == (page, ANY)
        found = parts(page(web.app.console, web.app.live_page(path)[1], {}), web.app._more(live=True))
        assert sorted(names) == sorted(found), path
        for name, html in found.items():
            assert html in text or name.startswith(("live_rate", "live_latency")), (path, name)


def test_overview_says_how_the_lane_does(web: Web) -> None:
    text = web.get("/")
    assert "<h1>polkadot executes blocks." in text
    outcome = web.lane.tally.outcome
    assert f"{outcome['accepted']:,} accepted and {outcome['rejected']:,} rejected in the last 60 blocks." in text
    assert re.search(r"\d channels are full", text)
    assert text.count('class="f-ok" x=') == 60


def test_verdict_is_explained(web: Web) -> None:
    full = web.rejected(CAPACITY)
    text = web.get(f"{LINK}/verdicts/{full.block}/candidate/{full.index}")
    record = json.loads(re.sub("&#34;", '"', re.findall(r'<pre class="hex"[^>]*>(.*?)</pre>', text, re.DOTALL)[0]))
    count, limit = record["error"]["count"], record["error"]["limit"]
    assert f"would hold {count} message{'' if count == 1 else 's'}; it takes {limit}." in text
    assert "router.txt verify_outbound_hrmp 1.4" in text
    assert "docs/rules/router.md#error-outboundhrmpcapacityexceeded" in text
    assert "The channel would hold too many messages." in text
    assert f"The state it met: para {full.para_id}" in text
    met = [int(block) for block in re.findall(r'class="on"><td class="num first-s">(\d+)</td>', text)]
    assert met
    assert all(block < full.block for block in met)
    rule = web.get(f"/rules?name={CAPACITY}")
    assert "includes this one" in rule


def test_filters_and_their_mistakes(web: Web) -> None:
    text = web.get(f"{LINK}/verdicts?outcome=rejected&rule={CAPACITY}")
    expected = web.lane.tally.error[CAPACITY]
    assert len(re.findall(r"data-row=", text)) == expected > 0
    assert f"{expected} of {len(web.lane.verdicts):,} kept ones match." in text
    assert "para: expected a number" in web.get(f"{LINK}/verdicts?para=abc")
    assert "None of the" in web.get(f"{LINK}/verdicts?para=1")
    grouped = web.get(f"{LINK}/verdicts")
    assert re.search(r"1[0-9] accepted</span>", grouped)


@pytest.mark.parametrize(
    "path",
    ["/nowhere", "/lanes/rococo", f"{LINK}/paras/1", f"{LINK}/verdicts/9/candidate/999", f"{LINK}/channels/1/2", "/rules?name=no",
     "/dead-letters/0/1", "/find?q=999999999", "/find", "/static/app.py", "/static/..%2fapp.py"],
)  # fmt: skip
def test_missing_pages_say_what_there_is(web: Web, path: str) -> None:
    answer = web.client.get(path)
    assert answer.status_code == 404
    assert "<h1>Not here</h1>" in answer.text


def test_search(web: Web) -> None:
    full = web.rejected(CAPACITY)
    identity = full.value[-16:].hex()
    page = f"{LINK}/verdicts/{full.block}/candidate/{full.index}"
    targets = {
        str(full.para_id): f"{LINK}/paras/{full.para_id}",
        "17": f"{LINK}/verdicts?block=17",
        identity: page,
        "0x" + identity.upper(): page,
        "2000 → 2004": f"{LINK}/channels/2000/2004",
        "CapacityExceeded": f"{LINK}/verdicts?rule=",
    }
    for wanted, target in targets.items():
        answer = web.client.get("/find", params={"q": wanted, "lane": "polkadot"})
        assert answer.status_code == 303, wanted
        assert answer.headers["location"].startswith(target), wanted


def test_search_for_nothing_finds_nothing(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every name begins with an empty text, also the only one of a lane."""
    para = web.rejected(CAPACITY).para_id
    monkeypatch.setattr(ConsoleContext, "link", lambda _, lane: LaneLink(f"/lanes/{lane}", {para: "Only"}))
    for wanted, status in (("on", 303), ("", 404), (" ", 404)):
        assert web.client.get("/find", params={"q": wanted, "lane": "polkadot"}).status_code == status


def test_hostile_text_is_text(web: Web) -> None:
    text = web.get("/dead-letters")
    assert "<script>document" not in text
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert "&lt;script&gt;document.title=&#39;owned&#39;&lt;/script&gt;\\u202e\\x1b[31m" in text
    web.model.take([verdict(HOSTILE[:60], 1, 0, {"kind": HOSTILE, "field": HOSTILE})])
    for path in ("/", "/dead-letters", f"/lanes/{quote(HOSTILE[:60], safe='')}"):
        text = web.client.get(path).text
        assert "<script>document" not in text
        assert "\u202e" not in text


def test_no_lane_yet(web: Web) -> None:
    web.model.lanes.clear()
    assert "No lane has written anything yet" in web.get("/")
    web.get("/dead-letters")


def test_bug_is_one_line_with_a_number_for_the_log(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("validator.console.app.find", broken)
    client = type(web.client)(web.client.app, base_url=str(web.client.base_url), raise_server_exceptions=False)
    client.cookies = web.client.cookies
    answer = client.get("/find?q=1")
    assert answer.status_code == 500
    assert re.fullmatch(r"The console has a bug: its log has the traceback under [0-9a-f]{8}\.\n", answer.text)
    assert "secret detail" in web.log[0]


# --- live updates ---


def frames(web: Web, page: str, between: list[TopicRecord]) -> list[dict[str, str]]:
    """Return the parts of the first frame, and of the next after some records have arrived."""

    async def run() -> list[dict[str, str]]:
        stream = web.app._frames(*web.app.live_page(page), {})
        found = []
        async for text in stream:
            if text.startswith("event: parts"):
                found.append(json.loads(text.partition("data: ")[2]))
                if len(found) == 2:
                    break
                web.model.take(between)
        await stream.aclose()  # type: ignore[attr-defined]
        return found

    return asyncio.run(asyncio.wait_for(run(), 60))


def test_stream_sends_what_has_changed(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "FRAME_S", 0.01)
    first, second = frames(web, f"{LINK}/verdicts", [verdict("polkadot", 61, 0)])
    assert {"live_rows", "live_bar", "live_head", "live_facets"} <= set(first)
    assert "live_rows" in second
    assert "live_bar" not in second
    assert 'data-row="61"' in second["live_rows"]
    assert web.app.streams.open == 0


def test_limits_of_the_configuration_are_those_of_the_start(web: Web) -> None:
    text = web.get(f"{LINK}/runtime")
    assert re.search("<h2>Limits at the lane.s start</h2>", text)
    assert "Session changes may have replaced them." in text
    assert "<code>validator state show --lane polkadot --json</code>" in text


def test_streams_are_bounded_and_only_of_live_pages(web: Web) -> None:
    for path in ("/rules?name=R-18", "/nowhere", "//elsewhere"):
        assert web.client.get("/events", params={"page": path}).status_code == 404
    web.app.streams.open = app_module.STREAMS_MAX
    assert web.client.get("/events", params={"page": "/"}).status_code == 503


def test_many_verdicts_leave_pages_short(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []

    def counted(topic: str, value: bytes) -> dict[str, Any]:
        decoded.append(topic)
        return shown_json(topic, value)

    monkeypatch.setattr(verdicts, "shown_json", counted)
    web.model.take([verdict("westend", 1 + at // 50, at % 50, None) for at in range(3_000)])
    text = web.get("/lanes/westend/verdicts?view=every")
    assert text.count("data-row=") == 100
    older = re.search(r'href="(\?[^"]*before=\d+[^"]*)" rel="next"', text)
    assert older is not None
    assert web.get("/lanes/westend/verdicts" + older[1].replace("&amp;", "&")).count("data-row=") == 100
    assert len(decoded) == 200  # a page decodes what it shows, and nothing else


def test_lane_that_is_parked_says_what_to_do(web: Web) -> None:
    web.lane.take_status(
        {
            "lane": "polkadot",
            "state": "parked",
            "fault": "handler",
            "reason": "it took too long",
            "since_block": 60,
            "held": [],
        },
        START_MS,
    )
    text = web.get("/")
    assert "it took too long" in text
    assert "validator lanes resume --lane polkadot" in text
    assert "waits for </span>an order to resume" in text
    web.app.console.follower.lags = {"polkadot": Lag(1, order_ms=START_MS)}
    assert "validator lanes resume" in web.get("/"), "the lane was parked again when it took that order"
    web.app.console.follower.lags = {"polkadot": Lag(1, order_ms=START_MS + 1)}
    text = web.get("/")
    assert "An order to resume is written; the job takes it with its next batch." in text
    assert "waits for </span>the job to take the order to resume" in text
    assert "validator lanes resume" not in text
    web.model.take([verdict("westend", 1, 0)])
    assert "polkadot is parked" in web.get("/lanes/westend")  # whichever overview somebody looks at
    web.lane.take_status({"lane": "polkadot", "state": "running", "fault": "handler"}, START_MS)
    assert "it took too long" not in web.get("/")


def test_lane_whose_records_nobody_reads_waits_for_a_job(web: Web) -> None:
    web.app.console.follower.lags = {"polkadot": Lag(3, 1)}
    text = web.get("/")
    assert "waits for </span>a job to read 3 records" in text
    assert "waiting for a job to read 3 records" in text  # in the frame of each page
    web.app.console.follower.lags = {"polkadot": Lag(1, 1, complete=False)}
    assert "a job to read at least 1 record<" in web.get("/")


def test_fault_of_an_audit_needs_attention(web: Web) -> None:
    assert "audit" not in web.get("/")  # neither a link nor a section
    fault = AuditFault(BlockNumber(12), "pages", HOSTILE)
    record = fault_record("polkadot", fault)
    web.model.take([TopicRecord("lanes", 0, 0, record.key, record.value, START_MS)])
    text = web.get("/")
    assert "The audit of polkadot has found a fault in block 12" in text
    assert "<script>document" not in text
    assert "pages: &lt;script&gt;" in text
    assert 'href="/lanes/polkadot#audit"' in text
    assert 'id="audit"' in text
    assert "validator audit --lane polkadot" in text


def test_part_of_the_checkpoint_is_shown_whatever_its_shape(web: Web) -> None:
    class Stored:
        def para(self, lane: str, para: int) -> dict[str, Any]:
            assert (lane, para) == ("polkadot", 2000)
            return {
                "executed_block": 60,
                "queue": [{"payload": "ab" * 30}, {}],
                "valid": True,
                "none": None,
                "text": HOSTILE,
                "empty": [],
            }

    web.app.console = replace(web.app.console, stored=Stored())  # type: ignore[arg-type]
    text = web.get(f"{LINK}/paras/2000/state")
    assert "Para 2000 in the checkpoint, after block 60" in text
    assert "ab" * 30 in text
    assert "<script>document" not in text
    assert Outline(text).open == []


def test_letters_are_filtered(web: Web) -> None:
    web.model.take([dead_letter("of kusama", b"x", 7, lane="kusama")])
    text = web.get("/dead-letters?lane=kusama")
    assert "of kusama" in text
    assert "owned" not in text


def test_block_numbers_in_words_of_the_job_have_separators() -> None:
    assert (
        grouped("waiting for 2 of 12 candidates of block 31736059")
        == "waiting for 2 of 12 candidates of block 31,736,059"
    )


def test_downward_message_is_named_whole(web: Web) -> None:
    downward = next(each for each in web.lane.newest() if each.kind == "downward" and each.ok)
    assert f"<h1>Downward message to para {downward.para_id}" in web.get(
        f"{LINK}/verdicts/{downward.block}/downward/{downward.index}"
    )
    text = web.get(f"{LINK}/verdicts?kind=downward")
    assert re.search(r"\d downward messages?[;<]", text)
    assert "downwards" not in text


def test_blocks_have_the_time_of_their_receipt(web: Web) -> None:
    assert web.lane.time_of(None) == 0
    newest = web.lane.blocks[-1]
    assert f'{newest.block}</b><span class="hide-s"> <small>{clock(newest.time_ms)} UTC' in web.get("/")


def test_dead_letters_of_a_lane_have_the_frame_of_the_lane(web: Web) -> None:
    web.model.take([verdict("westend", 1, 0), dead_letter("why", b"", 1, lane="westend")])
    assert '<a href="/lanes/polkadot" aria-current="true">' in web.get("/dead-letters")
    assert '<a href="/lanes/westend" aria-current="true">' in web.get("/dead-letters?lane=westend")
