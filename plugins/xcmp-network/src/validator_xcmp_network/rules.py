# SPDX-License-Identifier: Apache-2.0
"""The rules of XCMP networking, written out in full. Source: xcmp_networking.txt, xcmp_rules 1.4.

Where a chain opens channels, the rules of XCMP channels (`validator_xcmp.rules`) hold as well. `XCMP_NETWORK` at the end is the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any, Final

from validator_xcmp import rules as xcmp
from validator_xcmp.records import Candidate as XcmpCandidate
from validator_xcmp.rules import onboard_para, para_level, queue_downward_message

from validator.plugin.protocol_api import (
    HEADROOM_WATERMARKS_MAX,
    BlockNumber,
    ChainSettings,
    ChannelEventKind,
    ChannelHeadroom,
    ChannelId,
    ChannelLevel,
    Effects,
    Enactment,
    Environment,
    IngressEventKind,
    IngressLog,
    LevelChoice,
    Levels,
    MessageRef,
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
    channel_name,
    lane_level,
    wanted_subjects,
)
from validator_xcmp_network import records
from validator_xcmp_network.errors import (
    AckAheadRelayParent,
    AckAlreadyAcked,
    AckBodyMissing,
    AckGap,
    AckNoProgress,
    AckOutOfOrder,
    AckUnknownMessage,
    BodyDuplicate,
    BodyNotExpected,
    BodyRootMismatch,
    BodySizeMismatch,
    CandidateAlreadyEnactedInBlock,
    CandidateUnknownPara,
    OutboxBitfieldMismatch,
    OutboxBytesExceeded,
    OutboxChannelFull,
    OutboxDuplicateRecipient,
    OutboxIngressFull,
    OutboxNoSuchChannel,
    OutboxNotSorted,
    RequestNotInForce,
)
from validator_xcmp_network.limits import SHOWN_MAX
from validator_xcmp_network.pages import PAGES, decode_state, encode_common_page, encode_para_page, owning_paras
from validator_xcmp_network.queues import IngressQueue, QueuedMessage
from validator_xcmp_network.records import Candidate, ChannelRequest, MessageName, OutboxMessage, ReportBody
from validator_xcmp_network.state import (
    NETWORK_MAXIMA,
    FixedChannels,
    IntraBlock,
    NetworkState,
    Setup,
    channel_limit,
    find_entry,
    has_channel,
    touch_channel,
    unread_in_channel,
    unread_of_recipient,
)

# --- acceptance -----------------------------------------------------------------------------------------------------------------------
# Candidate acceptance. It reads the state, reports violations and changes nothing.
#
# Its cost is in proportion to the messages that the candidate sends and acknowledges, not to the channels or the unread messages.
# Source: xcmp_rules 1.4 "Acceptance at relay parent rp".


_NOTHING = IngressQueue()


def check_candidate(state: NetworkState, env: Environment, candidate: Candidate, report: Report = refuse) -> None:
    """Check a candidate.

    Reports `CandidateUnknownPara`, then `CandidateAlreadyEnactedInBlock` (N-I11). Where the rules of XCMP channels hold, theirs come next:
    bitfield, message root, watermark. Then reports the violations of: order of recipients, channels, bounds, bitfield against outbox,
    acknowledgements, liveness, transitivity and fairness, order inside the highest block, bodies.
    """
    para = candidate.para_id
    if para not in state.paras:
        report(CandidateUnknownPara(para=para))
        return
    if _has_candidate_in_block(state, env, para):
        report(CandidateAlreadyEnactedInBlock(para=para, block=env.now))
    if state.is_composed:
        part = channel_part(state, candidate)
        xcmp.check_bitfield(state, part.para_id, part.bitfield, part.message_root, report)
        xcmp.check_watermark(state, part.para_id, part.relay_parent_number, part.watermark, report)
    check_outbox(state, para, candidate.outbox, report)
    if state.is_composed:
        check_bitfield_against_outbox(state, candidate, report)
    check_acks(state, para, candidate.acks, candidate.relay_parent_number, report)


def _has_candidate_in_block(state: NetworkState, env: Environment, para: ParaId) -> bool:
    """Return whether a para already has a candidate that is enacted, or on a chain that enacts on inclusion backed, in this block."""
    if env.settings.enactment is Enactment.IMMEDIATE:
        return state.enacted_in.get(para) == env.now
    return any(backed_at == env.now for backed_at, _ in state.pending_candidates.get(para, ()))


def check_inclusion(state: NetworkState, env: Environment, candidate: Candidate) -> None:
    """Check that a pending candidate may be enacted; if not, it stays pending. Raises `CandidateAlreadyEnactedInBlock`."""
    if state.enacted_in.get(candidate.para_id) == env.now:
        raise CandidateAlreadyEnactedInBlock(para=candidate.para_id, block=env.now)


def as_pending(state: NetworkState, candidate: Candidate) -> Candidate:
    """Return what counts of a candidate that waits for inclusion: on a chain with fixed channels, not what only channels have."""
    return candidate if state.is_composed else candidate._replace(watermark=None, bitfield="", message_root=None)


def channel_part(state: NetworkState, candidate: Candidate) -> XcmpCandidate:
    """Return the candidate that the rules of XCMP channels judge. A watermark of None stays where it is."""
    para, watermark = candidate.para_id, candidate.watermark
    return XcmpCandidate(
        para,
        candidate.relay_parent_number,
        state.watermarks.get(para, (0, 0)) if watermark is None else watermark,
        candidate.bitfield,
        candidate.message_root,
        candidate.candidate_hash,
    )


# --- outbox ------------------------------------------------------------------------------------------------------------------------------


def check_outbox(state: NetworkState, para: ParaId, outbox: tuple[OutboxMessage, ...], report: Report = refuse) -> None:
    """Check that recipients ascend, that channels lead to them, and that the messages fit; each for the whole list before the next.

    Reports `OutboxNotSorted`, `OutboxDuplicateRecipient`, `OutboxNoSuchChannel`, `OutboxChannelFull`, `OutboxIngressFull`,
    `OutboxBytesExceeded`.
    """
    for idx, (before, message) in enumerate(pairwise(outbox), 1):
        if message.recipient < before.recipient:
            report(OutboxNotSorted(idx=idx))
        if message.recipient == before.recipient:
            report(OutboxDuplicateRecipient(idx=idx, recipient=message.recipient))
    for idx, message in enumerate(outbox):
        channel_id = para, message.recipient
        if not has_channel(state, channel_id):
            report(OutboxNoSuchChannel(idx=idx, channel=channel_name(channel_id)))
    for idx, message in enumerate(outbox):
        if has_channel(state, (para, message.recipient)):
            _check_places(state, idx, para, message.recipient, report)
    total = sum(message.size for message in outbox)
    if total > state.network.max_block_bytes:
        report(OutboxBytesExceeded(total=total, limit=state.network.max_block_bytes))


def _check_places(state: NetworkState, idx: int, para: ParaId, recipient: ParaId, report: Report) -> None:
    channel_id = para, recipient
    count, limit = unread_in_channel(state, channel_id) + 1, channel_limit(state, channel_id)
    if count > limit:
        report(OutboxChannelFull(idx=idx, channel=channel_name(channel_id), count=count, limit=limit))
    count, ingress_limit = unread_of_recipient(state, recipient) + 1, state.network.max_ingress_messages
    if ingress_limit is not None and count > ingress_limit:
        report(OutboxIngressFull(idx=idx, recipient=recipient, count=count, limit=ingress_limit))


def check_bitfield_against_outbox(state: NetworkState, candidate: Candidate, report: Report = refuse) -> None:
    """Check that the candidate sends exactly over the marked channels. Reports `OutboxBitfieldMismatch`."""
    row = state.rows.get(candidate.para_id, [])
    marked = sorted(row[index].recipient for index in xcmp.marked_columns(candidate.bitfield[: len(row)]))
    if marked != [message.recipient for message in candidate.outbox]:
        report(OutboxBitfieldMismatch())


# --- acknowledgements --------------------------------------------------------------------------------------------------------------------


def check_acks(
    state: NetworkState,
    para: ParaId,
    acks: tuple[MessageName, ...],
    relay_parent_number: BlockNumber,
    report: Report = refuse,
) -> None:
    """Check a recipient's acknowledgements.

    Reports, for each in turn, `AckAheadRelayParent`, `AckAlreadyAcked` or `AckUnknownMessage`; then `AckNoProgress`, `AckGap`,
    `AckOutOfOrder`, `AckBodyMissing`.
    """
    queue = state.queues.get(para, _NOTHING)
    if not _check_names(queue, acks, relay_parent_number, report):
        return
    if not acks:
        if queue.has_unread(relay_parent_number):
            report(AckNoProgress(pending=_names(entry for entry in queue if entry.sent_at <= relay_parent_number)))
        return
    covered = queue.covered(acks)
    highest = max(covered)
    _check_fairness(queue, covered, highest, report)
    if state.network.intra_block is IntraBlock.PREFIX:
        _check_order(queue, covered[highest], highest, report)
    if state.network.require_bodies:
        _check_bodies(covered, report)


def _check_names(
    queue: IngressQueue, acks: tuple[MessageName, ...], relay_parent_number: BlockNumber, report: Report
) -> bool:
    """Return whether each acknowledgement names an unread message, once, that is visible at the relay parent (N-I05, N-I09, N-I13)."""
    named: set[MessageName] = set()
    good = 0
    for block, sender in acks:
        if block > relay_parent_number:
            report(AckAheadRelayParent(block=block, sender=sender))
        elif (block, sender) in named or (queue.find(block, sender) is None and _was_acked(queue, block, sender)):
            report(AckAlreadyAcked(block=block, sender=sender))
        elif queue.find(block, sender) is None:
            report(AckUnknownMessage(block=block, sender=sender))
        else:
            good += 1
        named.add((block, sender))
    return good == len(acks)


def _was_acked(queue: IngressQueue, block: BlockNumber, sender: ParaId) -> bool:
    if block > queue.watermark:
        return False
    return (block == queue.watermark and sender in queue.acked) or queue.memory.has(block, sender)


def _check_fairness(
    queue: IngressQueue, covered: dict[BlockNumber, list[QueuedMessage]], highest: BlockNumber, report: Report
) -> None:
    """Check that everything below the highest acknowledged block is covered. Stops at the first block that is not."""
    for height in queue.heights:
        if height >= highest:
            return
        if len(covered.get(height, ())) < len(queue.blocks[height].entries):
            report(AckGap(block=highest, missing=_names(_uncovered(queue, covered, highest))))
            return


def _uncovered(
    queue: IngressQueue, covered: dict[BlockNumber, list[QueuedMessage]], highest: BlockNumber
) -> Iterator[QueuedMessage]:
    taken = {(entry.sent_at, entry.sender) for entries in covered.values() for entry in entries}
    for entry in queue:
        if entry.sent_at >= highest:
            return
        if (entry.sent_at, entry.sender) not in taken:
            yield entry


def _check_order(queue: IngressQueue, chosen: list[QueuedMessage], block: BlockNumber, report: Report) -> None:
    """Check that the chosen messages of a block come from its lowest senders (N-I01, N-I14)."""
    expected = queue.blocks[block].senders()[: len(chosen)]
    if sorted(entry.sender for entry in chosen) != expected:
        report(AckOutOfOrder(block=block, expected=tuple(expected[:SHOWN_MAX])))


def _check_bodies(covered: dict[BlockNumber, list[QueuedMessage]], report: Report) -> None:
    missing = [(block, entry.sender) for block, entries in covered.items() for entry in entries if not entry.held]
    if missing:
        block, sender = min(missing)
        report(AckBodyMissing(block=block, sender=sender))


def _names(messages: Iterator[QueuedMessage]) -> tuple[MessageName, ...]:
    """Return the names of the first messages, as many as an error may list."""
    return tuple((entry.sent_at, entry.sender) for entry in islice(messages, SHOWN_MAX))


# --- enactment ------------------------------------------------------------------------------------------------------------------------
# Candidate enactment. It changes the state and cannot fail. Source: xcmp_rules 1.4 "Enactment".


def enact_candidate(state: NetworkState, env: Environment, candidate: Candidate) -> tuple[MessageRef, ...]:
    """Enact a candidate: its channels, if the rules of XCMP channels hold; then its acknowledgements, then its outbox.

    The second of a para in a block, which no block record may include, has no effect (N-I11).
    On a chain with fixed channels, the para has read the relay chain's own messages up to its relay parent (N-I15).
    """
    para = candidate.para_id
    if state.enacted_in.get(para) == env.now:
        return ()
    state.enacted_in[para] = env.now
    if state.is_composed:
        xcmp.enact_candidate(state, env, channel_part(state, candidate))
    else:
        env.received += xcmp.prune_downward_queue(state, para, candidate.relay_parent_number)
    state.touched.pages[para] = state.touched.paras[para] = None
    acknowledge(state, para, candidate.acks, env.ingress)
    send(state, para, candidate.outbox, env.now, env.ingress)
    return ()


def acknowledge(state: NetworkState, para: ParaId, acks: tuple[MessageName, ...], log: IngressLog) -> None:
    """Remove everything that the acknowledgements cover and is still unread; its bodies are free."""
    queue = state.queues.get(para)
    if queue is None:
        return
    for entry in queue.acknowledge(queue.covered(acks)):
        _emit(log, IngressEventKind.ACKNOWLEDGED, (entry.sender, para), entry)
        touch_channel(state, (entry.sender, para))


def send(
    state: NetworkState, para: ParaId, outbox: tuple[OutboxMessage, ...], now: BlockNumber, log: IngressLog
) -> None:
    """Append messages to their recipients' queues.

    A message is skipped if its channel has gone since acceptance, or if its name is taken by another candidate of the block (N-I16).
    """
    for recipient, root, size in outbox:
        channel_id = para, recipient
        if not has_channel(state, channel_id) or find_entry(state, recipient, now, para) is not None:
            continue
        entry = QueuedMessage(now, para, root, size)
        state.queues.setdefault(recipient, IngressQueue()).append(entry)
        _emit(log, IngressEventKind.QUEUED, channel_id, entry)
        touch_channel(state, channel_id)


def remove_messages(state: NetworkState, channel_id: ChannelId, log: IngressLog) -> None:
    """Remove the messages of a channel that is gone: fairness forbids its recipient to pass over them."""
    sender, recipient = channel_id
    touch_channel(state, channel_id)
    queue = state.queues.get(recipient)
    if queue is None:
        return
    for entry in queue.remove_sender(sender):
        _emit(log, IngressEventKind.REMOVED, channel_id, entry)
    if queue.is_blank:
        del state.queues[recipient]


def _emit(log: IngressLog, event: IngressEventKind, channel_id: ChannelId, entry: QueuedMessage) -> None:
    log.add(event, channel_id, sent_at=entry.sent_at, root=entry.root, size=entry.size)


# --- requests -------------------------------------------------------------------------------------------------------------------------
# Channel requests, and reports of bodies: the relay chain never sees a body: whoever holds one reports its root and size.
#
# Source: xcmp_rules 1.4 "Bodies".


REQUEST_NAMES: Final[Mapping[type[Any], str]] = {
    InitOpenChannel: "init_open_channel",
    AcceptOpenChannel: "accept_open_channel",
    AcceptOpenChannelFrom: "accept_open_channel",
}
"""Requests by the name that a trace gives them; the others close a channel."""


def apply_request(state: NetworkState, env: Environment, request: ChannelRequest) -> Effects:
    """Apply a request or a report. Raises `RequestNotInForce` for a request if the channels are fixed, then its own violations."""
    if isinstance(request, ReportBody):
        report_body(state, request)
        return Effects()
    if not state.is_composed:
        raise RequestNotInForce(request=REQUEST_NAMES.get(type(request), "close_channel"))
    return xcmp.apply_request(state, env, request)


def report_body(state: NetworkState, report: ReportBody) -> None:
    """Note that a message's body is held, until the message is acknowledged.

    Raises `BodyNotExpected` (N-I07), `BodySizeMismatch`, `BodyRootMismatch`, `BodyDuplicate`.
    """
    recipient, sender, sent_at, root, size = report
    entry = find_entry(state, recipient, sent_at, sender)
    if entry is None:
        raise BodyNotExpected(sender=sender, recipient=recipient, sent_at=sent_at)
    if size != entry.size:
        raise BodySizeMismatch(declared=entry.size, actual=size)
    if root != entry.root:
        raise BodyRootMismatch(expected=entry.root.hex())
    if entry.held:
        raise BodyDuplicate(sender=sender, recipient=recipient, sent_at=sent_at)

    entry.held = True
    state.touched.pages[recipient] = None


# --- session --------------------------------------------------------------------------------------------------------------------------
# The session change, which is the last step of its block. Source: xcmp_rules 1.4 "Session change", 1.2.


def change_session(state: NetworkState, env: Environment, change: SessionChange) -> None:
    """Change the session of the channels, then remove the messages of those that are gone, and the queues of paras that leave.

    Everything is settled under the old configuration; then the new one takes effect.
    """
    own: dict[str, Any] = {name: value for name, value in change.new_config if name in NETWORK_MAXIMA}
    theirs = tuple((name, value) for name, value in change.new_config if name not in NETWORK_MAXIMA)
    channels = replace(change, new_config=theirs)
    change_channels = _change_channels if state.is_composed else _offboard_and_onboard
    for channel_id in change_channels(state, env, channels):
        remove_messages(state, channel_id, env.ingress)
    for para in change.outgoing:
        if state.queues.pop(para, None) is not None:
            state.touched.pages[para] = state.touched.paras[para] = None
    if own:
        state.network = replace(state.network, **own)


def _change_channels(state: NetworkState, env: Environment, change: SessionChange) -> list[ChannelId]:
    """Apply the rules of XCMP channels and return the channels that they have closed, in order."""
    events = env.events
    before = len(events.events)
    xcmp.change_session(state, env, change)
    gone = []
    for event in events.events[before:]:
        channel_id = event.sender, event.recipient
        if event.event is ChannelEventKind.OPENED:
            state.touched.channels[channel_id] = None
        elif event.event is ChannelEventKind.CLOSED:
            gone.append(channel_id)
    return gone


def _offboard_and_onboard(state: NetworkState, env: Environment, change: SessionChange) -> list[ChannelId]:
    """Offboard and onboard paras, and return the fixed channels that leave with a para, in order. Pending candidates stay."""
    state.session_index += 1
    env.events.session = state.session_index
    gone: list[ChannelId] = []
    for para in dict.fromkeys(sorted(change.outgoing)):
        xcmp.offboard_para(state, env.events, para, {})
        gone += state.fixed_channels.remove_para(para)
    for onboarding in change.onboarding:
        xcmp.onboard_para(state, onboarding)
    if change.new_config:
        state.configuration = replace(state.configuration, **dict(change.new_config))
    return gone


# --- levels ---------------------------------------------------------------------------------------------------------------------------
# How full the ingress queues are (`validator.core.levels`).
#
# There are no upward messages, and the state does not count what a channel has sent.


def levels(state: NetworkState, _profile: Any, now: BlockNumber, choice: LevelChoice) -> Levels:
    """Return the levels after block ``now``; of fixed channels, which may be a great many, those that have messages."""
    paras, channels, left_out = wanted_subjects(state.paras, _channels(state), choice)
    closing = len(state.close_requests) + len(state.condemned)
    return Levels(
        lane_level(state.open_requests, state.configuration.xcmp_open_request_ttl, closing, state.pending_candidates),
        tuple(_para_level(state, para, now) for para in paras),
        tuple(_channel_level(state, channel_id) for channel_id in channels),
        left_out,
    )


def _channels(state: NetworkState) -> Iterable[ChannelId]:
    if state.is_composed:
        return ((sender, column.recipient) for sender, row in state.rows.items() for column in row)
    return ((sender, recipient) for recipient, queue in state.queues.items() for sender in queue.by_sender)


def _para_level(state: NetworkState, para: ParaId, now: BlockNumber) -> ParaLevel:
    queue = state.queues.get(para)
    lag = 0
    if queue is not None and queue.heights:
        lag = max(0, now - (queue.watermark or queue.heights[0] - 1))
    return para_level(state, para, lag)


def _channel_level(state: NetworkState, channel_id: ChannelId) -> ChannelLevel:
    sender, recipient = channel_id
    queue = state.queues.get(recipient)
    waiting = () if queue is None else queue.by_sender.get(sender, ())
    return ChannelLevel(
        *channel_id,
        messages=len(waiting),
        bytes=sum(entry.size for entry in waiting),
        messages_max=channel_limit(state, channel_id),
        bytes_max=None,
        oldest=waiting[0].sent_at if waiting else None,
        messages_sent=None,
        bytes_sent=None,
    )


# --- table ----------------------------------------------------------------------------------------------------------------------------


def genesis(settings: ChainSettings) -> NetworkState:
    """Return the state of a chain whose genesis paras are registered and whose fixed channels, if it has any, are open."""
    setup = settings.configuration
    assert isinstance(setup, Setup)
    state = NetworkState(
        setup.xcmp,
        settings.balances,
        network=setup.network,
        fixed_channels=FixedChannels(setup.open_channels),
    )
    for para in settings.paras:
        onboard_para(state, para)
    return state


def para_headroom(state: NetworkState, _profile: Any, para: ParaId) -> ParaHeadroom:
    """Return a para's partial watermark, without its senders, and the blocks of its unread messages."""
    if para not in state.paras:
        return ParaHeadroom(para, valid=False)
    queue = state.queues.get(para)
    blocks = () if queue is None else tuple(islice(queue.heights, HEADROOM_WATERMARKS_MAX))
    return ParaHeadroom(
        para,
        valid=True,
        downward_pending=len(state.downward_queues.get(para, ())),
        watermark=None if queue is None else queue.watermark,
        valid_watermarks=blocks,
    )


def channel_headroom(state: NetworkState, _profile: Any, channel_id: ChannelId) -> ChannelHeadroom:
    """Return the messages that a channel can still take, and the bytes that its sender's next candidate may declare."""
    if not has_channel(state, channel_id):
        return ChannelHeadroom(*channel_id, open=False)
    left = channel_limit(state, channel_id) - unread_in_channel(state, channel_id)
    size = state.network.max_block_bytes
    return ChannelHeadroom(*channel_id, open=True, places_left=max(0, left), bytes_left=size, message_size_max=size)


XCMP_NETWORK: Final[RuleSet[NetworkState]] = RuleSet(
    genesis=genesis,
    request=records.REQUEST_RECORDS.make,
    candidate=records.candidate,
    apply_request=apply_request,
    queue_downward=queue_downward_message,
    check_candidate=check_candidate,
    as_pending=as_pending,
    check_inclusion=check_inclusion,
    enact_candidate=enact_candidate,
    change_session=change_session,
    common_page=encode_common_page,
    headroom_page=lambda state: PAGES.headroom_page(state.touched),
    owners=owning_paras,
    page=encode_para_page,
    restore=decode_state,
    page_hashes=PAGES.hashes,
    para_headroom=para_headroom,
    channel_headroom=channel_headroom,
    levels=levels,
)
"""A relay chain's ingress queues under the rules of xcmp_networking.txt."""
