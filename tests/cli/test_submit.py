# SPDX-License-Identifier: Apache-2.0
"""`validator submit`: a record goes to its topic, or its line is reported with the error."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.follower import LANE, Follower, follower, invoke
from tests.codecs import codec_for
from validator import exit_codes
from validator.cli import submit as command
from validator.codec.json_form import to_json
from validator.kafka import sender
from validator.kafka.broker import EmbeddedBroker
from validator.kafka.reader import TopicReader


@pytest.fixture
def chain(tmp_path: Path, kafka: dict[str, object]) -> Follower:
    return follower(tmp_path, kafka, f"submit-{tmp_path.name}.", blocks=4)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, kafka: dict[str, object]) -> Follower:
    """A chain for tests that send nothing."""
    return follower(tmp_path_factory.mktemp("submit"), kafka, "submit.", blocks=1)


def on_topic(chain: Follower, kind: str) -> list[tuple[bytes | None, dict[str, Any]]]:
    with TopicReader(chain.config.kafka, chain.config.topics.prefix, [kind]) as reader:
        return [(record.key, to_json(kind, record.value, codec_for())) for record in reader.read_to_end()]


def written(path: Path, *records: Any) -> str:
    path.write_text(
        "".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in records), encoding="utf-8"
    )
    return str(path)


def downward(index: int, **more: Any) -> dict[str, Any]:
    return {"lane": LANE, "block": 1, "index": index, "para_id": 2000, "msg": "0102", **more}


def test_records_of_executed_blocks_are_said(chain: Follower, tmp_path: Path) -> None:
    chain.judge(chain.records)
    path = written(tmp_path / "r.jsonl", downward(0), downward(1), downward(0, block=1000))
    result = invoke("submit", "downward-messages", path, chain.option())
    assert result.exit_code == 0
    assert result.stdout == "3 downward-messages sent\n"
    assert result.stderr == (
        "validator: lane polkadot has executed block 4: 2 of the records are of blocks up to it, so each is a duplicate or a dead "
        "letter; see `validator lanes`\n"
    )
    result = invoke("submit", "downward-messages", path, "--json", chain.option())
    assert json.loads(result.stdout)["of_executed_blocks"] == 2


@pytest.mark.parametrize("kind", ["blocks", "candidates", "channel-requests", "downward-messages"])
def test_every_kind_goes_to_its_topic_with_lane_as_key(chain: Follower, tmp_path: Path, kind: str) -> None:
    records = [record for each, record in chain.records if each == kind]
    assert records
    result = invoke("submit", kind, written(tmp_path / "r.jsonl", *records), chain.option())
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{len(records)} {kind} sent\n"
    assert on_topic(chain, kind) == [(LANE.encode(), record) for record in records]


def test_file_with_a_bad_line_sends_nothing(shared: Follower, tmp_path: Path) -> None:
    file = written(tmp_path / "r.jsonl", downward(0), "", downward(1, para_id=-1), downward(2))
    result = invoke("submit", "downward-messages", file, shared.option())
    assert result.exit_code == 2
    assert result.stderr == f"validator: {file}, line 3: para_id: expected an integer from 0 to 4294967295, found -1\n"
    assert on_topic(shared, "downward-messages") == []


def test_standard_input_is_sent_up_to_the_first_bad_line(chain: Follower) -> None:
    stdin = "".join(
        json.dumps(each) + "\n" for each in (downward(0), downward(1), {**downward(2), "mgs": "00"}, downward(3))
    )
    result = invoke("submit", "downward-messages", "-", chain.option(), stdin=stdin.encode())
    assert result.exit_code == 2
    assert result.stderr == (
        "validator: standard input, line 3: mgs: no such field; did you mean 'msg'? (2 records before it were sent)\n"
    )
    assert [record["index"] for _, record in on_topic(chain, "downward-messages")] == [0, 1]


def test_keep_going_reports_bad_lines_and_sends_the_others(chain: Follower, tmp_path: Path) -> None:
    file = written(tmp_path / "r.jsonl", "{", downward(0), downward(1, msg="0g"), downward(2))
    result = invoke("submit", "downward-messages", file, "--keep-going", "--json", chain.option())
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {"kind": "downward-messages", "sent": 2, "bad": 2, "of_executed_blocks": 0}
    errors = result.stderr.splitlines()
    assert errors[0].endswith("line 1, column 2: not JSON: Expecting property name enclosed in double quotes in '{'")
    assert errors[1].endswith("line 3: msg: expected hex, found '0g'")
    assert [record["index"] for _, record in on_topic(chain, "downward-messages")] == [0, 2]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[]", "record: expected an object, found []"),
        ("null", "record: expected an object, found None"),
        ("{'a': 1}", ", column 2: not JSON: Expecting property name enclosed in double quotes in "),
        ("[" * 100_000, "nested more than 64 levels deep in '[[[["),
        (
            "\N{LATIN SMALL LETTER E WITH ACUTE}",
            ", column 1: not JSON: Expecting value in '\N{LATIN SMALL LETTER E WITH ACUTE}'",
        ),
        (json.dumps(downward(0, block=2**32)), "block: expected an integer from 0 to 4294967295, found 4294967296"),
        (json.dumps({**downward(0), "lane": ""}), "lane: expected 1 to 64 characters, found 0"),
        (json.dumps(downward(0, lane="polkadto")), "lane: no chain 'polkadto' is configured; did you mean 'polkadot'?"),
        (json.dumps(downward(0, lane="zzz")), "lane: no chain 'zzz' is configured; configured are polkadot"),
    ],
)
def test_bad_line_is_one_error_line_with_its_number(shared: Follower, tmp_path: Path, line: str, words: str) -> None:
    file = written(tmp_path / "r.jsonl", downward(0), line)
    result = invoke("submit", "downward-messages", file, shared.option())
    assert result.exit_code == 2
    assert result.stderr.startswith(f"validator: {file}, line 2{'' if words.startswith(',') else ': '}{words}")
    assert result.stderr.count("\n") == 1


def test_bytes_that_are_not_text_are_reported(shared: Follower, tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_bytes(b"\xff\xfe{}\n")
    result = invoke("submit", "candidates", str(file), shared.option())
    assert result.exit_code == 2
    assert "line 1: not UTF-8 at byte 0 in " in result.stderr
    assert result.stderr.count("\n") == 1


def test_unknown_kind_gets_a_suggestion() -> None:
    result = invoke("submit", "candidate", "-")
    assert result.exit_code == 2
    assert result.stderr == (
        "validator: KIND: expected blocks, channel-requests, downward-messages, candidates, found 'candidate'; did you mean 'candidates'?\n"
    )


def test_missing_file_is_reported(shared: Follower, tmp_path: Path) -> None:
    result = invoke("submit", "blocks", str(tmp_path / "none.jsonl"), shared.option())
    assert result.exit_code == 2
    assert result.stderr == f"validator: {tmp_path / 'none.jsonl'}: cannot be read: No such file or directory\n"


def test_missing_topic_is_reported(shared: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VALIDATOR_TOPICS__PREFIX", "nowhere.")
    result = invoke("submit", "blocks", "-", shared.option(), stdin=b"")
    assert result.exit_code == 2
    assert result.stderr.startswith("validator: topic nowhere.blocks does not exist at 127.0.0.1:")


def test_missing_kafka_error_says_how_to_start_a_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VALIDATOR_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    result = invoke("submit", "blocks", "-", stdin=b"")
    assert result.exit_code == 2
    assert (
        result.stderr
        == f"validator: no broker runs in {tmp_path / 'broker'}: start broker and job with `validator up`, "
        "or the broker alone with `validator broker start`; a broker of another folder is found from there, or with "
        "VALIDATOR_HOME=FOLDER/.validator\n"
    )


class Slow:
    """librdkafka's producer on a Kafka that acknowledges the first record, and then a signal arrives."""

    moment = ""

    def __init__(self, config: dict[str, Any]) -> None:
        self.waiting: list[Any] = []
        self.acknowledged = 0

    def produce(self, topic: str, value: bytes, key: bytes, on_delivery: Any) -> None:
        if self.moment == "produce" and self.acknowledged:
            raise KeyboardInterrupt
        self.waiting.append(on_delivery)

    def poll(self, timeout_s: float) -> int:
        if not self.acknowledged:
            self.acknowledged += 1
            self.waiting.pop(0)(None, None)
        elif self.moment == "poll":
            raise KeyboardInterrupt
        return len(self.waiting)

    def flush(self, timeout_s: float) -> int:
        if self.moment == "flush":
            Slow.moment = ""
            raise KeyboardInterrupt
        return len(self.waiting)

    def purge(self) -> None:
        self.waiting.clear()

    def __len__(self) -> int:
        return len(self.waiting)


@pytest.mark.parametrize(
    ("moment", "left"),
    [
        ("produce", "not acknowledged: line 2; nothing after line 2 was sent"),
        ("poll", "not acknowledged: line 2; nothing after line 2 was sent"),
        ("flush", "not acknowledged: lines 2 to 3"),
    ],
)
@pytest.mark.parametrize("source", ["file", "standard input"])
def test_interrupted_submit_says_what_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, left: str, source: str
) -> None:
    monkeypatch.setattr(sender, "Producer", Slow)
    monkeypatch.setattr(sender.RecordSender, "check", lambda *_: None)
    monkeypatch.setattr(command, "_heights", lambda _: {})
    monkeypatch.setattr(Slow, "moment", moment)
    monkeypatch.setenv("VALIDATOR_KAFKA__BOOTSTRAP__SERVERS", "127.0.0.1:1")
    monkeypatch.chdir(tmp_path)
    file = written(tmp_path / "r.jsonl", *(downward(index) for index in range(3)))
    stdin = Path(file).read_bytes() if source != "file" else None
    result = invoke("submit", "downward-messages", "-" if stdin else file, stdin=stdin)
    assert result.stderr == f"validator: interrupted: 1 record was sent; {left}\n"
    assert result.exit_code == exit_codes.INTERRUPTED
    assert result.stdout == ""


@pytest.mark.broker
def test_submit_that_waits_for_kafka_ends_at_a_signal(tmp_path: Path) -> None:
    """While a broker does not answer, librdkafka may not return for a minute."""
    with EmbeddedBroker(tmp_path / "broker") as broker:
        chain = follower(tmp_path, broker.kafka, "submit-signal.", blocks=2)
        command = [sys.executable, "-m", "validator", "submit", "downward-messages", "-", chain.option()]
        pid = broker.status().pid
        assert pid is not None
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdin is not None
            assert process.stderr is not None
            process.stdin.write((json.dumps(downward(0)) + "\n").encode())
            process.stdin.flush()
            while not on_topic(chain, "downward-messages"):
                assert process.poll() is None
            os.kill(pid, signal.SIGSTOP)
            try:
                process.stdin.write((json.dumps(downward(1)) + "\n").encode())
                process.stdin.close()
                time.sleep(1.0)  # it sends and waits; at any other moment the signal has the same effect
                process.send_signal(signal.SIGTERM)
                code = process.wait()
            finally:
                os.kill(pid, signal.SIGCONT)
            text = process.stderr.read().decode()
    assert code == exit_codes.INTERRUPTED, text
    # the first record is on its topic, but its acknowledgement may not have arrived
    assert re.match("validator: interrupted: (1 record was|0 records were) sent; not acknowledged: lines? ", text), text
    assert text.count("\n") == 1
