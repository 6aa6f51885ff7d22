# SPDX-License-Identifier: Apache-2.0
"""Checks whether records written with one schema can be read with another.

fastavro resolves schemas while it reads but cannot check in advance, so the rules are here. Source: Avro 1.12 specification, "Schema
Resolution". Unions are stricter than in that section: every branch that the writer may choose must be readable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from validator.topics import DRY_RUN_ANSWERS, OUTPUT_TOPICS

if TYPE_CHECKING:
    from validator.codec.schemas import Json, Schema, SchemaSet

FULL_TRANSITIVE: Final = "FULL_TRANSITIVE"
"""Every version reads every other: consumers of outputs may be upgraded before or after the job."""
BACKWARD_TRANSITIVE: Final = "BACKWARD_TRANSITIVE"
"""The current version reads all earlier ones: the job is upgraded before the producers of its inputs."""

_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_PROMOTIONS: Final[dict[str, frozenset[str]]] = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}


def policy(schema: Schema) -> str:
    """Return the compatibility policy of a record's versions; a record that names no topic is an input of a protocol."""
    return FULL_TRANSITIVE if schema.topic in (*OUTPUT_TOPICS, DRY_RUN_ANSWERS) else BACKWARD_TRANSITIVE


def check_schemas(known: SchemaSet) -> dict[str, list[str]]:
    """Return, for every current schema, how it breaks its policy towards its earlier versions; an empty list means compatible."""
    problems: dict[str, list[str]] = {}
    for name, (*all_earlier, current) in known.versions.items():
        found = problems[name] = []
        for earlier in all_earlier:
            pairs = [(f"cannot read version {earlier.version}", current, earlier)]
            if policy(current) == FULL_TRANSITIVE:
                pairs.append((f"cannot be read by version {earlier.version}", earlier, current))
            for text, reader, writer in pairs:
                found += [f"{text}: {problem}" for problem in incompatibilities(reader.source, writer.source)]
    return problems


def incompatibilities(reader: Json, writer: Json) -> list[str]:
    """Return why ``reader`` cannot read everything that ``writer`` writes, one sentence per place; an empty list if it can."""
    resolution = _Resolution(_names(reader), _names(writer))
    resolution.resolve(reader, writer, "")
    return resolution.problems


def _names(schema: Json, namespace: str = "", names: dict[str, Json] | None = None) -> dict[str, Json]:
    """Return every named type of a schema by its full name."""
    names = {} if names is None else names
    if isinstance(schema, list):
        for branch in schema:
            _names(branch, namespace, names)
    elif isinstance(schema, dict):
        if "name" in schema and schema.get("type") in ("record", "error", "enum", "fixed"):
            full = _full(schema["name"], schema.get("namespace", namespace))
            namespace = full.rpartition(".")[0]
            names[full] = {**schema, "name": full, "namespace": namespace}
        for each in schema.get("fields", ()):
            _names(each["type"], namespace, names)
        for part in ("type", "items", "values"):
            if isinstance(schema.get(part), list | dict):
                _names(schema[part], namespace, names)
    return names


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _short(name: str) -> str:
    return name.rpartition(".")[2]


@dataclass
class _Resolution:
    """One comparison; ``compared`` holds the pairs of records that it is currently inside, since a schema may be recursive."""

    reader_names: dict[str, Json]
    writer_names: dict[str, Json]
    problems: list[str] = field(default_factory=list)
    compared: set[tuple[str, str]] = field(default_factory=set)
    reader_namespace: str = ""
    writer_namespace: str = ""

    def resolve(self, reader: Json, writer: Json, path: str) -> None:
        reader = _open(reader, self.reader_names, self.reader_namespace)
        writer = _open(writer, self.writer_names, self.writer_namespace)
        if isinstance(writer, list):
            for branch in writer:
                self.resolve(reader, branch, path)
            return
        if isinstance(reader, list):
            self.resolve_in_union(reader, writer, path)
            return
        kind, other = writer["type"], reader["type"]
        if kind in _PRIMITIVES or other in _PRIMITIVES or kind != other:
            if kind != other and other not in _PROMOTIONS.get(kind, ()):
                self.report(path, f"{_title(writer)} is not readable as {_title(reader)}")
        elif kind == "array":
            self.resolve(reader["items"], writer["items"], f"{path}[]")
        elif kind == "map":
            self.resolve(reader["values"], writer["values"], f"{path}{{}}")
        elif not _same_name(reader, writer):
            self.report(path, f"{_title(writer)} is not readable as {_title(reader)}")
        elif kind == "fixed":
            if reader["size"] != writer["size"]:
                self.report(path, f"{writer['size']} bytes are not readable as {reader['size']}")
        elif kind == "enum":
            unknown = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
            if unknown and "default" not in reader:
                self.report(path, f"{', '.join(unknown)} of {_title(writer)} is unknown and the reader has no default")
        else:
            self.resolve_records(reader, writer, path)

    def resolve_in_union(self, reader: list[Json], writer: Json, path: str) -> None:
        """Require a branch of the reader's union that reads the writer's type; the first one of the same kind explains a failure."""
        attempts = []
        for branch in reader:
            attempt = _Resolution(
                self.reader_names,
                self.writer_names,
                compared=set(self.compared),
                reader_namespace=self.reader_namespace,
                writer_namespace=self.writer_namespace,
            )
            attempt.resolve(branch, writer, path)
            if not attempt.problems:
                return
            opened = _open(branch, self.reader_names, self.reader_namespace)
            attempts.append((opened["type"] != writer["type"], attempt.problems))
        is_other_kind, problems = min(attempts, key=lambda attempt: attempt[0], default=(True, []))
        if is_other_kind:
            titles = (_title(_open(branch, self.reader_names, self.reader_namespace)) for branch in reader)
            problems = []
            self.report(path, f"{_title(writer)} is in none of the reader's branches {', '.join(titles)}")
        self.problems += problems

    def resolve_records(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> None:
        pair = reader["name"], writer["name"]
        if pair in self.compared:
            return
        self.compared.add(pair)
        outer = self.reader_namespace, self.writer_namespace
        self.reader_namespace, self.writer_namespace = reader["namespace"], writer["namespace"]
        written = {each["name"]: each for each in writer["fields"]}
        for each in reader["fields"]:
            names = (each["name"], *each.get("aliases", ()))
            source = next((written[name] for name in names if name in written), None)
            there = f"{path}.{each['name']}" if path else each["name"]
            if source is not None:
                self.resolve(each["type"], source["type"], there)
            elif "default" not in each:
                self.report(there, "the writer has no such field and the reader no default")
        self.reader_namespace, self.writer_namespace = outer
        self.compared.discard(pair)

    def report(self, path: str, problem: str) -> None:
        self.problems.append(f"{path or 'record'}: {problem}")


def _open(schema: Json, names: dict[str, Json], namespace: str) -> Any:
    """Return a union as its list, anything else as a dict with its ``type``; a name is replaced by the type that it names."""
    if isinstance(schema, list):
        return schema
    if isinstance(schema, dict):
        if not isinstance(schema["type"], str) or schema["type"] not in (
            "record",
            "error",
            "enum",
            "fixed",
            "array",
            "map",
        ):
            return _open(schema["type"], names, namespace)
        return names[_full(schema["name"], schema.get("namespace", namespace))] if "name" in schema else schema
    if schema in _PRIMITIVES:
        return {"type": schema}
    return names[_full(schema, namespace)]


def _same_name(reader: dict[str, Any], writer: dict[str, Any]) -> bool:
    aliases = {_full(alias, reader["namespace"]) for alias in reader.get("aliases", ())}
    return _short(reader["name"]) == _short(writer["name"]) or writer["name"] in aliases


def _title(schema: dict[str, Any]) -> str:
    return f"{schema['type']} {schema['name']}" if "name" in schema else str(schema["type"])
