# SPDX-License-Identifier: Apache-2.0
"""Who may ask the console, and the headers of its answers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.console.conftest import BASE, PORT, client_of
from validator.web.limits import FORM_BYTES_MAX, QUERY_MAX
from validator.web.security import Guard, Secrets, is_same

if TYPE_CHECKING:
    from starlette.testclient import TestClient

    from tests.console.conftest import Web

PAGES = ("/", "/lanes/polkadot/verdicts", "/dead-letters", "/events?page=/nowhere", "/find?q=1", "/nowhere")


@pytest.fixture
def stranger(web: Web) -> TestClient:
    """Return a client that has no cookie."""
    return client_of(web.app)


def test_every_page_needs_the_token(web: Web, stranger: TestClient) -> None:
    for path in PAGES:
        answer = stranger.get(path)
        assert answer.status_code == 401, path
        assert answer.text.startswith("This console needs the token")
        assert "polkadot" not in answer.text
        assert web.client.get(path).status_code != 401
    assert stranger.get("/?token=wrong").status_code == 401
    assert stranger.get("/", headers={"authorization": f"Bearer {web.app.secrets.session}"}).status_code == 401
    assert stranger.get("/", headers={"cookie": f"validator-console-{PORT}={web.app.secrets.token}"}).status_code == 401
    assert stranger.get("/", headers={"cookie": b"\xff;;=;[]"}).status_code == 401
    assert stranger.get("/healthz").text == "ok\n"


def test_token_is_changed_for_a_cookie_and_leaves_the_address(web: Web, stranger: TestClient) -> None:
    answer = stranger.get(f"/lanes/polkadot/verdicts?token={web.app.secrets.token}&para=2000")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/lanes/polkadot/verdicts?para=2000"
    cookie = answer.headers["set-cookie"]
    assert cookie == f"validator-console-{PORT}={web.app.secrets.session}; HttpOnly; SameSite=Strict; Path=/"
    assert web.app.secrets.token not in cookie
    assert stranger.get("/").status_code == 200
    guard = Guard(web.client.app, web.app.secrets, "127.0.0.1", PORT)
    for path in ("//elsewhere.example/", "/\\elsewhere.example", "/a\r\nset-cookie: b"):
        entered = guard._entering(
            {"method": "GET", "path": path, "query_string": f"token={web.app.secrets.token}".encode()}
        )
        assert entered is not None
        assert re.fullmatch(rb"/[a-z%0-9A-F.:-]+/?", dict(entered)[b"location"])


def test_programs_use_the_bearer_token(web: Web, stranger: TestClient) -> None:
    assert stranger.get("/", headers={"authorization": f"Bearer {web.app.secrets.token}"}).status_code == 200


def test_secrets_differ_and_are_compared_whole() -> None:
    one, other = Secrets(), Secrets()
    values = {one.token, one.session, one.form, other.token, other.session, other.form}
    assert len(values) == 6
    assert all(len(value) >= 43 for value in values)
    assert is_same(one.token, one.token)
    assert not is_same(one.token[:-1], one.token)
    assert not is_same("é\udcff", one.token)


@pytest.mark.parametrize(
    ("host", "own"),
    [
        (f"127.0.0.1:{PORT}", True),
        ("127.0.0.1", True),
        (f"localhost:{PORT}", True),
        (f"[::1]:{PORT}", True),
        (f"192.168.1.7:{PORT}", True),  # an address is no name that could be made to resolve to another one
        (f"evil.example:{PORT}", False),
        (f"127.0.0.1.evil.example:{PORT}", False),
        (f"localhost.evil.example:{PORT}", False),
        ("", False),
        ("[::1", False),
        ("a:b:c", False),
    ],
)
def test_other_host_names_are_refused(web: Web, host: str, own: bool) -> None:
    answer = web.client.get("/healthz", headers={"host": host})
    assert answer.status_code == (200 if own else 421)
    if not own:
        assert "host name" in answer.text


def test_name_that_it_listens_on_is_its_own(web: Web) -> None:
    guard = Guard(web.client.app, Secrets(), "console.example", PORT)
    assert guard._is_own(f"console.example:{PORT}")
    assert not guard._is_own(f"other.example:{PORT}")


def test_every_answer_has_strict_headers(web: Web, stranger: TestClient) -> None:
    for client, path in (
        (web.client, "/"),
        (web.client, "/static/console.js"),
        (stranger, "/"),
        (web.client, "/nowhere"),
    ):
        headers = client.get(path).headers
        policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["script-src"] == policy["style-src"] == policy["form-action"] == "'self'"
        assert policy["frame-ancestors"] == policy["object-src"] == policy["base-uri"] == "'none'"
        assert policy["require-trusted-types-for"] == "'script'"
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
    assert web.client.get("/").headers["cache-control"] == "no-store"


def test_forms_come_from_its_own_pages(web: Web) -> None:
    place = "/dead-letters/0/0"
    form = {"form_token": web.app.secrets.form, "action": "check", "record": "{}"}
    own = {"origin": BASE, "sec-fetch-site": "same-origin"}
    for headers in ({}, {"origin": "http://evil.example"}, {"origin": "null"}, own | {"sec-fetch-site": "cross-site"}):
        answer = web.client.post(place, data=form, headers=headers)
        assert answer.status_code == 403, headers
        assert answer.text.startswith("A form has to be sent")
    answer = web.client.post(place, data=form | {"form_token": "wrong"}, headers=own)
    assert (answer.status_code, answer.text) == (
        403,
        "The form's token is not that of this console: load the page again.\n",
    )
    answer = web.client.post(place, data=form, headers=own)
    assert (answer.status_code, "there is no Kafka here" in answer.text) == (404, True)  # it is right
    assert client_of(web.app).post(place, data=form, headers=own).status_code == 401


def test_other_methods_and_large_requests_are_refused(web: Web) -> None:
    assert web.client.request("DELETE", "/").status_code == 405
    assert web.client.post("/", headers={"origin": BASE}).status_code == 405
    assert web.client.get("/?" + "q" * (QUERY_MAX + 1)).status_code == 414
    assert web.client.get("/lanes/polkadot/paras/" + "1" * QUERY_MAX).status_code == 414
    assert web.client.post("/", content=b"x" * (FORM_BYTES_MAX + 1), headers={"origin": BASE}).status_code == 413
    assert web.client.post("/", content=iter([b"x"]), headers={"origin": BASE}).status_code == 413
    for length in ("0" * 12 + "40000000", "9" * 5_000, "-1", "1_0", ""):
        headers = {"origin": BASE, "content-length": length}
        assert web.client.post("/", content=b"x", headers=headers).status_code == 413, length


def test_odd_requests_are_refused_without_a_traceback(web: Web) -> None:
    many = "&".join(f"name{number}=1" for number in range(60))
    for page in ("http://[::1", "//[x/", f"/lanes/polkadot/verdicts?{many}"):
        assert web.client.get("/events", params={"page": page}).status_code == 400, page
    own = {"origin": BASE}
    place = "/dead-letters/0/0"
    assert web.client.post(place, content=many, headers=own).status_code == 400
    assert web.log == []
