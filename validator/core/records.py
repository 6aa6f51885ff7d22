# SPDX-License-Identifier: Apache-2.0
"""The plain nested tuples of `Input.fields`, made into the records that the rules read.

Decoding happens in one process and execution in another; between them a record is ints, bytes, strings, None and tuples of these. The
decode stage has checked types and ranges already, so nothing is checked again here.
"""

from __future__ import annotations

from typing import Any

from validator.core.types import (
    AcceptOpenChannel,
    BlockRecord,
    Candidate,
    ChannelRequest,
    CloseChannel,
    HorizontalMessage,
    InitOpenChannel,
    Para,
    ParaKind,
    PendingRef,
    ScheduleParaCleanup,
    SessionChange,
)

_REQUESTS: tuple[type[InitOpenChannel | AcceptOpenChannel | CloseChannel | ScheduleParaCleanup], ...] = (
    InitOpenChannel,
    AcceptOpenChannel,
    CloseChannel,
    ScheduleParaCleanup,
)


def candidate(fields: tuple[Any, ...]) -> Candidate:
    """Return the candidate of its seven fields.

    In order: para_id, relay_parent_number, hrmp_watermark, ``(upward message, ...)``, processed_downward_messages, ``((recipient, data,
    data_hash), ...)``, candidate_hash.
    """
    horizontal = fields[5]
    if not horizontal:
        return Candidate._make(fields)
    return Candidate._make((*fields[:5], tuple(map(HorizontalMessage._make, horizontal)), fields[6]))


def request(fields: tuple[Any, ...]) -> ChannelRequest:
    """Return the request of ``(variant, *arguments)``.

    The variant is 0 init_open_channel, 1 accept_open_channel, 2 close_channel (its channel is ``(sender, recipient)``), 3
    schedule_para_cleanup.
    """
    made: ChannelRequest = _REQUESTS[fields[0]]._make(fields[1:])
    return made


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
