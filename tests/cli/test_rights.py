# SPDX-License-Identifier: Apache-2.0
"""Whoever lacks a right on Kafka, or is not admitted at all, gets one line that says so, and the exit code of a user error."""

from __future__ import annotations

import json
import re
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from tests.cli.follower import LANE, Follower, follower, invoke
from tests.guarded import guarded_broker, login_of
from validator import client, exit_codes
from validator.config.toml import to_toml
from validator.errors import UserError
from validator.kafka import refusals, retry
from validator.kafka.broker import EmbeddedBroker
from validator.kafka.reader import TopicReader
from validator.kafka.settings import admin_config
from validator.transports.lease import Lease
from validator.transports.output_reader import Cursors, KafkaOutputReader
from validator.transports.record_queue import RecordQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PREFIX = "guarded."
RIGHTS: dict[str, tuple[str, ...]] = {
    "nobody": (),
    "describer": ("DESCRIBE",),
    "reader": ("DESCRIBE", "READ"),
    "elsewhere": ("DESCRIBE", "READ"),
}
"""By user, what it may do with every topic; `elsewhere` may also write to a topic of another prefix."""


class Guarded:
    """A broker that knows users with few rights, and a simulated chain on it."""

    def __init__(self, chain: Follower, directory: Path, broker: EmbeddedBroker) -> None:
        self.chain, self._directory, self._broker, self.admin_kafka = chain, directory, broker, broker.kafka

    def kafka(self, user: str, **more: str) -> dict[str, Any]:
        return login_of(self._broker, user, **more)

    def option(self, kafka: dict[str, Any]) -> str:
        path = self._directory / "user.toml"
        tables = {"topics": {"prefix": PREFIX}, "job": {"directory": str(self._directory / "job")}, "kafka": kafka}
        path.write_text(to_toml({**tables, "chains": {LANE: {}}}), encoding="utf-8")
        return f"--config={path}"

    def file(self, name: str, *records: Any) -> str:
        path = self._directory / name
        path.write_text("".join(json.dumps(each) + "\n" for each in records), encoding="utf-8")
        return str(path)

    def blocks(self) -> str:
        return self.file("blocks.jsonl", *(record for kind, record in self.chain.records if kind == "blocks"))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Start a broker with access control, of which the embedded broker's own user is an administrator."""
    rights = [right(user, PREFIX, each) for user, operations in RIGHTS.items() for each in operations]
    rights.append(right("elsewhere", "another.", "WRITE"))
    with guarded_broker(tmp_path_factory.mktemp("broker"), [*RIGHTS], rights) as broker:
        directory = tmp_path_factory.mktemp("chain")
        chain = follower(directory, broker.kafka, PREFIX, blocks=4)
        chain.judge(chain.records)
        yield Guarded(chain, directory, broker)


def right(user: str, prefix: str, operation: str) -> AclBinding:
    pattern = ResourceType.TOPIC, prefix, ResourcePatternType.PREFIXED, f"User:{user}", "*"
    return AclBinding(*pattern, AclOperation[operation], AclPermissionType.ALLOW)


COMMANDS: list[tuple[str, list[str], str]] = [
    ("nobody", ["submit", "blocks", "BLOCKS"], "Write on topic guarded.blocks"),
    ("describer", ["submit", "blocks", "BLOCKS"], "Write on topic guarded.blocks"),
    ("reader", ["submit", "blocks", "-"], "Write on topic guarded.blocks"),
    ("elsewhere", ["submit", "blocks", "BLOCKS"], "Write on topic guarded.blocks"),
    *((user, ["watch", "verdicts", "--count=1"], "Read on topic guarded.verdicts") for user in ("nobody", "describer")),
    ("nobody", ["watch", "verdicts", "--tail=2", "--count=1"], "Read on topic guarded.verdicts"),
    ("describer", ["watch", "verdicts", "--tail=2", "--count=1"], "Read on topic guarded.verdicts"),
    ("describer", ["compare", "verdicts", "EXPECTED"], "Read on topic guarded.verdicts"),
    ("nobody", ["dead-letters", "list"], "Read on topic guarded.dead-letter"),
    ("nobody", ["dead-letters", "show", "0/0"], "Read on topic guarded.dead-letters"),
    ("describer", ["dead-letters", "replay", "--all"], "Write on transactional id guarded.dead-letter-replay"),
    ("nobody", ["lanes"], "Read on topic guarded."),
    ("describer", ["lanes", "resume", f"--lane={LANE}"], "Read on topic guarded.lanes"),
    ("describer", ["audit", f"--lane={LANE}"], "Read on topic guarded."),
    ("nobody", ["export", f"--lane={LANE}", "--out=OUT"], "Read on topic guarded."),
    ("nobody", ["topics", "create"], "Create on topic guarded.blocks"),
    ("nobody", ["console", "--listen=127.0.0.1:0"], "Read on topic guarded."),
    ("nobody", ["transport", "run", "dry-run"], "Create on topic guarded.cursors"),
    ("nobody", ["messages", "status"], "Read on topic guarded."),
]


@pytest.mark.parametrize(("user", "command", "lacking"), COMMANDS, ids=lambda each: str(each)[:40])
def test_missing_right_is_one_line_with_operation_and_resource(
    guarded: Guarded, tmp_path: Path, user: str, command: list[str], lacking: str
) -> None:
    files = {
        "BLOCKS": guarded.blocks(), "EXPECTED": guarded.file("expected.jsonl", *guarded.chain.expected),
        "--out=OUT": f"--out={tmp_path / 'out'}",
    }  # fmt: skip
    given = [files.get(each, each) for each in command]
    with Path(files["BLOCKS"]).open("rb") as lines:
        result = invoke(*given, guarded.option(guarded.kafka(user)), stdin=lines.read())
    assert result.exit_code == exit_codes.USER_ERROR, (result.output, result.exception)
    assert result.stderr.count("\n") == 1, result.stderr
    assert f"user {user} lacks the right {lacking}" in result.stderr


def test_topic_that_a_user_may_not_see_is_not_called_missing(guarded: Guarded) -> None:
    found = invoke("topics", "list", "--json", guarded.option(guarded.kafka("nobody")))
    states = [json.loads(line) for line in found.stdout.splitlines()]
    assert states
    assert {(each["partitions"], each["hidden"]) for each in states} == {(None, True)}
    shown = invoke("topics", "list", guarded.option(guarded.kafka("nobody"))).stdout
    assert "missing" not in shown
    assert shown.count("no right") == len(states)


def test_retention_that_a_user_may_not_see_is_the_configured_one(guarded: Guarded) -> None:
    found = invoke("topics", "list", "--json", guarded.option(guarded.kafka("reader")))
    states = [json.loads(line) for line in found.stdout.splitlines()]
    assert {(each["partitions"] is None, each["retention_of"]) for each in states} == {(False, "configuration")}


def test_submit_says_which_lines_were_not_sent(guarded: Guarded) -> None:
    result = invoke("submit", "blocks", guarded.blocks(), guarded.option(guarded.kafka("elsewhere")))
    found = re.search(r"blocks.jsonl, line (\d): .*\(0 records were sent; (.*)\)$", result.stderr)
    assert found is not None, result.stderr
    assert found[2].startswith("not acknowledged: line"), found[2]


@pytest.mark.parametrize("by", ["producer", "stream", "progress"])
def test_client_library_raises_one_line(guarded: Guarded, by: str) -> None:
    user = "reader" if by == "producer" else "describer"
    tables = {"kafka": guarded.kafka(user), "topics": {"prefix": PREFIX}, "chains": {LANE: {}}}
    with client.connect(tables) as connected:
        block = connected.producer(LANE).block(1_000)
        calls: dict[str, Callable[[], object]] = {
            "producer": block.end,
            "stream": lambda: list(connected.verdicts(lane=LANE)),
            "progress": lambda: connected.progress(LANE),
        }
        with pytest.raises(
            UserError, match=f"user {user} lacks the right {'Write' if by == 'producer' else 'Read'} on"
        ):
            calls[by]()


def test_transport_says_what_it_lacks(guarded: Guarded) -> None:
    kafka = guarded.kafka("reader")
    with pytest.raises(
        UserError, match=r"user reader lacks the right Write on transactional id guarded\.transport\.mail"
    ):
        Cursors(kafka, PREFIX, "mail", lambda: None)
    lease = Lease(kafka, f"{PREFIX}transport.mail", "mail", f"{PREFIX}verdicts")
    with lease, pytest.raises(UserError, match=r"user reader lacks the right Read on group guarded\.transport\.mail"):
        lease.acquire(Event(), lambda _: None)
    with pytest.raises(UserError, match=r"user nobody lacks the right Read on topic guarded\.verdicts"):
        KafkaOutputReader(guarded.kafka("nobody"), PREFIX, ["verdicts"], lambda: None, lambda: False)


def test_queue_of_a_transport_that_may_not_write_says_so(guarded: Guarded) -> None:
    """librdkafka raises this once, out of the thread that polls: the transport must not continue without it."""
    queue, outcomes = RecordQueue(guarded.kafka("reader"), PREFIX), list[str | None]()
    try:
        assert queue.put("blocks", b"k", b"v", outcomes.append, {})
        while not queue.has_failed and queue._thread.is_alive():
            pass
        with pytest.raises(UserError, match="user reader lacks the right Write on topics guarded"):
            queue.check()
    finally:
        queue.close(0.0)
    assert outcomes
    assert outcomes[0] is not None


REFUSED = {
    "another password": ({"sasl.password": "wrong"}, "the login of user reader is refused: "),
    "no such user": ({"sasl.username": "stranger"}, "the login of user stranger is refused: "),
    "TLS": ({"security.protocol": "SASL_SSL"}, "SSL handshake failed: "),
    "nothing there": ({"bootstrap.servers": "127.0.0.1:1"}, "Connect to ipv4#127.0.0.1:1 failed: Connection refused"),
    "no such name": ({"bootstrap.servers": "nowhere.invalid:9092"}, "Failed to resolve 'nowhere.invalid:9092'"),
}


@pytest.mark.parametrize(
    ("command", "case"),
    [
        *((["watch", "verdicts"], case) for case in REFUSED),
        (["submit", "blocks", "BLOCKS"], "another password"),
        (["topics", "list"], "another password"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_reason_of_a_missing_connection_is_named(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, command: list[str], case: str
) -> None:
    monkeypatch.setattr(retry, "ANSWER_S_MAX", 1.0)
    monkeypatch.setattr(refusals, "LISTEN_S_MAX", 20.0)
    more, reason = REFUSED[case]
    blocks = guarded.blocks()
    result = invoke(
        *(blocks if each == "BLOCKS" else each for each in command), guarded.option(guarded.kafka("reader", **more))
    )
    assert result.exit_code == exit_codes.USER_ERROR, (result.output, result.exception)
    assert result.stderr.count("\n") == 1, result.stderr
    assert reason in result.stderr


def test_client_without_a_login_learns_of_the_protocol(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "ANSWER_S_MAX", 1.0)
    kafka = {"bootstrap.servers": guarded.admin_kafka["bootstrap.servers"]}
    result = invoke("watch", "verdicts", guarded.option(kafka))
    assert result.exit_code == exit_codes.USER_ERROR
    assert "is security.protocol that of the broker's listener?" in result.stderr


def test_record_that_is_larger_than_its_topic_takes_is_named_with_its_size(guarded: Guarded) -> None:
    kafka = guarded.admin_kafka
    admin = AdminClient(admin_config(kafka))
    limit = ConfigResource(
        ConfigResource.Type.TOPIC,
        f"{PREFIX}downward-messages",
        incremental_configs=[ConfigEntry("max.message.bytes", "20000", incremental_operation=AlterConfigOpType.SET)],
    )
    for each in admin.incremental_alter_configs([limit]).values():
        each.result()

    def message(index: int, size: int) -> dict[str, Any]:
        noise = "".join(f"{index * 1_000_003 + each * each:08x}"[-8:] for each in range(size // 4))
        return {"lane": LANE, "block": 9, "index": index, "para_id": 2000, "msg": noise}

    file = guarded.file("large.jsonl", message(0, 40), message(1, 60_000), message(2, 40))
    result = invoke("submit", "downward-messages", file, guarded.option(kafka))
    assert result.exit_code == exit_codes.USER_ERROR
    assert result.stderr.count("\n") == 1
    found = re.search(
        r"did not accept (\S+large.jsonl), line 2 of (\d+) bytes: .*\((\d) records? .* sent; not ack.*\)$",
        result.stderr,
    )
    assert found is not None, result.stderr
    assert int(found[2]) > 60_000
    with TopicReader(kafka, PREFIX, ["downward-messages"]) as reader:
        got = [record for record in reader.read_to_end() if len(record.value) < 1_000]
    assert len(got) == int(found[3]), "it says how many were sent"
