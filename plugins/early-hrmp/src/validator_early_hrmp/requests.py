# SPDX-License-Identifier: Apache-2.0
"""The entry-points for channel management: every check comes before every effect, the first that fails decides."""

from __future__ import annotations

from validator.plugin.api import Account, Balance, Balances, ChannelEventKind, EventLog, ParaId
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
from validator_early_hrmp.state import (
    CloseRequest,
    EarlyHrmpState,
    OpenRequest,
    add_close_request,
    add_open_request,
    channel_name,
    reserve,
)


def init_open_channel(state: EarlyHrmpState, events: EventLog, origin: ParaId, recipient: ParaId) -> None:
    """Ask for a channel from ``origin`` to ``recipient`` and reserve the sender's deposit.

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
    if channel_id in state.requested:
        raise OpenAlreadyRequested(channel=channel_name(channel_id))

    # channels count until they are gone, sealed ones too, and requests from the start
    count = len(state.egress.get(origin, ())) + state.request_counts.get(origin, 0)
    limit = state.configuration.hrmp_max_outbound_channels
    if count >= limit:
        raise OpenLimitExceeded(count=count, limit=limit)
    deposit = state.configuration.hrmp_sender_deposit
    _check_balance(state, origin, deposit)

    reserve(state, origin, deposit)
    add_open_request(state, OpenRequest(origin, recipient, deposit))
    events.add(ChannelEventKind.REQUESTED, channel_id, sender_deposit=deposit)


def accept_open_channel(state: EarlyHrmpState, events: EventLog, origin: ParaId, index: int) -> None:
    """Confirm the request at a place in the list and reserve the recipient's deposit.

    There is no limit of inbound channels in this text. Raises `AcceptNoSuchRequest`, `AcceptNotRecipient`, `AcceptAlreadyConfirmed`
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
    events.add(ChannelEventKind.CONFIRMED, (request.sender, request.recipient), recipient_deposit=deposit)


def accept_open_channel_from(state: EarlyHrmpState, events: EventLog, origin: ParaId, sender: ParaId) -> None:
    """Confirm the request from ``sender`` to ``origin``.

    Raises `AcceptNoSuchRequestFrom`, then as `accept_open_channel` does. Source: xcmp_rules 1.2, addressing by (sender, recipient).
    """
    request = state.requested.get((sender, origin))
    if request is None:
        raise AcceptNoSuchRequestFrom(channel=channel_name((sender, origin)))
    index = next(at for at, listed in enumerate(state.open_requests) if listed is request)
    accept_open_channel(state, events, origin, index)


def close_channel(state: EarlyHrmpState, events: EventLog, origin: ParaId, sender: ParaId, recipient: ParaId) -> None:
    """Ask for a channel to be closed at the next session boundary; until then messages still flow.

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
    if state.balances_mode is Balances.UNLIMITED:
        return
    free = state.accounts.get(para, Account()).free
    if free < needed:
        raise InsufficientBalance(para=para, needed=needed, free=free)
