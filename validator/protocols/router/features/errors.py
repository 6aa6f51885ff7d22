# SPDX-License-Identifier: Apache-2.0
"""The reasons for which only later rules reject an input, one class each. Source: router_profiles 1 and 3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from validator.core.errors import Violation
from validator.core.types import ParaId, Weight
from validator.protocols.router.errors import ChannelRequestViolation


@dataclass(eq=False)
class RequestNotInForce(Violation):
    """The rules of this height know no such request."""

    kind: ClassVar[str] = "RequestNotInForce"
    clause: ClassVar[str] = "router_profiles 1"
    request: str


# --- signals ------------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class SignalsTooMany(Violation):
    """More entries follow the separator of a candidate's upward messages than there are kinds of signals."""

    kind: ClassVar[str] = "UmpSignals/TooMany"
    clause: ClassVar[str] = "chain_2026 3.14, 3.15"
    count: int
    limit: int


@dataclass(eq=False)
class SignalUndecodable(Violation):
    """An entry behind the separator does not begin with the encoding of a signal; ``idx`` counts from the separator."""

    kind: ClassVar[str] = "UmpSignals/Undecodable"
    clause: ClassVar[str] = "chain_2026 3.14, 3.15"
    idx: int


@dataclass(eq=False)
class SignalDuplicate(Violation):
    """Two signals of a candidate have the same kind; ``idx`` counts from the separator."""

    kind: ClassVar[str] = "UmpSignals/Duplicate"
    clause: ClassVar[str] = "chain_2026 3.15"
    idx: int


# --- cancel_open_request, force_open_channel, poke_channel_deposits ----------------------------------------------------------


@dataclass(eq=False)
class CancelHrmpOpenChannelUnauthorized(ChannelRequestViolation):
    """The origin is neither end of the requested channel."""

    kind: ClassVar[str] = "CancelHrmpOpenChannelUnauthorized"
    clause: ClassVar[str] = "router_profiles 3.4"
    sender: ParaId
    recipient: ParaId


@dataclass(eq=False)
class OpenHrmpChannelDoesntExist(ChannelRequestViolation):
    """There is no such request (to cancel), or no such channel (whose deposits to adjust)."""

    kind: ClassVar[str] = "OpenHrmpChannelDoesntExist"
    clause: ClassVar[str] = "router_profiles 3.4, 3.12"
    sender: ParaId
    recipient: ParaId


@dataclass(eq=False)
class OpenHrmpChannelAlreadyConfirmed(ChannelRequestViolation):
    """The request is confirmed already, so it can no longer be cancelled or replaced."""

    kind: ClassVar[str] = "OpenHrmpChannelAlreadyConfirmed"
    clause: ClassVar[str] = "router_profiles 3.4, 3.6"
    sender: ParaId
    recipient: ParaId


@dataclass(eq=False)
class ChannelCreationNotAuthorized(ChannelRequestViolation):
    """A party that must be a system para (id below 2000) is none."""

    kind: ClassVar[str] = "ChannelCreationNotAuthorized"
    clause: ClassVar[str] = "router_profiles 3.12"
    sender: ParaId
    recipient: ParaId


# --- downward messages -------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class DownwardQueueFull(Violation):
    """The para's downward queue is full; the kind is the same as for a message that is too long."""

    kind: ClassVar[str] = "ExceedsMaxMessageSize"
    clause: ClassVar[str] = "router_profiles 3.7"
    normative: ClassVar[bool] = False
    queue_length: int
    limit: int


@dataclass(eq=False)
class Unroutable(Violation):
    """A downward message is addressed to a para that is not valid."""

    kind: ClassVar[str] = "Unroutable"
    clause: ClassVar[str] = "router_profiles 3.13"
    normative: ClassVar[bool] = False
    para_id: ParaId


# --- message_queue -----------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class UpwardIsOffboarding(Violation):
    """A para that is scheduled for offboarding sends upward messages."""

    kind: ClassVar[str] = "UpwardMessages/IsOffboarding"
    clause: ClassVar[str] = "router_profiles 3.9"


@dataclass(eq=False)
class CannotOffboard(Violation):
    """A para with upward messages that are not processed yet cannot be offboarded; on the chain, nor one that is scheduled already."""

    kind: ClassVar[str] = "CannotOffboard"
    clause: ClassVar[str] = "router_profiles 3.9, chain_2026 3.18"
    normative: ClassVar[bool] = False
    para_id: ParaId
    unprocessed: int


@dataclass(eq=False)
class NoPage(Violation):
    """The para has no page of this number, or no longer."""

    kind: ClassVar[str] = "NoPage"
    clause: ClassVar[str] = "router_profiles 3.9"
    normative: ClassVar[bool] = False
    para_id: ParaId
    page: int


@dataclass(eq=False)
class NoMessage(Violation):
    """The page has no message at this index."""

    kind: ClassVar[str] = "NoMessage"
    clause: ClassVar[str] = "router_profiles 3.9"
    normative: ClassVar[bool] = False
    para_id: ParaId
    page: int
    index: int


@dataclass(eq=False)
class Queued(Violation):
    """The message still waits for its turn."""

    kind: ClassVar[str] = "Queued"
    clause: ClassVar[str] = "router_profiles 3.9"
    normative: ClassVar[bool] = False
    para_id: ParaId
    page: int
    index: int


@dataclass(eq=False)
class AlreadyProcessed(Violation):
    """The message has been processed."""

    kind: ClassVar[str] = "AlreadyProcessed"
    clause: ClassVar[str] = "router_profiles 3.9"
    normative: ClassVar[bool] = False
    para_id: ParaId
    page: int
    index: int


@dataclass(eq=False)
class InsufficientWeight(Violation):
    """The message weighs more than the request's limit."""

    kind: ClassVar[str] = "InsufficientWeight"
    clause: ClassVar[str] = "router_profiles 3.9"
    normative: ClassVar[bool] = False
    weight: Weight
    weight_limit: Weight
