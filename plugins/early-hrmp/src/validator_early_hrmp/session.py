# SPDX-License-Identifier: Apache-2.0
"""The session change, which is the last step of its block. Source: early_hrmp.txt "On Session Change", xcmp_rules 1.3."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from validator.plugin.protocol_api import (
    ChannelEventKind,
    ChannelId,
    Environment,
    EventLog,
    Para,
    ParaId,
    SessionChange,
)
from validator.protocols.kit import OpenRequest, endow, unreserve
from validator_early_hrmp.configuration import EarlyHrmpConfiguration
from validator_early_hrmp.state import (
    Channel,
    EarlyHrmpState,
    add_channel,
    pop_channel,
)


def change_session(state: EarlyHrmpState, env: Environment, change: SessionChange) -> None:
    """Offboard and onboard, settle open requests, close requests and drained channels, then switch to the new configuration.

    Requests are settled under the old configuration, as in the Router.
    """
    configuration, events = state.configuration, env.events
    state.session_index += 1
    events.session = state.session_index

    outgoing = dict.fromkeys(sorted(change.outgoing))
    for para in outgoing:
        offboard_para(state, events, para)
    for onboarding in change.onboarding:
        onboard_para(state, onboarding)
    settle_open_requests(state, events, configuration, outgoing)
    settle_close_requests(state, events)
    remove_drained_channels(state, events)

    if change.new_config:
        _configure(state, replace(configuration, **dict(change.new_config)))


def onboard_para(state: EarlyHrmpState, para: Para) -> None:
    """Register a para and add its onboarding balance to its account's free balance."""
    state.paras[para.para_id] = None
    endow(state, para)
    state.touched.paras[para.para_id] = None


def offboard_para(state: EarlyHrmpState, events: EventLog, para: ParaId) -> None:
    """Remove a para with its channels in both directions, its queue and its watermark (H-I06).

    Its messages in the queues of others stay deliverable (H-I05). Source: early_hrmp.txt "On Session Change" 1.
    """
    state.paras.pop(para, None)
    for sender in tuple(state.ingress.get(para, ())):
        remove_channel(state, events, (sender, para), "offboarded")
    for recipient in tuple(state.egress.get(para, ())):
        remove_channel(state, events, (para, recipient), "offboarded")
    state.downward_queues.pop(para, None)
    state.downward_queue_tails.pop(para, None)
    state.dmq_watermarks.pop(para, None)
    state.touched.pages[para] = state.touched.paras[para] = None


def settle_open_requests(
    state: EarlyHrmpState, events: EventLog, configuration: EarlyHrmpConfiguration, outgoing: Collection[ParaId]
) -> None:
    """Age and expire unconfirmed requests (even if a party was offboarded, H-I04) and open confirmed ones, in the order of the list.

    A confirmed request is dropped and both deposits are returned if a party has been offboarded, even if this session change onboards it
    again (H-I03). Source: early_hrmp.txt "On Session Change" 2.
    """
    kept = []
    for request in state.open_requests:
        if request.confirmed:
            state.open_requests.forget(request)
            if all(para in state.paras and para not in outgoing for para in (request.sender, request.recipient)):
                _open_channel(state, events, request)
            else:
                _refund(state, events, request, ChannelEventKind.REQUEST_DROPPED, "offboarded")
            continue
        request.age += 1
        if request.age < configuration.hrmp_open_request_ttl:
            kept.append(request)
            continue
        state.open_requests.forget(request)
        _refund(state, events, request, ChannelEventKind.REQUEST_EXPIRED, "expired")
    state.open_requests.keep(kept)


def settle_close_requests(state: EarlyHrmpState, events: EventLog) -> None:
    """Remove every empty channel with a close request and seal the others. Source: "On Session Change" 3."""
    for _, sender, recipient in state.close_requests:
        channel_id = (sender, recipient)
        channel = state.channels.get(channel_id)
        if channel is None:
            continue  # it was removed with one of its ends
        if not channel.used_places:
            remove_channel(state, events, channel_id, "requested")
            continue
        channel.sealed = True
        state.sealed[channel_id] = None
        state.touched.pages[recipient] = state.touched.channels[channel_id] = None
        events.add(ChannelEventKind.SEALED, channel_id, reason="requested")
    state.close_requests.clear()
    state.closing.clear()


def remove_drained_channels(state: EarlyHrmpState, events: EventLog) -> None:
    """Remove every sealed channel without messages, by ascending sender and recipient. Source: "On Session Change" 4."""
    for channel_id in sorted(state.sealed):
        if not state.channels[channel_id].used_places:
            remove_channel(state, events, channel_id, "drained")


def remove_channel(state: EarlyHrmpState, events: EventLog, channel_id: ChannelId, reason: str) -> None:
    """Return both deposits and remove the channel. Source: early_hrmp.txt "to remove a channel"."""
    sender, recipient = channel_id
    channel = pop_channel(state, channel_id)
    unreserve(state, sender, channel.sender_deposit)
    unreserve(state, recipient, channel.recipient_deposit)
    events.add(
        ChannelEventKind.CLOSED,
        channel_id,
        sender_deposit=-channel.sender_deposit,
        recipient_deposit=-channel.recipient_deposit,
        reason=reason,
    )


def _open_channel(state: EarlyHrmpState, events: EventLog, request: OpenRequest) -> None:
    channel_id = request.channel_id
    channel = Channel(request.sender_deposit, request.recipient_deposit, instance=state.session_index)
    add_channel(state, channel_id, channel)
    events.add(ChannelEventKind.OPENED, channel_id)


def _refund(
    state: EarlyHrmpState, events: EventLog, request: OpenRequest, event: ChannelEventKind, reason: str
) -> None:
    unreserve(state, request.sender, request.sender_deposit)
    if request.confirmed:
        unreserve(state, request.recipient, request.recipient_deposit)
    events.add(
        event,
        request.channel_id,
        sender_deposit=-request.sender_deposit,
        recipient_deposit=-request.recipient_deposit,
        reason=reason,
    )


def _configure(state: EarlyHrmpState, configuration: EarlyHrmpConfiguration) -> None:
    before = state.configuration
    state.configuration = configuration
    limits = (configuration.hrmp_channel_max_places, configuration.hrmp_channel_max_size)
    if limits != (before.hrmp_channel_max_places, before.hrmp_channel_max_size):
        # all channels share the limits
        state.touched.channels.update(dict.fromkeys(state.channels))
