# SPDX-License-Identifier: Apache-2.0
"""A schema registry: what registration leaves there, what jobs and readers find, and confluent-kafka's serializers both ways."""

from __future__ import annotations

import json
from io import BytesIO
from random import Random
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, topic_record_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from fastavro import parse_schema, schemaless_reader
from validator_simulators import SimulationSettings

from tests.avro_data import datum_of, written
from tests.codecs import codec_for
from tests.registries import OUTPUTS, TWO_VERSIONS, RegistryServer
from tests.unit.lanes.chains import chain
from validator.codec.decode import decode_record
from validator.codec.framing import id_header, plain_form
from validator.codec.schemas import HEADER_SIZE, Schema, schemas
from validator.config import Config
from validator.core.inputs import Source
from validator.errors import UserError
from validator.job.schema_ids import NO_IDS, records_of, register, schema_ids, subject_of
from validator.kafka.registry import Registry, plain_values
from validator.topics import INPUT_TOPICS

CODEC = codec_for()
RECORDS = records_of(CODEC)
BLOCK, VERDICT = (
    next(each for each in RECORDS if each.current.name == f"validator.{name}") for name in ("Block", "Verdict")
)
SCHEMA = schemas()["validator.Verdict"]
BODY = b"the same bytes"
UNKNOWN_ID = 2**31


@pytest.fixture
def registry(registry_server: RegistryServer) -> RegistryServer:
    registry_server.clear()
    return registry_server


def config(server: RegistryServer, **more: Any) -> Config:
    return Config(kafka={"bootstrap.servers": "k:1"}, topics={"prefix": "p."}, schema_registry={**server.table, **more})


def client(server: RegistryServer) -> SchemaRegistryClient:
    login = ":".join(server.table.get(each, "") for each in ("user", "password"))
    return SchemaRegistryClient({"url": server.url, "basic.auth.user.info": login})


# --- registration ---


def test_registering_twice_changes_nothing(registry: RegistryServer) -> None:
    first = list(register(config(registry), RECORDS))
    assert all(each.is_new for each in first)
    held = {subject: registry.schemas(subject) for subject in registry.subjects()}
    again = list(register(config(registry), RECORDS))
    assert {subject: registry.schemas(subject) for subject in registry.subjects()} == held
    assert [each._replace(is_new=True) for each in again] == first
    assert not any(each.is_new for each in again)


def test_versions_are_registered_in_their_order_with_their_compatibility(registry: RegistryServer) -> None:
    list(register(config(registry), RECORDS))
    for record in RECORDS:
        subject = subject_of(config(registry), record)
        assert subject == f"p.{record.topic}-{record.current.name}"
        assert registry.schemas(subject) == [each.source for each in record.versions]
        expected = "BACKWARD_TRANSITIVE" if record.topic in (*INPUT_TOPICS, "dry-run-requests") else "FULL_TRANSITIVE"
        assert registry.level(subject) == expected
    assert [each.version for each in register(config(registry), [TWO_VERSIONS])] == [1, 2]
    assert registry.schemas("p.channel-requests-a.Record") == [each.source for each in TWO_VERSIONS.versions]


def test_subjects_may_be_named_by_the_record_alone(registry: RegistryServer) -> None:
    list(register(config(registry, subjects="record"), RECORDS))
    assert registry.subjects() == {each.current.name for each in RECORDS}


def test_a_subject_with_another_schema_is_refused(registry: RegistryServer) -> None:
    subject = "p.blocks-validator.Block"
    registry.add(subject, {"type": "record", "name": "validator.Block", "fields": []})
    registry.set_level(subject, "BACKWARD")
    with pytest.raises(UserError, match=rf"^schema registry {registry.url}: subject {subject}: .+ \(HTTP 409\)$"):
        list(register(config(registry), RECORDS))


def test_compatibility_of_a_subject_that_exists_is_left_alone(registry: RegistryServer) -> None:
    registry.add("p.blocks-validator.Block", BLOCK.versions[0].source)
    first = next(iter(register(config(registry), [BLOCK])))
    assert not first.is_new
    assert first.compatibility == registry.level(), "that of all subjects"
    registry.set_level("p.blocks-validator.Block", "FORWARD")
    assert next(iter(register(config(registry), [BLOCK]))).compatibility == "FORWARD"


def test_versions_of_a_subject(registry: RegistryServer) -> None:
    first, second = (registry.add("s", {**SCHEMA.source, "doc": doc}) for doc in ("a", "b"))
    asked = Registry(config(registry).kafka)
    assert asked.numbers("s") == [1, 2]
    found = [asked.version("s", number) for number in (1, 2)]
    assert [(each.version, each.schema_id) for each in found if each is not None] == [(1, first), (2, second)]
    assert asked.numbers("none") == []
    assert asked.version("none", 1) is None


def test_address_that_is_no_registry_is_named(registry: RegistryServer) -> None:
    elsewhere = {**registry.table, "url": f"{registry.url}/elsewhere"}
    with pytest.raises(UserError, match="HTTP 404"):
        Registry(Config(schema_registry=elsewhere).kafka).subjects()


# --- what a job and other readers find ---


def test_job_knows_every_version_and_frames_what_it_emits(registry: RegistryServer) -> None:
    list(register(config(registry), RECORDS))
    found = schema_ids(config(registry, write="confluent"), RECORDS)
    known = {each.header for record in RECORDS for each in record.versions}
    assert set(found.headers.values()) == set(CODEC.by_header) & known
    assert {topic for topic, _ in found.frames} == OUTPUTS
    for (_, header), frame in found.frames.items():
        assert found.headers[frame] == header
    assert schema_ids(config(registry), RECORDS) == found._replace(frames={})


def test_ids_are_found_under_the_names_that_serializers_choose(registry: RegistryServer) -> None:
    """A producer that registers by itself names the subject after the topic, and its text is its own."""
    schema = schemas()["validator.router.Candidate"]
    own = registry.add("p.candidates-value", {**schema.source, "doc": "generated"})
    other = registry.add("validator.router.Candidate", schema.canonical)
    registry.add("somebody.else-value", {**schema.source, "doc": "elsewhere"})
    found = schema_ids(config(registry), RECORDS)
    assert found.headers == {id_header(own): schema.header, id_header(other): schema.header}


def test_of_equal_schemas_the_last_version_is_written(registry: RegistryServer) -> None:
    list(register(config(registry), RECORDS))
    last = registry.add("p.verdicts-validator.Verdict", {**SCHEMA.source, "doc": "other"})
    found = schema_ids(config(registry, write="confluent"), RECORDS)
    assert found.frames["verdicts", SCHEMA.header] == id_header(last)


def test_what_is_to_be_written_must_be_registered(registry: RegistryServer) -> None:
    expected = (
        rf"^schema registry {registry.url}: subject p\.[a-z-]+-validator\.\w+ has no version that equals our schema of validator\.\w+: "
        r"run `validator schemas register`$"
    )
    with pytest.raises(UserError, match=expected):
        schema_ids(config(registry, write="confluent"), RECORDS)
    assert schema_ids(config(registry), RECORDS) == NO_IDS


def test_reader_gives_values_their_plain_headers(registry: RegistryServer) -> None:
    known, unknown = id_header(registry.add("anything", SCHEMA.source)) + BODY, id_header(UNKNOWN_ID) + BODY
    plain = plain_values(config(registry).kafka)
    assert [plain(known), plain(unknown)] == [SCHEMA.header + BODY, unknown]


# --- confluent-kafka's serializers ---


FOLLOWS_THE_PAGE = {
    "auto.register.schemas": False,
    "use.latest.version": True,
    "subject.name.strategy": topic_record_subject_name_strategy,
}
"""Settings of a producer that docs/schema-registry.md names."""


def serialized(server: RegistryServer, topic: str, schema: Schema, datum: Any, settings: dict[str, Any]) -> bytes:
    write = AvroSerializer(client(server), json.dumps(schema.source), conf=settings)
    value = write(datum, SerializationContext(f"p.{topic}", MessageField.VALUE))
    assert isinstance(value, bytes)
    return value


def read(schema: Schema, body: bytes) -> Any:
    return schemaless_reader(BytesIO(body), parse_schema(schema.source), None)


def test_their_records_are_ours(registry: RegistryServer) -> None:
    """Of every topic; a lane takes the inputs of a chain as if they had been written in the plain form."""
    list(register(config(registry), RECORDS))
    headers = schema_ids(config(registry), RECORDS).headers
    rng = Random(7)
    for record in RECORDS:
        datum = datum_of(record.current.source, rng)
        value = serialized(registry, record.topic, record.current, datum, FOLLOWS_THE_PAGE)
        expected = record.current.header + written(parse_schema(record.current.source), datum)
        assert plain_form(value, headers) == expected, record.current.name
    both = CODEC.knowing(headers)
    played = chain(SimulationSettings(seed=5, blocks=4, candidates_per_block=4, session_length_blocks=3)).records
    assert {each.topic for each in played} == set(INPUT_TOPICS)
    for each in {each.topic: each for each in played}.values():
        schema, source = CODEC.by_header[each.value[:HEADER_SIZE]], Source(f"p.{each.topic}", 0, 7)
        value = serialized(registry, each.topic, schema, read(schema, each.value[HEADER_SIZE:]), FOLLOWS_THE_PAGE)
        assert value != each.value
        kind = INPUT_TOPICS[each.topic]
        assert decode_record(both, kind, value, source) == decode_record(CODEC, kind, each.value, source)


def test_records_of_a_serializer_that_registers_by_itself_are_ours(registry: RegistryServer) -> None:
    """With its default settings, as far as a topic has one sort of record."""
    datum = datum_of(BLOCK.current.source, Random(7))
    value = serialized(registry, "blocks", BLOCK.current, datum, {})
    assert registry.subjects() == {"p.blocks-value"}
    headers = schema_ids(config(registry), RECORDS).headers
    assert plain_form(value, headers) == BLOCK.current.header + written(parse_schema(BLOCK.current.source), datum)


def test_our_records_are_theirs(registry: RegistryServer) -> None:
    list(register(config(registry), RECORDS))
    frames = schema_ids(config(registry, write="confluent"), RECORDS).frames
    understand = AvroDeserializer(client(registry))
    rng = Random(8)
    emitted = [record for record in RECORDS if (record.topic, record.current.header) in frames]
    assert {record.topic for record in emitted} == OUTPUTS
    for record in emitted:
        body = written(parse_schema(record.current.source), datum_of(record.current.source, rng))
        value = frames[record.topic, record.current.header] + body
        found = understand(value, SerializationContext(f"p.{record.topic}", MessageField.VALUE))
        assert found == read(record.current, body), record.current.name
