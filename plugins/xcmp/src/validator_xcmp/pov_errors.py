# SPDX-License-Identifier: Apache-2.0
"""Why a proof of processing is refused. Names and fields are those of xcmp_rules 2.3."""

from __future__ import annotations

from typing import ClassVar

from validator.plugin.protocol_api import ParaId


class PovError(Exception):
    """A proof of processing that does not prove; ``sender`` is the para whose part of it fails, where it is one's.

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
        told = {"sender": self.sender} if self.sender is not None else {}
        return f"{self.kind}({', '.join(f'{name}={value}' for name, value in (told | self.details()).items())})"


class PovAheadRelayParent(PovError):
    """The new watermark's block lies ahead of the relay parent."""

    kind = "Pov/AheadRelayParent"


class PovRegressed(PovError):
    """The new watermark is lower than the old one."""

    kind = "Pov/Regressed"


class PovMissingSender(PovError):
    """A sender with a column to the recipient is left out: a channel would be hidden."""

    kind = "Pov/MissingSender"


class PovCstProofInvalid(PovError):
    """The column is not in the sender's row, or there is no such row."""

    kind = "Pov/CstProofInvalid"


class PovMqProofInvalid(PovError):
    """The head of the message queue is not under the column's message root, or missing where something is unread."""

    kind = "Pov/MqProofInvalid"


class PovChainBroken(PovError):
    """A link does not hash to the head before it; ``depth`` counts from the newest, which is 0."""

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
    """The links end above the old watermark: messages would be hidden."""

    kind = "Pov/ChainIncomplete"


class PovChainOverrun(PovError):
    """There are links beyond the old watermark, or links where nothing is unread."""

    kind = "Pov/ChainOverrun"


class PovBodyMissing(PovError):
    """There is no body for a message at or below the new watermark."""

    kind = "Pov/BodyMissing"


class PovBodyHashMismatch(PovError):
    """A body is not the one that the chain commits to."""

    kind = "Pov/BodyHashMismatch"


class PovUnexpectedBody(PovError):
    """There is a body of a message that is not between the watermarks."""

    kind = "Pov/UnexpectedBody"
