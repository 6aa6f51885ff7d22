# SPDX-License-Identifier: Apache-2.0
"""A plugin's job: its batches are bounded in bytes by the largest record that its topics allow, and it says when Kafka is away."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streaming import batch_watch, keyed_job, run_keyed, stateful
from streaming.keyed_job import CondenseSettings, KeyedJobSettings, KeyedOperator
from streaming.range_source import OffsetRange
from streaming.run_keyed import EFFECTS_BYTES_MAX, EFFECTS_PER_TRIGGER_MAX, effects_per_trigger
from streaming.taking_over import Rivals
from validator.codec.framing import id_header
from validator.config import Config
from validator.errors import UserError
from validator.job.schema_ids import NO_IDS
from validator.plugin.job_api import JobContext, JobRecord, open_job

BODIES = open_job(JobContext("xcmp-bodies", chains={"a": {"protocol": "xcmp-network", "limits": {}}}))


def job(*sizes: int) -> Any:
    forms = {f"topic-{size}": SimpleNamespace(bytes_max=size) for size in sizes}
    return SimpleNamespace(effects=tuple(forms), forms=forms)


@pytest.mark.parametrize(
    ("sizes", "configured", "records"),
    [
        ((100,), 200_000, EFFECTS_PER_TRIGGER_MAX),
        ((100,), 7, 7),
        ((100, 1024**2), 200_000, 768),
        ((1024**3,), 200_000, 1),
        ((), 200_000, 96),
    ],
)
def test_batch_has_as_many_records_as_memory_allows(sizes: tuple[int, ...], configured: int, records: int) -> None:
    assert effects_per_trigger(job(*sizes), configured) == records


def test_batch_of_bodies_is_bounded_by_the_largest_part() -> None:
    (largest,) = {BODIES.forms[topic].bytes_max for topic in BODIES.effects}
    records = effects_per_trigger(BODIES, 200_000)
    assert records * largest <= EFFECTS_BYTES_MAX < (records + 1) * largest
    assert records > 3_000


def test_job_watches_kafka_while_its_query_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said: list[Any] = []

    @contextmanager
    def watch(kafka: Any, prefix: str, log: Any, patience: Any, inputs: list[str]) -> Any:
        said.append((kafka, prefix, log, patience, inputs))
        yield
        said.append("end")

    @contextmanager
    def session(_: object) -> Any:
        yield SimpleNamespace()

    monkeypatch.setattr(run_keyed, "KafkaWatch", watch)
    monkeypatch.setattr(run_keyed, "Patience", lambda seconds: f"{seconds:.0f} s")
    monkeypatch.setattr(run_keyed, "spark_session", session)
    monkeypatch.setattr(run_keyed, "recoveries", lambda *_, **__: {})
    monkeypatch.setattr(run_keyed, "checked_ids", lambda *_: {"p.xcmp.bodies": "an id"})
    monkeypatch.setattr(run_keyed, "run_queries", lambda *_, **__: said.append("runs") or 0)
    config = Config.model_validate({"chains": {"a": {}}, "job": {"directory": str(tmp_path), "give_up_after": 77}})
    settings = KeyedJobSettings(BODIES, {"bootstrap.servers": "k"}, "p.", tmp_path, 1, 1)
    outages: Any = SimpleNamespace(log="the log", wait_out=lambda attempt: attempt(), registry_ids=lambda *_: NO_IDS)
    assert run_keyed._run_in_session(config, settings, outages, Rivals()) == 0
    inputs = [f"p.{topic}" for topic in (*BODIES.causes, *BODIES.effects)]
    assert said == [({"bootstrap.servers": "k"}, "p.", "the log", "77 s", inputs), "runs", "end"]


def test_condense_gets_plain_values_of_framed_records() -> None:
    seen: list[bytes] = []

    def condense(record: JobRecord) -> list[tuple[str, bytes]]:
        seen.append(record.value)
        return [("key", record.value)]

    header = b"\xc3\x01abcdefgh"
    values = [id_header(5) + b"body", header + b"body", id_header(6) + b"body", None]
    job: Any = SimpleNamespace(condense=condense)
    condenser = CondenseSettings(job, "p.", {id_header(5): header}).opened()()
    for offset, value in enumerate(values):
        assert condenser.add("p.receipts", 0, offset, b"k", value, None if value is None else len(value)) is None
    chunk = condenser.take()
    assert chunk is not None
    assert [row["records"] for row in chunk.to_pylist()] == [4]
    assert seen == [header + b"body", header + b"body", id_header(6) + b"body", b""]


def test_value_that_is_too_large_stays_so_and_what_is_passed_over_is_an_empty_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keyed_job, "WHOLE_BYTES_MAX", 100)
    seen: list[JobRecord] = []
    job: Any = SimpleNamespace(condense=lambda record: seen.append(record) or [])
    condenser = CondenseSettings(job, "p.").opened()()
    condenser.add("p.bodies", 1, 7, b"k" * 2_000, b"ends", 1_000)
    condenser.pass_over(OffsetRange("p.bodies", 1, 8, 20))
    assert [(each.offset, len(each.key or b""), len(each.value)) for each in seen] == [(7, 1_024, 101), (8, 0, 0)]
    chunk = condenser.take()
    assert chunk is not None
    assert chunk.num_rows == 0, "nothing is kept of them"
    assert condenser.take() is None


class Store:
    """A key's stored state: none yet."""

    def load_head(self) -> None:
        return None

    def load_pages(self) -> dict[bytes, bytes]:
        return {}

    def save_head(self, head: bytes) -> None: ...

    def save_page(self, name: bytes, page: bytes) -> None: ...


class Sunk:
    """An output that keeps what it gets."""

    def __init__(self) -> None:
        self.written: list[Any] = []

    def open(self) -> Any:
        return self

    def begin(self, key: str, point: str) -> None: ...

    def leave(self, key: str, point: str) -> None: ...

    def write(self, key: str, output: list[Any]) -> None:
        self.written.append((key, output))

    def commit(self, _: str, __: object) -> dict[str, int]:
        return {}


def test_worker_of_a_job_has_a_limit_and_shows_its_progress(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bounds: list[tuple[int, int]] = []
    monkeypatch.setattr(keyed_job, "bound_worker", lambda *bound: bounds.append(bound))
    monkeypatch.setattr(stateful, "tune_garbage_collector", lambda: None)
    monkeypatch.setattr(batch_watch, "_beaten_s", -1e9)
    settings = KeyedJobSettings(BODIES, {}, "p.", tmp_path / "checkpoint", 1, worker_memory_bytes=2**30)
    settings.beat.create()
    os.utime(tmp_path / "progress", (1, 1))
    output: Any = Sunk()
    operator = KeyedOperator(settings, output)
    operator._pages = Store()  # type: ignore[assignment]
    key = BODIES.keys[0]
    assert list(operator.handleInputRows((key,), iter(()), None)) == []
    assert bounds == [(2**30, len(BODIES.keys))]
    assert (tmp_path / "progress").stat().st_mtime > 1

    def fail(*_: object, **__: object) -> Any:
        raise MemoryError

    monkeypatch.setattr(keyed_job, "process_keyed", fail)
    with pytest.raises(UserError, match=rf"^job xcmp-bodies, {key}: its worker ran out of memory: raise \[job\]"):
        operator.handleInputRows((key,), iter(()), None)
    assert key not in keyed_job.CACHE.live, "the state may be half changed"
