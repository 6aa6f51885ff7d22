# SPDX-License-Identifier: Apache-2.0
"""Records to JSON and back; the quick way from JSON gives what the careful one gives, and leaves to it whatever is unusual."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import avro_data
from tests.codecs import codec_for, decoded, encoded
from tests.unit.codec.records import INPUTS, REQUESTS
from validator.codec import json_form
from validator.codec.json_form import (
    UNUSUAL,
    QuickWriter,
    datum_to_json,
    encode_input,
    encode_json,
    quick_writer,
    to_json,
)
from validator.codec.schemas import HEADER_SIZE, make_schema, schemas
from validator.codec.strict import ITEMS_MAX, strict_reader
from validator.core import limits
from validator.core.inputs import DeadLetter, RecordKind, Source
from validator.core.records import block_record
from validator.core.types import DownwardMessage
from validator.errors import UserError
from validator.protocols.router import records
from validator.protocols.router.configuration import LATER_FIELDS, MAXIMA
from validator.protocols.router.records import CancelOpenRequest, CloseChannel, ServiceOverweight
from validator.topics import TOPIC_OF_KIND

if TYPE_CHECKING:
    from validator.codec.schemas import Schema


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=5,
)


@given(st.data(), st.sampled_from(RecordKind))
def test_json_survives_avro_and_core(data: st.DataObject, kind: RecordKind) -> None:
    record = data.draw(INPUTS[kind])
    value = encoded(kind, record)
    assert to_json(TOPIC_OF_KIND[kind], value, codec_for()) == record
    assert encoded(kind, json.loads(json.dumps(record))) == value

    result = decoded(kind, value, Source("t", 0, 0))
    assert not isinstance(result, DeadLetter)
    lane, item = result
    assert (lane, item.block, item.index) == (record["lane"], record["block"], record.get("index", 0))
    assert AS_JSON[kind](item.fields) == _with_numbers(kind, record)


def _with_numbers(kind: RecordKind, record: dict[str, Any]) -> dict[str, Any]:
    """Return the record without lane, block and index, with null parents and configurations written out."""
    expected = {name: value for name, value in record.items() if name not in ("lane", "index", "block")}
    parent = {RecordKind.CANDIDATE: "relay_parent_number", RecordKind.BLOCK: "parent_number"}.get(kind)
    if parent and record[parent] is None:
        expected[parent] = record["block"] - 1
    if kind is RecordKind.BLOCK and record["session_change"] is not None:
        expected["session_change"] = {
            **record["session_change"],
            "new_config": {**(record["session_change"]["new_config"] or {}), **record["session_change"]["limits"]},
        }
        del expected["session_change"]["limits"]
    return expected


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def _candidate(fields: tuple[Any, ...]) -> dict[str, Any]:
    candidate = records.candidate(fields)
    return {
        **candidate._asdict(),
        "upward_messages": [message.hex() for message in candidate.upward_messages],
        "horizontal_messages": [
            {"recipient": message.recipient, "data": message.data.hex()} for message in candidate.horizontal_messages
        ],
        "candidate_hash": _hex(candidate.candidate_hash),
    }


def _downward(fields: tuple[Any, ...]) -> dict[str, Any]:
    message = DownwardMessage._make(fields)
    return {"para_id": message.para_id, "msg": message.msg.hex()}


def _request(fields: tuple[Any, ...]) -> dict[str, Any]:
    request = records.request(fields)
    arguments = request._asdict()
    if isinstance(request, CloseChannel | CancelOpenRequest):
        arguments["channel"] = list(request.channel)
    if isinstance(request, ServiceOverweight):
        arguments["message_index"] = arguments.pop("index")
    return {"kind": records.KINDS[type(request)], **arguments}


def _block(fields: tuple[Any, ...]) -> dict[str, Any]:
    record = block_record(fields)
    change = record.session_change
    return {
        "parent_number": record.parent_number,
        "block_hash": _hex(record.block_hash),
        "candidates": record.candidates,
        "requests": record.requests,
        "downward": record.downward,
        "included": [ref._asdict() for ref in record.included],
        "timed_out": [ref._asdict() for ref in record.timed_out],
        "session_change": change
        and {
            "outgoing": list(change.outgoing),
            "onboarding": [
                {"para_id": para.para_id, "kind": para.kind.value, "balance": para.balance}
                for para in change.onboarding
            ],
            "new_config": dict(change.new_config),
        },
    }


AS_JSON = {
    RecordKind.BLOCK: _block,
    RecordKind.REQUEST: _request,
    RecordKind.DOWNWARD: _downward,
    RecordKind.CANDIDATE: _candidate,
}

DOWNWARD = {"lane": "polkadot", "block": 17, "index": 0, "para_id": 2000, "msg": "00ff"}
REQUEST = {"lane": "polkadot", "block": 17, "index": 0, "kind": "close_channel", "origin": 1, "channel": [1, 2]}
SERVICE = {
    "lane": "polkadot",
    "block": 17,
    "index": 0,
    "kind": "service_overweight",
    "para_id": 2000,
    "page": 1,
    "message_index": 2,
    "weight_limit": 2**64 - 1,
}
U32_OVER = limits.U32_MAX + 1
CANDIDATE = {"lane": "polkadot", "block": 17, "index": 0, "para_id": 2000, "hrmp_watermark": 16}
BLOCK = {"lane": "polkadot", "block": 17, "candidates": 0, "requests": 0, "downward": 0}


@given(st.data(), st.sampled_from(sorted(REQUESTS)))
def test_request_of_every_kind_survives_avro_and_core(data: st.DataObject, kind: str) -> None:
    record = {"lane": "polkadot", "block": 17, "index": 3, "kind": kind}
    record |= {name: data.draw(argument) for name, argument in REQUESTS[kind].items()}
    value = encoded(RecordKind.REQUEST, record)
    assert to_json("channel-requests", value, codec_for()) == record
    result = decoded(RecordKind.REQUEST, value, Source("t", 0, 0))
    assert not isinstance(result, DeadLetter)
    assert AS_JSON[RecordKind.REQUEST](result[1].fields) == _with_numbers(RecordKind.REQUEST, record)


def test_every_request_of_the_router_has_a_json_form() -> None:
    assert list(REQUESTS) == list(records.REQUESTS)


@pytest.mark.parametrize("name", LATER_FIELDS)
def test_limit_of_later_rules_in_json_is_absent_null_or_a_number(name: str) -> None:
    for limit in (0, MAXIMA[name]):
        record = {**BLOCK, "session_change": {"new_config": {name: limit}}}
        document = to_json("blocks", encoded(RecordKind.BLOCK, record))
        assert document["session_change"]["new_config"] == {name: limit}
    null, absent = (
        encoded(RecordKind.BLOCK, {**BLOCK, "session_change": {"new_config": change}}) for change in ({name: None}, {})
    )
    assert null == absent
    assert to_json("blocks", null)["session_change"]["new_config"] == {}


def test_missing_fields_take_their_defaults() -> None:
    full = to_json("candidates", encoded(RecordKind.CANDIDATE, CANDIDATE), codec_for())
    assert full == {
        **CANDIDATE,
        "relay_parent_number": None,
        "upward_messages": [],
        "processed_downward_messages": 0,
        "horizontal_messages": [],
        "candidate_hash": None,
    }
    change = {"onboarding": [{"para_id": 7}]}
    document = to_json("blocks", encoded(RecordKind.BLOCK, {**BLOCK, "session_change": change}))
    onboarding = [{"para_id": 7, "kind": "parachain", "balance": 0}]
    assert document["session_change"] == {"outgoing": [], "onboarding": onboarding, "new_config": None, "limits": {}}


@pytest.mark.parametrize(
    ("kind", "record", "expected_error"),
    [
        (RecordKind.DOWNWARD, [1], "record: expected an object, found [1]"),
        (RecordKind.DOWNWARD, None, "record: expected an object, found None"),
        (
            RecordKind.DOWNWARD,
            {**DOWNWARD, "kind": "init_open_channel"},
            "kind: no such field; only channel requests have a kind",
        ),
        (
            RecordKind.REQUEST,
            {key: value for key, value in REQUEST.items() if key != "kind"},
            "kind: expected one of init_open_channel, accept_open_channel, ",
        ),
        (RecordKind.DOWNWARD, {**DOWNWARD, "blok": 5}, "blok: no such field; did you mean 'block'?"),
        (
            RecordKind.DOWNWARD,
            {**DOWNWARD, "zzz": 5},
            "zzz: no such field; known are lane, block, index, para_id, msg",
        ),
        (RecordKind.DOWNWARD, {"lane": "polkadot"}, "block: expected a value, found none"),
        (
            RecordKind.DOWNWARD,
            {**DOWNWARD, "block": "17"},
            "block: expected an integer from 0 to 4294967295, found '17'",
        ),
        (
            RecordKind.DOWNWARD,
            {**DOWNWARD, "block": True},
            "block: expected an integer from 0 to 4294967295, found True",
        ),
        (RecordKind.DOWNWARD, {**DOWNWARD, "block": 1.0}, "block: expected an integer from 0 to 4294967295, found 1.0"),
        (RecordKind.DOWNWARD, {**DOWNWARD, "block": -1}, "block: expected an integer from 0 to 4294967295, found -1"),
        (RecordKind.DOWNWARD, {**DOWNWARD, "index": 65_536}, "index: expected 0 to 65535, found 65536"),
        (RecordKind.DOWNWARD, {**DOWNWARD, "lane": ""}, "lane: expected 1 to 64 characters, found 0"),
        (RecordKind.DOWNWARD, {**DOWNWARD, "lane": 5}, "lane: expected a string, found 5"),
        (RecordKind.DOWNWARD, {**DOWNWARD, "lane": "\ud800"}, "lane: expected Unicode text, found '\\ud800'"),
        (RecordKind.DOWNWARD, {**DOWNWARD, "msg": "0"}, "msg: expected an even number of hex digits, found '0'"),
        (RecordKind.DOWNWARD, {**DOWNWARD, "msg": "0x0"}, "msg: expected an even number of hex digits, found '0x0'"),
        (RecordKind.DOWNWARD, {**DOWNWARD, "msg": None}, "msg: expected hex, found None"),
        (
            RecordKind.DOWNWARD,
            {**DOWNWARD, "msg": "x" * 999},
            f"msg: expected hex, found '{'x' * 56}...",
        ),
        (
            RecordKind.CANDIDATE,
            {**CANDIDATE, "horizontal_messages": [{"recipient": 1, "data": ""}, {"recipient": 2}]},
            "horizontal_messages[1].data: expected a value, found none",
        ),
        (
            RecordKind.CANDIDATE,
            {**CANDIDATE, "upward_messages": "00"},
            "upward_messages: expected a list, found '00'",
        ),
        (
            RecordKind.CANDIDATE,
            {**CANDIDATE, "candidate_hash": "00"},
            "candidate_hash: expected 32 bytes in hex, found '00'",
        ),
        (
            RecordKind.REQUEST,
            {**REQUEST, "kind": "close"},
            f"kind: expected one of {', '.join(REQUESTS)}, found 'close'",
        ),
        (RecordKind.REQUEST, {**REQUEST, "channel": [1]}, "channel: expected [sender, recipient], found [1]"),
        (
            RecordKind.REQUEST,
            {**REQUEST, "channel": [1, "2"]},
            "channel.recipient: expected an integer from 0 to 4294967295, found '2'",
        ),
        (RecordKind.REQUEST, {**REQUEST, "sender": 2}, "sender: no such field; known are origin, channel"),
        *(
            (RecordKind.REQUEST, {**SERVICE, **change}, error)
            for change, error in (
                (
                    {"kind": "service_overwieght"},
                    f"kind: expected one of {', '.join(REQUESTS)}, found 'service_overwieght'; did you mean 'service_overweight'?",
                ),
                ({"kind": "zzz"}, f"kind: expected one of {', '.join(REQUESTS)}, found 'zzz'"),
                ({"kind": ["service_overweight"]}, "kind: expected one of init_open_channel, "),
                ({"pag": 0}, "pag: no such field; did you mean 'page'?"),
                ({"page": U32_OVER}, f"page: expected an integer from 0 to 4294967295, found {U32_OVER}"),
                ({"message_index": -1}, "message_index: expected an integer from 0 to 4294967295, found -1"),
                ({"weight_limit": 2**64}, f"weight_limit: expected an integer from 0 to {2**64 - 1}, found {2**64}"),
                ({"weight_limit": -1}, f"weight_limit: expected an integer from 0 to {2**64 - 1}, found -1"),
                ({"weight_limit": True}, f"weight_limit: expected an integer from 0 to {2**64 - 1}, found True"),
                ({"weight_limit": "ff" * 8}, f"weight_limit: expected an integer from 0 to {2**64 - 1}, found 'ffff"),
            )
        ),
        (
            RecordKind.REQUEST,
            {name: value for name, value in SERVICE.items() if name != "message_index"},
            "message_index: expected a value, found none",
        ),
        (
            RecordKind.REQUEST,
            {**REQUEST, "kind": "cancel_open_request", "channel": {"sender": 1, "recipient": 2}},
            "channel: expected [sender, recipient], found {",
        ),
        (
            RecordKind.REQUEST,
            {**REQUEST, "kind": "establish_channel_with_system", "channel": [1, 2]},
            "channel: no such field; known are origin, target",
        ),
        *(
            (
                RecordKind.BLOCK,
                {**BLOCK, "session_change": {"new_config": {name: MAXIMA[name] + 1}}},
                f"session_change.new_config.{name}: expected an integer from 0 to {MAXIMA[name]}, found {MAXIMA[name] + 1}",
            )
            for name in LATER_FIELDS
        ),
        (
            RecordKind.BLOCK,
            {**BLOCK, "session_change": {"new_config": {"hrmp_notification_version": 1}}},
            "session_change.new_config.hrmp_notification_version: no such field; did you mean 'hrmp_notification_xcm_version'?",
        ),
        (RecordKind.BLOCK, {**BLOCK, "candidates": 65_537}, "candidates: expected 0 to 65536, found 65537"),
        (
            RecordKind.BLOCK,
            {**BLOCK, "parent_number": 17},
            "parent_number: expected 0 to 16, below the block, found 17",
        ),
        (
            RecordKind.BLOCK,
            {**BLOCK, "session_change": {"onboarding": [{"para_id": 1, "balance": limits.U128_MAX + 1}]}},
            f"session_change.onboarding[0].balance: expected an integer from 0 to {limits.U128_MAX}, found {limits.U128_MAX + 1}",
        ),
        (
            RecordKind.BLOCK,
            {**BLOCK, "session_change": {"onboarding": [{"para_id": 1, "kind": "para"}]}},
            "session_change.onboarding[0].kind: expected one of parachain, parathread, found 'para'",
        ),
        (
            RecordKind.BLOCK,
            {**BLOCK, "session_change": {"new_config": {"hrmp_open_request_tl": 1}}},
            "session_change.new_config.hrmp_open_request_tl: no such field; did you mean 'hrmp_open_request_ttl'?",
        ),
    ],
)
def test_invalid_field_is_named_in_error(kind: RecordKind, record: Any, expected_error: str) -> None:
    with pytest.raises(UserError) as caught:
        encoded(kind, record)
    assert str(caught.value).startswith(expected_error)
    assert "\n" not in str(caught.value)


@given(st.sampled_from(RecordKind), ANYTHING)
def test_arbitrary_json_is_refused(kind: RecordKind, record: Any) -> None:
    with pytest.raises(UserError):
        encoded(kind, record)


@given(st.data(), st.sampled_from(RecordKind))
def test_record_with_arbitrary_field_is_encoded_or_refused(data: st.DataObject, kind: RecordKind) -> None:
    record = data.draw(INPUTS[kind])
    name = data.draw(st.sampled_from(sorted(record)))
    try:
        value = encoded(kind, {**record, name: data.draw(ANYTHING)})
    except UserError:
        return
    assert not isinstance(decoded(kind, value, Source("t", 0, 0)), DeadLetter)


@pytest.mark.parametrize(
    ("topic", "value", "expected_error"),
    [
        ("verdicts", b"", "verdicts: expected a record of validator.Verdict, found 0 bytes that start with nothing"),
        (
            "verdicts",
            b"\xc3\x01\x01\x02\x03\x04\x05\x06\x07\x08xyz",
            "found one whose schema has the unknown fingerprint 0102030405060708: a newer version has written it; upgrade the package",
        ),
        ("verdicts", b"\0\0\1\x86\xa1xxx", "found 8 bytes in Confluent's framing with schema id 100001, unknown here"),
        (
            "headroom",
            b"x" * 20,
            "headroom: expected a record of validator.router.ChannelHeadroom or validator.router.ParaHeadroom",
        ),
        (
            "verdicts",
            schemas()["validator.Receipt"].header,
            "expected a record of validator.Verdict, found validator.Receipt",
        ),
        (
            "verdicts",
            schemas()["validator.Verdict"].header + b"\x02",
            "verdicts: validator.Verdict.lane: expected a length from 0 to 0 at byte 10, found 1",
        ),
    ],
)
def test_value_that_is_not_a_record_is_refused(topic: str, value: bytes, expected_error: str) -> None:
    with pytest.raises(UserError) as caught:
        to_json(topic, value, codec_for())
    assert expected_error in str(caught.value)


@pytest.mark.parametrize(
    ("change", "expected_error"),
    [
        ({"ok": 1}, "ok: expected true or false, found 1"),
        ({"ok": False, "error": "x"}, "error: expected an object with a kind, found 'x'"),
        (
            {"ok": False, "error": {"kind": "K", "idx": None}},
            "value: expected an integer, a string, an object of integers or an array of them",
        ),
        ({"ok": False, "error": {"kind": "K", "idx": 2**128}}, "value: expected an integer from 0 to"),
    ],
)
def test_invalid_verdict_in_json_is_refused(change: dict[str, Any], expected_error: str) -> None:
    verdict = {
        "lane": "l",
        "block": 1,
        "kind": "candidate",
        "index": 0,
        "para_id": 1,
        "enacted": False,
        "messages": [],
        "runtime_digest": "00" * 32,
        "id": "00" * 16,
    }
    encode_json(schemas()["validator.Verdict"], {**verdict, "ok": True})
    with pytest.raises(UserError) as caught:
        encode_json(schemas()["validator.Verdict"], {**verdict, **change})
    assert expected_error in str(caught.value)


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
        {"name": "number", "type": {"type": "long", "logicalType": "u8"}},
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
    "text": "ä", "number": 255, "flag": True, "maybe": "00ff", "first": -65, "kind": "b", "lists": [[], [1, 2]], "map": {"k": "01"},
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
        {"text": 1}, {"text": "\ud800"}, {"number": True}, {"number": 256}, {"number": -1}, {"number": 1.0}, {"number": "1"},
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
