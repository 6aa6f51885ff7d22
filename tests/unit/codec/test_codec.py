# SPDX-License-Identifier: Apache-2.0
"""Codecs and formats of records are values: one process can hold several, each with its own schema versions."""

from __future__ import annotations

import json
import shutil
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codecs import codec_for
from tests.unit.codec.examples import CANDIDATE, SOURCE
from validator.codec.codec import Codec, RecordChecks, RecordFormat, RecordUnreadable, shared_codec
from validator.codec.decode import decode_record
from validator.codec.encode import write
from validator.codec.json_form import encode_input, to_json
from validator.codec.record_types import RecordType
from validator.codec.schemas import HEADER_SIZE, Json, SchemaSet, make_schema
from validator.core.inputs import DeadLetter, DeadReason, RecordKind
from validator.errors import UserError
from validator.plugin.runtime import RuntimePlan, codec_of, make_runtime
from validator.resources import schemas_directory

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable
    from pathlib import Path


ROUTER = make_runtime(RuntimePlan("router")).protocol
NAME = "validator.router.Candidate"


@dataclass(frozen=True)
class Records:
    """The part of a protocol that a codec reads."""

    name: str
    records: tuple[RecordType, ...]
    schemas: Traversable


def with_candidates_changed(tmp_path: Path, shape: Any = None, *, earlier_kept: bool = True) -> Records:
    """Return the Router's records with a second version of candidates: one more field, and the order of fields reversed.

    A change of a schema that a release has written is made in this way: the file moves to its number, and the changed one takes its place.
    """
    folder = tmp_path / "avro"
    shutil.copytree(schemas_directory(), folder)
    file = folder / f"{NAME}.avsc"
    later = json.loads(file.read_text())
    later["fields"].insert(0, {"name": "mood", "type": ["null", "string"], "default": None})
    later["fields"].reverse()
    if earlier_kept:
        earlier = folder / "versions" / NAME
        earlier.mkdir(parents=True)
        file.rename(earlier / "1.avsc")
    file.write_text(json.dumps(later))
    candidates, requests = ROUTER.records
    return Records(ROUTER.name, (replace(candidates, shape=shape or candidates.shape), requests), folder)


def fields_of(codec: Codec, value: bytes) -> Any:
    result = decode_record(codec, RecordKind.CANDIDATE, value, SOURCE)
    assert not isinstance(result, DeadLetter), result.detail
    return result[1].fields


def reason_of(codec: Codec, value: bytes) -> tuple[DeadReason, str]:
    result = decode_record(codec, RecordKind.CANDIDATE, value, SOURCE)
    assert isinstance(result, DeadLetter)
    return result.reason, result.detail


def test_two_codecs_in_one_process_keep_their_own_schema_versions(tmp_path: Path) -> None:
    old = codec_for("router")
    new = Codec.of([with_candidates_changed(tmp_path, lambda record: (record["mood"], record["para_id"]))])
    by_old, by_new = (write(codec.schemas[NAME], {**CANDIDATE, "mood": "glad"}) for codec in (old, new))
    assert by_old[:HEADER_SIZE] != by_new[:HEADER_SIZE]
    for _ in range(2):  # reading with one codec does not affect the other
        assert fields_of(old, by_old)[0] == CANDIDATE["para_id"]
        assert fields_of(new, by_new) == ("glad", CANDIDATE["para_id"])
        assert fields_of(new, by_old) == (None, CANDIDATE["para_id"])
        assert reason_of(old, by_new) == (
            DeadReason.UNKNOWN_SCHEMA,
            f"expected the fingerprint of a schema of {NAME}, found {by_new[2:HEADER_SIZE].hex()}, which is of no known schema",
        )
        assert to_json("candidates", by_old, new)["mood"] is None
        assert "mood" not in to_json("candidates", by_old, old)


def test_record_of_earlier_schema_decodes_into_current_one(tmp_path: Path) -> None:
    earlier = write(codec_for("router").schemas[NAME], CANDIDATE)
    new = Codec.of([with_candidates_changed(tmp_path)])
    assert earlier[:HEADER_SIZE] != new.schemas[NAME].header
    assert fields_of(new, earlier) == fields_of(codec_for("router"), earlier)


def test_codec_of_several_protocols_reads_records_of_each() -> None:
    together = codec_for("router", "xcmp", "early-hrmp")
    assert together.names("candidates") == (
        "validator.router.Candidate",  # records of the package come first
        "validator.early_hrmp.Candidate",
        "validator.xcmp.Candidate",
    )
    for protocol in ("router", "xcmp", "early-hrmp"):
        alone = codec_for(protocol)
        schema = alone.input_schema(RecordKind.CANDIDATE, protocol)
        assert schema is together.input_schema(RecordKind.CANDIDATE, protocol)
        assert alone.names("candidates") == (schema.name,)
        assert alone.names("verdicts") == together.names("verdicts") == ("validator.Verdict",)
        assert all(together.readings[header][:6] == reading[:6] for header, reading in _own(alone).items())


def _own(codec: Codec) -> dict[bytes, Any]:
    return {header: reading for header, reading in codec.readings.items() if reading.protocols}


def test_order_of_protocols_does_not_change_codec() -> None:
    names = ("router", "xcmp", "early-hrmp")
    protocols = [make_runtime(RuntimePlan(name)).protocol for name in names]
    one, other = Codec.of(protocols), Codec.of(reversed(protocols))
    assert one.inputs == other.inputs
    assert list(one.inputs) == list(other.inputs)
    assert one.readings.keys() == other.readings.keys()


def test_record_of_protocol_missing_from_codec_is_undecodable() -> None:
    value = encode_input(codec_for("router"), RecordKind.CANDIDATE, _plain_candidate(), "router")
    assert reason_of(codec_for("xcmp"), value) == (
        DeadReason.UNDECODABLE,
        "expected a record of validator.xcmp.Candidate on topic validator.candidates, found one of validator.router.Candidate",
    )


def test_record_of_another_protocol_than_its_lane_is_refused() -> None:
    codec = codec_for("router", "xcmp")
    value = encode_input(codec, RecordKind.CANDIDATE, _plain_candidate(), "router")
    for protocol, refused in (("router", None), ("xcmp", "a lane of protocol router, found one of xcmp")):
        lanes = {"polkadot": make_runtime(RuntimePlan(protocol)).records}
        result = decode_record(codec, RecordKind.CANDIDATE, value, SOURCE, None, lanes)
        if refused is None:
            assert not isinstance(result, DeadLetter)
        else:
            assert isinstance(result, DeadLetter)
            assert (result.reason, result.detail) == (DeadReason.LIMIT, f"{NAME}.lane: expected {refused}")


def _plain_candidate() -> dict[str, Any]:
    return {"lane": "polkadot", "block": 1, "index": 0, "para_id": 1, "hrmp_watermark": 0}


CHANGE: dict[str, Any] = {"outgoing": [], "onboarding": []}


@pytest.mark.parametrize(
    ("typed", "change", "refused"),
    [
        (True, {"new_config": {"hrmp_open_request_ttl": 3}}, None),
        (True, {"limits": {"places": 3}}, "limits: expected no entry on a lane of protocol mine, found places"),
        (False, {"limits": {"places": 7}}, None),
        (False, {"limits": {"places": 8}}, "limits.places: expected 0 to 7, found 8"),
        (False, {"limits": {"other": 1}}, "limits: expected one of places, found other"),
        (
            False,
            {"new_config": {"hrmp_open_request_ttl": 3}},
            "new_config: expected null on a lane of protocol mine, found a configuration",
        ),
    ],
)
def test_session_change_limits_in_field_of_other_protocol_are_refused(
    typed: bool, change: dict[str, Any], refused: str | None
) -> None:
    codec = shared_codec()
    block = {"lane": "mine", "block": 5, "candidates": 0, "requests": 0, "downward": 0}
    value = encode_input(codec, RecordKind.BLOCK, {**block, "session_change": {**CHANGE, **change}}, "mine")
    lanes = {"mine": RecordChecks("mine", {"places": 7}, typed)}
    result = decode_record(codec, RecordKind.BLOCK, value, SOURCE, None, lanes)
    if refused is None:
        assert not isinstance(result, DeadLetter), result.detail
    else:
        assert isinstance(result, DeadLetter)
        assert result.detail == f"validator.Block.session_change.{refused}"


def test_renamed_protocol_shares_records_of_original() -> None:
    mine = replace(ROUTER, name="mine")
    codec = Codec.of([mine, ROUTER])
    value = encode_input(codec, RecordKind.CANDIDATE, _plain_candidate(), "mine")
    for protocol in ("mine", "router"):
        lanes = {"polkadot": RecordChecks(protocol, {})}
        assert not isinstance(decode_record(codec, RecordKind.CANDIDATE, value, SOURCE, None, lanes), DeadLetter)
    result = decode_record(codec, RecordKind.CANDIDATE, value, SOURCE, None, {"polkadot": RecordChecks("xcmp", {})})
    assert isinstance(result, DeadLetter)
    assert result.detail == f"{NAME}.lane: expected a lane of protocol mine or router, found one of xcmp"


def test_protocols_that_read_same_bytes_differently_are_refused() -> None:
    candidates, requests = ROUTER.records
    other = Records("mine", (replace(candidates, shape=lambda _: ()), requests), ROUTER.schemas)
    with pytest.raises(UserError, match=r"^protocols mine and router read validator\.router\.Candidate differently$"):
        Codec.of([ROUTER, other])


def test_protocols_with_different_schemas_of_one_name_are_refused(tmp_path: Path) -> None:
    changed = replace(with_candidates_changed(tmp_path, earlier_kept=False), name="second")
    with pytest.raises(
        UserError, match=r"^protocol second: its schema validator\.router\.Candidate differs from another"
    ):
        Codec.of([ROUTER, changed])


def test_schema_with_another_topic_than_its_record_type_is_refused() -> None:
    candidates, _ = ROUTER.records
    other = Records("mine", (replace(candidates, topic="channel-requests"),), ROUTER.schemas)
    with pytest.raises(
        UserError, match=r"^protocol mine: schema .*Candidate names topic candidates, expected channel-"
    ):
        Codec.of([other])


def test_record_type_without_schema_is_refused() -> None:
    candidates, _ = ROUTER.records
    other = Records("mine", (replace(candidates, schema="validator.mine.Candidate"),), ROUTER.schemas)
    with pytest.raises(UserError, match=r"^protocol mine: its schema folder has no schema validator\.mine\.Candidate$"):
        Codec.of([other])


def test_codec_is_immutable() -> None:
    codec: Any = codec_for("router")
    with pytest.raises(FrozenInstanceError):
        codec.readings = {}
    with pytest.raises(TypeError):
        codec.readings[b""] = None
    with pytest.raises(TypeError):
        codec.schemas[NAME] = None


def test_plans_and_runtimes_of_one_protocol_have_equal_codecs() -> None:
    one, other = RuntimePlan("router"), RuntimePlan("router", "abc")
    assert codec_of([one, other]).inputs == make_runtime(other).codec.inputs == codec_for("router").inputs
    assert make_runtime(one).codec.names("candidates") == (NAME,)


NEW: Json = {
    "type": "record",
    "name": "a.Record",
    "fields": [{"name": "number", "type": "long"}, {"name": "text", "type": "string", "default": "none"}],
}
OLD: Json = {**NEW, "fields": NEW["fields"][:1]}
EARLIER, CURRENT = make_schema(OLD), make_schema(NEW, version=2)
FORMAT = RecordFormat(SchemaSet({"a.Record": (EARLIER, CURRENT)}), "a.Record")


@given(st.integers(-(2**63), 2**63 - 1), st.text())
def test_a_record_survives(number: int, text: str) -> None:
    assert FORMAT.decode(FORMAT.encode({"number": number, "text": text})) == {"number": number, "text": text}


def test_an_earlier_version_is_read_as_the_current_one() -> None:
    assert FORMAT.decode(write(EARLIER, {"number": 7})) == {"number": 7, "text": "none"}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "expected a record a.Record, found bytes that start with "),
        (b"x" * 20, "found bytes that start with 7878"),
        (CURRENT.header, "a.Record.number: expected an integer at byte 10, found the end of the record"),
        (
            FORMAT.encode({"number": 1, "text": ""}) + b"\x00",
            "a.Record: expected the end of the record at byte 12, found 1 more byte",
        ),
        (
            EARLIER.header + b"\x82\x00",
            "a.Record.number: expected the last byte of an integer in its shortest form at byte 11",
        ),
    ],
)
def test_other_bytes_are_refused(value: bytes, why: str) -> None:
    with pytest.raises(RecordUnreadable, match=why):
        FORMAT.decode(value)
