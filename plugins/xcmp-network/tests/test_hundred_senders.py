# SPDX-License-Identifier: Apache-2.0
"""A recipient learns which of a hundred senders is at fault: in a proof of processing, and among bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from network_world import chain_of, judged
from validator_xcmp.errors import PovError
from validator_xcmp.merkle import batch_hash, mq_root, msg_root, row_root, xcmp_link
from validator_xcmp.proofs import (
    HashBatch,
    ProcessingContext,
    SenderHistory,
    SenderProof,
    prove_processing,
    verify_processing,
)
from validator_xcmp.state import Column
from validator_xcmp_network.records import ReportBody

from tests.rule_sets import result_of

RECIPIENT = 5000
SENDERS = tuple(range(2000, 2100))
BLOCKS = (5, 7)
FAULTY = 2042


@dataclass
class World:
    """What every sender has sent to the recipient, and the proof that the recipient has processed it."""

    context: ProcessingContext
    proof: dict[int, SenderProof | None]
    hash_batch: HashBatch


def world(hash_batch: HashBatch) -> World:
    """Return a complete proof about a hundred senders with two messages each."""
    histories: dict[int, SenderHistory] = {}
    for sender in SENDERS:
        messages = tuple((block, (f"{sender} at {block}".encode(), b"")) for block in BLOCKS)
        head, previous = bytes(32), 0
        for block, payloads in messages:
            head, previous = xcmp_link(head, previous, hash_batch(payloads)), block
        heads = {RECIPIENT: head, 1: bytes(32)}
        row = [Column(1, 8, 0, 0), Column(RECIPIENT, 8, 0, 0, previous, mq_root(heads))]
        histories[sender] = SenderHistory(row, heads, messages)
    roots = {sender: row_root(history.row) for sender, history in histories.items()}
    context = ProcessingContext(RECIPIENT, 9, (4, 0), (8, 2**32 - 1), SENDERS, roots)
    return World(context, prove_processing(context, histories, hash_batch), hash_batch)


def part_of(proof: Mapping[int, SenderProof | None]) -> SenderProof:
    part = proof[FAULTY]
    assert part is not None
    return part


def _changed(**change: Any) -> Callable[[dict[int, SenderProof | None]], None]:
    def change_it(proof: dict[int, SenderProof | None]) -> None:
        proof[FAULTY] = part_of(proof)._replace(**change)

    return change_it


def _other_body(proof: dict[int, SenderProof | None]) -> None:
    proof[FAULTY] = part_of(proof)._replace(bodies={**part_of(proof).bodies, 7: (b"other",)})


def _no_body(proof: dict[int, SenderProof | None]) -> None:
    proof[FAULTY] = part_of(proof)._replace(bodies={7: part_of(proof).bodies[7]})


def _broken_link(proof: dict[int, SenderProof | None]) -> None:
    newest, oldest = part_of(proof).links
    proof[FAULTY] = part_of(proof)._replace(links=(newest, oldest._replace(msg_hash=bytes(32))))


def _left_out(proof: dict[int, SenderProof | None]) -> None:
    del proof[FAULTY]


@pytest.mark.parametrize("hash_batch", [batch_hash, msg_root], ids=["batch-hash", "message-root"])
@pytest.mark.parametrize(
    ("fault", "kind", "details"),
    [
        (_left_out, "Pov/MissingSender", {}),
        (_changed(head=None), "Pov/MqProofInvalid", {}),
        (_changed(links=()), "Pov/ChainIncomplete", {}),
        (_broken_link, "Pov/ChainBroken", {"depth": 1}),
        (_no_body, "Pov/BodyMissing", {"block": 5}),
        (_other_body, "Pov/BodyHashMismatch", {"block": 7}),
    ],
)
def test_one_faulty_sender_of_a_hundred_is_named(
    hash_batch: HashBatch, fault: Callable[[dict[int, SenderProof | None]], None], kind: str, details: dict[str, int]
) -> None:
    made = world(hash_batch)
    assert len(verify_processing(made.context, made.proof, hash_batch)) == len(SENDERS) * len(BLOCKS)
    fault(made.proof)
    with pytest.raises(PovError) as refusal:
        verify_processing(made.context, made.proof, hash_batch)
    assert (refusal.value.kind, refusal.value.details()) == (kind, {"sender": FAULTY, **details})


def test_commitments_of_the_two_protocols_differ() -> None:
    made = world(batch_hash)
    with pytest.raises(PovError) as refusal:
        verify_processing(made.context, made.proof, msg_root)
    assert refusal.value.details() == {"sender": SENDERS[0], "block": BLOCKS[0]}


@pytest.mark.parametrize("mode", ["free", "prefix"])
def test_one_missing_body_of_a_hundred_is_named(mode: str) -> None:
    channels = [(sender, RECIPIENT) for sender in SENDERS]
    rules = chain_of((*SENDERS, RECIPIENT), channels, require_bodies=True, intra_block=mode)
    for sender in reversed(SENDERS):
        assert judged(rules, 5, sender, [RECIPIENT])["ok"]
    rules.begin_block(6)
    for sender in SENDERS:
        if sender != FAULTY:
            assert result_of(rules.apply_request, ReportBody(RECIPIENT, sender, 5, bytes(32), 0))["ok"]
    everybody = [(5, sender) for sender in SENDERS]
    refused = judged(rules, 6, RECIPIENT, acks=everybody)
    assert refused["error"] == {"kind": "Ack/BodyMissing", "block": 5, "sender": FAULTY}
    before = everybody[: SENDERS.index(FAULTY)]
    assert judged(rules, 6, RECIPIENT, acks=before)["ok"]
    stalled = judged(rules, 7, RECIPIENT)
    assert (stalled["error"]["kind"], stalled["error"]["pending"][0]) == ("Ack/NoProgress", [5, FAULTY])
