# SPDX-License-Identifier: Apache-2.0
"""The quick way from JSON to a record gives what the careful one gives, and leaves to it whatever is unusual."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import avro_data
from tests.codecs import codec_for
from tests.unit.codec.records import INPUTS
from validator.codec import json_form
from validator.codec.json_form import UNUSUAL, QuickWriter, datum_to_json, encode_input, quick_writer
from validator.codec.schemas import HEADER_SIZE, make_schema
from validator.codec.strict import ITEMS_MAX, strict_reader
from validator.core.inputs import RecordKind
from validator.errors import UserError

if TYPE_CHECKING:
    from validator.codec.schemas import Schema

CURRENT = sorted(codec_for("router", "xcmp", "xcmp-network", "early-hrmp").schemas.values(), key=lambda each: each.name)
SLOW = {
    "validator.Verdict",
    "validator.early_hrmp.ChannelRequest",
    "validator.router.ChannelRequest",
    "validator.xcmp.ChannelRequest",
    "validator.xcmp_network.Candidate",
    "validator.xcmp_network.ChannelRequest",
}
"""Schemas whose JSON is not an object of their fields, or with unions of several types."""
RECORD: Any = {
    "type": "record",
    "name": "t.Record",
    "fields": [
        {"name": "text", "type": "string"},
        {"name": "number", "type": {"type": "long", "logicalType": "u32", "maximum": 9}},
        {"name": "flag", "type": "boolean"},
        {"name": "maybe", "type": ["null", "bytes"]},
        {"name": "first", "type": ["long", "null"]},
        {"name": "kind", "type": {"type": "enum", "name": "t.Kind", "symbols": ["a", "b"]}},
        {"name": "lists", "type": {"type": "array", "items": {"type": "array", "items": "long"}}},
        {"name": "map", "type": {"type": "map", "values": "bytes"}},
        {"name": "hash", "type": {"type": "fixed", "name": "t.Two", "size": 2}},
        {"name": "wide", "type": {"type": "fixed", "name": "t.Wide", "size": 8, "logicalType": "u64"}},
    ],
}  # fmt: skip
GOOD: dict[str, Any] = {
    "text": "ä", "number": 9, "flag": True, "maybe": "00ff", "first": -65, "kind": "b", "lists": [[], [1, 2]], "map": {"k": "01"},
    "hash": "0102", "wide": 2**64 - 1,
}  # fmt: skip


def quick(source: Any = RECORD) -> QuickWriter:
    schema = make_schema(source)
    found = quick_writer(schema.source, schema.header, json_form._is_plain)
    assert found is not None
    return found


@pytest.mark.parametrize("schema", CURRENT, ids=lambda each: each.name)
def test_every_schema_is_written_as_the_careful_way_does(schema: Schema, monkeypatch: pytest.MonkeyPatch) -> None:
    write = json_form._quick(schema)
    if write is None:
        assert schema.name in SLOW
        return
    monkeypatch.setattr(avro_data, "_LONGS", (0, 1, 2, 63, 64, 8_191, 8_192, 2**31, 2**32 - 1))
    random = Random(schema.name)
    quickly = 0
    for _ in range(40):
        value = schema.header + avro_data.written(schema.parsed, avro_data.datum_of(schema.parsed, random))
        datum = strict_reader(schema.parsed)(value, HEADER_SIZE)
        record = datum_to_json(schema, datum)
        try:
            assert write(record) == (value, datum)
            quickly += 1
        except UNUSUAL:
            assert "sparse" in str(schema.source)  # an object without its null fields
    assert quickly > 5


@given(st.data(), st.sampled_from(RecordKind))
def test_inputs_are_encoded_alike(data: st.DataObject, kind: RecordKind) -> None:
    record = data.draw(INPUTS[kind])
    codec = codec_for()
    value = encode_input(codec, kind, record, "router")
    assert value == json_form._encoded(codec.input_schema(kind, "router"), record)


def test_what_is_usual_is_written() -> None:
    value, datum = quick()(GOOD)
    assert datum == {**GOOD, "maybe": b"\0\xff", "map": {"k": b"\1"}, "hash": b"\1\2", "wide": b"\xff" * 8}
    assert value == json_form._encoded(make_schema(RECORD), GOOD)
    assert strict_reader(make_schema(RECORD).parsed)(value, HEADER_SIZE) == datum


@pytest.mark.parametrize(
    "changes",
    [
        {"text": 1}, {"text": "\ud800"}, {"number": True}, {"number": 10}, {"number": -1}, {"number": 1.0}, {"number": "1"},
        {"flag": 1}, {"flag": None}, {"maybe": "0xff"}, {"maybe": "FF"}, {"maybe": "f"}, {"maybe": "ff ff"}, {"maybe": b"ff"},
        {"first": 2**63}, {"first": "x"}, {"kind": "c"}, {"kind": []}, {"lists": None}, {"lists": {}}, {"lists": [1]},
        {"lists": ([1],)}, {"map": []}, {"map": {1: "01"}}, {"map": {"k": 1}}, {"map": {"\ud800": "01"}}, {"hash": "010203"},
        {"hash": None}, {"wide": -1}, {"wide": 2**64}, {"wide": True}, {"more": 1}, {"lists": [[0] * ITEMS_MAX]},
    ],
    ids=lambda each: str(each)[:40].encode("unicode_escape").decode(),
)  # fmt: skip
def test_what_is_unusual_is_left_to_the_careful_way(changes: dict[str, Any]) -> None:
    with pytest.raises(UNUSUAL):
        quick()({**GOOD, **changes})


@pytest.mark.parametrize("name", GOOD)
def test_a_record_that_lacks_a_field_is_left_to_the_careful_way(name: str) -> None:
    with pytest.raises(UNUSUAL):
        quick()({each: value for each, value in GOOD.items() if each != name})


@pytest.mark.parametrize("record", [None, [], "x", 1])
def test_what_is_no_object_is_left_to_the_careful_way(record: Any) -> None:
    with pytest.raises(UNUSUAL):
        quick()(record)


def test_unusual_schemas_have_no_quick_way() -> None:
    inner = {"type": "record", "name": "t.Pair", "json": "pair", "fields": [{"name": "a", "type": "long"}]}
    itself = {"type": ["null", "t.Outer"]}
    for type_ in (inner, "double", ["null", "long", "string"], itself["type"]):
        source = {"type": "record", "name": "t.Outer", "fields": [{"name": "x", "type": type_}]}
        assert quick_writer(source, b"", json_form._is_plain) is None


def test_ranges_are_those_of_a_decoded_record() -> None:
    record = {
        "lane": "polkadot", "block": 0, "index": 0, "para_id": 1, "relay_parent_number": None, "hrmp_watermark": 0,
        "upward_messages": [], "processed_downward_messages": 0, "horizontal_messages": [], "candidate_hash": None,
    }  # fmt: skip
    codec = codec_for()
    for changes, text in (
        ({}, "relay_parent_number: expected a block number, since block 0"),
        ({"block": 1, "lane": ""}, "lane: expected 1 to"),
        ({"block": 1, "index": 65_536}, "index: expected 0 to 65535"),
        ({"block": 1, "upward_messages": [""] * 4_097}, "upward_messages: expected at most 4096 messages"),
    ):
        with pytest.raises(UserError, match=text):
            encode_input(codec, RecordKind.CANDIDATE, {**record, **changes}, "router")
