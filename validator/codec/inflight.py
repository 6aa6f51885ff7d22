# SPDX-License-Identifier: Apache-2.0
"""Decoded records as bytes, between the process that decodes them and the one that executes them.

They are packed with marshal, Python's fastest format for plain tuples. marshal is made for exactly one interpreter version and for trusted
bytes. So nothing packed here is stored or sent to another program: it lives between two stages of one micro-batch of one job, whose workers
run the same Python. Stored data (journal, snapshots) has its own canonical, versioned encoding.
"""

from __future__ import annotations

import marshal
from typing import TYPE_CHECKING, Any

from validator.core.inputs import DeadLetter, DeadReason, Input, RecordKind, Source, Whole

if TYPE_CHECKING:
    from collections.abc import Iterable

_KINDS = tuple(RecordKind)
_REASONS = tuple(DeadReason)


def pack(items: Iterable[Input | DeadLetter]) -> bytes:
    """Return inputs and dead letters as bytes for `unpack`; marshal accepts only plain tuples and ints, hence the conversions."""
    return marshal.dumps([_plain(item) for item in items])


def unpack(packed: bytes) -> list[Input | DeadLetter]:
    """Return the items that `pack` was given, in order."""
    return [_typed(plain) for plain in marshal.loads(packed)]  # noqa: S302 - see the module docstring


def _plain(item: Input | DeadLetter) -> tuple[Any, ...]:
    if isinstance(item, Input):
        kind, block, index, fingerprint, source, raw, fields = item
        return int(kind), block, index, fingerprint, tuple(source), raw, fields
    lane, reason, detail, source, raw, dead_block, dead_index, whole = item
    return lane, int(reason), detail, tuple(source), raw, dead_block, dead_index, whole and tuple(whole)


def _typed(plain: tuple[Any, ...]) -> Input | DeadLetter:
    if isinstance(plain[0], int):
        kind, block, index, fingerprint, source, raw, fields = plain
        return Input(_KINDS[kind], block, index, fingerprint, Source._make(source), raw, fields)
    lane, reason, detail, source, raw, dead_block, dead_index, whole = plain
    whole = whole and Whole._make(whole)
    return DeadLetter(lane, _REASONS[reason], detail, Source._make(source), raw, dead_block, dead_index, whole)
