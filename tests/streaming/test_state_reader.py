# SPDX-License-Identifier: Apache-2.0
"""`validator state` during a running query reads one consistent moment of a lane, and does not disturb the query."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from hashlib import blake2b
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from streaming import state_reader
from streaming.state_reader import TABLES, Store, main, read_lanes
from tests.streaming.harness import Stream, first_difference, of_lane, wait_until
from tests.streaming.reference import IMMEDIATE, ON_INCLUSION, chains, definition, reference
from tests.streaming.spark_reader import lanes_by_spark
from tests.unit.lanes.chains import Chain, Record, inputs_of
from validator import exit_codes
from validator.ask.state import restore
from validator.checkpoint.files import SNAPSHOT, last_committed_batch
from validator.cli.main import app
from validator.config.toml import to_toml
from validator.errors import UserError
from validator.lanes.processor import LaneProcessor
from validator.lanes.stored import StateExport


def definitions() -> dict[str, object]:
    return {settings.lane: definition(settings) for settings in (IMMEDIATE, ON_INCLUSION)}


def interleaved() -> list[Record]:
    """Return the records of both chains, by block."""
    return sorted((record for chain in chains() for record in chain.records), key=lambda record: record.block)


def configured(running: Stream, directory: Path, *of: Chain) -> str:
    """Write the configuration of the query, and return the option that names the file."""
    path = directory / "validator.toml"
    tables = {
        "kafka": dict(running.kafka),
        "topics": {"prefix": running.prefix},
        "job": {"directory": str(running.checkpoint.parent)},
        "chains": {chain.lane: chain.table for chain in of},
    }
    path.write_text(to_toml(tables), encoding="utf-8")
    return f"--config={path}"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["state", *arguments])


def fingerprints(checkpoint: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(checkpoint)): blake2b(path.read_bytes()).digest()
        for path in checkpoint.rglob("*")
        if path.is_file()
    }


def test_read_during_query_returns_one_moment_of_a_lane(stream: Callable[..., Stream], tmp_path: Path) -> None:
    """Every read returns the lane after some prefix of its inputs, and the query's output is undisturbed."""
    running = stream(definitions(), records_per_trigger=250)
    records = interleaved()
    moments: list[tuple[int, int]] = []

    def read() -> None:
        assert running.query is not None
        assert running.query.exception() is None
        output = tmp_path / f"lanes-{len(moments)}"
        batch = read_lanes(running.checkpoint, output, [IMMEDIATE.lane])
        stored = StateExport(output)
        assert stored.batch == batch
        assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [], "the links are removed"
        lane = restore(stored, IMMEDIATE.lane)  # checks token, slots and summary
        moments.append((sum(stored.consumed.values()), lane.processor.lane.counters.consumed))
        assert stored.load(ON_INCLUSION.lane).slots == {}, "this lane was not requested"

    thirds = [records[len(records) * at // 3 : len(records) * (at + 1) // 3] for at in range(3)]
    running.produce(thirds[0])
    running.start()
    running.wait_for(lambda: running.batches() >= 1, "a batch is done")
    read()
    for third in thirds[1:]:
        running.produce(third)
        read()
    running.settle()
    read()
    running.stop()
    assert moments[0][0] <= len(thirds[0]) < moments[-1][0] == len(records)
    for consumed, of_lane_alone in moments:
        assert of_lane_alone < consumed <= len(records)
    for settings in (IMMEDIATE, ON_INCLUSION):
        assert first_difference(of_lane(running.outputs(), settings.lane), reference(settings)) is None


def test_show_and_verify_during_query_and_on_damaged_store(stream: Callable[..., Stream], tmp_path: Path) -> None:
    running = stream(definitions(), records_per_trigger=500)
    records = interleaved()
    running.produce(records[:-50])
    running.start()
    running.settle()
    option = configured(running, tmp_path, *chains())
    shown = invoke("show", f"--lane={IMMEDIATE.lane}", "--json", option)
    assert shown.exit_code == 0, shown.output
    document = json.loads(shown.stdout)
    assert sorted(path.name for path in running.checkpoint.parent.iterdir()) == [
        "checkpoint",
        "lanes",
        "progress",
        "tmp",
    ]

    verified = invoke("verify", "--json", option)
    assert verified.exit_code == 0, verified.output
    verdicts_of = {each["lane"]: each for each in map(json.loads, verified.stdout.splitlines())}
    assert sorted(verdicts_of) == sorted(definitions())
    assert all(each["ok"] and not each["reconfigured"] for each in verdicts_of.values())
    assert sum(each["records"] for each in verdicts_of.values()) == len(records) - 50

    running.produce(records[-50:])
    running.settle()
    running.stop()
    for settings in (IMMEDIATE, ON_INCLUSION):
        assert first_difference(of_lane(running.outputs(), settings.lane), reference(settings)) is None

    lane = alone(chains()[0], document["counters"]["consumed"])
    assert document["state_root"] == lane.lane.rules.state_root().hex()
    assert document["executed_block"] == lane.lane.executed_block

    for path in (running.checkpoint / "state").rglob("*.changelog"):
        path.write_bytes(path.read_bytes()[:20])
    for path in (running.checkpoint / "state").rglob("*.zip"):
        path.unlink()
    with pytest.raises(UserError, match=r"the state after batch \d+ cannot be read: ") as refused:
        read_lanes(running.checkpoint, tmp_path / "damaged", [])
    assert "\n" not in str(refused.value)


def alone(chain: Chain, records: int) -> LaneProcessor:
    """Return the lane after this many records of a chain, executed in this process."""
    worker = LaneProcessor.create(definition(IMMEDIATE))
    list(worker.catch_up(inputs_of(chain.records[:records]), 0))  # type: ignore[arg-type]
    return worker


@pytest.mark.long
def test_reader_moves_to_a_later_batch_if_its_batch_is_removed(
    stream: Callable[..., Stream], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = stream({IMMEDIATE.lane: definition(IMMEDIATE)}, records_per_trigger=200)
    running.produce(list(chains()[0].records))
    running.start()
    running.settle()
    running.stop()
    last = last_committed_batch(running.checkpoint)
    assert last > 1
    older = tmp_path / "older"
    shutil.copytree(running.checkpoint, older)
    (older / "commits" / str(last)).unlink()
    open_store = state_reader.open_store

    def removed_and_committed(partition: Path, version: int, folder: Path) -> AbstractContextManager[Store]:
        """Commit a batch and remove the previous one just after a reader has chosen that."""
        if version == last:
            (older / "commits" / str(last)).write_text((running.checkpoint / "commits" / str(last)).read_text())
            raise FileNotFoundError
        return open_store(partition, version, folder)

    before = fingerprints(running.checkpoint)  # a running query would add files
    assert read_lanes(running.checkpoint, tmp_path / "lanes", []) == last
    assert fingerprints(running.checkpoint) == before, "reading changes no file, adds none and removes none"

    monkeypatch.setattr(state_reader, "open_store", removed_and_committed)
    assert read_lanes(older, tmp_path / "lanes", []) == last
    assert restore(StateExport(tmp_path / "lanes"), IMMEDIATE.lane).processor.lane.executed_block == 60


@pytest.mark.long
def test_every_lane_is_read_as_by_spark(stream: Callable[..., Stream], tmp_path: Path) -> None:
    """With changelogs alone, with a snapshot and changelogs after it, and as a kill between state and commit leaves the files."""
    running = stream(definitions(), records_per_trigger=150)
    running.spark.conf.set("spark.sql.streaming.stateStore.minDeltasForSnapshot", "3")
    records = interleaved()
    running.produce(records[:600])
    running.start()
    running.settle()
    compare_with_spark(running, running.checkpoint, tmp_path / "changelogs")
    running.produce(records[600:])
    running.settle()
    partition = running.checkpoint / "state" / "0" / "0"
    wait_until(lambda: any((partition / TABLES).glob("*.sst")), "a snapshot with tables is uploaded", running.log)
    running.stop()
    last = compare_with_spark(running, running.checkpoint, tmp_path / "tables")

    killed = tmp_path / "killed"
    shutil.copytree(running.checkpoint, killed)
    (killed / "commits" / str(last)).unlink()
    (killed / "state" / "0" / "0" / f".{last + 2}.changelog.1f2e.tmp").write_bytes(b"half of th")
    (killed / "state" / "0" / "0" / f".{last + 2}{SNAPSHOT}.1f2e.tmp").write_bytes(b"half of th")
    assert compare_with_spark(running, killed, tmp_path / "before") == last - 1


def compare_with_spark(running: Stream, checkpoint: Path, output: Path) -> int:
    batch = read_lanes(checkpoint, output, [])
    stored = StateExport(output)
    # Spark's executors would take the stores that it reads for those of the running query
    copied = output.with_name(f"{output.name}.copied")
    shutil.copytree(checkpoint, copied)
    expected = lanes_by_spark(running.spark, copied, batch)
    assert stored.lanes == sorted(expected)
    for lane, state in expected.items():
        assert stored.load(lane) == state, lane
        assert state.slots
        assert state.journal
    return batch


def test_checkpoint_without_a_batch_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "checkpoint"), str(tmp_path / "output")]) == exit_codes.USER_ERROR
    assert "validator: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert main(["checkpoint"]) == exit_codes.USER_ERROR
