# SPDX-License-Identifier: Apache-2.0
"""Blocks that are made up: what no recording has, such as session changes, requests for channels, time-outs, upgrades and forks.

A made block has true roots: that of its extrinsics, and that of all of its storage, so that proofs of it verify. Its events have the
indices of Polkadot's runtimes 9430 and 1000001; `tests/test_made.py` decodes them with the recorded metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from validator.plugin.api import Writer
from validator_relay_chain import keys
from validator_relay_chain.candidates import BackedCandidate, HorizontalMessage
from validator_relay_chain.hashing import blake2b_256
from validator_relay_chain.header import Header, to_hex
from validator_relay_chain.mock.recording import RecordedBlock, Recording
from validator_relay_chain.mock.state import MadeState, pending_storage
from validator_relay_chain.trie import ordered_root, root_of

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
