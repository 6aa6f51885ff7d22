# SPDX-License-Identifier: Apache-2.0
"""Proofs over rows, message roots and logical messages, and proofs of processing: complete ones and all kinds of forgeries."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from validator_xcmp import errors
from validator_xcmp.errors import PovError
from validator_xcmp.limits import PROOF_BODY_BYTES_MAX, PROOF_BODY_PAYLOADS_MAX, PROOF_LINKS_MAX
from validator_xcmp.merkle import Path, batch_hash, mq_root, msg_root, row_root, xcmp_link
from validator_xcmp.proof_documents import read_processing_proof, show_processing_proof, vector_result
from validator_xcmp.proofs import (
    HeadProof,
    Link,
    ProcessingContext,
    RowProof,
    SenderHistory,
    SenderProof,
    prove_head,
    prove_payload,
    prove_processing,
    prove_row,
    verify_head,
    verify_payload,
    verify_processing,
    verify_row,
)
from validator_xcmp.state import Column
from xcmp_changes import ODD, change_somewhere
from xcmp_forgeries import FORGERIES, refused, world
from xcmp_world import RECIPIENT, Json, entries

from tests.hypothesis_profile import examples
from validator.errors import UserError
from validator.plugin.protocol_api import Node

ROOT = b"\xaa" * 32
ROW = [Column(2, 8, 0, 0, 7, ROOT), Column(3, 8, 0, 0), Column(5, 8, 0, 0, 9, ROOT)]
HEADS = {2: b"\x02" * 32, 5: b"\x05" * 32, 3: b"\x03" * 32}
PAYLOADS = (b"", b"a", b"a", b"ccc", b"dddd")


def answer(entry: Json) -> Json:
    """Return the result of an entry, which must be valid JSON."""
    result = vector_result("pov", Node(entry, "entry"))
    assert json.loads(json.dumps(result)) == result
    return result


# --- rows, message roots, logical messages -----------------------------------------------------------------------------------------------


def test_column_proof_holds_only_for_its_recipient() -> None:
    for index, column in enumerate(ROW):
        proof = prove_row(ROW, index)
        assert (proof.last_updated, proof.message_root) == (column.last_updated, column.message_root)
        for recipient in (2, 3, 5, 6):
            assert verify_row(row_root(ROW), recipient, proof) == (recipient == column.recipient)
        assert not verify_row(row_root(ROW), column.recipient, proof._replace(last_updated=8))
        assert not verify_row(row_root(ROW), column.recipient, proof._replace(message_root=bytes(32)))
        assert not verify_row(row_root(ROW[:2]), column.recipient, proof)


def test_head_proof_holds_only_for_its_recipient() -> None:
    for recipient, head in HEADS.items():
        proof = prove_head(HEADS, recipient)
        assert proof.head == head
        for other in HEADS:
            assert verify_head(mq_root(HEADS), other, proof) == (other == recipient)
        assert not verify_head(mq_root(HEADS), recipient, proof._replace(head=bytes(32)))
    with pytest.raises(KeyError):
        prove_head(HEADS, 4)


def test_payload_proof_holds_only_at_its_index() -> None:
    root = msg_root(PAYLOADS)
    for index, payload in enumerate(PAYLOADS):
        proof = prove_payload(PAYLOADS, index)
        assert [other for other in {*PAYLOADS} if verify_payload(root, other, proof)] == [payload]
    # equal payloads at different indexes have different proofs
    assert not verify_payload(root, b"a", prove_payload(PAYLOADS, 1)._replace(index=2))


@pytest.mark.parametrize("odd", [None, -1, 2**32, True, "", b"", b"\x00" * 31, (), {}, Path(0, 1, ())], ids=repr)
def test_malformed_values_are_rejected_without_error(odd: Any) -> None:
    row, head = prove_row(ROW, 0), prove_head(HEADS, 2)
    assert not verify_row(row_root(ROW), 2, odd)
    assert not verify_row(row_root(ROW), 2, row._replace(last_updated=odd))
    assert not verify_row(row_root(ROW), 2, row._replace(message_root=odd))
    assert not verify_row(row_root(ROW), 2, row._replace(path=odd))
    assert not verify_head(mq_root(HEADS), 2, odd)
    assert not verify_head(mq_root(HEADS), 2, head._replace(head=odd))
    assert not verify_head(mq_root(HEADS), 2, head._replace(path=odd))
    assert not verify_payload(msg_root(PAYLOADS), odd, prove_payload(PAYLOADS, 1))
    assert not verify_payload(msg_root(PAYLOADS), b"a", odd)


# --- complete proofs of processing -------------------------------------------------------------------------------------------------------


@given(entry=entries())
def test_complete_proof_gives_messages_between_watermarks(entry: Json) -> None:
    assert answer(entry) == entry["expect"]


@given(entry=entries())
def test_proof_round_trips_through_json(entry: Json) -> None:
    proof = read_processing_proof(entry["proof"])
    assert show_processing_proof(proof) == entry["proof"]


@given(messages=st.lists(st.lists(st.binary(max_size=3), max_size=3).map(tuple), max_size=4), new=st.integers(3, 9))
def test_made_proof_verifies(messages: list[tuple[bytes, ...]], new: int) -> None:
    history = tuple((2 * at + 3, payloads) for at, payloads in enumerate(messages))
    head = HEADS[3]
    previous = 2
    for block, payloads in history:
        head, previous = xcmp_link(head, previous, batch_hash(payloads)), block
    heads = {**HEADS, RECIPIENT: head}
    row = [ROW[0], Column(RECIPIENT, 8, 0, 0, previous, mq_root(heads)) if history else Column(RECIPIENT, 8, 0, 0)]
    context = ProcessingContext(RECIPIENT, 10, (2, 7), (new, 7), (7,), {7: row_root(row)})
    proof = prove_processing(context, {7: SenderHistory(row, heads, history, HEADS[3], 2)})
    assert verify_processing(context, proof) == [(block, 7, payloads) for block, payloads in history if block <= new]


# --- forgeries, one for each kind --------------------------------------------------------------------------------------------------------


def test_complete_example_verifies() -> None:
    assert answer(world())["messages"] == [[5, 1, ["78", ""]], [5, 6, ["7a"]], [7, 1, ["79"]]]


@pytest.mark.parametrize(
    ("change", "expected"), [forgery[1:] for forgery in FORGERIES], ids=[each[0] for each in FORGERIES]
)
def test_forgery_is_rejected_with_its_error(change: Any, expected: Json) -> None:
    entry = world()
    change(entry)
    assert answer(entry) == expected


def test_chain_with_non_decreasing_blocks_is_rejected() -> None:
    """A sender commits to a chain whose heights do not decrease; only the sender can make such a head."""
    links = [Link(bytes(32), 0, batch_hash([b"a"]))]
    links.append(Link(xcmp_link(*links[0]), 5, batch_hash([b"b"])))
    heads = {RECIPIENT: xcmp_link(*links[1])}
    row = [Column(RECIPIENT, 8, 0, 0, 5, mq_root(heads))]
    context = ProcessingContext(RECIPIENT, 9, None, (9, 0), (1,), {1: row_root(row)})
    bodies = {5: (b"b",)}
    proof = {1: SenderProof(prove_row(row, 0), prove_head(heads, RECIPIENT), tuple(reversed(links)), bodies)}
    with pytest.raises(errors.PovBlocksNotDecreasing) as refusal:
        verify_processing(context, proof)
    assert (refusal.value.sender, str(refusal.value)) == (1, "Pov/BlocksNotDecreasing(sender=1, depth=0)")


def test_every_kind_has_a_forgery() -> None:
    kinds = {each.kind for each in PovError.__subclasses__()}
    assert kinds == {expected["error"]["kind"] for _, _, expected in FORGERIES} | {"Pov/BlocksNotDecreasing"}


def test_unneeded_head_is_checked() -> None:
    entry = world()
    entry["context"] |= {"old_watermark": [9, 1], "new_watermark": [9, 1]}
    part = entry["proof"]["1"]
    entry["proof"]["6"] |= {"mq": None, "links": [], "bodies": {}}
    part |= {"links": [], "bodies": {}}
    assert answer(entry) == {"ok": True, "messages": []}
    part["mq"]["index"] += 1
    assert answer(entry) == refused("Pov/MqProofInvalid", sender=1)


# --- random forgeries --------------------------------------------------------------------------------------------------------------------


@examples(400)
@given(entry=entries(), data=st.data())
def test_changed_proof_gives_same_messages_or_is_rejected(entry: Json, data: st.DataObject) -> None:
    """A changed proof gives the same messages or is rejected. It never gives other messages or another type of error."""
    for _ in range(data.draw(st.integers(1, 3))):
        change_somewhere(entry["proof"], data)
    result = answer(entry)
    assert result == entry["expect"] or result["error"]["kind"].startswith("Pov/")


@examples(100)
@given(
    entry=entries(),
    garbage=st.recursive(ODD, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner)),
)
def test_garbage_is_rejected(entry: Json, garbage: Any) -> None:
    assume(entry["context"]["senders"])
    entry["proof"] = garbage
    assert answer(entry)["ok"] is False


@given(entry=entries(), data=st.data())
def test_proof_in_other_context_proves_only_true_messages(entry: Json, data: st.DataObject) -> None:
    """The same proof in another context proves only what is true there."""
    context = entry["context"]
    if data.draw(st.booleans()):
        context["recipient"] = 3
        assume(context["senders"])
        assert answer(entry) == refused("Pov/CstProofInvalid", sender=min(context["senders"]))
    else:
        later = [context["new_watermark"][0] + data.draw(st.integers(0, 3)), 2**32 - 1]
        before = entry["expect"]["messages"]
        context |= {"new_watermark": later, "relay_parent_number": 99}
        result = answer(entry)
        assert result == entry["expect"] or result["error"]["kind"] == "Pov/BodyMissing"
        assert before == entry["expect"]["messages"]


# --- limits ------------------------------------------------------------------------------------------------------------------------------


def single(payloads: tuple[bytes, ...]) -> tuple[ProcessingContext, SenderProof]:
    heads = {RECIPIENT: xcmp_link(bytes(32), 0, batch_hash(payloads))}
    row = [Column(RECIPIENT, 8, 0, 0, 5, mq_root(heads))]
    context = ProcessingContext(RECIPIENT, 9, None, (9, 0), (1,), {1: row_root(row)})
    proof = prove_processing(context, {1: SenderHistory(row, heads, ((5, payloads),))})[1]
    assert proof is not None
    return context, proof


@pytest.mark.parametrize(
    "payloads",
    [(b"",) * PROOF_BODY_PAYLOADS_MAX, (b"\x00" * PROOF_BODY_BYTES_MAX,)],
    ids=["payloads", "bytes"],
)
def test_body_limits_are_inclusive(payloads: tuple[bytes, ...]) -> None:
    context, proof = single(payloads)
    assert verify_processing(context, {1: proof}) == [(5, 1, payloads)]
    context, proof = single((*payloads, b"a"))
    with pytest.raises(errors.PovBodyHashMismatch):
        verify_processing(context, {1: proof})
    with pytest.raises(errors.PovBodyHashMismatch):
        verify_processing(context, read_processing_proof(show_processing_proof({1: proof})))


def test_chain_length_limit_is_inclusive() -> None:
    def chain(length: int) -> tuple[ProcessingContext, SenderProof]:
        history = tuple((block, ()) for block in range(1, length + 1))
        head, previous = bytes(32), 0
        for block, payloads in history:
            head, previous = xcmp_link(head, previous, batch_hash(payloads)), block
        heads = {RECIPIENT: head}
        row = [Column(RECIPIENT, 8, 0, 0, previous, mq_root(heads))]
        context = ProcessingContext(RECIPIENT, length, None, (1, 1), (1,), {1: row_root(row)})
        proof = prove_processing(context, {1: SenderHistory(row, heads, history)})[1]
        assert proof is not None
        return context, proof

    context, proof = chain(PROOF_LINKS_MAX)
    assert verify_processing(context, {1: proof}) == [(1, 1, ())]
    context, proof = chain(PROOF_LINKS_MAX + 1)
    with pytest.raises(errors.PovChainIncomplete):
        verify_processing(context, {1: proof})


def test_malformed_context_raises_user_error() -> None:
    for path in ("recipient", "senders", "cst_roots", "new_watermark", "relay_parent_number"):
        entry = world()
        del entry["context"][path]
        with pytest.raises(UserError, match=path):
            vector_result("pov", Node(entry, "entry"))
    with pytest.raises(UserError, match="one of msg_hash"):
        vector_result("nothing", Node({}, "entry"))


@pytest.mark.parametrize("odd", [None, 1, "", (), [], Path(0, 1, ())], ids=repr)
def test_malformed_parts_of_sender_are_rejected(odd: Any) -> None:
    context, proof = single((b"a",))
    for name in SenderProof._fields:
        with pytest.raises(PovError):
            verify_processing(context, {1: proof._replace(**{name: odd})})
    for part in (RowProof(odd, odd, odd), HeadProof(odd, odd)):
        with pytest.raises(PovError):
            verify_processing(context, {1: proof._replace(**{"row" if isinstance(part, RowProof) else "head": part})})
    with pytest.raises(PovError):
        verify_processing(context, odd)
    with pytest.raises(PovError):
        verify_processing(context, {1: proof._replace(bodies={5: odd})})
    for links in ((odd,), (Link(odd, odd, odd),), (*proof.links, odd)):
        with pytest.raises(PovError):
            verify_processing(context, {1: proof._replace(links=links)})
