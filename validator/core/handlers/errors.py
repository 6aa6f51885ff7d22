# SPDX-License-Identifier: Apache-2.0
"""How a handler's run can fail."""

from __future__ import annotations

from collections.abc import Sequence

from validator.core.types import BlockNumber


class OutOfWeight(BaseException):
    """The message has used up its weight.

    Not an `Exception`: a handler that catches those does not catch this. A handler that catches everything gains nothing: whatever it does
    afterwards is undone with the rest.
    """


class HandlerInterrupted(BaseException):
    """Raised inside a handler by a watchdog of time or memory; ``args`` give the reason in words."""


class HandlerFault(Exception):
    """A handler failed in a way that must not become a verdict, since another machine might see something else: the lane stops.

    ``para`` sent the message, if it is known; ``block`` is set when the fault leaves the block's execution.
    """

    block: BlockNumber

    def __init__(self, name: str, kind: str, what: str, para: int | None = None) -> None:
        super().__init__(f"handler {name} ({kind}): {what}")
        self.para = para

    def place(self, block: BlockNumber, candidates: Sequence[str]) -> None:
        """Add where the message is to the text: the block, and the records of the para's candidates in it."""
        self.block = block
        self.args = (f"{self.args[0]}{place_of(block, self.para, candidates)}",)


def place_of(block: int, para: int | None, candidates: Sequence[str] | None) -> str:
    """Return where a message is, as text to append: the block, and the records of its para's candidates in it, None if they are unknown."""
    if para is None:
        return f"; block {block}"
    if candidates is None:
        return f"; block {block}, para {para}"
    found = f"whose candidate in it is {', '.join(candidates)}" if candidates else "which has no candidate in it"
    return f"; block {block}, para {para}, {found}"


class ContextError(Exception):
    """A handler called its context wrongly, or asked for more than the limits allow; the message fails."""
