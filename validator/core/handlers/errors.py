# SPDX-License-Identifier: Apache-2.0
"""How a handler's run can fail."""

from __future__ import annotations


class OutOfWeight(BaseException):
    """The message has used up its weight.

    Not an `Exception`: a handler that catches those does not catch this. A handler that catches everything gains nothing: whatever it does
    afterwards is undone with the rest.
    """


class HandlerInterrupted(BaseException):
    """Raised inside a handler by a watchdog of time or memory; ``args`` give the reason in words."""


class HandlerFault(Exception):
    """A handler failed in a way that must not become a verdict, since another machine might see something else: the query stops."""

    def __init__(self, name: str, kind: str, what: str) -> None:
        super().__init__(f"handler {name} ({kind}): {what}")


class ContextError(Exception):
    """A handler called its context wrongly, or asked for more than the limits allow; the message fails."""
