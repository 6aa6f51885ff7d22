# SPDX-License-Identifier: Apache-2.0
"""The product as the golden recording uses it: every import of a module that may move is here, or in `job.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, is_dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any
from unittest.mock import patch

from typer.testing import CliRunner
from validator_simulators import SimulationSettings
from validator_simulators.installed import chain_table, simulation_of

from streaming import workers
from streaming.decode_stage import DecodeSettings
from tests.unit.lanes.backend import rows_of
from validator.ask import state as state_service
from validator.cli.main import app
from validator.codec import encode, json_form
from validator.codec.encode import BlockOutput, OutputRecord, encode_dead_letter
from validator.codec.inflight import unpack
from validator.codec.schemas import schemas
from validator.config import Config
from validator.config.toml import to_toml
from validator.core.inputs import DeadLetter, DeadReason, Input, RecordKind
from validator.errors import UserError
from validator.lanes import sink as sink_module
from validator.lanes import store as store_module
from validator.lanes.configured import lane_definition
from validator.lanes.definition import LaneDefinition, keep_genesis
from validator.lanes.marker import Marker, consumed_by
from validator.lanes.processor import LaneProcessor
from validator.lanes.sink import TransactionalSink
from validator.lanes.store import Head, LaneCache, decode_entry, process_batch, restore_lane
from validator.lanes.stored import MemoryState, write_export
from validator.plugin.runtime import RuntimePlan, codec_of, installed_protocol
from validator.replay.scenario import suite_files, suite_names
from validator.topics import INPUT_TOPICS

__all__ = [
    "INPUT_TOPICS",
    "BlockOutput",
    "DeadLetter",
    "DeadReason",
    "Input",
    "LaneCache",
    "LaneDefinition",
    "LaneProcessor",
    "Marker",
    "MemoryState",
    "OutputRecord",
    "SimulationSettings",
    "TransactionalSink",
    "UserError",
    "chain_table",
    "consumed_by",
    "encode_dead_letter",
    "encode_input",
    "installed_protocol",
    "lane_definition",
    "process_batch",
    "restore_lane",
    "simulation_of",
    "suite_files",
    "suite_names",
    "to_json",
    "to_toml",
    "write",
]

CODEC = codec_of(RuntimePlan(name) for name in ("router", "early-hrmp", "xcmp"))

COLUMNS = ("topic", "partition", "offset", "key", "value")


def encode_input(kind: RecordKind, record: Any, protocol: str = "router") -> bytes:
    """Return the Kafka value of an input."""
    return json_form.encode_input(CODEC, kind, record, protocol)


def to_json(topic: str, value: bytes) -> dict[str, Any]:
    """Return the record of a Kafka value."""
    return json_form.to_json(topic, value, CODEC)


def write(name: str, datum: dict[str, Any]) -> bytes:
    """Return the Kafka value of a record that every protocol has."""
    return encode.write(schemas()[name], datum)


def definitions_of(tables: dict[str, dict[str, Any]], job: dict[str, Any]) -> dict[str, LaneDefinition]:
    """Return the lanes of a configuration, as the job makes them."""
    config = Config.model_validate({"chains": tables, "job": {"directory": "nowhere", **job}})
    return {lane: lane_definition(config, lane) for lane in sorted(tables)}


def with_fixed_digests(definition: LaneDefinition) -> LaneDefinition:
    """Return a definition whose runtime digests do not depend on versions of Python, libraries and plugins.

    They are in every verdict, and in the token of every stored head; the true ones are recorded separately.
    """
    epochs = tuple(
        epoch._replace(digest=_fixed(f"{definition.name}/{number}")) for number, epoch in enumerate(definition.epochs)
    )
    return replace(definition, runtime_digest=_fixed(definition.name), epochs=epochs)


def _fixed(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=32).digest()


def decoded(
    rows: Sequence[dict[str, Any]], definitions: dict[str, LaneDefinition], prefix: str
) -> dict[str, list[Input | DeadLetter]]:
    """Return the decoded rows, by lane, in the order in which the lane stage takes them."""
    kinds = {prefix + topic: kind for topic, kind in INPUT_TOPICS.items()}
    decoder = DecodeSettings(kinds, definitions).opened()()
    found = [
        decoder.add(*(row[name] for name in COLUMNS), None if row["value"] is None else len(row["value"]))
        for row in rows
    ]
    chunks = [each for chunk in (*found, decoder.take()) if chunk is not None for each in chunk.to_pylist()]
    by_lane: dict[str, list[Input | DeadLetter]] = {}
    for chunk in sorted(chunks, key=lambda chunk: (chunk["topic"], chunk["partition"], chunk["first_offset"])):
        by_lane.setdefault(chunk["lane"], []).extend(unpack(chunk["chunk"]))
    return by_lane


@contextmanager
def small_bounds(journal_bytes: int, transaction_bytes: int) -> Iterator[None]:
    """Make journals and transactions as short as only a large chain would otherwise have them; restore this process afterwards."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(store_module, "JOURNAL_BYTES_MAX", journal_bytes))
        stack.enter_context(patch.object(sink_module, "TRANSACTION_BYTES_MAX", transaction_bytes))
        stack.enter_context(patch.object(workers, "_tuned", new=True))
        yield


def view(worker: LaneProcessor, protocol: str) -> dict[str, Any]:
    """Return a lane's state in the state keys of the conformance format."""
    definition = installed_protocol(protocol)
    assert definition is not None
    return definition.traces.view(worker.lane.rules.state)


def state_file(
    lane: str, table: dict[str, Any], rows: Sequence[tuple[str, bytes | None, bytes | None]], folder: Path
) -> dict[str, Any]:
    """Return the STATE.json of a router chain after some records, as `validator state show --json` exports it."""
    definitions = definitions_of({lane: table}, {})
    taken = [
        {"topic": topic, "partition": 0, "offset": offset, "key": key, "value": value}
        for offset, (topic, key, value) in enumerate(rows)
    ]
    stored = MemoryState()
    for _ in process_batch(definitions[lane], stored, LaneCache(), [decoded(taken, definitions, "")[lane]]):
        pass
    exported = Checkpoint(folder, {lane: stored}, {}).show(lane)
    return {"first_block": exported["first_block"], "state": exported["state"]}


def command(*arguments: str) -> tuple[int, str, str]:
    """Run a command of `validator`; return its exit code, standard output and standard error."""
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stdout, result.stderr


class Checkpoint:
    """A job's folder with stored lanes, for `validator state show`; this process plays Spark's part."""

    BATCH = 17

    def __init__(self, folder: Path, lanes: dict[str, MemoryState], consumed: dict[tuple[str, int], int]) -> None:
        self._lanes, self._consumed = lanes, consumed
        self.config = folder / "validator.toml"
        commits = folder / "job" / "checkpoint" / "commits"
        commits.mkdir(parents=True)
        (commits / str(self.BATCH)).write_text("v1\n{}")
        self.config.write_text(to_toml({"job": {"directory": str(folder / "job")}}), encoding="utf-8")

    def show(self, lane: str, *arguments: str) -> Any:
        """Return the output of `validator state show --json`, or the exit code with which it refuses."""
        with (
            patch.object(state_service, "read_checkpoint", self._read),
        ):
            code, out, _ = command("state", "show", f"--lane={lane}", *arguments, "--json", f"--config={self.config}")
        return json.loads(out) if code == 0 else {"exit_code": code}

    def _read(self, _: Path, output: Path, lanes: Sequence[str]) -> None:
        wanted = {lane: stored for lane, stored in self._lanes.items() if not lanes or lane in lanes}
        rows = [row for lane, stored in wanted.items() for row in rows_of(lane, stored)]
        write_export(output, self.BATCH, self._consumed, rows)


def genesis_file(definition: LaneDefinition, folder: Path) -> bytes:
    """Return the bytes of the file in which a job keeps a lane's genesis."""
    path = folder / f"{definition.name}-{'0' * 16}.genesis"
    keep_genesis(path, (definition.first_block, tuple(definition.genesis)))
    return path.read_bytes()


def decode_bytes(group: str, data: bytes) -> Any:
    """Return the bytes of a recording's group as JSON; None for pages, which have no such form."""
    kind, *names = group.split("/")
    if kind in ("record", "row", "job"):
        return to_json(names[-1], data)
    if kind == "stored" and names[-1] == "head":
        return _plain(asdict(Head.decode(data)))
    if kind == "stored" and names[-1] == "journal":
        items, dead = decode_entry(CODEC, data)
        return {"dead": dead, "items": [_plain(item._asdict()) for item in items]}
    return None


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
