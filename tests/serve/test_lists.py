# SPDX-License-Identifier: Apache-2.0
"""Lists over HTTP: pages, filters, cursors, a verdict by its hash."""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING

import pytest

from tests.serve.conftest import by_partition
from validator.client.topics import OUTPUTS
from validator.serve import pages
from validator.serve.cursors import Cursor

if TYPE_CHECKING:
    from tests.serve.conftest import Served


@pytest.mark.parametrize(
    ("topic", "limit"), [*((topic, 1000) for topic in OUTPUTS), ("verdicts", 90), ("dead-letters", 7)]
)
def test_pages_hold_each_record_once_in_both_orders(served: Served, topic: str, limit: int) -> None:
    expected = served.records(topic)
    assert by_partition(expected, served.walk(topic, limit=limit))
    backwards = {partition: records[::-1] for partition, records in expected.items()}
    assert by_partition(backwards, served.walk(topic, limit=limit, start="newest"))


def test_newest_come_first_over_partitions(served: Served) -> None:
    page = served.get("/v1/verdicts", start="newest", limit=5)
    last = [records[-1] for records in served.records("verdicts").values()]
    assert page["items"][0] in last
    assert (len(page["items"]), page["scanned"], page["at_end"]) == (5, 5, False)


def test_page_after_the_end_gets_what_comes_later(served: Served) -> None:
    newest = served.get("/v1/dead-letters", start="newest", limit=1)
    page = served.get("/v1/dead-letters", limit=1000)
    assert page["at_end"]
    served.letters("later")
    for cursor in (page["next"], newest["follow"]):
        later = served.get("/v1/dead-letters", cursor=cursor)
        assert [each["detail"] for each in later["items"]] == ["later"]
        assert served.get("/v1/dead-letters", cursor=later["next"])["items"] == []


@pytest.mark.parametrize(
    "wanted",
    [
        {"lane": "polkadot"},
        {"para": 1000},
        {"sender": 1000, "rejected": "true"},
        {"recipient": 1001},
        {"kind": "candidate", "outcome": "rejected"},
        {"error": "OutboundHrmp"},
        {"from_block": 3, "to_block": 5, "lane": "polkadot"},
    ],
)
def test_filters_take_what_the_record_filter_takes(served: Served, wanted: dict[str, object]) -> None:
    from validator.record_filter import RecordFilter

    values = {name: value == "true" if value == "true" else value for name, value in wanted.items()}
    takes = RecordFilter(**values).takes  # type: ignore[arg-type]
    expected = {each: list(filter(takes, records)) for each, records in served.records("verdicts").items()}
    found = served.walk("verdicts", limit=200, **wanted)
    assert found
    assert by_partition(expected, found)
    backwards = {partition: records[::-1] for partition, records in expected.items()}
    assert by_partition(backwards, served.walk("verdicts", limit=200, start="newest", **wanted))


def test_bounded_scan_ends_a_page_and_the_next_one_continues(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages.Bounds.__new__, "__defaults__", (150, 100_000))
    expected = served.records("verdicts")
    few = {each: [record for record in records if record["para_id"] == 1000] for each, records in expected.items()}
    assert by_partition(few, served.walk("verdicts", para=1000))
    backwards = {partition: records[::-1] for partition, records in few.items()}
    assert by_partition(backwards, served.walk("verdicts", para=1000, start="newest"))
    first = served.get("/v1/verdicts", para=4_000_000_000)
    assert (first["items"], first["at_end"]) == ([], False)


def test_verdict_is_found_by_its_hash(served: Served) -> None:
    verdict = next(
        each for records in served.records("verdicts").values() for each in records if each["candidate_hash"]
    )
    for text in (verdict["candidate_hash"], verdict["id"], verdict["id"].removeprefix("0x").upper()):
        assert verdict["id"] in json.dumps(served.get(f"/v1/verdicts/{text}")) or text == verdict["candidate_hash"]
    assert served.get(f"/v1/verdicts/{verdict['candidate_hash']}")["candidate_hash"] == verdict["candidate_hash"]
    assert served.get(f"/v1/verdicts/0x{'ab' * 32}", 404)["detail"] == "None of all verdicts holds this hash."
    assert "bytes in hex" in served.get("/v1/verdicts/nothing", 400)["detail"]
    assert served.walk("verdicts", hash=verdict["id"]) == [verdict]


def text_of(fields: object) -> str:
    return urlsafe_b64encode(json.dumps(fields).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "cursor",
    [
        "x", "!", "", "A" * 7_000, "é", text_of([1]), text_of({"a": 1}), text_of([2, "verdicts", None, "o", [0]]), text_of([1] * 5),
        text_of([1, "verdicts", None, "o", []]), text_of([1, "verdicts", None, "o", [-1]]), text_of([1, "verdicts", None, "o", [True]]),
        text_of([1, "verdicts", None, "o", [2**63]]), text_of([1, "verdicts", None, "o", [None]]), text_of([1, "verdicts", 7, "o", [0]]),
        text_of([1, "verdicts", None, "o", {"0": 0}]), "W" * 5_999, "%00",
    ],
)  # fmt: skip
def test_bad_cursor_is_named(served: Served, cursor: str) -> None:
    for path in ("/v1/verdicts", "/v1/verdicts/events"):
        assert served.get(path, 400, cursor=cursor)["detail"].startswith("cursor: expected")


def test_foreign_cursor_is_refused(served: Served) -> None:
    cursor = served.get("/v1/verdicts")["next"]
    assert served.get("/v1/dead-letters", 400, cursor=cursor)["detail"].endswith("found one of another list")
    for order in ("oldest", "newest"):
        other = Cursor("verdicts", "AAAAAAAAAAAAAAAAAAAAAA", order, {0: 0})  # type: ignore[arg-type]
        assert "made again" in served.get("/v1/verdicts", 400, cursor=str(other))["detail"]
        for offsets in ({0: 10**9}, {7: 0}):
            beyond = Cursor("verdicts", None, order, offsets)  # type: ignore[arg-type]
            assert served.get("/v1/verdicts", 400, cursor=str(beyond))["status"] == 400


def test_wrong_parameters_are_named(served: Served) -> None:
    for path, parameters, detail in (
        ("/v1/verdicts", {"pra": 1}, r"'pra': this list has no such parameter; did you mean 'para'\?"),
        ("/v1/receipts", {"para": 1}, "'para': this list has no such parameter; known are lane, .*"),
        ("/v1/verdicts", {"para": "x"}, "para: expected an integer from 0 to 4294967295, found 'x'"),
        ("/v1/verdicts", {"para": "9" * 5_000}, "para: expected an integer .*"),
        ("/v1/verdicts", {"para": "\u0661"}, "para: expected an integer .*"),
        ("/v1/verdicts", {"para": ["1", "2"]}, "para: expected one value, found two"),
        ("/v1/verdicts", {"limit": 0}, "limit: expected an integer from 1 to 1000, found '0'"),
        ("/v1/verdicts", {"start": "now"}, "start: expected oldest or newest, found 'now'"),
        ("/v1/verdicts", {"rejected": "yes"}, "rejected: expected true or false, found 'yes'"),
        (
            "/v1/verdicts",
            {"lane": "polkadott"},
            r"lane: expected polkadot, found 'polkadott'; did you mean 'polkadot'\?",
        ),
        ("/v1/verdicts", {"error": "e" * 201}, "error: expected 1 to 200 characters, found 201"),
        ("/v1/verdicts", {"cursor": "x", "start": "oldest"}, "start: expected none besides a cursor, .*"),
        ("/v1/verdicts", {f"n{number}": 1 for number in range(60)}, "Expected at most 50 parameters."),
        ("/v1/verdicts", {"\r\nset-cookie: a": 1}, r"'\\r\\nset-cookie: a': this list has .*"),
    ):
        assert re.fullmatch(detail, served.get(path, 400, **parameters)["detail"]), parameters  # type: ignore[arg-type]
    assert served.get("/v1/nowhere", 404)["detail"].startswith("There is no list")
    assert served.get("/v1/verdicts", 414, error="e" * 9_000)["status"] == 414
    missing = "relay-chain.facts"
    detail = "The topic relay-chain.facts does not exist yet: start the transport relay-chain, which creates it."
    assert served.get(f"/v1/{missing}", 404)["detail"] == detail


def test_lists_name_every_topic(served: Served) -> None:
    rows = served.get("/v1")["lists"]
    assert [each["topic"] for each in rows][: len(OUTPUTS)] == list(OUTPUTS)
    assert {"xcmp.queues", "relay-chain.facts"} <= {each["topic"] for each in rows}
    assert served.get("/")["lists"] == rows
