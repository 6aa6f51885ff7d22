# SPDX-License-Identifier: Apache-2.0
"""How a handler's run ends other than well."""

from __future__ import annotations


class OutOfWeight(BaseException):
    """The message has used up its weight.

    Not an `Exception`: a handler that catches those does not catch this. One that catches everything gains nothing; what it does afterwards
    is undone with the rest.
    """


class HandlerInterrupted(BaseException):
    """Raised inside a handler from outside, by whoever watches the clock or the memory; ``args`` say why in words."""


class HandlerFault(Exception):
    """A handler did what must not become a verdict, since another machine might have seen something else: the query stops."""

    def __init__(self, name: str, kind: str, what: str) -> None:
        super().__init__(f"handler {name} ({kind}): {what}")


class ContextError(Exception):
    """A handler called its context wrongly, or asked for more than the limits allow; the message has failed."""
