# SPDX-License-Identifier: Apache-2.0
"""Storage that is made up: a naive model of what candidates, requests and sessions do to the items that a lane is compared with.

It is written from the relay chain's pallets (polkadot-sdk, polkadot/runtime/parachains/src/{hrmp,dmp}.rs) and shares no code with the
rules of the lanes. Values are plain Python until `MadeState.storage` encodes all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from validator.plugin.api import Writer
from validator_relay_chain import keys
from validator_relay_chain.candidates import BackedCandidate
from validator_relay_chain.downward import Meta, encode_meta, encode_page
from validator_relay_chain.hashing import blake2b_256
from validator_relay_chain.storage import Channel, Queued, encode_channel, encode_queue

PARACHAIN: Final = b"\x02"
"""`ParaLifecycle::Parachain`."""
NO_HEAD: Final = bytes(32)
CAPACITY: Final = 1_000
SIZE_MAX: Final = 102_400
DEPOSIT: Final = 100_000_000_000
PAGES_AT_ONCE: Final = 3
"""Dead pages that a block removes: where a para goes, and in its idle time. Source: chain_2026 section 3."""


ChannelId = tuple[int, int]


def link(head: bytes | None, block: int, message: bytes) -> bytes:
    """Return the head of a message queue chain, of a channel or a downward queue, after one more message."""
    encoded = Writer()
    encoded.bytes(message)
    return blake2b_256((head or NO_HEAD) + block.to_bytes(4, "little") + blake2b_256(bytes(encoded.buffer)))


def pending_storage(descriptor: bytes, commitments: bytes, backed_at: int) -> dict[bytes, bytes]:
    """Return `PendingAvailability` and its commitments of a candidate, as runtimes before 1003003 store them."""
    para = int.from_bytes(descriptor[:4], "little")
    out = Writer()
    out.u32(0)  # core
    out.hash(blake2b_256(descriptor + blake2b_256(commitments)))
    out.buffer += descriptor
    out.compact(0)  # votes for availability
    out.compact(0)  # backers
    out.u32(backed_at - 1)
    out.u32(backed_at)
    out.u32(0)  # group
    return {
        keys.para_key(keys.PENDING, para): bytes(out.buffer),
        keys.para_key(keys.PENDING_COMMITMENTS, para): commitments,
    }


@dataclass
class MadeState:
    """The storage of a made-up chain, or what is made up next to a recorded one."""

    lifecycles: dict[int, bytes] = field(default_factory=dict)
    channels: dict[ChannelId, Channel] = field(default_factory=dict)
    contents: dict[ChannelId, list[Queued]] = field(default_factory=dict)
    digests: dict[int, list[tuple[int, list[int]]]] = field(default_factory=dict)
    watermarks: dict[int, int] = field(default_factory=dict)
    downward: dict[int, list[Queued]] = field(default_factory=dict)
    """Downward messages that one value for each para holds."""
    pages: dict[int, dict[int, Queued]] = field(default_factory=dict)
    """Downward messages in pages, by number; those that are dead are not among them."""
    dead_pages: dict[int, dict[int, Queued]] = field(default_factory=dict)
    """Pages that nobody should read: what a para that is gone has left, until idle time removes it."""
    next_pages: dict[int, int] = field(default_factory=dict)
    has_pages: bool = False
    """Whether downward queues have pages; what is not migrated yet stays in one value."""
    downward_heads: dict[int, bytes] = field(default_factory=dict)
    requests: dict[ChannelId, bool] = field(default_factory=dict)
    """Open requests, and whether the recipient has accepted."""
    closing: list[ChannelId] = field(default_factory=list)
    other: dict[bytes, bytes] = field(default_factory=dict)
    """Values of other items, encoded, such as the configuration."""

    # --- what blocks do ---

    def include(self, block: int, candidate: BackedCandidate) -> None:
        """Enact a candidate in the block that includes it."""
        para = candidate.para_id
        for _ in range(candidate.processed_downward_messages):
            self._take_downward(para)
        for sender, recipient in [each for each in self.contents if each[1] == para]:
            self._prune(sender, recipient, candidate.hrmp_watermark)
        self.digests[para] = [each for each in self.digests.get(para, []) if each[0] > candidate.hrmp_watermark]
        self.watermarks[para] = candidate.hrmp_watermark
        for message in candidate.horizontal_messages:
            self._send(block, para, message.recipient, message.data)

    def send_downward(self, block: int, para: int, message: bytes) -> None:
        """Queue a downward message: in a page, if there are pages and nothing of the para waits elsewhere."""
        if self.has_pages and not self.downward.get(para):
            self._add_page(para, Queued(block, message))
        else:
            self.downward.setdefault(para, []).append(Queued(block, message))
        self.downward_heads[para] = link(self.downward_heads.get(para), block, message)

    def migrate(self, para: int, count: int) -> None:
        """Move the oldest messages of a para from its one value to pages."""
        for message in self.downward[para][:count]:
            self._add_page(para, message)
        del self.downward[para][:count]

    def bury(self, para: int) -> None:
        """Remove the first pages of a para, and leave the others behind, dead."""
        left = self.pages.pop(para, {})
        for number in sorted(left)[:PAGES_AT_ONCE]:
            del left[number]
        self.dead_pages.setdefault(para, {}).update(left)

    def idle(self) -> None:
        """Remove dead pages, as the idle time of a block does; a para that returns after its last one begins with page 0."""
        dead = sorted((para, number) for para, pages in self.dead_pages.items() for number in pages)
        for para, number in dead[:PAGES_AT_ONCE]:
            del self.dead_pages[para][number]
            if not self.dead_pages[para] and para not in self.pages:
                del self.next_pages[para]

    def _add_page(self, para: int, message: Queued) -> None:
        number = self.next_pages.get(para, 0)
        self.pages.setdefault(para, {})[number] = message
        self.next_pages[para] = number + 1

    def _take_downward(self, para: int) -> None:
        pages, queue = self.pages.get(para), self.downward.get(para)
        if pages:
            del pages[min(pages)]
        elif queue:
            del queue[0]

    def open_channel(self, sender: int, recipient: int, head: bytes | None = None) -> None:
        """Open a channel with usual limits."""
        self.channels[sender, recipient] = Channel(CAPACITY, SIZE_MAX, SIZE_MAX, 0, 0, head, DEPOSIT, DEPOSIT)

    def change_session(self) -> None:
        """Open what was accepted, remove what was closed."""
        for channel in [each for each, accepted in self.requests.items() if accepted]:
            del self.requests[channel]
            self.open_channel(*channel)
        for channel in self.closing:
            self.channels.pop(channel, None)
            self.contents.pop(channel, None)
        self.closing.clear()

    def _send(self, block: int, sender: int, recipient: int, data: bytes) -> None:
        channel = self.channels[sender, recipient]
        self.contents.setdefault((sender, recipient), []).append(Queued(block, data))
        self.channels[sender, recipient] = channel._replace(
            msg_count=channel.msg_count + 1,
            total_size=channel.total_size + len(data),
            mqc_head=link(channel.mqc_head, block, data),
        )
        days = self.digests.setdefault(recipient, [])
        if not days or days[-1][0] != block:
            days.append((block, []))
        if sender not in days[-1][1]:
            days[-1][1].append(sender)

    def _prune(self, sender: int, recipient: int, watermark: int) -> None:
        waiting = self.contents[sender, recipient]
        gone = [each for each in waiting if each.sent_at <= watermark]
        self.contents[sender, recipient] = waiting[len(gone) :]
        channel = self.channels[sender, recipient]
        self.channels[sender, recipient] = channel._replace(
            msg_count=channel.msg_count - len(gone), total_size=channel.total_size - sum(len(each.msg) for each in gone)
        )

    # --- storage ---

    def storage(self) -> dict[bytes, bytes]:
        """Return every value by its key."""
        found = dict(self.other)
        for para, lifecycle in self.lifecycles.items():
            found[keys.para_key(keys.PARA_LIFECYCLES, para)] = lifecycle
        for channel, value in self.channels.items():
            found[keys.channel_key(keys.HRMP_CHANNELS, *channel)] = encode_channel(value)
        for channel, messages in self.contents.items():
            if messages:
                found[keys.channel_key(keys.HRMP_CONTENTS, *channel)] = encode_queue(messages)
        for para, days in self.digests.items():
            if days:
                found[keys.para_key(keys.HRMP_DIGESTS, para)] = _digests(days)
        for para, block in self.watermarks.items():
            found[keys.para_key(keys.HRMP_WATERMARKS, para)] = block.to_bytes(4, "little")
        for para, queue in self.downward.items():
            if queue:
                found[keys.para_key(keys.DMP_QUEUES, para)] = encode_queue(queue)
        for para, pages in self.pages.items():
            end = self.next_pages[para]
            found[keys.para_key(keys.DMP_META, para)] = encode_meta(Meta(min(pages, default=end), end))
        for waiting in (self.pages, self.dead_pages):
            for para, pages in waiting.items():
                for number, message in pages.items():
                    found[keys.page_key(para, number)] = encode_page(message)
        for para, head in self.downward_heads.items():
            found[keys.para_key(keys.DMP_HEADS, para)] = head
        return found | self._indices() | self._requests()

    def _indices(self) -> dict[bytes, bytes]:
        found = {}
        for item, own, other in ((keys.HRMP_EGRESS, 0, 1), (keys.HRMP_INGRESS, 1, 0)):
            for para in {each[own] for each in self.channels}:
                found[keys.para_key(item, para)] = _list(
                    sorted(each[other] for each in self.channels if each[own] == para)
                )
        return found

    def _requests(self) -> dict[bytes, bytes]:
        found = {}
        for channel, accepted in self.requests.items():
            found[keys.channel_key(keys.HRMP_OPEN_REQUESTS, *channel)] = _request(accepted=accepted)
        for channel in self.closing:
            found[keys.channel_key(keys.HRMP_CLOSE_REQUESTS, *channel)] = b""
        for item, channels in (
            (keys.HRMP_OPEN_REQUESTS_LIST, list(self.requests)),
            (keys.HRMP_CLOSE_REQUESTS_LIST, self.closing),
        ):
            if channels:
                found[item] = _list([para for channel in channels for para in channel], len(channels))
        return found


def _list(numbers: Iterable[int], count: int | None = None) -> bytes:
    values = list(numbers)
    out = Writer()
    out.compact(len(values) if count is None else count)
    for value in values:
        out.u32(value)
    return bytes(out.buffer)


def _digests(days: list[tuple[int, list[int]]]) -> bytes:
    out = Writer()
    out.compact(len(days))
    for block, senders in days:
        out.u32(block)
        out.buffer += _list(senders)
    return bytes(out.buffer)


def _request(*, accepted: bool) -> bytes:
    out = Writer()
    out.u8(accepted)
    out.u32(0)
    out.u128(DEPOSIT)
    for limit in (SIZE_MAX, CAPACITY, SIZE_MAX):
        out.u32(limit)
    return bytes(out.buffer)
