# SPDX-License-Identifier: Apache-2.0
"""The lanes' job, the operator of bodies, senders, a recipient and a producer of blocks, as processes on one broker.

The configuration is `examples/xcmp-network.toml`. Its recipient may acknowledge only what is reported, and acknowledges exactly what
`messages follow` says. The operator is killed in the middle.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from validator_xcmp_bodies import records
from validator_xcmp_bodies.parts import measure

from tests.bodies.processes import Running, Topics
from tests.cli.follower import invoke, lines
from tests.sending import send
from validator.codec.json_form import to_json
from validator.hexadecimal import from_hex
from validator.kafka.topics import create_topics

pytestmark = pytest.mark.spark

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "xcmp-network.toml"
CONFIG = f"--config={EXAMPLE}"
LANE, A, B, R = "network", 2000, 2001, 2002
PREFIX = "network."
FIRST_A, FIRST_B = [b"one", b"two"], [bytes(600_000), b"end"]
SECOND_A, SECOND_B = [b"last"], [b"late"]


class Chain:
    """Produces blocks with `validator submit`, and reads what the jobs say about them."""

    def __init__(self, folder: Path, topics: Topics) -> None:
        self.folder, self.topics = folder, topics
        self.verdicts = 0

    def block(self, number: int, *candidates: dict[str, Any], reports: list[str] | None = None) -> list[dict[str, Any]]:
        """Produce a block; return the verdicts on reports and candidates."""
        reports = reports or []
        named = {"lane": LANE, "block": number}
        self.submit("channel-requests", reports)
        self.submit(
            "candidates", [json.dumps({**named, "index": at, **each}) + "\n" for at, each in enumerate(candidates)]
        )
        counts = {"candidates": len(candidates), "requests": len(reports), "downward": 0}
        rest: dict[str, Any] = {"included": [], "timed_out": [], "session_change": None}
        self.submit("blocks", [json.dumps({**named, **counts, **rest}) + "\n"])
        before, self.verdicts = self.verdicts, self.verdicts + len(reports) + len(candidates)
        return self.topics.wait_for("verdicts", self.verdicts)[before:]

    @staticmethod
    def submit(kind: str, some: list[str]) -> None:
        if some:
            done = invoke("submit", kind, "-", CONFIG, stdin="".join(some).encode())
            assert done.exit_code == 0, done.stderr

    def reports(self, block: int) -> list[str]:
        """Return the reports for a block: the same ones, however often they are asked for."""
        arguments = ("messages", "reports", "--chain", LANE, "--block", str(block))
        done = invoke(*arguments, "--position", str(self.folder / "position"), CONFIG)
        again = invoke(*arguments, "--position", str(self.folder / "position"), CONFIG)
        assert (done.exit_code, again.exit_code) == (0, 0), done.stderr + again.stderr
        assert done.stdout == again.stdout
        announced = json.loads((self.folder / "position").read_text())["requests"]
        found = done.stdout.splitlines(keepends=True)
        assert announced == len(found)
        return found


def sends(para: int, payloads: list[bytes]) -> dict[str, Any]:
    found = measure(payloads)
    return {"para_id": para, "outbox": [{"recipient": R, "root": found.root.hex(), "size": found.size}], "acks": []}


def acknowledges(row: dict[str, Any]) -> dict[str, Any]:
    return {"para_id": R, "outbox": [], "acks": row["acks"]}


def kinds(verdicts: list[dict[str, Any]]) -> list[str | None]:
    return [None if each["ok"] else each["error"]["kind"] for each in verdicts]


def named(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(row["sent_at"], row["sender"]) for row in rows]


def payloads_of(row: dict[str, Any]) -> list[bytes]:
    return [from_hex(payload) for payload in row["payloads"]]


def wait_for_status(topics: Topics, **wanted: Any) -> dict[str, Any]:
    """Return the first status of the recipient's queue that has some values."""
    at = 0
    while True:
        status = topics.wait_for(records.QUEUES, at + 1)[at]
        if all(status[name] == value for name, value in wanted.items()):
            return status
        at += 1


class Processes:
    """Starts processes of `validator`, which are killed at the end."""

    def __init__(self, folder: Path) -> None:
        self._job = folder / "job"
        self._started: list[Running] = []

    def start(self, *arguments: str, job: Path | None = None) -> Running:
        self._started.append(Running(*arguments, CONFIG, job=job))
        return self._started[-1]

    def lanes(self) -> Running:
        return self.start("run", "--json", job=self._job)

    def operator(self) -> Running:
        return self.start("messages", "run", "--json", job=self._job / "jobs" / "xcmp-bodies")

    def sender(self, para: int, bodies: list[list[bytes]], *options: str) -> Running:
        path = self._job.with_name(f"{para}-{len(self._started)}.jsonl")
        path.write_text("".join(json.dumps([payload.hex() for payload in body]) + "\n" for body in bodies))
        return self.start("messages", "send", "--chain", LANE, "--para", str(para), str(path), *options)

    def close(self) -> None:
        for each in reversed(self._started):
            each.kill()


@pytest.fixture
def processes(tmp_path: Path, kafka: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    """Use the configuration of the example with the tests' broker."""
    for name, value in {
        "KAFKA": json.dumps(kafka),
        "TOPICS__PREFIX": PREFIX,
        "JOB__DIRECTORY": str(tmp_path / "job"),
        "JOB__MASTER": "local[2]",
        "JOB__DRIVER_MEMORY": "1g",
    }.items():
        monkeypatch.setenv(f"VALIDATOR_{name}", value)
    create_topics(kafka, prefix=PREFIX)
    made = Processes(tmp_path)
    yield made
    made.close()


@pytest.mark.long
def test_recipient_acknowledges_bodies_that_are_reported(
    tmp_path: Path, kafka: dict[str, Any], processes: Processes
) -> None:
    lanes, operator = processes.lanes(), processes.operator()
    operator.wait_for_event("started")  # its topics exist
    own = dict.fromkeys((records.HELD, records.REFUSED, records.QUEUES), records.decode)
    topics = Topics(kafka, PREFIX, {**own, "verdicts": to_json})
    chain = Chain(tmp_path, topics)
    senders = [processes.sender(A, [FIRST_A, SECOND_A]), processes.sender(B, [FIRST_B])]
    recipient = ("messages", "follow", "--chain", LANE, "--para", str(R), "--json")
    follower = processes.start(*recipient)

    assert kinds(chain.block(1, sends(A, FIRST_A), sends(B, FIRST_B))) == [None, None]
    rows = follower.rows(2)
    assert named(rows) == [(1, A), (1, B)]
    assert [payloads_of(row) for row in rows] == [FIRST_A, FIRST_B]
    assert rows[1]["acks"] == [[1, A], [1, B]]
    assert rows[1]["watermark"] == {"block": 2, "acked": []}

    early = chain.block(2, acknowledges(rows[1]), sends(A, SECOND_A), sends(B, SECOND_B))
    assert kinds(early) == ["Ack/BodyMissing", None, None]
    wait_for_status(topics, unread=4, missing=1)
    wrong = [((B, R, 2), [b"evil"], measure(SECOND_B).root), ((B, R, 1), [b"unread"], None), ((A, B, 1), [], None)]
    send(kafka, PREFIX, [each[:3] for body in wrong for each in records.encode_body(LANE, *body)])
    refused = topics.wait_for(records.REFUSED, 3)
    assert [each["kind"] for each in refused] == ["Body/RootMismatch", "Body/SizeMismatch", "Body/NotExpected"]

    reports = chain.reports(3)
    assert sorted(named(lines("".join(reports)))) == [(1, A), (1, B), (2, A)]
    assert kinds(chain.block(3, acknowledges(rows[1]), reports=reports)) == [None] * 4
    assert named(follower.rows(3))[2:] == [(2, A)]

    operator.kill()
    operator = processes.operator()
    chain.block(4)
    chain.block(5)
    begins = operator.wait_for_event("alarm begins")
    assert (begins["level"], begins["front"], begins["age_blocks"], begins["missing"]) == (
        "warning",
        f"2/{A}",
        3,
        False,
    )
    status = invoke("messages", "status", "--check", CONFIG)
    assert (status.exit_code, "ALARM" in status.stdout) == (1, True)
    assert processes.sender(B, [SECOND_B], "--once").end() == 0
    last = follower.rows(4)[3]
    assert (last["position"], last["acks"]) == (f"2/{B}", [[2, A], [2, B]])
    assert lines(invoke(*recipient, CONFIG, "--once", "--after", f"2/{A}").stdout) == [last]
    reports = chain.reports(6)
    assert named(lines("".join(reports))) == [(2, B)]
    assert kinds(chain.block(6, acknowledges(last), reports=reports)) == [None, None]
    operator.wait_for_event("alarm ends")
    wait_for_status(topics, unread=0, alarm=False)

    assert [each.stop() for each in (operator, lanes, *senders, follower)] == [0] * 5
    topics.wait_for("verdicts", chain.verdicts)
    assert sorted(named(topics.records[records.HELD])) == [(1, A), (1, B), (2, A), (2, B)]
    assert len(topics.records[records.REFUSED]) == 3
    topics.close()
