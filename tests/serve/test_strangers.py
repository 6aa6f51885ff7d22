# SPDX-License-Identifier: Apache-2.0
"""Who may ask, and what odd requests get: a problem, never a traceback. Kafka that is away, and many clients at once."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx2
import pytest

from tests.cli.follower import invoke
from tests.serve.conftest import PREFIX, WAIT_S
from validator.errors import UserError
from validator.kafka.settings import SERVED
from validator.serve import app
from validator.serve.running import RunningLists

if TYPE_CHECKING:
    from pathlib import Path

    from tests.serve.conftest import Served


def test_token_is_needed_everywhere_but_for_health(served: Served) -> None:
    with httpx2.Client(base_url=served.client.base_url, timeout=WAIT_S) as stranger:
        for path in ("/", "/v1", "/v1/verdicts", "/v1/verdicts/events", "/openapi.json", "/nowhere"):
            for headers in (
                {},
                {"authorization": "Bearer wrong"},
                {"authorization": f"Bearer {served.running.secrets.session}"},
            ):
                answer = stranger.get(path, headers=headers)
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
                assert answer.json()["status"] == 401
                assert answer.headers["content-type"] == "application/problem+json"
                assert "polkadot" not in answer.text
        assert stranger.get("/healthz").text == "ok\n"
        entered = stranger.get("/v1", params={"token": served.running.secrets.token})
        assert (entered.status_code, entered.headers["location"]) == (303, "/v1")
        assert stranger.get("/v1").status_code == 200


def test_other_hosts_methods_and_bodies_are_refused(served: Served) -> None:
    client = served.client
    assert client.get("/v1", headers={"host": "evil.example"}).status_code == 421
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        answer = client.request(method, "/v1/verdicts", headers={"origin": str(client.base_url)})
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert client.request("GET", "/v1", content=b"x").status_code == 413
    answer = client.get("/v1", headers={"origin": "http://evil.example"})
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "line",
    [
        b"GET /v1/verdicts?lane=a%0d%0aset-cookie:%20b HTTP/1.1", b"GET /v1/a%0d%0ab HTTP/1.1",
        b"GET /v1/%2e%2e/%2e%2e/etc/passwd HTTP/1.1",
        b"GET //evil.example/ HTTP/1.1", b"GET /v1/verdicts/%00 HTTP/1.1", b"GET /v1/verdicts?%ff=%ff HTTP/1.1",
        b"GET /v1/verdicts?a;b&&= HTTP/1.1",
        b"GET /v1/verdicts/events HTTP/1.1\r\nLast-Event-ID: \xff\xfe",
        b"GET /v1/verdicts/events HTTP/1.1\r\nLast-Event-ID: a\tb",
        b"GET /v1/verdicts?limit=%F0%9F%98%80 HTTP/1.1",
    ],
)  # fmt: skip
def test_odd_requests_get_a_problem(served: Served, line: bytes) -> None:
    bearer = f"Authorization: Bearer {served.running.secrets.token}".encode()
    with socket.create_connection(("127.0.0.1", served.running.port), timeout=WAIT_S) as connection:
        connection.sendall(line + b"\r\nHost: 127.0.0.1\r\nConnection: close\r\n" + bearer + b"\r\n\r\n")
        answer = b""
        while got := connection.recv(1 << 16):
            answer += got
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split(b" ")[1] in (b"400", b"404"), answer
    assert b"set-cookie" not in head.lower()
    assert b"Traceback" not in body


def test_many_clients_are_all_answered(served: Served) -> None:
    with ThreadPoolExecutor(24) as pool:
        answers = list(
            pool.map(lambda _: served.client.get("/v1/receipts", params={"limit": 1}).status_code, range(48))
        )
    assert set(answers) == {200}


def test_bug_is_one_problem_and_its_traceback_is_logged(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(served.running.web, "say", said.append)

    def broken(*_: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(app, "page_from_oldest", broken)
    problem = served.get("/v1/receipts", 500)
    assert "a secret" not in problem["detail"]
    assert "RuntimeError: a secret" in said[0]


def test_kafka_that_is_away_is_said(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        away = f"127.0.0.1:{free.getsockname()[1]}"
    config = served.config.model_copy(update={"kafka": {**served.config.kafka, "bootstrap.servers": away}})
    with pytest.raises(UserError, match=away):
        RunningLists(config, "127.0.0.1:0", lambda _: None)
    monkeypatch.setattr(served.running.web.backend, "_kafka", config.kafka)
    monkeypatch.setattr(
        served.running.web.backend, "_manner", served.running.web.backend._manner._replace(patience_s=1.0)
    )  # type: ignore[attr-defined]
    served.running.web.readers.close()
    for path in ("/v1/receipts", "/v1/receipts/events"):
        answer = served.client.get(path)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
        assert away in answer.json()["detail"]


def test_start_is_refused_in_one_line(served: Served, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Address already in use"):
        RunningLists(served.config, f"127.0.0.1:{served.running.port}", lambda _: None)
    other = served.config.model_copy(update={"topics": served.config.topics.model_copy(update={"prefix": "nobodys."})})
    with pytest.raises(UserError, match=r"topic nobodys\.verdicts does not exist"):
        RunningLists(other, "127.0.0.1:0", lambda _: None)
    config = tmp_path / "validator.toml"
    config.write_text(
        f'[kafka]\n"bootstrap.servers" = "{served.config.kafka["bootstrap.servers"]}"\n[topics]\nprefix = "{PREFIX}"\n'
    )
    token = tmp_path / "token"
    for text in ("short", "a b" * 20, "é" * 40, "x" * 600):
        token.write_text(text)
        result = invoke("serve", f"--config={config}", f"--token-file={token}")
        assert (result.exit_code, "expected one word of 32 to 512 letters" in result.stderr) == (2, True)
    missing = invoke("serve", f"--config={config}", f"--token-file={tmp_path}/none")
    assert "No such file" in missing.stderr
    assert SERVED.own["queued.max.messages.kbytes"] == 1024
