# SPDX-License-Identifier: Apache-2.0
"""The storage of XCMP networking: that of XCMP channels, and the ingress queues; its limits and its invariants.

A chain with fixed channels keeps the first part for its paras, accounts and downward queues; its rows stay empty. Each field's docstring
states its invariants; `check_invariants` recomputes all of them.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Final

from validator_xcmp import state as xcmp
from validator_xcmp.state import LIMITS as XCMP_LIMITS
from validator_xcmp.state import MAXIMA as XCMP_MAXIMA
from validator_xcmp.state import XcmpConfiguration, XcmpState, find_column
from validator_xcmp.state import read_configuration as read_xcmp_configuration

from validator.plugin.protocol_api import U32_MAX, BlockNumber, ChannelId, DecodeError, Node, ParaId
from validator.protocols.kit import channel_name, raise_if_broken
from validator_xcmp_network.limits import OPEN_CHANNELS_MAX, REMEMBERED_MAX
from validator_xcmp_network.queues import IngressQueue, QueuedMessage

# --- configuration --------------------------------------------------------------------------------------------------------------------
# The relay chain's configuration: bounds, and how recipients and channels are handled. Names come from the conformance format.


class IntraBlock(StrEnum):
    """Which messages of its lowest unread block a recipient may acknowledge first (N-I01)."""

    FREE = "free"
    """Any of them."""
    PREFIX = "prefix"
    """Those of the lowest senders."""


class ChannelMode(StrEnum):
    """Where the channels come from."""

    FIXED = "fixed"
    """The configuration lists them; nobody opens or closes one."""
    XCMP = "xcmp"
    """The rules of XCMP channels open and close them."""


@dataclass(frozen=True, slots=True)
class NetworkConfiguration:
    """The bounds of the ingress queues, in messages and bytes, and the modes of the chain. Source: xcmp_rules 1.4."""

    max_block_bytes: int = 1_000_000
    """Maximum total declared size of a candidate's logical messages, in bytes (N-I04)."""
    max_channel_messages: int = 8
    """Maximum unacknowledged messages of a fixed channel (N-I03). A channel of mode ``xcmp`` has its own capacity instead."""
    max_ingress_messages: int | None = None
    """Maximum unacknowledged messages of a recipient over all senders; None for no such bound."""
    intra_block: IntraBlock = IntraBlock.FREE
    require_bodies: bool = False
    """Whether a message can be acknowledged only after its body has been reported (N-I06)."""
    channels: ChannelMode = ChannelMode.FIXED


@dataclass(frozen=True, slots=True)
class Setup:
    """What a chain's configuration says: bounds and modes, the limits of XCMP channels, and the fixed channels."""

    network: NetworkConfiguration = field(default_factory=NetworkConfiguration)
    xcmp: XcmpConfiguration = field(default_factory=XcmpConfiguration)
    open_channels: tuple[ChannelId, ...] = ()


NETWORK_MAXIMA: Final[Mapping[str, int]] = {
    "max_block_bytes": U32_MAX,
    "max_channel_messages": U32_MAX,
    "max_ingress_messages": U32_MAX,
}
"""Maximum of each bound."""
MAXIMA: Final[Mapping[str, int]] = {**NETWORK_MAXIMA, **XCMP_MAXIMA}
"""Maximum of each limit that a session change may set."""
OPEN_CHANNELS: Final = "open_channels"
LIMITS: Final = (*NETWORK_MAXIMA, "intra_block", "require_bodies", "channels", OPEN_CHANNELS, *XCMP_LIMITS)
"""All names that a configuration may contain."""


def read_configuration(node: Node) -> Setup:
    """Read a chain's configuration; what is not given has its default. Raises `validator.errors.UserError`."""
    node.refuse_misspelt(LIMITS)
    mode = ChannelMode(node.get("channels", lambda each: each.one_of(list(ChannelMode)), ChannelMode.FIXED))
    if mode is ChannelMode.XCMP and node.has(OPEN_CHANNELS):
        raise node[OPEN_CHANNELS].fail("no list: requests open the channels of a chain with channels = 'xcmp'")
    network = NetworkConfiguration(
        **{name: node[name].integer(greatest) for name, greatest in NETWORK_MAXIMA.items() if node.has(name)},
        intra_block=IntraBlock(node.get("intra_block", lambda each: each.one_of(list(IntraBlock)), IntraBlock.FREE)),
        require_bodies=node.get("require_bodies", Node.boolean, False),
        channels=mode,
    )
    return Setup(network, read_xcmp_configuration(_xcmp_part(node)), node.get(OPEN_CHANNELS, _open_channels, ()))


def _xcmp_part(node: Node) -> Node:
    return Node({name: value for name, value in node.object().items() if name in XCMP_LIMITS}, node.path)


def _open_channels(node: Node) -> tuple[ChannelId, ...]:
    """Read fixed channels from ``[[sender, recipient], ...]``."""
    found: dict[ChannelId, None] = {}
    for item in node.items():
        if len(found) == OPEN_CHANNELS_MAX:
            raise Node(OPEN_CHANNELS_MAX + 1, node.path).fail(f"at most {OPEN_CHANNELS_MAX} channels")
        ends = [end.integer() for end in item.items()]
        if len(ends) != 2 or ends[0] == ends[1]:
            raise item.fail("[sender, recipient] of two paras")
        channel_id = ends[0], ends[1]
        if channel_id in found:
            raise item.fail("a channel that is not listed before")
        found[channel_id] = None
    return tuple(found)


# --- fixed channels -------------------------------------------------------------------------------------------------------------------
# The fixed set of channels: packed, so that a channel that nobody uses costs four bytes.


_ITEM_BYTES = 4


class FixedChannels:
    """Channels that a configuration lists. They only ever go, with a para that leaves."""

    __slots__ = ("_senders",)

    def __init__(self, channels: Iterable[ChannelId] = ()) -> None:
        by_recipient: dict[ParaId, list[ParaId]] = {}
        for sender, recipient in channels:
            by_recipient.setdefault(recipient, []).append(sender)
        self._senders = {recipient: array("I", sorted(senders)) for recipient, senders in by_recipient.items()}

    def __contains__(self, channel_id: ChannelId) -> bool:
        sender, recipient = channel_id
        senders = self._senders.get(recipient)
        if senders is None:
            return False
        at = bisect_left(senders, sender)
        return at < len(senders) and senders[at] == sender

    def __iter__(self) -> Iterator[ChannelId]:
        """Yield the channels by recipient, then by sender, ascending."""
        for recipient in sorted(self._senders):
            for sender in self._senders[recipient]:
                yield sender, recipient

    def recipients(self) -> Iterable[ParaId]:
        """Return the paras to which a channel leads."""
        return self._senders.keys()

    def remove_para(self, para: ParaId) -> list[ChannelId]:
        """Remove the channels to a para, then those from it, each ascending, and return them."""
        removed = [(sender, para) for sender in self._senders.pop(para, ())]
        for recipient in sorted(self._senders):
            if (para, recipient) in self:
                senders = self._senders[recipient]
                del senders[bisect_left(senders, para)]
                if not senders:
                    del self._senders[recipient]
                removed.append((para, recipient))
        return removed

    def packed(self, recipient: ParaId) -> bytes:
        """Return the senders of a recipient, ascending, each as a u32 in little endian."""
        return _little_endian(self._senders.get(recipient, array("I"))).tobytes()

    def unpack(self, recipient: ParaId, packed: bytes) -> None:
        """Set the senders of a recipient from `packed`. Raises `DecodeError`."""
        if len(packed) % _ITEM_BYTES:
            raise DecodeError(
                f"senders of {recipient}: expected a multiple of {_ITEM_BYTES} bytes, found {len(packed)}"
            )
        if packed:
            senders = array("I", packed)
            self._senders[recipient] = _little_endian(senders)


def _little_endian(items: array[int]) -> array[int]:
    if sys.byteorder == "little":
        return items
    swapped = array("I", items)
    swapped.byteswap()
    return swapped


# --- state ----------------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class NetworkState(XcmpState):
    """Everything the rules may look at, except the block number, which is an argument."""

    network: NetworkConfiguration = field(default_factory=NetworkConfiguration)
    fixed_channels: FixedChannels = field(default_factory=FixedChannels)
    """Invariant: empty unless the chain's channels are fixed."""
    queues: dict[ParaId, IngressQueue] = field(default_factory=dict)
    """By recipient, never blank. Invariant: every entry belongs to a channel. The egress queues are the same entries, seen by sender."""
    enacted_in: dict[ParaId, BlockNumber] = field(default_factory=dict, compare=False)
    """The block in which a para's last candidate was enacted. Not saved: blocks are executed whole, and only the current one matters."""

    @property
    def is_composed(self) -> bool:
        """Whether the rules of XCMP channels open and close the channels."""
        return self.network.channels is ChannelMode.XCMP


def has_channel(state: NetworkState, channel_id: ChannelId) -> bool:
    """Return whether a channel is open."""
    return find_column(state, channel_id) is not None if state.is_composed else channel_id in state.fixed_channels


def channel_limit(state: NetworkState, channel_id: ChannelId) -> int:
    """Return how many unacknowledged messages an open channel may hold."""
    column = find_column(state, channel_id) if state.is_composed else None
    return state.network.max_channel_messages if column is None else column.capacity


def unread_in_channel(state: NetworkState, channel_id: ChannelId) -> int:
    """Return the number of a channel's unacknowledged messages."""
    sender, recipient = channel_id
    queue = state.queues.get(recipient)
    return 0 if queue is None else queue.unread_of(sender)


def unread_of_recipient(state: NetworkState, recipient: ParaId) -> int:
    """Return the number of a recipient's unacknowledged messages."""
    queue = state.queues.get(recipient)
    return 0 if queue is None else queue.count


def find_entry(state: NetworkState, recipient: ParaId, sent_at: BlockNumber, sender: ParaId) -> QueuedMessage | None:
    """Return an unacknowledged message, or None."""
    queue = state.queues.get(recipient)
    return None if queue is None else queue.find(sent_at, sender)


def entries(state: NetworkState) -> Iterator[tuple[ParaId, QueuedMessage]]:
    """Yield every entry with its recipient: by recipient, then in queue order."""
    for recipient in sorted(state.queues):
        for entry in state.queues[recipient]:
            yield recipient, entry


def touch_channel(state: NetworkState, channel_id: ChannelId) -> None:
    """Mark a channel's headroom, and its recipient's page and headroom, as changed."""
    touched = state.touched
    touched.channels[channel_id] = None
    touched.pages[channel_id[1]] = touched.paras[channel_id[1]] = None


# --- invariants -----------------------------------------------------------------------------------------------------------------------
# All invariants of the storage, recomputed from ground truth.


def check_invariants(state: NetworkState, _profile: object = None) -> None:
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


def _entries(queue: IngressQueue) -> list[QueuedMessage]:
    return [entry for sent in queue.blocks.values() for entry in sent.entries.values()]


def _ascends(own: Sequence[QueuedMessage]) -> bool:
    return bool(own) and all(earlier.sent_at < later.sent_at for earlier, later in pairwise(own))
