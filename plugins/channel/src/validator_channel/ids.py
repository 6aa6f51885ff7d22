# SPDX-License-Identifier: Apache-2.0
"""Identifiers: 64-bit channels, 128-bit peers and messages, and how both roles share the indices. Source: channel_rules 1.2.1."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from validator_channel.limits import CHANNEL_MAX, INDEX_MAX, MESSAGE_ID_MAX, PEER_MAX, SESSION_MAX, TOPIC_MAX

MAIN: Final = 0
"""The topic that both sides have registered from the start."""
NO_MESSAGE: Final = INDEX_MAX
"""The reserved index: an ERROR with it answers no message."""

_HEX_64: Final = re.compile(r"[0-9a-f]{16}")
_HEX_128: Final = re.compile(r"[0-9a-f]{32}")


class Role(IntEnum):
    """Who connected; the value is the parity of the role's indices (R2)."""

    CONNECTOR = 0
    LISTENER = 1

    @property
    def other(self) -> Role:
        """Return the role of the peer."""
        return Role(1 - self)


INDEX_STEP: Final = 2
"""Distance between two indices of one role."""
LAST_INDEX: Final = {Role.CONNECTOR: INDEX_MAX - 1, Role.LISTENER: INDEX_MAX - 2}
"""Last usable index of each role; on `main` it is reserved for LEAVE_SESSION."""


@dataclass(frozen=True, slots=True)
class MessageId:
    """The four parts of a 128-bit message ID."""

    channel: int
    session: int
    topic: int
    index: int


def pack_message_id(channel: int, session: int, topic: int, index: int) -> int:
    """Return the message ID of these parts: channel 64 bits, session 10, topic 22, index 32.

    Raises ``ValueError`` for the first part that is out of range. Source: 1.2.1.
    """
    _check("channel", channel, CHANNEL_MAX)
    _check("session", session, SESSION_MAX)
    _check("topic", topic, TOPIC_MAX)
    _check("index", index, INDEX_MAX)
    return channel << 64 | session << 54 | topic << 32 | index


def unpack_message_id(message_id: int) -> MessageId:
    """Return the parts of a message ID. Raises ``ValueError`` if it has more than 128 bits. Source: 1.2.1."""
    _check("message ID", message_id, MESSAGE_ID_MAX)
    return MessageId(
        message_id >> 64, message_id >> 54 & SESSION_MAX, message_id >> 32 & TOPIC_MAX, message_id & INDEX_MAX
    )


def channel_of(peer: int) -> int:
    """Return the channel of a peer: the high 64 bits. Raises ``ValueError`` if the ID has more than 128 bits."""
    _check("peer", peer, PEER_MAX)
    return peer >> 64


def format_channel(channel: int) -> str:
    """Return a channel ID as 16 lower-case hex digits."""
    return f"{channel:016x}"


def format_id(value: int) -> str:
    """Return a peer ID or message ID as 32 lower-case hex digits."""
    return f"{value:032x}"


def parse_channel(text: str) -> int:
    """Return a channel ID from exactly 16 lower-case hex digits. Raises ``ValueError``."""
    return _parse(_HEX_64, text)


def parse_id(text: str) -> int:
    """Return a peer ID or message ID from exactly 32 lower-case hex digits. Raises ``ValueError``."""
    return _parse(_HEX_128, text)


def _parse(pattern: re.Pattern[str], text: str) -> int:
    if pattern.fullmatch(text) is None:
        raise ValueError(f"expected lower-case hex digits: {pattern.pattern}")
    return int(text, 16)


def _check(name: str, value: int, maximum: int) -> None:
    if not 0 <= value <= maximum:
        raise ValueError(f"{name}: expected 0 to {maximum}, found {value}")
