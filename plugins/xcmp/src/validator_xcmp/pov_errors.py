# SPDX-License-Identifier: Apache-2.0
"""All the reasons why a proof of processing is rejected. Names and fields come from xcmp_rules 2.3."""

from __future__ import annotations

from typing import ClassVar

from validator.plugin.protocol_api import BlockNumber, ParaId


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
