# SPDX-License-Identifier: Apache-2.0
"""Builds the records that the rules read from the plain nested tuples of `Input.fields`.

Decoding and execution happen in different processes. Between them a record is ints, bytes, strings, None and tuples of these. The decode
stage has already checked types and ranges, so nothing is checked again here.
"""

from __future__ import annotations

from typing import Any

from validator.core.types import BlockRecord, Para, ParaKind, PendingRef, SessionChange


def block_record(fields: tuple[Any, ...]) -> BlockRecord:
    """Return the record of ``(block, parent_number, candidates, requests, downward, included, timed_out, session_change, block_hash)``.

    ``included`` and ``timed_out`` are ``((para_id, backed_at | None), ...)``; the session change is None or ``((para_id, ...), ((para_id,
    kind, balance), ...), ((name, value), ...))``.
    """
    block, parent_number, candidates, requests, downward_count, included, timed_out, change, block_hash = fields
    session_change = None
    if change is not None:
        outgoing, onboarding, new_config = change
        paras = tuple(Para(para_id, ParaKind(kind), balance) for para_id, kind, balance in onboarding)
        session_change = SessionChange(outgoing, paras, new_config)
    return BlockRecord(
        block,
        parent_number,
        candidates,
        requests,
        downward_count,
        tuple(map(PendingRef._make, included)),
        tuple(map(PendingRef._make, timed_out)),
        session_change,
        block_hash,
    )
