# SPDX-License-Identifier: Apache-2.0
"""Candidate acceptance. It reads the state, reports violations and changes nothing.

A channel's capacity is not checked, because the relay chain cannot see how long a queue is. A close request does not stop a channel before
the session boundary, because acceptability must not change within a session.
Source: xcmp_channels.txt "Acceptance Function", xcmp_rules 1.2.
"""

from __future__ import annotations

from validator.plugin.protocol_api import BlockNumber, Environment, Hash, ParaId, Report, refuse
from validator_xcmp.errors import (
    BitfieldChannelCondemned,
    BitfieldMissingMessageRoot,
    BitfieldTooLong,
    CandidateUnknownPara,
    WatermarkAheadRelayParent,
    WatermarkNotAdvanced,
    WatermarkRegressed,
)
from validator_xcmp.records import Candidate, Watermark
from validator_xcmp.state import XcmpState


def check_candidate(state: XcmpState, env: Environment, candidate: Candidate, report: Report = refuse) -> None:  # noqa: ARG001
    """Check a candidate.

    Reports `CandidateUnknownPara`, then the violations of: bitfield, message root, watermark.
    """
    para = candidate.para_id
    if para not in state.paras:
        report(CandidateUnknownPara(para=para))
        return
    check_bitfield(state, para, candidate.bitfield, candidate.message_root, report)
    check_watermark(state, para, candidate.relay_parent_number, candidate.watermark, report)


def check_bitfield(
    state: XcmpState, para: ParaId, bitfield: str, message_root: Hash | None, report: Report = refuse
) -> None:
    """Check that each bit stands for a column, each set bit for a channel that takes messages, and that set bits come with a root.

    Reports `BitfieldTooLong`, `BitfieldChannelCondemned`, `BitfieldMissingMessageRoot` (X-I09). A root without bits is ignored (X-I17).
    """
    row = state.rows.get(para, [])
    if len(bitfield) > len(row):
        report(BitfieldTooLong(length=len(bitfield), row_length=len(row)))
    marked = marked_columns(bitfield[: len(row)])
    for index in marked:
        if (para, row[index].recipient) in state.condemned:
            report(BitfieldChannelCondemned(index=index, recipient=row[index].recipient))
    if marked and message_root is None:
        report(BitfieldMissingMessageRoot())


def check_watermark(
    state: XcmpState,
    para: ParaId,
    relay_parent_number: BlockNumber,
    new_watermark: Watermark,
    report: Report = refuse,
) -> None:
    """Check that the watermark does not pass the relay parent, and that it moves if something visible at the relay parent is unread.

    Order is by block, then by para. Reports `WatermarkAheadRelayParent`, `WatermarkRegressed`, `WatermarkNotAdvanced` (X-I01). Only the
    newest message of a channel is known, so older unread messages are not enforced. Within a session the check can get laxer, never
    stricter.
    """
    if new_watermark[0] > relay_parent_number:
        report(WatermarkAheadRelayParent(new_watermark=new_watermark, relay_parent_number=relay_parent_number))
        return
    last_watermark = state.watermarks.get(para)
    if last_watermark is None or new_watermark > last_watermark:
        return
    if new_watermark < last_watermark:
        report(WatermarkRegressed(new_watermark=new_watermark, last_watermark=last_watermark))
        return
    pending = [(block, sender) for block, sender in unread(state, para) if block <= relay_parent_number]
    if pending:
        report(WatermarkNotAdvanced(last_watermark=last_watermark, pending=tuple(pending)))


def unread(state: XcmpState, para: ParaId) -> list[Watermark]:
    """Return the ``(last_updated, sender)`` of each inbound channel whose newest message the para's watermark does not cover, ascending."""
    last_watermark = state.watermarks.get(para, (-1, 0))
    return sorted(
        (column.last_updated, sender)
        for sender, column in state.ingress.get(para, {}).items()
        if column.message_root is not None and (column.last_updated, sender) > last_watermark
    )


def marked_columns(bitfield: str) -> list[int]:
    """Return the indexes of the bits that are set, ascending."""
    return [index for index, bit in enumerate(bitfield) if bit == "1"]
