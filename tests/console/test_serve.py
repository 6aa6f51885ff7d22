# SPDX-License-Identifier: Apache-2.0
"""A running console: on a real broker, and how it fails to start."""

from __future__ import annotations

import html
import json
import re
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.cli.follower import invoke
from tests.codecs import encoded
from tests.console.conftest import WAIT_S, wait_until
from tests.console.records import dead_letter, output_of, simulated
from tests.sending import committed, send
from tests.unit.lanes.chains import config_of
from validator.cli import console as console_command
from validator.cli.command_api import console_beside
from validator.console.serve import RunningConsole
from validator.errors import UserError
from validator.kafka.topics import create_topics
from validator.web.server import address_of, is_loopback

if TYPE_CHECKING:
    from pathlib import Path

    from validator.config import Config

PREFIX = "console-serve."
BLOCKS = 12


@pytest.fixture(scope="module")
def config(kafka: dict[str, object]) -> Config:
    """Return the configuration of a chain whose output is on the broker, with one dead letter that lacks a lane."""
    chain = simulated(blocks=BLOCKS)
    made = config_of(chain, job={"directory": "nowhere"}, kafka=kafka, topics={"prefix": PREFIX})
    create_topics(kafka, prefix=PREFIX)
    records = list(output_of(chain))
    send(kafka, PREFIX, [(record.topic, record.key, record.value) for record in records if record.topic != "blocks"])
    body = next(record for block in chain.blocks for topic, record in block.records if topic == "candidates")
    value = encoded("candidates", body | {"lane": "nowhere"})
    letter = dead_letter("lane: expected polkadot, found nowhere", value, lane="polkadot", topic=f"{PREFIX}candidates")
    send(kafka, PREFIX, [(letter.topic, letter.key, letter.value)])
    return made


@pytest.fixture(scope="module")
def console(config: Config) -> Iterator[RunningConsole]:
    """Return a console that has read everything."""
    with RunningConsole(config, "127.0.0.1:0", lambda _: None) as running:
        wait_until(running.follower.caught_up.is_set)
        yield running


@pytest.fixture
def client(console: RunningConsole) -> Iterator[httpx2.Client]:
    """Return a client that has entered."""
    with httpx2.Client(base_url=console.url.partition("/?")[0], timeout=WAIT_S, follow_redirects=True) as made:
        assert made.get(console.url).status_code == 200
        yield made


def test_pages_show_what_is_on_kafka(console: RunningConsole, client: httpx2.Client) -> None:
    lane = console.model.lanes["polkadot"]
    assert lane.tally.outcome.total() == len(simulated(blocks=BLOCKS).expected)
    assert f'executed <b id="executed">{BLOCKS}</b>' in client.get("/").text
    assert console.model.strangers == 0
    wait_until(lambda: "polkadot" in console.follower.lags)
    assert "behind" in client.get("/").text
    stored = client.get("/lanes/polkadot/paras/1000/state").text
    assert "nowhere" in stored  # the line of the error names the missing checkpoint
    assert client.get("/lanes/polkadot/runtime").status_code == 200


def test_stream_brings_what_arrives(console: RunningConsole, client: httpx2.Client, config: Config) -> None:
    def parts(lines: Iterator[str]) -> Iterator[dict[str, str]]:
        for line in lines:
            if line.startswith("data: "):
                yield json.loads(line[6:])

    with client.stream("GET", "/events", params={"page": "/dead-letters"}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        found = parts(answer.iter_lines())
        assert "live_rows" in next(found)
        letter = dead_letter("a new one", b"\x01", topic=f"{PREFIX}blocks")
        send(config.kafka, PREFIX, [(letter.topic, letter.key, letter.value)])
        assert any("a new one" in each.get("live_rows", "") for each in found)


def fields_of(text: str) -> dict[str, str]:
    """Return the fields of the form that puts a dead letter back."""
    hidden = dict(re.findall(r'<input type="hidden" name="(form_token|form|attempt)" value="([^"]*)">', text))
    record = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", text, re.DOTALL)
    assert record is not None
    return {**hidden, "record": html.unescape(record[1])}


def test_dead_letter_is_fixed_and_put_back(console: RunningConsole, client: httpx2.Client, config: Config) -> None:
    page = client.get("/dead-letters/0/0").text
    assert "UNKNOWN_LANE" in page
    form = fields_of(page)
    origin = {"origin": console.url.partition("/?")[0]}

    def posted(action: str, **changes: str) -> tuple[int, str]:
        answer = client.post("/dead-letters/0/0", data={**form, "action": action, **changes}, headers=origin)
        said = re.search(r'id="answer">.*?<span>(.*?)</span>', answer.text, re.DOTALL)
        assert said is not None, answer.text
        return answer.status_code, html.unescape(said[1])

    assert posted("replay") == (422, "it would be dead on arrival: UNKNOWN_LANE: lane 'nowhere' is not configured")
    status, words = posted("check", record="{")
    assert status == 422
    assert words.startswith("record:1:")
    record: dict[str, Any] = json.loads(form["record"]) | {"lane": "polkadot", "block": BLOCKS + 1}
    assert posted("check", record=json.dumps(record))[0] == 200
    past = posted("check", record=json.dumps(record | {"block": 1}))
    assert past[0] == 422
    assert "no block will take it" in past[1]
    status, words = posted("replay", record=json.dumps(record))
    assert status == 200
    assert words == f"Put back with other bytes as {PREFIX}candidates[0]@0, attempt 1."
    for attempt in (form["attempt"], "9" * 5_000):
        assert posted("replay", record=json.dumps(record), attempt=attempt) == (
            422,
            "It was put back meanwhile. Load its page again to see the new attempt.",
        )
    values = [each.value for each in committed(config.kafka, PREFIX, ["candidates"])]
    assert values == [encoded("candidates", {**record})]
    wait_until(lambda: "0/0" in console.model.replayed)
    assert "put back, attempt 1" in client.get("/dead-letters").text
    page = client.get("/dead-letters/0/0").text
    assert f"<code>{PREFIX}candidates[0]@0</code>, with other bytes." in page
    assert "Fix it and put it back once more" in page
    raw = client.get("/dead-letters/0/0/raw")
    assert raw.headers["content-disposition"] == 'attachment; filename="dead-letter-0-0.bin"'
    assert len(raw.content) > 50


def test_read_only_console_puts_nothing_back(config: Config) -> None:
    with (
        RunningConsole(config, "127.0.0.1:0", lambda _: None, read_only=True) as running,
        httpx2.Client(base_url=running.url.partition("/?")[0], timeout=WAIT_S, follow_redirects=True) as client,
    ):
        assert client.get(running.url).status_code == 200
        page = client.get("/dead-letters/0/0").text
        assert "Put back</button>" not in page
        answer = client.post(
            "/dead-letters/0/0",
            data=fields_of(page) | {"action": "replay"},
            headers={"origin": str(client.base_url).rstrip("/")},
        )
        assert (answer.status_code, answer.text) == (403, "This console is read-only.\n")


def test_busy_port_is_one_line(console: RunningConsole, config: Config, tmp_path: Path) -> None:
    listen = f"127.0.0.1:{console.port}"
    with pytest.raises(UserError, match=rf"^--listen: {listen}: Address already in use$"):
        RunningConsole(config, listen, lambda _: None)
    # a demo takes another port then
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(console_command, "LISTEN", listen)
        with console_beside(config, open_browser=False) as other:
            assert other.port != console.port


def test_unreachable_broker_and_missing_topics_are_one_line(tmp_path: Path, config: Config) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    path = tmp_path / "validator.toml"
    path.write_text(f'[kafka]\n"bootstrap.servers" = "127.0.0.1:{port}"\n')
    result = invoke("console", f"--config={path}", "--listen=127.0.0.1:0")
    assert result.exit_code == 2
    assert re.fullmatch(r"validator: .*127\.0\.0\.1.*\n", result.stderr)
    other = config.model_copy(update={"topics": config.topics.model_copy(update={"prefix": "nobodys."})})
    with pytest.raises(UserError, match=r"topic nobodys\.verdicts does not exist"):
        RunningConsole(other, "127.0.0.1:0", lambda _: None)


@pytest.mark.parametrize("listen", ["8480", "127.0.0.1", ":8480", "127.0.0.1:x", "127.0.0.1:70000", "127.0.0.1:-1"])
def test_wrong_address_is_named(listen: str) -> None:
    with pytest.raises(UserError, match="--listen: expected HOST:PORT"):
        address_of(listen)


def test_addresses() -> None:
    assert address_of("[::1]:0") == ("::1", 0)
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.org")] == [True] * 3 + [
        False
    ] * 2
