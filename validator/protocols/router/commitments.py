# SPDX-License-Identifier: Apache-2.0
"""The hash of a candidate's commitments, which the relay chain signs.

No rule reads it. The chain publishes it with each candidate and each inclusion, so a converter of chain data can prove that its
records lost or changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from validator.core.hashing import blake2b_256
from validator.core.scale import Writer
from validator.core.types import BlockNumber, Hash, ParaId
from validator.protocols.router.records import Candidate


def commitments_hash(
    *,
    upward_messages: Iterable[bytes],
    horizontal_messages: Iterable[tuple[ParaId, bytes]],
    new_validation_code: bytes | None,
    head_data: bytes,
    processed_downward_messages: int,
    hrmp_watermark: BlockNumber,
) -> Hash:
    """Return the BLAKE2b-256 of the SCALE encoding of ``CandidateCommitments``.

    ``horizontal_messages`` are ``(recipient, data)`` in the candidate's order. Fields are encoded in the order of the arguments.
    Source: router_rules 1.2 "Commitments carry".
    """
    out = Writer()
    upward = tuple(upward_messages)
    out.compact(len(upward))
    for payload in upward:
        out.bytes(payload)
    horizontal = tuple(horizontal_messages)
    out.compact(len(horizontal))
    for recipient, data in horizontal:
        out.u32(recipient)
        out.bytes(data)
    out.option(new_validation_code, out.bytes)
    out.bytes(head_data)
    out.u32(processed_downward_messages)
    out.u32(hrmp_watermark)
    return blake2b_256(bytes(out.buffer))


def candidate_commitments_hash(
    candidate: Candidate, head_data: bytes, new_validation_code: bytes | None = None
) -> Hash:
    """Return the `commitments_hash` of a candidate. The caller supplies the two commitments that are not about messages."""
    return commitments_hash(
        upward_messages=candidate.upward_messages,
        horizontal_messages=((message.recipient, message.data) for message in candidate.horizontal_messages),
        new_validation_code=new_validation_code,
        head_data=head_data,
        processed_downward_messages=candidate.processed_downward_messages,
        hrmp_watermark=candidate.hrmp_watermark,
    )
