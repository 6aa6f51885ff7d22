# SPDX-License-Identifier: Apache-2.0
"""`validator export TOPIC --parquet FOLDER`: a topic's records as Parquet files; the next export continues where the last one ended.

A folder holds one topic in Hive's layout: ``lane=polkadot/from_block=120000/0-4711.parquet`` has records of the blocks from 120,000 on, the
first of which stands at offset 4711 of partition 0. A topic with several kinds of records has a level ``record=`` above.

`POSITIONS` says where the next export begins. It is written last, so files behind its offsets come from an export that did not end: the
next one removes them, and each record is in the folder once.
"""

from __future__ import annotations

import fcntl
import json
import re
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from validator.cli.progress import counting
from validator.cli.watch import watched
from validator.client.backend import KafkaBackend
from validator.client.streams import BEGINNING, begin_of
from validator.codec.codec import shared_codec
from validator.codec.json_form import error_fields
from validator.codec.schemas import HEADER_SIZE, short_name
from validator.codec.strict import Named
from validator.errors import UserError, not_installed
from validator.kafka.reader import TopicMissing
from validator.strict_json import JsonRefused, read_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from validator.client.backend import Reading
    from validator.client.streams import Begin
    from validator.client.topics import ReadableTopic
    from validator.codec.schemas import Json, Schema
    from validator.config import Config
    from validator.kafka.reader import TopicRecord

POSITIONS: Final = "_positions.json"
BLOCKS_PER_FOLDER: Final = 10_000
"""Blocks whose records share a folder."""
RECORDS_MAX: Final = 100_000
"""Records that are in memory before they are written; a last poll may exceed it."""
RECORD_BYTES: Final = 64 * 1024 * 1024
"""The same for bytes of their values."""
POLL_S: Final = 1.0
"""Seconds that one poll of the topic waits for records."""

_NO_LANE: Final = "__HIVE_DEFAULT_PARTITION__"
"""Hive's name of a folder whose records lack the value."""
LOCK: Final = ".lock"
_SUFFIX: Final = ".parquet"
_FILE: Final = re.compile(r"(\d+)-(\d+)\.parquet")
_UNFINISHED: Final = ".partial"


def export_parquet(topic: str, folder: Path, config: Config) -> dict[str, Any]:
    """Write the records that have come since the last export; ``config`` has the address of its Kafka.

    Returns how many ``records`` were written to how many ``files``, and the content of `POSITIONS`. Raises `UserError`: pyarrow is not
    installed; there is no such topic; the folder holds something else; another export writes to it; Kafka does not have what comes next; a
    record cannot be read; a file cannot be written.
    """
    try:
        import pyarrow  # noqa: F401 - an extra
    except ImportError:
        raise not_installed("pyarrow", "parquet", for_="--parquet") from None
    shown = watched(topic, config).topic
    forms = {schema.name: _Form(schema) for schema in shown.schemas}
    with _held(folder):
        begin = _begin(folder, topic)
        with closing(_opened(folder, config, shown, begin)) as reading, counting(f"exporting {topic}") as progress:
            kept = {"topic": topic, "topic_id": reading.topic_id, "offsets": reading.positions()}
            _keep(folder, kept)
            _remove_unfinished(folder, reading.positions())
            total = sum(
                max(0, end - reading.positions().get(partition, 0)) for partition, (_, end) in reading.spans.items()
            )
            done = files = 0
            for records in _batches(reading):
                files += _write(folder, shown, forms, records)
                kept["offsets"] = reading.positions()
                _keep(folder, kept)
                done += len(records)
                progress(min(done, total), total)
    return {"folder": str(folder), "records": done, "files": files, **kept}


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Keep other exports out of the folder, which is made if it does not exist."""
    with _translated(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if any(each.name != LOCK for each in folder.iterdir()) and not (folder / POSITIONS).exists():
            raise UserError(f"{folder}: expected an empty folder, or one with {POSITIONS} of an earlier export")
        lock = (folder / LOCK).open("a")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"{folder}: another export writes to it: wait until it has ended") from None
        yield


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{error.filename or path}: cannot be written: {error.strerror}") from error


def _begin(folder: Path, topic: str) -> Begin:
    """Return where the last export ended. Raises `UserError`: the folder belongs to another topic, or its positions cannot be read."""
    path = folder / POSITIONS
    if not path.exists():
        return BEGINNING
    try:
        kept = read_json(path.read_bytes())
        found = kept["topic"]
        begin = begin_of(kept)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except (JsonRefused, LookupError, TypeError, UserError) as error:
        raise UserError(f"{path}: expected the positions of an export, found something else: {error}") from None
    if found != topic:
        raise UserError(f"{folder}: expected a folder of {topic}, found one of {found}")
    return begin


def _opened(folder: Path, config: Config, topic: ReadableTopic, begin: Begin) -> Reading:
    try:
        return KafkaBackend(config).read(topic.name, begin)
    except TopicMissing:
        raise UserError(f"the topic {topic.name} does not exist yet: {topic.missing}") from None
    except UserError as error:
        raise UserError(f"{folder / POSITIONS}: {error}") from error


def _keep(folder: Path, kept: dict[str, Any]) -> None:
    with _translated(folder):
        new = folder / (POSITIONS + _UNFINISHED)
        new.write_text(json.dumps(kept) + "\n", encoding="utf-8")
        new.replace(folder / POSITIONS)


def _remove_unfinished(folder: Path, offsets: Mapping[int, int]) -> None:
    """Remove the files of an export that has not kept its positions."""
    with _translated(folder):
        for path in [*folder.rglob(f"*{_SUFFIX}"), *folder.rglob(f"*{_SUFFIX}{_UNFINISHED}")]:
            name = _FILE.match(path.name)
            if name is not None and int(name[2]) >= offsets.get(int(name[1]), 0):
                path.unlink()


def _batches(reading: Reading) -> Iterator[list[TopicRecord]]:
    """Yield the records up to where the topic ended when its reading began."""
    records: list[TopicRecord] = []
    size = 0
    while not reading.at_end:
        polled = reading.poll(POLL_S)
        records += polled
        size += sum(len(each.value) for each in polled)
        if len(records) >= RECORDS_MAX or size >= RECORD_BYTES:
            yield records
            records, size = [], 0
    yield records


class _Folder(NamedTuple):
    """The records of a batch that share a file."""

    record: str
    lane: str | None
    from_block: int | None
    partition: int


def _write(folder: Path, shown: ReadableTopic, forms: Mapping[str, _Form], records: list[TopicRecord]) -> int:
    """Write a file for each partition, lane, span of blocks and kind of record. Return how many."""
    import pyarrow as pa
    from pyarrow import parquet

    rows: dict[_Folder, list[dict[str, Any]]] = {}
    for read in records:
        try:
            record = shown.decode(read.value)
        except UserError as error:
            raise UserError(f"{read.topic}[{read.partition}]@{read.offset}: {error}") from error
        name = shared_codec().by_header[read.value[:HEADER_SIZE]].name if len(forms) > 1 else next(iter(forms))
        block = record.get("block")
        span = None if block is None else block - block % BLOCKS_PER_FOLDER
        of = rows.setdefault(_Folder(name, record.get("lane"), span, read.partition), [])
        of.append(
            {"kafka_partition": read.partition, "kafka_offset": read.offset, "kafka_timestamp_ms": read.timestamp_ms}
            | forms[name].row(record)
        )
    for at, found in rows.items():
        there = folder / f"record={short_name(at.record)}" if len(forms) > 1 else folder
        if forms[at.record].has_lane:
            there /= f"lane={_NO_LANE if at.lane is None else quote(at.lane, safe='')}"
        if at.from_block is not None:
            there /= f"from_block={at.from_block}"
        path = there / f"{at.partition}-{found[0]['kafka_offset']}{_SUFFIX}"
        with _translated(path):
            there.mkdir(parents=True, exist_ok=True)
            new = path.with_name(path.name + _UNFINISHED)
            parquet.write_table(pa.Table.from_pylist(found, forms[at.record].schema), new, compression="zstd")
            new.replace(path)
    return len(rows)


class _Column(NamedTuple):
    """A type of Parquet, and how a value in JSON becomes one of it; None if it is one."""

    kind: pa.DataType
    convert: Callable[[Any], Any] | None = None

    def value(self, value: Any) -> Any:
        return value if value is None or self.convert is None else self.convert(value)


class _Form(Named):
    """A record's columns, from its Avro schema.

    An integer of 128 bits is decimal text, as Parquet has none of this size. A value that may have several types is JSON text.
    """

    def __init__(self, schema: Schema) -> None:
        import pyarrow as pa

        super().__init__(schema.source)
        self._pa = pa
        fields = self.members(schema.source)
        self.has_lane = fields.pop("lane", None) is not None
        self._fields = fields
        where = ("kafka_partition", "kafka_offset", "kafka_timestamp_ms")
        self.schema = pa.schema(
            [*((name, pa.int64()) for name in where), *((name, column.kind) for name, column in fields.items())]
        )

    def row(self, record: dict[str, Any]) -> dict[str, Any]:
        """Return the columns of a record in JSON."""
        return {name: column.value(record.get(name)) for name, column in self._fields.items()}

    def members(self, attributes: Json) -> dict[str, _Column]:
        """Return the columns of a record's fields; a verdict has the ones of its JSON form."""
        columns = {field["name"]: self.column(field["type"]) for field in attributes["fields"]}
        if attributes["name"] != "validator.Verdict":
            return columns
        text = self._pa.string()
        error = self._pa.struct({"kind": text, "clause": text, "fields": text})
        verdict = {
            "outcome": ("ok", _Column(self._pa.bool_())),
            "error": ("error", _Column(error, _error)),
        }
        return dict(verdict.get(name, (name, column)) for name, column in columns.items())

    def column(self, schema: Json) -> _Column:
        """Return the column of a type."""
        pa = self._pa
        if isinstance(schema, list):
            others = [branch for branch in schema if branch != "null"]
            return self.column(others[0]) if len(others) == 1 else _Column(pa.string(), json.dumps)
        kind, attributes = self.resolve(schema)
        match kind:
            case "boolean":
                return _Column(pa.bool_())
            case "int" | "long":
                return _Column(pa.int64())
            case "fixed" if attributes.get("logicalType") == "u64":
                return _Column(pa.uint64())
            case "fixed" if attributes.get("logicalType") == "u128":
                return _Column(pa.string(), str)
            case "array":
                item = self.column(attributes["items"])
                return _Column(pa.list_(item.kind), lambda values: [item.value(each) for each in values])
            case "map":
                member = self.column(attributes["values"])
                kinds = pa.map_(pa.string(), member.kind)
                return _Column(kinds, lambda values: [(name, member.value(each)) for name, each in values.items()])
            case "record":
                return self.record(attributes)
        return _Column(pa.string())

    def record(self, attributes: Json) -> _Column:
        """Return the column of a record within another one."""
        fields = self.members(attributes)
        kind = self._pa.struct([(name, column.kind) for name, column in fields.items()])

        def convert(value: Any) -> dict[str, Any]:
            members = dict(zip(fields, value, strict=True)) if attributes.get("json") == "pair" else value
            return {name: column.value(members.get(name)) for name, column in fields.items()}

        return _Column(kind, convert)


def _error(error: dict[str, Any]) -> dict[str, Any]:
    return {"kind": error["kind"], "clause": error["clause"], "fields": json.dumps(error_fields(error))}
