# SPDX-License-Identifier: Apache-2.0
"""Avro is read in the one form in which it is written, and everything else is refused with its byte and field."""

from __future__ import annotations

import tracemalloc
from io import BytesIO
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from fastavro import schemaless_reader
from fastavro.schema import parse_schema

from tests.avro_data import datum_of, written
from tests.codecs import codec_for
from tests.unit.codec.examples import dead, read, value_of
from validator.codec.json_form import to_json
from validator.codec.schemas import HEADER_SIZE
from validator.codec.strict import ITEMS_MAX, NotCanonical, TooManyItems, strict_reader
from validator.core.inputs import DeadReason, RecordKind
from validator.errors import UserError

if TYPE_CHECKING:
    from validator.codec.schemas import Schema

PROTOCOLS = ("router", "xcmp", "xcmp-network", "early-hrmp")
EVERY_VERSION = sorted(codec_for(*PROTOCOLS).by_header.values(), key=lambda each: (each.name, each.version))
VALUES = 10
"""Values of each schema."""
RECORD = {
    "type": "record",
    "name": "t.Record",
    "fields": [
        {"name": "text", "type": "string"},
        {"name": "number", "type": "long"},
        {"name": "flag", "type": "boolean"},
        {"name": "maybe", "type": ["null", "long"]},
        {"name": "kind", "type": {"type": "enum", "name": "t.Kind", "symbols": ["a", "b"]}},
        {"name": "list", "type": {"type": "array", "items": "long"}},
        {"name": "map", "type": {"type": "map", "values": "long"}},
        {"name": "hash", "type": {"type": "fixed", "name": "t.Two", "size": 2}},
        {"name": "real", "type": "double"},
        {"name": "small", "type": "int"},
    ],
}
PARTS = {
    "text": "02 61", "number": "02", "flag": "01", "maybe": "02 04", "kind": "02", "list": "04 02 04 00", "map": "02 02 6b 02 00",
    "hash": "01 02", "real": "00" * 8, "small": "02",
}  # fmt: skip


def spelt(**changes: str) -> bytes:
    return bytes.fromhex("".join({**PARTS, **changes}.values()))


def reader() -> Any:
    return strict_reader(parse_schema(RECORD, {}))


def test_what_is_written_is_read() -> None:
    assert reader()(spelt(), 0) == {
        "text": "a", "number": 1, "flag": True, "maybe": 2, "kind": "b", "list": [1, 2], "map": {"k": 1}, "hash": b"\1\2", "real": 0.0,
        "small": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("part", "bytes_", "field", "at", "expected"),
    [
        pytest.param("number", "8200", "number", 3, "shortest form", id="an overlong integer"),
        pytest.param("number", "828000", "number", 4, "shortest form", id="an integer with two superfluous bytes"),
        pytest.param("number", "ffffffffffffffffff03", "number", 11, "64 bits", id="an integer of 65 bits"),
        pytest.param("number", "ff" * 10 + "01", "number", 11, "64 bits", id="an integer of eleven bytes"),
        pytest.param("text", "820061", "text", 1, "shortest form", id="an overlong length"),
        pytest.param("text", "01", "text", 0, "a length from 0", id="a length of -1"),
        pytest.param("text", "ff7f", "text", 0, "a length from 0", id="a length beyond the end"),
        pytest.param("text", "06 61 ff 61", "text", 2, "UTF-8", id="invalid UTF-8"),
        pytest.param("text", "06 ed a0 80", "text", 1, "UTF-8", id="a surrogate in UTF-8"),
        pytest.param("text", "04 c0 80", "text", 1, "UTF-8", id="an overlong character"),
        pytest.param("flag", "02", "flag", 3, "0 or 1", id="a boolean of 2"),
        pytest.param("flag", "ff", "flag", 3, "0 or 1", id="a boolean of 255"),
        pytest.param("maybe", "01", "maybe", 4, "a branch from 0 to 1", id="a branch of -1"),
        pytest.param("maybe", "04", "maybe", 4, "a branch from 0 to 1", id="a branch too many"),
        pytest.param("maybe", "8200 04", "maybe", 5, "shortest form", id="an overlong branch"),
        pytest.param("kind", "01", "kind", 6, "a symbol from 0 to 1", id="a symbol of -1"),
        pytest.param("kind", "04", "kind", 6, "a symbol from 0 to 1", id="a symbol too many"),
        pytest.param("kind", "8000", "kind", 7, "shortest form", id="an overlong symbol"),
        pytest.param("list", "03 04 02 04 00", "list", 7, "a count from 0", id="a negative count with a size"),
        pytest.param("list", "02 02 02 04 00", "list", 9, "the end of a list", id="two blocks"),
        pytest.param("list", "04 02 8400 00", "list[1]", 10, "shortest form", id="an overlong integer in a list"),
        pytest.param("list", "04 02 04 8000", "list", 10, "the end of a list", id="an overlong end of a list"),
        pytest.param("list", "8000", "list", 8, "shortest form", id="an overlong empty list"),
        pytest.param("map", "04 02 6b 02 02 6b 02 00", "map", 15, "each key once", id="a key twice"),
        pytest.param("map", "02 02 6b 02 02 02 6c 02 00", "map", 15, "the end of a list", id="a map of two blocks"),
        pytest.param("map", "02 02 6b 8200 00", "map.k", 15, "shortest form", id="an overlong integer in a map"),
        pytest.param("real", "000000000000f87f", "real", 18, "a number", id="NaN"),
        pytest.param("small", "80808080 10", "small", 26, "32 bits", id="an int of 33 bits"),
        pytest.param("small", "02 00", "", 27, "the end of the record", id="a byte too many"),
        pytest.param("small", "", "small", 26, "an integer", id="a byte too few"),
    ],
)
def test_another_form_is_refused(part: str, bytes_: str, field: str, at: int, expected: str) -> None:
    with pytest.raises(NotCanonical) as caught:
        reader()(spelt(**{part: bytes_}), 0)
    assert (caught.value.field, caught.value.at) == (field, at)
    assert expected in caught.value.expected


def test_every_shorter_record_is_refused() -> None:
    whole = spelt()
    for size in range(len(whole)):
        with pytest.raises(NotCanonical):
            reader()(whole[:size], 0)


@pytest.mark.parametrize("at", [2**6, 2**13])
def test_a_list_in_two_blocks_of_the_same_length_is_refused(at: int) -> None:
    whole = written({"type": "array", "items": "long"}, [1] * at)
    split = (
        _long(at - 1) + b"\x02" * (at - 1) + _long(1) + b"\x02" + b"\0"
    )  # as long as in one block, which the length does not show
    assert len(split) == len(whole)
    numbers = strict_reader({"type": "array", "items": "long"})
    assert numbers(whole, 0) == [1] * at
    with pytest.raises(NotCanonical):
        numbers(split, 0)


def _long(value: int) -> bytes:
    return written("long", value)


def test_items_are_counted_before_they_are_built() -> None:
    lists = strict_reader({"type": "array", "items": {"type": "array", "items": "long"}})
    inner = _long(ITEMS_MAX // 4) + b"\x02" * (ITEMS_MAX // 4) + b"\0"
    assert len(lists(_long(3) + inner * 3 + b"\0", 0)) == 3
    with pytest.raises(TooManyItems):
        lists(_long(4) + inner * 4 + b"\0", 0)
    value = _long(8 * ITEMS_MAX) + b"\0" * 8 * ITEMS_MAX + b"\0"
    tracemalloc.start()
    with pytest.raises(TooManyItems):
        lists(value, 0)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_schemas_without_use_are_refused() -> None:
    with pytest.raises(ValueError, match="take no byte"):
        strict_reader({"type": "array", "items": "null"})
    itself = {"type": "record", "name": "t.Self", "fields": [{"name": "next", "type": ["null", "t.Self"]}]}
    with pytest.raises(ValueError, match="contains itself"):
        strict_reader(itself)


# --- the schemas of all records -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", EVERY_VERSION, ids=lambda each: f"{each.name}-{each.version}")
def test_every_record_is_read_as_fastavro_reads_it(schema: Schema) -> None:
    rng = Random(schema.canonical)
    plain, named = strict_reader(schema.parsed), strict_reader(schema.parsed, name_records=True)
    for _ in range(VALUES):
        value = written(schema.parsed, datum_of(schema.parsed, rng))
        assert plain(value, 0) == schemaless_reader(BytesIO(value), schema.parsed, None)
        assert written(schema.parsed, named(value, 0)) == value


def test_a_dead_letter_names_the_field_and_the_byte() -> None:
    value = value_of(RecordKind.CANDIDATE)
    read(RecordKind.CANDIDATE, value)
    at = HEADER_SIZE + len("polkadot") + 1
    letter = dead(RecordKind.CANDIDATE, value[:at] + b"\xa2\x00" + value[at + 1 :])
    assert letter.reason is DeadReason.UNDECODABLE
    assert letter.detail == (
        "validator.router.Candidate.block: expected the last byte of an integer in its shortest form at byte 20, found zero"
    )


def test_a_command_says_where_an_output_has_another_form() -> None:
    header = codec_for().schemas["validator.Verdict"].header
    with pytest.raises(UserError, match=r"verdicts: validator.Verdict.lane: expected .* shortest form at byte 11"):
        to_json("verdicts", header + b"\x82\x00a", codec_for())
