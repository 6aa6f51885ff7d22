# SPDX-License-Identifier: Apache-2.0
"""All invariants of the storage, recomputed from ground truth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from validator_xcmp import invariants as xcmp

from validator.plugin.protocol_api import ParaId
from validator.protocols.kit import channel_name, raise_if_broken
from validator_xcmp_network.limits import REMEMBERED_MAX
from validator_xcmp_network.queues import Entry, IngressQueue
from validator_xcmp_network.state import NetworkState, has_channel


def check_invariants(state: NetworkState) -> None:
    """Raise `InvariantBroken` with a sentence for every invariant that the state breaks."""
    raise_if_broken(broken_invariants(state))


def broken_invariants(state: NetworkState) -> Iterator[str]:
    """Yield a sentence for each invariant that does not hold, those of XCMP channels first."""
    yield from xcmp.broken_invariants(state)
    yield from _channels(state)
    for recipient, queue in sorted(state.queues.items()):
        yield from _queue(state, recipient, queue)
        yield from _derived(recipient, queue)


def _channels(state: NetworkState) -> Iterator[str]:
    fixed = list(state.fixed_channels)
    if state.is_composed and fixed:
        yield f"channel {channel_name(fixed[0])} is fixed on a chain whose channels open and close"
    if not state.is_composed and state.rows:
        yield f"para {min(state.rows)} has a row on a chain whose channels are fixed"
    for sender, recipient in fixed:
        if sender == recipient:
            yield f"channel {channel_name((sender, recipient))} leads to its sender"


def _queue(state: NetworkState, recipient: ParaId, queue: IngressQueue) -> Iterator[str]:
    if queue.is_blank:
        yield f"the ingress queue of {recipient} is blank"
    if recipient not in state.paras and (queue.watermark or queue.acked):
        yield f"{recipient} has acknowledged messages but is not a registered para"
    for entry in _entries(queue):
        name = f"message ({entry.sent_at}, {entry.sender}) to {recipient}"
        if not has_channel(state, (entry.sender, recipient)):
            yield f"{name} belongs to no channel"
        if entry.sent_at < queue.watermark or (entry.sent_at == queue.watermark and entry.sender in queue.acked):
            yield f"{name} is queued, but acknowledged according to the watermark"
    if queue.acked and queue.watermark not in queue.blocks:
        yield f"the watermark of {recipient} names block {queue.watermark}, of which nothing is unread"
    if len(queue.memory.names) > 8 * REMEMBERED_MAX:
        yield f"{recipient} remembers {len(queue.memory.names) // 8} messages"


def _derived(recipient: ParaId, queue: IngressQueue) -> Iterator[str]:
    """Compare what is derived with the entries of all blocks."""
    listed = _entries(queue)
    if not all(sent.entries for sent in queue.blocks.values()):
        yield f"a block of the ingress queue of {recipient} is empty"
    if list(queue.heights) != sorted(queue.blocks):
        yield f"heights of {recipient} are {list(queue.heights)}, the blocks {sorted(queue.blocks)}"
    if queue.count != len(listed):
        yield f"count of {recipient} is {queue.count}, the entries are {len(listed)}"
    for block, sent in queue.blocks.items():
        if any((entry.sent_at, entry.sender) != (block, sender) for sender, entry in sent.entries.items()):
            yield f"an entry of block {block} to {recipient} is in a wrong place"
        if sent.senders() != sorted(sent.entries):
            yield f"senders of block {block} to {recipient} are {sent.senders()}"
    by_sender = [entry for senders in queue.by_sender.values() for entry in senders]
    if sorted(map(id, by_sender)) != sorted(map(id, listed)) or not all(map(_ascends, queue.by_sender.values())):
        yield f"by_sender of {recipient} is not the entries of the blocks"
    if any(entry.sender != sender for sender, own in queue.by_sender.items() for entry in own):
        yield f"by_sender of {recipient} has an entry of another sender"


def _entries(queue: IngressQueue) -> list[Entry]:
    return [entry for sent in queue.blocks.values() for entry in sent.entries.values()]


def _ascends(own: Sequence[Entry]) -> bool:
    return bool(own) and all(earlier.sent_at < later.sent_at for earlier, later in pairwise(own))
