# SPDX-License-Identifier: Apache-2.0
"""Outcomes of the core encode to Kafka records and decode back."""

from __future__ import annotations

from dataclasses import dataclass, fields
from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import given

from tests.unit.codec import records as make
from validator.codec.codec import shared_codec
from validator.codec.decode import decode_record
from validator.codec.encode import Encoder, LaneStatus, encode_dead_letter, fitted, verdict_id, write
from validator.codec.inflight import pack, unpack
from validator.codec.json_form import encode_json, to_json
from validator.codec.schemas import schemas
from validator.core import limits
from validator.core.counters import Counters
from validator.core.errors import Violation
from validator.core.inputs import DeadLetter, DeadReason, RecordKind, Source
from validator.core.outcomes import (
    ChannelEvent,
    ChannelEventKind,
    ChannelHeadroom,
    Dispatch,
    Executed,
    IngressEvent,
    IngressEventKind,
    InputKind,
    MessageRange,
    MessageRef,
    ParaHeadroom,
    Receipt,
    Signal,
    Verdict,
)
from validator.kafka.settings import DEAD_LETTER_BYTES_MAX
from validator.protocols.router.errors import InsufficientBalance, OpenHrmpChannelToSelf, OutboundNoSuchChannel
from validator.protocols.router.features.errors import InsufficientWeight, RequestNotInForce

DIGEST = bytes(range(32))
ENCODER = Encoder("polkadot", DIGEST)


def lists(value: Any) -> Any:
    """Convert tuples to lists: fastavro reads a tuple as a union branch with its value."""
    return list(map(lists, value)) if isinstance(value, tuple) else value


def verdict_by_fastavro(lane: str, verdict: Verdict) -> bytes:
    """Return the verdict as fastavro writes it from a dict."""
    error: dict[str, Any] | None = None
    if verdict.violation is not None:
        details = [
            {"name": name, "value": value.to_bytes(16) if isinstance(value, int) and value >= 2**63 else lists(value)}
            for name, value in verdict.violation.details().items()
        ]
        error = {"kind": verdict.violation.kind, "clause": verdict.violation.clause, "details": details}
    return write(
        schemas()["validator.Verdict"],
        {
            **verdict._asdict(),
            "lane": lane,
            "kind": verdict.kind.value,
            "outcome": "accepted" if error is None else "rejected",
            "error": error,
            "messages": [message._asdict() for message in verdict.messages],
            "received": [taken._asdict() for taken in verdict.received],
            "signals": [signal._asdict() for signal in verdict.signals],
            "runtime_digest": DIGEST,
            "id": verdict_id(lane, verdict.block, verdict.kind.value, verdict.index),
        },
    )


@given(make.LANE, make.VERDICT)
def test_encoded_verdict_matches_fastavro(lane: str, verdict: Verdict) -> None:
    encoded = Encoder(lane, DIGEST).verdict(verdict)
    assert encoded == verdict_by_fastavro(lane, verdict)
    assert encode_json(schemas()["validator.Verdict"], to_json("verdicts", encoded)) == encoded


@pytest.mark.parametrize("kind", make.VIOLATION_TYPES, ids=lambda kind: kind.__name__)
def test_verdict_shows_every_violation_with_its_fields(kind: type[Violation]) -> None:
    values: dict[str, Any] = {
        name: {"channel_id": {"sender": 1, "recipient": 2}, "request": "poke_channel_deposits"}.get(name, at)
        for at, name in enumerate(field.name for field in fields(kind))
    }
    document = to_json("verdicts", ENCODER.verdict(Verdict(InputKind.REQUEST, 5, 0, 1, kind(**values))))
    assert (document["ok"], document["error"]) == (False, {"kind": kind.kind, **values, "clause": kind.clause})


def test_digest_may_change_between_two_blocks() -> None:
    encoder = Encoder("polkadot", DIGEST)
    encoder.runtime_digest = bytes(32)
    assert encoder.verdict(Verdict(InputKind.DOWNWARD, 1, 0, 1)) == Encoder("polkadot", bytes(32)).verdict(
        Verdict(InputKind.DOWNWARD, 1, 0, 1)
    )


def test_verdict_in_json_has_every_field() -> None:
    message = MessageRef(2004, 7, DIGEST)
    signals = (Signal("SelectCore", selector=1, offset=0), Signal("ApprovedPeer", peer=b"\xaa"))
    accepted = Verdict(
        InputKind.CANDIDATE,
        17,
        1,
        2000,
        None,
        enacted=True,
        messages=(message,),
        received=(MessageRange(None, 0, 3, 40), MessageRange(2004, 5, 5, 8)),
        candidate_hash=DIGEST,
        signals=signals,
    )
    assert to_json("verdicts", ENCODER.verdict(accepted)) == {
        "lane": "polkadot",
        "block": 17,
        "kind": "candidate",
        "index": 1,
        "para_id": 2000,
        "ok": True,
        "enacted": True,
        "messages": [{"recipient": 2004, "sequence_number": 7, "mqc_head": DIGEST.hex()}],
        "received": [
            {"sender": None, "first": 0, "last": 3, "bytes": 40},
            {"sender": 2004, "first": 5, "last": 5, "bytes": 8},
        ],
        "effective_session": None,
        "expires_session": None,
        "candidate_hash": DIGEST.hex(),
        "signals": [{"kind": "SelectCore", "selector": 1, "offset": 0}, {"kind": "ApprovedPeer", "peer": "aa"}],
        "runtime_digest": DIGEST.hex(),
        "id": blake2b(b"polkadot/17/candidate/1", digest_size=16).hexdigest(),
    }
    rejected = Verdict(InputKind.REQUEST, 17, 0, 2000, InsufficientBalance(2**63, limits.U128_MAX))
    document = to_json("verdicts", ENCODER.verdict(rejected))
    clause = document["error"].pop("clause")
    assert document["error"] == {"kind": "InsufficientBalance", "free": 2**63, "deposit": limits.U128_MAX}
    assert clause == InsufficientBalance.clause
    unknown = Verdict(InputKind.REQUEST, 17, 0, 2000, RequestNotInForce("cancel_open_request"))
    document = to_json("verdicts", ENCODER.verdict(unknown))
    fields_ = {"kind": "RequestNotInForce", "request": "cancel_open_request"}
    assert document["error"] == {**fields_, "clause": "router_profiles 1"}


@pytest.mark.parametrize(
    "violation",
    [
        OpenHrmpChannelToSelf(),
        InsufficientBalance(2**63 - 1, 2**63),
        OutboundNoSuchChannel(0, {"sender": 1, "recipient": 2}),
        RequestNotInForce("service_overweight"),
        InsufficientWeight(2**64 - 1, 2**63 - 1),
    ],
)
def test_violation_details_of_every_type_match_fastavro(violation: Violation) -> None:
    verdict = Verdict(InputKind.REQUEST, 17, 0, 2000, violation)
    assert ENCODER.verdict(verdict) == verdict_by_fastavro("polkadot", verdict)


@dataclass(eq=False)
class Unread(Violation):
    """An error whose fields are tuples of integers."""

    last: tuple[int, int]
    pending: tuple[tuple[int, int], ...]


@pytest.mark.parametrize("pending", [(), ((4, 1),), ((4, 1), (2**32 - 1, 0))])
def test_tuples_are_written_as_arrays(pending: tuple[tuple[int, int], ...]) -> None:
    verdict = Verdict(InputKind.CANDIDATE, 17, 0, 2000, Unread((4, 0), pending))
    assert ENCODER.verdict(verdict) == verdict_by_fastavro("polkadot", verdict)
    document = to_json("verdicts", ENCODER.verdict(verdict))
    assert document["error"] == {
        "kind": "",
        "last": [4, 0],
        "pending": [list(place) for place in pending],
        "clause": "",
    }


def test_verdict_value_out_of_range_raises_overflow_error() -> None:
    with pytest.raises(OverflowError):
        ENCODER.verdict(Verdict(InputKind.REQUEST, 17, 0, 1, InsufficientBalance(limits.U128_MAX + 1, 0)))
    with pytest.raises(OverflowError):
        ENCODER.verdict(Verdict(InputKind.REQUEST, 2**63, 0, 1))


def test_verdict_id_depends_only_on_lane_block_kind_and_index() -> None:
    verdict = Verdict(InputKind.CANDIDATE, 17, 1, 2000)

    def identity(lane: str, judged: Verdict) -> str:
        return str(to_json("verdicts", Encoder(lane, DIGEST).verdict(judged))["id"])

    same = {
        identity("a", verdict),
        identity("a", verdict._replace(para_id=1, enacted=True, violation=OpenHrmpChannelToSelf())),
    }
    others = [
        identity("b", verdict),
        identity("a", verdict._replace(block=18)),
        identity("a", verdict._replace(kind=InputKind.INCLUSION)),
        identity("a", verdict._replace(index=2)),
    ]
    assert len(same) == 1
    assert len({*same, *others}) == 5


@given(make.DISPATCH)
def test_dispatch_round_trips_through_json(dispatch: Dispatch) -> None:
    encoded = ENCODER.dispatch(dispatch)
    document = to_json("dispatches", encoded)
    expected = {
        **dispatch._asdict(),
        "lane": "polkadot",
        "payload": dispatch.payload.hex(),
        "events": [{"name": event.name, "data": event.data.hex()} for event in dispatch.events],
        "messages": [{**message._asdict(), "mqc_head": message.mqc_head.hex()} for message in dispatch.messages],
        "runtime_digest": DIGEST.hex(),
    }
    assert document == {**expected, "outcome": dispatch.outcome.value}
    assert encode_json(schemas()["validator.Dispatch"], document) == encoded


@given(make.CHANNEL_EVENT)
def test_channel_event_round_trips_through_json(event: ChannelEvent) -> None:
    encoded = ENCODER.channel_event(event)
    document = to_json("channel-events", encoded)
    assert encode_json(schemas()["validator.ChannelEvent"], document) == encoded
    for side, deposit in (("sender", event.sender_deposit), ("recipient", event.recipient_deposit)):
        reserved, returned = document.pop(f"{side}_reserved"), document.pop(f"{side}_returned")
        assert reserved - returned == deposit
        assert 0 in (reserved, returned)
    expected = {
        **event._asdict(),
        "lane": "polkadot",
        "event": event.event.value,
        "dropped": [taken._asdict() for taken in event.dropped],
        "runtime_digest": DIGEST.hex(),
    }
    assert document == {name: value for name, value in expected.items() if not name.endswith("_deposit")}


@given(make.INGRESS_EVENT)
def test_ingress_event_round_trips_through_json(event: IngressEvent) -> None:
    encoded = ENCODER.ingress_event(event)
    document = to_json("ingress-events", encoded)
    assert encode_json(schemas()["validator.IngressEvent"], document) == encoded
    assert document == {
        **event._asdict(),
        "lane": "polkadot",
        "event": event.event.value,
        "root": event.root.hex(),
        "runtime_digest": DIGEST.hex(),
    }


@given(make.PARA_HEADROOM | make.CHANNEL_HEADROOM, make.U32)
def test_headroom_round_trips_through_json(headroom: ParaHeadroom | ChannelHeadroom, block: int) -> None:
    record = ENCODER.headroom(block, headroom)
    document = to_json("headroom", record.value)
    name = f"validator.router.{type(headroom).__name__}"
    assert encode_json(schemas()[name], document) == record.value
    if isinstance(headroom, ParaHeadroom):
        assert record.key == f"polkadot/{headroom.para_id}".encode()
        document["valid_watermarks"] = tuple(document["valid_watermarks"])
    else:
        assert record.key == f"polkadot/{headroom.sender}/{headroom.recipient}".encode()
    assert document == {"lane": "polkadot", "block": block, **headroom._asdict()}


@given(make.RECEIPT)
def test_receipt_round_trips_through_json(receipt: Receipt) -> None:
    record = ENCODER.receipt(receipt)
    document = to_json("receipts", record.value)
    assert encode_json(schemas()["validator.Receipt"], document) == record.value
    root = receipt.state_root.hex() if receipt.state_root else None
    assert document == {"lane": "polkadot", **receipt._asdict(), "runtime_digest": DIGEST.hex(), "state_root": root}


@given(make.DEAD_LETTER)
def test_dead_letter_round_trips_through_json(letter: DeadLetter) -> None:
    record = encode_dead_letter(letter)
    assert (record.topic, record.key) == ("dead-letters", letter.lane.encode())
    document = to_json("dead-letters", record.value)
    assert encode_json(schemas()["validator.DeadLetter"], document) == record.value
    assert document == {
        "lane": letter.lane,
        "reason": letter.reason.name,
        "detail": letter.detail,
        **letter.source._asdict(),
        "block": letter.block,
        "index": letter.index,
        "raw": letter.raw.hex(),
        "whole_bytes": letter.whole and letter.whole.size,
        "whole_hash": letter.whole and letter.whole.hash.hex(),
    }


@pytest.mark.parametrize("size", [limits.RECORD_BYTES_MAX, limits.RECORD_BYTES_MAX + 1, 10 << 20])
def test_every_dead_letter_fits_into_a_record(size: int) -> None:
    raw = b"\xc3\x01" + bytes(size - 3) + b"\x07"
    source = Source("t" * 249, 2**32 - 1, 2**63 - 1)
    letter = DeadLetter(
        "\U0001f4a5" * limits.LANE_NAME_LENGTH_MAX, DeadReason.LIMIT, "\U0001f4a5" * (8 << 20), source, raw, 1, 2
    )
    record = encode_dead_letter(letter)
    assert len(record.value) + len(record.key) + (64 << 10) < DEAD_LETTER_BYTES_MAX
    document = to_json("dead-letters", record.value)
    assert len(document["detail"]) == limits.DEAD_LETTER_DETAIL_CHARACTERS_MAX
    assert document["detail"].endswith("...")
    if size <= limits.RECORD_BYTES_MAX:
        assert (document["raw"], document["whole_bytes"], document["whole_hash"]) == (raw.hex(), None, None)
    else:
        assert document["raw"] == (raw[: limits.DEAD_LETTER_END_BYTES] + raw[-limits.DEAD_LETTER_END_BYTES :]).hex()
        assert (document["whole_bytes"], document["whole_hash"]) == (size, blake2b(raw, digest_size=32).hexdigest())


def test_oversized_value_is_cut_where_it_is_decoded_and_stays_so() -> None:
    value = bytes(limits.RECORD_BYTES_MAX + 1)
    letter = decode_record(shared_codec(), RecordKind.BLOCK, value, Source("blocks", 0, 7))
    assert isinstance(letter, DeadLetter)
    assert len(letter.raw) == 2 * limits.DEAD_LETTER_END_BYTES
    assert letter.whole == (len(value), blake2b(value, digest_size=32).digest())
    assert unpack(pack([letter])) == [letter]
    assert fitted(letter) == letter


@given(
    make.optional(make.U32), make.U32, make.U63, make.optional(make.TEXT), make.COUNTERS, make.optional(make.RECEIPT)
)
def test_lane_status_round_trips_through_json(
    executed: int | None, blocks: int, size: int, waiting_for: str | None, counters: Counters, receipt: Receipt | None
) -> None:
    record = ENCODER.lane_status(LaneStatus(executed, blocks, size, waiting_for, counters, receipt))
    assert (record.topic, record.key) == ("lanes", b"polkadot")
    document = to_json("lanes", record.value)
    assert encode_json(schemas()["validator.LaneStatus"], document) == record.value
    assert (document["executed_block"], document["waiting_blocks"], document["waiting_bytes"]) == (
        executed,
        blocks,
        size,
    )
    assert (document["waiting_for"], document["consumed"], document["accepted"]) == (
        waiting_for,
        counters.consumed,
        counters.accepted,
    )
    assert (document["rejected"], document["duplicate"]) == (counters.rejected, counters.duplicate)
    assert (document["dead"], document["waiting"]) == (counters.dead, counters.waiting)
    last = None if receipt is None else to_json("receipts", ENCODER.receipt(receipt).value)
    assert document["last_receipt"] == last


def _executed() -> Executed:
    return Executed(
        [Verdict(InputKind.CANDIDATE, 17, 0, 2000), Verdict(InputKind.CANDIDATE, 17, 1, 2001)],
        [],
        [ChannelEvent(17, 0, ChannelEventKind.OPENED, 1, 2, 0, -5, 3)],
        [ParaHeadroom(2000, valid=True), ChannelHeadroom(1, 2, open=True)],
        Receipt(17, 16, 3, 2, 0, 2, 0, 0),
        [IngressEvent(17, 0, IngressEventKind.QUEUED, 2, 1, 17, bytes(32), 6)],
    )


def test_block_records_keep_their_order_and_receipt_is_last() -> None:
    records = ENCODER.executed(_executed())
    assert [(record.topic, record.key) for record in records] == [
        ("verdicts", b"polkadot"),
        ("verdicts", b"polkadot"),
        ("channel-events", b"polkadot"),
        ("ingress-events", b"polkadot"),
        ("headroom", b"polkadot/2000"),
        ("headroom", b"polkadot/1/2"),
        ("receipts", b"polkadot"),
    ]
    assert to_json("headroom", records[4].value)["block"] == 17
    assert records == Encoder("polkadot", DIGEST).executed(_executed())


def test_runtime_digest_of_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 32 bytes, found 3"):
        Encoder("polkadot", b"abc")
