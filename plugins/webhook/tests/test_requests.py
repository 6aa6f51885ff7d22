# SPDX-License-Identifier: Apache-2.0
"""Subscriptions over HTTP while the transport runs: made, listed, shown, removed, resumed; they survive a restart."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from validator_webhook import listener, service
from validator_webhook.limits import CONNECTIONS_MAX, REQUEST_BYTES_MAX
from validator_webhook.records import SUBSCRIPTIONS
from webhook_world import LOOPBACK, SECRET, Running, receiving, respond, running, secret_file, until, verdict, verified

from validator.testing.transport import MemoryTransport

TOKEN = "0123456789abcdef-token"


def memory_that_listens(folder: Path, **table: Any) -> MemoryTransport:
    common = {"allow_http": True, "allow_networks": [LOOPBACK], "listen": "127.0.0.1:0"}
    files = {"token_file": secret_file(folder, "token", TOKEN), "secret_file": secret_file(folder)}
    return MemoryTransport("webhook", common | files | table)


class Client:
    def __init__(self, run: Running) -> None:
        self.port = run.service.port

    def ask(
        self, method: str, path: str, body: object = None, token: str | None = TOKEN, **headers: str
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        given = headers if token is None else {"authorization": f"Bearer {token}", **headers}
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, given)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, json.loads(text) if text.startswith(("{", "[")) else text


@contextmanager
def serving(memory: MemoryTransport) -> Iterator[tuple[Client, Running]]:
    with running(memory) as run:
        yield Client(run), run


def test_the_life_of_a_subscription(tmp_path: Path) -> None:
    memory = memory_that_listens(tmp_path)
    definition: dict[str, Any] = {
        "topics": ["verdicts"],
        "rejected": True,
        "start": "beginning",
        "description": "for the people on call",
    }
    with receiving() as receiver:
        memory.emit("verdicts", verdict(1, ok=False))
        with serving(memory) as (client, _):
            assert client.ask("GET", "/subscriptions") == (200, {"subscriptions": []})
            status, made = client.ask("POST", "/subscriptions", definition | {"url": receiver.url})
            assert (status, made["state"], made["definition"]) == (201, "active", definition | {"url": receiver.url})
            until(lambda: len(receiver.accepted) == 1)
            assert verified(receiver.accepted[0], made["secret"])["record"]["block"] == 1
            assert made["secret"] != SECRET
            path = f"/subscriptions/{made['id']}"
            status, shown = client.ask("GET", path)
            assert (status, shown["delivered"], shown["next"]) == (200, 1, {"verdicts/0": 1})
            assert "secret" not in shown
        with serving(memory) as (client, _):  # after a restart
            memory.emit("verdicts", verdict(2, ok=False))
            until(lambda: len(receiver.accepted) == 2)
            assert verified(receiver.accepted[1], made["secret"])["record"]["block"] == 2
            assert [each["id"] for each in client.ask("GET", "/subscriptions")[1]["subscriptions"]] == [made["id"]]
            receiver.answer = respond(410)
            memory.emit("verdicts", verdict(3, ok=False))
            until(lambda: client.ask("GET", path)[1]["state"] == "parked")
            assert client.ask("POST", f"{path}/resume?skip=2") == (422, {"error": "skip: expected 0 or 1, found '2'"})
            receiver.answer = respond(200)
            status, resumed = client.ask("POST", f"{path}/resume")
            assert (status, resumed["state"], resumed["reason"]) == (200, "active", None)
            until(lambda: len(receiver.accepted) == 3)
            assert client.ask("POST", f"{path}/resume") == (409, {"error": f"{made['id']} is not parked"})
            assert client.ask("DELETE", path) == (204, "")
            assert client.ask("GET", path) == (404, {"error": "there is no such subscription"})
            assert client.ask("DELETE", path)[0] == 404
            memory.emit("verdicts", verdict(4, ok=False))
        with serving(memory) as (client, _):
            assert client.ask("GET", "/subscriptions") == (200, {"subscriptions": []})
            time.sleep(0.5)
        assert len(receiver.requests) == 4
        values = [value for topic, _, value in memory.submitted if topic == SUBSCRIPTIONS]
        assert memory.forms.decode(SUBSCRIPTIONS, values[-1])["definition"] == ""
        assert TOKEN not in str(memory.submitted) + str(memory.cursors)
        assert made["secret"].encode() not in b"".join(values)


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (b"{", 400, "expected a JSON object with url and topics"),
        (b"[" * 10_000, 400, "expected a JSON object"),
        (b"\xff", 400, "expected a JSON object"),
        ([], 422, "expected a JSON object with url and topics"),
        ({"topics": ["verdicts"]}, 422, "url: Field required"),
        ({"topics": ["verdicts"], "url": "https://169.254.169.254/"}, 422, "url: 169.254.169.254 is a link-local address"),
        ({"topics": ["verdict"], "url": "https://example.com/"}, 422, "topic: expected one of verdicts, dispatches"),
        ({"topics": ["blocks"], "url": "https://example.com/"}, 422, "topic: expected one of verdicts, dispatches"),
        ({"topics": ["verdicts"], "url": "https://example.com/", "secret_file": "x"}, 422, "secret_file: Unexpected keyword"),
        (b"x" * (REQUEST_BYTES_MAX + 1), 413, f"expected at most {REQUEST_BYTES_MAX} bytes"),
    ],
    ids=str,
)  # fmt: skip
def test_mistakes(tmp_path: Path, body: object, status: int, error: str) -> None:
    with serving(memory_that_listens(tmp_path)) as (client, run):
        found, answer = client.ask("POST", "/subscriptions", body)
        assert (found, answer["error"][: len(error)]) == (status, error)
        assert "\n" not in answer["error"]
        assert run.service.subscriptions == {}


def test_only_who_has_the_token_may_ask(tmp_path: Path) -> None:
    with serving(memory_that_listens(tmp_path)) as (client, _):
        assert client.ask("GET", "/healthz", token=None) == (200, "ok\n")
        for token in (None, "", "wrong", TOKEN[:-1], TOKEN + "x", "é"):
            for method, path in (
                ("GET", "/subscriptions"),
                ("POST", "/subscriptions"),
                ("DELETE", "/subscriptions/a"),
                ("GET", "/x"),
            ):
                status, answer = client.ask(
                    method, path, token=None if token is None else token.encode().decode("latin-1")
                )
                assert (status, answer) == (401, {"error": "expected the header Authorization: Bearer TOKEN"})
        assert client.ask("GET", "/x")[0] == 404
        assert client.ask("PUT", "/subscriptions")[0] == 405


def test_one_of_the_configuration_is_removed_there(tmp_path: Path) -> None:
    table = {"url": "https://example.com/", "topics": ["verdicts"], "secret_file": secret_file(tmp_path)}
    memory = memory_that_listens(tmp_path, subscriptions={"alerts": table})
    with serving(memory) as (client, _):
        assert client.ask("DELETE", "/subscriptions/alerts") == (
            409,
            {"error": "alerts is part of the configuration: take it out there"},
        )
        assert client.ask("GET", "/subscriptions/alerts")[1]["source"] == "configuration"


def test_one_that_left_the_configuration_continues_when_it_is_back(tmp_path: Path) -> None:
    with receiving() as receiver:
        table = {"url": receiver.url, "topics": ["verdicts"], "secret_file": secret_file(tmp_path)}
        with_it = memory_that_listens(tmp_path, subscriptions={"alerts": table})
        without = memory_that_listens(tmp_path)
        with running(with_it):
            with_it.emit("verdicts", verdict(1))
            until(lambda: len(receiver.accepted) == 1)
        without.outputs, without.cursors = with_it.outputs, with_it.cursors
        with running(without) as run:
            without.emit("verdicts", verdict(2))
            assert run.service.subscriptions == {}
        assert without.forms.decode(SUBSCRIPTIONS, without.submitted[-1][2])["state"] == "removed"
        with running(with_it):
            until(lambda: len(receiver.accepted) == 2)
        assert receiver.offsets() == [0, 1]


def test_at_most_so_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "SUBSCRIPTIONS_MAX", 2)
    memory = memory_that_listens(tmp_path)
    with serving(memory) as (client, _):
        definition = {"topics": ["verdicts"], "url": "https://example.com/"}
        assert [client.ask("POST", "/subscriptions", definition)[0] for _ in range(3)] == [201, 201, 409]
    table = definition | {"secret_file": secret_file(tmp_path)}
    one_more = memory_that_listens(tmp_path, subscriptions={"alerts": table})
    one_more.outputs, one_more.cursors = memory.outputs, memory.cursors
    with pytest.raises(ValueError, match=r"^subscriptions: expected at most 2 with those made over HTTP, found 3$"):
        Running(one_more)


def test_who_sends_nothing_keeps_nobody_out_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "CONNECTION_S_MAX", 0.5)
    with serving(memory_that_listens(tmp_path)) as (client, _):
        idle = [socket.create_connection(("127.0.0.1", client.port)) for _ in range(2 * CONNECTIONS_MAX)]
        for each in idle:
            each.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        until(lambda: _status(client) == 200, seconds=10)
        for each in idle:
            each.close()


def _status(client: Client) -> int:
    try:
        return client.ask("GET", "/healthz")[0]
    except OSError:
        return 0


def test_an_address_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"^listen: 127.0.0.1:{port}: Address already in use$"):
            Running(memory_that_listens(tmp_path, listen=f"127.0.0.1:{port}"))


def test_without_the_secret_one_made_over_http_cannot_be_restored(tmp_path: Path) -> None:
    memory = memory_that_listens(tmp_path)
    with serving(memory) as (client, _):
        client.ask("POST", "/subscriptions", {"topics": ["verdicts"], "url": "https://example.com/"})
    table = {"url": "https://example.com/", "topics": ["verdicts"], "secret_file": secret_file(tmp_path)}
    other = MemoryTransport("webhook", {"subscriptions": {"alerts": table}})
    other.outputs, other.cursors = memory.outputs, memory.cursors
    with pytest.raises(
        ValueError, match=r"^secret_file: subscription h-[0-9a-f]{12} was made over HTTP: expected the secret"
    ):
        Running(other)


def test_one_whose_address_is_not_allowed_any_more_is_parked(tmp_path: Path) -> None:
    with receiving() as receiver:
        memory = memory_that_listens(tmp_path)
        with serving(memory) as (client, _):
            made = client.ask("POST", "/subscriptions", {"topics": ["verdicts"], "url": receiver.url})[1]
        stricter = memory_that_listens(tmp_path, allow_http=False)
        stricter.outputs, stricter.cursors = memory.outputs, memory.cursors
        with serving(stricter) as (client, _):
            shown = client.ask("GET", f"/subscriptions/{made['id']}")[1]
            assert (shown["state"], shown["reason"]) == (
                "parked",
                "url: expected https, found 'http'; allow_http allows http",
            )
            stricter.emit("verdicts", verdict(1))
            assert client.ask("POST", f"/subscriptions/{made['id']}/resume")[0] == 422
        assert receiver.requests == []
