# SPDX-License-Identifier: Apache-2.0
"""Candidate acceptance. It reads the state, raises the first violation and changes nothing.

The order of the groups and of the checks inside a group is normative (router_rules 1.1, 1.3; I-13, I-18). These functions hold under
router.txt; a block's `profile.Profile` says where later rules take their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from validator.core.types import BlockNumber, ParaId
from validator.protocols.router.errors import (
    DownwardAdvancementRule,
    DownwardUnderflow,
    OutboundCapacityExceeded,
    OutboundMaxMessageSizeExceeded,
    OutboundMoreMessagesThanPermitted,
    OutboundNoSuchChannel,
    OutboundNotSorted,
    OutboundTotalSizeExceeded,
    UpwardCapacityExceeded,
    UpwardMessageSize,
    UpwardMoreMessagesThanPermitted,
    UpwardTotalSizeExceeded,
    WatermarkAdvancementRule,
    WatermarkAheadRelayParent,
    WatermarkLandsOnBlockWithNoMessages,
)
from validator.protocols.router.records import Candidate, HorizontalMessage
from validator.protocols.router.state import RouterState

if TYPE_CHECKING:
    from validator.protocols.router.profile import Profile


def check_candidate(state: RouterState, rules: Profile, candidate: Candidate) -> None:
    """Check a candidate's messages.

    Raises the first violation of: downward, upward, watermark, outbound (I-13: the order of the code).
    """
    para, relay_parent = candidate.para_id, candidate.relay_parent_number
    rules.check_processed_downward_messages(state, para, candidate.processed_downward_messages, relay_parent)
    # a candidate without upward messages also breaks the rule if a smaller configuration left its queue over the limit (I-21)
    if candidate.upward_messages or para in state.relay_dispatch_queue_size:
        rules.upward.check(state, para, candidate.upward_messages)
    rules.check_hrmp_watermark(state, para, relay_parent, candidate.hrmp_watermark)
    if candidate.horizontal_messages:
        verify_outbound_hrmp(state, para, candidate.horizontal_messages)


def check_upward_messages(state: RouterState, para: ParaId, messages: Sequence[bytes]) -> None:
    """Check number and sizes, and that the para's dispatch queue has room; limits are inclusive.

    Raises `UpwardMoreMessagesThanPermitted`, `UpwardMessageSize`, `UpwardCapacityExceeded`, `UpwardTotalSizeExceeded`.
    Source: router.txt ``check_upward_messages``, router_rules 1.3.
    """
    config = state.host_configuration
    if len(messages) > config.max_upward_message_num_per_candidate:
        raise UpwardMoreMessagesThanPermitted(sent=len(messages), permitted=config.max_upward_message_num_per_candidate)

    new_size = 0
    for idx, message in enumerate(messages):
        if len(message) > config.max_upward_message_size:
            raise UpwardMessageSize(idx=idx, msg_size=len(message), max_size=config.max_upward_message_size)
        new_size += len(message)

    pending_count, pending_size = state.relay_dispatch_queue_size.get(para, (0, 0))
    count = pending_count + len(messages)
    if count > config.max_upward_queue_count:
        raise UpwardCapacityExceeded(count=count, limit=config.max_upward_queue_count)
    total_size = pending_size + new_size
    if total_size > config.max_upward_queue_size:
        raise UpwardTotalSizeExceeded(total_size=total_size, limit=config.max_upward_queue_size)


def check_processed_downward_messages(
    state: RouterState,
    para: ParaId,
    processed: int,
    relay_parent_number: BlockNumber,  # noqa: ARG001 - later rules look at it
) -> None:
    """Check that a para with waiting messages processes at least one of them, and no more than there are.

    Raises `DownwardAdvancementRule`, `DownwardUnderflow`. Source: router.txt ``check_processed_downward_messages``, router_rules 1.3.
    """
    queue = state.downward_message_queues.get(para)
    dmq_length = len(queue) if queue else 0
    if dmq_length and processed == 0:
        raise DownwardAdvancementRule(dmq_length=dmq_length)
    if processed > dmq_length:
        raise DownwardUnderflow(processed_downward_messages=processed, dmq_length=dmq_length)


def check_hrmp_watermark(
    state: RouterState, recipient: ParaId, relay_parent_number: BlockNumber, new_watermark: BlockNumber
) -> None:
    """Check that the watermark advances and lands on the relay parent or on a block with messages for the para.

    Raises `WatermarkAdvancementRule`, `WatermarkAheadRelayParent`, `WatermarkLandsOnBlockWithNoMessages`. A watermark equal to the last
    one is refused even if it is the relay parent (I-12). Source: router.txt ``check_hrmp_watermark``, router_rules 1.3.
    """
    last_watermark = state.hrmp_watermarks.get(recipient)
    if last_watermark is not None and new_watermark <= last_watermark:
        raise WatermarkAdvancementRule(new_watermark=new_watermark, last_watermark=last_watermark)

    if new_watermark > relay_parent_number:
        raise WatermarkAheadRelayParent(new_watermark=new_watermark, relay_chain_parent_number=relay_parent_number)

    if new_watermark != relay_parent_number and new_watermark not in state.hrmp_channel_digests.get(recipient, ()):
        raise WatermarkLandsOnBlockWithNoMessages(new_watermark=new_watermark)


def verify_outbound_hrmp(state: RouterState, sender: ParaId, messages: Sequence[HorizontalMessage]) -> None:
    """Check number and order of recipients, and that each message fits into its channel; limits are inclusive.

    Recipients ascend strictly, so at most one message is checked against each channel.

    Raises `OutboundMoreMessagesThanPermitted`, then for each message in order `OutboundNotSorted`, `OutboundNoSuchChannel`,
    `OutboundMaxMessageSizeExceeded`, `OutboundTotalSizeExceeded`, `OutboundCapacityExceeded`.
    Source: router.txt ``verify_outbound_hrmp``, router_rules 1.3, I-01.
    """
    permitted = state.host_configuration.hrmp_max_message_num_per_candidate
    if len(messages) > permitted:
        raise OutboundMoreMessagesThanPermitted(sent=len(messages), permitted=permitted)

    previous_recipient = -1
    for idx, message in enumerate(messages):
        recipient = message.recipient
        if recipient <= previous_recipient:
            raise OutboundNotSorted(idx=idx)
        previous_recipient = recipient

        channel = state.hrmp_channels.get((sender, recipient))
        if channel is None:
            raise OutboundNoSuchChannel(idx=idx, channel_id={"sender": sender, "recipient": recipient})

        msg_size = len(message.data)
        if msg_size > channel.limit_message_size:
            raise OutboundMaxMessageSizeExceeded(idx=idx, msg_size=msg_size, max_size=channel.limit_message_size)

        total_size = channel.used_bytes + msg_size
        if total_size > channel.limit_used_bytes:
            raise OutboundTotalSizeExceeded(idx=idx, total_size=total_size, limit=channel.limit_used_bytes)

        count = channel.used_places + 1
        if count > channel.limit_used_places:
            raise OutboundCapacityExceeded(idx=idx, count=count, limit=channel.limit_used_places)
