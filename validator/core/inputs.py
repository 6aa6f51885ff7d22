# SPDX-License-Identifier: Apache-2.0
"""What the decode stage passes to a lane: decoded records and dead letters."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple


class RecordKind(IntEnum):
    """The kinds of input records, one per topic, in the order in which a block applies them."""

    BLOCK = 0
    REQUEST = 1
    DOWNWARD = 2
    CANDIDATE = 3


class Source(NamedTuple):
    """Where a record was read from."""

    topic: str
    partition: int
    offset: int


class Input(NamedTuple):
    """One decoded record, waiting for its block.

    ``fields`` are the arguments of the record's type as a plain nested tuple, which is cheap to pass between processes. The rule set builds
    the type from it when the block executes. ``fingerprint`` is 8 bytes of BLAKE2b over ``raw``: two records with the same place and
    fingerprint are the same record. ``index`` is 0 for a block record.
    """

    kind: RecordKind
    block: int
    index: int  # type: ignore[assignment]  # shadows tuple.index
    fingerprint: bytes
    source: Source
    raw: bytes
    fields: tuple[Any, ...]


class DeadReason(IntEnum):
    """Why a record becomes a dead letter."""

    UNDECODABLE = 0
    UNKNOWN_SCHEMA = 1
    LIMIT = 2
    UNKNOWN_LANE = 3
    LATE = 4
    CONFLICT = 5
    FORK = 6
    INDEX_OUT_OF_RANGE = 7
    TOO_FAR_AHEAD = 8
    SKIPPED = 9

    @property
    def is_of_record(self) -> bool:
        """Whether the record alone decides it; otherwise it also depends on which other records have arrived."""
        return self <= DeadReason.UNKNOWN_LANE


class Whole(NamedTuple):
    """A value of which only the ends are kept: its bytes, and their BLAKE2b-256 unless there were too many to hash."""

    size: int
    hash: bytes | None


class DeadLetter(NamedTuple):
    """A record that no block will ever take, with its raw bytes and the reason in words.

    ``block`` and ``index`` are None if the record could not be decoded that far. ``whole`` is None if ``raw`` is the complete value.
    """

    lane: str
    reason: DeadReason
    detail: str
    source: Source
    raw: bytes
    block: int | None = None
    index: int | None = None  # type: ignore[assignment]  # shadows tuple.index
    whole: Whole | None = None


class Withheld(NamedTuple):
    """A record of which only the place is handed over, since a batch brings its lane too many bytes: the lane takes it from Kafka again."""

    lane: str
    source: Source


class Unreadable(NamedTuple):
    """A record on which decoding itself has failed, through a bug: its lane cannot continue until that is fixed or the record skipped."""

    lane: str
    detail: str
    source: Source
    raw: bytes
