# SPDX-License-Identifier: Apache-2.0
"""Channel requests. Each makes all its checks before any effect. Source: xcmp_channels.txt "Messages", xcmp_rules 1.2."""

from __future__ import annotations

from validator.plugin.protocol_api import Balance, ChannelEventKind, ChannelId, Effects, Environment, EventLog, ParaId
from validator.protocols.kit import OpenRequest, channel_name, missing_funds, reserve
from validator_xcmp.errors import (
    AcceptAlreadyConfirmed,
    AcceptNoSuchRequest,
    AcceptNoSuchRequestFrom,
    AcceptNotRecipient,
    CloseAlreadyCondemned,
    CloseAlreadyUnderway,
    CloseNoSuchChannel,
    CloseNoSuchChannelTo,
    CloseUnauthorized,
    InsufficientBalance,
    OpenAlreadyExists,
    OpenAlreadyRequested,
    OpenInvalidRecipient,
    OpenInvalidSender,
    OpenLimitExceeded,
    OpenToSelf,
)
from validator_xcmp.records import (
    AcceptOpenChannel,
    AcceptOpenChannelFrom,
    ChannelRequest,
    CloseChannel,
    InitOpenChannel,
)
from validator_xcmp.state import XcmpState, find_column


def apply_request(state: XcmpState, env: Environment, request: ChannelRequest) -> Effects:
    """Apply a request of any kind; raises its violations."""
    events = env.events
    if isinstance(request, InitOpenChannel):
        init_open_channel(state, events, *request)
        return Effects(expires_session=state.session_index + max(1, state.configuration.xcmp_open_request_ttl))
    if isinstance(request, AcceptOpenChannel):
        accept_open_channel(state, events, *request)
    elif isinstance(request, AcceptOpenChannelFrom):
        accept_open_channel_from(state, events, *request)
    elif isinstance(request, CloseChannel):
        close_channel(state, events, *request)
    else:
        close_channel_to(state, events, *request)
    return Effects(effective_session=state.session_index + 1)


def init_open_channel(state: XcmpState, events: EventLog, origin: ParaId, recipient: ParaId) -> None:
    """Request a channel from ``origin`` to ``recipient`` and reserve the sender's deposit.

    Raises `OpenInvalidSender`, `OpenAlreadyExists`, `OpenAlreadyRequested`, `OpenLimitExceeded`, `OpenToSelf`, `OpenInvalidRecipient`,
    `InsufficientBalance`.
    """
    configuration = state.configuration
    if origin not in state.paras:
        raise OpenInvalidSender(sender=origin)
    channel_id = (origin, recipient)
    if find_column(state, channel_id) is not None:
        raise OpenAlreadyExists(channel=channel_name(channel_id))
    if channel_id in state.open_requests.by_channel:
        raise OpenAlreadyRequested(channel=channel_name(channel_id))
    count = len(state.rows.get(origin, ())) + state.open_requests.counts.get(origin, 0)
    if count >= configuration.xcmp_max_outbound_channels:
        raise OpenLimitExceeded(count=count, limit=configuration.xcmp_max_outbound_channels)
    if origin == recipient:
        raise OpenToSelf(para=origin)
    if recipient not in state.paras:
        raise OpenInvalidRecipient(recipient=recipient)
    deposit = configuration.xcmp_sender_deposit
    _check_balance(state, origin, deposit)

    reserve(state, origin, deposit)
    state.open_requests.add(OpenRequest(origin, recipient, deposit))
    events.add(ChannelEventKind.REQUESTED, channel_id, sender_deposit=deposit)


def accept_open_channel(state: XcmpState, events: EventLog, origin: ParaId, index: int) -> None:
    """Confirm the open request at a position of the list and reserve the recipient's deposit.

    Raises `AcceptNoSuchRequest`, `AcceptNotRecipient`, `AcceptAlreadyConfirmed` (X-I05), `InsufficientBalance`.
    """
    if index >= len(state.open_requests):
        raise AcceptNoSuchRequest(index=index)
    request = state.open_requests[index]
    if origin != request.recipient:
        raise AcceptNotRecipient(index=index, origin=origin, recipient=request.recipient)
    if request.confirmed:
        raise AcceptAlreadyConfirmed(index=index)
    deposit = state.configuration.xcmp_recipient_deposit
    _check_balance(state, origin, deposit)

    reserve(state, origin, deposit)
    request.confirmed = True
    request.recipient_deposit = deposit
    events.add(ChannelEventKind.CONFIRMED, request.channel_id, recipient_deposit=deposit)


def accept_open_channel_from(state: XcmpState, events: EventLog, origin: ParaId, sender: ParaId) -> None:
    """Confirm the open request from ``sender`` to ``origin``. Raises `AcceptNoSuchRequestFrom`, then the same as `accept_open_channel`."""
    request = state.open_requests.by_channel.get((sender, origin))
    if request is None:
        raise AcceptNoSuchRequestFrom(channel=channel_name((sender, origin)))
    accept_open_channel(state, events, origin, state.open_requests.index(request))


def close_channel(state: XcmpState, events: EventLog, origin: ParaId, sender: ParaId, index: int) -> None:
    """Request that the channel at a column of ``sender``'s row be closed. Messages still flow until the session boundary.

    Raises `CloseNoSuchChannel`, `CloseUnauthorized`, `CloseAlreadyUnderway`, `CloseAlreadyCondemned` (X-I06).
    """
    row = state.rows.get(sender, [])
    if index >= len(row):
        raise CloseNoSuchChannel(sender=sender, index=index)
    _close(state, events, origin, (sender, row[index].recipient))


def close_channel_to(state: XcmpState, events: EventLog, origin: ParaId, sender: ParaId, recipient: ParaId) -> None:
    """Request that a channel, named by its ends, be closed. Raises `CloseNoSuchChannelTo`, then the same as `close_channel`."""
    if find_column(state, (sender, recipient)) is None:
        raise CloseNoSuchChannelTo(channel=channel_name((sender, recipient)))
    _close(state, events, origin, (sender, recipient))


def _close(state: XcmpState, events: EventLog, origin: ParaId, channel_id: ChannelId) -> None:
    if origin not in channel_id:
        raise CloseUnauthorized(origin=origin, channel=channel_name(channel_id))
    if channel_id in state.close_requests:
        raise CloseAlreadyUnderway(channel=channel_name(channel_id))
    if channel_id in state.condemned:
        raise CloseAlreadyCondemned(channel=channel_name(channel_id))

    state.close_requests[channel_id] = origin
    events.add(ChannelEventKind.CLOSE_REQUESTED, channel_id)


def _check_balance(state: XcmpState, para: ParaId, deposit: Balance) -> None:
    free = missing_funds(state, para, deposit)
    if free is not None:
        raise InsufficientBalance(para=para, needed=deposit, free=free)
