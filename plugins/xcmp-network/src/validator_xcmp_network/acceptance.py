# SPDX-License-Identifier: Apache-2.0
"""Candidate acceptance. It reads the state, reports violations and changes nothing.

Its cost is in proportion to the messages that the candidate sends and acknowledges, not to the channels or the unread messages.
Source: xcmp_rules 1.4 "Acceptance at relay parent rp".
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise

from validator_xcmp import acceptance as xcmp
from validator_xcmp.records import Candidate as XcmpCandidate

from validator.plugin.protocol_api import BlockNumber, Enactment, Environment, ParaId, Report, refuse
from validator.protocols.kit import channel_name
from validator_xcmp_network.configuration import IntraBlock
from validator_xcmp_network.errors import (
    AckAheadRelayParent,
    AckAlreadyAcked,
    AckBodyMissing,
    AckGap,
    AckNoProgress,
    AckOutOfOrder,
    AckUnknownMessage,
    CandidateAlreadyEnactedInBlock,
    CandidateUnknownPara,
    OutboxBitfieldMismatch,
    OutboxBytesExceeded,
    OutboxChannelFull,
    OutboxDuplicateRecipient,
    OutboxIngressFull,
    OutboxNoSuchChannel,
    OutboxNotSorted,
)
from validator_xcmp_network.limits import SHOWN_MAX
from validator_xcmp_network.queues import Entry, IngressQueue
from validator_xcmp_network.records import Candidate, MessageName, OutboxMessage
from validator_xcmp_network.state import (
    NetworkState,
    channel_limit,
    has_channel,
    unread_in_channel,
    unread_of_recipient,
)

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
    queue: IngressQueue, covered: dict[BlockNumber, list[Entry]], highest: BlockNumber, report: Report
) -> None:
    """Check that everything below the highest acknowledged block is covered. Stops at the first block that is not."""
    for height in queue.heights:
        if height >= highest:
            return
        if len(covered.get(height, ())) < len(queue.blocks[height].entries):
            report(AckGap(block=highest, missing=_names(_uncovered(queue, covered, highest))))
            return


def _uncovered(queue: IngressQueue, covered: dict[BlockNumber, list[Entry]], highest: BlockNumber) -> Iterator[Entry]:
    taken = {(entry.sent_at, entry.sender) for entries in covered.values() for entry in entries}
    for entry in queue:
        if entry.sent_at >= highest:
            return
        if (entry.sent_at, entry.sender) not in taken:
            yield entry


def _check_order(queue: IngressQueue, chosen: list[Entry], block: BlockNumber, report: Report) -> None:
    """Check that the chosen messages of a block come from its lowest senders (N-I01, N-I14)."""
    expected = queue.blocks[block].senders()[: len(chosen)]
    if sorted(entry.sender for entry in chosen) != expected:
        report(AckOutOfOrder(block=block, expected=tuple(expected[:SHOWN_MAX])))


def _check_bodies(covered: dict[BlockNumber, list[Entry]], report: Report) -> None:
    missing = [(block, entry.sender) for block, entries in covered.items() for entry in entries if not entry.held]
    if missing:
        block, sender = min(missing)
        report(AckBodyMissing(block=block, sender=sender))


def _names(messages: Iterator[Entry]) -> tuple[MessageName, ...]:
    """Return the names of the first messages, as many as an error may list."""
    return tuple((entry.sent_at, entry.sender) for entry in islice(messages, SHOWN_MAX))
