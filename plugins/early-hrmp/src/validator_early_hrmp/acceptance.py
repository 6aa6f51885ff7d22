# SPDX-License-Identifier: Apache-2.0
"""Candidate acceptance. It reads the state, raises the first violation and changes nothing.

No check depends on the actions of other paras within a session. Only a para's own candidates fill its channels and prune its queue, and
channels open and are sealed at session boundaries. Other paras can only make room.
Source: early_hrmp.txt "Acceptance Function", xcmp_rules 1.3.
"""

from __future__ import annotations

from collections.abc import Sequence

from validator.plugin.protocol_api import BlockNumber, ParaId
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


def check_candidate(state: EarlyHrmpState, candidate: Candidate) -> None:
    """Check a candidate.

    Raises `CandidateUnknownPara` (H-I12), then the first violation of: order of recipients, messages, watermark.
    """
    para = candidate.para_id
    if para not in state.paras:
        raise CandidateUnknownPara(para=para)
    check_order(candidate.hrmp_messages)
    check_messages(state, para, candidate.hrmp_messages)
    check_dmq_watermark(state, para, candidate.relay_parent_number, candidate.dmq_watermark)


def check_order(messages: Sequence[HrmpMessage]) -> None:
    """Check that recipients ascend strictly. Raises `OutboundNotSorted`, `OutboundDuplicateRecipient` (H-I10) for the first breach."""
    previous = -1
    for idx, message in enumerate(messages):
        if message.recipient < previous:
            raise OutboundNotSorted(idx=idx)
        if message.recipient == previous:
            raise OutboundDuplicateRecipient(idx=idx, recipient=previous)
        previous = message.recipient


def check_messages(state: EarlyHrmpState, para: ParaId, messages: Sequence[HrmpMessage]) -> None:
    """Check that each message fits into its channel; limits are inclusive and the same for all channels.

    Raises for each message in order `OutboundSenderMismatch` (H-I08), `OutboundNoSuchChannel`, `OutboundChannelSealed`,
    `OutboundCapacityExceeded`, `OutboundTotalSizeExceeded`.
    """
    max_places = state.configuration.hrmp_channel_max_places
    max_size = state.configuration.hrmp_channel_max_size
    for idx, (sender, recipient, payload, _) in enumerate(messages):
        if sender != para:
            raise OutboundSenderMismatch(idx=idx, sender=sender, para=para)
        channel = state.channels.get((para, recipient))
        if channel is None:
            raise OutboundNoSuchChannel(idx=idx, channel=channel_name((para, recipient)))
        if channel.sealed:
            raise OutboundChannelSealed(idx=idx, channel=channel_name((para, recipient)))
        count = channel.used_places + 1
        if count > max_places:
            raise OutboundCapacityExceeded(idx=idx, count=count, limit=max_places)
        total_size = channel.used_bytes + len(payload)
        if total_size > max_size:
            raise OutboundTotalSizeExceeded(idx=idx, total_size=total_size, limit=max_size)


def check_dmq_watermark(
    state: EarlyHrmpState, para: ParaId, relay_parent_number: BlockNumber, new_watermark: BlockNumber
) -> None:
    """Check that the watermark advances, to the relay parent or to a block whose messages still wait (H-I01).

    Messages of the relay chain count like those of paras. Raises `WatermarkAdvancementRule`, `WatermarkAheadRelayParent`,
    `WatermarkLandsOnBlockWithNoMessages`.
    """
    last_watermark = state.dmq_watermarks.get(para)
    if last_watermark is not None and new_watermark <= last_watermark:
        raise WatermarkAdvancementRule(new_watermark=new_watermark, last_watermark=last_watermark)
    if new_watermark > relay_parent_number:
        raise WatermarkAheadRelayParent(new_watermark=new_watermark, relay_parent_number=relay_parent_number)
    if new_watermark != relay_parent_number and new_watermark not in state.downward_queues.get(para, ()):
        raise WatermarkLandsOnBlockWithNoMessages(new_watermark=new_watermark)
