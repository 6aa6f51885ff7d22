# SPDX-License-Identifier: Apache-2.0
"""The session change, which is the last step of its block. Source: xcmp_channels.txt "On Session Change", xcmp_rules 1.2."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from validator.plugin.protocol_api import (
    BlockNumber,
    ChannelEventKind,
    ChannelId,
    DownwardMessage,
    Environment,
    EventLog,
    Hash,
    OrderedSet,
    Para,
    ParaId,
    SessionChange,
)
from validator.protocols.kit import OpenRequest, endow, unreserve
from validator_xcmp.configuration import XcmpConfiguration
from validator_xcmp.enactment import queue_downward_message
from validator_xcmp.state import (
    Column,
    XcmpState,
    append_column,
    find_column,
    is_empty,
    recompute_root,
    remove_column,
)


def change_session(state: XcmpState, env: Environment, change: SessionChange) -> None:
    """Drop pending candidates, offboard, onboard, settle open requests, condemn, close, and recompute the roots of changed rows.

    New columns are appended before old ones are removed. Everything is settled under the old configuration; then the new one takes effect.
    """
    configuration, events = state.configuration, env.events
    state.session_index += 1
    events.session = state.session_index
    drop_pending_candidates(state)

    rows: OrderedSet = {}
    outgoing = dict.fromkeys(sorted(change.outgoing))
    for para in outgoing:
        offboard_para(state, events, para, rows)
    for onboarding in change.onboarding:
        onboard_para(state, onboarding)
    process_open_requests(state, events, configuration, outgoing, rows)
    condemn_channels(state, configuration)
    close_condemned_channels(state, env, rows)
    for sender in rows:
        recompute_root(state, sender)

    if change.new_config:
        state.configuration = replace(configuration, **dict(change.new_config))


def drop_pending_candidates(state: XcmpState) -> None:
    """Drop every pending candidate, because its bitfield indexes the old row (X-I12)."""
    for para in state.pending_candidates:
        state.touched.pages[para] = None
    state.pending_candidates.clear()


def onboard_para(state: XcmpState, para: Para) -> None:
    """Register a para and add its onboarding balance to its account's free balance."""
    state.paras[para.para_id] = para.kind
    endow(state, para)
    state.touched.paras[para.para_id] = None


def offboard_para(state: XcmpState, events: EventLog, para: ParaId, rows: OrderedSet) -> None:
    """Remove a para with its row, every column that leads to it, its watermark and its downward queue (X-I10).

    Both deposits of each channel are returned, nobody is notified of unread messages, and later columns of other rows move down. The para's
    requests stay: confirmed ones are dropped at this boundary, others expire (X-I11).
    """
    state.paras.pop(para, None)
    for sender in sorted(state.ingress.get(para, ())):
        close(state, events, (sender, para), "offboarded", rows)
    for column in tuple(state.rows.get(para, ())):
        close(state, events, (para, column.recipient), "offboarded", rows)
    state.watermarks.pop(para, None)
    state.downward_queues.pop(para, None)
    state.downward_tails.pop(para, None)
    state.touched.pages[para] = state.touched.paras[para] = None


def process_open_requests(
    state: XcmpState,
    events: EventLog,
    configuration: XcmpConfiguration,
    outgoing: Collection[ParaId],
    rows: OrderedSet,
) -> None:
    """Age and expire unconfirmed requests and open confirmed ones, in the order of the list.

    A confirmed request is dropped and both deposits are returned if a party has been offboarded, even if this session change onboards it
    again (X-I11).
    """
    kept = []
    for request in state.open_requests:
        if not request.confirmed:
            request.age += 1
            if request.age < configuration.xcmp_open_request_ttl:
                kept.append(request)
                continue
        _settle(state, events, request, configuration, outgoing, rows)
        state.open_requests.forget(request)
    state.open_requests.keep(kept)


def _settle(
    state: XcmpState,
    events: EventLog,
    request: OpenRequest,
    configuration: XcmpConfiguration,
    outgoing: Collection[ParaId],
    rows: OrderedSet,
) -> None:
    sender, recipient = channel_id = request.channel_id
    if request.confirmed and all(para in state.paras and para not in outgoing for para in channel_id):
        capacity = configuration.xcmp_channel_capacity
        append_column(state, sender, Column(recipient, capacity, request.sender_deposit, request.recipient_deposit))
        rows[sender] = None
        events.add(ChannelEventKind.OPENED, channel_id)
        return
    unreserve(state, sender, request.sender_deposit)
    if not request.confirmed:
        events.add(
            ChannelEventKind.REQUEST_EXPIRED, channel_id, sender_deposit=-request.sender_deposit, reason="expired"
        )
        return
    unreserve(state, recipient, request.recipient_deposit)
    events.add(
        ChannelEventKind.REQUEST_DROPPED,
        channel_id,
        sender_deposit=-request.sender_deposit,
        recipient_deposit=-request.recipient_deposit,
        reason="offboarded",
    )


def condemn_channels(state: XcmpState, configuration: XcmpConfiguration) -> None:
    """Move every existing channel with a close request into the condemned set."""
    for channel_id in state.close_requests:
        if find_column(state, channel_id) is not None:
            state.condemned[channel_id] = configuration.xcmp_condemned_sessions
    state.close_requests.clear()


def close_condemned_channels(state: XcmpState, env: Environment, rows: OrderedSet) -> None:
    """Decrement every counter, including new ones (X-I02), then close the channels that are empty (X-I03) or whose counter is zero.

    If something in a channel is unread, its recipient gets a downward message that says what (X-I16).
    """
    for channel_id in state.condemned:
        state.condemned[channel_id] = max(0, state.condemned[channel_id] - 1)
    for channel_id, counter in tuple(state.condemned.items()):
        sender, recipient = channel_id
        column = find_column(state, channel_id)
        assert column is not None
        if is_empty(state, sender, column):
            close(state, env.events, channel_id, "requested", rows)
        elif counter == 0:
            assert column.message_root is not None
            msg = closed_unread_message(sender, recipient, column.last_updated, column.message_root)
            queue_downward_message(state, env, DownwardMessage(recipient, msg))
            close(state, env.events, channel_id, "unread", rows)


def closed_unread_message(sender: ParaId, recipient: ParaId, last_updated: BlockNumber, message_root: Hash) -> bytes:
    """Return the downward message about a channel that was closed with unread messages: its column.

    SCALE of ``(sender u32, recipient u32, last_updated u32, message_root [u8; 32])``, 44 bytes.
    """
    return b"".join(number.to_bytes(4, "little") for number in (sender, recipient, last_updated)) + message_root


def close(state: XcmpState, events: EventLog, channel_id: ChannelId, reason: str, rows: OrderedSet) -> None:
    """Remove a channel and its entry in the condemned set, return both deposits and mark its row as changed."""
    sender, recipient = channel_id
    column = remove_column(state, channel_id)
    state.condemned.pop(channel_id, None)
    unreserve(state, sender, column.sender_deposit)
    unreserve(state, recipient, column.recipient_deposit)
    rows[sender] = None
    events.add(
        ChannelEventKind.CLOSED,
        channel_id,
        sender_deposit=-column.sender_deposit,
        recipient_deposit=-column.recipient_deposit,
        reason=reason,
    )
