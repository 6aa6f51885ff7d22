# SPDX-License-Identifier: Apache-2.0
"""Backed candidates: in the inherent of a block, and pending in storage. Decoded by position; `layout` checks their shape."""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from validator.plugin.api import DecodeError, Reader
from validator_relay_chain.event_scan import length
from validator_relay_chain.hashing import blake2b_256
from validator_relay_chain.layout import DESCRIPTOR_BYTES
from validator_relay_chain.limits import CANDIDATES_MAX

SIGNATURE_BYTES: Final = 64
VOTE_BYTES: Final = 1 + SIGNATURE_BYTES
"""Of a validity vote: implicit or explicit, and a signature."""
COLLATOR_END: Final = 4 + 32
_TWO_U32: Final = Struct("<II")


class HorizontalMessage(NamedTuple):
    """A message to another para."""

    recipient: int
    data: bytes


class BackedCandidate(NamedTuple):
    """A candidate with its commitments."""

    para_id: int
    relay_parent: bytes
    """The hash of the block that it builds on."""
    candidate_hash: bytes
    commitments_hash: bytes
    upward_messages: tuple[bytes, ...]
    """As the candidate has them: messages, then perhaps an empty one and signals (RFC 103)."""
    messages: int
    """How many of them are messages."""
    horizontal_messages: tuple[HorizontalMessage, ...]
    processed_downward_messages: int
    hrmp_watermark: int
    head_data: bytes


class PendingCandidate(NamedTuple):
    """A candidate that waits for availability, in storage."""

    candidate: BackedCandidate
    relay_parent_number: int
    backed_at: int
    """The block that backed it."""


def read_inherent(extrinsic: bytes, call: bytes, *, signals: bool) -> tuple[BackedCandidate, ...] | None:
    """Return the candidates of ``ParaInherent.enter``, or None for another extrinsic.

    ``extrinsic`` is raw, with its length; ``call`` are the indices of pallet and call. ``signals`` says whether an empty upward
    message ends the messages. Raises `DecodeError`.
    """
    reader = Reader(extrinsic)
    length = reader.compact()
    if len(extrinsic) - reader.position != length:
        raise DecodeError(f"an extrinsic says {length} bytes and has {len(extrinsic) - reader.position}")
    version = reader.u8()
    if version not in (4, 5) or extrinsic[reader.position : reader.position + len(call)] != call:
        return None
    reader.take(len(call))
    _skip_bitfields(reader)
    count = reader.count()
    if count > CANDIDATES_MAX:
        raise DecodeError(f"{count} candidates, expected at most {CANDIDATES_MAX}")
    return tuple(_backed(reader, signals=signals) for _ in range(count))


def read_pending(para_raw: bytes, commitments_raw: bytes, *, signals: bool) -> PendingCandidate:
    """Return the pending candidate of a para, from ``PendingAvailability`` and ``PendingAvailabilityCommitments``. Raises `DecodeError`."""
    reader = Reader(para_raw)
    _, _, descriptor = reader.u32(), reader.hash(), reader.take(DESCRIPTOR_BYTES)
    commitments = Reader(commitments_raw)
    candidate = _candidate(descriptor, commitments, signals=signals)
    commitments.end()
    pending = _pending(reader, candidate)
    reader.end()
    return pending


def read_pending_v1(raw: bytes, *, signals: bool) -> tuple[PendingCandidate, ...]:
    """Return the pending candidates of a para, oldest first, from ``ParaInclusion.V1``. Raises `DecodeError`."""
    reader = Reader(raw)
    found = []
    for _ in range(reader.count()):
        _, _, descriptor = reader.u32(), reader.hash(), reader.take(DESCRIPTOR_BYTES)
        found.append(_pending(reader, _candidate(descriptor, reader, signals=signals)))
    reader.end()
    return tuple(found)


def _pending(reader: Reader, candidate: BackedCandidate) -> PendingCandidate:
    _skip_bits(reader)
    _skip_bits(reader)
    relay_parent_number, backed_at, _ = reader.u32(), reader.u32(), reader.u32()
    return PendingCandidate(candidate, relay_parent_number, backed_at)


def _backed(reader: Reader, *, signals: bool) -> BackedCandidate:
    descriptor = reader.take(DESCRIPTOR_BYTES)
    quick = _quickly(descriptor, reader.data, reader.position, signals=signals)
    if quick is not None:
        candidate, reader.position = quick
        return candidate
    candidate = _candidate(descriptor, reader, signals=signals)
    reader.take(reader.count() * VOTE_BYTES)
    _skip_bits(reader)
    return candidate


def _quickly(descriptor: bytes, data: bytes, start: int, *, signals: bool) -> tuple[BackedCandidate, int] | None:
    """Return a backed candidate and the position after it, at half the cost of a `Reader`.

    Returns None if anything is unusual: a reader then takes the candidate, or says what is wrong with it.
    """
    try:
        upward, at = [], start
        count, at = length(data, at)
        for _ in range(count):
            size, at = length(data, at)
            upward.append(data[at : at + size])
            at += size
        horizontal = []
        count, at = length(data, at)
        for _ in range(count):
            size, begin = length(data, at + 4)
            horizontal.append(
                HorizontalMessage(int.from_bytes(data[at : at + 4], "little"), data[begin : begin + size])
            )
            at = begin + size
        if data[at]:
            return None  # it has new code
        size, at = length(data, at + 1)
        head_data = data[at : at + size]
        end = at + size + 8
        votes, at = length(data, end)
        bits, at = length(data, at + votes * VOTE_BYTES)
    except IndexError:
        return None
    at += (bits + 7) // 8
    if at > len(data):
        return None
    processed, watermark = _TWO_U32.unpack_from(data, end - 8)
    parts = tuple(upward), tuple(horizontal), processed, watermark, head_data
    return _of(descriptor, data[start:end], *parts, signals=signals), at


def _candidate(descriptor: bytes, reader: Reader, *, signals: bool) -> BackedCandidate:
    """Read the commitments of a candidate."""
    start = reader.position
    upward = tuple(reader.items(reader.bytes))
    horizontal = tuple(reader.items(lambda: HorizontalMessage(reader.u32(), reader.bytes())))
    reader.option(reader.bytes)
    head_data = reader.bytes()
    processed, watermark = reader.u32(), reader.u32()
    encoded = reader.data[start : reader.position]
    return _of(descriptor, encoded, upward, horizontal, processed, watermark, head_data, signals=signals)


def _of(
    descriptor: bytes,
    commitments: bytes,
    upward: tuple[bytes, ...],
    horizontal: tuple[HorizontalMessage, ...],
    processed: int,
    watermark: int,
    head_data: bytes,
    *,
    signals: bool,
) -> BackedCandidate:
    """Return the candidate with a descriptor and encoded ``commitments``, which the other arguments are parts of."""
    commitments_hash = blake2b_256(commitments)
    cut = upward.index(b"") if signals and b"" in upward else len(upward)
    return BackedCandidate(
        int.from_bytes(descriptor[:4], "little"),
        descriptor[4:COLLATOR_END],
        blake2b_256(descriptor + commitments_hash),
        commitments_hash,
        upward,
        cut,
        horizontal,
        processed,
        watermark,
        head_data,
    )


def _skip_bitfields(reader: Reader) -> None:
    """Skip what validators say of availability, hundreds in a block: bits, an index and a signature each. Raises `DecodeError`."""
    count, data, at = reader.count(), reader.data, reader.position
    end = _end_of_equal_bitfields(data, at, count)
    if end is not None:
        reader.position = end
        return
    for _ in range(count):
        head = data[at : at + 2]
        if len(head) == 2 and head[0] & 3 == 0:  # up to 63 bits
            at += 1
            bits = head[0] >> 2
        elif len(head) == 2 and head[0] & 3 == 1 and head[1]:  # up to 16,383
            at += 2
            bits = (head[0] | head[1] << 8) >> 2
        else:
            reader.position = at
            bits = reader.compact()
            at = reader.position
        at += (bits + 7) // 8 + 4 + SIGNATURE_BYTES
    reader.position = min(at, len(data))
    reader.take(at - reader.position)


def _end_of_equal_bitfields(data: bytes, start: int, count: int) -> int | None:
    """Return where bitfields end if each has as many bits as the first: usually a bit for each core. Their lengths are a stride apart."""
    try:
        bits, after = length(data, start)
    except IndexError:
        return None
    stride = after - start + (bits + 7) // 8 + 4 + SIGNATURE_BYTES
    end = start + count * stride
    lengths_agree = all(data[at:end:stride] == data[at : at + 1] * count for at in range(start, after))
    return end if end <= len(data) and lengths_agree else None


def _skip_bits(reader: Reader) -> None:
    reader.take((reader.compact() + 7) // 8)
