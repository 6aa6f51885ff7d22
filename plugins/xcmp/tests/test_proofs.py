# SPDX-License-Identifier: Apache-2.0
"""Proofs over rows, message roots and logical messages, and proofs of processing: complete ones, and forgeries of every kind."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from validator_xcmp import pov_errors
from validator_xcmp.commitments import batch_hash, mq_root, msg_root, xcmp_link
from validator_xcmp.limits import PROOF_BODY_BYTES_MAX, PROOF_BODY_PAYLOADS_MAX, PROOF_LINKS_MAX
from validator_xcmp.merkle import Path
from validator_xcmp.pov_errors import PovError
from validator_xcmp.proof_json import read_processing_proof, show_processing_proof
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
from validator_xcmp.row_trees import row_root
from validator_xcmp.state import Column
from validator_xcmp.vectors import vector_result
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
    """Return what comes of an entry, which has to be something that JSON holds."""
    result = vector_result("pov", Node(entry, "entry"))
    assert json.loads(json.dumps(result)) == result
    return result


# --- rows, message roots, logical messages -----------------------------------------------------------------------------------------------


def test_a_column_is_proved_for_its_recipient_alone() -> None:
    for index, column in enumerate(ROW):
        proof = prove_row(ROW, index)
        assert (proof.last_updated, proof.message_root) == (column.last_updated, column.message_root)
        for recipient in (2, 3, 5, 6):
            assert verify_row(row_root(ROW), recipient, proof) == (recipient == column.recipient)
        assert not verify_row(row_root(ROW), column.recipient, proof._replace(last_updated=8))
        assert not verify_row(row_root(ROW), column.recipient, proof._replace(message_root=bytes(32)))
        assert not verify_row(row_root(ROW[:2]), column.recipient, proof)


def test_a_head_is_proved_for_its_recipient_alone() -> None:
    for recipient, head in HEADS.items():
        proof = prove_head(HEADS, recipient)
        assert proof.head == head
        for other in HEADS:
            assert verify_head(mq_root(HEADS), other, proof) == (other == recipient)
        assert not verify_head(mq_root(HEADS), recipient, proof._replace(head=bytes(32)))
    with pytest.raises(KeyError):
        prove_head(HEADS, 4)


def test_a_payload_is_proved_at_its_place() -> None:
    root = msg_root(PAYLOADS)
    for index, payload in enumerate(PAYLOADS):
        proof = prove_payload(PAYLOADS, index)
        assert [other for other in {*PAYLOADS} if verify_payload(root, other, proof)] == [payload]
    # equal payloads have proofs of their own
    assert not verify_payload(root, b"a", prove_payload(PAYLOADS, 1)._replace(index=2))


@pytest.mark.parametrize("odd", [None, -1, 2**32, True, "", b"", b"\x00" * 31, (), {}, Path(0, 1, ())], ids=repr)
def test_odd_values_prove_nothing_and_break_nothing(odd: Any) -> None:
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
def test_a_complete_proof_shows_what_lies_between_the_watermarks(entry: Json) -> None:
    assert answer(entry) == entry["expect"]


@given(entry=entries())
def test_a_proof_reads_back_as_it_is_shown(entry: Json) -> None:
    proof = read_processing_proof(entry["proof"])
    assert show_processing_proof(proof) == entry["proof"]


@given(messages=st.lists(st.lists(st.binary(max_size=3), max_size=3).map(tuple), max_size=4), new=st.integers(3, 9))
def test_what_is_proved_verifies(messages: list[tuple[bytes, ...]], new: int) -> None:
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


def test_the_world_is_proved() -> None:
    assert answer(world())["messages"] == [[5, 1, ["78", ""]], [5, 6, ["7a"]], [7, 1, ["79"]]]


@pytest.mark.parametrize(
    ("change", "expected"), [forgery[1:] for forgery in FORGERIES], ids=[each[0] for each in FORGERIES]
)
def test_a_forgery_is_refused_for_its_reason(change: Any, expected: Json) -> None:
    entry = world()
    change(entry)
    assert answer(entry) == expected


def test_blocks_of_a_chain_decrease() -> None:
    """A sender that commits to a chain whose heights do not: only it can make such a head."""
    links = [Link(bytes(32), 0, batch_hash([b"a"]))]
    links.append(Link(xcmp_link(*links[0]), 5, batch_hash([b"b"])))
    heads = {RECIPIENT: xcmp_link(*links[1])}
    row = [Column(RECIPIENT, 8, 0, 0, 5, mq_root(heads))]
    context = ProcessingContext(RECIPIENT, 9, None, (9, 0), (1,), {1: row_root(row)})
    bodies = {5: (b"b",)}
    proof = {1: SenderProof(prove_row(row, 0), prove_head(heads, RECIPIENT), tuple(reversed(links)), bodies)}
    with pytest.raises(pov_errors.PovBlocksNotDecreasing) as refusal:
        verify_processing(context, proof)
    assert (refusal.value.sender, str(refusal.value)) == (1, "Pov/BlocksNotDecreasing(sender=1)")


def test_every_kind_has_a_forgery() -> None:
    kinds = {each.kind for each in PovError.__subclasses__()}
    assert kinds == {expected["error"]["kind"] for _, _, expected in FORGERIES} | {"Pov/BlocksNotDecreasing"}


def test_a_head_that_is_not_needed_is_checked_all_the_same() -> None:
    entry = world()
    entry["context"] |= {"old_watermark": [9, 1], "new_watermark": [9, 1]}
    part = entry["proof"]["1"]
    entry["proof"]["6"] |= {"mq": None, "links": [], "bodies": {}}
    part |= {"links": [], "bodies": {}}
    assert answer(entry) == {"ok": True, "messages": []}
    part["mq"]["index"] += 1
    assert answer(entry) == refused("Pov/MqProofInvalid")


# --- forgeries by chance -----------------------------------------------------------------------------------------------------------------


@examples(400)
@given(entry=entries(), data=st.data())
def test_no_change_makes_another_story_true(entry: Json, data: st.DataObject) -> None:
    """Whatever is changed in a proof, it shows the same messages or is refused: never others, never an error of another sort."""
    for _ in range(data.draw(st.integers(1, 3))):
        change_somewhere(entry["proof"], data)
    result = answer(entry)
    assert result == entry["expect"] or result["error"]["kind"].startswith("Pov/")


@examples(100)
@given(
    entry=entries(),
    garbage=st.recursive(ODD, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner)),
)
def test_garbage_is_refused(entry: Json, garbage: Any) -> None:
    assume(entry["context"]["senders"])
    entry["proof"] = garbage
    assert answer(entry)["ok"] is False


@given(entry=entries(), data=st.data())
def test_a_proof_for_one_recipient_or_watermark_is_none_for_another(entry: Json, data: st.DataObject) -> None:
    """The same proof under another context: it may prove what is true there, nothing else."""
    context = entry["context"]
    if data.draw(st.booleans()):
        context["recipient"] = 3
        assume(context["senders"])
        assert answer(entry) == refused("Pov/CstProofInvalid")
    else:
        later = [context["new_watermark"][0] + data.draw(st.integers(0, 3)), 2**32 - 1]
        before = entry["expect"]["messages"]
        context |= {"new_watermark": later, "relay_parent_number": 99}
        result = answer(entry)
        assert result in (entry["expect"], refused("Pov/BodyMissing"))
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
def test_a_body_may_be_as_large_as_the_limits_and_no_larger(payloads: tuple[bytes, ...]) -> None:
    context, proof = single(payloads)
    assert verify_processing(context, {1: proof}) == [(5, 1, payloads)]
    context, proof = single((*payloads, b"a"))
    with pytest.raises(pov_errors.PovBodyHashMismatch):
        verify_processing(context, {1: proof})
    with pytest.raises(pov_errors.PovBodyHashMismatch):
        verify_processing(context, read_processing_proof(show_processing_proof({1: proof})))


def test_a_chain_may_be_as_long_as_the_limit_and_no_longer() -> None:
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
    with pytest.raises(pov_errors.PovChainIncomplete):
        verify_processing(context, {1: proof})


def test_a_context_that_is_malformed_is_a_malformed_file() -> None:
    for path in ("recipient", "senders", "cst_roots", "new_watermark", "relay_parent_number"):
        entry = world()
        del entry["context"][path]
        with pytest.raises(UserError, match=path):
            vector_result("pov", Node(entry, "entry"))
    with pytest.raises(UserError, match="one of msg_hash"):
        vector_result("nothing", Node({}, "entry"))


@pytest.mark.parametrize("odd", [None, 1, "", (), [], Path(0, 1, ())], ids=repr)
def test_odd_parts_of_a_sender_are_refused(odd: Any) -> None:
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
