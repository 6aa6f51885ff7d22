# SPDX-License-Identifier: Apache-2.0
"""A block as the chain has it: candidates, what became available, requests. Everything that can be recomputed is compared.

Nothing here asks a node. What also needs storage (downward messages, session changes) follows in `convert`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from validator.plugin.api import DecodeError
from validator_relay_chain.candidates import COLLATOR_END, BackedCandidate, read_inherent
from validator_relay_chain.errors import BadAnswer, ChainContradiction, UndecodableBlock
from validator_relay_chain.header import Header, from_hex, to_hex
from validator_relay_chain.layout import DESCRIPTOR_BYTES
from validator_relay_chain.metadata import CandidateEvent, Event, Runtime
from validator_relay_chain.trie import ordered_root


@dataclass(frozen=True, slots=True)
class RawBlock:
    """A block as a node gives it."""

    header: Header
    extrinsics: tuple[bytes, ...]
    """Each with its length."""
    events: bytes
    """The value of ``System.Events`` after the block; empty if the block has none."""
    are_events_proven: bool = False
    """Whether the header's state root proves the events."""


class Receipt(NamedTuple):
    """A candidate that an event names."""

    para_id: int
    relay_parent: bytes
    commitments_hash: bytes


class ChannelEvent(NamedTuple):
    """An event of the pallet ``Hrmp``, with its fields in the order of the metadata."""

    name: str
    fields: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ChainBlock:
    """What a block did, as far as messages are concerned."""

    header: Header
    candidates: tuple[BackedCandidate, ...]
    """Those that the runtime accepted, in order."""
    included: tuple[Receipt, ...]
    timed_out: tuple[Receipt, ...]
    channel_events: tuple[ChannelEvent, ...]
    new_session: bool
    """Whether a session begins: the paras' modules apply what is due at the end of this block."""
    dropped: int
    """Candidates of the inherent that the runtime did not accept."""
    unread: tuple[str, ...] = ()
    """What could not be decoded and is not needed for a record."""

    @property
    def number(self) -> int:
        """The block's number."""
        return self.header.number


def read_block(answer: Any, events: Any, expected_hash: bytes) -> RawBlock:
    """Return the block that ``chain_getBlock`` and ``state_getStorage`` of ``System.Events`` answered.

    Raises `BadAnswer`: not a block, a header with another hash, extrinsics or events that are no hex.
    """
    block = answer.get("block") if isinstance(answer, dict) else None
    if not isinstance(block, dict) or not isinstance(block.get("extrinsics"), list):
        raise BadAnswer(f"block {to_hex(expected_hash)}: expected header and extrinsics, found neither")
    header = Header.from_json(block.get("header"))
    check_hash(header, expected_hash)
    extrinsics = tuple(from_hex(each, f"block {header.number}: extrinsic") for each in block["extrinsics"])
    return RawBlock(header, extrinsics, from_hex(events, f"block {header.number}: System.Events"))


def check_hash(header: Header, expected_hash: bytes) -> None:
    """Raise `BadAnswer` if a header has another hash than the block that was asked for."""
    if header.hash != expected_hash:
        raise BadAnswer(
            f"block {header.number}: expected a header with hash {to_hex(expected_hash)}, found one with {to_hex(header.hash)}"
        )


def check_extrinsics(raw: RawBlock, version: int = 0) -> None:
    """Raise `BadAnswer` if the extrinsics are not those of the header. ``version`` is the state version of their root."""
    root = ordered_root(raw.extrinsics, version)
    if root != raw.header.extrinsics_root:
        raise BadAnswer(
            f"block {raw.header.number}: expected extrinsics with root {to_hex(raw.header.extrinsics_root)}, found {to_hex(root)}"
        )


def decode_block(raw: RawBlock, runtime: Runtime) -> ChainBlock:
    """Return what a block did. ``runtime`` is the one in the state before the block.

    Raises, in this order: `BadAnswer` for other extrinsics than the header's, `UndecodableBlock`, and `ChainContradiction` if events name a
    candidate that the inherent does not have.
    """
    check_extrinsics(raw, runtime.extrinsics_version)
    number = raw.header.number
    try:
        events = runtime.lane_events(raw.events)
        backed = [_receipt(each) for each in _of(events, "ParaInclusion", "CandidateBacked")]
        listed, unread = _candidates(raw, runtime, is_needed=bool(backed))
        included = tuple(_receipt(each) for each in _of(events, "ParaInclusion", "CandidateIncluded"))
        timed_out = tuple(_receipt(each) for each in _of(events, "ParaInclusion", "CandidateTimedOut"))
    except UndecodableBlock as error:
        raise UndecodableBlock(f"block {number}: {error}") from error
    except (DecodeError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UndecodableBlock(f"block {number}: {runtime}: {type(error).__name__}: {error}") from error
    accepted = _accepted(number, listed, backed)
    return ChainBlock(
        raw.header,
        accepted,
        included,
        timed_out,
        tuple(
            ChannelEvent(each.name, each.fields) for each in events if isinstance(each, Event) and each.pallet == "Hrmp"
        ),
        any(each.pallet == "Session" and each.name == "NewSession" for each in events),
        len(listed) - len(accepted),
        unread,
    )


def _candidates(
    raw: RawBlock, runtime: Runtime, *, is_needed: bool
) -> tuple[tuple[BackedCandidate, ...], tuple[str, ...]]:
    """Return the candidates of the inherent, and what did not decode.

    An extrinsic that does not decode may be anything, so the search continues. Raises `DecodeError` if events name candidates and no
    extrinsic has any.
    """
    unread = []
    failure: DecodeError | None = None
    for index, extrinsic in enumerate(raw.extrinsics):
        try:
            found = read_inherent(extrinsic, runtime.enter, signals=runtime.has_signals)
        except DecodeError as error:
            failure = error
            unread.append(f"extrinsic {index}")
            continue
        if found is not None:
            return found, tuple(unread)
    if failure is not None and is_needed:
        raise failure
    return (), tuple(unread)


def _of(events: list[Event | CandidateEvent], pallet: str, name: str) -> list[Event | CandidateEvent]:
    return [each for each in events if each.name == name and each.pallet == pallet]


def _receipt(event: Event | CandidateEvent) -> Receipt:
    """Return the candidate that an event names: para and relay parent begin its descriptor, the hash of its commitments follows."""
    if isinstance(event, CandidateEvent):
        raw = event.receipt
        return Receipt(int.from_bytes(raw[:4], "little"), raw[4:COLLATOR_END], raw[DESCRIPTOR_BYTES:])
    descriptor, commitments_hash = event.fields[0].values()
    para_id, relay_parent, *_ = descriptor.values()
    return Receipt(int(para_id), bytes.fromhex(relay_parent[2:]), bytes.fromhex(commitments_hash[2:]))


def _accepted(number: int, listed: tuple[BackedCandidate, ...], backed: list[Receipt]) -> tuple[BackedCandidate, ...]:
    """Return the candidates that events name, which the runtime leaves in their order, compared by the hash of their commitments."""
    accepted = []
    at = 0
    for place, receipt in enumerate(backed):
        while at < len(listed) and _receipt_of(listed[at]) != receipt:
            at += 1
        if at == len(listed):
            raise ChainContradiction(
                f"block {number}: CandidateBacked {place}, para {receipt.para_id}: expected a candidate of the inherent with "
                f"commitments {to_hex(receipt.commitments_hash)}, found none"
            )
        accepted.append(listed[at])
        at += 1
    return tuple(accepted)


def _receipt_of(candidate: BackedCandidate) -> Receipt:
    return Receipt(candidate.para_id, candidate.relay_parent, candidate.commitments_hash)
