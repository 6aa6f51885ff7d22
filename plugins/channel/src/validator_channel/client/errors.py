# SPDX-License-Identifier: Apache-2.0
"""What a client raises."""

from __future__ import annotations


class Refused(Exception):
    """The gateway has refused a record or a watch; ``error`` says why, ``code`` is set if the protocol itself refused the message."""

    def __init__(self, error: str, code: str | None = None) -> None:
        super().__init__(error)
        self.error = error
        self.code = code


class NotConnected(Exception):
    """The client has given up connecting; the text says what the last attempt met, ``code`` is its code, as in `HandshakeFailed`."""

    def __init__(self, text: str, code: str | None = None) -> None:
        super().__init__(text)
        self.code = code


class ClientClosed(Exception):
    """The client was closed before the gateway had acknowledged the record, which it may have or not."""
