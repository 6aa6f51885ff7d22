# SPDX-License-Identifier: Apache-2.0
"""The Avro schemas of records, by name and by topic.

Every record is in single-object encoding: ``C3 01``, the 8-byte little-endian CRC-64-AVRO fingerprint of the writer's schema in Parsing
Canonical Form, then the Avro binary. Source: Avro 1.12 specification, "Single-object encoding" and "Schema fingerprints".

`avro/<name>.avsc` is the schema that is written. A change of it makes it the next version, and moves the file that a release wrote to
`avro/versions/<name>/<n>.avsc`, ``n`` from 1. A record written with any version is read as the current one.

Two attributes are our own. Neither is part of the Parsing Canonical Form, so neither changes a fingerprint. ``topic``, on the outermost
record, names the topic that carries it. ``json``, on any record, says how JSON represents it if not as an object with all fields
(`json_form`). The logical types of longs are ours, too (`record_types.LONG_MAXIMA`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from fastavro.schema import SchemaParseException, UnknownType, parse_schema, to_parsing_canonical_form
from fastavro.schema import fingerprint as avro_fingerprint

from validator.errors import UserError
from validator.resources import schemas_directory

if TYPE_CHECKING:
    from collections.abc import Hashable
    from importlib.resources.abc import Traversable

Json: TypeAlias = Any
"""A JSON value as the standard library reads it."""

MARKER: Final = b"\xc3\x01"
"""First two bytes of a record in single-object encoding."""
SUFFIX: Final = ".avsc"
"""File name suffix of schemas."""
HEADER_SIZE: Final = 10
"""Bytes of marker and fingerprint."""


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """One version of one record's schema.

    ``source`` is the JSON of the file. ``parsed`` is what fastavro reads and writes with, without docs and logical types, which it would
    look up for every value. ``header`` is the 10 bytes that a record starts with. ``topic`` is None if the schema names none.
    """

    name: str
    version: int
    source: Json
    parsed: Json
    canonical: str
    header: bytes
    topic: str | None

    @property
    def fingerprint(self) -> bytes:
        """Return the 8 bytes of CRC-64-AVRO, little-endian."""
        return self.header[len(MARKER) :]


@dataclass(frozen=True, slots=True)
class SchemaSet:
    """Every version of every schema of a folder, by name, in ascending order: the last one is current."""

    versions: Mapping[str, tuple[Schema, ...]]

    @classmethod
    def read(cls, directory: Traversable) -> SchemaSet:
        """Read a folder laid out like `avro/`, which may be inside an archive. Raises `UserError`."""
        versions: dict[str, tuple[Schema, ...]] = {}
        for name, path in sorted(_files(directory).items()):
            earlier = _files(directory.joinpath("versions", name))
            numbers = [str(number) for number in range(1, len(earlier) + 1)]
            if earlier.keys() != set(numbers):
                raise UserError(f"{path}: expected earlier versions from 1 on, found {', '.join(sorted(earlier))}")
            files = [*(earlier[number] for number in numbers), path]
            versions[name] = tuple(load_schema(file, version=number) for number, file in enumerate(files, 1))
            for file, schema in zip(files, versions[name], strict=True):
                if schema.name != name:
                    raise UserError(
                        f"{file}: expected the schema of {name!r} by the file's name, found {schema.name!r}"
                    )
        if not versions:
            raise UserError(f"{directory}: expected Avro schemas (*.avsc), found none")
        return cls(MappingProxyType(versions))

    @property
    def current(self) -> dict[str, Schema]:
        """The current schema of each record."""
        return {name: each[-1] for name, each in self.versions.items()}

    def __getitem__(self, name: str) -> Schema:
        return self.versions[name][-1]

    def of_topic(self, topic: str) -> tuple[Schema, ...]:
        """Return the current schemas of a topic's records."""
        return tuple(schema for schema in self.current.values() if schema.topic == topic)


def short_name(name: str) -> str:
    """Return a record's name without its namespace."""
    return name.rpartition(".")[2]


def _files(directory: Traversable) -> dict[str, Traversable]:
    """Return a folder's schema files by their names without the suffix; empty if the folder does not exist."""
    found = directory.iterdir() if directory.is_dir() else ()
    return {path.name.removesuffix(SUFFIX): path for path in found if path.name.endswith(SUFFIX)}


def load_schema(path: Traversable, *, version: int = 1) -> Schema:
    """Read one .avsc file."""
    try:
        return make_schema(json.loads(path.read_text("utf-8")), version=version)
    except (ValueError, KeyError, TypeError, SchemaParseException, UnknownType) as error:
        raise UserError(f"{path}: expected an Avro schema, found: {error}") from error


def make_schema(source: Json, *, version: int = 1) -> Schema:
    """Parse a record's schema and compute its fingerprint."""
    canonical = to_parsing_canonical_form(source)
    return Schema(
        name=json.loads(canonical)["name"],
        version=version,
        source=source,
        parsed=parse_schema(_bare(source), {}),
        canonical=canonical,
        header=MARKER + bytes.fromhex(avro_fingerprint(canonical, "CRC-64-AVRO")),
        topic=source.get("topic"),
    )


_NOT_BINARY: Final = frozenset({"doc", "logicalType", "topic", "json"})


def _bare(schema: Json) -> Json:
    """Drop documentation, logical types and our own attributes, which do not affect the binary form."""
    if isinstance(schema, list):
        return [_bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key not in _NOT_BINARY}
    if kept.keys() == {"type"}:
        return _bare(kept["type"])
    return {key: _bare(value) if key in ("type", "items", "values", "fields") else value for key, value in kept.items()}


def schemas_of(directory: Traversable) -> SchemaSet:
    """Return the schemas of a folder, read once. Raises `UserError`."""
    return _read_once(cast("Hashable", directory))


@cache
def _read_once(directory: Any) -> SchemaSet:
    return SchemaSet.read(directory)


def schemas() -> SchemaSet:
    """Return the schemas that the package ships."""
    return schemas_of(schemas_directory())
