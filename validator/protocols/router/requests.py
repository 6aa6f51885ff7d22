# SPDX-License-Identifier: Apache-2.0
"""The entry points for channel management. Each makes all its checks before any effect."""

from __future__ import annotations

from bisect import insort

from validator.core.events import EventLog
from validator.core.hashing import compact
from validator.core.outcomes import ChannelEventKind, MessageRef
from validator.core.types import Balance, BlockNumber, ChannelId, DownwardMessage, ParaId, ParaKind
from validator.protocols.kit import increase, missing_funds, reserve
from validator.protocols.router.enactment import queue_downward_message
from validator.protocols.router.errors import (
    AcceptHrmpChannelAlreadyConfirmed,
    AcceptHrmpChannelDoesntExist,
    AcceptHrmpChannelLimitExceeded,
    CloseHrmpChannelAlreadyUnderway,
    CloseHrmpChannelDoesntExist,
    CloseHrmpChannelUnauthorized,
    ExceedsMaxMessageSize,
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
from validator.protocols.router.state import HrmpOpenChannelRequest, RouterState


def hrmp_init_open_channel(
    state: RouterState, events: EventLog, origin: ParaId, recipient: ParaId, max_places: int, max_message_size: int
) -> tuple[MessageRef, ...]:
    """Request a channel from ``origin`` to ``recipient`` and reserve the sender's deposit.

    ``max_places`` is in messages, ``max_message_size`` in bytes. Raises `OpenHrmpChannelToSelf`, `OpenHrmpChannelZeroCapacity`,
    `OpenHrmpChannelCapacityExceedsLimit`, `OpenHrmpChannelZeroMessageSize`, `OpenHrmpChannelMessageSizeExceedsLimit`,
    `OpenHrmpChannelInvalidRecipient`, `OpenHrmpChannelAlreadyExists`, `OpenHrmpChannelAlreadyRequested`, `OpenHrmpChannelLimitExceeded`,
    `InsufficientBalance` (I-14: the order of router.txt). Source: router.txt ``hrmp_init_open_channel``, router_rules 1.6.
    """
    config = state.host_configuration
    if origin == recipient:
        raise OpenHrmpChannelToSelf
    if max_places == 0:
        raise OpenHrmpChannelZeroCapacity
    if max_places > config.hrmp_channel_max_places:
        raise OpenHrmpChannelCapacityExceedsLimit(max_places=max_places, limit=config.hrmp_channel_max_places)
    if max_message_size == 0:
        raise OpenHrmpChannelZeroMessageSize
    if max_message_size > config.hrmp_channel_max_message_size:
        raise OpenHrmpChannelMessageSizeExceedsLimit(
            max_message_size=max_message_size, limit=config.hrmp_channel_max_message_size
        )
    if recipient not in state.paras:
        raise OpenHrmpChannelInvalidRecipient(recipient=recipient)
    channel_id = (origin, recipient)
    if channel_id in state.hrmp_channels:
        raise OpenHrmpChannelAlreadyExists(sender=origin, recipient=recipient)
    if channel_id in state.hrmp_open_channel_requests:
        raise OpenHrmpChannelAlreadyRequested(sender=origin, recipient=recipient)

    outbound_channels = len(state.hrmp_egress_channels_index.get(origin, ()))
    open_requests = state.hrmp_open_channel_request_count.get(origin, 0)
    limit = config.hrmp_max_parachain_outbound_channels
    if state.paras.get(origin) is ParaKind.PARATHREAD:
        limit = config.hrmp_max_parathread_outbound_channels
    if outbound_channels + open_requests >= limit:
        raise OpenHrmpChannelLimitExceeded(
            outbound_channels=outbound_channels, open_requests=open_requests, limit=limit
        )
    _check_balance(state, origin, config.hrmp_sender_deposit)

    reserve(state, origin, config.hrmp_sender_deposit)
    increase(state.hrmp_open_channel_request_count, origin)
    state.hrmp_open_channel_requests_list.append(channel_id)
    state.hrmp_open_channel_requests[channel_id] = HrmpOpenChannelRequest(
        confirmed=False,
        age=0,
        sender_deposit=config.hrmp_sender_deposit,
        limit_used_places=max_places,
        limit_used_bytes=config.hrmp_channel_max_size,
        limit_message_size=max_message_size,
    )
    events.add(ChannelEventKind.REQUESTED, channel_id, sender_deposit=config.hrmp_sender_deposit)
    return _notify(
        state, events.block, recipient, b"\x07" + compact(origin) + compact(max_message_size) + compact(max_places)
    )


def hrmp_accept_open_channel(
    state: RouterState, events: EventLog, origin: ParaId, sender: ParaId
) -> tuple[MessageRef, ...]:
    """Confirm a request from ``sender`` to ``origin`` and reserve the recipient's deposit.

    Raises `AcceptHrmpChannelDoesntExist`, `AcceptHrmpChannelAlreadyConfirmed`, `AcceptHrmpChannelLimitExceeded`, `InsufficientBalance`.
    Source: router.txt ``hrmp_accept_open_channel``, router_rules 1.6.
    """
    config = state.host_configuration
    channel_id = (sender, origin)
    request = state.hrmp_open_channel_requests.get(channel_id)
    if request is None:
        raise AcceptHrmpChannelDoesntExist(sender=sender, recipient=origin)
    if request.confirmed:
        raise AcceptHrmpChannelAlreadyConfirmed(sender=sender, recipient=origin)

    inbound_channels = len(state.hrmp_ingress_channels_index.get(origin, ()))
    accepted_requests = state.hrmp_accepted_channel_request_count.get(origin, 0)
    limit = config.hrmp_max_parachain_inbound_channels
    if state.paras.get(origin) is ParaKind.PARATHREAD:
        limit = config.hrmp_max_parathread_inbound_channels
    if inbound_channels + accepted_requests >= limit:
        raise AcceptHrmpChannelLimitExceeded(
            inbound_channels=inbound_channels, accepted_requests=accepted_requests, limit=limit
        )
    _check_balance(state, origin, config.hrmp_recipient_deposit)

    reserve(state, origin, config.hrmp_recipient_deposit)
    request.confirmed = True
    increase(state.hrmp_accepted_channel_request_count, origin)
    events.add(ChannelEventKind.CONFIRMED, channel_id, recipient_deposit=config.hrmp_recipient_deposit)
    return _notify(state, events.block, sender, b"\x08" + compact(origin))


def hrmp_close_channel(
    state: RouterState, events: EventLog, origin: ParaId, channel_id: ChannelId
) -> tuple[MessageRef, ...]:
    """Request that a channel be closed at the next session change. Messages still flow until then.

    Raises `CloseHrmpChannelUnauthorized`, `CloseHrmpChannelDoesntExist`, `CloseHrmpChannelAlreadyUnderway`.
    Source: router.txt ``hrmp_close_channel``.
    """
    sender, recipient = channel_id
    if origin not in channel_id:
        raise CloseHrmpChannelUnauthorized(sender=sender, recipient=recipient)
    if channel_id not in state.hrmp_channels:
        raise CloseHrmpChannelDoesntExist(sender=sender, recipient=recipient)
    if channel_id in state.hrmp_close_channel_requests:
        raise CloseHrmpChannelAlreadyUnderway(sender=sender, recipient=recipient)

    state.hrmp_close_channel_requests[channel_id] = None
    state.hrmp_close_channel_requests_list.append(channel_id)
    events.add(ChannelEventKind.CLOSE_REQUESTED, channel_id)
    other = recipient if origin == sender else sender
    return _notify(state, events.block, other, b"\x09" + compact(origin) + compact(sender) + compact(recipient))


def schedule_para_cleanup(state: RouterState, para: ParaId) -> None:
    """Schedule a para for offboarding at the next session change. Source: router.txt ``schedule_para_cleanup``."""
    if para not in state.outgoing_paras:
        insort(state.outgoing_paras, para)


def _check_balance(state: RouterState, para: ParaId, deposit: Balance) -> None:
    free = missing_funds(state, para, deposit)
    if free is not None:
        raise InsufficientBalance(free=free, deposit=deposit)


def _notify(state: RouterState, now: BlockNumber, para: ParaId, notification: bytes) -> tuple[MessageRef, ...]:
    """Queue an XCM v0 notification if the chain sends them. One that is too long is dropped silently (router_rules 1.6, I-11)."""
    if not state.hrmp_notifications:
        return ()
    try:
        return (queue_downward_message(state, DownwardMessage(para, notification), now),)
    except ExceedsMaxMessageSize:
        return ()
