# SPDX-License-Identifier: Apache-2.0
"""Streams of server-sent events: a reader that is killed anywhere continues where it ended; slow and many readers are bounded."""

from __future__ import annotations

import json
import random
import socket
from contextlib import ExitStack
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from tests.console.conftest import wait_until
from tests.serve.conftest import WAIT_S, by_partition
from validator.serve import events
from validator.web import server
from validator.web.limits import STREAMS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.serve.conftest import Served

KILLS = 100
RESET = b"\x01\0\0\0\0\0\0\0"
"""SO_LINGER of a socket that is closed as that of a killed process is, or of a machine that is gone."""


class Reader:
    """An EventSource over a socket, as the HTML standard has it: an event and its id count once the empty line behind them is there."""

    def __init__(self, served: Served, path: str) -> None:
        self._served, self._path = served, path
        self.last_id = ""
        self.records: list[dict[str, Any]] = []
        self.comments: list[str] = []

    def connect(self, receive_bytes: int = 1 << 16) -> socket.socket:
        """Ask for the stream; HTTP 1.0 has no chunks."""
        last = f"Last-Event-ID: {self.last_id}\r\n" if self.last_id else ""
        bearer = f"Authorization: Bearer {self._served.running.secrets.token}\r\n"
        made = socket.socket()
        made.settimeout(WAIT_S)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        made.connect(("127.0.0.1", self._served.running.port))
        made.sendall(f"GET {self._path} HTTP/1.0\r\nHost: 127.0.0.1\r\n{bearer}{last}\r\n".encode())
        return made

    def read(self, is_enough: Callable[[int], bool]) -> None:
        """Take the events of one connection until ``is_enough``, which gets the bytes so far, then kill it; a rest is forgotten."""
        with self.connect() as connection:
            head, body, size = b"", b"", 0
            while not is_enough(size):
                got = connection.recv(1 << 10)
                assert got, (head, body)
                size += len(got)
                body += got
                if not head and b"\r\n\r\n" in body:
                    head, _, body = body.partition(b"\r\n\r\n")
                    assert b"200 OK" in head, head + body
                *whole, body = body.split(b"\n\n") if head else (body,)
                for event in whole:
                    self._take(event.decode())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

    def _take(self, event: str) -> None:
        for line in event.split("\n"):
            name, _, value = line.partition(": ")
            match name:
                case "id":
                    self.last_id = value
                case "data":
                    self.records.append(json.loads(value))
                case "":
                    self.comments.append(value)


def test_killed_reader_gets_each_event_once(served: Served) -> None:
    """The reader is killed after any number of bytes, while records arrive."""
    choose = random.Random(7)
    before = [each["detail"] for records in served.records("dead-letters").values() for each in records]
    reader = Reader(served, "/v1/dead-letters/events?start=oldest")
    writer = Thread(target=lambda: [served.letters(f"killed {number}") for number in range(KILLS)])
    writer.start()
    expected = len(before) + KILLS
    for _ in range(KILLS):
        count, some = len(reader.records), choose.randrange(200, 4_000)
        reader.read(lambda size, some=some: size >= some or len(reader.records) >= expected)  # type: ignore[misc]
        assert len(reader.records) >= count
    writer.join(WAIT_S)
    reader.read(lambda _: len(reader.records) >= expected)
    assert by_partition(served.records("dead-letters"), reader.records)
    assert f"killed {KILLS - 1}" not in before


def test_reader_that_has_seen_nothing_continues_where_it_began(served: Served) -> None:
    reader = Reader(served, "/v1/dead-letters/events")
    reader.read(lambda _: bool(reader.last_id))
    served.letters("between")
    reader.read(lambda _: bool(reader.records))
    assert [each["detail"] for each in reader.records] == ["between"]


def test_stream_continues_behind_a_page(served: Served) -> None:
    page = served.get("/v1/dead-letters", start="newest", limit=3)
    reader = Reader(served, f"/v1/dead-letters/events?cursor={page['follow']}")
    served.letters("behind the page")
    reader.read(lambda _: bool(reader.records))
    assert reader.records[0]["detail"] == "behind the page"
    refused = served.client.get("/v1/dead-letters/events", params={"cursor": page["next"]})
    assert (refused.status_code, "leads to newer records" in refused.text) == (400, True)


def test_filter_that_takes_nothing_moves_on_with_heartbeats(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.3)
    reader = Reader(served, "/v1/verdicts/events?start=oldest&para=4000000000")
    end = served.get("/v1/verdicts", start="newest", limit=1)["follow"]
    reader.read(lambda _: reader.last_id == end)
    assert reader.records == []
    assert set(reader.comments) == {"heartbeat"}


def test_filter_and_bad_ids(served: Served) -> None:
    rejected = {each: [one for one in records if not one["ok"]] for each, records in served.records("verdicts").items()}
    reader = Reader(served, "/v1/verdicts/events?start=oldest&outcome=rejected")
    reader.read(lambda _: len(reader.records) >= sum(map(len, rejected.values())))
    assert by_partition(rejected, reader.records)
    for last in ("x", "A" * 7_000, "a b"):
        answer = served.client.get("/v1/verdicts/events", headers={"last-event-id": last})
        assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json"), last
    assert served.client.head("/v1/verdicts/events").headers["content-type"].startswith("text/event-stream")


def test_record_that_cannot_be_read_is_named_and_passed(served: Served) -> None:
    from tests.sending import send

    place = served.get("/v1/ingress-events", limit=1000)["next"]
    send(served.config.kafka, "serve.", [("ingress-events", b"k", b"\x00foreign\n\ndata: {}")])
    page = served.get("/v1/ingress-events", cursor=place)
    assert (page["items"], len(page["unreadable"]), page["at_end"]) == ([], 1, True)
    reader = Reader(served, f"/v1/ingress-events/events?cursor={place}")
    reader.read(lambda _: bool(reader.comments))
    assert reader.records == []
    assert reader.last_id == page["next"]


def test_slow_reader_is_closed_and_continues(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ANSWER_S", 0.5)
    served.running._server._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)  # connections inherit it
    reader = Reader(served, "/v1/verdicts/events?start=oldest")
    streams = served.running.web.streams
    with reader.connect(receive_bytes=4_096):
        wait_until(lambda: streams.open == 1)
        wait_until(lambda: streams.open == 0)
    expected = served.records("verdicts")
    reader.read(lambda _: len(reader.records) >= sum(map(len, expected.values())))
    assert by_partition(expected, reader.records)


def test_streams_are_limited_and_end_with_their_readers(served: Served) -> None:
    streams = served.running.web.streams
    wait_until(lambda: streams.open == 0)
    with ExitStack() as stack:
        for _ in range(STREAMS_MAX):
            stack.enter_context(Reader(served, "/v1/receipts/events").connect())
        wait_until(lambda: streams.open == STREAMS_MAX)
        refused = served.client.get("/v1/receipts/events")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
        assert refused.json()["detail"] == f"{STREAMS_MAX} streams are open already."
        assert served.get("/v1/receipts", limit=1)["items"]
    wait_until(lambda: streams.open == 0)
