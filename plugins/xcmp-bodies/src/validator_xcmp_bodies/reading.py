# SPDX-License-Identifier: Apache-2.0
"""Reads a held body from the places of its parts, and verifies it again: who reads it trusts nothing but the relay chain's root."""

from __future__ import annotations

from collections.abc import Callable

from validator.plugin.job_api import RecordUnreadable
from validator_xcmp_bodies import records
from validator_xcmp_bodies.outcomes import Held, RecordOffset
from validator_xcmp_bodies.parts import BodyError, Part, measure, rejoin


def read_body(lane: str, held: Held, value_at: Callable[[RecordOffset], bytes]) -> list[bytes]:
    """Return the payloads of a held body; ``value_at`` returns the record at a place, and raises if it is gone.

    Raises `BodyError`: a record that is no part, parts that cannot be joined, another root or size than the listed one.
    """
    name = f"{lane}: the body of {held.sent_at}/{held.sender} for {held.recipient}"
    parts = [_part(place, value_at(place)) for place in held.places]
    try:
        payloads = rejoin(parts)
    except BodyError as error:
        raise BodyError(f"{name} cannot be joined: {error}") from error
    found = measure(payloads)
    if (found.root, found.size) != (held.root, held.size):
        raise BodyError(f"{name}: expected root {held.root.hex()}, found {found.root.hex()}")
    return payloads


def gone(place: RecordOffset) -> str:
    """Return what to say of a record that retention has removed."""
    return f"{records.BODIES} {place.partition}/{place.offset}: the record is gone; bodies are kept for [jobs.xcmp-bodies] retention_hours"


def _part(place: RecordOffset, value: bytes) -> Part:
    try:
        return records.decode_body(value)[2]
    except (RecordUnreadable, BodyError) as error:
        raise BodyError(f"{records.BODIES} {place.partition}/{place.offset}: {error}") from error
