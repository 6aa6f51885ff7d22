# SPDX-License-Identifier: Apache-2.0
"""All the reasons why the protocol rejects an input, one class each.

Names and fields come from xcmp_rules 2.3; a channel is ``"sender->recipient"``.
"""

from __future__ import annotations

from validator.plugin.protocol_api import Balance, BlockNumber, ParaId, Violation
from validator_xcmp.records import Watermark

# --- init_open_channel -------------------------------------------------------------------------------------------------------------------


class OpenInvalidSender(Violation, kind="Open/InvalidSender", clause="xcmp_rules 1.2 init_open_channel", rule="X-11"):
    """The caller is not registered."""

    sender: ParaId


class OpenAlreadyExists(
    Violation, kind="Open/AlreadyExists", clause="xcmp_channels.txt init_open_channel 1", rule="X-12"
):
    """The channel already exists, condemned or not. ``channel`` is ``"sender->recipient"``."""

    channel: str


class OpenAlreadyRequested(
    Violation, kind="Open/AlreadyRequested", clause="xcmp_channels.txt init_open_channel 1", rule="X-12"
):
    """There is a request for the channel, confirmed or not."""

    channel: str


class OpenLimitExceeded(
    Violation, kind="Open/LimitExceeded", clause="xcmp_channels.txt init_open_channel 2 (X-I07)", rule="X-13"
):
    """The caller's channels and open requests, ``count`` in total, have reached the limit."""

    count: int
    limit: int


class OpenToSelf(Violation, kind="Open/ToSelf", clause="xcmp_channels.txt init_open_channel 3", rule="X-14"):
    """The caller requests a channel to itself."""

    para: ParaId


class OpenInvalidRecipient(
    Violation, kind="Open/InvalidRecipient", clause="xcmp_rules 1.2 init_open_channel (X-I08)", rule="X-15"
):
    """The recipient is not registered."""

    recipient: ParaId


class InsufficientBalance(
    Violation,
    kind="InsufficientBalance",
    clause="xcmp_rules 1.2 init_open_channel, accept_open_channel (X-I08)",
    rule="X-16",
):
    """The caller's free balance does not cover the deposit."""

    para: ParaId
    needed: Balance
    free: Balance


# --- accept_open_channel -----------------------------------------------------------------------------------------------------------------


class AcceptNoSuchRequest(
    Violation, kind="Accept/NoSuchRequest", clause="xcmp_channels.txt accept_open_channel 1", rule="X-18"
):
    """The list of open requests has no such entry."""

    index: int


class AcceptNoSuchRequestFrom(
    Violation, kind="Accept/NoSuchRequest", clause="xcmp_channels.txt accept_open_channel 1", rule="X-18"
):
    """There is no open request for the named channel."""

    channel: str


class AcceptNotRecipient(
    Violation, kind="Accept/NotRecipient", clause="xcmp_channels.txt accept_open_channel 2", rule="X-19"
):
    """The request is to another para."""

    index: int
    origin: ParaId
    recipient: ParaId


class AcceptAlreadyConfirmed(
    Violation, kind="Accept/AlreadyConfirmed", clause="xcmp_rules 1.2 accept_open_channel (X-I05)", rule="X-20"
):
    """The request is already confirmed."""

    index: int


# --- close_channel -----------------------------------------------------------------------------------------------------------------------


class CloseNoSuchChannel(
    Violation, kind="Close/NoSuchChannel", clause="xcmp_channels.txt close_channel 1", rule="X-22"
):
    """The sender's row has no such column."""

    sender: ParaId
    index: int


class CloseNoSuchChannelTo(
    Violation, kind="Close/NoSuchChannel", clause="xcmp_channels.txt close_channel 1", rule="X-22"
):
    """There is no channel between the two named paras."""

    channel: str


class CloseUnauthorized(Violation, kind="Close/Unauthorized", clause="xcmp_channels.txt close_channel 2", rule="X-23"):
    """The caller is neither end of the channel."""

    origin: ParaId
    channel: str


class CloseAlreadyUnderway(
    Violation, kind="Close/AlreadyUnderway", clause="xcmp_channels.txt close_channel 3", rule="X-24"
):
    """A close request for the channel already exists."""

    channel: str


class CloseAlreadyCondemned(
    Violation, kind="Close/AlreadyCondemned", clause="xcmp_rules 1.2 close_channel (X-I06)", rule="X-25"
):
    """The channel is condemned."""

    channel: str


# --- candidates --------------------------------------------------------------------------------------------------------------------------


class CandidateUnknownPara(Violation, kind="Candidate/UnknownPara", clause="xcmp_rules 2.3", rule="X-31"):
    """The candidate's para is not registered."""

    para: ParaId


class BitfieldTooLong(
    Violation, kind="Bitfield/TooLong", clause="xcmp_channels.txt Acceptance Function 1.1", rule="X-32"
):
    """The bitfield has more bits than the row has columns."""

    length: int
    row_length: int


class BitfieldChannelCondemned(
    Violation, kind="Bitfield/ChannelCondemned", clause="xcmp_channels.txt Acceptance Function 2.1", rule="X-33"
):
    """A bit is set for a condemned channel."""

    index: int
    recipient: ParaId


class BitfieldMissingMessageRoot(
    Violation, kind="Bitfield/MissingMessageRoot", clause="xcmp_rules 1.2 acceptance 3 (X-I09)", rule="X-34"
):
    """A bit is set, and the candidate has no message root."""


class WatermarkAheadRelayParent(
    Violation, kind="Watermark/AheadRelayParent", clause="xcmp_rules 1.2 acceptance 4 (X-I01)", rule="X-35"
):
    """The watermark's block is ahead of the relay parent."""

    new_watermark: Watermark
    relay_parent_number: BlockNumber


class WatermarkRegressed(
    Violation, kind="Watermark/Regressed", clause="xcmp_rules 1.2 acceptance 4 (X-I01)", rule="X-35"
):
    """The watermark is lower than the last one."""

    new_watermark: Watermark
    last_watermark: Watermark


class WatermarkNotAdvanced(
    Violation, kind="Watermark/NotAdvanced", clause="xcmp_rules 1.2 acceptance 4 (X-I01)", rule="X-35"
):
    """The watermark stays although something is unread. ``pending`` lists the ``[block, sender]`` of each unread message, ascending."""

    last_watermark: Watermark
    pending: tuple[Watermark, ...]
