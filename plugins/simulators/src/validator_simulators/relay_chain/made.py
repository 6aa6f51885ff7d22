# SPDX-License-Identifier: Apache-2.0
"""Blocks and storage that are made up: what no recording has, such as session changes, requests, time-outs, upgrades and forks.

A made block has true roots: that of its extrinsics, and that of all of its storage, so that proofs of it verify. Its events have the
indices of Polkadot's runtimes 9430 and 1000001; a test decodes them with the recorded metadata. The storage comes from a naive model of
what candidates, requests and sessions do to the items that a lane is compared with. It is written from the relay chain's pallets
(polkadot-sdk, polkadot/runtime/parachains/src/{hrmp,dmp}.rs), shares no code with the rules of the lanes, and keeps plain Python values
until `MadeState.storage` encodes all of them.

A recorded run has only events: `make_up_storage` adds what a lane needs to join it, and what the run's candidates lead to. Its candidates,
inclusions and the pending candidates of the first block are real. Channels, downward messages and lifecycles are what the caller gives.
Pending candidates are there after the first block alone, where a lane joins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from validator_relay_chain import keys
from validator_relay_chain.block import ChainBlock, Receipt, decode_block, read_block
from validator_relay_chain.candidates import BackedCandidate, HorizontalMessage
from validator_relay_chain.hashing import blake2b_256
from validator_relay_chain.header import Header, to_hex
from validator_relay_chain.layout import DESCRIPTOR_BYTES
from validator_relay_chain.metadata import Runtime
from validator_relay_chain.storage import Channel, Meta, Queued, encode_channel, encode_meta, encode_page, encode_queue
from validator_relay_chain.trie import ordered_root, root_of

from validator.plugin.api import Reader, Writer
from validator_simulators.relay_chain.recording import RecordedBlock, Recording

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


INHERENT: Final = bytes.fromhex("043600")
"""Version of an unsigned extrinsic, then pallet and call of `ParaInherent.enter`."""
TIMESTAMP: Final = bytes.fromhex("280403000b70b3c01f8c01")
"""An extrinsic that is no business of a lane: `Timestamp.set`."""
RUNTIME_UPDATED: Final = b"\x08"
"""A digest's item: the code is another one after this block."""

EVENTS: Final = {
    "Session.NewSession": (9, 0),
    "ParaInclusion.CandidateBacked": (53, 0),
    "ParaInclusion.CandidateIncluded": (53, 1),
    "ParaInclusion.CandidateTimedOut": (53, 2),
    "ParaInclusion.UpwardMessagesReceived": (53, 3),
    "Hrmp.OpenChannelRequested": (60, 0),
    "Hrmp.OpenChannelCanceled": (60, 1),
    "Hrmp.OpenChannelAccepted": (60, 2),
    "Hrmp.ChannelClosed": (60, 3),
    "Hrmp.HrmpChannelForceOpened": (60, 4),
}
"""Indices of pallet and event."""

INITIALIZATION: Final = b"\x02"
APPLY: Final = b"\x00\x01\x00\x00\x00"
"""The phases of an event: before all extrinsics, and in the second one, which is the inherent."""


@dataclass(frozen=True, slots=True)
class MadeCandidate:
    """A candidate that a block backs. ``relay_parent`` is a hash."""

    para_id: int
    relay_parent: bytes
    hrmp_watermark: int
    upward_messages: tuple[bytes, ...] = ()
    horizontal_messages: tuple[tuple[int, bytes], ...] = ()
    processed_downward_messages: int = 0
    head_data: bytes = b"head"

    def descriptor(self) -> bytes:
        """Return the descriptor in SCALE: para, relay parent, and 256 bytes that nothing reads."""
        return self.para_id.to_bytes(4, "little") + self.relay_parent + bytes(32 + 4 * 32 + 64 + 32)

    def commitments(self) -> bytes:
        """Return the commitments in SCALE."""
        out = Writer()
        out.compact(len(self.upward_messages))
        for message in self.upward_messages:
            out.bytes(message)
        out.compact(len(self.horizontal_messages))
        for recipient, data in self.horizontal_messages:
            out.u32(recipient)
            out.bytes(data)
        out.u8(0)
        out.bytes(self.head_data)
        out.u32(self.processed_downward_messages)
        out.u32(self.hrmp_watermark)
        return bytes(out.buffer)

    def receipt(self) -> bytes:
        """Return the candidate's receipt: descriptor and hash of the commitments."""
        return self.descriptor() + blake2b_256(self.commitments())

    def backed(self) -> BackedCandidate:
        """Return the candidate as a lane's transport reads it."""
        commitments_hash = blake2b_256(self.commitments())
        return BackedCandidate(
            self.para_id, self.relay_parent, blake2b_256(self.receipt()), commitments_hash, self.upward_messages, len(self.upward_messages),
            tuple(HorizontalMessage(*each) for each in self.horizontal_messages),
            self.processed_downward_messages, self.hrmp_watermark, self.head_data,
        )  # fmt: skip


@dataclass
class MadeChain:
    """A chain that grows block by block from ``state``, into ``recording``. Candidates take effect where they are included."""

    recording: Recording
    state: MadeState
    number: int
    parent: bytes
    """Number and hash of the block before the next one."""
    spec_version: int = 9430
    session: int = 0
    _pending: dict[int, MadeCandidate] = field(default_factory=dict)
    _backed_at: dict[int, int] = field(default_factory=dict)
    """Of the last candidate of each para."""

    def add(
        self,
        *,
        backed: Iterable[MadeCandidate] = (),
        included: Iterable[int] = (),
        timed_out: Iterable[int] = (),
        requests: Iterable[tuple[str, int, int]] = (),
        downward: Iterable[tuple[int, bytes]] = (),
        changes: Mapping[bytes, bytes | None] | None = None,
        new_session: bool = False,
        upgrade_to: int | None = None,
        canonical: bool = True,
        hidden: Callable[[MadeState], None] = lambda _: None,
    ) -> RecordedBlock:
        """Add a block. ``included`` and ``timed_out`` name paras with a pending candidate.

        ``requests`` are (``open``, ``accept`` or ``close``, sender, recipient); ``changes`` are values of storage by key. ``upgrade_to`` is
        the runtime in the state after the block. ``hidden`` changes the state without an event. A block that is not
        canonical is one of a fork, from which the chain continues.
        """
        number = self.number + 1
        events = Writer()
        listed: list[bytes] = []
        if new_session:
            self.session += 1
            listed.append(_event("Session.NewSession", self.session.to_bytes(4, "little"), INITIALIZATION))
        for para in included:
            candidate = self._pending.pop(para)
            self.state.include(number, candidate.backed())
            listed.append(_candidate_event("Included", candidate))
        listed += [_candidate_event("TimedOut", self._pending.pop(para)) for para in timed_out]
        candidates = list(backed)
        for candidate in candidates:
            self._pending[candidate.para_id], self._backed_at[candidate.para_id] = candidate, number
            listed.append(_candidate_event("Backed", candidate))
        listed += [self._request(*each) for each in requests]
        self.state.idle()
        hidden(self.state)
        for para, message in downward:
            self.state.send_downward(number, para, message)
        if new_session:
            self.state.change_session()
        for key, value in (changes or {}).items():
            self.state.other.pop(key, None)
            self.state.other |= {} if value is None else {key: value}
        events.compact(len(listed))
        events.buffer += b"".join(listed)
        block = self._block(number, candidates, bytes(events.buffer), upgraded=upgrade_to is not None)
        self.recording.put_block(block, canonical=canonical)
        if upgrade_to is not None:
            self.spec_version = upgrade_to
            self.recording.set_runtime(number, upgrade_to)
        self.number, self.parent = number, bytes.fromhex(block.hash[2:])
        return block

    def _request(self, kind: str, sender: int, recipient: int) -> bytes:
        ends = sender.to_bytes(4, "little") + recipient.to_bytes(4, "little")
        if kind == "open":
            self.state.requests[sender, recipient] = False
            return _event(
                "Hrmp.OpenChannelRequested", ends + (1_000).to_bytes(4, "little") + (102_400).to_bytes(4, "little")
            )
        if kind == "accept":
            self.state.requests[sender, recipient] = True
            return _event("Hrmp.OpenChannelAccepted", ends)
        if kind != "close":
            raise ValueError(f"requests: expected open, accept or close, found {kind!r}")
        self.state.closing.append((sender, recipient))
        return _event("Hrmp.ChannelClosed", sender.to_bytes(4, "little") + ends)

    def _block(self, number: int, candidates: list[MadeCandidate], events: bytes, *, upgraded: bool) -> RecordedBlock:
        storage = self.state.storage() | {keys.SYSTEM_EVENTS: events}
        for para, candidate in self._pending.items():
            storage |= pending_storage(candidate.descriptor(), candidate.commitments(), self._backed_at[para])
        extrinsics = [TIMESTAMP, inherent(candidates)]
        logs = (RUNTIME_UPDATED,) if upgraded else ()
        header = Header(number, self.parent, root_of(storage), ordered_root(extrinsics), logs)
        body = {"header": header.to_json(), "extrinsics": [to_hex(each) for each in extrinsics]}
        return RecordedBlock(
            number, to_hex(header.hash), header.to_json(), {"block": body, "justifications": None},
            {to_hex(key): to_hex(value) for key, value in storage.items()}, self.spec_version, is_whole=True,
        )  # fmt: skip


def inherent(candidates: Iterable[MadeCandidate]) -> bytes:
    """Return the extrinsic `ParaInherent.enter`, without bitfields, votes and disputes."""
    out = Writer()
    out.buffer += INHERENT
    out.compact(0)
    backed = list(candidates)
    out.compact(len(backed))
    for candidate in backed:
        out.buffer += candidate.descriptor() + candidate.commitments()
        out.compact(0)
        out.compact(0)
    out.compact(0)
    whole = Writer()
    whole.bytes(bytes(out.buffer))
    return bytes(whole.buffer)


def _event(name: str, fields: bytes, phase: bytes = APPLY) -> bytes:
    return phase + bytes(EVENTS[name]) + fields + b"\x00"


def _candidate_event(what: str, candidate: MadeCandidate) -> bytes:
    out = Writer()
    out.buffer += candidate.receipt()
    out.bytes(candidate.head_data)
    out.u32(0)
    if what != "TimedOut":
        out.u32(0)
    return _event(f"ParaInclusion.Candidate{what}", bytes(out.buffer))


VOTE_BYTES: Final = 65
SIGNATURE_BYTES: Final = 64


def make_up_storage(recording: Recording, runtime: Runtime, first: int, state: MadeState) -> None:
    """Make up storage after block ``first`` and all later ones of a recording, beginning with ``state``.

    Paras with candidates become parachains. A channel that a candidate uses must be in ``state``.
    """
    start = decoded(recording, runtime, first)
    pending = {_receipt(each): each for each in start.candidates}
    blocks = [decoded(recording, runtime, number) for number in range(first + 1, recording.last + 1)]
    for block in (start, *blocks):
        for candidate in block.candidates:
            state.lifecycles.setdefault(candidate.para_id, PARACHAIN)
    before = state.storage()
    waiting: dict[bytes, bytes] = {}
    for descriptor, commitments in _raw_candidates(recording.blocks[recording.canonical[first]], runtime.enter):
        waiting |= pending_storage(descriptor, commitments, first)
    recording.put_storage(first, _hex(before | waiting))
    recording.put_storage(first + 1, _hex(dict.fromkeys(waiting)))
    for block in blocks:
        for receipt in block.included:
            if receipt in pending:
                state.include(block.number, pending.pop(receipt))
        pending |= {_receipt(each): each for each in block.candidates}
        after = state.storage()
        gone = dict.fromkeys(before.keys() - after.keys())
        changed = {key: value for key, value in after.items() if before.get(key) != value}
        recording.put_storage(block.number, _hex(gone | changed))
        before = after


def decoded(recording: Recording, runtime: Runtime, number: int) -> ChainBlock:
    """Return a recorded block."""
    block = recording.blocks[recording.canonical[number]]
    events = block.storage[to_hex(keys.SYSTEM_EVENTS)]
    return decode_block(read_block(block.body, events, bytes.fromhex(block.hash[2:])), runtime)


def _receipt(candidate: BackedCandidate) -> Receipt:
    return Receipt(candidate.para_id, candidate.relay_parent, candidate.commitments_hash)


def _hex(values: dict[bytes, bytes] | dict[bytes, bytes | None] | dict[bytes, None]) -> dict[str, str | None]:
    return {to_hex(key): None if value is None else to_hex(value) for key, value in sorted(values.items())}


def _raw_candidates(block: RecordedBlock, enter: bytes) -> Iterator[tuple[bytes, bytes]]:
    assert block.body is not None
    for extrinsic in block.body["block"]["extrinsics"]:
        reader = Reader(bytes.fromhex(extrinsic[2:]))
        reader.compact()
        if reader.data[reader.position + 1 : reader.position + 1 + len(enter)] != enter:
            continue
        reader.take(1 + len(enter))
        for _ in range(reader.count()):
            _skip_bits(reader)
            reader.take(4 + SIGNATURE_BYTES)
        for _ in range(reader.count()):
            descriptor = reader.take(DESCRIPTOR_BYTES)
            start = reader.position
            reader.items(reader.bytes)
            for _ in range(reader.count()):
                reader.u32()
                reader.bytes()
            reader.option(reader.bytes)
            reader.bytes()
            reader.take(4 + 4)
            yield descriptor, reader.data[start : reader.position]
            reader.take(reader.count() * VOTE_BYTES)
            _skip_bits(reader)


def _skip_bits(reader: Reader) -> None:
    reader.take((reader.compact() + 7) // 8)
