# SPDX-License-Identifier: Apache-2.0
"""What the process of a lane asks the worker for."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any, Final

from validator.codec.encode import OutputRecord
from validator.core.execute import Intervals
from validator.core.types import Block
from validator.lanes.apart.wire import Say, Wire, outputs_of_bytes
from validator.lanes.auditing import AuditFault, Before, Incomplete, Prints, Raised
from validator.lanes.definition import LaneDefinition
from validator.lanes.marker import ForeignMarker
from validator.lanes.parking import InputsGone


class AskedGenesis:
    """A genesis that the worker is asked for when the lane is new."""

    wire: Wire | None = None

    def __iter__(self) -> Iterator[bytes]:
        assert self.wire is not None
        return iter(asked(self.wire, Say.GENESIS))


def asked(wire: Wire, say: Say, *parts: bytes) -> Any:
    """Ask the worker. Raises `InputsGone`, `MemoryError`, `ForeignMarker` as it says."""
    wire.send(say, *parts)
    answer, data = wire.receive()
    if answer is Say.REFUSAL:
        raise _REFUSALS[data[0]](data[1:].decode())
    return pickle.loads(data)  # noqa: S301 - the worker's


_REFUSALS: Final[tuple[type[Exception], ...]] = (InputsGone, MemoryError, ForeignMarker)


def refusal_of(error: Exception) -> bytes | None:
    """Return what to answer instead, None if the error is not the lane's."""
    for number, kind in enumerate(_REFUSALS):
        if isinstance(error, kind):
            return bytes((number,)) + str(error).encode("utf-8", "replace")
    return None


class WorkersState:
    """A lane's state, which the worker has (`validator.lanes.store.StateBackend`)."""

    def __init__(self, wire: Wire, head: bytes | None) -> None:
        self._wire = wire
        self._head = head

    def load_head(self) -> bytes | None:
        """Return the head, or None if the lane is new."""
        return self._head

    def save_head(self, head: bytes) -> None:
        """Replace the head."""
        self._head = head
        self._wire.send(Say.SAVE_HEAD, head)

    def load_slots(self) -> dict[int, bytes]:
        """Return every slot."""
        slots: dict[int, bytes] = asked(self._wire, Say.LOAD_SLOTS)
        return slots

    def save_slot(self, number: int, data: bytes) -> None:
        """Write a slot."""
        self._wire.send(Say.SAVE_SLOT, number.to_bytes(4, "little"), data)

    def remove_slot(self, number: int) -> None:
        """Remove an existing slot."""
        self._wire.send(Say.REMOVE_SLOT, number.to_bytes(4, "little"))

    def load_journal(self) -> Iterator[bytes]:
        """Return the journal's entries in order."""
        entries: list[bytes] = asked(self._wire, Say.LOAD_JOURNAL)
        return iter(entries)

    def append_journal(self, entry: bytes) -> None:
        """Append an entry to the journal."""
        self._wire.send(Say.APPEND_JOURNAL, entry)

    def clear_journal(self) -> None:
        """Remove every entry."""
        self._wire.send(Say.CLEAR_JOURNAL)


def execute_elsewhere(
    wire: Wire, definition: LaneDefinition, before: Before, block: Block, intervals: Intervals
) -> tuple[list[OutputRecord], Prints]:
    """Have the worker let a fresh process execute a block a second time (`auditing.execute_again`)."""
    number = block.record.block
    told = isinstance(before, list)
    packed = pickle.dumps((before, block, intervals)) if told else b""
    answer: tuple[str, bytes, bytes] = asked(wire, Say.AUDIT, number.to_bytes(8, "little"), packed)
    if not isinstance(before, list):
        raise before
    raised, output, prints = answer
    if not output:
        raise Raised(AuditFault(number, "execution", raised)) if raised else Incomplete
    (repeated,) = outputs_of_bytes(bytearray(output), definition.name)
    return repeated.records, Prints.decode(prints)
