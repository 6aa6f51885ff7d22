# SPDX-License-Identifier: Apache-2.0
"""All the reasons why the Router rejects an input, one class each.

Names and fields come from router_rules, sections 1.3 and 1.6. Sizes are bytes of payload, counts are messages or channels.
"""

from __future__ import annotations

from validator.core.errors import Violation
from validator.core.types import Balance, BlockNumber, ParaId

# --- check_upward_messages ---------------------------------------------------------------------------------------------------------------


class UpwardMoreMessagesThanPermitted(
    Violation, kind="UpwardMessages/MoreMessagesThanPermitted", clause="router.txt check_upward_messages 1", rule="R-07"
):
    """The candidate carries more upward messages than one candidate may."""

    sent: int
    permitted: int


class UpwardMessageSize(
    Violation, kind="UpwardMessages/MessageSize", clause="router.txt check_upward_messages 2", rule="R-08"
):
    """The upward message at ``idx`` is too long."""

    idx: int
    msg_size: int
    max_size: int


class UpwardCapacityExceeded(
    Violation, kind="UpwardMessages/CapacityExceeded", clause="router.txt check_upward_messages 3", rule="R-09"
):
    """The dispatch queue would hold too many messages. ``count`` is the sum of pending and new ones."""

    count: int
    limit: int


class UpwardTotalSizeExceeded(
    Violation, kind="UpwardMessages/TotalSizeExceeded", clause="router.txt check_upward_messages 3", rule="R-09"
):
    """The dispatch queue would hold too many bytes. ``total_size`` is the sum of pending and new ones."""

    total_size: int
    limit: int


# --- check_processed_downward_messages ---------------------------------------------------------------------------------------------------


class DownwardAdvancementRule(
    Violation,
    kind="ProcessedDownwardMessages/AdvancementRule",
    clause="router.txt check_processed_downward_messages 2",
    normative=False,
    rule="R-06",
):
    """The downward queue holds messages, but the candidate processes none of them."""

    dmq_length: int


class DownwardUnderflow(
    Violation,
    kind="ProcessedDownwardMessages/Underflow",
    clause="router.txt check_processed_downward_messages 1",
    rule="R-06",
):
    """The candidate processes more downward messages than the queue holds."""

    processed_downward_messages: int
    dmq_length: int


# --- check_hrmp_watermark ----------------------------------------------------------------------------------------------------------------


class WatermarkAdvancementRule(
    Violation, kind="HrmpWatermark/AdvancementRule", clause="router.txt check_hrmp_watermark 1", rule="R-10"
):
    """The watermark does not rise above the last one."""

    new_watermark: BlockNumber
    last_watermark: BlockNumber


class WatermarkAheadRelayParent(
    Violation, kind="HrmpWatermark/AheadRelayParent", clause="router.txt check_hrmp_watermark 2", rule="R-11"
):
    """The watermark is ahead of the candidate's relay parent."""

    new_watermark: BlockNumber
    relay_chain_parent_number: BlockNumber


class WatermarkLandsOnBlockWithNoMessages(
    Violation, kind="HrmpWatermark/LandsOnBlockWithNoMessages", clause="router.txt check_hrmp_watermark 3", rule="R-12"
):
    """The watermark is a past block in which nobody sent to the para."""

    new_watermark: BlockNumber


# --- verify_outbound_hrmp ----------------------------------------------------------------------------------------------------------------


class OutboundMoreMessagesThanPermitted(
    Violation,
    kind="OutboundHrmp/MoreMessagesThanPermitted",
    clause="router_rules 1.3 check_outbound_hrmp 0 (I-01)",
    rule="R-13",
):
    """The candidate carries more horizontal messages than one candidate may."""

    sent: int
    permitted: int


class OutboundNotSorted(
    Violation, kind="OutboundHrmp/NotSorted", clause="router_rules 1.3 check_outbound_hrmp 1 (I-01)", rule="R-14"
):
    """The message at ``idx`` goes to a recipient that is not greater than the previous one."""

    idx: int


class OutboundNoSuchChannel(
    Violation, kind="OutboundHrmp/NoSuchChannel", clause="router.txt verify_outbound_hrmp 1.1", rule="R-15"
):
    """There is no channel from the sender to this recipient. ``channel_id`` has the members ``sender`` and ``recipient``."""

    idx: int
    channel_id: dict[str, ParaId]


class OutboundMaxMessageSizeExceeded(
    Violation, kind="OutboundHrmp/MaxMessageSizeExceeded", clause="router.txt verify_outbound_hrmp 1.2", rule="R-16"
):
    """The message at ``idx`` is longer than its channel allows."""

    idx: int
    msg_size: int
    max_size: int


class OutboundTotalSizeExceeded(
    Violation, kind="OutboundHrmp/TotalSizeExceeded", clause="router.txt verify_outbound_hrmp 1.3", rule="R-17"
):
    """The channel would hold too many bytes. ``total_size`` includes this message."""

    idx: int
    total_size: int
    limit: int


class OutboundCapacityExceeded(
    Violation, kind="OutboundHrmp/CapacityExceeded", clause="router.txt verify_outbound_hrmp 1.4", rule="R-18"
):
    """The channel would hold too many messages. ``count`` includes this one."""

    idx: int
    count: int
    limit: int


# --- channel requests: the conformance format compares only their kind -------------------------------------------------------------------


class ChannelRequestViolation(Violation, normative=False):
    """A channel request is refused. Its fields are informative, not normative."""


class OpenHrmpChannelToSelf(
    ChannelRequestViolation, kind="OpenHrmpChannelToSelf", clause="router.txt hrmp_init_open_channel 1", rule="R-41"
):
    """A para asks for a channel to itself."""


class OpenHrmpChannelZeroCapacity(
    ChannelRequestViolation,
    kind="OpenHrmpChannelZeroCapacity",
    clause="router.txt hrmp_init_open_channel 2",
    rule="R-42",
):
    """The proposed channel would hold no message."""


class OpenHrmpChannelCapacityExceedsLimit(
    ChannelRequestViolation,
    kind="OpenHrmpChannelCapacityExceedsLimit",
    clause="router.txt hrmp_init_open_channel 2",
    rule="R-42",
):
    """The proposed channel would hold more messages than the configuration allows."""

    max_places: int
    limit: int


class OpenHrmpChannelZeroMessageSize(
    ChannelRequestViolation,
    kind="OpenHrmpChannelZeroMessageSize",
    clause="router.txt hrmp_init_open_channel 3",
    rule="R-43",
):
    """The proposed channel would carry only empty messages."""


class OpenHrmpChannelMessageSizeExceedsLimit(
    ChannelRequestViolation,
    kind="OpenHrmpChannelMessageSizeExceedsLimit",
    clause="router.txt hrmp_init_open_channel 3",
    rule="R-43",
):
    """The proposed channel would carry longer messages than the configuration allows."""

    max_message_size: int
    limit: int


class OpenHrmpChannelInvalidRecipient(
    ChannelRequestViolation,
    kind="OpenHrmpChannelInvalidRecipient",
    clause="router.txt hrmp_init_open_channel 4",
    rule="R-44",
):
    """The recipient is not a valid para."""

    recipient: ParaId


class OpenHrmpChannelAlreadyExists(
    ChannelRequestViolation,
    kind="OpenHrmpChannelAlreadyExists",
    clause="router.txt hrmp_init_open_channel 5",
    rule="R-45",
):
    """The channel is already open."""

    sender: ParaId
    recipient: ParaId


class OpenHrmpChannelAlreadyRequested(
    ChannelRequestViolation,
    kind="OpenHrmpChannelAlreadyRequested",
    clause="router.txt hrmp_init_open_channel 6",
    rule="R-46",
):
    """The channel has already been requested."""

    sender: ParaId
    recipient: ParaId


class OpenHrmpChannelLimitExceeded(
    ChannelRequestViolation,
    kind="OpenHrmpChannelLimitExceeded",
    clause="router.txt hrmp_init_open_channel 7",
    rule="R-47",
):
    """The sender has as many outbound channels and open requests as it may have."""

    outbound_channels: int
    open_requests: int
    limit: int


class AcceptHrmpChannelDoesntExist(
    ChannelRequestViolation,
    kind="AcceptHrmpChannelDoesntExist",
    clause="router.txt hrmp_accept_open_channel 1",
    rule="R-50",
):
    """There is no such request to accept."""

    sender: ParaId
    recipient: ParaId


class AcceptHrmpChannelAlreadyConfirmed(
    ChannelRequestViolation,
    kind="AcceptHrmpChannelAlreadyConfirmed",
    clause="router.txt hrmp_accept_open_channel 2",
    rule="R-51",
):
    """The request has already been accepted."""

    sender: ParaId
    recipient: ParaId


class AcceptHrmpChannelLimitExceeded(
    ChannelRequestViolation,
    kind="AcceptHrmpChannelLimitExceeded",
    clause="router.txt hrmp_accept_open_channel 3",
    rule="R-52",
):
    """The recipient has as many inbound channels and accepted requests as it may have."""

    inbound_channels: int
    accepted_requests: int
    limit: int


class InsufficientBalance(
    ChannelRequestViolation,
    kind="InsufficientBalance",
    clause="router.txt hrmp_init_open_channel 8, hrmp_accept_open_channel 4",
    rule="R-48, R-53, R-86, R-87, R-95, R-96, R-97",
):
    """A para's free balance does not cover the deposit.

    The para is the origin of a request or of an acceptance, either party of a forced channel or of one with a system para, or a party whose
    deposit ``poke_channel_deposits`` raises. ``deposit`` is the amount to reserve; after a poke, the missing difference.
    """

    free: Balance
    deposit: Balance


class CloseHrmpChannelUnauthorized(
    ChannelRequestViolation, kind="CloseHrmpChannelUnauthorized", clause="router.txt hrmp_close_channel 1", rule="R-54"
):
    """The origin is neither end of the channel."""

    sender: ParaId
    recipient: ParaId


class CloseHrmpChannelDoesntExist(
    ChannelRequestViolation, kind="CloseHrmpChannelDoesntExist", clause="router.txt hrmp_close_channel 2", rule="R-55"
):
    """There is no such channel."""

    sender: ParaId
    recipient: ParaId


class CloseHrmpChannelAlreadyUnderway(
    ChannelRequestViolation,
    kind="CloseHrmpChannelAlreadyUnderway",
    clause="router.txt hrmp_close_channel 3",
    rule="R-56",
):
    """A close request for the channel already exists."""

    sender: ParaId
    recipient: ParaId


# --- downward messages -----------------------------------------------------------------------------------------------------


class ExceedsMaxMessageSize(
    Violation,
    kind="ExceedsMaxMessageSize",
    clause="router.txt queue_downward_message 1",
    normative=False,
    rule="R-33",
):
    """A downward message is too long."""

    msg_size: int
    max_size: int
