# SPDX-License-Identifier: Apache-2.0
"""All the reasons why the Router rejects an input, one class each.

Names and fields come from router_rules, sections 1.3 and 1.6. Sizes are bytes of payload, counts are messages or channels.
"""

from __future__ import annotations

from validator.core.errors import Violation
from validator.core.types import Balance, BlockNumber, ParaId

# --- check_upward_messages ---------------------------------------------------------------------------------------------------------------


class UpwardMoreMessagesThanPermitted(
    Violation,
    kind="UpwardMessages/MoreMessagesThanPermitted",
    clause="router.txt check_upward_messages 1",
    rule="R-07",
    says="The candidate of para {para} carries {sent:upward message}; one candidate may carry {permitted}.",
    then="Spread them over several candidates.",
    numbers=("sent", "permitted"),
):
    """The candidate carries more upward messages than one candidate may."""

    sent: int
    permitted: int


class UpwardMessageSize(
    Violation,
    kind="UpwardMessages/MessageSize",
    clause="router.txt check_upward_messages 2",
    rule="R-08",
    says="Upward message {at} of the candidate has {msg_size}; the limit is {max_size}.",
    then="Send a shorter message.",
    numbers=("msg_size", "max_size"),
):
    """The upward message at ``idx`` is too long."""

    idx: int
    msg_size: int
    max_size: int


class UpwardCapacityExceeded(
    Violation,
    kind="UpwardMessages/CapacityExceeded",
    clause="router.txt check_upward_messages 3",
    rule="R-09",
    says="The upward queue of para {para} would hold {count:message}; it takes {limit}.",
    then="Wait until the relay chain has dispatched some of them: dispatches of this para.",
    numbers=("count", "limit"),
):
    """The dispatch queue would hold too many messages. ``count`` is the sum of pending and new ones."""

    count: int
    limit: int


class UpwardTotalSizeExceeded(
    Violation,
    kind="UpwardMessages/TotalSizeExceeded",
    clause="router.txt check_upward_messages 3",
    rule="R-09",
    says="The upward queue of para {para} would hold {total_size}; it takes {limit}.",
    then="Wait until the relay chain has dispatched some of them.",
    numbers=("total_size", "limit"),
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
    says="The candidate processed no downward message, and {dmq_length:message} waited for para {para}; it has to process at least one.",
    then="The collator has to take messages from the front of the downward queue.",
):
    """The downward queue holds messages, but the candidate processes none of them."""

    dmq_length: int


class DownwardUnderflow(
    Violation,
    kind="ProcessedDownwardMessages/Underflow",
    clause="router.txt check_processed_downward_messages 1",
    rule="R-06",
    says="The candidate says that it processed {processed_downward_messages:downward message}; "
    "{dmq_length:message} waited for para {para}.",
    then="The collator read the queue at another relay parent, or counted messages twice.",
    numbers=("processed_downward_messages", "dmq_length"),
):
    """The candidate processes more downward messages than the queue holds."""

    processed_downward_messages: int
    dmq_length: int


# --- check_hrmp_watermark ----------------------------------------------------------------------------------------------------------------


class WatermarkAdvancementRule(
    Violation,
    kind="HrmpWatermark/AdvancementRule",
    clause="router.txt check_hrmp_watermark 1",
    rule="R-10",
    says="The watermark has to move on: it was {last_watermark}, and the candidate says {new_watermark}.",
    then="A candidate was built on old state, or the lane runs rules from before relaxed watermarks.",
    numbers=("new_watermark", "last_watermark"),
):
    """The watermark does not rise above the last one."""

    new_watermark: BlockNumber
    last_watermark: BlockNumber


class WatermarkAheadRelayParent(
    Violation,
    kind="HrmpWatermark/AheadRelayParent",
    clause="router.txt check_hrmp_watermark 2",
    rule="R-11",
    says="The watermark {new_watermark} lies ahead of the candidate's relay parent {relay_chain_parent_number}.",
    then="The watermark may be at most the relay parent.",
    numbers=("new_watermark", "relay_chain_parent_number"),
):
    """The watermark is ahead of the candidate's relay parent."""

    new_watermark: BlockNumber
    relay_chain_parent_number: BlockNumber


class WatermarkLandsOnBlockWithNoMessages(
    Violation,
    kind="HrmpWatermark/LandsOnBlockWithNoMessages",
    clause="router.txt check_hrmp_watermark 3",
    rule="R-12",
    says="The watermark {new_watermark} names a block in which nobody sent to para {para}.",
    then="Choose a block with messages, or the relay parent; the para's page lists the valid ones.",
):
    """The watermark is a past block in which nobody sent to the para."""

    new_watermark: BlockNumber


# --- verify_outbound_hrmp ----------------------------------------------------------------------------------------------------------------


class OutboundMoreMessagesThanPermitted(
    Violation,
    kind="OutboundHrmp/MoreMessagesThanPermitted",
    clause="router_rules 1.3 check_outbound_hrmp 0 (I-01)",
    rule="R-13",
    says="The candidate carries {sent:horizontal message}; one candidate may carry {permitted}.",
    then="Spread them over several candidates.",
    numbers=("sent", "permitted"),
):
    """The candidate carries more horizontal messages than one candidate may."""

    sent: int
    permitted: int


class OutboundNotSorted(
    Violation,
    kind="OutboundHrmp/NotSorted",
    clause="router_rules 1.3 check_outbound_hrmp 1 (I-01)",
    rule="R-14",
    says="Horizontal message {at} breaks the order: recipients have to ascend, each once.",
    then="Sort the messages by recipient; one for each recipient.",
):
    """The message at ``idx`` goes to a recipient that is not greater than the previous one."""

    idx: int


class OutboundNoSuchChannel(
    Violation,
    kind="OutboundHrmp/NoSuchChannel",
    clause="router.txt verify_outbound_hrmp 1.1",
    rule="R-15",
    says="There is no channel {sender} → {recipient}.",
    then="Open it, or wait for the session at which the request takes effect.",
):
    """There is no channel from the sender to this recipient. ``channel_id`` has the members ``sender`` and ``recipient``."""

    idx: int
    channel_id: dict[str, ParaId]


class OutboundMaxMessageSizeExceeded(
    Violation,
    kind="OutboundHrmp/MaxMessageSizeExceeded",
    clause="router.txt verify_outbound_hrmp 1.2",
    rule="R-16",
    says="Horizontal message {at} has {msg_size}; its channel takes messages up to {max_size}.",
    then="The size of an open channel cannot be changed: close it and open it again, or send less.",
    numbers=("msg_size", "max_size"),
):
    """The message at ``idx`` is longer than its channel allows."""

    idx: int
    msg_size: int
    max_size: int


class OutboundTotalSizeExceeded(
    Violation,
    kind="OutboundHrmp/TotalSizeExceeded",
    clause="router.txt verify_outbound_hrmp 1.3",
    rule="R-17",
    says="The channel of horizontal message {at} would hold {total_size}; it takes {limit}.",
    then="Wait until the recipient has moved its watermark past older messages.",
    numbers=("total_size", "limit"),
):
    """The channel would hold too many bytes. ``total_size`` includes this message."""

    idx: int
    total_size: int
    limit: int


class OutboundCapacityExceeded(
    Violation,
    kind="OutboundHrmp/CapacityExceeded",
    clause="router.txt verify_outbound_hrmp 1.4",
    rule="R-18",
    says="The channel of horizontal message {at} would hold {count:message}; it takes {limit}.",
    then="Wait until the recipient has moved its watermark past older messages.",
    numbers=("count", "limit"),
):
    """The channel would hold too many messages. ``count`` includes this one."""

    idx: int
    count: int
    limit: int


# --- channel requests: the conformance format compares only their kind -------------------------------------------------------------------


class ChannelRequestViolation(Violation, normative=False):
    """A channel request is refused. Its fields are informative, not normative."""


class OpenHrmpChannelToSelf(
    ChannelRequestViolation,
    kind="OpenHrmpChannelToSelf",
    clause="router.txt hrmp_init_open_channel 1",
    rule="R-41",
    says="Para {para} asked for a channel to itself.",
    then="Name another recipient.",
):
    """A para asks for a channel to itself."""


class OpenHrmpChannelZeroCapacity(
    ChannelRequestViolation,
    kind="OpenHrmpChannelZeroCapacity",
    clause="router.txt hrmp_init_open_channel 2",
    rule="R-42",
    says="The channel asked for would hold no message.",
    then="Ask for at least one place.",
):
    """The proposed channel would hold no message."""


class OpenHrmpChannelCapacityExceedsLimit(
    ChannelRequestViolation,
    kind="OpenHrmpChannelCapacityExceedsLimit",
    clause="router.txt hrmp_init_open_channel 2",
    rule="R-42",
    says="The channel asked for would hold {max_places:message}; the relay chain allows {limit}.",
    then="Ask for at most the limit.",
    numbers=("max_places", "limit"),
):
    """The proposed channel would hold more messages than the configuration allows."""

    max_places: int
    limit: int


class OpenHrmpChannelZeroMessageSize(
    ChannelRequestViolation,
    kind="OpenHrmpChannelZeroMessageSize",
    clause="router.txt hrmp_init_open_channel 3",
    rule="R-43",
    says="The channel asked for would carry only empty messages.",
    then="Ask for a message size above 0.",
):
    """The proposed channel would carry only empty messages."""


class OpenHrmpChannelMessageSizeExceedsLimit(
    ChannelRequestViolation,
    kind="OpenHrmpChannelMessageSizeExceedsLimit",
    clause="router.txt hrmp_init_open_channel 3",
    rule="R-43",
    says="The channel asked for would carry messages of {max_message_size}; the relay chain allows {limit}.",
    then="Ask for at most the limit.",
    numbers=("max_message_size", "limit"),
):
    """The proposed channel would carry longer messages than the configuration allows."""

    max_message_size: int
    limit: int


class OpenHrmpChannelInvalidRecipient(
    ChannelRequestViolation,
    kind="OpenHrmpChannelInvalidRecipient",
    clause="router.txt hrmp_init_open_channel 4",
    rule="R-44",
    says="Para {recipient} is not a para of this relay chain.",
    then="Check the id, or wait until it is onboarded.",
):
    """The recipient is not a valid para."""

    recipient: ParaId


class OpenHrmpChannelAlreadyExists(
    ChannelRequestViolation,
    kind="OpenHrmpChannelAlreadyExists",
    clause="router.txt hrmp_init_open_channel 5",
    rule="R-45",
    says="Channel {sender} → {recipient} is open already.",
    then="Nothing to do.",
):
    """The channel is already open."""

    sender: ParaId
    recipient: ParaId


class OpenHrmpChannelAlreadyRequested(
    ChannelRequestViolation,
    kind="OpenHrmpChannelAlreadyRequested",
    clause="router.txt hrmp_init_open_channel 6",
    rule="R-46",
    says="Channel {sender} → {recipient} has been requested already.",
    then="Wait for {recipient} to accept, or for the request to expire.",
):
    """The channel has already been requested."""

    sender: ParaId
    recipient: ParaId


class OpenHrmpChannelLimitExceeded(
    ChannelRequestViolation,
    kind="OpenHrmpChannelLimitExceeded",
    clause="router.txt hrmp_init_open_channel 7",
    rule="R-47",
    says="Para {para} has {outbound_channels:outbound channel} and {open_requests:open request}; together it may have {limit}.",
    then="Close a channel first.",
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
    says="There is no request for channel {sender} → {recipient} to accept.",
    then="It may have expired: see the channel's events.",
):
    """There is no such request to accept."""

    sender: ParaId
    recipient: ParaId


class AcceptHrmpChannelAlreadyConfirmed(
    ChannelRequestViolation,
    kind="AcceptHrmpChannelAlreadyConfirmed",
    clause="router.txt hrmp_accept_open_channel 2",
    rule="R-51",
    says="The request for channel {sender} → {recipient} has been accepted already.",
    then="Nothing to do: it opens at the next session change.",
):
    """The request has already been accepted."""

    sender: ParaId
    recipient: ParaId


class AcceptHrmpChannelLimitExceeded(
    ChannelRequestViolation,
    kind="AcceptHrmpChannelLimitExceeded",
    clause="router.txt hrmp_accept_open_channel 3",
    rule="R-52",
    says="Para {para} has {inbound_channels:inbound channel} and {accepted_requests:accepted request}; together it may have {limit}.",
    then="Close a channel first.",
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
    says="The deposit is {deposit}; the account of para {para} has {free} free.",
    then="Fund the para's sovereign account.",
    numbers=("deposit", "free"),
):
    """A para's free balance does not cover the deposit.

    The para is the origin of a request or of an acceptance, either party of a forced channel or of one with a system para, or a party whose
    deposit ``poke_channel_deposits`` raises. ``deposit`` is the amount to reserve; after a poke, the missing difference.
    """

    free: Balance
    deposit: Balance


class CloseHrmpChannelUnauthorized(
    ChannelRequestViolation,
    kind="CloseHrmpChannelUnauthorized",
    clause="router.txt hrmp_close_channel 1",
    rule="R-54",
    says="Para {para} is neither end of channel {sender} → {recipient}.",
    then="One of its two ends has to ask.",
):
    """The origin is neither end of the channel."""

    sender: ParaId
    recipient: ParaId


class CloseHrmpChannelDoesntExist(
    ChannelRequestViolation,
    kind="CloseHrmpChannelDoesntExist",
    clause="router.txt hrmp_close_channel 2",
    rule="R-55",
    says="There is no channel {sender} → {recipient} to close.",
    then="Check the direction: channels go one way.",
):
    """There is no such channel."""

    sender: ParaId
    recipient: ParaId


class CloseHrmpChannelAlreadyUnderway(
    ChannelRequestViolation,
    kind="CloseHrmpChannelAlreadyUnderway",
    clause="router.txt hrmp_close_channel 3",
    rule="R-56",
    says="Channel {sender} → {recipient} closes at the next session change already.",
    then="Nothing to do.",
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
    says="The downward message to para {para} has {msg_size}; the limit is {max_size}.",
    then="Send a shorter message.",
    numbers=("msg_size", "max_size"),
):
    """A downward message is too long."""

    msg_size: int
    max_size: int
