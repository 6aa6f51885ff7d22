# SPDX-License-Identifier: Apache-2.0
"""Compatible and incompatible pairs of schemas; fastavro confirms each compatible pair."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest
from fastavro import schemaless_reader, schemaless_writer

from validator.codec.compatibility import incompatibilities


def record(*fields: dict[str, Any], name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F") -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size}


LIST = record(field("next", ["null", "R"]), field("value", "int"))

# reader, writer, a value of the writer
READABLE = [
    ("long", "int", 5),
    ("double", "int", 5),
    ("double", "float", 0.5),
    ("bytes", "string", "x"),
    ("string", "bytes", b"x"),
    ({"type": "long"}, "long", 5),
    ({"type": "long", "logicalType": "u32"}, "long", 5),
    ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, [5]),
    ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}, {"a": 5}),
    (fixed(4), fixed(4), b"1234"),
    (enum("a", "b"), enum("b"), "b"),
    (enum("a", default="a"), enum("a", "b"), "b"),
    (["null", "long"], "long", 5),
    (["null", "long"], "int", 5),
    (["null", "long"], ["long", "null"], 5),
    ("long", ["int", "long"], 5),
    (["string", record(field("a", "int"))], record(field("a", "int")), {"a": 5}),
    (record(field("a", "int")), record(field("a", "int"), field("b", "int")), {"a": 5, "b": 6}),
    (record(field("a", "int"), field("b", "int", default=1)), record(field("a", "int")), {"a": 5}),
    (record(field("b", "int", aliases=["a"])), record(field("a", "int")), {"a": 5}),
    (record(field("b", "int"), field("a", "int")), record(field("a", "int"), field("b", "int")), {"a": 5, "b": 6}),
    (record(name="x.R"), record(name="y.R"), {}),
    (LIST, LIST, {"next": {"next": None, "value": 2}, "value": 1}),
]

# reader, writer, expected problem
UNREADABLE = [
    ("int", "long", "record: long is not readable as int"),
    ("float", "double", "record: double is not readable as float"),
    ("string", "long", "record: long is not readable as string"),
    ("boolean", "int", "record: int is not readable as boolean"),
    ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, "[]: long is not readable as int"),
    ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}, "{}: long is not readable as int"),
    ({"type": "array", "items": "int"}, {"type": "map", "values": "int"}, "record: map is not readable as array"),
    (fixed(4), fixed(5), "record: 5 bytes are not readable as 4"),
    (fixed(4), fixed(4, "G"), "record: fixed G is not readable as fixed F"),
    (enum("a"), enum("a", "b"), "record: b of enum E is unknown and the reader has no default"),
    ("long", ["null", "long"], "record: null is not readable as long"),
    (["null", "string"], "long", "record: long is in none of the reader's branches null, string"),
    (["null", "long"], ["null", "long", "string"], "record: string is in none of the reader's branches null, long"),
    (
        record(field("a", "int"), field("b", "int")),
        record(field("a", "int")),
        "b: the writer has no such field and the reader no default",
    ),
    (record(field("a", "int")), record(field("a", "long")), "a: long is not readable as int"),
    (record(field("a", "int")), record(field("a", "int"), name="S"), "record: record S is not readable as record R"),
    (
        ["null", record(field("a", "int"))],
        ["null", record(field("a", "string"))],
        "a: string is not readable as int",
    ),
    (
        LIST,
        record(field("next", ["null", "R"]), field("value", "string")),
        "value: string is not readable as int",
    ),
]


@pytest.mark.parametrize(("reader", "writer", "value"), READABLE)
def test_compatible_schema_reads_value(reader: Any, writer: Any, value: Any) -> None:
    assert incompatibilities(reader, writer) == []
    stream = BytesIO()
    schemaless_writer(stream, writer, value)
    stream.seek(0)
    schemaless_reader(stream, writer, reader)
    assert stream.read() == b""


@pytest.mark.parametrize(("reader", "writer", "problem"), UNREADABLE)
def test_incompatible_schema_names_problem(reader: Any, writer: Any, problem: str) -> None:
    assert incompatibilities(reader, writer) == [problem]


def test_every_problem_is_reported() -> None:
    reader = record(field("a", "int"), field("b", "int"), field("c", {"type": "array", "items": fixed(1)}))
    writer = record(field("a", "string"), field("c", {"type": "array", "items": fixed(2)}))
    assert len(incompatibilities(reader, writer)) == 3


def test_names_resolve_in_their_namespace() -> None:
    inner = {"type": "fixed", "name": "H", "size": 4}
    reader = record(field("a", inner), field("b", "n.H"), name="R", namespace="n")
    writer = record(field("a", inner), field("b", "H"), name="n.R")
    assert incompatibilities(reader, writer) == []
