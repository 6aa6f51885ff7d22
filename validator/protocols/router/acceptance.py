# SPDX-License-Identifier: Apache-2.0
"""Candidate acceptance. It reads the state, reports violations and changes nothing.

A lane's report raises the first violation; only a dry run continues after it. The order of the groups and of the checks inside a group is
normative (router_rules 1.1, 1.3; I-13, I-18). These functions hold under router.txt; a block's `profile.Profile` says where later rules
take their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from validator.core.errors import Report, refuse
from validator.core.rules import Environment
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
from validator.protocols.router.records import Candidate, HorizontalMessage, split_upward
from validator.protocols.router.state import NO_CHANNELS, RouterState

if TYPE_CHECKING:
    from validator.protocols.router.profile import Profile


def check_candidate(state: RouterState, env: Environment, candidate: Candidate, report: Report = refuse) -> None:
    """Check a candidate's messages.

    Reports the violations of: signals (chain_2026 3.14), downward, upward, watermark, outbound (I-13: the order of the code).
    """
    rules: Profile = env.profile
    para, relay_parent = candidate.para_id, candidate.relay_parent_number
    messages = candidate.upward_messages
    if rules.signals is not None:
        messages, entries = split_upward(messages)
        rules.signals.check(entries, report)
    rules.check_processed_downward_messages(state, para, candidate.processed_downward_messages, relay_parent, report)
    # a candidate without upward messages also breaks the rule if a smaller configuration left its queue over the limit (I-21)
    if messages or para in state.relay_dispatch_queue_size:
        rules.upward.check(state, para, messages, report)
    rules.check_hrmp_watermark(state, para, relay_parent, candidate.hrmp_watermark, report)
    if candidate.horizontal_messages:
        verify_outbound_hrmp(state, para, candidate.horizontal_messages, report)


def check_upward_messages(state: RouterState, para: ParaId, messages: Sequence[bytes], report: Report = refuse) -> None:
    """Check number and sizes, and that the para's dispatch queue has room; limits are inclusive.

    Reports `UpwardMoreMessagesThanPermitted`, `UpwardMessageSize`, `UpwardCapacityExceeded`, `UpwardTotalSizeExceeded`.
    Source: router.txt ``check_upward_messages``, router_rules 1.3.
    """
    config = state.host_configuration
    if len(messages) > config.max_upward_message_num_per_candidate:
        report(
            UpwardMoreMessagesThanPermitted(sent=len(messages), permitted=config.max_upward_message_num_per_candidate)
        )

    new_size = 0
    for idx, message in enumerate(messages):
        if len(message) > config.max_upward_message_size:
            report(UpwardMessageSize(idx=idx, msg_size=len(message), max_size=config.max_upward_message_size))
        new_size += len(message)

    pending_count, pending_size = state.relay_dispatch_queue_size.get(para, (0, 0))
    count = pending_count + len(messages)
    if count > config.max_upward_queue_count:
        report(UpwardCapacityExceeded(count=count, limit=config.max_upward_queue_count))
    total_size = pending_size + new_size
    if total_size > config.max_upward_queue_size:
        report(UpwardTotalSizeExceeded(total_size=total_size, limit=config.max_upward_queue_size))


def check_processed_downward_messages(
    state: RouterState,
    para: ParaId,
    processed: int,
    relay_parent_number: BlockNumber,  # noqa: ARG001 - later rules look at it
    report: Report = refuse,
) -> None:
    """Check that a para with waiting messages processes at least one of them, and no more than there are.

    Reports `DownwardAdvancementRule`, `DownwardUnderflow`. Source: router.txt ``check_processed_downward_messages``, router_rules 1.3.
    """
    queue = state.downward_message_queues.get(para)
    dmq_length = len(queue) if queue else 0
    if dmq_length and processed == 0:
        report(DownwardAdvancementRule(dmq_length=dmq_length))
    if processed > dmq_length:
        report(DownwardUnderflow(processed_downward_messages=processed, dmq_length=dmq_length))


def check_hrmp_watermark(
    state: RouterState,
    recipient: ParaId,
    relay_parent_number: BlockNumber,
    new_watermark: BlockNumber,
    report: Report = refuse,
) -> None:
    """Check that the watermark advances and lands on the relay parent or on a block with messages for the para.

    Reports `WatermarkAdvancementRule`, `WatermarkAheadRelayParent`, `WatermarkLandsOnBlockWithNoMessages`. A watermark equal to the last
    one is refused even if it is the relay parent (I-12). Source: router.txt ``check_hrmp_watermark``, router_rules 1.3.
    """
    last_watermark = state.hrmp_watermarks.get(recipient)
    if last_watermark is not None and new_watermark <= last_watermark:
        report(WatermarkAdvancementRule(new_watermark=new_watermark, last_watermark=last_watermark))
    elif new_watermark > relay_parent_number:
        report(WatermarkAheadRelayParent(new_watermark=new_watermark, relay_chain_parent_number=relay_parent_number))
    elif new_watermark != relay_parent_number and new_watermark not in state.hrmp_channel_digests.get(recipient, ()):
        report(WatermarkLandsOnBlockWithNoMessages(new_watermark=new_watermark))


def verify_outbound_hrmp(
    state: RouterState, sender: ParaId, messages: Sequence[HorizontalMessage], report: Report = refuse
) -> None:
    """Check number and order of recipients, and that each message fits into its channel; limits are inclusive.

    Recipients ascend strictly, so at most one message is checked against each channel.

    Reports `OutboundMoreMessagesThanPermitted`, then for each message in order `OutboundNotSorted`, `OutboundNoSuchChannel`,
    `OutboundMaxMessageSizeExceeded`, `OutboundTotalSizeExceeded`, `OutboundCapacityExceeded`.
    Source: router.txt ``verify_outbound_hrmp``, router_rules 1.3, I-01.
    """
    permitted = state.host_configuration.hrmp_max_message_num_per_candidate
    if len(messages) > permitted:
        report(OutboundMoreMessagesThanPermitted(sent=len(messages), permitted=permitted))

    inbound = state.hrmp_channels.inbound
    previous_recipient = -1
    for idx, message in enumerate(messages):
        recipient = message.recipient
        if recipient <= previous_recipient:
            report(OutboundNotSorted(idx=idx))
        previous_recipient = recipient

        channel = inbound.get(recipient, NO_CHANNELS).get(sender)
        if channel is None:
            report(OutboundNoSuchChannel(idx=idx, channel_id={"sender": sender, "recipient": recipient}))
            continue

        msg_size = len(message.data)
        if msg_size > channel.limit_message_size:
            report(OutboundMaxMessageSizeExceeded(idx=idx, msg_size=msg_size, max_size=channel.limit_message_size))

        total_size = channel.used_bytes + msg_size
        if total_size > channel.limit_used_bytes:
            report(OutboundTotalSizeExceeded(idx=idx, total_size=total_size, limit=channel.limit_used_bytes))

        count = channel.used_places + 1
        if count > channel.limit_used_places:
            report(OutboundCapacityExceeded(idx=idx, count=count, limit=channel.limit_used_places))
