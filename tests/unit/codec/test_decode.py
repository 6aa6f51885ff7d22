# SPDX-License-Identifier: Apache-2.0
"""Kafka values decode to inputs; junk, truncated records and wrong lengths become dead letters; many records are packed."""

from __future__ import annotations

import tracemalloc
from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codecs import decoded, encoded
from tests.unit.codec.examples import (
    BLOCK,
    CALLS,
    DOWNWARD,
    EXAMPLES,
    HASH,
    NAMES,
    SOURCE,
    dead,
    read,
    session_change,
    value_of,
)
from tests.unit.codec.records import INPUTS
from validator.codec.encode import write
from validator.codec.inflight import pack, unpack
from validator.codec.schemas import schemas
from validator.codec.strict import ITEMS_MAX
from validator.core import limits
from validator.core.hashing import message_hash
from validator.core.inputs import DeadLetter, DeadReason, Input, RecordKind, Source
from validator.core.records import block_record
from validator.core.types import BlockRecord, DownwardMessage, Para, ParaKind, PendingRef, SessionChange
from validator.protocols.router import records
from validator.protocols.router.configuration import LATER_FIELDS, MAXIMA
from validator.protocols.router.records import Candidate, HorizontalMessage
from validator.topics import TOPIC_OF_KIND

# --- valid records ---


def test_candidate_decodes_to_its_fields() -> None:
    value = value_of(RecordKind.CANDIDATE)
    item = read(RecordKind.CANDIDATE, value)
    assert item[:6] == (RecordKind.CANDIDATE, 17, 1, blake2b(value, digest_size=8).digest(), SOURCE, value)
    assert records.candidate(item.fields) == Candidate(
        para_id=2000,
        relay_parent_number=16,
        hrmp_watermark=16,
        upward_messages=(b"up", b""),
        processed_downward_messages=2,
        horizontal_messages=(HorizontalMessage(2004, b"knock", message_hash(b"knock")),),
        candidate_hash=HASH,
    )


def test_candidate_without_messages_has_empty_tuples() -> None:
    value = value_of(RecordKind.CANDIDATE, upward_messages=[], horizontal_messages=[], relay_parent_number=9)
    candidate = records.candidate(read(RecordKind.CANDIDATE, value).fields)
    assert (candidate.upward_messages, candidate.horizontal_messages, candidate.relay_parent_number) == ((), (), 9)


def test_downward_message_decodes_with_its_hash() -> None:
    item = read(RecordKind.DOWNWARD, value_of(RecordKind.DOWNWARD))
    assert DownwardMessage._make(item.fields) == DownwardMessage(2000, b"hello", message_hash(b"hello"))


@pytest.mark.parametrize("name", CALLS)
def test_request_decodes_to_its_type(name: str) -> None:
    call, expected = CALLS[name]
    item = read(RecordKind.REQUEST, value_of(RecordKind.REQUEST, request=(f"validator.router.{name}", call)))
    request = records.request(item.fields)
    assert request == expected
    assert type(request) is type(expected)


def test_every_request_of_the_router_has_a_record() -> None:
    assert [type(made) for _, made in CALLS.values()] == list(records.REQUESTS.values())


def test_block_record_decodes_to_its_fields() -> None:
    value = encoded(
        RecordKind.BLOCK,
        {
            "lane": "polkadot",
            "block": 17,
            "parent_number": 12,
            "block_hash": HASH.hex(),
            "candidates": 2,
            "requests": 1,
            "downward": 0,
            "included": [{"para_id": 2000, "backed_at": 11}, {"para_id": 2001, "backed_at": None}],
            "timed_out": [{"para_id": 2002}],
            "session_change": {
                "outgoing": [5, 4],
                "onboarding": [{"para_id": 6, "kind": "parathread", "balance": limits.U128_MAX}, {"para_id": 7}],
                "new_config": {"hrmp_recipient_deposit": limits.U128_MAX, "max_upward_queue_count": 0},
            },
        },
    )
    item = read(RecordKind.BLOCK, value)
    assert (item.block, item.index) == (17, 0)
    assert block_record(item.fields) == BlockRecord(
        block=17,
        parent_number=12,
        candidates=2,
        requests=1,
        downward=0,
        included=(PendingRef(2000, 11), PendingRef(2001)),
        timed_out=(PendingRef(2002),),
        session_change=SessionChange(
            outgoing=(5, 4),
            onboarding=(Para(6, ParaKind.PARATHREAD, limits.U128_MAX), Para(7)),
            new_config=(("max_upward_queue_count", 0), ("hrmp_recipient_deposit", limits.U128_MAX)),
        ),
        block_hash=HASH,
    )


def test_block_record_without_parent_defaults_to_previous_block() -> None:
    record = block_record(read(RecordKind.BLOCK, value_of(RecordKind.BLOCK)).fields)
    assert record == BlockRecord(17, 16, 2, 1, 0)


@pytest.mark.parametrize("name", LATER_FIELDS)
def test_limit_of_later_rules_decodes_up_to_its_maximum(name: str) -> None:
    for limit in (0, MAXIMA[name]):
        record = block_record(
            read(RecordKind.BLOCK, value_of(RecordKind.BLOCK, **session_change(**{name: limit}))).fields
        )
        assert record.session_change == SessionChange((), (), ((name, limit),))


# --- invalid records ---


@pytest.mark.parametrize(
    ("value", "reason", "detail"),
    [
        (None, DeadReason.UNDECODABLE, ", found no value"),
        (b"", DeadReason.UNDECODABLE, "found 0 bytes that start with nothing"),
        (b"\xc3\x01\x00", DeadReason.UNDECODABLE, "found 3 bytes that start with c30100"),
        (b"\x00" * 40, DeadReason.UNDECODABLE, "found 40 bytes that start with 00000000000000000000"),
        (b'{"lane": "x", "block": 1}', DeadReason.UNDECODABLE, "expected Avro single-object encoding"),
        (
            b"\xc3\x01" + bytes(range(8)) + b"x",
            DeadReason.UNKNOWN_SCHEMA,
            "found 0001020304050607, which is of no known schema",
        ),
        (
            write(schemas()["validator.DownwardMessage"], DOWNWARD),
            DeadReason.UNDECODABLE,
            " on topic validator.candidates, found one of validator.DownwardMessage",
        ),
        (
            schemas()["validator.Verdict"].header,
            DeadReason.UNDECODABLE,
            "found one of validator.Verdict",
        ),
        (
            value_of(RecordKind.CANDIDATE) + b"\x00",
            DeadReason.UNDECODABLE,
            "expected the end of the record at byte",
        ),
        (value_of(RecordKind.CANDIDATE)[:-1], DeadReason.UNDECODABLE, ".candidate_hash: expected 32 bytes at byte"),
        (bytes(limits.RECORD_BYTES_MAX + 1), DeadReason.LIMIT, "expected at most 8388608 bytes, found 8388609"),
    ],
)
def test_invalid_candidate_becomes_dead_letter(value: bytes | None, reason: DeadReason, detail: str) -> None:
    letter = dead(RecordKind.CANDIDATE, value, b"kusama")
    assert (letter.lane, letter.reason, letter.block, letter.index) == ("kusama", reason, None, None)
    assert detail in letter.detail
    assert "\n" not in letter.detail


@pytest.mark.parametrize(
    ("key", "lane"), [(None, ""), (b"kusama", "kusama"), (b"\xff", "\ufffd"), (b"k" * 99, "k" * 64)]
)
def test_dead_letter_without_lane_takes_it_from_key(key: bytes | None, lane: str) -> None:
    assert dead(RecordKind.BLOCK, b"junk", key).lane == lane


U32_OVER = limits.U32_MAX + 1
RANGE = "0 to 4294967295"
ENDS = {"sender": 1, "recipient": 2}
U32_ARGUMENTS = [
    (name, field) for name, (call, _) in CALLS.items() for field in call if field not in ("channel", "weight_limit")
]


@pytest.mark.parametrize(
    ("kind", "changes", "detail"),
    [
        (RecordKind.CANDIDATE, {"lane": ""}, "lane: expected 1 to 64 characters, found 0"),
        (RecordKind.CANDIDATE, {"lane": "x" * 65}, "lane: expected 1 to 64 characters, found 65"),
        (RecordKind.CANDIDATE, {"block": U32_OVER}, f"block: expected {RANGE}, found {U32_OVER}"),
        (RecordKind.CANDIDATE, {"block": -1}, f"block: expected {RANGE}, found -1"),
        (RecordKind.CANDIDATE, {"index": 65_536}, "index: expected 0 to 65535, found 65536"),
        (RecordKind.CANDIDATE, {"index": -1}, "index: expected 0 to 65535, found -1"),
        (RecordKind.CANDIDATE, {"para_id": U32_OVER}, f"para_id: expected {RANGE}, found {U32_OVER}"),
        (RecordKind.CANDIDATE, {"relay_parent_number": -1}, f"relay_parent_number: expected {RANGE}, found -1"),
        (RecordKind.CANDIDATE, {"block": 0}, "relay_parent_number: expected a block number, since block 0 has none"),
        (RecordKind.CANDIDATE, {"hrmp_watermark": U32_OVER}, f"hrmp_watermark: expected {RANGE}, found {U32_OVER}"),
        (
            RecordKind.CANDIDATE,
            {"processed_downward_messages": -3},
            f"processed_downward_messages: expected {RANGE}, found -3",
        ),
        (
            RecordKind.CANDIDATE,
            {"upward_messages": [b""] * 4097},
            "upward_messages: expected at most 4096 messages, found 4097",
        ),
        (
            RecordKind.CANDIDATE,
            {"upward_messages": [b"", bytes(limits.PAYLOAD_BYTES_MAX + 1)]},
            "upward_messages[1]: expected at most 4194304 bytes, found 4194305 bytes",
        ),
        (
            RecordKind.CANDIDATE,
            {"horizontal_messages": [{"recipient": 1, "data": b""}] * 4097},
            "horizontal_messages: expected at most 4096 messages, found 4097",
        ),
        (
            RecordKind.CANDIDATE,
            {"horizontal_messages": [{"recipient": 1, "data": b""}, {"recipient": U32_OVER, "data": b""}]},
            f"horizontal_messages[1].recipient: expected {RANGE}, found {U32_OVER}",
        ),
        (
            RecordKind.CANDIDATE,
            {"horizontal_messages": [{"recipient": 1, "data": bytes(limits.PAYLOAD_BYTES_MAX + 1)}]},
            "horizontal_messages[0].data: expected at most 4194304 bytes",
        ),
        (RecordKind.DOWNWARD, {"para_id": -1}, f"para_id: expected {RANGE}, found -1"),
        (RecordKind.DOWNWARD, {"msg": bytes(limits.PAYLOAD_BYTES_MAX + 1)}, "msg: expected at most 4194304 bytes"),
        (
            RecordKind.REQUEST,
            {"request": ("validator.router.AcceptOpenChannel", {"origin": 1, "sender": -1})},
            f"request.sender: expected {RANGE}, found -1",
        ),
        (
            RecordKind.REQUEST,
            {"request": ("validator.router.CloseChannel", {"origin": 1, "channel": {"sender": 1, "recipient": -1}})},
            f"request.channel.recipient: expected {RANGE}, found -1",
        ),
        *(
            (
                RecordKind.REQUEST,
                {"request": (f"validator.router.{name}", {**CALLS[name][0], field: value})},
                f"request.{field}: expected {RANGE}, found {value}",
            )
            for name, field in U32_ARGUMENTS
            for value in (-1, U32_OVER)
        ),
        *(
            (
                RecordKind.REQUEST,
                {"request": (f"validator.router.{name}", {**CALLS[name][0], "channel": {**ENDS, end: U32_OVER}})},
                f"request.channel.{end}: expected {RANGE}, found {U32_OVER}",
            )
            for name in ("CloseChannel", "CancelOpenRequest")
            for end in ENDS
        ),
        (
            RecordKind.REQUEST,
            {"request": ("validator.router.ForceOpenChannel", dict.fromkeys(CALLS["ForceOpenChannel"][0], -1))},
            f"request.sender: expected {RANGE}, found -1",
        ),
        (
            RecordKind.REQUEST,
            {
                "request": (
                    "validator.router.CancelOpenRequest",
                    {"origin": -1, "channel": {"sender": -1, "recipient": 1}},
                )
            },
            f"request.origin: expected {RANGE}, found -1",
        ),
        *(
            (
                RecordKind.BLOCK,
                session_change(**{name: value}),
                f"session_change.new_config.{name}: expected 0 to {MAXIMA[name]}, found {value}",
            )
            for name in LATER_FIELDS
            if name != "existential_deposit"  # 16 bytes hold nothing greater
            for value in (-1, MAXIMA[name] + 1, 2**63 - 1)
        ),
        (
            RecordKind.BLOCK,
            session_change(message_queue_heap_size=-1, hrmp_notification_xcm_version=6, max_upward_queue_size=0),
            "session_change.new_config.hrmp_notification_xcm_version: expected 0 to 5, found 6",
        ),
        (RecordKind.BLOCK, {"parent_number": 17}, "parent_number: expected 0 to 16, below the block, found 17"),
        (RecordKind.BLOCK, {"parent_number": -1}, "parent_number: expected 0 to 16, below the block, found -1"),
        (RecordKind.BLOCK, {"block": 0}, "parent_number: expected a block number, since block 0 has none"),
        (RecordKind.BLOCK, {"candidates": 65_537}, "candidates: expected 0 to 65536, found 65537"),
        (RecordKind.BLOCK, {"requests": -1}, "requests: expected 0 to 65536, found -1"),
        (RecordKind.BLOCK, {"downward": 2**40}, "downward: expected 0 to 65536, found 1099511627776"),
        (
            RecordKind.BLOCK,
            {"included": [{"para_id": 1, "backed_at": None}] * 65_537},
            "included: expected at most 65536 entries, found 65537",
        ),
        (
            RecordKind.BLOCK,
            {"timed_out": [{"para_id": 1, "backed_at": -1}]},
            f"timed_out[0].backed_at: expected {RANGE}, found -1",
        ),
        (
            RecordKind.BLOCK,
            {"session_change": {"outgoing": [1, U32_OVER], "onboarding": [], "new_config": None}},
            f"session_change.outgoing[1]: expected {RANGE}, found {U32_OVER}",
        ),
        (
            RecordKind.BLOCK,
            {"session_change": {"outgoing": [1] * 65_537, "onboarding": [], "new_config": None}},
            "session_change.outgoing: expected at most 65536 entries, found 65537",
        ),
        (
            RecordKind.BLOCK,
            {
                "session_change": {
                    "outgoing": [],
                    "onboarding": [{"para_id": -2, "kind": "parachain", "balance": bytes(16)}],
                    "new_config": None,
                }
            },
            f"session_change.onboarding[0].para_id: expected {RANGE}, found -2",
        ),
        (
            RecordKind.BLOCK,
            {"session_change": {"outgoing": [], "onboarding": [], "new_config": {"max_upward_queue_size": U32_OVER}}},
            f"session_change.new_config.max_upward_queue_size: expected {RANGE}, found {U32_OVER}",
        ),
        (
            RecordKind.BLOCK,
            {
                "session_change": {
                    "outgoing": [],
                    "onboarding": [],
                    "new_config": {"preferred_dispatchable_upward_messages_step_weight": -1},
                }
            },
            "session_change.new_config.preferred_dispatchable_upward_messages_step_weight: expected 0 to 9223372036854775807",
        ),
    ],
)
def test_value_over_limit_becomes_dead_letter(kind: RecordKind, changes: dict[str, Any], detail: str) -> None:
    letter = dead(kind, value_of(kind, **changes), b"key")
    assert letter.reason is DeadReason.LIMIT
    assert letter.detail.startswith(f"{NAMES[kind]}.{detail}")
    record = {**EXAMPLES[kind], **changes}
    assert letter.lane == (record["lane"][: limits.LANE_NAME_LENGTH_MAX] or "key")
    assert letter.block == (record["block"] if 0 <= record["block"] <= limits.U32_MAX else None)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (RecordKind.CANDIDATE, {"lane": "x" * 64, "index": 65_535, "block": limits.U32_MAX}),
        (RecordKind.CANDIDATE, {"upward_messages": [b""] * 4096, "para_id": limits.U32_MAX}),
        (RecordKind.CANDIDATE, {"upward_messages": [bytes(limits.PAYLOAD_BYTES_MAX)]}),
        (RecordKind.CANDIDATE, {"block": 0, "relay_parent_number": 0}),
        (RecordKind.BLOCK, {"candidates": 65_536, "included": [{"para_id": 1, "backed_at": None}] * 65_536}),
        (RecordKind.BLOCK, {"parent_number": 0}),
    ],
)
def test_value_at_limit_is_accepted(kind: RecordKind, changes: dict[str, Any]) -> None:
    assert not isinstance(decoded(kind, value_of(kind, **changes), SOURCE), DeadLetter)


# --- hostile bytes ---

CANDIDATE_START = value_of(RecordKind.CANDIDATE, upward_messages=[], horizontal_messages=[], candidate_hash=None)[:-4]
"""A candidate cut before its upward messages: their count, the processed count, the horizontal messages and the hash are missing."""
HUGE = b"\x80\x80\x80\x80\x80\x80\x01"


def test_candidate_start_completed_with_empty_fields_is_valid() -> None:
    read(RecordKind.CANDIDATE, CANDIDATE_START + b"\x00\x00\x00\x00")


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(HUGE, id="2**41 upward messages"),
        pytest.param(HUGE + b"\x00" * 20, id="2**41 upward messages, some there"),
        pytest.param(b"\x02" + HUGE, id="an upward message of 2**41 bytes"),
        pytest.param(b"\x02\x01\x00\x00\x00\x00", id="an upward message of -1 bytes"),
        pytest.param(b"\x02" + b"\xff" * 9 + b"\x01", id="an upward message of -2**63 bytes"),
        pytest.param(b"\x80" * 60, id="a number that does not end"),
        pytest.param(b"\xff" * 9 + b"\x01" + b"\x00" * 10, id="-2**63 upward messages"),
        pytest.param(b"\x00\x00\x00\x06", id="a branch that the union lacks"),
        pytest.param(b"\x00\x00" + HUGE, id="2**41 horizontal messages"),
    ],
)
def test_wrong_length_is_undecodable(rest: bytes) -> None:
    assert dead(RecordKind.CANDIDATE, CANDIDATE_START + rest).reason is DeadReason.UNDECODABLE


def test_lane_that_is_not_utf_8_is_undecodable() -> None:
    value = value_of(RecordKind.CANDIDATE).replace(b"polkadot", b"polk\xffdot")
    assert dead(RecordKind.CANDIDATE, value).reason is DeadReason.UNDECODABLE


def test_large_record_of_tiny_items_is_refused_before_it_is_built() -> None:
    count = ITEMS_MAX + 1
    pairs = {**BLOCK, "included": [{"para_id": 0, "backed_at": None}] * count}
    value = write(schemas()["validator.Block"], pairs)
    assert len(value) < limits.RECORD_BYTES_MAX
    tracemalloc.start()
    letter = dead(RecordKind.BLOCK, value)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * len(value)  # each item would take hundreds of bytes
    assert letter.reason is DeadReason.LIMIT
    assert letter.detail == f"validator.Block.included: expected at most {ITEMS_MAX} items at byte 25, found {count}"


@pytest.mark.parametrize("cut", [1, 40_000, 70_000])
def test_truncated_large_record_is_undecodable(cut: int) -> None:
    value = value_of(RecordKind.CANDIDATE, upward_messages=[bytes(50_000), bytes(50_000)])
    read(RecordKind.CANDIDATE, value)
    assert dead(RecordKind.CANDIDATE, value[:-cut]).reason is DeadReason.UNDECODABLE


# --- chunks ---


@given(
    st.lists(st.sampled_from(RecordKind).flatmap(lambda kind: INPUTS[kind].map(lambda each: (kind, each))), max_size=5)
)
def test_unpack_returns_packed_items(chosen: list[tuple[RecordKind, dict[str, Any]]]) -> None:
    items: list[Input | DeadLetter] = []
    for offset, (kind, record) in enumerate(chosen):
        result = decoded(kind, encoded(kind, record), Source(TOPIC_OF_KIND[kind], 0, offset))
        assert not isinstance(result, DeadLetter)
        items += [result[1], dead(kind, b"junk")]
    out = unpack(pack(items))
    assert out == items
    assert [type(item) for item in out] == [type(item) for item in items]
    assert all(isinstance(item.source, Source) for item in out)
    assert all(
        isinstance(item.kind if isinstance(item, Input) else item.reason, RecordKind | DeadReason) for item in out
    )
