# SPDX-License-Identifier: Apache-2.0
"""All the reasons why the protocol rejects an input, one class each.

Names and fields come from xcmp_rules 2.3; a channel is ``"sender->recipient"``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from validator.plugin.protocol_api import Balance, BlockNumber, ParaId, Violation
from validator_xcmp.records import Watermark

# --- init_open_channel -------------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class OpenInvalidSender(Violation):
    """The caller is not a registered para."""

    kind: ClassVar[str] = "Open/InvalidSender"
    clause: ClassVar[str] = "xcmp_rules 1.2 init_open_channel"
    sender: ParaId


@dataclass(eq=False)
class OpenAlreadyExists(Violation):
    """There is a channel from the caller to this recipient, condemned or not."""

    kind: ClassVar[str] = "Open/AlreadyExists"
    clause: ClassVar[str] = "xcmp_channels.txt init_open_channel 1"
    channel: str


@dataclass(eq=False)
class OpenAlreadyRequested(Violation):
    """There is a request for this channel, confirmed or not."""

    kind: ClassVar[str] = "Open/AlreadyRequested"
    clause: ClassVar[str] = "xcmp_channels.txt init_open_channel 1"
    channel: str


@dataclass(eq=False)
class OpenLimitExceeded(Violation):
    """The caller's channels and open requests, ``count`` in total, have reached the limit."""

    kind: ClassVar[str] = "Open/LimitExceeded"
    clause: ClassVar[str] = "xcmp_channels.txt init_open_channel 2 (X-I07)"
    count: int
    limit: int


@dataclass(eq=False)
class OpenToSelf(Violation):
    """The caller requests a channel to itself."""

    kind: ClassVar[str] = "Open/ToSelf"
    clause: ClassVar[str] = "xcmp_channels.txt init_open_channel 3"
    para: ParaId


@dataclass(eq=False)
class OpenInvalidRecipient(Violation):
    """The recipient is not a registered para."""

    kind: ClassVar[str] = "Open/InvalidRecipient"
    clause: ClassVar[str] = "xcmp_rules 1.2 init_open_channel (X-I08)"
    recipient: ParaId


@dataclass(eq=False)
class InsufficientBalance(Violation):
    """The caller cannot pay the deposit."""

    kind: ClassVar[str] = "InsufficientBalance"
    clause: ClassVar[str] = "xcmp_rules 1.2 init_open_channel, accept_open_channel (X-I08)"
    para: ParaId
    needed: Balance
    free: Balance


# --- accept_open_channel -----------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class AcceptNoSuchRequest(Violation):
    """The list of open requests has no such entry."""

    kind: ClassVar[str] = "Accept/NoSuchRequest"
    clause: ClassVar[str] = "xcmp_channels.txt accept_open_channel 1"
    index: int


@dataclass(eq=False)
class AcceptNoSuchRequestFrom(Violation):
    """There is no open request for the named channel."""

    kind: ClassVar[str] = "Accept/NoSuchRequest"
    clause: ClassVar[str] = "xcmp_channels.txt accept_open_channel 1"
    channel: str


@dataclass(eq=False)
class AcceptNotRecipient(Violation):
    """The request is to another para."""

    kind: ClassVar[str] = "Accept/NotRecipient"
    clause: ClassVar[str] = "xcmp_channels.txt accept_open_channel 2"
    index: int
    origin: ParaId
    recipient: ParaId


@dataclass(eq=False)
class AcceptAlreadyConfirmed(Violation):
    """The request has already been accepted."""

    kind: ClassVar[str] = "Accept/AlreadyConfirmed"
    clause: ClassVar[str] = "xcmp_rules 1.2 accept_open_channel (X-I05)"
    index: int


# --- close_channel -----------------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class CloseNoSuchChannel(Violation):
    """The sender's row has no such column."""

    kind: ClassVar[str] = "Close/NoSuchChannel"
    clause: ClassVar[str] = "xcmp_channels.txt close_channel 1"
    sender: ParaId
    index: int


@dataclass(eq=False)
class CloseNoSuchChannelTo(Violation):
    """There is no channel between the two named paras."""

    kind: ClassVar[str] = "Close/NoSuchChannel"
    clause: ClassVar[str] = "xcmp_channels.txt close_channel 1"
    channel: str


@dataclass(eq=False)
class CloseUnauthorized(Violation):
    """The caller is neither end of the channel."""

    kind: ClassVar[str] = "Close/Unauthorized"
    clause: ClassVar[str] = "xcmp_channels.txt close_channel 2"
    origin: ParaId
    channel: str


@dataclass(eq=False)
class CloseAlreadyUnderway(Violation):
    """A close request for the channel already exists."""

    kind: ClassVar[str] = "Close/AlreadyUnderway"
    clause: ClassVar[str] = "xcmp_channels.txt close_channel 3"
    channel: str


@dataclass(eq=False)
class CloseAlreadyCondemned(Violation):
    """The channel is in the condemned set."""

    kind: ClassVar[str] = "Close/AlreadyCondemned"
    clause: ClassVar[str] = "xcmp_rules 1.2 close_channel (X-I06)"
    channel: str


# --- candidates --------------------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class CandidateUnknownPara(Violation):
    """The candidate's para is not registered."""

    kind: ClassVar[str] = "Candidate/UnknownPara"
    clause: ClassVar[str] = "xcmp_rules 2.3"
    para: ParaId


@dataclass(eq=False)
class BitfieldTooLong(Violation):
    """The bitfield has more bits than the row has columns, even if they are all 0."""

    kind: ClassVar[str] = "Bitfield/TooLong"
    clause: ClassVar[str] = "xcmp_channels.txt Acceptance Function 1.1"
    length: int
    row_length: int


@dataclass(eq=False)
class BitfieldChannelCondemned(Violation):
    """A bit is set for a channel that is in the condemned set."""

    kind: ClassVar[str] = "Bitfield/ChannelCondemned"
    clause: ClassVar[str] = "xcmp_channels.txt Acceptance Function 2.1"
    index: int
    recipient: ParaId


@dataclass(eq=False)
class BitfieldMissingMessageRoot(Violation):
    """A bit is set, and the receipt has no message root."""

    kind: ClassVar[str] = "Bitfield/MissingMessageRoot"
    clause: ClassVar[str] = "xcmp_rules 1.2 acceptance 3 (X-I09)"


@dataclass(eq=False)
class WatermarkAheadRelayParent(Violation):
    """The watermark's block is ahead of the candidate's relay parent."""

    kind: ClassVar[str] = "Watermark/AheadRelayParent"
    clause: ClassVar[str] = "xcmp_rules 1.2 acceptance 4 (X-I01)"
    new_watermark: Watermark
    relay_parent_number: BlockNumber


@dataclass(eq=False)
class WatermarkRegressed(Violation):
    """The watermark is lower than the last one."""

    kind: ClassVar[str] = "Watermark/Regressed"
    clause: ClassVar[str] = "xcmp_rules 1.2 acceptance 4 (X-I01)"
    new_watermark: Watermark
    last_watermark: Watermark


@dataclass(eq=False)
class WatermarkNotAdvanced(Violation):
    """The watermark stays although something is unread; ``pending`` has the ``(block, sender)`` of each unread message, ascending."""

    kind: ClassVar[str] = "Watermark/NotAdvanced"
    clause: ClassVar[str] = "xcmp_rules 1.2 acceptance 4 (X-I01)"
    last_watermark: Watermark
    pending: tuple[Watermark, ...]
