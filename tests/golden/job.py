# SPDX-License-Identifier: Apache-2.0
"""The layer through the real job: `validator run` on a broker, and the committed records that readers see.

The recording has only what does not depend on Spark's batch boundaries: sequences of each lane, dead letters by their source, and the
last value of each key of the compacted topics. Runtime digests are removed from the values: they name versions of Python and of libraries.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from tests.golden.comparison import differences, summary
from tests.golden.inputs import HANDLED, NOISY, REFUSED_ROWS, Inputs
from tests.golden.play import definitions
from tests.golden.product import decode_bytes, to_json, to_toml
from tests.golden.recording_file import FOLDER, INPUTS, JOB, Line, path_of, read_lines, write_lines
from validator.kafka.broker import EmbeddedBroker

Message: TypeAlias = tuple[str, bytes, bytes, list[tuple[str, bytes]]]
"""Topic without the prefix, key, value, headers."""

PREFIX = "golden-job."
LANES = (NOISY, HANDLED, "on-inclusion", "early", "xcmp")
SETTINGS = {"headroom_interval_blocks": 3, "root_interval_blocks": 5}
"""Unlike in the in-process layer, the job knows every duplicate: whether one is too late would depend on batch boundaries."""

SEQUENCES = ("verdicts", "dispatches", "channel-events", "ingress-events", "receipts")
COMPACTED = ("headroom", "lanes", "markers")
TOPICS = (*SEQUENCES, *COMPACTED, "dead-letters")

PATIENCE_S = 300.0
"""A job that takes longer for its inputs counts as stuck; this is many times what a busy machine needs."""
INTERVAL_S = 1.0


def record_job(kafka: dict[str, Any] | None, folder: Path = FOLDER) -> str:
    """Run the job, write the recording and return its summary."""
    lines = run_job(kafka, folder)
    path = path_of(JOB, folder)
    write_lines(path, lines)
    return f"{path.name}: {summary(lines)}; {path.stat().st_size:,} bytes"


def check_job(kafka: dict[str, Any] | None, folder: Path = FOLDER) -> list[str]:
    """Return the differences between the job's output and the recording, one line for each group that differs."""
    return [
        f"job: {each}" for each in differences(read_lines(path_of(JOB, folder)), run_job(kafka, folder), decode_bytes)
    ]


def run_job(kafka: dict[str, Any] | None, folder: Path = FOLDER) -> list[Line]:
    """Run the job on the recorded inputs and return its output. Raises ``AssertionError`` if it ends or gets stuck."""
    recorded = Inputs.of_lines(read_lines(path_of(INPUTS, folder)))
    inputs = Inputs({lane: recorded.tables[lane] for lane in LANES}, {}, recorded.rows)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="golden-")))
        if kafka is None:
            kafka = stack.enter_context(EmbeddedBroker(directory / "broker")).kafka
        config = directory / "validator.toml"
        tables = {
            "kafka": kafka,
            "topics": {"prefix": PREFIX},
            "job": {"directory": str(directory / "job"), "driver_memory": "1g", "master": "local[2]", **SETTINGS},
            "chains": inputs.tables,
        }
        config.write_text(to_toml(tables), encoding="utf-8")
        subprocess.run([*_VALIDATOR, "topics", "create", f"--config={config}"], check=True, capture_output=True)
        stack.enter_context(_running(config, directory / "job.log"))
        produced = 0
        for phase in _phases(inputs):
            produced += _produce(kafka, phase)
            messages = _settled(kafka, produced, directory / "job.log")
    return list(_lines(messages, inputs))


_VALIDATOR = (sys.executable, "-m", "validator")


@contextmanager
def _running(config: Path, log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        job = subprocess.Popen(
            [*_VALIDATOR, "run", f"--config={config}"], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            yield
            assert job.poll() is None, f"the job has ended with {job.returncode}: {_tail(log)}"
        finally:
            job.send_signal(signal.SIGTERM)
            try:
                job.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                job.kill()


def _phases(inputs: Inputs) -> Iterator[list[dict[str, Any]]]:
    """Yield rows in phases: a record that is dead only because of earlier ones waits until those have been executed."""
    others = {lane.encode() for lane in _all_lanes()} - {lane.encode() for lane in LANES}
    rows = [row for row in inputs.rows if row["key"] not in others]
    last = rows[-1]["batch"]
    again = [row for row in rows if row["batch"] == last]
    yield [row for row in rows if row["batch"] < last]
    yield again[:-REFUSED_ROWS]
    yield again[-REFUSED_ROWS:]


def _all_lanes() -> Iterable[str]:
    return (line["at"] for line in read_lines(path_of(INPUTS)) if line["group"].startswith("table/"))


def _produce(kafka: dict[str, Any], rows: list[dict[str, Any]]) -> int:
    producer = Producer(kafka)
    for row in rows:
        producer.produce(PREFIX + row["topic"], row["value"], row["key"], partition=0)
    assert producer.flush(PATIENCE_S) == 0
    return len(rows)


def _settled(kafka: dict[str, Any], produced: int, log: Path) -> list[Message]:
    """Return everything committed, once every record produced has an outcome or waits."""
    deadline = time.monotonic() + PATIENCE_S
    taken = 0
    while time.monotonic() < deadline:
        messages = list(_committed(kafka, ("lanes", "dead-letters")))
        statuses = {key: to_json("lanes", value) for topic, key, value, _ in messages if topic == "lanes"}
        of_no_lane = sum(topic == "dead-letters" and key.decode() not in LANES for topic, key, *_ in messages)
        taken = sum(status["consumed"] for status in statuses.values()) + of_no_lane
        if taken == produced:
            return list(_committed(kafka, TOPICS))
        time.sleep(INTERVAL_S)
    raise AssertionError(f"the job has taken {taken} of {produced} records in {PATIENCE_S:.0f} s: {_tail(log)}")


def _tail(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-3000:]


def _committed(kafka: dict[str, Any], topics: Sequence[str]) -> Iterator[Message]:
    consumer = Consumer(
        {
            **kafka,
            "group.id": "golden",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(PREFIX + topic, 0, OFFSET_BEGINNING) for topic in topics])
        open_topics = {PREFIX + topic for topic in topics}
        while open_topics:
            for message in consumer.consume(500, timeout=1.0):
                if (error := message.error()) is None:
                    topic = message.topic().removeprefix(PREFIX)
                    yield topic, message.key() or b"", message.value() or b"", message.headers() or []
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    open_topics.discard(message.topic())
    finally:
        consumer.close()


# --- what is recorded ---------------------------------------------------------------------------------------------------------------------


def _lines(messages: list[Message], inputs: Inputs) -> Iterator[Line]:
    digests = [epoch.digest for definition in definitions(inputs, SETTINGS).values() for epoch in definition.epochs]
    groups: dict[str, list[Message]] = {}
    for message in messages:
        topic, key, *_ = message
        lane = key.split(b"/")[0].decode(errors="backslashreplace")
        groups.setdefault(f"job/{lane}/{topic}", []).append(message)
    for group, found in sorted(groups.items()):
        for at, (_, key, value, headers) in enumerate(_in_order(group.split("/")[-1], found)):
            line: Line = {"group": group, "at": at, "key": key.hex(), "value": _without(digests, value).hex()}
            if headers and not group.endswith("/markers"):  # those name the job and the writer
                line["headers"] = [[name, content.hex()] for name, content in headers]
            yield line


def _in_order(topic: str, messages: list[Message]) -> list[Message]:
    """Return the part of a lane's records of a topic that does not depend on batch boundaries."""
    if topic in COMPACTED:
        return sorted({message[1]: message for message in messages}.values())
    return sorted(messages, key=_source) if topic == "dead-letters" else messages


def _without(digests: list[bytes], value: bytes) -> bytes:
    for number, digest in enumerate(digests):
        value = value.replace(digest, number.to_bytes(len(digest)))
    return value


def _source(dead_letter: Message) -> tuple[str, int]:
    letter = to_json("dead-letters", dead_letter[2])
    return letter["topic"], letter["offset"]
