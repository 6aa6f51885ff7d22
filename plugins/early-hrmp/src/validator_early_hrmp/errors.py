# SPDX-License-Identifier: Apache-2.0
"""All the reasons why early HRMP rejects an input, one class each.

Names and fields come from xcmp_rules 2.3. Sizes are bytes of payload, counts are messages or channels. ``channel`` is
``"sender->recipient"``, ``idx`` is the position of a message in its candidate, ``index`` that of a request in the list of open requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from validator.plugin.protocol_api import Balance, BlockNumber, ParaId, Violation

# --- requests ----------------------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class OpenInvalidSender(Violation):
    """The para that requests a channel is not registered."""

    kind: ClassVar[str] = "Open/InvalidSender"
    clause: ClassVar[str] = "early_hrmp.txt init_open_channel 1"
    sender: ParaId


@dataclass(eq=False)
class OpenInvalidRecipient(Violation):
    """The recipient of the requested channel is not registered."""

    kind: ClassVar[str] = "Open/InvalidRecipient"
    clause: ClassVar[str] = "early_hrmp.txt init_open_channel 1"
    recipient: ParaId


@dataclass(eq=False)
class OpenToSelf(Violation):
    """A para requests a channel to itself."""

    kind: ClassVar[str] = "Open/ToSelf"
    clause: ClassVar[str] = "early_hrmp.txt init_open_channel 2"
    para: ParaId


@dataclass(eq=False)
class OpenAlreadyExists(Violation):
    """The channel already exists, open or sealed."""

    kind: ClassVar[str] = "Open/AlreadyExists"
    clause: ClassVar[str] = "early_hrmp.txt init_open_channel 3"
    channel: str


@dataclass(eq=False)
class OpenAlreadyRequested(Violation):
    """The channel has already been requested, confirmed or not."""

    kind: ClassVar[str] = "Open/AlreadyRequested"
    clause: ClassVar[str] = "early_hrmp.txt init_open_channel 4"
    channel: str


@dataclass(eq=False)
class OpenLimitExceeded(Violation):
    """The sender's channels, sealed ones included, and its open requests leave no room for one more."""

    kind: ClassVar[str] = "Open/LimitExceeded"
    clause: ClassVar[str] = "early_hrmp.txt init_open_channel 5"
    count: int
    limit: int


@dataclass(eq=False)
class InsufficientBalance(Violation):
    """The origin's free balance does not cover the deposit."""

    kind: ClassVar[str] = "InsufficientBalance"
    clause: ClassVar[str] = "early_hrmp.txt init_open_channel 6, accept_open_channel 3"
    para: ParaId
    needed: Balance
    free: Balance


@dataclass(eq=False)
class AcceptNoSuchRequest(Violation):
    """The list of open requests has no such index."""

    kind: ClassVar[str] = "Accept/NoSuchRequest"
    clause: ClassVar[str] = "early_hrmp.txt accept_open_channel 1"
    index: int


@dataclass(eq=False)
class AcceptNoSuchRequestFrom(Violation):
    """There is no request for this channel; the call named it by its two ends."""

    kind: ClassVar[str] = "Accept/NoSuchRequest"
    clause: ClassVar[str] = "early_hrmp.txt accept_open_channel 1"
    channel: str


@dataclass(eq=False)
class AcceptNotRecipient(Violation):
    """The request is to another para."""

    kind: ClassVar[str] = "Accept/NotRecipient"
    clause: ClassVar[str] = "early_hrmp.txt accept_open_channel 2"
    index: int
    origin: ParaId
    recipient: ParaId


@dataclass(eq=False)
class AcceptAlreadyConfirmed(Violation):
    """The request is already confirmed. Confirming it again would take a second deposit."""

    kind: ClassVar[str] = "Accept/AlreadyConfirmed"
    clause: ClassVar[str] = "xcmp_rules H-I02"
    index: int


@dataclass(eq=False)
class CloseNoSuchChannel(Violation):
    """There is no such channel."""

    kind: ClassVar[str] = "Close/NoSuchChannel"
    clause: ClassVar[str] = "early_hrmp.txt close_channel 1"
    channel: str


@dataclass(eq=False)
class CloseChannelSealed(Violation):
    """The channel is already closed and waits to be drained."""

    kind: ClassVar[str] = "Close/ChannelSealed"
    clause: ClassVar[str] = "early_hrmp.txt close_channel 2"
    channel: str


@dataclass(eq=False)
class CloseUnauthorized(Violation):
    """The origin is neither end of the channel."""

    kind: ClassVar[str] = "Close/Unauthorized"
    clause: ClassVar[str] = "early_hrmp.txt close_channel 3"
    origin: ParaId
    channel: str


@dataclass(eq=False)
class CloseAlreadyUnderway(Violation):
    """A close request for the channel already exists."""

    kind: ClassVar[str] = "Close/AlreadyUnderway"
    clause: ClassVar[str] = "early_hrmp.txt close_channel 4"
    channel: str


# --- candidates --------------------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class CandidateUnknownPara(Violation):
    """The candidate's para is not registered."""

    kind: ClassVar[str] = "Candidate/UnknownPara"
    clause: ClassVar[str] = "xcmp_rules H-I12"
    para: ParaId


@dataclass(eq=False)
class OutboundNotSorted(Violation):
    """A message goes to a lower para than the previous one."""

    kind: ClassVar[str] = "Outbound/NotSorted"
    clause: ClassVar[str] = "early_hrmp.txt acceptance 1"
    idx: int


@dataclass(eq=False)
class OutboundDuplicateRecipient(Violation):
    """Two messages go to the same para."""

    kind: ClassVar[str] = "Outbound/DuplicateRecipient"
    clause: ClassVar[str] = "early_hrmp.txt acceptance 1"
    idx: int
    recipient: ParaId


@dataclass(eq=False)
class OutboundSenderMismatch(Violation):
    """A message names a sender other than the candidate's para."""

    kind: ClassVar[str] = "Outbound/SenderMismatch"
    clause: ClassVar[str] = "xcmp_rules H-I08"
    idx: int
    sender: ParaId
    para: ParaId


@dataclass(eq=False)
class OutboundNoSuchChannel(Violation):
    """A message would use a channel that does not exist."""

    kind: ClassVar[str] = "Outbound/NoSuchChannel"
    clause: ClassVar[str] = "early_hrmp.txt acceptance 2.1"
    idx: int
    channel: str


@dataclass(eq=False)
class OutboundChannelSealed(Violation):
    """A message would use a channel that is sealed."""

    kind: ClassVar[str] = "Outbound/ChannelSealed"
    clause: ClassVar[str] = "early_hrmp.txt acceptance 2.1"
    idx: int
    channel: str


@dataclass(eq=False)
class OutboundCapacityExceeded(Violation):
    """With this message the channel would exceed the maximum number of messages."""

    kind: ClassVar[str] = "Outbound/CapacityExceeded"
    clause: ClassVar[str] = "early_hrmp.txt acceptance 2.2"
    idx: int
    count: int
    limit: int


@dataclass(eq=False)
class OutboundTotalSizeExceeded(Violation):
    """With this message the channel would exceed the maximum number of bytes."""

    kind: ClassVar[str] = "Outbound/TotalSizeExceeded"
    clause: ClassVar[str] = "early_hrmp.txt acceptance 2.2"
    idx: int
    total_size: int
    limit: int


@dataclass(eq=False)
class WatermarkAdvancementRule(Violation):
    """The watermark does not advance."""

    kind: ClassVar[str] = "Watermark/AdvancementRule"
    clause: ClassVar[str] = "early_hrmp.txt acceptance 3.1"
    new_watermark: BlockNumber
    last_watermark: BlockNumber


@dataclass(eq=False)
class WatermarkAheadRelayParent(Violation):
    """The watermark is ahead of the relay parent."""

    kind: ClassVar[str] = "Watermark/AheadRelayParent"
    clause: ClassVar[str] = "xcmp_rules H-I01"
    new_watermark: BlockNumber
    relay_parent_number: BlockNumber


@dataclass(eq=False)
class WatermarkLandsOnBlockWithNoMessages(Violation):
    """The watermark is neither the relay parent nor a block with a message in the para's queue."""

    kind: ClassVar[str] = "Watermark/LandsOnBlockWithNoMessages"
    clause: ClassVar[str] = "early_hrmp.txt acceptance 3.2, xcmp_rules H-I01"
    new_watermark: BlockNumber
