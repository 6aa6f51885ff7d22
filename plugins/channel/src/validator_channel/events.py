# SPDX-License-Identifier: Apache-2.0
"""What a session reports to the application, in order. Source: channel_rules 1.2.7 to 1.2.11, 5.1."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from validator_channel.errors import Category, ErrorCode


@dataclass(frozen=True, slots=True)
class SessionOnline:
    """Both sides have joined."""


@dataclass(slots=True, unsafe_hash=True)  # not frozen: that would double the time to make one
class MessageReceived:
    """An APPLICATION message, in order within its topic; report its consumption with `Session.consumed`."""

    topic: int
    index: int
    payload: bytes = field(repr=False)


@dataclass(slots=True, unsafe_hash=True)  # likewise
class MessageDelivered:
    """The peer has acknowledged an APPLICATION message."""

    topic: int
    index: int


@dataclass(frozen=True, slots=True)
class MessageRejected:
    """The peer has refused an APPLICATION message; ``code`` may be one that this version does not know."""

    topic: int
    index: int
    code: str


@dataclass(frozen=True, slots=True)
class TopicRequested:
    """The peer has registered a topic that this side has not."""

    topic: int
    name: str | None


@dataclass(frozen=True, slots=True)
class TopicOpen:
    """Messages may be sent on the topic from now on."""

    topic: int


@dataclass(frozen=True, slots=True)
class TopicClosed:
    """No message may be sent on the topic any more."""

    topic: int


@dataclass(frozen=True, slots=True)
class TopicRefused:
    """The peer has refused our TOPIC_REGISTER; ``code`` may be one that this version does not know."""

    topic: int
    code: str


@dataclass(frozen=True, slots=True)
class PeerLeft:
    """The peer has sent its last message."""

    reason: str | None


@dataclass(frozen=True, slots=True)
class PeerError:
    """The peer has reported an error that answers no outstanding message, or ends the session."""

    code: str
    is_fatal: bool
    detail: str | None


@dataclass(frozen=True, slots=True)
class SessionError:
    """This side has found an error that ends the session; ``topic`` and ``index`` name the message of an ACK_TIMEOUT."""

    category: Category
    code: ErrorCode
    topic: int | None = None
    index: int | None = None


@dataclass(frozen=True, slots=True)
class Undelivered:
    """An APPLICATION message that was neither acknowledged nor refused."""

    topic: int
    index: int
    payload: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """The last report: the transport is to be closed. ``is_clean`` says that both sides have left."""

    is_clean: bool
    undelivered: tuple[Undelivered, ...]


FREQUENT: Final = (MessageReceived, MessageDelivered)
"""The events that come with every message."""

Event = (
    SessionOnline
    | MessageReceived
    | MessageDelivered
    | MessageRejected
    | TopicRequested
    | TopicOpen
    | TopicClosed
    | TopicRefused
    | PeerLeft
    | PeerError
    | SessionError
    | SessionClosed
)
