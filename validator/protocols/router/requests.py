# SPDX-License-Identifier: Apache-2.0
"""The entry points for channel management. Each makes all its checks before any effect."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from validator.core.errors import Report, Violation, refuse
from validator.core.events import EventLog
from validator.core.handlers.upward import FixedWeightDispatcher, UpwardDispatcher
from validator.core.hashing import compact
from validator.core.outcomes import ChannelEventKind, MessageRef
from validator.core.rules import Effects, Environment
from validator.core.types import Balance, BlockNumber, ChannelId, DownwardMessage, ParaId, ParaKind, SessionIndex
from validator.protocols.kit import increase, missing_funds, reserve
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.enactment import queue_downward_message
from validator.protocols.router.errors import (
    AcceptHrmpChannelAlreadyConfirmed,
    AcceptHrmpChannelDoesntExist,
    AcceptHrmpChannelLimitExceeded,
    CloseHrmpChannelAlreadyUnderway,
    CloseHrmpChannelDoesntExist,
    CloseHrmpChannelUnauthorized,
    InsufficientBalance,
    OpenHrmpChannelAlreadyExists,
    OpenHrmpChannelAlreadyRequested,
    OpenHrmpChannelCapacityExceedsLimit,
    OpenHrmpChannelInvalidRecipient,
    OpenHrmpChannelLimitExceeded,
    OpenHrmpChannelMessageSizeExceedsLimit,
    OpenHrmpChannelToSelf,
    OpenHrmpChannelZeroCapacity,
    OpenHrmpChannelZeroMessageSize,
)
from validator.protocols.router.records import AcceptOpenChannel, CloseChannel, InitOpenChannel, ScheduleParaCleanup
from validator.protocols.router.state import HrmpOpenChannelRequest, RouterState

if TYPE_CHECKING:
    from validator.protocols.router.profile import Profile


FIXED_WEIGHTS: Final = FixedWeightDispatcher()
"""The dispatcher of a chain without handlers."""


def dispatcher_of(env: Environment) -> UpwardDispatcher:
    """Return what a chain's upward messages are handed to."""
    dispatcher: UpwardDispatcher = env.settings.upward_messages or FIXED_WEIGHTS
    return dispatcher


def hrmp_init_open_channel(
    state: RouterState,
    rules: Profile,
    events: EventLog,
    origin: ParaId,
    recipient: ParaId,
    max_places: int,
    max_message_size: int,
) -> tuple[MessageRef, ...]:
    """Request a channel from ``origin`` to ``recipient`` and reserve the sender's deposit.

    ``max_places`` is in messages, ``max_message_size`` in bytes. Raises `OpenHrmpChannelToSelf`, `OpenHrmpChannelZeroCapacity`,
    `OpenHrmpChannelCapacityExceedsLimit`, `OpenHrmpChannelZeroMessageSize`, `OpenHrmpChannelMessageSizeExceedsLimit`,
    `OpenHrmpChannelInvalidRecipient`, `OpenHrmpChannelAlreadyExists`, `OpenHrmpChannelAlreadyRequested`, `OpenHrmpChannelLimitExceeded`,
    `InsufficientBalance` (I-14: the order of router.txt). Source: router.txt ``hrmp_init_open_channel``, router_rules 1.6.
    """
    deposit = check_init_open_channel(state, rules, InitOpenChannel(origin, recipient, max_places, max_message_size))
    config = state.host_configuration
    channel_id = (origin, recipient)

    reserve(state, origin, deposit)
    increase(state.hrmp_open_channel_request_count, origin)
    state.hrmp_open_channel_requests_list.append(channel_id)
    state.hrmp_open_channel_requests[channel_id] = HrmpOpenChannelRequest(
        confirmed=False,
        age=0,
        sender_deposit=deposit,
        limit_used_places=max_places,
        limit_used_bytes=config.hrmp_channel_max_size,
        limit_message_size=max_message_size,
    )
    events.add(ChannelEventKind.REQUESTED, channel_id, sender_deposit=deposit)
    notification = b"\x07" + compact(origin) + compact(max_message_size) + compact(max_places)
    return _notify(state, rules, events.block, recipient, notification)


def check_init_open_channel(
    state: RouterState, rules: Profile, request: InitOpenChannel, report: Report = refuse
) -> Balance:
    """Return the sender's deposit; reports the violations of `hrmp_init_open_channel`."""
    origin, channel_id = request.origin, (request.origin, request.recipient)
    for check in rules.init_checks:
        check(state, rules, request, report)
    outbound_channels = len(state.hrmp_egress_channels_index.get(origin, ()))
    open_requests = state.hrmp_open_channel_request_count.get(origin, 0)
    limit = rules.outbound_limit(state, origin)
    if outbound_channels + open_requests >= limit:
        report(
            OpenHrmpChannelLimitExceeded(outbound_channels=outbound_channels, open_requests=open_requests, limit=limit)
        )
    deposit, _ = rules.deposits(state.host_configuration, channel_id)
    check_balance(state, origin, deposit, report)
    return deposit


def check_other_end(state: RouterState, rules: Profile, request: InitOpenChannel, report: Report) -> None:  # noqa: ARG001
    """Report `OpenHrmpChannelToSelf`."""
    if request.origin == request.recipient:
        report(OpenHrmpChannelToSelf())


def check_wanted_size(state: RouterState, rules: Profile, request: InitOpenChannel, report: Report) -> None:  # noqa: ARG001
    """Report the violations of places, then those of the message size."""
    _, _, max_places, max_message_size = request
    config = state.host_configuration
    if max_places == 0:
        report(OpenHrmpChannelZeroCapacity())
    if max_places > config.hrmp_channel_max_places:
        report(OpenHrmpChannelCapacityExceedsLimit(max_places=max_places, limit=config.hrmp_channel_max_places))
    if max_message_size == 0:
        report(OpenHrmpChannelZeroMessageSize())
    if max_message_size > config.hrmp_channel_max_message_size:
        report(
            OpenHrmpChannelMessageSizeExceedsLimit(
                max_message_size=max_message_size, limit=config.hrmp_channel_max_message_size
            )
        )


def check_recipient(state: RouterState, rules: Profile, request: InitOpenChannel, report: Report) -> None:
    """Report `OpenHrmpChannelInvalidRecipient`."""
    if not rules.is_valid_para(state, request.recipient):
        report(OpenHrmpChannelInvalidRecipient(recipient=request.recipient))


def check_not_open(state: RouterState, rules: Profile, request: InitOpenChannel, report: Report) -> None:  # noqa: ARG001
    """Report `OpenHrmpChannelAlreadyExists`."""
    if (request.origin, request.recipient) in state.hrmp_channels:
        report(OpenHrmpChannelAlreadyExists(sender=request.origin, recipient=request.recipient))


def check_not_requested(state: RouterState, rules: Profile, request: InitOpenChannel, report: Report) -> None:  # noqa: ARG001
    """Report `OpenHrmpChannelAlreadyRequested`."""
    if (request.origin, request.recipient) in state.hrmp_open_channel_requests:
        report(OpenHrmpChannelAlreadyRequested(sender=request.origin, recipient=request.recipient))


INIT_CHECKS: Final = (check_other_end, check_wanted_size, check_recipient, check_not_open, check_not_requested)
"""What is checked of a request to open before limits and funds, in the order of router.txt (I-14)."""


def hrmp_accept_open_channel(
    state: RouterState, rules: Profile, events: EventLog, origin: ParaId, sender: ParaId
) -> tuple[MessageRef, ...]:
    """Confirm a request from ``sender`` to ``origin`` and reserve the recipient's deposit.

    Raises `AcceptHrmpChannelDoesntExist`, `AcceptHrmpChannelAlreadyConfirmed`, `AcceptHrmpChannelLimitExceeded`, `InsufficientBalance`.
    Source: router.txt ``hrmp_accept_open_channel``, router_rules 1.6.
    """
    channel_id = (sender, origin)
    deposit = check_accept_open_channel(state, rules, AcceptOpenChannel(origin, sender))
    request = state.hrmp_open_channel_requests[channel_id]

    reserve(state, origin, deposit)
    request.confirmed = True
    request.recipient_deposit = deposit
    increase(state.hrmp_accepted_channel_request_count, origin)
    events.add(ChannelEventKind.CONFIRMED, channel_id, recipient_deposit=deposit)
    return _notify(state, rules, events.block, sender, b"\x08" + compact(origin))


def check_accept_open_channel(
    state: RouterState, rules: Profile, accepted: AcceptOpenChannel, report: Report = refuse
) -> Balance:
    """Return the recipient's deposit; reports the violations of `hrmp_accept_open_channel`."""
    origin, sender = accepted
    channel_id = (sender, origin)
    request = state.hrmp_open_channel_requests.get(channel_id)
    if request is None:
        report(AcceptHrmpChannelDoesntExist(sender=sender, recipient=origin))
    elif request.confirmed:
        report(AcceptHrmpChannelAlreadyConfirmed(sender=sender, recipient=origin))

    inbound_channels = len(state.hrmp_ingress_channels_index.get(origin, ()))
    accepted_requests = state.hrmp_accepted_channel_request_count.get(origin, 0)
    limit = rules.inbound_limit(state, origin)
    if inbound_channels + accepted_requests >= limit:
        report(
            AcceptHrmpChannelLimitExceeded(
                inbound_channels=inbound_channels, accepted_requests=accepted_requests, limit=limit
            )
        )
    _, deposit = rules.deposits(state.host_configuration, channel_id)
    check_balance(state, origin, deposit, report)
    return deposit


def hrmp_close_channel(
    state: RouterState, rules: Profile, events: EventLog, origin: ParaId, channel_id: ChannelId
) -> tuple[MessageRef, ...]:
    """Request that a channel be closed at the next session change. Messages still flow until then.

    Raises `CloseHrmpChannelUnauthorized`, `CloseHrmpChannelDoesntExist`, `CloseHrmpChannelAlreadyUnderway`.
    Source: router.txt ``hrmp_close_channel``.
    """
    check_close_channel(state, rules, CloseChannel(origin, channel_id))
    sender, recipient = channel_id

    state.hrmp_close_channel_requests[channel_id] = None
    state.hrmp_close_channel_requests_list.append(channel_id)
    events.add(ChannelEventKind.CLOSE_REQUESTED, channel_id)
    other = recipient if origin == sender else sender
    notification = b"\x09" + compact(origin) + compact(sender) + compact(recipient)
    return _notify(state, rules, events.block, other, notification)


def check_close_channel(
    state: RouterState,
    rules: Profile,  # noqa: ARG001 - the signature of all checks
    request: CloseChannel,
    report: Report = refuse,
) -> None:
    """Report the violations of `hrmp_close_channel`."""
    origin, channel_id = request
    sender, recipient = channel_id
    if origin not in channel_id:
        report(CloseHrmpChannelUnauthorized(sender=sender, recipient=recipient))
    if channel_id not in state.hrmp_channels:
        report(CloseHrmpChannelDoesntExist(sender=sender, recipient=recipient))
    elif channel_id in state.hrmp_close_channel_requests:
        report(CloseHrmpChannelAlreadyUnderway(sender=sender, recipient=recipient))


def schedule_para_cleanup(state: RouterState, para: ParaId) -> None:
    """Schedule a para for offboarding at the next session change. Source: router.txt ``schedule_para_cleanup``."""
    if para not in state.outgoing_paras:
        insort(state.outgoing_paras, para)


def outbound_limit(state: RouterState, para: ParaId) -> int:
    """Return how many channels and requests a para may send over. Source: router.txt ``hrmp_init_open_channel`` 7."""
    if state.paras.get(para) is ParaKind.PARATHREAD:
        return state.host_configuration.hrmp_max_parathread_outbound_channels
    return state.host_configuration.hrmp_max_parachain_outbound_channels


def inbound_limit(state: RouterState, para: ParaId) -> int:
    """Return how many channels and accepted requests may lead to a para. Source: router.txt ``hrmp_accept_open_channel`` 3."""
    if state.paras.get(para) is ParaKind.PARATHREAD:
        return state.host_configuration.hrmp_max_parathread_inbound_channels
    return state.host_configuration.hrmp_max_parachain_inbound_channels


def deposits(config: HostConfiguration, channel_id: ChannelId) -> tuple[Balance, Balance]:  # noqa: ARG001 - later rules look at it
    """Return what sender and recipient of a channel leave as deposits."""
    return config.hrmp_sender_deposit, config.hrmp_recipient_deposit


def expiry(state: RouterState) -> SessionIndex | None:
    """Return the session in which a request made now expires, unless it is confirmed."""
    return state.session_index + max(1, state.host_configuration.hrmp_open_request_ttl)


def may_always_offboard(state: RouterState, para: ParaId) -> None:
    """Do nothing: by router.txt a para may be offboarded whatever it has sent."""


def check_balance(state: RouterState, para: ParaId, deposit: Balance, report: Report = refuse) -> None:
    """Report `InsufficientBalance` if a para cannot pay a deposit and keep the least balance of an account (chain_2026 3.17)."""
    free = missing_funds(state, para, deposit + state.host_configuration.least_balance) if deposit else None
    if free is not None:
        report(InsufficientBalance(free=free, deposit=deposit))


def plain_notification(config: HostConfiguration, body: bytes) -> bytes:  # noqa: ARG001 - later rules look at it
    """Return the notification with this body: XCM v0 needs nothing around it (I-11)."""
    return body


def _notify(state: RouterState, rules: Profile, now: BlockNumber, para: ParaId, body: bytes) -> tuple[MessageRef, ...]:
    """Queue a notification if the chain sends them. One that is refused is dropped silently (router_rules 1.6, I-11)."""
    wrap = rules.notification or (plain_notification if state.hrmp_notifications else None)
    if wrap is None:
        return ()
    message = DownwardMessage(para, wrap(state.host_configuration, body))
    try:
        return (queue_downward_message(state, rules, message, now),)
    except Violation:
        return ()


# --- the four entry points of router.txt as requests --------------------------------------------------------------------------


def init_open_channel(state: RouterState, env: Environment, request: InitOpenChannel) -> Effects:
    """Apply ``hrmp_init_open_channel``; raises its violations."""
    messages = hrmp_init_open_channel(state, env.profile, env.events, *request)
    return Effects(messages=messages, expires_session=env.profile.expiry(state))


def accept_open_channel(state: RouterState, env: Environment, request: AcceptOpenChannel) -> Effects:
    """Apply ``hrmp_accept_open_channel``; raises its violations."""
    messages = hrmp_accept_open_channel(state, env.profile, env.events, *request)
    return Effects(messages=messages, effective_session=state.session_index + 1)


def close_channel(state: RouterState, env: Environment, request: CloseChannel) -> Effects:
    """Apply ``hrmp_close_channel``; raises its violations."""
    messages = hrmp_close_channel(state, env.profile, env.events, *request)
    return Effects(messages=messages, effective_session=state.session_index + 1)


def schedule_cleanup(state: RouterState, env: Environment, request: ScheduleParaCleanup) -> Effects:
    """Apply ``schedule_para_cleanup``; raises the violations of ``rules.upward.may_offboard``."""
    env.profile.upward.may_offboard(state, request.para_id)
    schedule_para_cleanup(state, request.para_id)
    return Effects(effective_session=state.session_index + 1)


CHECKS: Final[Mapping[type[Any], Callable[[RouterState, Profile, Any, Report], object]]] = {
    InitOpenChannel: check_init_open_channel,
    AcceptOpenChannel: check_accept_open_channel,
    CloseChannel: check_close_channel,
}
"""The checks of requests that can report every violation."""
