# SPDX-License-Identifier: Apache-2.0
"""The schema files, their fingerprints, and which schemas read which; fastavro confirms each compatible pair."""

from __future__ import annotations

import json
import shutil
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pytest
from fastavro import schemaless_reader, schemaless_writer
from fastavro.schema import fingerprint, to_parsing_canonical_form
from typer.testing import CliRunner

from validator import exit_codes
from validator.cli import schemas as command
from validator.codec.compatibility import BACKWARD_TRANSITIVE, FULL_TRANSITIVE, check_schemas, incompatibilities, policy
from validator.codec.record_types import LONG_MAXIMA
from validator.codec.schemas import MARKER, SchemaSet, make_schema, schemas
from validator.core.limits import U64_MAX, U128_MAX
from validator.errors import UserError
from validator.job.installed import all_schemas
from validator.protocols.router.configuration import CONFIGURATION_FIELDS, LATER_FIELDS, MAXIMA
from validator.resources import schemas_directory
from validator.topics import DRY_RUN_TOPICS, TOPICS

if TYPE_CHECKING:
    from pathlib import Path


NAMES = sorted(schemas().current)

# From the Avro project's shared test data: a schema's Parsing Canonical Form and its CRC-64-AVRO as a signed long.
AVRO_FINGERPRINTS = [
    ('"null"', '"null"', 7195948357588979594),
    ('"boolean"', '"boolean"', -6970731678124411036),
    ('"int"', '"int"', 8247732601305521295),
    ('{"type":"long"}', '"long"', -3434872931120570953),
    ('"string"', '"string"', -8142146995180207161),
    ('["int", "boolean"]', '["int","boolean"]', 5392556393470105090),
    ('{"type":"fixed","name":"foo","size":15}', '{"name":"foo","type":"fixed","size":15}', 1756455273707447556),
]


def rabin(data: bytes) -> int:
    """Compute CRC-64-AVRO as in the specification's pseudo-code."""
    empty = 0xC15D213AA4D7A795
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (empty & -(value & 1))
        table.append(value)
    result = empty
    for byte in data:
        result = result >> 8 ^ table[(result ^ byte) & 0xFF]
    return result


@pytest.mark.parametrize(("source", "canonical", "expected"), AVRO_FINGERPRINTS)
def test_fingerprints_match_avro_test_data(source: str, canonical: str, expected: int) -> None:
    assert to_parsing_canonical_form(json.loads(source)) == canonical
    assert fingerprint(canonical, "CRC-64-AVRO") == expected.to_bytes(8, "little", signed=True).hex()
    assert rabin(canonical.encode()) == expected % 2**64


@pytest.mark.parametrize("name", NAMES)
def test_header_is_marker_and_little_endian_fingerprint(name: str) -> None:
    schema = schemas()[name]
    assert schema.header == MARKER + rabin(schema.canonical.encode()).to_bytes(8, "little")
    assert schema.parsed["name"] == name
    assert to_parsing_canonical_form(schema.parsed) == schema.canonical


def test_fingerprints_of_schemas_do_not_change() -> None:
    """Without the schema that it was written with, a record cannot be read."""
    known, _ = all_schemas()
    assert {name: [schema.fingerprint.hex() for schema in versions] for name, versions in known.versions.items()} == {
        "validator.Block": ["079b24129553824a"],
        "validator.ChannelEvent": ["b6dfd523b088f563", "56e25719bf174abb"],
        "validator.DeadLetter": ["154ffa5735f515ba"],
        "validator.DeadLetterReplay": ["ffbec200d80290b4"],
        "validator.Dispatch": ["2c990e959a62e565", "84555f3cf3a5a5c2"],
        "validator.DownwardMessage": ["3c2c9780265a1f03"],
        "validator.DryRunAnswer": ["e1ab91f268885462"],
        "validator.DryRunRequest": ["5824166b08c077fa"],
        "validator.IngressEvent": ["07051c8f5cdd5213"],
        "validator.LaneAudit": ["cd004d20c89b7d4d"],
        "validator.LaneOrder": ["2b93975f9c178629"],
        "validator.LaneParked": ["71b28e7560f8e3bf"],
        "validator.LaneStatus": ["528a5e6dd6a5cce3"],
        "validator.Marker": ["ed29aa327e9c1506"],
        "validator.Receipt": ["b1a8f54561ed19aa"],
        "validator.Verdict": ["cf78e603c523a171", "d19814a472a4a9e3"],
        "validator.early_hrmp.Candidate": ["1ba6138bddf17aa5"],
        "validator.early_hrmp.ChannelRequest": ["d12436da08204efc"],
        "validator.journeys.ClosedJourney": ["b4916d4ae0d14e0c"],
        "validator.journeys.Journey": ["93cdc6cd751d596d"],
        "validator.router.Candidate": ["a6df7674698fa48c"],
        "validator.router.ChannelHeadroom": ["5be83efebcf19502"],
        "validator.router.ChannelRequest": ["97caaf303a538120"],
        "validator.router.ParaHeadroom": ["2d7f2daacb6c5421"],
        "validator.xcmp.Candidate": ["3482c7a77b29b4b0"],
        "validator.xcmp.ChannelRequest": ["e406ad2a20eddabd"],
        "validator.xcmp_bodies.Body": ["6a638827025a18a9"],
        "validator.xcmp_bodies.BodyHeld": ["d60a7683adad9d82"],
        "validator.xcmp_bodies.BodyRefused": ["e4e71e3c9e89a9d3"],
        "validator.xcmp_bodies.BodyWanted": ["0cf4f5fa8762e466"],
        "validator.xcmp_bodies.Flow": ["dd0f28e14d60f385"],
        "validator.xcmp_bodies.QueueStatus": ["70f3a12c84d49a37"],
        "validator.xcmp_network.Candidate": ["76140718fd4168e0"],
        "validator.xcmp_network.ChannelRequest": ["18bcf48e9cda26e8"],
    }, (
        "if a release has written the schema, move its file to avro/versions/<name>/<n>.avsc; then name the new fingerprint here"
    )


def test_every_schema_has_topic_and_every_topic_has_schemas() -> None:
    by_topic = {
        topic.name: [schema.name for schema in schemas().of_topic(topic.name)] for topic in (*TOPICS, *DRY_RUN_TOPICS)
    }
    assert sorted(name for names in by_topic.values() for name in names) == NAMES
    assert all(by_topic.values())


def test_schema_attributes_do_not_change_fingerprint() -> None:
    marked = {name: _attributes(schemas()[name].source) for name in NAMES}
    assert all("topic" in found for found in marked.values())
    with_json = {"validator.Block", "validator.Verdict", "validator.router.ChannelRequest"}
    assert {name for name in NAMES if "json" in marked[name]} == with_json
    for name in NAMES:
        schema, without = schemas()[name], make_schema(_without_attributes(schemas()[name].source))
        assert (schema.canonical, schema.header, schema.parsed) == (without.canonical, without.header, without.parsed)
        assert (schema.topic, without.topic) == (schema.source["topic"], None)


def _attributes(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return {found for each in schema for found in _attributes(each)}
    if not isinstance(schema, dict):
        return set()
    own = {"topic", "json"} & schema.keys()
    below = (_attributes(schema[key]) for key in ("type", "items", "values", "fields") if key in schema)
    return own.union(*below)


def _without_attributes(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_attributes(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _without_attributes(value) for key, value in schema.items() if key not in {"topic", "json"}}


def test_types_have_no_attribute_but_a_logical_type() -> None:
    """In a union goavro keeps the braces of a type that has others, and so takes another fingerprint than the specification."""
    names = {"type", "logicalType"}
    assert [each for name in NAMES for each in _simple(schemas()[name].source) if not each.keys() <= names] == []
    assert _simple({"type": ["null", {"type": "long", "maximum": 5}]}) == [{"type": "long", "maximum": 5}]


def _simple(schema: Any) -> list[dict[str, Any]]:
    """Return the types within a schema that are objects with the name of a simple type."""
    if isinstance(schema, list):
        return [found for each in schema for found in _simple(each)]
    if not isinstance(schema, dict):
        return []
    own = (
        [schema] if "name" not in schema and isinstance(schema.get("type"), str) and not schema.keys() & _PARTS else []
    )
    return [*own, *(found for key in ("type", *sorted(_PARTS)) for found in _simple(schema.get(key)))]


_PARTS = {"items", "values", "fields"}
"""Where the schemas of parts stand."""


def _undocumented(schema: Any, path: str) -> list[str]:
    if isinstance(schema, list):
        return [each for branch in schema for each in _undocumented(branch, path)]
    if not isinstance(schema, dict):
        return []
    missing = [] if "name" not in schema or schema.get("doc", "").strip() else [path]
    for field in schema.get("fields", ()):
        field_path = f"{path}.{field['name']}"
        missing += [] if field.get("doc", "").strip() else [field_path]
        missing += _undocumented(field["type"], field_path)
    for part in ("items", "values", "type"):
        missing += _undocumented(schema.get(part), path)
    return missing


@pytest.mark.parametrize("name", NAMES)
def test_every_record_and_field_is_documented(name: str) -> None:
    assert _undocumented(schemas()[name].source, name) == []


def test_undocumented_fields_are_found() -> None:
    inner = {"type": "record", "name": "R", "doc": "d", "fields": [{"name": "b", "type": "long"}]}
    schema = {"type": "record", "name": "S", "fields": [{"name": "a", "doc": "d", "type": ["null", inner]}]}
    assert _undocumented(schema, "S") == ["S", "S.a.b"]


def test_configuration_in_block_has_fields_of_core() -> None:
    block = json.loads(schemas()["validator.Block"].canonical)
    change = next(field for field in block["fields"] if field["name"] == "session_change")["type"][1]
    config = next(field for field in change["fields"] if field["name"] == "new_config")["type"][1]
    assert tuple(field["name"] for field in config["fields"]) == (*CONFIGURATION_FIELDS, *LATER_FIELDS) == tuple(MAXIMA)


def test_limits_in_block_have_maxima_of_protocol() -> None:
    change = next(field for field in schemas()["validator.Block"].source["fields"] if field["name"] == "session_change")
    config = next(field for field in change["type"][1]["fields"] if field["name"] == "new_config")["type"][1]
    kinds = {field["name"]: field["type"][1] for field in config["fields"]}
    maxima = {
        name: U128_MAX if kind == "validator.U128" else LONG_MAXIMA[kind["logicalType"]] for name, kind in kinds.items()
    }
    # an Avro long does not hold every u64
    assert maxima == {name: 2**63 - 1 if greatest == U64_MAX else greatest for name, greatest in MAXIMA.items()}


def test_receipt_in_lane_status_matches_receipt_schema() -> None:
    status = json.loads(schemas()["validator.LaneStatus"].canonical)
    inner = next(field for field in status["fields"] if field["name"] == "last_receipt")["type"][1]
    assert inner == json.loads(schemas()["validator.Receipt"].canonical)


def test_every_schema_meets_its_compatibility_policy() -> None:
    assert not any(check_schemas(schemas()).values())
    assert policy(schemas()["validator.Verdict"]) == FULL_TRANSITIVE
    assert policy(schemas()["validator.DryRunAnswer"]) == FULL_TRANSITIVE
    assert policy(schemas()["validator.DryRunRequest"]) == BACKWARD_TRANSITIVE
    assert policy(schemas()["validator.router.Candidate"]) == BACKWARD_TRANSITIVE


def _changed(tmp_path: Path, record: str, /, **field: Any) -> SchemaSet:
    """Return the shipped schemas with another version of one of them, which has one more field."""
    folder = tmp_path / "avro"
    shutil.copytree(schemas_directory(), folder)
    file = folder / f"{record}.avsc"
    schema = json.loads(file.read_text())
    earlier = folder / "versions" / record
    earlier.mkdir(parents=True, exist_ok=True)
    file.rename(earlier / f"{schemas()[record].version}.avsc")
    schema["fields"].append(field)
    file.write_text(json.dumps(schema))
    return SchemaSet.read(folder)


def test_new_field_without_default_is_incompatible(tmp_path: Path) -> None:
    problems = check_schemas(_changed(tmp_path, "validator.Verdict", name="mood", type="string"))
    assert problems.pop("validator.Verdict") == [
        f"cannot read version {number}: mood: the writer has no such field and the reader no default"
        for number in (1, 2)
    ]
    assert not any(problems.values())


def test_new_field_with_default_is_compatible(tmp_path: Path) -> None:
    changed = _changed(tmp_path, "validator.Verdict", name="mood", type=["null", "string"], default=None)
    assert not any(check_schemas(changed).values())
    assert [each.version for each in changed.versions["validator.Verdict"]] == [1, 2, 3]
    assert changed["validator.Verdict"].header != schemas()["validator.Verdict"].header


@pytest.mark.parametrize("number", ["0", "2", "01", "x"])
def test_earlier_versions_without_the_first_one_are_refused(tmp_path: Path, number: str) -> None:
    _changed(tmp_path, "validator.Receipt", name="mood", type=["null", "string"], default=None)
    earlier = tmp_path / "avro" / "versions" / "validator.Receipt" / "1.avsc"
    earlier.rename(earlier.with_name(f"{number}.avsc"))
    with pytest.raises(UserError, match=rf"Receipt\.avsc: expected earlier versions from 1 on, found {number}$"):
        SchemaSet.read(tmp_path / "avro")


def test_schema_file_with_wrong_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "validator.Other.avsc").write_text(json.dumps(schemas()["validator.Receipt"].source))
    with pytest.raises(UserError, match=r"expected the schema of 'validator\.Other'.*found 'validator\.Receipt'"):
        SchemaSet.read(tmp_path)


@pytest.mark.parametrize("content", ["{", '{"type": "record", "fields": []}', '"nothing"', "[]"])
def test_file_without_schema_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.avsc").write_text(content)
    with pytest.raises(UserError, match=r"x\.avsc: expected an Avro schema, found"):
        SchemaSet.read(tmp_path)


def test_schemas_command_lists_shows_and_checks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = CliRunner().invoke
    listed = [json.loads(line) for line in run(command.app, ["list", "--json"]).output.splitlines()]
    assert [row["name"] for row in listed if row["name"] in schemas().current] == [
        schema.name for topic in (*TOPICS, *DRY_RUN_TOPICS) for schema in schemas().of_topic(topic.name)
    ]
    assert "validator.Verdict" in run(command.app, ["list"]).output
    assert json.loads(run(command.app, ["show", "Verdict"]).output) == schemas()["validator.Verdict"].source
    assert (
        run(command.app, ["show", "Receipt", "--canonical"]).output.strip() == schemas()["validator.Receipt"].canonical
    )
    assert json.loads(run(command.app, ["show", "Verdict", "--version", "1"]).output)["name"] == "validator.Verdict"
    assert "expected a version from 1 to 2, found 9" in str(
        run(command.app, ["show", "Verdict", "--version", "9"]).exception
    )
    assert run(command.app, ["check"]).exit_code == exit_codes.OK

    broken = _changed(tmp_path, "validator.Receipt", name="mood", type="string")
    monkeypatch.setattr(command, "_installed", lambda: (broken, {}))
    result = run(command.app, ["check"])
    assert result.exit_code == exit_codes.DISAGREEMENT
    assert "FAIL validator.Receipt" in result.output
    result = run(command.app, ["check", "--json"])
    assert (result.exit_code, json.loads(result.output)["ok"]) == (exit_codes.DISAGREEMENT, False)


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
