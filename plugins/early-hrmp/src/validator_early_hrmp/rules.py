# SPDX-License-Identifier: Apache-2.0
"""The rules of early HRMP, written out in full. Source: early_hrmp.txt, made precise by xcmp_rules 1.3.

`EARLY_HRMP` at the end is the table of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from validator.plugin.protocol_api import (
    HEADROOM_WATERMARKS_MAX,
    ZERO_HASH,
    Balance,
    BlockNumber,
    ChainSettings,
    ChannelEventKind,
    ChannelHeadroom,
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
    Para,
    ParaHeadroom,
    ParaId,
    ParaLevel,
    Report,
    RuleSet,
    SessionChange,
    message_hash,
    mqc_link,
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
from validator_early_hrmp.errors import (
    AcceptAlreadyConfirmed,
    AcceptNoSuchRequest,
    AcceptNoSuchRequestFrom,
    AcceptNotRecipient,
    CandidateUnknownPara,
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
    OutboundCapacityExceeded,
    OutboundChannelSealed,
    OutboundDuplicateRecipient,
    OutboundNoSuchChannel,
    OutboundNotSorted,
    OutboundSenderMismatch,
    OutboundTotalSizeExceeded,
    WatermarkAdvancementRule,
    WatermarkAheadRelayParent,
    WatermarkLandsOnBlockWithNoMessages,
)
from validator_early_hrmp.pages import (
    PAGES,
    decode_state,
    encode_common_page,
    encode_para_page,
    para_pages,
)
from validator_early_hrmp.records import REQUEST_RECORDS, Candidate, ChannelRequest, HrmpMessage, make_candidate
from validator_early_hrmp.state import (
    Channel,
    CloseRequest,
    EarlyHrmpConfiguration,
    EarlyHrmpState,
    QueuedMessage,
    QueueTail,
    add_channel,
    add_close_request,
    pop_channel,
)

# --- acceptance -----------------------------------------------------------------------------------------------------------------------
# Candidate acceptance. It reads the state, reports violations and changes nothing.
#
# No check depends on the actions of other paras within a session. Only a para's own candidates fill its channels and prune its queue, and
# channels open and are sealed at session boundaries. Other paras can only make room.
# Source: early_hrmp.txt "Acceptance Function", xcmp_rules 1.3.


def check_candidate(state: EarlyHrmpState, env: Environment, candidate: Candidate, report: Report = refuse) -> None:  # noqa: ARG001
    """Check a candidate.

    Reports `CandidateUnknownPara` (H-I12), then the violations of: order of recipients, messages, watermark.
    """
    para = candidate.para_id
    if para not in state.paras:
        report(CandidateUnknownPara(para=para))
        return
    check_order(candidate.hrmp_messages, report)
    check_messages(state, para, candidate.hrmp_messages, report)
    check_dmq_watermark(state, para, candidate.relay_parent_number, candidate.dmq_watermark, report)


def check_order(messages: Sequence[HrmpMessage], report: Report = refuse) -> None:
    """Check that recipients ascend strictly. Reports, for each in turn, `OutboundNotSorted`, `OutboundDuplicateRecipient` (H-I10)."""
    previous = -1
    for idx, message in enumerate(messages):
        if message.recipient < previous:
            report(OutboundNotSorted(idx=idx))
        if message.recipient == previous:
            report(OutboundDuplicateRecipient(idx=idx, recipient=previous))
        previous = message.recipient


def check_messages(
    state: EarlyHrmpState, para: ParaId, messages: Sequence[HrmpMessage], report: Report = refuse
) -> None:
    """Check that each message fits into its channel; limits are inclusive and the same for all channels.

    Reports for each message in order `OutboundSenderMismatch` (H-I08), `OutboundNoSuchChannel`, `OutboundChannelSealed`,
    `OutboundCapacityExceeded`, `OutboundTotalSizeExceeded`.
    """
    max_places = state.configuration.hrmp_channel_max_places
    max_size = state.configuration.hrmp_channel_max_size
    for idx, (sender, recipient, payload, _) in enumerate(messages):
        if sender != para:
            report(OutboundSenderMismatch(idx=idx, sender=sender, para=para))
        channel = state.channels.get((para, recipient))
        if channel is None:
            report(OutboundNoSuchChannel(idx=idx, channel=channel_name((para, recipient))))
            continue
        if channel.sealed:
            report(OutboundChannelSealed(idx=idx, channel=channel_name((para, recipient))))
        count = channel.used_places + 1
        if count > max_places:
            report(OutboundCapacityExceeded(idx=idx, count=count, limit=max_places))
        total_size = channel.used_bytes + len(payload)
        if total_size > max_size:
            report(OutboundTotalSizeExceeded(idx=idx, total_size=total_size, limit=max_size))


def check_dmq_watermark(
    state: EarlyHrmpState,
    para: ParaId,
    relay_parent_number: BlockNumber,
    new_watermark: BlockNumber,
    report: Report = refuse,
) -> None:
    """Check that the watermark advances, to the relay parent or to a block whose messages still wait (H-I01).

    Messages of the relay chain count like those of paras. Reports `WatermarkAdvancementRule`, `WatermarkAheadRelayParent`,
    `WatermarkLandsOnBlockWithNoMessages`.
    """
    last_watermark = state.dmq_watermarks.get(para)
    if last_watermark is not None and new_watermark <= last_watermark:
        report(WatermarkAdvancementRule(new_watermark=new_watermark, last_watermark=last_watermark))
    elif new_watermark > relay_parent_number:
        report(WatermarkAheadRelayParent(new_watermark=new_watermark, relay_parent_number=relay_parent_number))
    elif new_watermark != relay_parent_number and new_watermark not in state.downward_queues.get(para, ()):
        report(WatermarkLandsOnBlockWithNoMessages(new_watermark=new_watermark))


# --- enactment ------------------------------------------------------------------------------------------------------------------------
# Candidate enactment and downward messages. They change the state and cannot fail. Source: early_hrmp.txt "Enactment", xcmp_rules 1.3.


def enact_candidate(state: EarlyHrmpState, env: Environment, candidate: Candidate) -> tuple[MessageRef, ...]:
    """Apply an accepted candidate and return the queue positions of its messages.

    Pruning comes before appending, so a candidate frees its inbound channels before it fills its outbound ones.
    """
    para = candidate.para_id
    touched = state.touched
    touched.pages[para] = touched.paras[para] = None
    env.received += prune_dmq(state, para, candidate.dmq_watermark)
    queued = [queue_hrmp_message(state, para, message, env.now) for message in candidate.hrmp_messages]
    state.dmq_watermarks[para] = candidate.dmq_watermark
    return tuple(ref for ref in queued if ref is not None)


def prune_dmq(state: EarlyHrmpState, para: ParaId, new_watermark: BlockNumber) -> tuple[MessageRange, ...]:
    """Drop a para's queued messages up to the watermark, inclusive, and return their range. Each frees room in its channel.

    A message of a channel that was removed with its sender frees nothing, not even in a new channel of the same two paras (H-I05, H-I11).
    """
    queue = state.downward_queues.get(para)
    if queue is None:
        return ()
    passed = []
    for block in queue:
        if block > new_watermark:
            break
        passed.append(block)
    sizes = []
    for block in passed:
        for sender, instance, data in queue.pop(block):
            sizes.append(len(data))
            if sender is None:
                continue
            channel = state.channels.get((sender, para))
            if channel is not None and channel.instance == instance:
                channel.used_places -= 1
                channel.used_bytes -= len(data)
                state.touched.channels[sender, para] = None
    if not queue:
        del state.downward_queues[para]
    if not sizes:
        return ()
    last = state.downward_queue_tails[para].count - sum(map(len, queue.values()))
    return (MessageRange(None, last - len(sizes) + 1, last, sum(sizes)),)


def waiting_downward(state: EarlyHrmpState, para: ParaId) -> tuple[MessageRange, ...]:
    """Return the range of a para's downward queue, whoever sent its messages; nothing if it is empty."""
    queue = state.downward_queues.get(para)
    if queue is None:
        return ()
    sizes = [len(message.data) for messages in queue.values() for message in messages]
    last = state.downward_queue_tails[para].count
    return (MessageRange(None, last - len(sizes) + 1, last, sum(sizes)),)


def queue_hrmp_message(
    state: EarlyHrmpState, sender: ParaId, message: HrmpMessage, now: BlockNumber
) -> MessageRef | None:
    """Append a message to its recipient's queue and count it in its channel.

    Limits are not checked again. A message whose channel has been removed since acceptance is skipped (H-I09).
    """
    recipient, payload = message.recipient, message.payload
    channel = state.channels.get((sender, recipient))
    if channel is None:
        return None
    channel.used_places += 1
    channel.used_bytes += len(payload)
    state.touched.channels[sender, recipient] = None
    queued = QueuedMessage(sender, channel.instance, payload)
    return _append(state, recipient, queued, message.payload_hash or message_hash(payload), now)


def queue_downward_message(state: EarlyHrmpState, env: Environment, message: DownwardMessage) -> MessageRef:
    """Append a message of the relay chain to a para's queue. Its size is not limited, and the para need not be registered."""
    para, msg, data_hash = message
    return _append(state, para, QueuedMessage(None, 0, msg), data_hash or message_hash(msg), env.now)


def _append(state: EarlyHrmpState, para: ParaId, message: QueuedMessage, hashed: Hash, now: BlockNumber) -> MessageRef:
    state.downward_queues.setdefault(para, {}).setdefault(now, []).append(message)
    count, head = state.downward_queue_tails.get(para, (0, ZERO_HASH))
    tail = state.downward_queue_tails[para] = QueueTail(count + 1, mqc_link(head, now, hashed))
    state.touched.pages[para] = state.touched.paras[para] = None
    return MessageRef(para, *tail)


# --- requests -------------------------------------------------------------------------------------------------------------------------
# The entry points for channel management. Each makes all its checks before any effect; the first check that fails decides.


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


# --- session --------------------------------------------------------------------------------------------------------------------------
# The session change, which is the last step of its block. Source: early_hrmp.txt "On Session Change", xcmp_rules 1.3.


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
    dropped = waiting_downward(state, para)
    state.downward_queues.pop(para, None)
    if state.downward_queue_tails.pop(para, None) is not None:
        events.add(ChannelEventKind.MESSAGES_DROPPED, (para, para), reason="offboarded", dropped=dropped)
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


# --- levels ---------------------------------------------------------------------------------------------------------------------------
# How full the queues of early HRMP are (`validator.core.levels`).
#
# There are no upward messages, and the state does not count what a channel has sent.


def levels(state: EarlyHrmpState, _profile: Any, now: BlockNumber, choice: LevelChoice) -> Levels:
    """Return the levels after block ``now``."""
    paras, channels, left_out = wanted_subjects(state.paras, state.channels, choice)
    closing = len(state.close_requests) + len(state.sealed)
    oldest = _oldest(state, {recipient for _, recipient in channels})
    return Levels(
        lane_level(state.open_requests, state.configuration.hrmp_open_request_ttl, closing, state.pending_candidates),
        tuple(_para_level(state, para, now) for para in paras),
        tuple(_channel_level(state, channel_id, oldest.get(channel_id)) for channel_id in channels),
        left_out,
    )


def _para_level(state: EarlyHrmpState, para: ParaId, now: BlockNumber) -> ParaLevel:
    queue = state.downward_queues.get(para, {})
    tail = state.downward_queue_tails.get(para)
    oldest = next(iter(queue), None)
    watermark = state.dmq_watermarks.get(para, -1 if oldest is None else oldest - 1)
    return downward_level(
        para,
        [len(message.data) for sent in queue.values() for message in sent],
        oldest,
        0 if tail is None else tail.count,
        0 if oldest is None else max(0, now - watermark),
    )


def _channel_level(state: EarlyHrmpState, channel_id: ChannelId, oldest: BlockNumber | None) -> ChannelLevel:
    """Return the level of a channel; a sealed one keeps the limits, though it takes nothing more."""
    channel, configuration = state.channels[channel_id], state.configuration
    return ChannelLevel(
        *channel_id,
        messages=channel.used_places,
        bytes=channel.used_bytes,
        messages_max=configuration.hrmp_channel_max_places,
        bytes_max=configuration.hrmp_channel_max_size,
        oldest=oldest,
        messages_sent=None,
        bytes_sent=None,
    )


def _oldest(state: EarlyHrmpState, recipients: set[ParaId]) -> dict[ChannelId, BlockNumber]:
    """Return, by channel to some recipients, the block of its first waiting message."""
    found: dict[ChannelId, BlockNumber] = {}
    for recipient in recipients:
        for block, sent in state.downward_queues.get(recipient, {}).items():
            for message in sent:
                channel = None if message.sender is None else state.channels.get((message.sender, recipient))
                if channel is not None and message.sender is not None and channel.instance == message.instance:
                    found.setdefault((message.sender, recipient), block)
    return found


# --- table ----------------------------------------------------------------------------------------------------------------------------


def genesis(settings: ChainSettings) -> EarlyHrmpState:
    """Return the state of a chain that has seen no message and whose genesis paras are registered."""
    state = EarlyHrmpState(settings.configuration, settings.balances)
    for para in settings.paras:
        onboard_para(state, para)
    return state


def para_headroom(state: EarlyHrmpState, _profile: Any, para: ParaId) -> ParaHeadroom:
    """Return the watermarks that a para's next candidate may have, in addition to its relay parent."""
    if para not in state.paras:
        return ParaHeadroom(para, valid=False)
    queue = state.downward_queues.get(para, {})
    watermark = state.dmq_watermarks.get(para)
    # a queue can still hold messages at or below the last watermark, but no watermark can land on their blocks
    landing = (block for block in queue if watermark is None or block > watermark)
    return ParaHeadroom(
        para,
        valid=True,
        downward_pending=sum(map(len, queue.values())),
        watermark=watermark,
        valid_watermarks=tuple(islice(landing, HEADROOM_WATERMARKS_MAX)),
    )


def channel_headroom(state: EarlyHrmpState, _profile: Any, channel_id: ChannelId) -> ChannelHeadroom:
    """Return how much a channel can still take: nothing if it is sealed. A single message may use all the room left."""
    channel, configuration = state.channels.get(channel_id), state.configuration
    if channel is None:
        return ChannelHeadroom(*channel_id, open=False)
    if channel.sealed:
        return ChannelHeadroom(*channel_id, open=True)
    bytes_left = max(0, configuration.hrmp_channel_max_size - channel.used_bytes)
    return ChannelHeadroom(
        *channel_id,
        open=True,
        places_left=max(0, configuration.hrmp_channel_max_places - channel.used_places),
        bytes_left=bytes_left,
        message_size_max=bytes_left,
    )


EARLY_HRMP: Final[RuleSet[EarlyHrmpState]] = RuleSet(
    genesis=genesis,
    request=REQUEST_RECORDS.make,
    candidate=make_candidate,
    apply_request=apply_request,
    queue_downward=queue_downward_message,
    check_candidate=check_candidate,
    enact_candidate=enact_candidate,
    change_session=change_session,
    common_page=encode_common_page,
    headroom_page=lambda state: PAGES.headroom_page(state.touched),
    owners=para_pages,
    page=encode_para_page,
    restore=decode_state,
    page_hashes=PAGES.hashes,
    para_headroom=para_headroom,
    channel_headroom=channel_headroom,
    levels=levels,
)
"""A relay chain's channels and downward queues under the rules of early_hrmp.txt."""
