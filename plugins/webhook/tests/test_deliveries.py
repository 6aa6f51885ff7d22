# SPDX-License-Identifier: Apache-2.0
"""Deliveries to receivers that work, and to those that hang, lie, refuse, redirect or never end. Nothing is lost, nobody else waits."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from random import Random
from typing import Any

import pytest
from validator_webhook import reading, service
from validator_webhook.limits import ANSWER_BYTES_MAX
from validator_webhook.records import SUBSCRIPTIONS, decode, own_topics
from validator_webhook.sending import Names
from webhook_world import (
    Hanging,
    Request,
    Running,
    memory_of,
    receipt,
    receiving,
    respond,
    running,
    until,
    verdict,
    verified,
)

from validator.errors import LeaseLost


def test_records_arrive_signed_in_order_with_the_same_form_as_watch(tmp_path: Path) -> None:
    with receiving() as receiver:
        memory = memory_of(tmp_path, {"all": {"url": receiver.url, "topics": ["verdicts", "receipts"]}})
        for number in range(1, 6):
            memory.emit("verdicts", verdict(number))
            memory.emit("receipts", receipt(number))
        with running(memory):
            until(lambda: len(receiver.accepted) == 10)
            memory.emit("verdicts", verdict(6))
            until(lambda: len(receiver.accepted) == 11)
        for request in receiver.accepted:
            topic, partition, offset = request.place
            assert verified(request)["record"] == memory.forms.decode(topic, _value(memory, topic, offset))
            uid = memory.forms.decode(SUBSCRIPTIONS, memory.submitted[0][2])["uid"]
            assert request.id == f"{topic}-{partition}-{offset}-{uid}"
            assert request.headers["content-type"] == "application/json"
        for topic in ("verdicts", "receipts"):
            offsets = [request.place[2] for request in receiver.accepted if request.place[0] == topic]
            assert offsets == sorted(offsets) == list(range(len(offsets)))


def test_each_subscription_gets_what_it_wants(tmp_path: Path) -> None:
    with receiving() as rejections, receiving() as others:
        memory = memory_of(
            tmp_path,
            {
                "rejections": {"url": rejections.url, "rejected": True, "error": "OutboundHrmp"},
                "kusama": {"url": others.url, "lane": "kusama", "para": 2007},
            },
        )
        for number in range(10):
            memory.emit(
                "verdicts",
                verdict(number, ok=number % 3 > 0, lane="kusama" if number % 2 else "polkadot", para=2000 + number),
            )
        with running(memory):
            until(lambda: len(rejections.accepted) == 4 and len(others.accepted) == 1)
        assert rejections.offsets() == [0, 3, 6, 9]
        assert others.offsets() == [7]


def test_start_now_leaves_out_what_was_there(tmp_path: Path) -> None:
    with receiving() as receiver:
        memory = memory_of(tmp_path, {"new": {"url": receiver.url, "start": "now"}})
        memory.emit("verdicts", verdict(1))
        with running(memory):
            memory.emit("verdicts", verdict(2))
            until(lambda: bool(receiver.accepted))
        with running(memory):  # it is new only once
            memory.emit("verdicts", verdict(3))
            until(lambda: len(receiver.accepted) == 2)
        assert receiver.offsets() == [1, 2]


@pytest.mark.parametrize("status", [302, 400, 404, 429, 500, 503])
def test_a_failure_is_tried_again_with_the_same_id_and_holds_up_nobody_else(tmp_path: Path, status: int) -> None:
    left = [4]

    def answer(handler: BaseHTTPRequestHandler, request: Request) -> None:
        left[0] -= 1
        respond(status if left[0] >= 0 else 200)(handler, request)

    with receiving(answer) as bad, receiving() as good:
        memory = memory_of(tmp_path, {"bad": {"url": bad.url}, "good": {"url": good.url}})
        for number in range(3):
            memory.emit("verdicts", verdict(number))
        with running(memory) as run:
            until(lambda: len(bad.accepted) == len(good.accepted) == 3)
            until(lambda: memory.measured()["delivered_records_total", "bad"] == 3)
            measured = memory.measured()
        assert [request.place[2] for request in bad.requests] == [0, 0, 0, 0, 0, 1, 2]
        assert len({request.id for request in bad.requests[:5]}) == 1
        assert [verified(request)["offset"] for request in bad.requests] == [0, 0, 0, 0, 0, 1, 2]
        assert good.offsets() == [0, 1, 2]
        assert measured["failed_attempts_total", "bad", "status"] == 4
        assert len(run.pauses) == 4
        assert run.pauses == sorted(run.pauses), "pauses grow"


def test_retry_after_is_honoured(tmp_path: Path) -> None:
    answers = iter([respond(429, retry_after="77"), respond(503, retry_after="999999"), respond(200)])

    def answer(handler: BaseHTTPRequestHandler, request: Request) -> None:
        next(answers)(handler, request)

    with receiving(answer) as receiver:
        memory = memory_of(tmp_path, {"slow": {"url": receiver.url}})
        memory.emit("verdicts", verdict(1))
        with running(memory) as run:
            until(lambda: len(receiver.accepted) == 1)
        assert run.pauses == [77.0, 3_600.0]


def test_redirects_are_not_followed(tmp_path: Path) -> None:
    with receiving() as inside:
        with receiving(respond(307, location=inside.url)) as outside:
            memory = memory_of(tmp_path, {"moved": {"url": outside.url}})
            memory.emit("verdicts", verdict(1))
            with running(memory) as run:
                until(lambda: len(outside.requests) >= 3)
                assert run.state("moved")["last_failure"] == (
                    "the receiver answered 307 Temporary Redirect; redirects are not followed"
                )
        assert inside.requests == []


def test_gone_parks_alone_and_an_operator_resumes_where_it_stopped(tmp_path: Path) -> None:
    with receiving(respond(410)) as dead, receiving() as alive:
        memory = memory_of(tmp_path, {"dead": {"url": dead.url}, "alive": {"url": alive.url}})
        for number in range(3):
            memory.emit("verdicts", verdict(number))
        with running(memory) as run:
            until(lambda: run.state("dead")["state"] == "parked" and len(alive.accepted) == 3)
            memory.emit("verdicts", verdict(3))
            until(lambda: len(alive.accepted) == 4 and run.state("dead")["waiting_records"] == 4)
            assert run.state("dead")["reason"] == "the receiver answered 410 Gone"
            assert (run.state("dead")["at"], len(dead.requests)) == ("verdicts/0/0", 1)
            assert memory.measured()["parked", "dead"] == 1
        _, _, value = memory.submitted[-1]
        assert memory.submitted[-1][1] == b"dead"
        lane, line = own_topics()[0].line(value)  # type: ignore[misc]
        assert lane == "polkadot"
        assert line.startswith("PARKED: webhook dead since 2")
        assert line.endswith("at verdicts/0/0: the receiver answered 410 Gone")
        dead.answer = respond(200)
        with running(memory) as run:  # a restart does not resume it
            time.sleep(0.5)
            assert (run.state("dead")["state"], len(dead.requests)) == ("parked", 1)
            _resume(run, "dead")
            until(lambda: len(dead.accepted) == 4)
            assert run.state("dead")["state"] == "active"
        assert dead.offsets() == [0, 1, 2, 3]
        assert alive.offsets() == [0, 1, 2, 3]


def test_a_record_that_is_never_taken_may_be_skipped(tmp_path: Path) -> None:
    def answer(handler: BaseHTTPRequestHandler, request: Request) -> None:
        respond(410 if request.place[2] == 1 else 200)(handler, request)

    with receiving(answer) as receiver:
        memory = memory_of(tmp_path, {"picky": {"url": receiver.url}})
        for number in range(3):
            memory.emit("verdicts", verdict(number))
        with running(memory) as run:
            until(lambda: run.state("picky")["state"] == "parked")
            _resume(run, "picky", skip=True)
            until(lambda: len(receiver.accepted) == 2)
        assert receiver.offsets() == [0, 2]


def test_failing_for_too_long_parks_and_a_changed_definition_resumes(tmp_path: Path) -> None:
    with receiving(respond(500)) as receiver:
        memory = memory_of(tmp_path, {"dead": {"url": receiver.url}}, park_after_seconds=0.3)
        memory.emit("verdicts", verdict(1))
        with running(memory, pause_s=0.05) as run:
            until(lambda: run.state("dead")["state"] == "parked")
            reason = run.state("dead")["reason"]
        assert re.fullmatch(
            r"attempts have failed for \d+ s, the last one: the receiver answered 500 Internal Server Error", reason
        )
        receiver.answer = respond(200)
        changed = memory_of(tmp_path, {"dead": {"url": receiver.url + "/new"}}, park_after_seconds=0.3)
        changed.outputs, changed.cursors = memory.outputs, memory.cursors
        with running(changed):
            until(lambda: bool(receiver.accepted))
        assert [request.path for request in receiver.accepted] == ["/hook/new"]


def test_an_hour_of_errors_loses_nothing_and_costs_few_attempts(tmp_path: Path) -> None:
    with receiving(respond(500)) as bad, receiving() as good:
        memory = memory_of(tmp_path, {"bad": {"url": bad.url}, "good": {"url": good.url}})
        for number in range(20):
            memory.emit("verdicts", verdict(number))
        with running(memory) as run:
            until(lambda: run.slept_s > 3_600)
            bad.answer = respond(200)
            until(lambda: len(bad.accepted) == 20)
            assert (run.state("bad")["state"], run.state("bad")["failing_since"]) == ("active", None)
        assert len(good.accepted) == 20
        assert bad.offsets() == list(range(20))
        assert len(bad.requests) < 20 + 30


def test_hangs_do_not_hold_up_others(tmp_path: Path) -> None:
    hanging = Hanging()
    try:
        with receiving() as good:
            memory = memory_of(
                tmp_path, {"hangs": {"url": hanging.url}, "good": {"url": good.url}}, timeout_seconds=0.5
            )
            for number in range(5):
                memory.emit("verdicts", verdict(number))
            with running(memory) as run:
                until(lambda: len(good.accepted) == 5, seconds=5)
                until(lambda: len(hanging.connections) >= 2)
                until(lambda: run.state("hangs")["failures"] >= 2)
                assert run.state("hangs")["last_failure"] == "no answer within 0.5 s"
                assert memory.measured()["waiting_seconds", "hangs"] > 0.4
    finally:
        hanging.close()


def _raw(text: bytes, endless: bytes = b"", pause_s: float = 0.0) -> Any:
    """Return an answer of these bytes, then the endless ones until the connection is closed."""

    def answer(handler: BaseHTTPRequestHandler, _: Request) -> None:
        handler.close_connection = True
        handler.wfile.write(text)
        while endless:
            handler.wfile.write(endless)
            sent[0] += len(endless)
            time.sleep(pause_s)

    sent = [0]
    answer.sent = sent  # type: ignore[attr-defined]
    return answer


@pytest.mark.parametrize(
    "answer",
    [
        _raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5000000000\r\n\r\n", b"x" * 65_536),
        _raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"4\r\nabcd\r\n"),
        _raw(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65_536),
        _raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"),
        _raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nHTTP/1.1 500 Internal Server Error\r\n\r\n"),
        _raw(b"HTTP/1.1 204 No Content\r\nContent-Length: 7\r\n\r\nabc"),
    ],
    ids=["endless", "endless-chunks", "endless-without-length", "too-short", "too-long", "body-of-204"],
)
def test_the_status_decides_whatever_the_body_does(tmp_path: Path, answer: Any) -> None:
    with receiving(answer) as receiver:
        memory = memory_of(tmp_path, {"odd": {"url": receiver.url}})
        for number in range(3):
            memory.emit("verdicts", verdict(number))
        with running(memory) as run:
            until(lambda: len({request.id for request in receiver.requests}) == 3)
            until(lambda: run.state("odd")["delivered"] == 3)
        assert [request.place[2] for request in receiver.requests] == sorted(
            request.place[2] for request in receiver.requests
        )
    assert answer.sent[0] < 3 * (16 << 20), f"no more is read than {ANSWER_BYTES_MAX} bytes and what sockets hold"


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (_raw(b"HTTP/1.1 200 OK\r\nX: ", b"x" * 65_536), "protocol: "),
        (_raw(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", 0.05), "no answer within 1 s"),
        (_raw(b"HTTP/1.1 ", b"2", 0.05), "no answer within 1 s"),
        (_raw(b"\x00\xff" * 100), "protocol: "),
        (_raw(b""), "protocol: "),
    ],
    ids=["endless-head", "endless-100", "dripping-head", "noise", "closes"],
)
def test_no_answer_is_a_failure_with_a_reason(tmp_path: Path, answer: Any, failure: str) -> None:
    with receiving(answer) as receiver, receiving() as good:
        memory = memory_of(tmp_path, {"odd": {"url": receiver.url}, "good": {"url": good.url}}, timeout_seconds=1)
        memory.emit("verdicts", verdict(1))
        with running(memory) as run:
            until(lambda: run.state("odd")["failures"] >= 2 and bool(good.accepted))
            assert run.state("odd")["last_failure"].startswith(failure)
            receiver.answer = respond(200)
            until(lambda: bool(receiver.accepted))


def test_a_receiver_that_is_down(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    memory = memory_of(tmp_path, {"down": {"url": f"http://127.0.0.1:{port}/"}})
    memory.emit("verdicts", verdict(1))
    with running(memory) as run:
        until(lambda: run.state("down")["failures"] >= 3)
        assert run.state("down")["last_failure"].startswith("connection: ")


# --- addresses ---


def test_the_address_that_was_checked_is_the_one_that_is_used(tmp_path: Path) -> None:
    """A name that resolves to a public address first and to loopback next (DNS rebinding) is resolved once for each connection."""
    with receiving() as inside:
        port = inside.url.rpartition(":")[2].partition("/")[0]
        asked: list[str] = []

        def addresses(host: str, _: int) -> list[str]:
            asked.append(host)
            return ["127.0.0.1"] if len(asked) > 1 else ["192.0.2.1", "10.0.0.1"]

        memory = memory_of(
            tmp_path, {"rebinds": {"url": f"http://rebinds.example:{port}/"}}, allow_networks=["10.9.0.0/16"]
        )
        memory.emit("verdicts", verdict(1))
        with running(memory, names=Names(addresses)) as run:
            until(lambda: run.state("rebinds")["failures"] >= 3)
            assert (
                run.state("rebinds")["last_failure"]
                == "127.0.0.1 is a loopback address; allow_networks does not allow it"
            )
            assert memory.measured()["failed_attempts_total", "rebinds", "address"] >= 3
        assert inside.requests == []


def test_names_are_resolved_and_addresses_tried_in_turn(tmp_path: Path) -> None:
    with receiving() as receiver:
        port = receiver.url.rpartition(":")[2].partition("/")[0]
        names = Names(lambda host, _: ["169.254.169.254", "127.0.0.2", "127.0.0.1"] if host == "hooks.example" else [])
        memory = memory_of(tmp_path, {"named": {"url": f"http://hooks.example:{port}/x"}})
        memory.emit("verdicts", verdict(1))
        with running(memory, names=names):
            until(lambda: bool(receiver.accepted))
        assert receiver.accepted[0].headers["host"] == f"hooks.example:{port}"


def test_a_resolver_that_hangs_or_fails_holds_up_nobody_else(tmp_path: Path) -> None:
    def addresses(host: str, _: int) -> list[str]:
        if host == "127.0.0.1":
            return [host]
        if host == "hangs.example":
            time.sleep(2)
        raise socket.gaierror(-2, "Name or service not known")

    with receiving() as good:
        memory = memory_of(
            tmp_path,
            {
                "hangs": {"url": "http://hangs.example/"},
                "fails": {"url": "http://fails.example/"},
                "good": {"url": good.url},
            },
            timeout_seconds=0.3,
        )
        memory.emit("verdicts", verdict(1))
        with running(memory, names=Names(addresses)) as run:
            until(lambda: bool(good.accepted), seconds=5)
            until(lambda: run.state("hangs")["failures"] >= 2 and run.state("fails")["failures"] >= 2)
            assert run.state("hangs")["last_failure"] == "no answer within 0.3 s"
            assert run.state("fails")["last_failure"] == "connection: fails.example: Name or service not known"


# --- memory ---


def test_one_that_is_far_behind_reads_again_while_others_keep_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "RECENT_RECORDS_MAX", 20)
    monkeypatch.setattr(reading, "BATCH_RECORDS_MAX", 7)
    with receiving(respond(500)) as late, receiving() as prompt:
        memory = memory_of(tmp_path, {"late": {"url": late.url}, "prompt": {"url": prompt.url}})
        with running(memory) as run:
            for number in range(200):
                memory.emit("verdicts", verdict(number, ok=number % 2 == 0))
            until(lambda: len(prompt.accepted) == 200)
            recent = run.service._recent
            assert recent is not None
            until(lambda: len(recent._entries) == 20)
            late.answer = respond(200)
            until(lambda: len(late.accepted) == 200)
            memory.emit("verdicts", verdict(200))
            until(lambda: len(late.accepted) == len(prompt.accepted) == 201)
        assert late.offsets() == prompt.offsets() == list(range(201))


def test_bytes_of_recent_records_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "RECENT_BYTES_MAX", 5_000)
    monkeypatch.setattr(reading, "BATCH_BYTES_MAX", 1_000)
    with receiving() as receiver:
        memory = memory_of(tmp_path, {"all": {"url": receiver.url}})
        with running(memory) as run:
            for number in range(100):
                memory.emit("verdicts", verdict(number))
            until(lambda: len(receiver.accepted) == 100)
            recent = run.service._recent
            assert recent is not None
            assert recent._bytes == sum(len(each.body) for each in recent._entries) <= 5_000
        assert receiver.offsets() == list(range(100))


def test_what_retention_has_removed_is_counted(tmp_path: Path) -> None:
    with receiving(respond(410)) as receiver:
        memory = memory_of(tmp_path, {"dead": {"url": receiver.url}})
        for number in range(10):
            memory.emit("verdicts", verdict(number))
        with running(memory) as run:
            until(lambda: run.state("dead")["state"] == "parked")
        memory.begins["verdicts"] = 6
        receiver.answer = respond(200)
        with running(memory) as run:
            _resume(run, "dead")
            until(lambda: len(receiver.accepted) == 4)
            assert run.state("dead")["removed_records"] == 6
            assert memory.measured()["removed_records_total", "dead"] == 6
        assert receiver.offsets() == [6, 7, 8, 9]


def test_a_foreign_record_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with receiving() as receiver:
        memory = memory_of(tmp_path, {"all": {"url": receiver.url}})
        memory.append("verdicts", b"polkadot", b"not a verdict")
        memory.emit("verdicts", verdict(1))
        with running(memory):
            until(lambda: bool(receiver.accepted))
        assert receiver.offsets() == [1]
        assert "verdicts/0/0 is left out: " in caplog.text


# --- restarts ---


def test_a_restart_continues_behind_what_was_committed(tmp_path: Path) -> None:
    with receiving() as receiver:
        memory = memory_of(tmp_path, {"all": {"url": receiver.url}})
        for number in range(50):
            memory.emit("verdicts", verdict(number))
        for start in range(5):
            with running(memory):
                until(lambda start=start: len(receiver.accepted) >= min(50, 10 * (start + 1)))  # type: ignore[misc]
        assert receiver.offsets() == list(range(50)), "an end in order repeats nothing"


@pytest.mark.parametrize("seed", range(3))
def test_crashes_repeat_with_the_same_id_and_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Each run loses its lease in a commit or between two, as a killed process does; the next one begins at the last commit."""
    monkeypatch.setattr(service, "COMMIT_S", 0.002)
    chance = Random(seed)
    commits_left = [chance.randint(2, 9)]
    records = 80

    def on_commit(*_: object) -> None:
        commits_left[0] -= 1
        if not commits_left[0]:
            commits_left[0] = chance.randint(2, 9)
            memory.lose_lease()

    with receiving() as receiver:
        memory = memory_of(tmp_path, {"all": {"url": receiver.url}})
        memory.on_commit = on_commit
        for number in range(records):
            memory.emit("verdicts", verdict(number))
        starts = 0
        while records - 1 not in receiver.offsets():
            starts += 1
            with suppress(LeaseLost):
                run = Running(memory)
                until(lambda run=run: run.error is not None or records - 1 in receiver.offsets())  # type: ignore[misc]
                run.stop()
        assert starts > 1
        assert len(receiver.accepted) > records, "some are repeated"
        ids: dict[int, str] = {}
        for request in receiver.accepted:
            offset = request.place[2]
            assert offset <= len(ids), "nothing is left out"
            assert ids.setdefault(offset, request.id) == request.id
        assert len(ids) == records


def test_a_record_of_the_topic_has_no_secret(tmp_path: Path) -> None:
    with receiving() as receiver:
        memory = memory_of(tmp_path, {"all": {"url": receiver.url}})
        with running(memory):
            pass
        found = decode(memory.submitted[0][2])
        assert (found["id"], found["state"], found["source"]) == ("all", "active", "configuration")
        assert "whsec" not in str(memory.submitted) + str(memory.cursors)


def _value(memory: Any, topic: str, offset: int) -> bytes:
    return [value for each, _, value in memory.outputs if each == topic][offset]  # type: ignore[no-any-return]


def _resume(run: Any, name: str, *, skip: bool = False) -> None:
    asyncio.run_coroutine_threadsafe(run.service.resume(name, skip=skip), run.service._loop).result(30)
