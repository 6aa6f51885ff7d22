# SPDX-License-Identifier: Apache-2.0
"""Records in Confluent's framing are the records of the plain form, whatever is wrong with them."""

from __future__ import annotations

import json
from random import Random

import pytest
from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.serde import SchemaId
from validator_simulators import SimulationSettings

from tests.codecs import codec_for, encoded
from tests.unit.lanes.chains import chain
from validator.codec.arrivals import arrival
from validator.codec.decode import decode_record
from validator.codec.framing import (
    ID_MAX,
    SCHEMA_CHARACTERS_MAX,
    framed_id,
    id_header,
    plain_form,
    plain_header,
)
from validator.codec.orders import LaneOrder, encode_order
from validator.codec.schemas import HEADER_SIZE, schemas
from validator.core.inputs import DeadLetter, DeadReason, RecordKind, Source
from validator.core.limits import RECORD_BYTES_MAX
from validator.topics import INPUT_TOPICS

SOURCE = Source("t.candidates", 0, 7)
PLAIN = codec_for()
IDS = {id_header(100_000 + number): header for number, header in enumerate(sorted(PLAIN.by_header))}
FRAMES = {plain: header for header, plain in IDS.items()}
BOTH = PLAIN.knowing(IDS)
CHAIN = chain(SimulationSettings(seed=5, blocks=6, candidates_per_block=4, session_length_blocks=3))


def framed(value: bytes) -> bytes:
    return FRAMES[value[:HEADER_SIZE]] + value[HEADER_SIZE:]


def test_framed_records_are_the_plain_ones() -> None:
    """Also their raw bytes and fingerprints: a record that arrives in both forms is a duplicate."""
    assert len({each.topic for each in CHAIN.records}) == len(INPUT_TOPICS)
    for each in CHAIN.records:
        kind = INPUT_TOPICS[each.topic]
        assert decode_record(BOTH, kind, framed(each.value), SOURCE) == decode_record(PLAIN, kind, each.value, SOURCE)


def test_what_is_wrong_with_a_framed_record_is_what_is_wrong_with_the_plain_one() -> None:
    rng = Random(11)
    outcomes = set()
    for each in CHAIN.records:
        kind = INPUT_TOPICS[each.topic]
        for _ in range(3):
            at = rng.randrange(HEADER_SIZE, len(each.value))
            value = each.value[:at] + bytes([rng.randrange(256)]) + each.value[at + 1 : rng.choice([None, -1])]
            found = decode_record(BOTH, kind, framed(value), SOURCE)
            assert found == decode_record(PLAIN, kind, value, SOURCE)
            outcomes.add(type(found))
    assert outcomes == {tuple, DeadLetter}


def test_framed_record_of_another_topic_is_named() -> None:
    value = framed(next(each.value for each in CHAIN.records if each.topic == "blocks"))
    letter = decode_record(BOTH, RecordKind.CANDIDATE, value, SOURCE)
    assert isinstance(letter, DeadLetter)
    assert letter.detail.endswith("found one of validator.Block")


def test_size_limit_counts_the_plain_form() -> None:
    header = FRAMES[PLAIN.input_schema(RecordKind.CANDIDATE, "router").header]
    letter = decode_record(BOTH, RecordKind.CANDIDATE, header + bytes(RECORD_BYTES_MAX - HEADER_SIZE + 1), SOURCE)
    assert isinstance(letter, DeadLetter)
    assert (letter.reason, letter.detail) == (
        DeadReason.LIMIT,
        f"expected at most {RECORD_BYTES_MAX} bytes, found {RECORD_BYTES_MAX + 1}",
    )


def test_unknown_id_is_a_dead_letter_with_the_bytes_that_were_sent() -> None:
    value = id_header(7) + b"something"
    letter = decode_record(BOTH, RecordKind.CANDIDATE, value, SOURCE, b"polkadot")
    assert letter == DeadLetter(
        "polkadot",
        DeadReason.UNKNOWN_SCHEMA,
        "expected the id of a schema of validator.router.Candidate, found 7, which the schema registry did not have when it was asked",
        SOURCE,
        value,
    )


def test_without_a_registry_a_framed_record_has_an_unknown_form() -> None:
    value = framed(encoded("blocks", {"lane": "polkadot", "block": 1, "candidates": 0, "requests": 0, "downward": 0}))
    letter = decode_record(PLAIN, RecordKind.BLOCK, value, SOURCE)
    assert isinstance(letter, DeadLetter)
    assert letter.reason == DeadReason.UNDECODABLE
    assert f"bytes that start with {value[:HEADER_SIZE].hex()}" in letter.detail


def test_orders_are_read_in_both_forms() -> None:
    value = encode_order("polkadot", frozenset({SOURCE}))
    lanes = {"polkadot": None}
    found = [
        arrival(BOTH, RecordKind.BLOCK, form, SOURCE, None, lanes)  # type: ignore[arg-type]
        for form in (value, framed(value))
    ]
    assert found[0] == found[1]
    assert isinstance(found[0][1], LaneOrder)


def test_header_is_that_of_the_registrys_own_client() -> None:
    made = SchemaId("AVRO")
    made.id = 100_001
    assert id_header(100_001) == made.id_to_bytes() == b"\0\0\x01\x86\xa1"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(b"", None), (b"\0\0\0\0", None), (b"\0\0\0\0\1", 1), (b"\xc3\1abcdefgh", None), (b"\0" + b"\xff" * 4, ID_MAX)],
)
def test_id_of_a_value(value: bytes, expected: int | None) -> None:
    assert framed_id(value) == expected
    assert plain_form(value, {}) is value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        '{"type": "record"}',
        '{"type": "nonsense"}',
        "[" * 100_000,
        '"' + "x" * SCHEMA_CHARACTERS_MAX,
    ],
)
def test_what_is_no_avro_schema_has_no_header(text: str) -> None:
    assert plain_header(text) in (None, plain_header("[]"))


def test_header_of_a_schema_does_not_depend_on_its_documentation() -> None:
    schema = schemas()["validator.Verdict"]
    bare = {**schema.source, "doc": "other", "aliases": ["v.V"]}
    assert plain_header(json.dumps(bare)) == plain_header(Schema(json.dumps(schema.source), "AVRO").schema_str or "")
    assert plain_header(schema.canonical) == schema.header
