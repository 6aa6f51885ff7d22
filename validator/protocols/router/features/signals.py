# SPDX-License-Identifier: Apache-2.0
"""Signals of a candidate, behind the first empty entry of its upward messages. Source: chain_2026 3.14, 3.15; RFC 103."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from validator.core.errors import Report, refuse
from validator.core.outcomes import Signal
from validator.core.scale import DecodeError, Reader
from validator.protocols.router.features.errors import SignalDuplicate, SignalsTooMany, SignalUndecodable

PEER_ID_BYTES_MAX: Final = 64
"""Bytes of the peer that a candidate approves."""


class SignalRules(NamedTuple):
    """How the entries behind the separator are read.

    ``check`` reports the first violation of the entries, ``read`` returns the signals up to the first entry that is none.
    """

    check: Callable[[Sequence[bytes], Report], None]
    read: Callable[[Sequence[bytes]], tuple[Signal, ...]]


def decode_select_core(entry: bytes) -> Signal | None:
    """Return the signal ``00 selector(u8) offset(u8)`` at the start of an entry, else None. What follows it is ignored."""
    if len(entry) < 3 or entry[0] != 0:
        return None
    return Signal("SelectCore", selector=entry[1], offset=entry[2])


def decode_any(entry: bytes) -> Signal | None:
    """Return the signal at the start of an entry, else None: that of `decode_select_core`, or ``01 compact(length) bytes`` of a peer."""
    if not entry.startswith(b"\x01"):
        return decode_select_core(entry)
    reader = Reader(entry)
    reader.u8()
    try:
        length = reader.compact()
        return Signal("ApprovedPeer", peer=reader.take(length)) if length <= PEER_ID_BYTES_MAX else None
    except DecodeError:
        return None


def check_one(entries: Sequence[bytes], report: Report = refuse) -> None:
    """Check that at most one entry follows the separator and that it is a signal.

    Reports `SignalsTooMany`, `SignalUndecodable`. Source: chain_2026 3.14.
    """
    if len(entries) > 1:
        report(SignalsTooMany(count=len(entries), limit=1))
    for idx, entry in enumerate(entries[:1]):
        if decode_select_core(entry) is None:
            report(SignalUndecodable(idx=idx))


def check_one_of_each(entries: Sequence[bytes], report: Report = refuse) -> None:
    """Check that at most two entries follow the separator, signals of different kinds.

    Reports, for the first two entries in order, `SignalUndecodable`, `SignalDuplicate`, then `SignalsTooMany`. Source: chain_2026 3.15.
    """
    first: Signal | None = None
    for idx, entry in enumerate(entries[:2]):
        signal = decode_any(entry)
        if signal is None:
            report(SignalUndecodable(idx=idx))
        elif first is not None and signal.kind == first.kind:
            report(SignalDuplicate(idx=idx))
        first = first or signal
    if len(entries) > 2:
        report(SignalsTooMany(count=len(entries), limit=2))


def read_one(entries: Sequence[bytes]) -> tuple[Signal, ...]:
    """Return the signal that `check_one` accepts."""
    return _read(entries[:1], decode_select_core)


def read_one_of_each(entries: Sequence[bytes]) -> tuple[Signal, ...]:
    """Return the signals that `check_one_of_each` looks at, up to the first entry that is none."""
    return _read(entries[:2], decode_any)


def _read(entries: Sequence[bytes], decode: Callable[[bytes], Signal | None]) -> tuple[Signal, ...]:
    found = []
    for entry in entries:
        signal = decode(entry)
        if signal is None:
            break
        found.append(signal)
    return tuple(found)
