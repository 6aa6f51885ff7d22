# SPDX-License-Identifier: Apache-2.0
"""Bytes of message queue chains and of channel notifications, spelled out for the naive model.

Written apart from the core on purpose: a mistake in one of the two is seen by the other.
"""

from __future__ import annotations

from hashlib import blake2b

ZERO_HASH = "00" * 32


def blake2b_256(data: bytes) -> bytes:
    """Return the 32-byte blake2b digest."""
    return blake2b(data, digest_size=32).digest()


def compact(number: int) -> bytes:
    """Return the SCALE compact form of a number below 2**536 (router_rules.md 1.2)."""
    if number < 1 << 6:
        return bytes([number * 4])
    if number < 1 << 14:
        return (number * 4 + 1).to_bytes(2, "little")
    if number < 1 << 30:
        return (number * 4 + 2).to_bytes(4, "little")
    size = (number.bit_length() + 7) // 8
    return bytes([(size - 4) * 4 + 3]) + number.to_bytes(size, "little")


def next_head(previous: str, block: int, payload: str) -> str:
    """Return the head of a message queue chain after one more message; hashes and payload are hex (1.2)."""
    message = bytes.fromhex(payload)
    link = bytes.fromhex(previous) + block.to_bytes(4, "little") + blake2b_256(compact(len(message)) + message)
    return blake2b_256(link).hex()


def open_notification(sender: int, max_message_size: int, max_places: int) -> str:
    """Return HrmpNewChannelOpenRequest, queued for the recipient of a new request (1.6)."""
    return (b"\x07" + compact(sender) + compact(max_message_size) + compact(max_places)).hex()


def accepted_notification(recipient: int) -> str:
    """Return HrmpChannelAccepted, queued for the sender of an accepted request (1.6)."""
    return (b"\x08" + compact(recipient)).hex()


def closing_notification(initiator: int, sender: int, recipient: int) -> str:
    """Return HrmpChannelClosing, queued for the party that did not ask for the closure (1.6)."""
    return (b"\x09" + compact(initiator) + compact(sender) + compact(recipient)).hex()
