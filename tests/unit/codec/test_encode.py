# SPDX-License-Identifier: Apache-2.0
"""Outcomes of the core to Kafka records and back."""

from __future__ import annotations

from dataclasses import dataclass, fields
from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.codec import records as make
from validator.codec.encode import Encoder, LaneStatus, encode_dead_letter, verdict_id, write
from validator.codec.json_form import encode_json, to_json
from validator.codec.schemas import schemas
from validator.core import limits
from validator.core.errors import Violation
from validator.core.inputs import DeadLetter
from validator.core.lane import Counters
from validator.core.outcomes import (
    ChannelEvent,
    ChannelEventKind,
    ChannelHeadroom,
    Dispatch,
    Executed,
    InputKind,
    MessageRef,
    ParaHeadroom,
    Receipt,
    Verdict,
)
from validator.protocols.router.errors import InsufficientBalance, OpenHrmpChannelToSelf, OutboundNoSuchChannel

DIGEST = bytes(range(32))
ENCODER = Encoder("polkadot", DIGEST)


def lists(value: Any) -> Any:
    """Tuples as lists: fastavro takes a tuple for a branch of a union and its value."""
    return list(map(lists, value)) if isinstance(value, tuple) else value


def verdict_by_fastavro(lane: str, verdict: Verdict) -> bytes:
    """The verdict as fastavro writes it from a dict."""
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
            "runtime_digest": DIGEST,
            "id": verdict_id(lane, verdict.block, verdict.kind.value, verdict.index),
        },
    )


@given(make.LANE, make.VERDICT)
def test_a_verdict_is_what_fastavro_writes(lane: str, verdict: Verdict) -> None:
    encoded = Encoder(lane, DIGEST).verdict(verdict)
    assert encoded == verdict_by_fastavro(lane, verdict)
    assert encode_json(schemas()["validator.Verdict"], to_json("verdicts", encoded)) == encoded


@pytest.mark.parametrize("kind", make.VIOLATION_TYPES, ids=lambda kind: kind.__name__)
def test_every_violation_is_told_with_its_fields(kind: type[Violation]) -> None:
    values: dict[str, Any] = {
        name: {"sender": 1, "recipient": 2} if name == "channel_id" else at
        for at, name in enumerate(field.name for field in fields(kind))
    }
    told = to_json("verdicts", ENCODER.verdict(Verdict(InputKind.REQUEST, 5, 0, 1, kind(**values))))
    assert (told["ok"], told["error"], told["clause"]) == (False, {"kind": kind.kind, **values}, kind.clause)


def test_verdicts_in_json() -> None:
    message = MessageRef(2004, 7, DIGEST)
    accepted = Verdict(InputKind.CANDIDATE, 17, 1, 2000, None, enacted=True, messages=(message,), candidate_hash=DIGEST)
    assert to_json("verdicts", ENCODER.verdict(accepted)) == {
        "lane": "polkadot",
        "block": 17,
        "kind": "candidate",
        "index": 1,
        "para_id": 2000,
        "ok": True,
        "enacted": True,
        "messages": [{"recipient": 2004, "sequence_number": 7, "mqc_head": DIGEST.hex()}],
        "effective_session": None,
        "expires_session": None,
        "candidate_hash": DIGEST.hex(),
        "runtime_digest": DIGEST.hex(),
        "id": blake2b(b"polkadot/17/candidate/1", digest_size=16).hexdigest(),
    }
    rejected = Verdict(InputKind.REQUEST, 17, 0, 2000, InsufficientBalance(2**63, limits.U128_MAX))
    told = to_json("verdicts", ENCODER.verdict(rejected))
    assert told["error"] == {"kind": "InsufficientBalance", "free": 2**63, "deposit": limits.U128_MAX}


@pytest.mark.parametrize(
    "violation",
    [
        OpenHrmpChannelToSelf(),
        InsufficientBalance(2**63 - 1, 2**63),
        OutboundNoSuchChannel(0, {"sender": 1, "recipient": 2}),
    ],
)
def test_details_of_every_type(violation: Violation) -> None:
    verdict = Verdict(InputKind.REQUEST, 17, 0, 2000, violation)
    assert ENCODER.verdict(verdict) == verdict_by_fastavro("polkadot", verdict)


@dataclass(eq=False)
class Unread(Violation):
    """An error whose fields are places."""

    last: tuple[int, int]
    pending: tuple[tuple[int, int], ...]


@pytest.mark.parametrize("pending", [(), ((4, 1),), ((4, 1), (2**32 - 1, 0))])
def test_places_are_told_as_arrays(pending: tuple[tuple[int, int], ...]) -> None:
    verdict = Verdict(InputKind.CANDIDATE, 17, 0, 2000, Unread((4, 0), pending))
    assert ENCODER.verdict(verdict) == verdict_by_fastavro("polkadot", verdict)
    told = to_json("verdicts", ENCODER.verdict(verdict))
    assert told["error"] == {"kind": "", "last": [4, 0], "pending": [list(place) for place in pending]}


def test_what_no_verdict_can_hold_is_a_bug() -> None:
    with pytest.raises(OverflowError):
        ENCODER.verdict(Verdict(InputKind.REQUEST, 17, 0, 1, InsufficientBalance(limits.U128_MAX + 1, 0)))
    with pytest.raises(OverflowError):
        ENCODER.verdict(Verdict(InputKind.REQUEST, 2**63, 0, 1))


def test_a_verdicts_id_depends_on_lane_block_kind_and_index_alone() -> None:
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
def test_dispatches(dispatch: Dispatch) -> None:
    encoded = ENCODER.dispatch(dispatch)
    told = to_json("dispatches", encoded)
    expected = {
        **dispatch._asdict(),
        "lane": "polkadot",
        "payload": dispatch.payload.hex(),
        "events": [{"name": event.name, "data": event.data.hex()} for event in dispatch.events],
        "runtime_digest": DIGEST.hex(),
    }
    assert told == {**expected, "outcome": dispatch.outcome.value}
    assert encode_json(schemas()["validator.Dispatch"], told) == encoded


@given(make.CHANNEL_EVENT)
def test_channel_events(event: ChannelEvent) -> None:
    encoded = ENCODER.channel_event(event)
    told = to_json("channel-events", encoded)
    assert encode_json(schemas()["validator.ChannelEvent"], told) == encoded
    for side, deposit in (("sender", event.sender_deposit), ("recipient", event.recipient_deposit)):
        reserved, returned = told.pop(f"{side}_reserved"), told.pop(f"{side}_returned")
        assert reserved - returned == deposit
        assert 0 in (reserved, returned)
    expected = {**event._asdict(), "lane": "polkadot", "event": event.event.value, "runtime_digest": DIGEST.hex()}
    assert told == {name: value for name, value in expected.items() if not name.endswith("_deposit")}


@given(make.PARA_HEADROOM | make.CHANNEL_HEADROOM, make.U32)
def test_headroom(headroom: ParaHeadroom | ChannelHeadroom, block: int) -> None:
    record = ENCODER.headroom(block, headroom)
    told = to_json("headroom", record.value)
    name = f"validator.router.{type(headroom).__name__}"
    assert encode_json(schemas()[name], told) == record.value
    if isinstance(headroom, ParaHeadroom):
        assert record.key == f"polkadot/{headroom.para_id}".encode()
        told["valid_watermarks"] = tuple(told["valid_watermarks"])
    else:
        assert record.key == f"polkadot/{headroom.sender}/{headroom.recipient}".encode()
    assert told == {"lane": "polkadot", "block": block, **headroom._asdict()}


@given(make.RECEIPT)
def test_receipts(receipt: Receipt) -> None:
    record = ENCODER.receipt(receipt)
    told = to_json("receipts", record.value)
    assert encode_json(schemas()["validator.Receipt"], told) == record.value
    root = receipt.state_root.hex() if receipt.state_root else None
    assert told == {"lane": "polkadot", **receipt._asdict(), "runtime_digest": DIGEST.hex(), "state_root": root}


@given(make.DEAD_LETTER)
def test_dead_letters(letter: DeadLetter) -> None:
    record = encode_dead_letter(letter)
    assert (record.topic, record.key) == ("dead-letters", letter.lane.encode())
    told = to_json("dead-letters", record.value)
    assert encode_json(schemas()["validator.DeadLetter"], told) == record.value
    assert told == {
        "lane": letter.lane,
        "reason": letter.reason.name,
        "detail": letter.detail,
        **letter.source._asdict(),
        "block": letter.block,
        "index": letter.index,
        "raw": letter.raw.hex(),
    }


@given(
    make.optional(make.U32), make.U32, make.U63, make.optional(make.TEXT), make.COUNTERS, make.optional(make.RECEIPT)
)
def test_lane_status(
    executed: int | None, blocks: int, size: int, words: str | None, counters: Counters, receipt: Receipt | None
) -> None:
    record = ENCODER.lane_status(LaneStatus(executed, blocks, size, words, counters, receipt))
    assert (record.topic, record.key) == ("lanes", b"polkadot")
    told = to_json("lanes", record.value)
    assert encode_json(schemas()["validator.LaneStatus"], told) == record.value
    assert (told["executed_block"], told["waiting_blocks"], told["waiting_bytes"]) == (executed, blocks, size)
    assert (told["waiting_for"], told["consumed"], told["accepted"]) == (words, counters.consumed, counters.accepted)
    assert (told["rejected"], told["duplicate"]) == (counters.rejected, counters.duplicate)
    assert (told["dead"], told["waiting"]) == (counters.dead, counters.waiting)
    last = None if receipt is None else to_json("receipts", ENCODER.receipt(receipt).value)
    assert told["last_receipt"] == last


def _executed() -> Executed:
    return Executed(
        [Verdict(InputKind.CANDIDATE, 17, 0, 2000), Verdict(InputKind.CANDIDATE, 17, 1, 2001)],
        [],
        [ChannelEvent(17, 0, ChannelEventKind.OPENED, 1, 2, 0, -5, 3)],
        [ParaHeadroom(2000, valid=True), ChannelHeadroom(1, 2, open=True)],
        Receipt(17, 16, 3, 2, 0, 2, 0, 0),
    )


def test_a_block_is_encoded_in_the_order_of_what_it_told_and_its_receipt_is_last() -> None:
    records = ENCODER.executed(_executed())
    assert [(record.topic, record.key) for record in records] == [
        ("verdicts", b"polkadot"),
        ("verdicts", b"polkadot"),
        ("channel-events", b"polkadot"),
        ("headroom", b"polkadot/2000"),
        ("headroom", b"polkadot/1/2"),
        ("receipts", b"polkadot"),
    ]
    assert to_json("headroom", records[3].value)["block"] == 17
    assert records == Encoder("polkadot", DIGEST).executed(_executed())


def test_a_runtime_digest_has_32_bytes() -> None:
    with pytest.raises(ValueError, match="expected 32 bytes, found 3"):
        Encoder("polkadot", b"abc")


@given(st.data())
def test_the_same_outcome_gives_the_same_bytes(data: st.DataObject) -> None:
    verdict = data.draw(make.VERDICT)
    again = verdict._replace(messages=tuple(MessageRef(*message) for message in verdict.messages))
    assert Encoder("polkadot", DIGEST).verdict(verdict) == Encoder("polkadot", bytes(DIGEST)).verdict(again)
