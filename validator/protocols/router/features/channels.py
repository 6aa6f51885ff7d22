# SPDX-License-Identifier: Apache-2.0
"""Later requests for channels, and later rules for requests, limits and deposits. Source: router_profiles 3.3 to 3.6, 3.11, 3.12."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from validator.core.errors import Violation
from validator.core.events import EventLog
from validator.core.outcomes import ChannelEventKind, MessageRef
from validator.core.rules import Effects, Environment
from validator.core.types import Balance, ChannelId, ParaId, SessionIndex
from validator.protocols.kit import reserve, unreserve
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.features.errors import (
    CancelHrmpOpenChannelUnauthorized,
    ChannelCreationNotAuthorized,
    OpenHrmpChannelAlreadyConfirmed,
    OpenHrmpChannelDoesntExist,
)
from validator.protocols.router.host import RouterHost
from validator.protocols.router.records import (
    CancelOpenRequest,
    EstablishChannelWithSystem,
    EstablishSystemChannel,
    ForceClean,
    ForceOpenChannel,
    ForceProcessClose,
    ForceProcessOpen,
    PokeChannelDeposits,
)
from validator.protocols.router.requests import (
    check_balance,
    hrmp_accept_open_channel,
    hrmp_init_open_channel,
)
from validator.protocols.router.requests import deposits as configured_deposits
from validator.protocols.router.session import (
    forget_acceptance,
    forget_counts,
    forget_request,
    process_hrmp_close_channel_requests,
    process_hrmp_open_channel_requests,
    remove_hrmp_channels,
    strand_deposit,
)
from validator.protocols.router.state import HrmpOpenChannelRequest, RouterState

if TYPE_CHECKING:
    from validator.protocols.router.profile import Profile

FIRST_PUBLIC_PARA = 2000
"""A para with a lower id is a system para."""


# --- what router.txt's own rules read -----------------------------------------------------------------------------------------


def never_expires(request: HrmpOpenChannelRequest, config: HostConfiguration) -> bool:  # noqa: ARG001 - as `session.age_request`
    """Return that a request has not expired, and keep its age (PR-02). Source: router_profiles 3.3."""
    return False


def no_expiry(state: RouterState) -> SessionIndex | None:  # noqa: ARG001 - as `requests.expiry`
    """Return that a request made now does not expire."""
    return None


def parachain_outbound_limit(state: RouterState, para: ParaId) -> int:  # noqa: ARG001 - as `requests.outbound_limit`
    """Return how many channels and requests any para may send over. Source: router_profiles 3.11."""
    return state.host_configuration.hrmp_max_parachain_outbound_channels


def parachain_inbound_limit(state: RouterState, para: ParaId) -> int:  # noqa: ARG001 - as `requests.inbound_limit`
    """Return how many channels and accepted requests may lead to any para. Source: router_profiles 3.11."""
    return state.host_configuration.hrmp_max_parachain_inbound_channels


def no_deposits_with_system(config: HostConfiguration, channel_id: ChannelId) -> tuple[Balance, Balance]:
    """Return what sender and recipient leave as deposits: nothing if either is a system para. Source: router_profiles 3.12."""
    return (0, 0) if any(map(is_system, channel_id)) else configured_deposits(config, channel_id)


def is_system(para: ParaId) -> bool:
    """Return whether a para is a system para."""
    return para < FIRST_PUBLIC_PARA


def clean_requests(state: RouterState, rules: Profile, events: EventLog, outgoing: list[ParaId]) -> None:
    """Remove every request with an outgoing party, and return the deposit of the party that stays.

    The outgoing party's deposit stays reserved (PR-04). Source: router_profiles 3.5.
    """
    gone = dict.fromkeys(outgoing)
    kept = []
    for channel_id in state.hrmp_open_channel_requests_list:
        sender, recipient = channel_id
        if sender not in gone and recipient not in gone:
            kept.append(channel_id)
            continue
        request = state.hrmp_open_channel_requests[channel_id]
        if request.confirmed:
            forget_acceptance(state, recipient)
        returned = [
            _return_or_strand(state, para, deposit, stays=para not in gone)
            for para, deposit in ((sender, request.sender_deposit), (recipient, request.recipient_deposit))
        ]
        rules.forget_cleaned_request(state, channel_id)
        events.add(
            ChannelEventKind.REQUEST_DROPPED,
            channel_id,
            sender_deposit=-returned[0],
            recipient_deposit=-returned[1],
            reason="offboarded",
        )
    state.hrmp_open_channel_requests_list[:] = kept


def _return_or_strand(state: RouterState, para: ParaId, deposit: Balance, *, stays: bool) -> Balance:
    if not deposit:
        return 0
    if stays:
        return unreserve(state, para, deposit)
    strand_deposit(state, para, deposit)
    return 0


# --- later requests -----------------------------------------------------------------------------------------------------------


def cancel_open_request(state: RouterState, env: Environment, request: CancelOpenRequest) -> Effects:
    """Remove an unconfirmed request at once and return the sender's deposit; a party need not be valid any more.

    Raises `CancelHrmpOpenChannelUnauthorized`, `OpenHrmpChannelDoesntExist`, `OpenHrmpChannelAlreadyConfirmed`.
    Source: router_profiles 3.4.
    """
    sender, recipient = channel_id = request.channel
    if request.origin not in channel_id:
        raise CancelHrmpOpenChannelUnauthorized(sender=sender, recipient=recipient)
    if channel_id not in state.hrmp_open_channel_requests:
        raise OpenHrmpChannelDoesntExist(sender=sender, recipient=recipient)
    _cancel(state, env, channel_id)
    return Effects()


def _cancel(state: RouterState, env: Environment, channel_id: ChannelId) -> None:
    """Cancel an existing request. Raises `OpenHrmpChannelAlreadyConfirmed`."""
    sender, recipient = channel_id
    request = state.hrmp_open_channel_requests[channel_id]
    if request.confirmed:
        raise OpenHrmpChannelAlreadyConfirmed(sender=sender, recipient=recipient)
    forget_request(state, channel_id)
    state.hrmp_open_channel_requests_list.remove(channel_id)
    returned = unreserve(state, sender, request.sender_deposit)
    env.events.add(ChannelEventKind.REQUEST_DROPPED, channel_id, sender_deposit=-returned, reason="cancelled")


def force_open_channel_plain(state: RouterState, env: Environment, request: ForceOpenChannel) -> Effects:
    """Request a channel for its sender and accept it for its recipient; raises the violations of both.

    Source: router_profiles 3.6.
    """
    return _at_once(state, env, lambda host: _open(state, env, host, *request))


def force_open_channel(state: RouterState, env: Environment, request: ForceOpenChannel) -> Effects:
    """Open as `force_open_channel_plain` does, but first cancel an unconfirmed request for the channel.

    Raises `OpenHrmpChannelAlreadyConfirmed` before any other check. Source: router_profiles 3.6.
    """
    channel_id = request.sender, request.recipient

    def open_instead(host: RouterHost) -> list[MessageRef]:
        if channel_id in state.hrmp_open_channel_requests:
            host.note_request(channel_id)
            _cancel(state, env, channel_id)
        return _open(state, env, host, *request)

    return _at_once(state, env, open_instead)


def establish_system_channel(state: RouterState, env: Environment, request: EstablishSystemChannel) -> Effects:
    """Open a channel between two system paras, of the greatest size. Source: router_profiles 3.12.

    Raises `ChannelCreationNotAuthorized`, then the violations of request and acceptance.
    """
    sender, recipient = request
    if not (is_system(sender) and is_system(recipient)):
        raise ChannelCreationNotAuthorized(sender=sender, recipient=recipient)
    config = state.host_configuration
    places, size = config.hrmp_channel_max_places, config.hrmp_channel_max_message_size
    return _at_once(state, env, lambda host: _open(state, env, host, sender, recipient, places, size))


def establish_channel_with_system(state: RouterState, env: Environment, request: EstablishChannelWithSystem) -> Effects:
    """Open channels with a system para in both directions, or neither. Source: router_profiles 3.12.

    Raises `ChannelCreationNotAuthorized`, then the violations of both requests and acceptances.
    """
    origin, target = request
    if not is_system(target):
        raise ChannelCreationNotAuthorized(sender=origin, recipient=target)
    config = state.host_configuration
    places, size = config.system_channel_max_places, config.system_channel_max_message_size
    return _at_once(
        state,
        env,
        lambda host: [
            *_open(state, env, host, origin, target, places, size),
            *_open(state, env, host, target, origin, places, size),
        ],
    )


def _open(
    state: RouterState,
    env: Environment,
    host: RouterHost,
    sender: ParaId,
    recipient: ParaId,
    max_places: int,
    max_message_size: int,
) -> list[MessageRef]:
    """Request a channel and accept it; the host records what changes."""
    rules, events = env.profile, env.events
    host.note_init(sender, recipient)
    asked = hrmp_init_open_channel(state, rules, events, sender, recipient, max_places, max_message_size)
    host.note_accept(recipient, sender)
    return [*asked, *hrmp_accept_open_channel(state, rules, events, recipient, sender)]


def _at_once(state: RouterState, env: Environment, open_channels: Callable[[RouterHost], list[MessageRef]]) -> Effects:
    """Apply a request made of several parts: if one part is refused, nothing stays of the others."""
    host = RouterHost(state, env)
    host.begin()
    touched = state.touched
    paras = dict(touched.paras)
    try:
        messages = open_channels(host)
    except Violation:
        host.roll_back()
        touched.paras.clear()
        touched.paras.update(paras)
        raise
    return Effects(messages=tuple(messages), effective_session=state.session_index + 1)


def poke_channel_deposits(state: RouterState, env: Environment, request: PokeChannelDeposits) -> Effects:
    """Bring a channel's deposits to those of the configuration of now: nothing if either party is a system para.

    Raises `OpenHrmpChannelDoesntExist`, `InsufficientBalance` of the sender, then of the recipient. Source: router_profiles 3.12.
    """
    channel_id = (request.sender, request.recipient)
    channel = state.hrmp_channels.get(channel_id)
    if channel is None:
        raise OpenHrmpChannelDoesntExist(sender=request.sender, recipient=request.recipient)
    wanted = no_deposits_with_system(state.host_configuration, channel_id)
    changes = tuple(
        new - old for new, old in zip(wanted, (channel.sender_deposit, channel.recipient_deposit), strict=True)
    )
    for para, change in zip(channel_id, changes, strict=True):
        if change > 0:
            check_balance(state, para, change)
    moved = [_move_deposit(state, para, change) for para, change in zip(channel_id, changes, strict=True)]
    channel.sender_deposit, channel.recipient_deposit = wanted
    state.touched.pages[request.recipient] = None
    if any(changes):
        env.events.add(
            ChannelEventKind.DEPOSITS_CHANGED, channel_id, sender_deposit=moved[0], recipient_deposit=moved[1]
        )
    return Effects()


def _move_deposit(state: RouterState, para: ParaId, change: Balance) -> Balance:
    """Reserve a difference, or return it if it is negative; return what was moved with its sign."""
    if change > 0:
        reserve(state, para, change)
        return change
    return -unreserve(state, para, -change) if change else 0


# --- requests of governance ---------------------------------------------------------------------------------------------------


def force_process_open(state: RouterState, env: Environment, request: ForceProcessOpen) -> Effects:  # noqa: ARG001 - it has no fields
    """Open what is confirmed, as a session change does; unconfirmed requests stay. Source: chain_2026 3.16."""
    process_hrmp_open_channel_requests(state, env.profile, env.events, lambda request: False)  # noqa: ARG005
    return Effects()


def force_process_close(state: RouterState, env: Environment, request: ForceProcessClose) -> Effects:  # noqa: ARG001 - it has no fields
    """Close what is asked to be closed, as a session change does. Source: chain_2026 3.16."""
    process_hrmp_close_channel_requests(state, env.events)
    return Effects()


def force_clean(state: RouterState, env: Environment, request: ForceClean) -> Effects:
    """Close every channel to and from a para; its queues, watermark and requests stay (PR-17). Source: chain_2026 3.16."""
    remove_hrmp_channels(state, env.events, request.para_id, "cleaned")
    if env.profile.forced_clean_forgets_counts:
        forget_counts(state, request.para_id)
    return Effects()
