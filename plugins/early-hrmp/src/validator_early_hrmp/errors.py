# SPDX-License-Identifier: Apache-2.0
"""Every reason for which early HRMP rejects an input.

Names and fields are those of xcmp_rules 2.3. Sizes are bytes of payload, counts are messages or channels, ``channel`` is
``"sender->recipient"``, ``idx`` the position of a message in its candidate and ``index`` that of a request in the list of open requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from validator.plugin.protocol_api import Balance, BlockNumber, ParaId, Violation

# --- requests ----------------------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class OpenInvalidSender(Violation):
    """The para that asks for a channel does not exist."""

    kind: ClassVar[str] = "Open/InvalidSender"
    clause: ClassVar[str] = "early_hrmp.txt init_open_channel 1"
    sender: ParaId


@dataclass(eq=False)
class OpenInvalidRecipient(Violation):
    """The para that a channel shall lead to does not exist."""

    kind: ClassVar[str] = "Open/InvalidRecipient"
    clause: ClassVar[str] = "early_hrmp.txt init_open_channel 1"
    recipient: ParaId


@dataclass(eq=False)
class OpenToSelf(Violation):
    """A channel cannot lead back to its sender."""

    kind: ClassVar[str] = "Open/ToSelf"
    clause: ClassVar[str] = "early_hrmp.txt init_open_channel 2"
    para: ParaId


@dataclass(eq=False)
class OpenAlreadyExists(Violation):
    """The channel is there already, open or sealed."""

    kind: ClassVar[str] = "Open/AlreadyExists"
    clause: ClassVar[str] = "early_hrmp.txt init_open_channel 3"
    channel: str


@dataclass(eq=False)
class OpenAlreadyRequested(Violation):
    """The channel is asked for already, confirmed or not."""

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
    """The list of open requests has no such place."""

    kind: ClassVar[str] = "Accept/NoSuchRequest"
    clause: ClassVar[str] = "early_hrmp.txt accept_open_channel 1"
    index: int


@dataclass(eq=False)
class AcceptNoSuchRequestFrom(Violation):
    """Nobody asks for this channel; the request was named by its two ends."""

    kind: ClassVar[str] = "Accept/NoSuchRequest"
    clause: ClassVar[str] = "early_hrmp.txt accept_open_channel 1"
    channel: str


@dataclass(eq=False)
class AcceptNotRecipient(Violation):
    """The request is one to another para."""

    kind: ClassVar[str] = "Accept/NotRecipient"
    clause: ClassVar[str] = "early_hrmp.txt accept_open_channel 2"
    index: int
    origin: ParaId
    recipient: ParaId


@dataclass(eq=False)
class AcceptAlreadyConfirmed(Violation):
    """The request is confirmed already: a second deposit would be taken otherwise."""

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
    """The channel is closed already and only waits to be drained."""

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
    """The channel is going to be closed already."""

    kind: ClassVar[str] = "Close/AlreadyUnderway"
    clause: ClassVar[str] = "early_hrmp.txt close_channel 4"
    channel: str


# --- candidates --------------------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class CandidateUnknownPara(Violation):
    """The candidate is of a para that is not registered."""

    kind: ClassVar[str] = "Candidate/UnknownPara"
    clause: ClassVar[str] = "xcmp_rules H-I12"
    para: ParaId


@dataclass(eq=False)
class OutboundNotSorted(Violation):
    """A message goes to a lower para than the one before it."""

    kind: ClassVar[str] = "Outbound/NotSorted"
    clause: ClassVar[str] = "early_hrmp.txt acceptance 1"
    idx: int


@dataclass(eq=False)
class OutboundDuplicateRecipient(Violation):
    """Two messages go to one para."""

    kind: ClassVar[str] = "Outbound/DuplicateRecipient"
    clause: ClassVar[str] = "early_hrmp.txt acceptance 1"
    idx: int
    recipient: ParaId


@dataclass(eq=False)
class OutboundSenderMismatch(Violation):
    """A message names another sender than the para whose candidate it is in."""

    kind: ClassVar[str] = "Outbound/SenderMismatch"
    clause: ClassVar[str] = "xcmp_rules H-I08"
    idx: int
    sender: ParaId
    para: ParaId


@dataclass(eq=False)
class OutboundNoSuchChannel(Violation):
    """A message would use a channel that is not there."""

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
    """With the message a channel would hold more messages than any channel may."""

    kind: ClassVar[str] = "Outbound/CapacityExceeded"
    clause: ClassVar[str] = "early_hrmp.txt acceptance 2.2"
    idx: int
    count: int
    limit: int


@dataclass(eq=False)
class OutboundTotalSizeExceeded(Violation):
    """With the message a channel would hold more bytes than any channel may."""

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
    """The watermark lies ahead of the relay parent."""

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
