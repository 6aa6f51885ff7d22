# SPDX-License-Identifier: Apache-2.0
"""All the reasons why a proof of processing is rejected. Names and fields come from xcmp_rules 2.3."""

from __future__ import annotations

from typing import ClassVar

from validator.plugin.protocol_api import ParaId


class PovError(Exception):
    """A proof of processing does not hold. ``sender`` is the para whose part fails, or None if no single part is at fault.

    ``details`` are the fields of the conformance format; the sender is not one of them.
    """

    kind: ClassVar[str] = ""

    def __init__(self, sender: ParaId | None = None) -> None:
        super().__init__(sender)
        self.sender = sender

    def details(self) -> dict[str, int]:
        """Return the fields by name."""
        return {}

    def __str__(self) -> str:
        fields = ({"sender": self.sender} if self.sender is not None else {}) | self.details()
        return f"{self.kind}({', '.join(f'{name}={value}' for name, value in fields.items())})"


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
    """A link does not hash to the expected head; ``depth`` counts from the newest link, which is 0."""

    kind = "Pov/ChainBroken"

    def __init__(self, sender: ParaId | None = None, *, depth: int) -> None:
        super().__init__(sender)
        self.depth = depth

    def details(self) -> dict[str, int]:
        """Return the fields by name."""
        return {"depth": self.depth}


class PovBlocksNotDecreasing(PovError):
    """A link names a previous block that is not before its own."""

    kind = "Pov/BlocksNotDecreasing"


class PovChainIncomplete(PovError):
    """The links end before they reach the old watermark, which would hide messages."""

    kind = "Pov/ChainIncomplete"


class PovChainOverrun(PovError):
    """There are links beyond the old watermark, or links although nothing is unread."""

    kind = "Pov/ChainOverrun"


class PovBodyMissing(PovError):
    """A message at or below the new watermark has no body."""

    kind = "Pov/BodyMissing"


class PovBodyHashMismatch(PovError):
    """A body is not the one that the chain commits to."""

    kind = "Pov/BodyHashMismatch"


class PovUnexpectedBody(PovError):
    """The proof has a body for a message that is not between the watermarks."""

    kind = "Pov/UnexpectedBody"
