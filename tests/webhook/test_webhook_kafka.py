# SPDX-License-Identifier: Apache-2.0
"""`validator transport run webhook` on a real broker: killed and started again, with uncommitted records, seen by `validator lanes`."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer
from webhook_world import LOOPBACK, PATIENCE_S, Receiver, receiving, respond, secret_file, until, verdict, verified

from tests.cli.follower import invoke
from tests.sending import send
from validator.config import load_config
from validator.config.toml import to_toml
from validator.kafka.settings import producer_config
from validator.kafka.topics import create_topics
from validator.testing.transport import MemoryTransport
from validator.transports.lines import transport_lines

TOKEN = "0123456789abcdef-token"
SESSION_MS = 6_000
"""The shortest time that brokers allow until a killed process is forgotten."""


class World:
    """Topics, a configuration, and the processes of the transport."""

    def __init__(self, folder: Path, kafka: dict[str, Any]) -> None:
        self.folder, self.kafka, self.prefix = folder, kafka, f"webhook-{folder.name}."
        create_topics(kafka, prefix=self.prefix)
        self.config = folder / "validator.toml"
        self.log = folder / "log"
        self.process: subprocess.Popen[bytes] | None = None

    def configure(self, receiver: Receiver, **table: Any) -> None:
        subscription = {
            "url": receiver.url,
            "topics": ["verdicts"],
            "start": "beginning",
            "secret_file": secret_file(self.folder),
        }
        tables = {
            "kafka": {**self.kafka, "session.timeout.ms": SESSION_MS},
            "topics": {"prefix": self.prefix},
            "transports": {
                "webhook": {
                    "allow_http": True,
                    "allow_networks": [LOOPBACK],
                    "listen": "127.0.0.1:0",
                    "token_file": secret_file(self.folder, "token", TOKEN),
                    "secret_file": secret_file(self.folder, "master"),
                    "subscriptions": {"alerts": subscription},
                    **table,
                }
            },
        }
        self.config.write_text(to_toml(tables), encoding="utf-8")

    def emit(self, *numbers: int) -> None:
        memory = MemoryTransport("webhook", {"token_file": "t", "secret_file": "s"})
        for number in numbers:
            memory.emit("verdicts", verdict(number))
        send(self.kafka, self.prefix, memory.outputs)

    def start(self) -> None:
        command = [sys.executable, "-m", "validator", "transport", "run", "webhook", f"--config={self.config}"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, env=dict(os.environ), stderr=log)

    def kill(self, number: int = signal.SIGKILL) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def ask(self, method: str, path: str) -> Any:
        found = re.findall(r"listening on 127\.0\.0\.1 port (\d+)", self.log.read_text(encoding="utf-8"))
        connection = http.client.HTTPConnection("127.0.0.1", int(found[-1]), timeout=30)
        connection.request(method, path, headers={"authorization": f"Bearer {TOKEN}"})
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return answer


@pytest.fixture
def world(tmp_path: Path, kafka: dict[str, Any]) -> Any:
    made = World(tmp_path, kafka)
    yield made
    if made.process is not None:
        with suppress(ProcessLookupError):
            made.process.kill()
        made.process.wait()


def test_kills_at_any_moment_lose_nothing_and_keep_ids_and_order(world: World) -> None:
    """The position is committed once a second, so what a kill repeats is at most what was delivered since."""
    chance = Random(3)
    with receiving() as receiver:
        world.configure(receiver)
        world.emit(*range(200))
        kills = 0
        while 199 not in receiver.offsets():
            world.start()
            before = len(receiver.accepted)
            wanted = before + chance.randint(40, 120)
            until(lambda wanted=wanted: len(receiver.accepted) >= wanted or 199 in receiver.offsets())  # type: ignore[misc]
            world.kill()
            kills += 1
        assert kills >= 2
        world.start()
        world.emit(200)
        until(lambda: 200 in receiver.offsets())
        assert world.kill(signal.SIGTERM) == 0
        ids: dict[int, str] = {}
        for request in receiver.accepted:
            offset = request.place[2]
            assert verified(request)["record"]["block"] == offset
            assert offset <= len(ids), "nothing is left out"
            assert ids.setdefault(offset, request.id) == request.id
        assert len(ids) == 201
        assert "secret" not in world.log.read_text(encoding="utf-8")


def test_only_committed_records_are_delivered(world: World) -> None:
    memory = MemoryTransport("webhook", {"token_file": "t", "secret_file": "s"})
    for number in range(3):
        memory.emit("verdicts", verdict(number))
    producer = Producer(producer_config(world.kafka, transactional_id=world.prefix))
    producer.init_transactions(60)
    with receiving() as receiver:
        world.configure(receiver)
        world.start()
        for number, commits in enumerate((False, True, False)):
            producer.begin_transaction()
            producer.produce(world.prefix + "verdicts", memory.outputs[number][2], b"polkadot")
            producer.flush()
            time.sleep(0.5)
            (producer.commit_transaction if commits else producer.abort_transaction)(60)
        world.emit(7)
        until(lambda: len(receiver.accepted) >= 2)
        assert [request.json["record"]["block"] for request in receiver.accepted] == [1, 7]


def test_parked_is_said_by_lanes_and_watch_and_resumed_over_http(world: World) -> None:
    with receiving(respond(410)) as receiver:
        world.configure(receiver)
        world.emit(1, 2)
        world.start()
        until(
            lambda: (
                "alerts: PARKED at verdicts/0/0: the receiver answered 410 Gone"
                in world.log.read_text(encoding="utf-8")
            )
        )
        until(lambda: "parked" in invoke("watch", "webhook.subscriptions", "--json", f"--config={world.config}").stdout)
        (row,) = [
            json.loads(line)
            for line in invoke(
                "watch", "webhook.subscriptions", "--json", f"--config={world.config}"
            ).stdout.splitlines()
            if "parked" in line
        ]
        assert (row["id"], row["lane"], row["at"]) == ("alerts", "polkadot", "verdicts/0/0")
        (line,) = transport_lines(load_config(world.config))["polkadot"]
        assert line.startswith("PARKED: webhook alerts since 2")
        receiver.answer = respond(200)
        assert world.ask("POST", "/subscriptions/alerts/resume")["state"] == "active"
        until(lambda: receiver.offsets() == [0, 1])
        assert world.kill(signal.SIGTERM) == 0


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ({"secret_file": "none"}, "ValueError: secret_file: none: No such file or directory"),
        ({"ca_file": "none"}, "ValueError: ca_file: expected a file, found none at none"),
    ],
)
def test_what_cannot_be_read_is_one_line(world: World, table: dict[str, str], line: str) -> None:
    with receiving() as receiver:
        world.configure(receiver, **table)
        done = invoke("transport", "run", "webhook", f"--config={world.config}")
        assert done.exit_code == 2
        assert done.stderr.splitlines()[-1].endswith(line)
        assert "Traceback" not in done.stderr
