# SPDX-License-Identifier: Apache-2.0
"""Summaries of XCMs: real payloads of each version, the forms of a horizontal payload, limits, damaged bytes."""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from validator_journeys.xcm import HOLDING, Xcm, XcmAsset, read_payload
from validator_journeys.xcm_types import LIMITS, READERS, V2, V3, V4, V5

DATA = Path(__file__).parents[4] / "shared/data/real_events.jsonl"

# Recorded from Polkadot and Kusama by ocelloids-services (Apache-2.0): kind, payload, version, instructions, assets.
REAL = [
    (
        "horizontal",
        (
            "00021000040000000017b057db9b4148d2f14e0a130000000017b057db9b4148d2f14e010300286bee0d01000400010100"
            "68c8e0d4bceb7934e9994e2bfc796d95db9b66c9d668256340ba8b88143f0524"
        ),
        2,
        ("WithdrawAsset", "ClearOrigin", "BuyExecution", "DepositAsset"),
        (XcmAsset(".", 1456271107104219813808),),
    ),
    (
        "downward",
        (
            "03100104000100000700f2052a010a13000100000700f2052a01000d01020400010100f2529946850f8dd66c794a795a6b01a911f25df0"
            "07e4cf5f97f38a037380f250"
        ),
        3,
        ("ReserveAssetDeposited", "ClearOrigin", "BuyExecution", "DepositAsset"),
        (XcmAsset("..", 5000000000),),
    ),
    (
        "horizontal",
        (
            "000310010400010300a10f043205011f00034cb0a37d0a1300010300a10f043205011f00034cb0a37d000d010204000101008e7f870a8c"
            "ac3fa165c8531a304fcc59c7e29aec176fb03f630ceeea397b1368"
        ),
        3,
        ("ReserveAssetDeposited", "ClearOrigin", "BuyExecution", "DepositAsset"),
        (XcmAsset("../Parachain(1000)/PalletInstance(50)/GeneralIndex(1984)", 2107879500),),
    ),
    (
        "horizontal",
        (
            "000410000400000017fc76097e9ad600d8030a1300000017fc76097e9ad600d803000d0102040001010094df648a42277995cb8fe41cf7"
            "30321d0eb2b58d3395ab2a9803ab9650c5ec34"
        ),
        4,
        ("WithdrawAsset", "ClearOrigin", "BuyExecution", "DepositAsset"),
        (XcmAsset(".", 70904908492348946172),),
    ),
    (
        "horizontal",
        (
            "000514000401000007c25b6587021301000007c25b6587020016040d010204010100a10f26020100a10f14010402010903000bbd279d43"
            "c7cf0a1302010903000bbd279d43c7cf000d010204000101007279fcf9694718e1234d102825dccaf332f0ea36edf1ca7c0358c4b68260"
            "d24b2cc09c41eba05e7b58ddfdcc58bdf06a2589c78119a7da9a68bb4d71ba03201c462cc09c41eba05e7b58ddfdcc58bdf06a2589c781"
            "19a7da9a68bb4d71ba03201c46"
        ),
        5,
        ("WithdrawAsset", "BuyExecution", "SetAppendix", "ExportMessage", "SetTopic"),
        (XcmAsset("..", 10861501378),),
    ),
]
PAYLOADS = [(kind, bytes.fromhex(payload)) for kind, payload, *_ in REAL]
CLEAR = b"\x0a"
HEADS = [b"", b"\0\2", b"\0\3", b"\3", b"\4", b"\5"]


def nested(depth: int) -> bytes:
    """Return an XCM of version 3 that holds ``depth`` XCMs, each in the appendix of the one before."""
    return b"\x03" + b"\x04\x16" * (depth - 1) + b"\x04" + CLEAR


@pytest.mark.parametrize(("kind", "payload", "version", "names", "assets"), REAL)
def test_real_payload_is_read_to_its_end(kind, payload, version, names, assets):
    read = read_payload(kind, bytes.fromhex(payload))
    assert (read.form, read.reason) == ("xcm", None)
    (message,) = read.messages
    assert (message.version, message.instructions, message.reason, message.calls) == (version, names, None, ())
    assert message.assets == assets


def test_id_is_the_topic_else_the_hash_of_the_versioned_message():
    topic = read_payload(*PAYLOADS[4]).messages[0]
    assert topic.id == PAYLOADS[4][1][-32:]
    hashed = read_payload(*PAYLOADS[2]).messages[0]
    assert hashed.id == blake2b(PAYLOADS[2][1][1:], digest_size=32).digest()


@pytest.mark.parametrize("which", range(len(PAYLOADS)))
def test_truncated_at_every_offset_has_a_reason_and_no_id(which):
    kind, payload = PAYLOADS[which]
    for size in range(2, len(payload)):
        read = read_payload(kind, payload[:size])
        assert read.reason is not None
        assert read.reason.startswith("offset ")
        assert all(message.id is None and message.reason == read.reason for message in read.messages)
    assert read_payload(kind, b"").reason


@given(st.sampled_from(["horizontal", "upward", "downward"]), st.binary(max_size=200), st.sampled_from(HEADS))
def test_random_bytes_never_raise(kind, tail, head):
    read_payload(kind, head + tail)


@given(st.sampled_from(PAYLOADS), st.integers(0, 10_000), st.integers(0, 255))
def test_changed_byte_never_raises(case, at, byte):
    kind, payload = case
    damaged = bytearray(payload)
    damaged[at % len(payload)] = byte
    read = read_payload(kind, bytes(damaged))
    assert all((message.id is None) == (message.reason is not None) for message in read.messages)


def test_forms_of_a_horizontal_payload():
    xcm = b"\x03\x04" + CLEAR
    row = read_payload("horizontal", b"\x00" + xcm * 3)
    assert [message.instructions for message in row.messages] == [("ClearOrigin",)] * 3
    lengths = read_payload("horizontal", b"\x03" + (b"\x0c" + xcm) * 2)
    assert (lengths.messages, lengths.reason) == (row.messages[:2], None)
    assert read_payload("horizontal", b"\x03\x10" + xcm + b"\x00").reason == "offset 5: 1 bytes left over"
    assert read_payload("horizontal", b"\x03\x10" + xcm).reason == "offset 2: 4 bytes expected, 3 left"
    blobs = read_payload("horizontal", b"\x01\x04a\x08bc")
    assert (blobs.form, blobs.blobs, blobs.reason) == ("blobs", 2, None)
    assert read_payload("horizontal", b"\x01\x08b").reason == "offset 2: 2 bytes expected, 1 left"
    assert read_payload("horizontal", b"\x02\x00\x01").signals == ("suspend", "resume")
    assert read_payload("horizontal", b"\x02\x00\x02").reason == "offset 2: no signal has index 2"
    assert read_payload("horizontal", b"\x04").reason == "offset 0: no form of a horizontal payload is 4"


def test_calls_of_transact_are_measured_nested_ones_too():
    message = read_payload(
        "upward", b"\x04\x08" + b"\x06\x00\x00\x00\x08hi" + b"\x16\x04" + b"\x06\x00\x00\x00\x04x"
    ).messages[0]
    assert (message.instructions, message.calls) == (("Transact", "SetAppendix"), (2, 1))


def test_unknown_version_and_bytes_left_over_have_a_reason():
    assert read_payload("downward", b"\x06\x00").messages == (Xcm(6, None, reason="offset 0: no XCM has version 6"),)
    assert read_payload("downward", b"\x03\x04" + CLEAR + b"\x00").reason == "offset 3: 1 bytes left over"


def test_limits():
    assert read_payload("upward", nested(LIMITS.depth)).reason is None
    assert read_payload("upward", nested(LIMITS.depth + 1)).reason == f"offset 17: more than {LIMITS.depth} nested XCMs"
    assert read_payload("upward", b"\x03" + b"\x91\x01" + CLEAR * 100).reason is None
    assert read_payload("upward", b"\x03" + b"\x95\x01" + CLEAR * 101).reason == "offset 1: more than 100 instructions"
    assert read_payload("upward", b"\x03\x08\x16\x89\x01" + CLEAR * 98 + CLEAR).reason is None
    assert (
        read_payload("upward", b"\x03\x08\x16\x8d\x01" + CLEAR * 99 + CLEAR).reason
        == "offset 3: more than 100 instructions"
    )
    assert read_payload("upward", b"\x03\x04\x00\x95\x01").reason == "offset 3: 101 items, at most 100"
    assert read_payload("upward", bytes(LIMITS.payload_bytes + 1)).reason
    assert (
        read_payload("horizontal", b"\x00" + b"\x03\x00" * (LIMITS.messages + 1)).reason
        == "offset 2001: more than 1000 messages"
    )
    assert read_payload("upward", b"\x04\x04\x0b\x09" + b"\x07" * 9).reason == "offset 3: no Interior has index 9"


def test_compact_integers_are_in_their_shortest_form_and_fit():
    trap = b"\x03\x04\x19"
    assert read_payload("upward", trap + b"\x13" + b"\xff" * 8).reason is None
    assert read_payload("upward", trap + b"\x17" + b"\xff" * 9).reason == "offset 3: compact integer above 8 bytes"
    assert read_payload("upward", trap + b"\x01\x00").reason == "offset 3: compact integer not in its shortest form"


def test_versions_number_their_instructions_alike():
    by_version = [[text.split()[0] for text in types["Instruction"]] for types in (V2, V3, V4, V5)]
    assert [len(names) for names in by_version] == [28, 48, 48, 52]
    assert by_version[2] == by_version[1] == by_version[3][:48]
    assert [a for a, b in zip(by_version[0], by_version[1], strict=False) if a != b] == ["QueryHolding"]
    assert set(by_version[0]) >= HOLDING
    assert set(READERS) == {2, 3, 4, 5}


@pytest.mark.skipif(not DATA.exists(), reason="no recorded chain data")
def test_every_recorded_payload_is_read_to_its_end():
    found = set()
    for line in DATA.read_text().splitlines():
        event = json.loads(line)
        if event["kind"] in {"inbound_hrmp", "downward"}:
            found.add(("horizontal" if event["kind"] == "inbound_hrmp" else "downward", event["data"]))
        if event["kind"] == "candidate":
            found |= {("upward", payload) for payload in event["upward_messages"] or ()}
            found |= {("horizontal", message["data"]) for message in event["horizontal_messages"] or ()}
    assert len(found) > 40
    assert [(kind, payload) for kind, payload in found if read_payload(kind, bytes.fromhex(payload)).reason] == []


def test_text_of_locations_and_instances():
    def assets(xcm: bytes) -> list[tuple[str, int | str]]:
        read = read_payload("upward", xcm)
        assert read.reason is None
        return [tuple(asset) for asset in read.messages[0].assets]

    long_key = b"\x02\x04\x00\x04\x00\x00\x01\x06\xa0" + b"k" * 40 + b"\x00\x04"
    assert assets(long_key) == [(f"GeneralKey({'6b' * 32}...)", 1)]
    short_key = b"\x04\x04\x00\x04\x03\x01\x06\x02ab" + bytes(30) + b"\x01\x01\x14"
    assert assets(short_key) == [("../../../GeneralKey(6162)", "Index(5)")]
    ethereum = b"\x05\x04\x00\x04\x02\x02\x09\x07\x04\x03\x00" + bytes(20) + b"\x01\x00"
    assert assets(ethereum) == [(f"../../GlobalConsensus(Ethereum(1))/AccountKey20({'00' * 20})", "Undefined")]
    plurality = b"\x03\x04\x00\x04\x00\x00\x01\x08\x03\x02\x04\x08\x00\x00"
    assert assets(plurality) == [("Plurality(Executive,Fraction(2))", 0)]
    abstract = b"\x03\x04\x00\x04\x01" + b"a" * 32 + b"\x00\x00"
    assert assets(abstract) == [(f"Abstract({'61' * 32})", 0)]
