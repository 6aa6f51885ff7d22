# SPDX-License-Identifier: Apache-2.0
"""The job as a separate process: what it logs, how it ends, and that nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from streaming.__main__ import main
from tests.listening import LOOPBACK, listeners, shared
from tests.streaming.harness import (
    SAME_WHATEVER_ARRIVES,
    consume,
    decoded,
    first_difference,
    last_status,
    of_lane,
    produce,
)
from tests.streaming.processes import job, write_configuration
from tests.streaming.reference import IMMEDIATE, ON_INCLUSION, chains, reference
from validator import exit_codes
from validator.codec.json_form import to_json
from validator.codec.orders import encode_order
from validator.kafka.broker import EmbeddedBroker
from validator.kafka.topics import create_topics

EVERY = (*SAME_WHATEVER_ARRIVES, "dead-letters", "lanes")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected JSON"),
        ("{", "expected JSON"),
        ("[]", "valid dictionary"),
        ('{"jobb": {}}', "jobb: Extra inputs are not permitted"),
        ('{"job": {"state_partitions": "two"}}', "job.state_partitions: Input should be a valid integer"),
        ('{"chains": {"a": {"state": "nowhere.json"}}, "job": {"directory": "x"}}', "nowhere.json"),
    ],
)
def test_bad_configuration_is_one_error_line(
    text: str, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(text.encode())))
    assert main([]) == exit_codes.USER_ERROR
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("validator: ")
    assert expected in line


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        # whoever started it was killed before the configuration was written
        ("", "validator: the job's configuration: expected JSON on standard input\n"),
        (
            '{"schema_registry": {"password": "hidden"}}',
            "validator: the job's configuration: schema_registry: Value error, password needs url\n",
        ),
    ],
)
def test_process_exits_with_code_of_user_error(configuration: str, expected: str) -> None:
    command = [sys.executable, "-m", "streaming"]
    ended = subprocess.run(command, input=configuration, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (exit_codes.USER_ERROR, "", expected)


@pytest.mark.long
@pytest.mark.spark
def test_overflow_parks_lanes_and_cluster_with_wider_limit_continues(
    kafka: dict[str, Any], broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """A cluster continues from the checkpoint of a local job whose lane overflowed: two executors, each with one core and one worker."""
    prefix = "process."
    create_topics(kafka, prefix=prefix)
    records = [record for chain in chains() for record in chain.records]
    produce(kafka, prefix, [record for record in records if record.topic != "blocks"])
    configured = partial(write_configuration, tmp_path, chains(), kafka, prefix, state_partitions=2)
    local = job(configured(master="local[2]", waiting_bytes_max=1))
    with local as running, listeners(running.process.pid) as heard:
        running.wait_for_records(kafka, prefix, "lanes", len(chains()))
        lanes = {chain.lane for chain in chains()}
        running.wait_for(lambda: {each["lane"] for each in running.named("parked")} == lanes, "the log names the lanes")
        assert running.terminate() == exit_codes.OK
    assert {address for _, address in heard} == LOOPBACK
    outputs = consume(kafka, prefix, EVERY)
    assert all(outputs[topic] == [] for topic in SAME_WHATEVER_ARRIVES)
    parked = {each["lane"]: each for each in (to_json("lanes", value) for _, value in outputs["lanes"])}
    assert {(each["state"], each["fault"]) for each in parked.values()} == {("parked", "waiting")}
    produce(kafka, prefix, [("blocks", lane.encode(), encode_order(lane, frozenset())) for lane in parked])

    blocks = [record for record in records if record.topic == "blocks"]
    early = [record for record in blocks if record.block <= 20]
    produce(kafka, prefix, early)
    assert shared(tmp_path / "job") == []
    cluster = job(configured(master="local-cluster[2,1,1024]"))
    with cluster as running, listeners(running.process.pid, broker.status().pid) as heard:
        running.wait_for_records(kafka, prefix, "receipts", len(early))
        produce(kafka, prefix, [record for record in blocks if record.block > 20])
        running.wait_for_records(kafka, prefix, "receipts", len(blocks))
        assert running.terminate() == exit_codes.OK
    assert {address for _, address in heard} == LOOPBACK
    # workers listen on sockets in the file system; what a JVM is just starting has the name of one of its threads
    names = {name for name, _ in heard}
    assert "java" in names
    assert not [name for name in names if "python" in name]
    assert shared(tmp_path / "job") == []
    # a worker may be too late for Spark on a busy machine: then the query begins again
    events = [event for event in running.events() if event["event"] not in ("parked", "resuming", "resumed")]
    restarts = [at for at, event in enumerate(events) if event["event"] == "restarting"]
    assert {events[at + 1]["event"] for at in restarts} <= {"ready"}
    passed = [event for at, event in enumerate(events) if at not in restarts and at - 1 not in restarts]
    said = [event["event"] for event in passed]
    assert said == ["started", "ready", *["batch"] * (len(said) - 3), "stopped"]
    assert len(said) > 3
    assert {event["level"] for event in passed} == {"info"}

    outputs = consume(kafka, prefix, EVERY)
    assert decoded(outputs, "dead-letters") == []
    for settings, chain in zip((IMMEDIATE, ON_INCLUSION), chains(), strict=True):
        assert first_difference(of_lane(outputs, chain.lane), reference(settings)) is None
        status = last_status(outputs, chain.lane)
        assert (status["consumed"], status["waiting"]) == (len(chain.records), 0)
