# SPDX-License-Identifier: Apache-2.0
"""All the reasons why an input of XCMP channels or a proof of processing is rejected, one class each.

Names and fields come from xcmp_rules 2.3.
"""

from __future__ import annotations

from typing import ClassVar

from validator.plugin.protocol_api import Balance, BlockNumber, ParaId, Violation
from validator_xcmp.records import Watermark

# --- errors ---------------------------------------------------------------------------------------------------------------------------


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


# --- pov errors -----------------------------------------------------------------------------------------------------------------------
# All the reasons why a proof of processing is rejected. Names and fields come from xcmp_rules 2.3.


class PovError(Exception):
    """A proof of processing does not hold. ``sender`` is the para whose part fails, or None if no single part is at fault.

    ``block`` is the height of the logical message at fault. ``depth`` is the link at fault, counted from the newest, which is 0. Fields
    that a kind does not have are None. Source: xcmp_rules 2.3.
    """

    kind: ClassVar[str] = ""

    def __init__(
        self, sender: ParaId | None = None, *, block: BlockNumber | None = None, depth: int | None = None
    ) -> None:
        super().__init__(sender)
        self.sender = sender
        self.block = block
        self.depth = depth

    def details(self) -> dict[str, int]:
        """Return the fields that the error has, by name."""
        fields = {"sender": self.sender, "block": self.block, "depth": self.depth}
        return {name: value for name, value in fields.items() if value is not None}

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(f'{name}={value}' for name, value in self.details().items())})"


class PovAheadRelayParent(PovError):
    """The new watermark's block is ahead of the relay parent."""

    kind = "Pov/AheadRelayParent"


class PovRegressed(PovError):
    """The new watermark is lower than the old one."""

    kind = "Pov/Regressed"


class PovMissingSender(PovError):
    """The proof leaves out a sender with a column to the recipient, which would hide a channel."""

    kind = "Pov/MissingSender"


class PovCstProofInvalid(PovError):
    """The column is not in the sender's row, or there is no such row."""

    kind = "Pov/CstProofInvalid"


class PovMqProofInvalid(PovError):
    """The head is not under the column's message root, or is missing although something is unread."""

    kind = "Pov/MqProofInvalid"


class PovChainBroken(PovError):
    """The link at ``depth`` does not hash to the expected head."""

    kind = "Pov/ChainBroken"


class PovBlocksNotDecreasing(PovError):
    """The link at ``depth`` names a previous block that is not before its own."""

    kind = "Pov/BlocksNotDecreasing"


class PovChainIncomplete(PovError):
    """The links end before they reach the old watermark, which would hide messages."""

    kind = "Pov/ChainIncomplete"


class PovChainOverrun(PovError):
    """There are links beyond the old watermark, or links although nothing is unread; the first of them is at ``depth``."""

    kind = "Pov/ChainOverrun"


class PovBodyMissing(PovError):
    """The message of ``block``, which is at or below the new watermark, has no body."""

    kind = "Pov/BodyMissing"


class PovBodyHashMismatch(PovError):
    """The body of ``block`` is not the one that the chain commits to."""

    kind = "Pov/BodyHashMismatch"


class PovUnexpectedBody(PovError):
    """The proof has a body for ``block``, at which nothing between the watermarks was sent. The lowest such block is named."""

    kind = "Pov/UnexpectedBody"
