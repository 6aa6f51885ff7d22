# SPDX-License-Identifier: Apache-2.0
"""The entry points for channel management. Each makes all its checks before any effect; the first check that fails decides."""

from __future__ import annotations

from validator.plugin.protocol_api import Balance, ChannelEventKind, Effects, Environment, EventLog, ParaId
from validator.protocols.kit import OpenRequest, channel_name, missing_funds, reserve
from validator_early_hrmp.errors import (
    AcceptAlreadyConfirmed,
    AcceptNoSuchRequest,
    AcceptNoSuchRequestFrom,
    AcceptNotRecipient,
    CloseAlreadyUnderway,
    CloseChannelSealed,
    CloseNoSuchChannel,
    CloseUnauthorized,
    InsufficientBalance,
    OpenAlreadyExists,
    OpenAlreadyRequested,
    OpenInvalidRecipient,
    OpenInvalidSender,
    OpenLimitExceeded,
    OpenToSelf,
)
from validator_early_hrmp.records import AcceptOpenChannel, AcceptOpenChannelFrom, ChannelRequest, InitOpenChannel
from validator_early_hrmp.state import (
    CloseRequest,
    EarlyHrmpState,
    add_close_request,
)


def apply_request(state: EarlyHrmpState, env: Environment, request: ChannelRequest) -> Effects:
    """Apply a request of any kind; raises its violations."""
    events = env.events
    if isinstance(request, InitOpenChannel):
        init_open_channel(state, events, *request)
        return Effects(expires_session=state.session_index + max(1, state.configuration.hrmp_open_request_ttl))
    if isinstance(request, AcceptOpenChannel):
        accept_open_channel(state, events, *request)
    elif isinstance(request, AcceptOpenChannelFrom):
        accept_open_channel_from(state, events, *request)
    else:
        close_channel(state, events, *request)
    return Effects(effective_session=state.session_index + 1)


def init_open_channel(state: EarlyHrmpState, events: EventLog, origin: ParaId, recipient: ParaId) -> None:
    """Request a channel from ``origin`` to ``recipient`` and reserve the sender's deposit.

    Raises `OpenInvalidSender`, `OpenInvalidRecipient`, `OpenToSelf`, `OpenAlreadyExists`, `OpenAlreadyRequested`, `OpenLimitExceeded`,
    `InsufficientBalance`. Source: early_hrmp.txt ``init_open_channel`` (its heading is lost), xcmp_rules 1.3.
    """
    channel_id = (origin, recipient)
    if origin not in state.paras:
        raise OpenInvalidSender(sender=origin)
    if recipient not in state.paras:
        raise OpenInvalidRecipient(recipient=recipient)
    if origin == recipient:
        raise OpenToSelf(para=origin)
    if channel_id in state.channels:
        raise OpenAlreadyExists(channel=channel_name(channel_id))
    if channel_id in state.open_requests.by_channel:
        raise OpenAlreadyRequested(channel=channel_name(channel_id))

    # all channels count until they are removed, including sealed ones; requests count as soon as they are made
    count = len(state.egress.get(origin, ())) + state.open_requests.counts.get(origin, 0)
    limit = state.configuration.hrmp_max_outbound_channels
    if count >= limit:
        raise OpenLimitExceeded(count=count, limit=limit)
    deposit = state.configuration.hrmp_sender_deposit
    _check_balance(state, origin, deposit)

    reserve(state, origin, deposit)
    state.open_requests.add(OpenRequest(origin, recipient, deposit))
    events.add(ChannelEventKind.REQUESTED, channel_id, sender_deposit=deposit)


def accept_open_channel(state: EarlyHrmpState, events: EventLog, origin: ParaId, index: int) -> None:
    """Confirm the request at an index of the list and reserve the recipient's deposit.

    The text does not limit inbound channels. Raises `AcceptNoSuchRequest`, `AcceptNotRecipient`, `AcceptAlreadyConfirmed`
    (H-I02), `InsufficientBalance`. Source: early_hrmp.txt ``accept_open_channel``.
    """
    if index >= len(state.open_requests):
        raise AcceptNoSuchRequest(index=index)
    request = state.open_requests[index]
    if request.recipient != origin:
        raise AcceptNotRecipient(index=index, origin=origin, recipient=request.recipient)
    if request.confirmed:
        raise AcceptAlreadyConfirmed(index=index)
    deposit = state.configuration.hrmp_recipient_deposit
    _check_balance(state, origin, deposit)

    reserve(state, origin, deposit)
    request.recipient_deposit = deposit
    request.confirmed = True
    events.add(ChannelEventKind.CONFIRMED, request.channel_id, recipient_deposit=deposit)


def accept_open_channel_from(state: EarlyHrmpState, events: EventLog, origin: ParaId, sender: ParaId) -> None:
    """Confirm the request from ``sender`` to ``origin``.

    Raises `AcceptNoSuchRequestFrom`, then the same as `accept_open_channel`. Source: xcmp_rules 1.2, addressing by (sender, recipient).
    """
    request = state.open_requests.by_channel.get((sender, origin))
    if request is None:
        raise AcceptNoSuchRequestFrom(channel=channel_name((sender, origin)))
    accept_open_channel(state, events, origin, state.open_requests.index(request))


def close_channel(state: EarlyHrmpState, events: EventLog, origin: ParaId, sender: ParaId, recipient: ParaId) -> None:
    """Request that a channel be closed at the next session boundary. Messages still flow until then.

    Raises `CloseNoSuchChannel`, `CloseChannelSealed`, `CloseUnauthorized`, `CloseAlreadyUnderway`. Source: early_hrmp.txt
    ``close_channel``, xcmp_rules 1.3.
    """
    channel_id = (sender, recipient)
    channel = state.channels.get(channel_id)
    if channel is None:
        raise CloseNoSuchChannel(channel=channel_name(channel_id))
    if channel.sealed:
        raise CloseChannelSealed(channel=channel_name(channel_id))
    if origin not in channel_id:
        raise CloseUnauthorized(origin=origin, channel=channel_name(channel_id))
    if channel_id in state.closing:
        raise CloseAlreadyUnderway(channel=channel_name(channel_id))

    add_close_request(state, CloseRequest(origin, sender, recipient))
    events.add(ChannelEventKind.CLOSE_REQUESTED, channel_id)


def _check_balance(state: EarlyHrmpState, para: ParaId, needed: Balance) -> None:
    free = missing_funds(state, para, needed)
    if free is not None:
        raise InsufficientBalance(para=para, needed=needed, free=free)
