# SPDX-License-Identifier: Apache-2.0
"""The Avro schemas of every record, by name, by topic and by fingerprint.

Every record is in single-object encoding: ``C3 01``, the 8-byte little-endian CRC-64-AVRO fingerprint of the writer's schema in Parsing
Canonical Form, then the Avro binary. Source: Avro 1.12 specification, "Single-object encoding" and "Schema fingerprints".

`avro/<name>.avsc` is what this version writes; `avro/versions/<name>/<n>.avsc` is every released version of it, ``n`` from 1. A record
written with any of them is read into the current one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from fastavro.schema import SchemaParseException, UnknownType, parse_schema, to_parsing_canonical_form
from fastavro.schema import fingerprint as avro_fingerprint

from validator.core.inputs import RecordKind
from validator.errors import UserError
from validator.resources import schemas_directory

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

Json: TypeAlias = Any
"""A JSON value as the standard library reads it."""

MARKER: Final = b"\xc3\x01"
"""First two bytes of a record in single-object encoding."""
SUFFIX: Final = ".avsc"
"""How the names of schema files end."""
HEADER_SIZE: Final = 10
"""Bytes of marker and fingerprint."""

INPUT_TOPICS: Final[dict[str, RecordKind]] = {
    "blocks": RecordKind.BLOCK,
    "channel-requests": RecordKind.REQUEST,
    "downward-messages": RecordKind.DOWNWARD,
    "candidates": RecordKind.CANDIDATE,
}
"""Topic (without the prefix) of every kind of input."""

TOPIC_OF_KIND: Final[dict[RecordKind, str]] = {kind: topic for topic, kind in INPUT_TOPICS.items()}

TOPIC_SCHEMAS: Final[dict[str, tuple[str, ...]]] = {
    "blocks": ("validator.Block",),
    "candidates": ("validator.router.Candidate",),
    "channel-requests": ("validator.router.ChannelRequest",),
    "downward-messages": ("validator.DownwardMessage",),
    "verdicts": ("validator.Verdict",),
    "dispatches": ("validator.Dispatch",),
    "channel-events": ("validator.ChannelEvent",),
    "headroom": ("validator.router.ParaHeadroom", "validator.router.ChannelHeadroom"),
    "receipts": ("validator.Receipt",),
    "dead-letters": ("validator.DeadLetter",),
    "lanes": ("validator.LaneStatus",),
    "markers": ("validator.Marker",),
    "dead-letter-replays": ("validator.DeadLetterReplay",),
}
"""Names of the records that a topic (without the prefix) carries."""


@dataclass(frozen=True, slots=True)
class Schema:
    """One version of one record's schema.

    ``source`` is the JSON of the file, ``parsed`` what fastavro reads and writes with (no docs, no logical types: it would look them up for
    every value), ``header`` the 10 bytes that a record of it starts with. ``version`` is None for the current one.
    """

    name: str
    version: int | None
    source: Json
    parsed: Json
    canonical: str
    header: bytes

    @property
    def fingerprint(self) -> bytes:
        """Return the 8 bytes of CRC-64-AVRO, little-endian."""
        return self.header[len(MARKER) :]


class SchemaSet:
    """Every schema under a folder laid out as `avro/`, which may be one in an archive."""

    def __init__(self, directory: Traversable) -> None:
        self.current: dict[str, Schema] = {}
        self.versions: dict[str, tuple[Schema, ...]] = {}
        self.by_header: dict[bytes, Schema] = {}
        for name, path in sorted(_files(directory).items()):
            schema = load_schema(path)
            if schema.name != name:
                raise UserError(f"{path}: expected the schema of {name!r} by the file's name, found {schema.name!r}")
            self.current[schema.name] = schema
            earlier = _files(directory.joinpath("versions", schema.name))
            released = {_version(number, file): file for number, file in earlier.items()}
            self.versions[schema.name] = tuple(load_schema(released[each], version=each) for each in sorted(released))
            for each in (*self.versions[schema.name], schema):
                self.by_header[each.header] = each
        if not self.current:
            raise UserError(f"{directory}: expected Avro schemas (*.avsc), found none")

    def __getitem__(self, name: str) -> Schema:
        return self.current[name]


def _files(directory: Traversable) -> dict[str, Traversable]:
    """Return the schema files of a folder by their names without the suffix, none where there is no such folder."""
    found = directory.iterdir() if directory.is_dir() else ()
    return {path.name.removesuffix(SUFFIX): path for path in found if path.name.endswith(SUFFIX)}


def _version(name: str, path: Traversable) -> int:
    if not name.isdecimal():
        raise UserError(f"{path}: expected <version number>{SUFFIX}, found {path.name!r}")
    return int(name)


def load_schema(path: Traversable, *, version: int | None = None) -> Schema:
    """Read one .avsc file."""
    try:
        return make_schema(json.loads(path.read_text("utf-8")), version=version)
    except (ValueError, KeyError, TypeError, SchemaParseException, UnknownType) as error:
        raise UserError(f"{path}: expected an Avro schema, found: {error}") from error


def make_schema(source: Json, *, version: int | None = None) -> Schema:
    """Parse a record's schema and compute its fingerprint."""
    canonical = to_parsing_canonical_form(source)
    return Schema(
        name=json.loads(canonical)["name"],
        version=version,
        source=source,
        parsed=parse_schema(_bare(source), {}),
        canonical=canonical,
        header=MARKER + bytes.fromhex(avro_fingerprint(canonical, "CRC-64-AVRO")),
    )


def _bare(schema: Json) -> Json:
    """Drop documentation and logical types, which mean nothing to the binary form."""
    if isinstance(schema, list):
        return [_bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key not in ("doc", "logicalType")}
    if kept.keys() == {"type"}:
        return _bare(kept["type"])
    return {key: _bare(value) if key in ("type", "items", "values", "fields") else value for key, value in kept.items()}


_READ: Final[dict[str, SchemaSet]] = {}


def schemas_of(directory: Traversable) -> SchemaSet:
    """Return the schemas of a folder, read once. Raises `UserError`."""
    place = str(directory)
    if place not in _READ:
        _READ[place] = SchemaSet(directory)
    return _READ[place]


def schemas() -> SchemaSet:
    """Return the schemas that the package ships."""
    return schemas_of(schemas_directory())


_LEARNED: Final[dict[int, SchemaSet]] = {}


def learn_schemas(known: SchemaSet) -> None:
    """Have this process know the schemas of a protocol from now on; again changes nothing."""
    _LEARNED[id(known)] = known


def schema_named(name: str) -> Schema:
    """Return the current schema of a record that the package ships or a protocol has brought. Raises ``KeyError``."""
    for known in (schemas(), *_LEARNED.values()):
        if name in known.current:
            return known.current[name]
    raise KeyError(name)


def schema_of_header(header: bytes) -> Schema | None:
    """Return the schema whose records start with these bytes, None where none is known."""
    for known in (schemas(), *_LEARNED.values()):
        if header in known.by_header:
            return known.by_header[header]
    return None
