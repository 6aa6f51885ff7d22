# SPDX-License-Identifier: Apache-2.0
"""All the reasons why the Router rejects an input, one class each.

Names and fields come from router_rules, sections 1.3 and 1.6. Sizes are bytes of payload, counts are messages or channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from validator.core.errors import Violation
from validator.core.types import Balance, BlockNumber, ParaId

# --- check_upward_messages ---------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class UpwardMoreMessagesThanPermitted(Violation):
    """A candidate carries more upward messages than one candidate may."""

    kind: ClassVar[str] = "UpwardMessages/MoreMessagesThanPermitted"
    clause: ClassVar[str] = "router.txt check_upward_messages 1"
    sent: int
    permitted: int


@dataclass(eq=False)
class UpwardMessageSize(Violation):
    """An upward message is too long."""

    kind: ClassVar[str] = "UpwardMessages/MessageSize"
    clause: ClassVar[str] = "router.txt check_upward_messages 2"
    idx: int
    msg_size: int
    max_size: int


@dataclass(eq=False)
class UpwardCapacityExceeded(Violation):
    """The relay dispatch queue would hold too many messages; ``count`` is the sum of pending and new ones."""

    kind: ClassVar[str] = "UpwardMessages/CapacityExceeded"
    clause: ClassVar[str] = "router.txt check_upward_messages 3"
    count: int
    limit: int


@dataclass(eq=False)
class UpwardTotalSizeExceeded(Violation):
    """The relay dispatch queue would hold too many bytes; ``total_size`` is the sum of pending and new ones."""

    kind: ClassVar[str] = "UpwardMessages/TotalSizeExceeded"
    clause: ClassVar[str] = "router.txt check_upward_messages 3"
    total_size: int
    limit: int


# --- check_processed_downward_messages ---------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class DownwardAdvancementRule(Violation):
    """The downward queue is not empty, but the candidate processed none of its messages."""

    kind: ClassVar[str] = "ProcessedDownwardMessages/AdvancementRule"
    clause: ClassVar[str] = "router.txt check_processed_downward_messages 2"
    normative: ClassVar[bool] = False
    dmq_length: int


@dataclass(eq=False)
class DownwardUnderflow(Violation):
    """The candidate claims to have processed more downward messages than there are."""

    kind: ClassVar[str] = "ProcessedDownwardMessages/Underflow"
    clause: ClassVar[str] = "router.txt check_processed_downward_messages 1"
    processed_downward_messages: int
    dmq_length: int


# --- check_hrmp_watermark ----------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class WatermarkAdvancementRule(Violation):
    """The new watermark is not greater than the last one."""

    kind: ClassVar[str] = "HrmpWatermark/AdvancementRule"
    clause: ClassVar[str] = "router.txt check_hrmp_watermark 1"
    new_watermark: BlockNumber
    last_watermark: BlockNumber


@dataclass(eq=False)
class WatermarkAheadRelayParent(Violation):
    """The new watermark is ahead of the candidate's relay parent."""

    kind: ClassVar[str] = "HrmpWatermark/AheadRelayParent"
    clause: ClassVar[str] = "router.txt check_hrmp_watermark 2"
    new_watermark: BlockNumber
    relay_chain_parent_number: BlockNumber


@dataclass(eq=False)
class WatermarkLandsOnBlockWithNoMessages(Violation):
    """The new watermark is a past block in which nobody sent to this para."""

    kind: ClassVar[str] = "HrmpWatermark/LandsOnBlockWithNoMessages"
    clause: ClassVar[str] = "router.txt check_hrmp_watermark 3"
    new_watermark: BlockNumber


# --- verify_outbound_hrmp ----------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class OutboundMoreMessagesThanPermitted(Violation):
    """A candidate carries more horizontal messages than one candidate may."""

    kind: ClassVar[str] = "OutboundHrmp/MoreMessagesThanPermitted"
    clause: ClassVar[str] = "router_rules 1.3 check_outbound_hrmp 0 (I-01)"
    sent: int
    permitted: int


@dataclass(eq=False)
class OutboundNotSorted(Violation):
    """Horizontal messages are not in strictly ascending order of recipient."""

    kind: ClassVar[str] = "OutboundHrmp/NotSorted"
    clause: ClassVar[str] = "router_rules 1.3 check_outbound_hrmp 1 (I-01)"
    idx: int


@dataclass(eq=False)
class OutboundNoSuchChannel(Violation):
    """There is no channel from the sender to this recipient; ``channel_id`` has ``sender`` and ``recipient``."""

    kind: ClassVar[str] = "OutboundHrmp/NoSuchChannel"
    clause: ClassVar[str] = "router.txt verify_outbound_hrmp 1.1"
    idx: int
    channel_id: dict[str, ParaId]


@dataclass(eq=False)
class OutboundMaxMessageSizeExceeded(Violation):
    """A horizontal message is longer than its channel allows."""

    kind: ClassVar[str] = "OutboundHrmp/MaxMessageSizeExceeded"
    clause: ClassVar[str] = "router.txt verify_outbound_hrmp 1.2"
    idx: int
    msg_size: int
    max_size: int


@dataclass(eq=False)
class OutboundTotalSizeExceeded(Violation):
    """The channel would hold too many bytes; ``total_size`` includes this message."""

    kind: ClassVar[str] = "OutboundHrmp/TotalSizeExceeded"
    clause: ClassVar[str] = "router.txt verify_outbound_hrmp 1.3"
    idx: int
    total_size: int
    limit: int


@dataclass(eq=False)
class OutboundCapacityExceeded(Violation):
    """The channel would hold too many messages; ``count`` includes this one."""

    kind: ClassVar[str] = "OutboundHrmp/CapacityExceeded"
    clause: ClassVar[str] = "router.txt verify_outbound_hrmp 1.4"
    idx: int
    count: int
    limit: int


# --- channel requests: the conformance format compares only their kind -------------------------------------------------------------------


@dataclass(eq=False)
class ChannelRequestViolation(Violation):
    """A channel request is refused. Its fields are informative, not normative."""

    normative: ClassVar[bool] = False


@dataclass(eq=False)
class OpenHrmpChannelToSelf(ChannelRequestViolation):
    """A para asks for a channel to itself."""

    kind: ClassVar[str] = "OpenHrmpChannelToSelf"
    clause: ClassVar[str] = "router.txt hrmp_init_open_channel 1"


@dataclass(eq=False)
class OpenHrmpChannelZeroCapacity(ChannelRequestViolation):
    """The proposed channel would hold no message."""

    kind: ClassVar[str] = "OpenHrmpChannelZeroCapacity"
    clause: ClassVar[str] = "router.txt hrmp_init_open_channel 2"


@dataclass(eq=False)
class OpenHrmpChannelCapacityExceedsLimit(ChannelRequestViolation):
    """The proposed channel would hold more messages than the configuration allows."""

    kind: ClassVar[str] = "OpenHrmpChannelCapacityExceedsLimit"
    clause: ClassVar[str] = "router.txt hrmp_init_open_channel 2"
    max_places: int
    limit: int


@dataclass(eq=False)
class OpenHrmpChannelZeroMessageSize(ChannelRequestViolation):
    """The proposed channel would carry only empty messages."""

    kind: ClassVar[str] = "OpenHrmpChannelZeroMessageSize"
    clause: ClassVar[str] = "router.txt hrmp_init_open_channel 3"


@dataclass(eq=False)
class OpenHrmpChannelMessageSizeExceedsLimit(ChannelRequestViolation):
    """The proposed channel would carry longer messages than the configuration allows."""

    kind: ClassVar[str] = "OpenHrmpChannelMessageSizeExceedsLimit"
    clause: ClassVar[str] = "router.txt hrmp_init_open_channel 3"
    max_message_size: int
    limit: int


@dataclass(eq=False)
class OpenHrmpChannelInvalidRecipient(ChannelRequestViolation):
    """The recipient is not a valid para."""

    kind: ClassVar[str] = "OpenHrmpChannelInvalidRecipient"
    clause: ClassVar[str] = "router.txt hrmp_init_open_channel 4"
    recipient: ParaId


@dataclass(eq=False)
class OpenHrmpChannelAlreadyExists(ChannelRequestViolation):
    """The channel is already open."""

    kind: ClassVar[str] = "OpenHrmpChannelAlreadyExists"
    clause: ClassVar[str] = "router.txt hrmp_init_open_channel 5"
    sender: ParaId
    recipient: ParaId


@dataclass(eq=False)
class OpenHrmpChannelAlreadyRequested(ChannelRequestViolation):
    """The channel has already been requested."""

    kind: ClassVar[str] = "OpenHrmpChannelAlreadyRequested"
    clause: ClassVar[str] = "router.txt hrmp_init_open_channel 6"
    sender: ParaId
    recipient: ParaId


@dataclass(eq=False)
class OpenHrmpChannelLimitExceeded(ChannelRequestViolation):
    """The sender has as many outbound channels and open requests as it may have."""

    kind: ClassVar[str] = "OpenHrmpChannelLimitExceeded"
    clause: ClassVar[str] = "router.txt hrmp_init_open_channel 7"
    outbound_channels: int
    open_requests: int
    limit: int


@dataclass(eq=False)
class AcceptHrmpChannelDoesntExist(ChannelRequestViolation):
    """There is no such request to accept."""

    kind: ClassVar[str] = "AcceptHrmpChannelDoesntExist"
    clause: ClassVar[str] = "router.txt hrmp_accept_open_channel 1"
    sender: ParaId
    recipient: ParaId


@dataclass(eq=False)
class AcceptHrmpChannelAlreadyConfirmed(ChannelRequestViolation):
    """The request has already been accepted."""

    kind: ClassVar[str] = "AcceptHrmpChannelAlreadyConfirmed"
    clause: ClassVar[str] = "router.txt hrmp_accept_open_channel 2"
    sender: ParaId
    recipient: ParaId


@dataclass(eq=False)
class AcceptHrmpChannelLimitExceeded(ChannelRequestViolation):
    """The recipient has as many inbound channels and accepted requests as it may have."""

    kind: ClassVar[str] = "AcceptHrmpChannelLimitExceeded"
    clause: ClassVar[str] = "router.txt hrmp_accept_open_channel 3"
    inbound_channels: int
    accepted_requests: int
    limit: int


@dataclass(eq=False)
class InsufficientBalance(ChannelRequestViolation):
    """The origin's free balance does not cover the deposit."""

    kind: ClassVar[str] = "InsufficientBalance"
    clause: ClassVar[str] = "router.txt hrmp_init_open_channel 8, hrmp_accept_open_channel 4"
    free: Balance
    deposit: Balance


@dataclass(eq=False)
class CloseHrmpChannelUnauthorized(ChannelRequestViolation):
    """The origin is neither end of the channel."""

    kind: ClassVar[str] = "CloseHrmpChannelUnauthorized"
    clause: ClassVar[str] = "router.txt hrmp_close_channel 1"
    sender: ParaId
    recipient: ParaId


@dataclass(eq=False)
class CloseHrmpChannelDoesntExist(ChannelRequestViolation):
    """There is no such channel."""

    kind: ClassVar[str] = "CloseHrmpChannelDoesntExist"
    clause: ClassVar[str] = "router.txt hrmp_close_channel 2"
    sender: ParaId
    recipient: ParaId


@dataclass(eq=False)
class CloseHrmpChannelAlreadyUnderway(ChannelRequestViolation):
    """A close request for the channel already exists."""

    kind: ClassVar[str] = "CloseHrmpChannelAlreadyUnderway"
    clause: ClassVar[str] = "router.txt hrmp_close_channel 3"
    sender: ParaId
    recipient: ParaId


# --- downward messages -----------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class ExceedsMaxMessageSize(Violation):
    """A downward message is too long."""

    kind: ClassVar[str] = "ExceedsMaxMessageSize"
    clause: ClassVar[str] = "router.txt queue_downward_message 1"
    normative: ClassVar[bool] = False
    msg_size: int
    max_size: int
