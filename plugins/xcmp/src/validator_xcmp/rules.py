# SPDX-License-Identifier: Apache-2.0
"""The rules of XCMP channels, written out in full. Source: xcmp_channels.txt, xcmp_rules 1.2.

`XCMP` at the end is the table of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final

from validator.plugin.protocol_api import (
    HEADROOM_WATERMARKS_MAX,
    ZERO_HASH,
    Balance,
    BlockNumber,
    ChainSettings,
    ChannelEventKind,
    ChannelId,
    ChannelLevel,
    DownwardMessage,
    Effects,
    Environment,
    EventLog,
    Hash,
    LevelChoice,
    Levels,
    MessageRange,
    MessageRef,
    OrderedSet,
    Para,
    ParaHeadroom,
    ParaId,
    ParaLevel,
    Report,
    RuleSet,
    SessionChange,
    refuse,
)
from validator.protocols.kit import (
    AcceptOpenChannel,
    AcceptOpenChannelFrom,
    InitOpenChannel,
    OpenRequest,
    channel_name,
    downward_level,
    endow,
    lane_level,
    missing_funds,
    reserve,
    unreserve,
    wanted_subjects,
)
from validator_xcmp import records
from validator_xcmp.encoding import PAGES, decode_state, encode_common_page, encode_para_page, owning_paras
from validator_xcmp.errors import (
    AcceptAlreadyConfirmed,
    AcceptNoSuchRequest,
    AcceptNoSuchRequestFrom,
    AcceptNotRecipient,
    BitfieldChannelCondemned,
    BitfieldMissingMessageRoot,
    BitfieldTooLong,
    CandidateUnknownPara,
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
    WatermarkAheadRelayParent,
    WatermarkNotAdvanced,
    WatermarkRegressed,
)
from validator_xcmp.merkle import hrmp_link, message_hash
from validator_xcmp.records import Candidate, ChannelRequest, CloseChannel, Watermark
from validator_xcmp.state import (
    Column,
    DownwardTail,
    QueuedMessage,
    XcmpConfiguration,
    XcmpState,
    append_column,
    find_column,
    is_empty,
    recompute_root,
    remove_column,
)

# --- acceptance -----------------------------------------------------------------------------------------------------------------------
# Candidate acceptance. It reads the state, reports violations and changes nothing.
#
# A channel's capacity is not checked, because the relay chain cannot see how long a queue is. A close request does not stop a channel
# before the session boundary, because acceptability must not change within a session.
# Source: xcmp_channels.txt "Acceptance Function", xcmp_rules 1.2.


def check_candidate(state: XcmpState, env: Environment, candidate: Candidate, report: Report = refuse) -> None:  # noqa: ARG001
    """Check a candidate.

    Reports `CandidateUnknownPara`, then the violations of: bitfield, message root, watermark.
    """
    para = candidate.para_id
    if para not in state.paras:
        report(CandidateUnknownPara(para=para))
        return
    check_bitfield(state, para, candidate.bitfield, candidate.message_root, report)
    check_watermark(state, para, candidate.relay_parent_number, candidate.watermark, report)


def check_bitfield(
    state: XcmpState, para: ParaId, bitfield: str, message_root: Hash | None, report: Report = refuse
) -> None:
    """Check that each bit stands for a column, each set bit for a channel that takes messages, and that set bits come with a root.

    Reports `BitfieldTooLong`, `BitfieldChannelCondemned`, `BitfieldMissingMessageRoot` (X-I09). A root without bits is ignored (X-I17).
    """
    row = state.rows.get(para, [])
    if len(bitfield) > len(row):
        report(BitfieldTooLong(length=len(bitfield), row_length=len(row)))
    marked = marked_columns(bitfield[: len(row)])
    for index in marked:
        if (para, row[index].recipient) in state.condemned:
            report(BitfieldChannelCondemned(index=index, recipient=row[index].recipient))
    if marked and message_root is None:
        report(BitfieldMissingMessageRoot())


def check_watermark(
    state: XcmpState,
    para: ParaId,
    relay_parent_number: BlockNumber,
    new_watermark: Watermark,
    report: Report = refuse,
) -> None:
    """Check that the watermark does not pass the relay parent, and that it moves if something visible at the relay parent is unread.

    Order is by block, then by para. Reports `WatermarkAheadRelayParent`, `WatermarkRegressed`, `WatermarkNotAdvanced` (X-I01). Only the
    newest message of a channel is known, so older unread messages are not enforced. Within a session the check can get laxer, never
    stricter.
    """
    if new_watermark[0] > relay_parent_number:
        report(WatermarkAheadRelayParent(new_watermark=new_watermark, relay_parent_number=relay_parent_number))
        return
    last_watermark = state.watermarks.get(para)
    if last_watermark is None or new_watermark > last_watermark:
        return
    if new_watermark < last_watermark:
        report(WatermarkRegressed(new_watermark=new_watermark, last_watermark=last_watermark))
        return
    pending = [(block, sender) for block, sender in unread(state, para) if block <= relay_parent_number]
    if pending:
        report(WatermarkNotAdvanced(last_watermark=last_watermark, pending=tuple(pending)))


def unread(state: XcmpState, para: ParaId) -> list[Watermark]:
    """Return the ``(last_updated, sender)`` of each inbound channel whose newest message the para's watermark does not cover, ascending."""
    last_watermark = state.watermarks.get(para, (-1, 0))
    return sorted(
        (column.last_updated, sender)
        for sender, column in state.ingress.get(para, {}).items()
        if column.message_root is not None and (column.last_updated, sender) > last_watermark
    )


def marked_columns(bitfield: str) -> list[int]:
    """Return the indexes of the bits that are set, ascending."""
    return [index for index, bit in enumerate(bitfield) if bit == "1"]


# --- enactment ------------------------------------------------------------------------------------------------------------------------
# Candidate enactment and downward messages. They change the state and cannot fail.
#
# Source: xcmp_channels.txt "Enactment", xcmp_rules 1.2.


def enact_candidate(state: XcmpState, env: Environment, candidate: Candidate) -> tuple[MessageRef, ...]:
    """Set the root and the height of enactment in every marked column, then the row's root once, then the watermark."""
    para = candidate.para_id
    touched = state.touched
    touched.pages[para] = touched.paras[para] = None
    marked = marked_columns(candidate.bitfield)
    if marked:
        row = state.rows[para]
        for index in marked:
            column = row[index]
            column.last_updated = env.now
            column.message_root = candidate.message_root
            touched.paras[column.recipient] = None
        state.cst_roots[para] = state.row_trees.root(para, row, marked)
    state.watermarks[para] = candidate.watermark
    env.received += prune_downward_queue(state, para, candidate.watermark[0])
    return ()


def queue_downward_message(state: XcmpState, env: Environment, message: DownwardMessage) -> MessageRef:
    """Append a message to a para's downward queue and return its position. The para need not exist."""
    para, msg, data_hash = message
    head, sent = state.downward_tails.get(para, DownwardTail(ZERO_HASH, 0))
    tail = DownwardTail(hrmp_link(head, env.now, data_hash or message_hash(msg)), sent + 1)
    state.downward_tails[para] = tail
    state.downward_queues.setdefault(para, deque()).append(QueuedMessage(env.now, msg))
    state.touched.pages[para] = state.touched.paras[para] = None
    return MessageRef(para, tail.sent, tail.head)


def prune_downward_queue(state: XcmpState, para: ParaId, block: BlockNumber) -> tuple[MessageRange, ...]:
    """Drop a para's queued messages up to a block, inclusive, and return their range.

    Within a block the relay chain's messages precede those of paras.
    """
    queue = state.downward_queues.get(para)
    if queue is None or queue[0].sent_at > block:
        return ()
    first = state.downward_tails[para].sent - len(queue) + 1
    sizes = []
    while queue and queue[0].sent_at <= block:
        sizes.append(len(queue.popleft().msg))
    if not queue:
        del state.downward_queues[para]
    return (MessageRange(None, first, first + len(sizes) - 1, sum(sizes)),)


def waiting_downward(state: XcmpState, para: ParaId) -> tuple[MessageRange, ...]:
    """Return the range of a para's downward queue, nothing if it is empty."""
    queue = state.downward_queues.get(para)
    if queue is None:
        return ()
    last = state.downward_tails[para].sent
    return (MessageRange(None, last - len(queue) + 1, last, sum(len(message.msg) for message in queue)),)


# --- requests -------------------------------------------------------------------------------------------------------------------------
# Channel requests. Each makes all its checks before any effect. Source: xcmp_channels.txt "Messages", xcmp_rules 1.2.


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


# --- session --------------------------------------------------------------------------------------------------------------------------
# The session change, which is the last step of its block. Source: xcmp_channels.txt "On Session Change", xcmp_rules 1.2.


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
    dropped = waiting_downward(state, para)
    state.downward_queues.pop(para, None)
    if state.downward_tails.pop(para, None) is not None:
        events.add(ChannelEventKind.MESSAGES_DROPPED, (para, para), reason="offboarded", dropped=dropped)
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


# --- levels ---------------------------------------------------------------------------------------------------------------------------
# How full the queues of XCMP channels are (`validator.core.levels`).
#
# There are no upward messages. Of a channel the relay chain knows only whether its newest message is unread, and in which block it was
# sent.


def levels(state: XcmpState, _profile: Any, now: BlockNumber, choice: LevelChoice) -> Levels:
    """Return the levels after block ``now``."""
    of_state = ((sender, column.recipient) for sender, row in state.rows.items() for column in row)
    paras, channels, left_out = wanted_subjects(state.paras, of_state, choice)
    closing = len(state.close_requests) + len(state.condemned)
    return Levels(
        lane_level(state.open_requests, state.configuration.xcmp_open_request_ttl, closing, state.pending_candidates),
        tuple(_para_level(state, para, now) for para in paras),
        tuple(_channel_level(state, channel_id) for channel_id in channels),
        left_out,
    )


def para_level(state: XcmpState, para: ParaId, watermark_lag: int) -> ParaLevel:
    """Return the level of a para's downward queue."""
    queue = state.downward_queues.get(para, ())
    tail = state.downward_tails.get(para)
    return downward_level(
        para,
        [len(message.msg) for message in queue],
        queue[0].sent_at if queue else None,
        0 if tail is None else tail.sent,
        watermark_lag,
    )


def _para_level(state: XcmpState, para: ParaId, now: BlockNumber) -> ParaLevel:
    waiting = unread(state, para)
    lag = 0
    if waiting:
        watermark = state.watermarks.get(para)
        lag = max(0, now - (waiting[0][0] - 1 if watermark is None else watermark[0]))
    return para_level(state, para, lag)


def _channel_level(state: XcmpState, channel_id: ChannelId) -> ChannelLevel:
    column = find_column(state, channel_id)
    assert column is not None
    return ChannelLevel(
        *channel_id,
        messages=None,
        bytes=None,
        messages_max=column.capacity,
        bytes_max=None,
        oldest=None if is_empty(state, channel_id[0], column) else column.last_updated,
        messages_sent=None,
        bytes_sent=None,
    )


# --- table ----------------------------------------------------------------------------------------------------------------------------


def genesis(settings: ChainSettings) -> XcmpState:
    """Return the state of a chain that has no channels and whose genesis paras are registered."""
    state = XcmpState(settings.configuration, settings.balances)
    for para in settings.paras:
        onboard_para(state, para)
    return state


def para_headroom(state: XcmpState, _profile: Any, para: ParaId) -> ParaHeadroom:
    """Return the blocks to which a para's watermark may move: those of its channels' newest unread messages."""
    if para not in state.paras:
        return ParaHeadroom(para, valid=False)
    watermark = state.watermarks.get(para)
    blocks = tuple(dict.fromkeys(block for block, _ in unread(state, para)))
    return ParaHeadroom(
        para,
        valid=True,
        downward_pending=len(state.downward_queues.get(para, ())),
        watermark=None if watermark is None else watermark[0],
        valid_watermarks=blocks[:HEADROOM_WATERMARKS_MAX],
    )


XCMP: Final[RuleSet[XcmpState]] = RuleSet(
    genesis=genesis,
    request=records.REQUEST_RECORDS.make,
    candidate=records.candidate,
    apply_request=apply_request,
    queue_downward=queue_downward_message,
    check_candidate=check_candidate,
    enact_candidate=enact_candidate,
    change_session=change_session,
    common_page=encode_common_page,
    headroom_page=lambda state: PAGES.headroom_page(state.touched, channels=False),
    owners=owning_paras,
    page=encode_para_page,
    restore=decode_state,
    page_hashes=PAGES.hashes,
    para_headroom=para_headroom,
    levels=levels,
)
"""A relay chain's channels under the rules of xcmp_channels.txt, whose limits the relay chain does not know: they have no headroom."""
