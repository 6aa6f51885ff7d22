# SPDX-License-Identifier: Apache-2.0
"""All the reasons why early HRMP rejects an input, one class each.

Names and fields come from xcmp_rules 2.3. Sizes are bytes of payload, counts are messages or channels. ``channel`` is
``"sender->recipient"``, ``idx`` is the position of a message in its candidate, ``index`` that of a request in the list of open requests.
"""

from __future__ import annotations

from validator.plugin.protocol_api import Balance, BlockNumber, ParaId, Violation

# --- requests ----------------------------------------------------------------------------------------------------------------------------


class OpenInvalidSender(Violation, kind="Open/InvalidSender", clause="early_hrmp.txt init_open_channel 1", rule="H-11"):
    """The para that requests a channel is not registered."""

    sender: ParaId


class OpenInvalidRecipient(
    Violation, kind="Open/InvalidRecipient", clause="early_hrmp.txt init_open_channel 1", rule="H-11"
):
    """The channel's recipient is not registered."""

    recipient: ParaId


class OpenToSelf(Violation, kind="Open/ToSelf", clause="early_hrmp.txt init_open_channel 2", rule="H-12"):
    """The channel would lead back to its sender."""

    para: ParaId


class OpenAlreadyExists(Violation, kind="Open/AlreadyExists", clause="early_hrmp.txt init_open_channel 3", rule="H-13"):
    """The channel already exists, open or sealed. ``channel`` is ``"sender->recipient"``."""

    channel: str


class OpenAlreadyRequested(
    Violation, kind="Open/AlreadyRequested", clause="early_hrmp.txt init_open_channel 4", rule="H-14"
):
    """The channel has already been requested."""

    channel: str


class OpenLimitExceeded(Violation, kind="Open/LimitExceeded", clause="early_hrmp.txt init_open_channel 5", rule="H-15"):
    """The sender's channels and open requests, ``count`` in total, have reached the limit."""

    count: int
    limit: int


class InsufficientBalance(
    Violation,
    kind="InsufficientBalance",
    clause="early_hrmp.txt init_open_channel 6, accept_open_channel 3",
    rule="H-16",
):
    """The origin's free balance does not cover the deposit."""

    para: ParaId
    needed: Balance
    free: Balance


class AcceptNoSuchRequest(
    Violation, kind="Accept/NoSuchRequest", clause="early_hrmp.txt accept_open_channel 1", rule="H-18"
):
    """The list of open requests has no such index."""

    index: int


class AcceptNoSuchRequestFrom(
    Violation, kind="Accept/NoSuchRequest", clause="early_hrmp.txt accept_open_channel 1", rule="H-18"
):
    """There is no request for this channel; the call named it by its two ends."""

    channel: str


class AcceptNotRecipient(
    Violation, kind="Accept/NotRecipient", clause="early_hrmp.txt accept_open_channel 2", rule="H-19"
):
    """The request is to another para."""

    index: int
    origin: ParaId
    recipient: ParaId


class AcceptAlreadyConfirmed(Violation, kind="Accept/AlreadyConfirmed", clause="xcmp_rules H-I02", rule="H-20"):
    """The request is already confirmed."""

    index: int


class CloseNoSuchChannel(Violation, kind="Close/NoSuchChannel", clause="early_hrmp.txt close_channel 1", rule="H-22"):
    """There is no such channel."""

    channel: str


class CloseChannelSealed(Violation, kind="Close/ChannelSealed", clause="early_hrmp.txt close_channel 2", rule="H-23"):
    """The channel is closed and waits to be drained."""

    channel: str


class CloseUnauthorized(Violation, kind="Close/Unauthorized", clause="early_hrmp.txt close_channel 3", rule="H-24"):
    """The origin is neither end of the channel."""

    origin: ParaId
    channel: str


class CloseAlreadyUnderway(
    Violation, kind="Close/AlreadyUnderway", clause="early_hrmp.txt close_channel 4", rule="H-25"
):
    """A close request for the channel already exists."""

    channel: str


# --- candidates --------------------------------------------------------------------------------------------------------------------------


class CandidateUnknownPara(Violation, kind="Candidate/UnknownPara", clause="xcmp_rules H-I12", rule="H-31"):
    """The candidate's para is not registered."""

    para: ParaId


class OutboundNotSorted(Violation, kind="Outbound/NotSorted", clause="early_hrmp.txt acceptance 1", rule="H-32"):
    """The message at ``idx`` goes to a lower para than the previous one."""

    idx: int


class OutboundDuplicateRecipient(
    Violation, kind="Outbound/DuplicateRecipient", clause="early_hrmp.txt acceptance 1", rule="H-32"
):
    """The message at ``idx`` goes to the same para as the previous one."""

    idx: int
    recipient: ParaId


class OutboundSenderMismatch(Violation, kind="Outbound/SenderMismatch", clause="xcmp_rules H-I08", rule="H-33"):
    """The message names a sender that is not the candidate's para."""

    idx: int
    sender: ParaId
    para: ParaId


class OutboundNoSuchChannel(
    Violation, kind="Outbound/NoSuchChannel", clause="early_hrmp.txt acceptance 2.1", rule="H-34"
):
    """The message would use a channel that does not exist."""

    idx: int
    channel: str


class OutboundChannelSealed(
    Violation, kind="Outbound/ChannelSealed", clause="early_hrmp.txt acceptance 2.1", rule="H-34"
):
    """The message would use a channel that is sealed."""

    idx: int
    channel: str


class OutboundCapacityExceeded(
    Violation, kind="Outbound/CapacityExceeded", clause="early_hrmp.txt acceptance 2.2", rule="H-35"
):
    """With this message, the channel would exceed the maximum number of messages. ``count`` includes it."""

    idx: int
    count: int
    limit: int


class OutboundTotalSizeExceeded(
    Violation, kind="Outbound/TotalSizeExceeded", clause="early_hrmp.txt acceptance 2.2", rule="H-35"
):
    """With this message, the channel would exceed the maximum number of bytes. ``total_size`` includes it."""

    idx: int
    total_size: int
    limit: int


class WatermarkAdvancementRule(
    Violation, kind="Watermark/AdvancementRule", clause="early_hrmp.txt acceptance 3.1", rule="H-36"
):
    """The watermark does not rise above the last one."""

    new_watermark: BlockNumber
    last_watermark: BlockNumber


class WatermarkAheadRelayParent(Violation, kind="Watermark/AheadRelayParent", clause="xcmp_rules H-I01", rule="H-37"):
    """The watermark is ahead of the relay parent."""

    new_watermark: BlockNumber
    relay_parent_number: BlockNumber


class WatermarkLandsOnBlockWithNoMessages(
    Violation,
    kind="Watermark/LandsOnBlockWithNoMessages",
    clause="early_hrmp.txt acceptance 3.2, xcmp_rules H-I01",
    rule="H-38",
):
    """The watermark is neither the relay parent nor a block with a message in the para's queue."""

    new_watermark: BlockNumber
