# SPDX-License-Identifier: Apache-2.0
"""Candidate acceptance. It reads the state, reports violations and changes nothing.

No check depends on the actions of other paras within a session. Only a para's own candidates fill its channels and prune its queue, and
channels open and are sealed at session boundaries. Other paras can only make room.
Source: early_hrmp.txt "Acceptance Function", xcmp_rules 1.3.
"""

from __future__ import annotations

from collections.abc import Sequence

from validator.plugin.protocol_api import BlockNumber, Environment, ParaId, Report, refuse
from validator.protocols.kit import channel_name
from validator_early_hrmp.errors import (
    CandidateUnknownPara,
    OutboundCapacityExceeded,
    OutboundChannelSealed,
    OutboundDuplicateRecipient,
    OutboundNoSuchChannel,
    OutboundNotSorted,
    OutboundSenderMismatch,
    OutboundTotalSizeExceeded,
    WatermarkAdvancementRule,
    WatermarkAheadRelayParent,
    WatermarkLandsOnBlockWithNoMessages,
)
from validator_early_hrmp.records import Candidate, HrmpMessage
from validator_early_hrmp.state import EarlyHrmpState


def check_candidate(state: EarlyHrmpState, env: Environment, candidate: Candidate, report: Report = refuse) -> None:  # noqa: ARG001
    """Check a candidate.

    Reports `CandidateUnknownPara` (H-I12), then the violations of: order of recipients, messages, watermark.
    """
    para = candidate.para_id
    if para not in state.paras:
        report(CandidateUnknownPara(para=para))
        return
    check_order(candidate.hrmp_messages, report)
    check_messages(state, para, candidate.hrmp_messages, report)
    check_dmq_watermark(state, para, candidate.relay_parent_number, candidate.dmq_watermark, report)


def check_order(messages: Sequence[HrmpMessage], report: Report = refuse) -> None:
    """Check that recipients ascend strictly. Reports, for each in turn, `OutboundNotSorted`, `OutboundDuplicateRecipient` (H-I10)."""
    previous = -1
    for idx, message in enumerate(messages):
        if message.recipient < previous:
            report(OutboundNotSorted(idx=idx))
        if message.recipient == previous:
            report(OutboundDuplicateRecipient(idx=idx, recipient=previous))
        previous = message.recipient


def check_messages(
    state: EarlyHrmpState, para: ParaId, messages: Sequence[HrmpMessage], report: Report = refuse
) -> None:
    """Check that each message fits into its channel; limits are inclusive and the same for all channels.

    Reports for each message in order `OutboundSenderMismatch` (H-I08), `OutboundNoSuchChannel`, `OutboundChannelSealed`,
    `OutboundCapacityExceeded`, `OutboundTotalSizeExceeded`.
    """
    max_places = state.configuration.hrmp_channel_max_places
    max_size = state.configuration.hrmp_channel_max_size
    for idx, (sender, recipient, payload, _) in enumerate(messages):
        if sender != para:
            report(OutboundSenderMismatch(idx=idx, sender=sender, para=para))
        channel = state.channels.get((para, recipient))
        if channel is None:
            report(OutboundNoSuchChannel(idx=idx, channel=channel_name((para, recipient))))
            continue
        if channel.sealed:
            report(OutboundChannelSealed(idx=idx, channel=channel_name((para, recipient))))
        count = channel.used_places + 1
        if count > max_places:
            report(OutboundCapacityExceeded(idx=idx, count=count, limit=max_places))
        total_size = channel.used_bytes + len(payload)
        if total_size > max_size:
            report(OutboundTotalSizeExceeded(idx=idx, total_size=total_size, limit=max_size))


def check_dmq_watermark(
    state: EarlyHrmpState,
    para: ParaId,
    relay_parent_number: BlockNumber,
    new_watermark: BlockNumber,
    report: Report = refuse,
) -> None:
    """Check that the watermark advances, to the relay parent or to a block whose messages still wait (H-I01).

    Messages of the relay chain count like those of paras. Reports `WatermarkAdvancementRule`, `WatermarkAheadRelayParent`,
    `WatermarkLandsOnBlockWithNoMessages`.
    """
    last_watermark = state.dmq_watermarks.get(para)
    if last_watermark is not None and new_watermark <= last_watermark:
        report(WatermarkAdvancementRule(new_watermark=new_watermark, last_watermark=last_watermark))
    elif new_watermark > relay_parent_number:
        report(WatermarkAheadRelayParent(new_watermark=new_watermark, relay_parent_number=relay_parent_number))
    elif new_watermark != relay_parent_number and new_watermark not in state.downward_queues.get(para, ()):
        report(WatermarkLandsOnBlockWithNoMessages(new_watermark=new_watermark))
