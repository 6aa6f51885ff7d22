# SPDX-License-Identifier: Apache-2.0
"""Codecs are values: several stand side by side in one process, each with the protocols and versions that it was made of."""

from __future__ import annotations

import json
import shutil
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.codecs import codec_for
from tests.unit.codec.examples import CANDIDATE, SOURCE
from validator.codec.codec import Codec, RecordChecks, shared_codec
from validator.codec.decode import decode_record
from validator.codec.encode import write
from validator.codec.json_form import encode_input, to_json
from validator.codec.record_types import RecordType
from validator.codec.schemas import HEADER_SIZE
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
    """What a codec asks of a protocol."""

    name: str
    records: tuple[RecordType, ...]
    schemas: Traversable


def with_candidates_changed(tmp_path: Path, shape: Any = None, *, earlier_kept: bool = True) -> Records:
    """The Router with one more field in its candidates, last of all after they were reversed."""
    folder = tmp_path / "avro"
    shutil.copytree(schemas_directory(), folder)
    file = folder / f"{NAME}.avsc"
    later = json.loads(file.read_text())
    later["fields"].insert(0, {"name": "mood", "type": ["null", "string"], "default": None})
    later["fields"].reverse()
    file.write_text(json.dumps(later))
    if not earlier_kept:
        shutil.rmtree(folder / "versions" / NAME)
    candidates, requests = ROUTER.records
    return Records(ROUTER.name, (replace(candidates, shape=shape or candidates.shape), requests), folder)


def fields_of(codec: Codec, value: bytes) -> Any:
    made = decode_record(codec, RecordKind.CANDIDATE, value, SOURCE)
    assert not isinstance(made, DeadLetter), made.detail
    return made[1].fields


def reason_of(codec: Codec, value: bytes) -> tuple[DeadReason, str]:
    made = decode_record(codec, RecordKind.CANDIDATE, value, SOURCE)
    assert isinstance(made, DeadLetter)
    return made.reason, made.detail


def test_two_versions_of_a_schema_are_current_side_by_side_in_one_process(tmp_path: Path) -> None:
    old = codec_for("router")
    new = Codec.of([with_candidates_changed(tmp_path, lambda record: (record["mood"], record["para_id"]))])
    by_old, by_new = (write(codec.schemas[NAME], {**CANDIDATE, "mood": "glad"}) for codec in (old, new))
    assert by_old[:HEADER_SIZE] != by_new[:HEADER_SIZE]
    for _ in range(2):  # what one has read changes nothing for the other
        assert fields_of(old, by_old)[0] == CANDIDATE["para_id"]
        assert fields_of(new, by_new) == ("glad", CANDIDATE["para_id"])
        assert fields_of(new, by_old) == (None, CANDIDATE["para_id"])
        assert reason_of(old, by_new) == (
            DeadReason.UNKNOWN_SCHEMA,
            f"expected the fingerprint of a schema of {NAME}, found {by_new[2:HEADER_SIZE].hex()}, which is of no known schema",
        )
        assert to_json("candidates", by_old, new)["mood"] is None
        assert "mood" not in to_json("candidates", by_old, old)


def test_a_record_of_an_earlier_schema_is_read_into_the_current_one(tmp_path: Path) -> None:
    earlier = write(codec_for("router").schemas[NAME], CANDIDATE)
    new = Codec.of([with_candidates_changed(tmp_path)])
    assert earlier[:HEADER_SIZE] != new.schemas[NAME].header
    assert fields_of(new, earlier) == fields_of(codec_for("router"), earlier)


def test_a_codec_of_several_protocols_reads_the_records_of_each() -> None:
    together = codec_for("router", "xcmp", "early-hrmp")
    assert together.names("candidates") == (
        "validator.early_hrmp.Candidate",
        "validator.router.Candidate",
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


def test_the_order_of_the_protocols_makes_no_difference() -> None:
    names = ("router", "xcmp", "early-hrmp")
    protocols = [make_runtime(RuntimePlan(name)).protocol for name in names]
    one, other = Codec.of(protocols), Codec.of(reversed(protocols))
    assert one.inputs == other.inputs
    assert list(one.inputs) == list(other.inputs)
    assert one.readings.keys() == other.readings.keys()


def test_a_record_of_a_protocol_that_the_codec_lacks_is_named() -> None:
    value = encode_input(codec_for("router"), RecordKind.CANDIDATE, _plain_candidate(), "router")
    assert reason_of(codec_for("xcmp"), value) == (
        DeadReason.UNDECODABLE,
        "expected a record of validator.xcmp.Candidate on topic validator.candidates, found one of validator.router.Candidate",
    )


def test_a_record_of_another_protocol_than_its_lanes_is_refused() -> None:
    codec = codec_for("router", "xcmp")
    value = encode_input(codec, RecordKind.CANDIDATE, _plain_candidate(), "router")
    for protocol, refused in (("router", None), ("xcmp", "a lane of protocol router, found one of xcmp")):
        lanes = {"polkadot": make_runtime(RuntimePlan(protocol)).records}
        made = decode_record(codec, RecordKind.CANDIDATE, value, SOURCE, None, lanes)
        if refused is None:
            assert not isinstance(made, DeadLetter)
        else:
            assert isinstance(made, DeadLetter)
            assert (made.reason, made.detail) == (DeadReason.LIMIT, f"{NAME}.lane: expected {refused}")


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
def test_the_limits_of_a_session_change_stand_in_the_field_of_the_lanes_protocol(
    typed: bool, change: dict[str, Any], refused: str | None
) -> None:
    codec = shared_codec()
    block = {"lane": "mine", "block": 5, "candidates": 0, "requests": 0, "downward": 0}
    value = encode_input(codec, RecordKind.BLOCK, {**block, "session_change": {**CHANGE, **change}}, "mine")
    lanes = {"mine": RecordChecks("mine", {"places": 7}, typed)}
    made = decode_record(codec, RecordKind.BLOCK, value, SOURCE, None, lanes)
    if refused is None:
        assert not isinstance(made, DeadLetter), made.detail
    else:
        assert isinstance(made, DeadLetter)
        assert made.detail == f"validator.Block.session_change.{refused}"


def test_a_protocol_under_another_name_shares_the_records_of_the_first() -> None:
    mine = replace(ROUTER, name="mine")
    codec = Codec.of([mine, ROUTER])
    value = encode_input(codec, RecordKind.CANDIDATE, _plain_candidate(), "mine")
    for protocol in ("mine", "router"):
        lanes = {"polkadot": RecordChecks(protocol, {})}
        assert not isinstance(decode_record(codec, RecordKind.CANDIDATE, value, SOURCE, None, lanes), DeadLetter)
    made = decode_record(codec, RecordKind.CANDIDATE, value, SOURCE, None, {"polkadot": RecordChecks("xcmp", {})})
    assert isinstance(made, DeadLetter)
    assert made.detail == f"{NAME}.lane: expected a lane of protocol mine or router, found one of xcmp"


def test_protocols_that_read_the_same_bytes_differently_are_refused() -> None:
    candidates, requests = ROUTER.records
    other = Records("mine", (replace(candidates, shape=lambda _: ()), requests), ROUTER.schemas)
    with pytest.raises(UserError, match=r"^protocols mine and router read validator\.router\.Candidate differently$"):
        Codec.of([ROUTER, other])


def test_a_schema_that_names_another_topic_than_its_record_type_is_refused() -> None:
    candidates, _ = ROUTER.records
    other = Records("mine", (replace(candidates, topic="channel-requests"),), ROUTER.schemas)
    with pytest.raises(
        UserError, match=r"^protocol mine: schema .*Candidate names topic candidates, expected channel-"
    ):
        Codec.of([other])


def test_a_record_type_without_schema_is_refused() -> None:
    candidates, _ = ROUTER.records
    other = Records("mine", (replace(candidates, schema="validator.mine.Candidate"),), ROUTER.schemas)
    with pytest.raises(UserError, match=r"^protocol mine: its schema folder has no schema validator\.mine\.Candidate$"):
        Codec.of([other])


def test_a_codec_cannot_be_changed() -> None:
    codec: Any = codec_for("router")
    with pytest.raises(FrozenInstanceError):
        codec.readings = {}
    with pytest.raises(TypeError):
        codec.readings[b""] = None
    with pytest.raises(TypeError):
        codec.schemas[NAME] = None


def test_plans_of_one_protocol_have_equal_codecs_and_a_runtime_has_that_of_its_protocol() -> None:
    one, other = RuntimePlan("router"), RuntimePlan("router", "abc")
    assert codec_of([one, other]).inputs == make_runtime(other).codec.inputs == codec_for("router").inputs
    assert make_runtime(one).codec.names("candidates") == (NAME,)
