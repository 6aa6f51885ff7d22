# SPDX-License-Identifier: Apache-2.0
"""Later rules for what a candidate claims to have received: watermarks and processed downward messages."""

from __future__ import annotations

from itertools import islice

from validator.core.errors import Report, refuse
from validator.core.limits import HEADROOM_WATERMARKS_MAX
from validator.core.types import BlockNumber, ParaId
from validator.protocols.router.errors import (
    DownwardAdvancementRule,
    DownwardUnderflow,
    WatermarkAdvancementRule,
    WatermarkAheadRelayParent,
    WatermarkLandsOnBlockWithNoMessages,
)
from validator.protocols.router.state import RouterState


def check_relaxed_watermark(
    state: RouterState,
    recipient: ParaId,
    relay_parent_number: BlockNumber,
    new_watermark: BlockNumber,
    report: Report = refuse,
) -> None:
    """Check that the watermark is the relay parent, or advances to a block with messages for the para.

    Reports `WatermarkAheadRelayParent`, `WatermarkAdvancementRule`, `WatermarkLandsOnBlockWithNoMessages`. A watermark equal to the relay
    parent is good even below the last one (PR-06). Source: router_profiles 3.8.
    """
    _check_watermark(state, recipient, relay_parent_number, new_watermark, report, may_stay=False)


def check_watermark_that_may_stay(
    state: RouterState,
    recipient: ParaId,
    relay_parent_number: BlockNumber,
    new_watermark: BlockNumber,
    report: Report = refuse,
) -> None:
    """Check as `check_relaxed_watermark` does, but accept the last watermark. Source: router_profiles 3.8."""
    _check_watermark(state, recipient, relay_parent_number, new_watermark, report, may_stay=True)


def _check_watermark(
    state: RouterState,
    recipient: ParaId,
    relay_parent_number: BlockNumber,
    new_watermark: BlockNumber,
    report: Report,
    *,
    may_stay: bool,
) -> None:
    if new_watermark == relay_parent_number:
        return
    if new_watermark > relay_parent_number:
        report(WatermarkAheadRelayParent(new_watermark=new_watermark, relay_chain_parent_number=relay_parent_number))
        return
    last_watermark = state.hrmp_watermarks.get(recipient)
    if last_watermark is not None and new_watermark <= last_watermark:
        if may_stay and new_watermark == last_watermark:
            return
        report(WatermarkAdvancementRule(new_watermark=new_watermark, last_watermark=last_watermark))
    elif new_watermark not in state.hrmp_channel_digests.get(recipient, ()):
        report(WatermarkLandsOnBlockWithNoMessages(new_watermark=new_watermark))


def watermarks_after_the_last(state: RouterState, para: ParaId) -> tuple[BlockNumber, ...]:
    """Return the blocks with messages for a para that `check_relaxed_watermark` accepts, oldest first."""
    last = state.hrmp_watermarks.get(para)
    digests = state.hrmp_channel_digests.get(para, ())
    landing = (block for block in digests if last is None or block > last)
    return tuple(islice(landing, HEADROOM_WATERMARKS_MAX))


def last_watermark_or_later(state: RouterState, para: ParaId) -> tuple[BlockNumber, ...]:
    """Return the blocks that `check_watermark_that_may_stay` accepts: the last watermark, then blocks with messages."""
    last = state.hrmp_watermarks.get(para)
    later = watermarks_after_the_last(state, para)
    return later if last is None else (last, *later[: HEADROOM_WATERMARKS_MAX - 1])


def check_processed_by_relay_parent(
    state: RouterState,
    para: ParaId,
    processed: int,
    relay_parent_number: BlockNumber,
    report: Report = refuse,
) -> None:
    """Check that a para processes a downward message if its relay parent had seen the first one, and no more than there are.

    Reports `DownwardAdvancementRule`, `DownwardUnderflow`. Messages younger than the relay parent may be processed.
    Source: router_profiles 3.10.
    """
    queue = state.downward_message_queues.get(para)
    dmq_length = len(queue) if queue else 0
    if queue and processed == 0 and queue[0].sent_at <= relay_parent_number:
        report(DownwardAdvancementRule(dmq_length=dmq_length))
    if processed > dmq_length:
        report(DownwardUnderflow(processed_downward_messages=processed, dmq_length=dmq_length))
