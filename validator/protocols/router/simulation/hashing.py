# SPDX-License-Identifier: Apache-2.0
"""Message queue chains and channel notifications in hex, for the naive model."""

from __future__ import annotations

from validator.simulate import compact
from validator.simulate import next_head as next_link

ZERO_HASH = "00" * 32


def next_head(previous: str, block: int, payload: str) -> str:
    """Return the head of a message queue chain after one more message; hashes and payload are hex (1.2)."""
    return next_link(bytes.fromhex(previous), block, bytes.fromhex(payload)).hex()


def open_notification(sender: int, max_message_size: int, max_places: int) -> str:
    """Return HrmpNewChannelOpenRequest, queued for the recipient of a new request (1.6)."""
    return (b"\x07" + compact(sender) + compact(max_message_size) + compact(max_places)).hex()


def accepted_notification(recipient: int) -> str:
    """Return HrmpChannelAccepted, queued for the sender of an accepted request (1.6)."""
    return (b"\x08" + compact(recipient)).hex()


def closing_notification(initiator: int, sender: int, recipient: int) -> str:
    """Return HrmpChannelClosing, queued for the party that did not ask for the closure (1.6)."""
    return (b"\x09" + compact(initiator) + compact(sender) + compact(recipient)).hex()
