# SPDX-License-Identifier: Apache-2.0
"""The reasons for which only later rules reject an input, one class each. Source: router_profiles 1 and 3."""

from __future__ import annotations

from validator.core.errors import Violation
from validator.core.types import ParaId, Weight
from validator.protocols.router.errors import ChannelRequestViolation


class RequestNotInForce(Violation, kind="RequestNotInForce", clause="router_profiles 1", rule="R-80"):
    """The rules of this block know no request of the kind ``request``."""

    request: str


# --- signals ------------------------------------------------------------------------------------------------------------------


class SignalsTooMany(Violation, kind="UmpSignals/TooMany", clause="chain_2026 3.14, 3.15", rule="R-99, R-100"):
    """``count`` entries follow the separator of the candidate's upward messages; at most ``limit`` may."""

    count: int
    limit: int


class SignalUndecodable(Violation, kind="UmpSignals/Undecodable", clause="chain_2026 3.14, 3.15", rule="R-99, R-100"):
    """The entry at ``idx``, counted from the separator, does not begin with a signal."""

    idx: int


class SignalDuplicate(Violation, kind="UmpSignals/Duplicate", clause="chain_2026 3.15", rule="R-100"):
    """The signal at ``idx``, counted from the separator, has the same kind as the one before it."""

    idx: int


# --- cancel_open_request, force_open_channel, poke_channel_deposits ----------------------------------------------------------


class CancelHrmpOpenChannelUnauthorized(
    ChannelRequestViolation, kind="CancelHrmpOpenChannelUnauthorized", clause="router_profiles 3.4", rule="R-84"
):
    """The origin is neither the sender nor the recipient of the request that it wants to cancel."""

    sender: ParaId
    recipient: ParaId


class OpenHrmpChannelDoesntExist(
    ChannelRequestViolation, kind="OpenHrmpChannelDoesntExist", clause="router_profiles 3.4, 3.12", rule="R-84, R-97"
):
    """There is no request to cancel, or no channel whose deposits could be brought up to date."""

    sender: ParaId
    recipient: ParaId


class OpenHrmpChannelAlreadyConfirmed(
    ChannelRequestViolation,
    kind="OpenHrmpChannelAlreadyConfirmed",
    clause="router_profiles 3.4, 3.6",
    rule="R-84, R-87",
):
    """The request is confirmed, so it can neither be cancelled nor replaced."""

    sender: ParaId
    recipient: ParaId


class ChannelCreationNotAuthorized(
    ChannelRequestViolation, kind="ChannelCreationNotAuthorized", clause="router_profiles 3.12", rule="R-95, R-96"
):
    """A party that must be a system para is none."""

    sender: ParaId
    recipient: ParaId


# --- downward messages -------------------------------------------------------------------------------------------------------


class DownwardQueueFull(
    Violation, kind="ExceedsMaxMessageSize", clause="router_profiles 3.7", normative=False, rule="R-88"
):
    """The para's downward queue is full: ``queue_length`` messages wait, more than ``limit``. The chain has one name for both."""

    queue_length: int
    limit: int


class Unroutable(Violation, kind="Unroutable", clause="router_profiles 3.13", normative=False, rule="R-98"):
    """The downward message is addressed to a para that is not valid."""

    para_id: ParaId


# --- message_queue -----------------------------------------------------------------------------------------------------------


class UpwardIsOffboarding(Violation, kind="UpwardMessages/IsOffboarding", clause="router_profiles 3.9", rule="R-91a"):
    """A candidate of a para that is scheduled for offboarding carries upward messages."""


class CannotOffboard(
    Violation,
    kind="CannotOffboard",
    clause="router_profiles 3.9, chain_2026 3.18",
    normative=False,
    rule="R-91a, R-103",
):
    """The para has ``unprocessed`` upward messages, so it cannot be scheduled for offboarding.

    Under R-103 it may also be scheduled already.
    """

    para_id: ParaId
    unprocessed: int


class NoPage(Violation, kind="NoPage", clause="router_profiles 3.9", normative=False, rule="R-91c"):
    """The para has no page of this number, or no longer."""

    para_id: ParaId
    page: int


class NoMessage(Violation, kind="NoMessage", clause="router_profiles 3.9", normative=False, rule="R-91c"):
    """The page has no message at this index."""

    para_id: ParaId
    page: int
    index: int


class Queued(Violation, kind="Queued", clause="router_profiles 3.9", normative=False, rule="R-91c"):
    """The message still waits for its para's turn."""

    para_id: ParaId
    page: int
    index: int


class AlreadyProcessed(Violation, kind="AlreadyProcessed", clause="router_profiles 3.9", normative=False, rule="R-91c"):
    """The message has been processed, but its page still holds another one."""

    para_id: ParaId
    page: int
    index: int


class InsufficientWeight(
    Violation, kind="InsufficientWeight", clause="router_profiles 3.9", normative=False, rule="R-91c"
):
    """The message weighs ``weight``, more than the request allows."""

    weight: Weight
    weight_limit: Weight
