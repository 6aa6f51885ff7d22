# SPDX-License-Identifier: Apache-2.0
"""A process without memory says nothing of the records that it reads: they are read again."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import cloudpickle

from streaming import range_reader, workers
from streaming.range_reader import RangeReader
from streaming.range_source import SourceSettings, TaskRanges
from tests.unit.streaming.played_kafka import CHAIN, DECODE, KINDS, A, PlayedKafka, decoded, finish, items_of, span
from validator.codec import inflight
from validator.core.inputs import DeadLetter, RecordKind, Source, Unreadable
from validator.lanes.definition import job_codec


@pytest.fixture(autouse=True)
def _without_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_tuned", True)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> PlayedKafka:
    made = PlayedKafka()
    made.write(A, 10)
    monkeypatch.setattr(range_reader, "Consumer", made.consumer)
    monkeypatch.setattr(range_reader, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


@pytest.fixture
def reader() -> RangeReader:
    given = {"bootstrap.servers": "nowhere:1"}
    packed = cloudpickle.dumps(DECODE)  # type: ignore[no-untyped-call]
    return RangeReader(SourceSettings(given, tuple(KINDS), 10**6, 2, packed, "1"), DECODE.opened())


def raising(error: BaseException) -> Any:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize("key", [b"polkadot", b"another"])
def test_record_that_memory_does_not_suffice_for_is_no_arrival(monkeypatch: pytest.MonkeyPatch, key: bytes) -> None:
    codec, lanes = job_codec(DECODE.definitions.values()), {"polkadot": DECODE.definitions[CHAIN.lane].records}
    arguments = codec, RecordKind.CANDIDATE, b"value", Source("candidates", 0, 0), key, lanes
    monkeypatch.setattr(inflight, "decode_record", raising(ValueError("a bug")))
    lane, found = inflight.arrival(*arguments)
    assert isinstance(found, Unreadable if lane else DeadLetter)
    monkeypatch.setattr(inflight, "decode_record", raising(MemoryError()))
    with pytest.raises(MemoryError):
        inflight.arrival(*arguments)


@pytest.mark.parametrize("part", ["decode_record", "ChunkFile", "Consumer"])
def test_task_fails_so_that_it_is_read_sparingly(
    monkeypatch: pytest.MonkeyPatch, kafka: PlayedKafka, reader: RangeReader, part: str
) -> None:
    task = TaskRanges((span(A, 0, 10),))
    with monkeypatch.context() as patch:
        module, name = (inflight, "decode_record") if part == "decode_record" else (range_reader, part)
        patch.setattr(module, name, raising(MemoryError()))
        with pytest.raises(MemoryError):
            list(reader.read(task))
        assert kafka.open == []
    assert items_of(reader.read(task)) == decoded(kafka.of(task.ranges))
    reader.close()


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("streaming.range_reader.ChunkFile", MemoryError()),
        ("streaming.range_reader.Ahead", MemoryError()),
        ("threading.Thread.start", RuntimeError("can't start new thread")),
    ],
)
def test_task_does_not_fail_for_what_is_read_ahead(
    monkeypatch: pytest.MonkeyPatch, kafka: PlayedKafka, reader: RangeReader, target: str, error: Exception
) -> None:
    first, second = (span(A, 0, 4),), (span(A, 4, 10),)
    reading = reader.read(TaskRanges(first, second))
    found = [next(reading)]
    with monkeypatch.context() as patch:
        patch.setattr(target, raising(error))
        found += reading
    assert items_of(found) == decoded(kafka.of(first))
    assert reader._ahead is None
    assert items_of(reader.read(TaskRanges(second))) == decoded(kafka.of(second))
    finish(reader)
    reader.close()
    assert kafka.open == []
    assert not [thread for thread in threading.enumerate() if thread.name == "reads ahead"]
