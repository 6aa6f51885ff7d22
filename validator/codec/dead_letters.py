# SPDX-License-Identifier: Apache-2.0
"""Bounds dead letters, so that each of them can be written whatever came."""

from __future__ import annotations

from validator.core.hashing import blake2b_256
from validator.core.inputs import DeadLetter, Whole
from validator.core.limits import DEAD_LETTER_DETAIL_CHARACTERS_MAX, DEAD_LETTER_END_BYTES, RECORD_BYTES_MAX


def fitted(letter: DeadLetter, raw_bytes_max: int = RECORD_BYTES_MAX) -> DeadLetter:
    """Return a dead letter within the limits, unchanged if it is.

    Of a value of more than ``raw_bytes_max``, by default `RECORD_BYTES_MAX`, the first and last `DEAD_LETTER_END_BYTES` stay, and ``whole``
    describes the rest. A broker checks the size of a compressed batch, so a value that compresses well may be larger than what a producer
    may send.
    """
    if len(letter.detail) > DEAD_LETTER_DETAIL_CHARACTERS_MAX:
        letter = letter._replace(detail=f"{letter.detail[: DEAD_LETTER_DETAIL_CHARACTERS_MAX - 3]}...")
    raw = letter.raw
    if len(raw) > raw_bytes_max:
        ends = raw[:DEAD_LETTER_END_BYTES] + raw[-DEAD_LETTER_END_BYTES:]
        letter = letter._replace(raw=ends, whole=Whole(len(raw), blake2b_256(raw)))
    return letter
