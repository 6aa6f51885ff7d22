# SPDX-License-Identifier: Apache-2.0
"""Cuts a body into parts, condenses a part to hashes, and joins condensed parts in any order of arrival.

A body is the list of payloads of one logical message. A part carries consecutive *pieces* of it: whole payloads, and fragments of a payload
that is larger than a part. Whoever receives a part hashes its whole payloads at once, without knowing the other parts. So the hashing
needs no order and runs on every core, and what waits for the other parts is 32 bytes per payload. Only fragments wait with their bytes.

A root says nothing about the cut: two cuts of one body verify alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from validator_xcmp.merkle import HASH_SIZE, MSG, tree_root

from validator.plugin.protocol_api import Hash, compact
from validator_xcmp_bodies.limits import PART_BYTES_MAX, PAYLOAD_BYTES_MAX, PAYLOADS_MAX, PIECE_OVERHEAD_BYTES

_LEAF_START: Final = b"\x00" + MSG + b"\x01"
"""What is hashed before a leaf's data (`validator_xcmp.merkle`)."""


class BodyError(ValueError):
    """Payloads or parts that no body can have; the text names the first defect."""


class Part(NamedTuple):
    """Consecutive pieces of a body.

    If it is ``continued``, its first piece is the rest of the previous part's last; if it ``continues``, its last has its rest in the next.
    """

    pieces: tuple[bytes | memoryview, ...]
    continued: bool = False
    continues: bool = False


class Condensed(NamedTuple):
    """A part without its whole payloads: ``leaves`` are their leaf hashes, ``head`` and ``tail`` the fragments before and after them.

    A part that is nothing but the middle of a payload has its bytes in ``head``, and ``tail`` is empty. ``size`` is the bytes of all
    pieces.
    """

    size: int
    head: bytes | None
    leaves: tuple[Hash, ...]
    tail: bytes | None
    continued: bool
    continues: bool

    @property
    def kept_bytes(self) -> int:
        """The bytes that wait with it."""
        return HASH_SIZE * len(self.leaves) + len(self.head or b"") + len(self.tail or b"")


class Measured(NamedTuple):
    """What a complete body is: the sum of its payloads' sizes in bytes, their number, and their root."""

    size: int
    payloads: int
    root: Hash


def measure(payloads: Sequence[bytes | memoryview]) -> Measured:
    """Return size (N-01), number and root (N-I10) of a body's payloads."""
    leaves = [payload_leaf((payload,)) for payload in payloads]
    return Measured(sum(map(len, payloads)), len(payloads), tree_root(MSG, leaves))


def payload_leaf(fragments: Sequence[bytes | memoryview]) -> Hash:
    """Return the leaf of one payload, given in fragments. The bytes are hashed where they are, not copied."""
    state = blake2b(_LEAF_START + compact(sum(map(len, fragments))), digest_size=HASH_SIZE)
    for fragment in fragments:
        state.update(fragment)
    return state.digest()


def cut(payloads: Sequence[bytes], part_bytes_max: int = PART_BYTES_MAX) -> list[Part]:
    """Return a body in parts of at most ``part_bytes_max`` bytes; a body without payloads is one empty part.

    Pieces are views of the payloads. Raises `BodyError`: too many payloads, a payload or body that is too large.
    """
    if len(payloads) > PAYLOADS_MAX:
        raise BodyError(f"payloads: expected at most {PAYLOADS_MAX}, found {len(payloads)}")
    if (size := sum(map(len, payloads))) > PAYLOAD_BYTES_MAX:
        raise BodyError(f"body: expected at most {PAYLOAD_BYTES_MAX} bytes, found {size}")
    parts: list[Part] = []
    pieces: list[bytes | memoryview] = []
    room, continued = part_bytes_max, False

    def close(*, continues: bool) -> None:
        nonlocal pieces, room, continued
        parts.append(Part(tuple(pieces), continued, continues))
        pieces, room, continued = [], part_bytes_max, continues

    for payload in payloads:
        rest = memoryview(payload)
        if len(rest) + PIECE_OVERHEAD_BYTES > room and pieces:
            close(continues=False)
        while len(rest) + PIECE_OVERHEAD_BYTES > room:
            taken = room - PIECE_OVERHEAD_BYTES
            pieces.append(rest[:taken])
            rest = rest[taken:]
            close(continues=True)
        pieces.append(rest)
        room -= len(rest) + PIECE_OVERHEAD_BYTES
    if pieces or not parts:
        close(continues=False)
    return parts


def condense(part: Part) -> Condensed:
    """Return a part with its whole payloads replaced by their hashes.

    Raises `BodyError`: more pieces or bytes than a part may have, a fragment without bytes.
    """
    pieces, continued, continues = part
    if len(pieces) > PAYLOADS_MAX:  # before any is hashed: an empty one costs its writer a byte
        raise BodyError(f"part: expected at most {PAYLOADS_MAX} pieces, found {len(pieces)}")
    size = sum(map(len, pieces))
    if size + PIECE_OVERHEAD_BYTES * len(pieces) > PART_BYTES_MAX:
        raise BodyError(f"part: expected at most {PART_BYTES_MAX} bytes, found {size} in {len(pieces)} pieces")
    if (continued or continues) and not pieces:
        raise BodyError("part: expected the pieces of a payload that continues, found none")
    first = 1 if continued else 0
    end = len(pieces) - 1 if continues and len(pieces) > first else len(pieces)
    head = bytes(pieces[0]) if continued else None
    tail = bytes(pieces[-1]) if end < len(pieces) else None
    if head == b"" or tail == b"":
        raise BodyError("part: expected bytes in each fragment, found an empty one")
    leaves = tuple(payload_leaf((piece,)) for piece in pieces[first:end])
    return Condensed(size, head, leaves, tail, continued, continues)


def join(parts: Iterable[Condensed]) -> Measured | None:
    """Return what the parts of a body, in their order, add up to; None if a fragment has no neighbour, so they are not one body."""
    leaves: list[Hash] = []
    fragments: list[bytes] = []
    size = 0
    for part in parts:
        if part.continued != bool(fragments):
            return None
        size += part.size
        if part.head is not None:
            fragments.append(part.head)
            if part.continues and part.tail is None and not part.leaves:
                continue  # the middle of a payload
            leaves.append(payload_leaf(fragments))
            fragments = []
        leaves += part.leaves
        if part.tail is not None:
            fragments = [part.tail]
    return None if fragments else Measured(size, len(leaves), tree_root(MSG, leaves))


def rejoin(parts: Iterable[Part]) -> list[bytes]:
    """Return the payloads of the parts of a body, in their order. Raises `BodyError` if a fragment has no neighbour."""
    payloads: list[bytes] = []
    fragments: list[bytes | memoryview] = []
    for pieces, continued, continues in parts:
        if continued != bool(fragments):
            raise BodyError("parts: a fragment has no neighbour")
        for at, piece in enumerate(pieces):
            fragments.append(piece)
            if at < len(pieces) - 1 or not continues:
                payloads.append(b"".join(fragments))
                fragments = []
    if fragments:
        raise BodyError("parts: the last payload is cut off")
    return payloads
